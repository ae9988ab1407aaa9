//! The way of a gradient through the `fft` method and back on one device, stage by stage: for benchmarks.

use super::memory::{Buffer, Gradient};
use super::{Cuda, CudaSpectrum, DeviceList, Event};
use crate::codec::{Frame, FrameWriter, Header, IndexChoice, ValueForm};
use crate::kernels::{Guess, Kernels, List, Outgoing, Score, Spectrum, Walk};
use crate::pipeline::ValuePlan;
use crate::select::{Exact, Select};
use crate::transform::FftBlock;
use crate::{Error, Result};

/// One bucket's memory and message. Each [`step`](FftTrip::step) is what a rank does in a step of which all ranks are
/// itself: compress, and decompress its own message.
#[derive(Debug)]
pub struct FftTrip {
    residual: Buffer<f32>,
    mean: Buffer<f32>,
    spectrum: CudaSpectrum,
    sum: CudaSpectrum,
    guess: Guess,
    positions: DeviceList<u32>,
    values: DeviceList<f32>,
    frame: Vec<u8>,
}

/// What a step took on the device's clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TripTimes {
    /// Accumulate, transform, select and encode; what was sent leaves the residual.
    pub compress: f64,
    /// Decode, and transform back.
    pub decompress: f64,
    /// Bytes of the frame, which are copied to the host and back between the two; not in the times.
    pub frame_bytes: usize,
}

impl FftTrip {
    /// For gradients of so many elements.
    pub fn new(cuda: &mut Cuda, elements: usize) -> Result<FftTrip> {
        let (whole, block) = ([0..elements], FftBlock::default());
        Ok(FftTrip {
            residual: cuda.zeros(elements)?,
            mean: cuda.zeros(elements)?,
            spectrum: cuda.spectrum(&whole, block)?,
            sum: cuda.spectrum(&whole, block)?,
            guess: Guess::default(),
            positions: cuda.positions(),
            values: cuda.values(),
            frame: Vec::new(),
        })
    }

    /// One step at this density, with values as `plan` says.
    pub fn step(
        &mut self,
        cuda: &mut Cuda,
        gradient: &Gradient,
        density: f64,
        plan: &ValuePlan,
    ) -> Result<TripTimes> {
        let elements = self.residual.len();
        let failed = |fault: crate::kernels::Fault| Error::Device {
            action: "take a step".into(),
            reason: fault.to_string(),
        };
        self.positions.truncate(0);
        self.values.truncate(0);
        cuda.complete()?;
        let begun = cuda.device().stamp()?;
        cuda.accumulate(Walk::new(gradient, &mut self.residual), &[0..elements]).map_err(failed)?;
        cuda.transform(&self.residual, false, &mut self.spectrum)?;
        let bins = self.spectrum.bins();
        let k = Exact.quota(bins, density);
        let surveyed =
            cuda.survey_bins(&mut self.spectrum, Score::Magnitude, Exact.expect(k), &mut self.guess);
        let mut survey = surveyed.map_err(failed)?;
        Exact.select(&mut survey, k, 0);
        Cuda::finish(survey, &mut self.positions, &mut self.values).map_err(failed)?;
        let form = cuda.form(plan, self.values.all())?;
        let section = Outgoing {
            start: 0,
            universe: bins as u32,
            width: 2,
            positions: Some(self.positions.all()),
            values: self.values.all(),
            index: IndexChoice::Shortest,
            form: &form,
        };
        cuda.encode(&section)?;
        let encoded = cuda.device().stamp()?;
        self.frame.clear();
        let header = Header { step: 0, plan: 0, bucket: 0, elements: elements as u32 };
        let mut writer = FrameWriter::new(&mut self.frame, header);
        cuda.write_section(section, &mut writer)?;
        writer.finish()?;
        let written = cuda.device().stamp()?;
        if form != ValueForm::F32 {
            cuda.keep_loss(&form, 0..self.values.len(), &mut self.values)?;
        }
        let left = (form != ValueForm::F32).then(|| self.values.all());
        cuda.forget_bins(&mut self.spectrum, self.positions.all(), left, &mut self.residual)?;
        let forgotten = cuda.device().stamp()?;
        cuda.complete()?;

        let frame = Frame::parse(&self.frame)?;
        let section = frame
            .sections()
            .next()
            .ok_or_else(|| Error::Device { action: "take a step".into(), reason: "no section".into() })?;
        cuda.codec.bring(&section)?;
        cuda.complete()?;
        let brought = cuda.device().stamp()?;
        let decoded = cuda.codec.read(&section)?;
        cuda.clear_spectrum(&mut self.sum)?;
        self.sum.add(decoded.indices, decoded.values, 1.0)?;
        cuda.add_spectrum(&mut self.sum, &mut Gradient::of(&self.mean))?;
        let ended = cuda.device().stamp()?;
        cuda.complete()?;
        let between = |from: &Event, to: &Event| cuda.device().milliseconds(from, to).map(f64::from);
        Ok(TripTimes {
            compress: between(&begun, &encoded)? + between(&written, &forgotten)?,
            decompress: between(&brought, &ended)?,
            frame_bytes: self.frame.len(),
        })
    }
}
