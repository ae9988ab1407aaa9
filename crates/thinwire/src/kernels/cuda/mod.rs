//! The kernels on an NVIDIA GPU: selection at the speed of its memory.
//!
//! One walk reads gradient and residual and writes the residual; it measures, and marks what is larger than a guess.
//! The marked elements become a short list in order of position, and everything else happens on that list: exact
//! selection digit by digit, counting, cutting. If the guess was too high, the list is made anew from the exact score.
//! Sums are made in the CPU's order, so that all selectors choose the same elements as on the CPU, bit for bit.
//!
//! Everything runs in the order of one stream. The host waits once for the message of a bucket; fixed-`k` methods ask
//! nothing before, and the layers of a bucket go through all of it [together](crate::kernels::Kernels::finish_all).
//! Kernels are [compiled at run time](Program), and nothing here needs CUDA to build.

mod ahead;
mod batch;
mod cache;
mod call;
mod card;
mod choose;
mod codec;
mod compile;
mod device;
mod event;
mod fft;
mod job;
mod kernels;
mod list;
mod mean;
mod memory;
mod pending;
mod section;
mod spectrum;
mod survey;
mod trip;
mod unit;
mod upload;
mod walk;
mod watch;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub use ahead::Counter;
pub use call::Calls;
pub use compile::Program;
pub use device::Device;
pub use event::Event;
pub use list::DeviceList;
pub use memory::{Buffer, Element, Gradient, Pinned};
pub use spectrum::CudaSpectrum;
pub use survey::{CudaLater, CudaSurvey};
pub use trip::{FftTrip, TripTimes};
pub use watch::Watch;

use crate::{Error, Result};
use batch::{Batch, Heads};
use choose::Chooser;
use codec::{Codec, Run};
use device::launch;
use job::Job;
use mean::Mean;
use pending::Pending;
use unit::Unit;
use upload::Upload;
use walk::Workspace;

const THREADS: usize = 256;

/// A GPU, with its work space. One `Cuda` serves any number of buckets, one after another.
///
/// ```no_run
/// use thinwire::kernels::cuda::{Buffer, Cuda, Gradient};
/// use thinwire::kernels::{Guess, Kernels, List, Walk};
/// use thinwire::select::Survey;
///
/// let mut cuda = Cuda::new(0)?;
/// let memory = Buffer::of(cuda.device(), &[0.1, -3.0, 0.2, 2.0])?;
/// let gradient = Gradient::of(&memory);
/// let mut residual = cuda.zeros(4)?;
/// let (mut positions, mut values) = (cuda.positions(), cuda.values());
/// let (whole, mut guess) = ([0..4], Guess::default());
/// let mut survey = cuda.survey(Walk::new(&gradient, &mut residual), &whole, 2, &mut guess)?;
/// survey.keep_top(2);
/// Cuda::finish(survey, &mut positions, &mut values)?;
/// assert_eq!(cuda.on_host(&mut values)?, [-3.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cuda {
    device: Arc<Device>,
    work: Workspace,
    chooser: Chooser,
    units: HashMap<Vec<Range<usize>>, Arc<Unit>>,
    /// The same of units that are walked together: their ranges, each with an empty one behind.
    batches: HashMap<Vec<Range<usize>>, Arc<Batch>>,
    heads: Heads,
    upload: Upload,
    mean: Mean,
    pending: Pending,
    /// Work space of several uses, none of which lasts longer than a call.
    scratch: Buffer<f32>,
    indices: Vec<u32>,
    decoded: Vec<f32>,
    bytes: Vec<u8>,
    staged: Pinned<f32>,
    /// A vector that the host works on.
    kept: Vec<f32>,
    vector: Program,
    codec: Codec,
    /// The value bytes of the section that was encoded on the device last.
    encoded: Option<Run<u8>>,
    message: Pinned<u8>,
    /// Whether benchmarks want to know when selections end, and when the last one did.
    timed: bool,
    chosen: Option<Event>,
}

impl Cuda {
    /// Opens a GPU, with a stream of its own.
    ///
    /// # Errors
    /// [`Error::Device`] with the way out where there is no driver, no GPU, no NVRTC, or one of them is too old.
    pub fn new(ordinal: usize) -> Result<Cuda> {
        Cuda::on(Device::open(ordinal)?)
    }

    /// Why [`new`](Cuda::new) would fail, if it would.
    ///
    /// ```
    /// // On a machine without a GPU this is one sentence, and nothing else happens.
    /// if let Some(reason) = thinwire::kernels::cuda::Cuda::unusable(0) {
    ///     assert!(reason.starts_with("can't "), "{reason}");
    /// }
    /// ```
    pub fn unusable(ordinal: usize) -> Option<String> {
        Device::unusable(ordinal)
    }

    /// Works on a GPU that is open.
    pub fn on(device: Arc<Device>) -> Result<Cuda> {
        Ok(Cuda {
            work: Workspace::new(&device)?,
            chooser: Chooser::new(&device)?,
            units: HashMap::new(),
            batches: HashMap::new(),
            heads: Heads::new(&device),
            upload: Upload::new(&device),
            mean: Mean::new(&device),
            pending: Pending::default(),
            scratch: Buffer::empty(&device),
            indices: Vec::new(),
            decoded: Vec::new(),
            bytes: Vec::new(),
            staged: Pinned::empty(&device),
            kept: Vec::new(),
            vector: Program::new("vector"),
            codec: Codec::new(&device)?,
            encoded: None,
            message: Pinned::empty(&device),
            timed: false,
            chosen: None,
            device,
        })
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// For benchmarks: from now on [`chosen_at`](Cuda::chosen_at) tells where on the device's clock a selection ended.
    pub fn time_selections(&mut self) {
        self.timed = true;
    }

    /// The point at which what was selected last stood in the device's memory, before it was copied to the host.
    pub fn chosen_at(&mut self) -> Option<Event> {
        self.chosen.take()
    }

    /// The tables of a unit, made the first time.
    fn unit(&mut self, ranges: &[Range<usize>]) -> Result<Arc<Unit>> {
        if let Some(unit) = self.units.get(ranges) {
            return Ok(unit.clone());
        }
        let unit = Arc::new(Unit::new(&self.device, ranges)?);
        self.units.insert(ranges.to_vec(), unit.clone());
        Ok(unit)
    }

    /// Where the device has the positions of several ranges, if they are few enough to be worth a list; the address.
    fn positions_of(&mut self, ranges: &[Range<usize>]) -> Result<Option<u64>> {
        let count: usize = ranges.iter().map(Range::len).sum();
        if ranges.len() < 3 || count > list::SHORT {
            return Ok(None);
        }
        self.unit(ranges)?.positions(&self.device, ranges).map(Some)
    }

    /// Blocks for a kernel with a thread for each of `count` elements, or a few elements for each thread.
    fn grid(&self, count: usize) -> usize {
        count.div_ceil(THREADS).min(32 * self.device.processors() as usize)
    }

    /// `vector[positions[i]] = 0`, by addresses.
    fn clear_at(&self, positions: u64, count: usize, vector: &Buffer<f32>) -> Result<()> {
        launch!(
            self.device,
            &self.vector,
            "clear",
            self.grid(count),
            THREADS,
            positions,
            count as u64,
            vector.address()
        )
    }

    /// `out[i] = values[positions[i]]`, by addresses.
    fn gather(&self, positions: u64, count: usize, values: u64, out: u64) -> Result<()> {
        launch!(
            self.device,
            &self.vector,
            "gather",
            self.grid(count),
            THREADS,
            positions,
            count as u64,
            values,
            out,
        )
    }

    /// `values[positions[i]] += what[i] * factor`, by addresses.
    fn scatter_to(
        &self,
        (positions, what): (u64, u64),
        count: usize,
        factor: f32,
        values: u64,
    ) -> Result<()> {
        launch!(
            self.device,
            &self.vector,
            "scatter_add",
            self.grid(count),
            THREADS,
            positions,
            what,
            count as u64,
            factor,
            values,
        )
    }

    /// The gradient times `factor`, into the staging memory of the host.
    fn fetch_gradient(&mut self, factor: f32, gradient: &Gradient) -> Result<()> {
        let len = gradient.len();
        self.staged.reserve(len)?;
        let mut from = gradient.address();
        if factor != 1.0 || gradient.element() != Element::F32 {
            self.scratch.reserve(len, 0)?;
            from = self.scratch.address();
            self.widen(gradient.address(), gradient.element(), len, factor, from)?;
        }
        self.staged.fetch(0..len, from)?;
        self.device.wait()
    }

    /// `out[i] = gradient[i] * scale`, by addresses.
    fn widen(&self, gradient: u64, element: Element, count: usize, scale: f32, out: u64) -> Result<()> {
        launch!(
            self.device,
            &self.vector,
            "widen",
            self.grid(count),
            THREADS,
            gradient,
            element.number(),
            count as u64,
            scale,
            out,
        )
    }

    /// Every `stride`-th score of a unit from element `start` on, in host memory.
    fn sample(
        &mut self,
        job: &Job,
        ranges: &[Range<usize>],
        start: usize,
        stride: usize,
    ) -> Result<Vec<f32>> {
        let elements: usize = ranges.iter().map(Range::len).sum();
        let count = elements.saturating_sub(start).div_ceil(stride);
        self.scratch.reserve(count, 0)?;
        let (guard, weights) = job.relative();
        let (mut before, mut next, mut written) = (0, start, 0);
        for range in ranges {
            let inside = (before + range.len()).saturating_sub(next).div_ceil(stride);
            let (first, out) = ((range.start + next - before) as u64, self.scratch.at(written));
            launch!(
                self.device,
                &self.vector,
                "sample",
                self.grid(inside),
                THREADS,
                job.residual,
                weights,
                guard,
                job.side(),
                first,
                stride as u64,
                inside as u64,
                out,
            )?;
            (next, written, before) = (next + inside * stride, written + inside, before + range.len());
        }
        self.scratch.read(0..count)
    }

    /// A gradient must be as long as the work that is to be done on it.
    fn check(gradient: &Gradient, end: usize) -> Result<()> {
        if gradient.len() >= end {
            return Ok(());
        }
        Err(Error::Device {
            action: "use a gradient on the GPU".into(),
            reason: format!("it has {} elements; expected at least {end}", gradient.len()),
        })
    }
}
