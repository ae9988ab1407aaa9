//! The first seam: where the arithmetic runs.
//!
//! Everything that walks a whole vector stands behind the trait [`Kernels`]; selectors, codecs and methods
//! above it never touch an element of a gradient themselves. [`Cpu`] is the implementation with SIMD and
//! threads; another device is another implementation of the same trait. Gradient, residual, momentum, spectrum and
//! the lists of what is to be sent are in the device's memory; frames and sums are in the host's.
//!
//! The heart is [`Kernels::survey`]: one walk over memory that adds the gradient to what was kept, measures
//! the result, and collects the few elements large enough to be worth sending. Every selector is then
//! answered from those few elements (see [`Survey`]).

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod guess;
mod later;
mod memory;
mod outgoing;
pub(crate) mod statistics;
mod walk;

use std::fmt::Debug;
use std::ops::Range;

pub use cpu::Cpu;
pub use guess::Guess;
pub use later::{Ended, Finished};
pub use memory::{List, Run, Spectrum, Vector};
pub use outgoing::Outgoing;
pub use statistics::{Fault, NonFinite, Statistics};
pub use walk::{Score, Update, Walk};

use crate::Result;
use crate::codec::{FrameWriter, Section, SectionSize, ValueForm};
use crate::pipeline::ValuePlan;
use crate::select::Survey;
use crate::transform::FftBlock;

/// Where the arithmetic runs. See the [module](self) for the idea.
///
/// Work may be under way when a method returns, as long as everything that is asked later finds it done; an error
/// is then said by a later method. Ranges and positions lie inside their vectors, and vectors are as long as the
/// bucket; anything else is a mistake of the caller, and panics.
///
/// ```
/// use thinwire::kernels::{Cpu, Guess, Kernels, List, Walk};
/// use thinwire::select::Survey;
///
/// let gradient = [0.1, -3.0, 0.2, 2.0];
/// let mut cpu = Cpu::new(1);
/// let mut residual = cpu.zeros(4)?;
/// let mut guess = Guess::default();
/// let (mut positions, mut values) = (cpu.positions(), cpu.values());
/// let whole = [0..4];
/// let walk = Walk::new(&gradient[..], &mut residual);
/// let mut survey = cpu.survey(walk, &whole, 2, &mut guess)?;
/// survey.keep_top(2);
/// let statistics = Cpu::finish(survey, &mut positions, &mut values)?;
/// assert_eq!((&positions[..], &values[..]), (&[1, 3][..], &[-3.0, 2.0][..]));
/// assert_eq!(statistics.max, 2.0);
/// cpu.clear(positions.all(), &mut residual)?;
/// assert_eq!(residual, [0.1, 0.0, 0.2, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Kernels: Debug + Send + 'static {
    /// What callers hand in as gradient and as weights; `[f32]` on the CPU.
    type Gradient: ?Sized + Debug;
    /// What is kept from step to step; `Vec<f32>` on the CPU.
    type Vector: Vector;
    /// Positions of what a step is about to send; `Vec<u32>` on the CPU.
    type Positions: List;
    /// Their values; `Vec<f32>` on the CPU.
    type Values: List;
    /// The frequencies of a unit.
    type Spectrum: Spectrum;
    /// The answer to [`survey`](Kernels::survey).
    type Survey<'a>: Survey
    where
        Self: 'a;
    /// A selection whose end was put off; [`Infallible`](std::convert::Infallible) where none ever is.
    type Later: Debug + Send;

    // ---- memory ----

    /// A vector of zeros, which is really there: the first step does not wait for its memory.
    fn zeros(&mut self, len: usize) -> Result<Self::Vector>;

    /// An empty list.
    fn positions(&mut self) -> Self::Positions;

    /// An empty list.
    fn values(&mut self) -> Self::Values;

    /// The frequency side of `ranges` of a bucket, taken as one vector.
    fn spectrum(&mut self, ranges: &[Range<usize>], block: FftBlock) -> Result<Self::Spectrum>;

    /// Elements of a gradient.
    fn elements(gradient: &Self::Gradient) -> usize;

    /// Bytes of work space held beyond the vectors, lists and spectra of the caller.
    fn workspace_bytes(&self) -> usize;

    /// A gradient, or weights, that this step is going to work on: called once in a step, before anything else touches
    /// them. A device that is told when they become ready waits for it from here on.
    fn arrive(&mut self, gradient: &Self::Gradient) -> Result<()> {
        let _ = gradient;
        Ok(())
    }

    /// Everything that was asked for is done: called at the end of a step, before the gradients are handed back.
    fn complete(&mut self) -> Result<()> {
        Ok(())
    }

    // ---- walks: the gradient enters the memory ----

    /// One walk over `ranges` of the bucket: accumulate, measure, and collect at least the `expect` best
    /// elements (fewer if fewer are non-zero). `guess` remembers from step to step where to cut.
    ///
    /// The momentum and the weights are there if the update or the score needs them.
    ///
    /// A NaN or infinity does not enter the memory: what has entered beside it is taken back out, exactly but for
    /// rounding (that of the addition and of the subtraction that undoes it, and, with momentum, of a
    /// multiplication and a division by the coefficient). It is said here, or by [`finish`](Kernels::finish) or
    /// [`finish_all`](Kernels::finish_all) where it is known only then.
    fn survey<'a>(
        &'a mut self,
        walk: Walk<'a, Self::Gradient, Self::Vector>,
        ranges: &'a [Range<usize>],
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<Self::Survey<'a>, Fault>;

    /// Ends a selection: appends the positions in the bucket (sorted) and the values of what was kept, and gives the
    /// statistics of the unit. The memory is not changed by that; [`clear`](Kernels::clear) empties it there once
    /// the message is made.
    ///
    /// After an error the gradient of this walk is not in the memory, and the lists may hold anything beyond what
    /// they held before.
    fn finish(
        survey: Self::Survey<'_>,
        positions: &mut Self::Positions,
        values: &mut Self::Values,
    ) -> Result<Statistics, Fault>;

    /// The same, or less: a device that would have to be waited for may put the end off, and the walk too, to do them
    /// together with those of other units. The lists have then grown by as many entries as may be kept, with anything in
    /// them. Gradient and memory of the walk must stay where they are until [`finish_all`](Kernels::finish_all).
    fn finish_later(
        survey: Self::Survey<'_>,
        positions: &mut Self::Positions,
        values: &mut Self::Values,
    ) -> Result<Finished<Self::Later>, Fault> {
        Self::finish(survey, positions, values).map(Finished::Now)
    }

    /// Ends all selections that were put off since the lists were emptied, in the order in which they were. Where fewer
    /// elements are kept than there was room for, the entries behind them move up.
    ///
    /// After [`Fault::NonFinite`] the gradients of all these walks are in the memory, but for what is not finite:
    /// [`withdraw`](Kernels::withdraw) takes them out. After [`Fault::Failed`] nothing can be relied on.
    fn finish_all(
        &mut self,
        later: Vec<Self::Later>,
        positions: &mut Self::Positions,
        values: &mut Self::Values,
    ) -> Result<Vec<Ended>, Fault>;

    /// The walk without a selection: accumulate and measure. The score does not matter.
    fn accumulate(
        &mut self,
        walk: Walk<'_, Self::Gradient, Self::Vector>,
        ranges: &[Range<usize>],
    ) -> Result<Statistics, Fault>;

    /// Takes the gradient of a walk that went well, or was ended by [`finish_all`](Kernels::finish_all), back out of the
    /// memory, exactly but for rounding.
    fn withdraw(
        &mut self,
        walk: Walk<'_, Self::Gradient, Self::Vector>,
        ranges: &[Range<usize>],
    ) -> Result<()>;

    /// Measures `ranges` of a gradient or of weights, or finds the first non-finite element.
    fn statistics(&mut self, gradient: &Self::Gradient, ranges: &[Range<usize>])
    -> Result<Statistics, Fault>;

    /// The norm of a finite gradient whose squares are beyond the range of `f32`.
    fn norm_of_huge(&mut self, gradient: &Self::Gradient) -> Result<f64>;

    // ---- lists: what is about to be sent ----

    /// Appends ranges of a vector, one after another.
    fn append(
        &mut self,
        vector: &Self::Vector,
        ranges: &[Range<usize>],
        values: &mut Self::Values,
    ) -> Result<()>;

    /// Appends `range` of a gradient, times `scale`.
    fn append_scaled(
        &mut self,
        gradient: &Self::Gradient,
        scale: f32,
        range: Range<usize>,
        values: &mut Self::Values,
    ) -> Result<()>;

    /// Appends positions that others have named, and what the vector holds there.
    fn adopt(
        &mut self,
        named: &[u32],
        vector: &Self::Vector,
        positions: &mut Self::Positions,
        values: &mut Self::Values,
    ) -> Result<()>;

    /// The list is complete, and the host will look at it: where it is not in host memory and short, it may be on its way.
    fn complete_list(&mut self, values: &mut Self::Values) -> Result<()> {
        let _ = values;
        Ok(())
    }

    /// The sum of squares, in `f64`.
    fn energy(&mut self, values: Run<'_, Self::Values>) -> Result<f64>;

    /// All values, in host memory.
    fn on_host<'a>(&'a mut self, values: &'a mut Self::Values) -> Result<&'a [f32]>;

    /// `values[i] -= what[i]`.
    fn subtract(&mut self, what: &[f32], values: &mut Self::Values) -> Result<()>;

    // ---- codec ----

    /// The form in which a plan sends these values, which may depend on their range.
    fn form(&mut self, plan: &ValuePlan, values: Run<'_, Self::Values>) -> Result<ValueForm>;

    /// Writes one section of a frame, and says what it came to.
    fn write_section(
        &mut self,
        section: Outgoing<'_, Self::Positions, Self::Values>,
        writer: &mut FrameWriter<'_>,
    ) -> Result<SectionSize>;

    /// Puts in place of values what stays behind when they are sent in this form: the difference to what receivers
    /// will read.
    fn keep_loss(&mut self, form: &ValueForm, range: Range<usize>, values: &mut Self::Values) -> Result<()>;

    // ---- forgetting what was sent ----

    /// `vector[positions[i]] = 0`.
    fn clear(&mut self, positions: Run<'_, Self::Positions>, vector: &mut Self::Vector) -> Result<()>;

    /// `vector[positions[i]] += values[i]`, in order.
    fn scatter_add(
        &mut self,
        positions: Run<'_, Self::Positions>,
        values: Run<'_, Self::Values>,
        vector: &mut Self::Vector,
    ) -> Result<()>;

    /// `vector[range] = 0`, for each range.
    fn clear_ranges(&mut self, ranges: &[Range<usize>], vector: &mut Self::Vector) -> Result<()>;

    /// `vector[start..] = values`, as many as there are.
    fn replace(
        &mut self,
        values: Run<'_, Self::Values>,
        start: usize,
        vector: &mut Self::Vector,
    ) -> Result<()>;

    // ---- the mean takes the gradient's place ----

    /// Begins a mean: all zeros. What is added from now on counts at the latest with [`end_mean`](Kernels::end_mean), so
    /// that gradients of fewer bits than `f32` are rounded once.
    fn begin_mean(&mut self, mean: &mut Self::Gradient) -> Result<()>;

    /// Adds a section of coordinates, each value times `factor`, at its place. Nothing of it is trusted. Where it has
    /// all of its universe, a value takes the place of a zero instead of being added to it, so that zeros keep their
    /// signs. After an error the mean may hold a part of it.
    fn add_section(&mut self, section: &Section<'_>, factor: f32, mean: &mut Self::Gradient) -> Result<()>;

    /// Adds entries of this rank's lists, each value times `factor`: what [`add_section`](Kernels::add_section) does with
    /// the section that they were sent in, if its values are exact and it has not all of its universe.
    fn add_entries(
        &mut self,
        positions: Run<'_, Self::Positions>,
        values: Run<'_, Self::Values>,
        factor: f32,
        mean: &mut Self::Gradient,
    ) -> Result<()>;

    /// The same for sections that have all of their universe: values of whole ranges, one after another.
    fn add_ranges(
        &mut self,
        ranges: &[Range<usize>],
        values: Run<'_, Self::Values>,
        factor: f32,
        mean: &mut Self::Gradient,
    ) -> Result<()>;

    /// `mean[start..] = sums`, as many as there are.
    fn put(&mut self, sums: &[f32], start: usize, mean: &mut Self::Gradient) -> Result<()>;

    /// `mean[positions[i]] += sums[i]`, in order.
    fn scatter(
        &mut self,
        positions: Run<'_, Self::Positions>,
        sums: &[f32],
        mean: &mut Self::Gradient,
    ) -> Result<()>;

    /// Ends a mean that was begun.
    fn end_mean(&mut self, mean: &mut Self::Gradient) -> Result<()>;

    /// `gradient = values`, all of it; no mean has been begun.
    fn store(&mut self, values: &[f32], gradient: &mut Self::Gradient) -> Result<()>;

    // ---- the gradient in host memory ----

    /// The gradient times `factor` in host memory, to be worked on there; [`unstage`](Kernels::unstage) puts it back.
    /// Where it is in host memory already, this is the gradient itself.
    fn stage<'a>(&'a mut self, factor: f32, gradient: &'a mut Self::Gradient) -> Result<&'a mut [f32]>;

    /// Puts what was staged last back in the place of the gradient.
    fn unstage(&mut self, gradient: &mut Self::Gradient) -> Result<()>;

    /// A gradient to look at, and a vector to work on, both in host memory; [`unstage_vector`](Kernels::unstage_vector)
    /// puts the vector back.
    fn stage_with<'a>(
        &'a mut self,
        gradient: &'a Self::Gradient,
        vector: &'a mut Self::Vector,
    ) -> Result<(&'a [f32], &'a mut [f32])>;

    /// Puts what was staged last back in the place of the vector.
    fn unstage_vector(&mut self, vector: &mut Self::Vector) -> Result<()>;

    /// Hands the bytes of a gradient, or of weights, to `reader`, in order and in pieces of any length.
    fn read(&mut self, gradient: &Self::Gradient, reader: &mut dyn FnMut(&[u8])) -> Result<()>;

    // ---- frequencies ----

    /// Transforms what stands in the spectrum's ranges of `vector`, rounded to half precision first if so asked, and
    /// measures the bins.
    fn transform(
        &mut self,
        vector: &Self::Vector,
        half_input: bool,
        spectrum: &mut Self::Spectrum,
    ) -> Result<()>;

    /// A survey of the magnitudes of the bins. A non-finite one is said here or at the end. The values of what is kept
    /// are both parts of each bin, side by side; the statistics are those of the magnitudes.
    fn survey_bins<'a>(
        &'a mut self,
        spectrum: &'a mut Self::Spectrum,
        score: Score,
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<Self::Survey<'a>, Fault>;

    /// Takes what was sent out of the residual: these bins of the spectrum, less what is `left` of them, transformed
    /// back. The spectrum is used up by it.
    fn forget_bins(
        &mut self,
        spectrum: &mut Self::Spectrum,
        bins: Run<'_, Self::Positions>,
        left: Option<Run<'_, Self::Values>>,
        residual: &mut Self::Vector,
    ) -> Result<()>;

    /// Empties a spectrum, to be filled by [`add_bins`](Kernels::add_bins).
    fn clear_spectrum(&mut self, spectrum: &mut Self::Spectrum) -> Result<()>;

    /// Adds a section of bins, each value times `factor`. Its universe is that of the spectrum; nothing else of it is
    /// trusted.
    fn add_bins(&mut self, section: &Section<'_>, factor: f32, spectrum: &mut Self::Spectrum) -> Result<()>;

    /// Transforms a spectrum back, and adds it to a mean that was begun.
    fn add_spectrum(&mut self, spectrum: &mut Self::Spectrum, mean: &mut Self::Gradient) -> Result<()>;
}
