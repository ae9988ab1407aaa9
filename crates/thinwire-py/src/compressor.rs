//! Gradients to frames and back, without other ranks.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use thinwire::codec::Frame;
use thinwire::kernels::Cpu;
use thinwire::pipeline::{Aggregator, Input};
use thinwire::{Bucket, method};

use crate::error::{OrException, bad_frame};
use crate::memory::{Handed, Memory};
use crate::process::Process;
use crate::state;

/// One bucket of one rank: what was not sent is kept for the next gradient.
#[pyclass(module = "thinwire._native")]
pub struct Compressor {
    inner: thinwire::pipeline::Compressor,
    aggregator: Aggregator,
    cpu: Cpu,
    /// With which the threads of `cpu` are made, and the process they belong to.
    threads: usize,
    process: Process,
    step: u64,
}

impl Compressor {
    /// In a forked child: threads of its own.
    fn renew_threads(&mut self, threads: usize) {
        if self.process.is_forked() {
            std::mem::forget(std::mem::replace(&mut self.cpu, Cpu::new(threads)));
            self.process = Process::current();
        }
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        self.renew_threads(1);
    }
}

#[pymethods]
impl Compressor {
    /// `layers` are the names and shapes of the layers of the bucket.
    #[new]
    fn new(method: &str, layers: Vec<(String, Vec<usize>)>, threads: usize) -> PyResult<Compressor> {
        let bucket = Bucket::new(0, layers).or_exception()?;
        let recipe = method::parse(method).or_exception()?;
        let aggregator = Aggregator::new(&recipe, bucket.clone()).or_exception()?;
        let inner = thinwire::pipeline::Compressor::new(recipe, bucket).or_exception()?;
        Ok(Compressor {
            inner,
            aggregator,
            cpu: Cpu::new(threads),
            threads,
            process: Process::current(),
            step: 0,
        })
    }

    /// One gradient to a frame; with it, how many coordinates were kept and the share of the energy that was sent.
    /// Without an epoch any warm-up is over.
    fn compress<'py>(
        &mut self,
        py: Python<'py>,
        gradient: Handed,
        weights: Option<Handed>,
        epoch: Option<f64>,
    ) -> PyResult<(Bound<'py, PyBytes>, usize, f64)> {
        // SAFETY: `python/thinwire` hands over arrays as `Memory` wants them, and waits for this to return.
        let memory = |handed: Handed| unsafe { Memory::new(handed) }.or_exception();
        let (gradient, weights) = (memory(gradient)?, weights.map(memory).transpose()?);
        self.renew_threads(self.threads);
        let mut frame = Vec::new();
        let report = py.detach(|| {
            let mut input =
                Input { weights: weights.as_ref().map(AsRef::as_ref), ..Input::new(gradient.as_ref()) };
            input.progress.step = self.step;
            input.progress.epoch = epoch.unwrap_or(input.progress.epoch);
            self.inner.compress(&mut self.cpu, &input, &mut frame)
        });
        let report = report.or_exception()?;
        self.step += 1;
        Ok((PyBytes::new(py, &frame), report.kept, report.gain()))
    }

    /// The sum of the frames times `factor`, written into an array. All must be of the step of the first.
    fn sum(&mut self, py: Python<'_>, frames: Vec<PyBackedBytes>, factor: f32, into: Handed) -> PyResult<()> {
        // SAFETY: as above.
        let mut output = unsafe { Memory::new(into) }.or_exception()?;
        let Some(first) = frames.first() else { return Ok(()) };
        let step = *Frame::parse(first).map_err(|error| bad_frame(0, error))?.header();
        let frames = frames.iter().map(|frame| &**frame);
        self.renew_threads(self.threads);
        py.detach(|| self.aggregator.sum(&mut self.cpu, frames, Some(&step), factor, output.as_mut()))
            .map_err(|error| bad_frame(self.aggregator.reading(), error))
    }

    /// What is kept, as a dictionary with the values of each layer as bytes.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut saved = self.inner.save().or_exception()?;
        saved.step = self.step;
        state::to_dictionary(py, &saved)
    }

    /// Goes on from such a dictionary, with each layer as an owner, an address and a number of values.
    fn restore(&mut self, saved: &Bound<'_, PyDict>) -> PyResult<()> {
        let saved = state::from_dictionary(saved)?;
        self.inner.restore(&saved).or_exception()?;
        self.step = saved.step;
        Ok(())
    }
}
