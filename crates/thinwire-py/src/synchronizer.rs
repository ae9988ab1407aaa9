//! A step of all ranks, from Python.

use std::mem::forget;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use thinwire::group::EvenGroup;
use thinwire::kernels::cuda::Cuda;
use thinwire::synchronizer::{Layout, Mean, Options, StepReport};
use thinwire::{Bucket, Error};

use crate::engine::Engine;
use crate::error::{OrException, exception};
use crate::group::Torch;
use crate::memory::Handed;
use crate::process::Process;
use crate::state;

/// How long a wait goes on before Python is asked whether somebody wants to end it (Ctrl-C).
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// How long a collective may go on after the group was lost: Python looks for that ten times a second.
const LOST_COLLECTIVE: Duration = Duration::from_secs(30);

type Layers = Vec<(String, Vec<usize>)>;

/// Keeps the gradients of all ranks in step: `thinwire::Synchronizer` over a `TorchGroup`.
#[pyclass(module = "thinwire._native")]
pub struct Synchronizer {
    /// Never dropped once it is given up: its thread may wait for ranks that never come, and is left to itself.
    inner: Option<Engine>,
    under_way: bool,
    /// Whether a stream waits for the step that is under way: all its buckets were submitted, and it is left to end.
    held: bool,
    /// Steps whose outcome was taken.
    taken: u32,
    /// Why the group was lost. After that, torch may still be busy with a collective that failed: its memory is never
    /// given back.
    lost: Option<String>,
    /// Whether nothing but the state is wanted any more.
    given_up: bool,
    process: Process,
}

impl Synchronizer {
    fn of(inner: Engine) -> Synchronizer {
        Synchronizer {
            inner: Some(inner),
            under_way: false,
            held: false,
            taken: 0,
            lost: None,
            given_up: false,
            process: Process::current(),
        }
    }

    fn check_process(&self) -> PyResult<()> {
        let reason = "this process was forked from the one that made it, which alone can use it";
        if self.process.is_forked() {
            return Err(exception(Error::GroupLost { reason: reason.into() }));
        }
        Ok(())
    }

    fn inner(&mut self) -> PyResult<&mut Engine> {
        self.check_process()?;
        let reason = self.lost.clone().unwrap_or_else(|| "it was closed".into());
        let usable = self.inner.as_mut().filter(|_| !self.given_up);
        usable.ok_or_else(|| exception(Error::GroupLost { reason }))
    }
}

#[pymethods]
impl Synchronizer {
    /// All ranks call it together. `layers` are the names and shapes of the layers of each bucket. With `device` the
    /// gradients are on that GPU; with `run_ahead` besides, `finish_on` may take the place of waiting, and after an
    /// error the gradients are zeros. `parameters` are names and dimensions of all parameters in the order of the model,
    /// which determine the output layer; without them no layer is marked as one.
    #[new]
    #[pyo3(signature = (group, method, layers, *, threads, check_replicas_every, by_samples, check_first, device=None, run_ahead=false, total_steps=None, parameters=vec![]))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        group: Bound<'_, PyAny>,
        method: &str,
        layers: Vec<Layers>,
        threads: usize,
        check_replicas_every: u64,
        by_samples: bool,
        check_first: bool,
        device: Option<usize>,
        run_ahead: bool,
        total_steps: Option<u64>,
        parameters: Vec<(String, usize)>,
    ) -> PyResult<Synchronizer> {
        let layout = layout(layers)?.with_output_of(parameters);
        let mean = if by_samples { Mean::OfSamples } else { Mean::OfRanks };
        let zeros_after_error = run_ahead && device.is_some();
        let options = Options {
            threads,
            check_replicas_every,
            mean,
            check_first,
            zeros_after_error,
            total_steps,
            ..Options::default()
        };
        let group = EvenGroup::new(Torch::new(group)?);
        let made = py.detach(|| Engine::new(device, group, method, layout, options));
        Ok(Synchronizer::of(made.or_exception()?))
    }

    /// Goes on with other buckets of the same layers.
    #[pyo3(signature = (layers, parameters=vec![]))]
    fn relayout(
        &mut self,
        py: Python<'_>,
        layers: Vec<Layers>,
        parameters: Vec<(String, usize)>,
    ) -> PyResult<()> {
        let layout = layout(layers)?.with_output_of(parameters);
        let inner = self.inner()?;
        let moved = py.detach(|| inner.relayout(layout));
        self.lost = moved.as_ref().err().map(ToString::to_string);
        moved.or_exception()
    }

    /// Hands over the gradient of a bucket, to travel in the background.
    fn submit(
        &mut self,
        py: Python<'_>,
        bucket: usize,
        gradient: Handed,
        weights: Option<Handed>,
    ) -> PyResult<()> {
        let inner = self.inner()?;
        // The queue is never held for long, but the engine's thread may want the GIL while it holds it.
        // SAFETY: `python/thinwire` hands over tensors as the engine wants them, and leaves them alone until `wait`.
        py.detach(|| unsafe { inner.submit(bucket, gradient, weights) }).or_exception()?;
        self.under_way = true;
        Ok(())
    }

    /// All buckets were submitted: lets what follows on this stream wait until they hold their means, and returns.
    /// What the step has come to is told by `wait`, before the next one.
    fn finish_on(&mut self, py: Python<'_>, stream: u64) -> PyResult<()> {
        let number = self.taken.wrapping_add(1);
        let inner = self.inner()?;
        // SAFETY: `python/thinwire` hands over a stream of the device on which the gradients are.
        py.detach(|| unsafe { inner.finish_on(stream, number) }).or_exception()?;
        self.held = true;
        Ok(())
    }

    /// Waits until all buckets hold their means; Ctrl-C ends it.
    fn wait<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut finished = loop {
            let inner = self.inner()?;
            match py.detach(|| inner.wait_for(BETWEEN_SIGNALS)) {
                Ok(None) => {
                    if let Err(interrupt) = py.check_signals() {
                        self.give_up("a step was interrupted");
                        return Err(interrupt);
                    }
                }
                Ok(Some((buffers, report))) => {
                    drop(buffers);
                    break Ok(report);
                }
                Err(error) => {
                    let returned = inner.returned();
                    if !matches!(error, Error::Skipped { .. } | Error::ReplicasDiffer { .. }) {
                        forget(returned);
                        self.lost = Some(error.to_string());
                    }
                    break Err(error);
                }
            }
        };
        if let Some(fault) = self.inner()?.fault() {
            self.lost = Some(fault.to_string());
            finished = Err(fault);
        }
        self.taken = self.taken.wrapping_add(1);
        (self.under_way, self.held) = (false, false);
        let finished = report(py, &finished.or_exception()?)?;
        let inner = self.inner()?;
        finished.set_item("decisions", py.detach(|| inner.decisions()))?;
        Ok(finished)
    }

    /// Gives memory back that could not be given back while a stream waited; none may wait now, also for another engine.
    fn give_back(&mut self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner()?;
        py.detach(|| inner.give_back());
        Ok(())
    }

    /// Leaves a step that is under way to itself. No stream waits for it any longer, and only `save` is of use.
    fn give_up(&mut self, reason: &str) {
        if self.process.is_forked() {
            forget(self.inner.take());
        } else if self.under_way || self.lost.is_some() {
            self.lost.get_or_insert_with(|| reason.to_owned());
            self.given_up = true;
            if let Some(inner) = &self.inner {
                inner.release();
            }
        }
    }

    fn set_epoch(&mut self, py: Python<'_>, epoch: f64) -> PyResult<()> {
        let inner = self.inner()?;
        py.detach(|| inner.set_epoch(epoch));
        Ok(())
    }

    fn set_density(&mut self, py: Python<'_>, density: Option<f64>) -> PyResult<()> {
        let inner = self.inner()?;
        py.detach(|| inner.set_density(density)).or_exception()
    }

    fn set_samples(&mut self, py: Python<'_>, samples: f64) -> PyResult<()> {
        let inner = self.inner()?;
        py.detach(|| inner.set_samples(samples));
        Ok(())
    }

    /// Bytes of residual and momentum.
    fn memory_bytes(&mut self, py: Python<'_>) -> PyResult<usize> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.memory_bytes()))
    }

    /// Bytes held beyond gradient, residual and momentum.
    fn workspace_bytes(&mut self, py: Python<'_>) -> PyResult<usize> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.workspace_bytes()))
    }

    /// Everything this rank must keep, as a dictionary with the values of each layer as bytes. After the group was lost
    /// it is what was kept after the last step that was completed.
    fn save<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_process()?;
        let lost = self.lost.clone();
        let Some(inner) = &mut self.inner else {
            let reason = lost.unwrap_or_else(|| "it was closed".into());
            return Err(exception(Error::GroupLost { reason }));
        };
        let saved = py.detach(|| match lost {
            Some(_) => inner.save_after_loss(LOST_COLLECTIVE),
            None => inner.save(),
        });
        state::to_dictionary(py, &saved.or_exception()?)
    }

    /// Goes on from such a dictionary, with each layer as an owner, an address and a number of values.
    fn restore(&mut self, py: Python<'_>, saved: &Bound<'_, PyDict>) -> PyResult<()> {
        let saved = state::from_dictionary(saved)?;
        let inner = self.inner()?;
        py.detach(|| inner.restore(&saved)).or_exception()
    }
}

/// Why no GPU can be used here; `None` if one can.
#[pyfunction]
#[pyo3(signature = (device=0))]
pub fn cuda_unusable(device: usize) -> Option<String> {
    Cuda::unusable(device)
}

impl Drop for Synchronizer {
    fn drop(&mut self) {
        if self.process.is_forked() {
            forget(self.inner.take());
            return;
        }
        if self.held {
            // The weights get what becomes of it, whether somebody asks or not.
            Python::attach(|py| self.wait(py).map(drop).unwrap_or_default());
        }
        self.give_up("it was dropped");
        let inner = self.inner.take();
        if self.given_up {
            forget(inner);
        } else if let Some(inner) = inner {
            // The thread is idle and ends at once, but it may want the GIL on its way.
            Python::attach(|py| py.detach(|| drop(inner)));
        }
    }
}

fn layout(layers: Vec<Layers>) -> PyResult<Layout> {
    let buckets = layers.into_iter().enumerate().map(|(id, layers)| Bucket::new(id as u32, layers));
    buckets.collect::<thinwire::Result<Vec<Bucket>>>().and_then(Layout::new).or_exception()
}

fn report<'py>(py: Python<'py>, report: &StepReport) -> PyResult<Bound<'py, PyDict>> {
    let (compression, times) = (&report.compression, &report.times);
    let dictionary = PyDict::new(py);
    dictionary.set_item("density", report.density)?;
    for (name, count) in [
        ("elements", compression.elements as u64),
        ("dense", compression.dense as u64),
        ("asked", compression.asked as u64),
        ("kept", compression.kept as u64),
        ("sent", report.traffic.sent),
        ("received", report.traffic.received),
    ] {
        dictionary.set_item(name, count)?;
    }
    for (name, value) in [
        ("energy", compression.energy),
        ("energy_sent", compression.energy_sent),
        ("select_seconds", compression.select_time.as_secs_f64()),
        ("encode_seconds", compression.encode_time.as_secs_f64()),
        ("exchange_seconds", times.exchange.as_secs_f64()),
        ("settle_seconds", times.settle.as_secs_f64()),
        ("check_seconds", times.check.as_secs_f64()),
        ("adapt_seconds", times.adapt.as_secs_f64()),
    ] {
        dictionary.set_item(name, value)?;
    }
    Ok(dictionary)
}
