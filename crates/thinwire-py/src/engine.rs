//! The engine on the device where the gradients are.

use std::sync::Arc;
use std::time::Duration;

use thinwire::adapt::decision::Decision;
use thinwire::group::Group;
use thinwire::kernels::cuda::{Cuda, Device};
use thinwire::memory::State;
use thinwire::synchronizer::{Layout, Options, StepReport, Synchronizer};
use thinwire::{Error, Result};

use crate::ahead::Ahead;
use crate::memory::{DeviceMemory, Handed, Memory};

/// A synchronizer for gradients in host memory, or for gradients in the memory of a GPU.
pub enum Engine {
    Cpu(Synchronizer<Memory>),
    Cuda(Synchronizer<DeviceMemory, Cuda>, Arc<Device>, Option<Ahead>),
}

/// Buffers that were handed over; only to be dropped, or never.
#[allow(dead_code, reason = "what is in it is held, and dropped with the GIL or never")]
pub enum Buffers {
    Cpu(Vec<Memory>),
    Cuda(Vec<DeviceMemory>),
}

/// The same of both.
macro_rules! of_both {
    ($engine:expr, $inner:ident => $what:expr) => {
        match $engine {
            Engine::Cpu($inner) => $what,
            Engine::Cuda($inner, ..) => $what,
        }
    };
}

impl Engine {
    /// With `device`, on that GPU; with `options.zeros_after_error`, so that streams can wait for it.
    pub fn new(
        device: Option<usize>,
        group: impl Group + 'static,
        method: &str,
        layout: Layout,
        options: Options,
    ) -> Result<Engine> {
        let Some(ordinal) = device else {
            return Ok(Engine::Cpu(Synchronizer::with_buffers(group, method, layout, options)?));
        };
        let run_ahead = options.zeros_after_error;
        let device = if run_ahead { Device::open_ahead(ordinal)? } else { Device::open(ordinal)? };
        let ahead = if run_ahead { Some(Ahead::new(&device)?) } else { None };
        let mut inner =
            Synchronizer::with_kernels(Cuda::on(device.clone())?, group, method, layout, options)?;
        if let Some(ahead) = &ahead {
            let counter = ahead.counter();
            inner.on_step_end(Arc::new(move || counter.raise()));
        }
        Ok(Engine::Cuda(inner, device, ahead))
    }

    pub fn relayout(&mut self, layout: Layout) -> Result<()> {
        of_both!(self, inner => inner.relayout(layout))
    }

    /// Hands over the gradient of a bucket.
    ///
    /// # Safety
    /// As of [`Memory::new`] and [`DeviceMemory::new`].
    pub unsafe fn submit(&mut self, bucket: usize, gradient: Handed, weights: Option<Handed>) -> Result<()> {
        match self {
            Engine::Cpu(inner) => {
                // SAFETY: as the caller promises.
                let memory = |handed| unsafe { Memory::new(handed) };
                inner.submit(bucket, memory(gradient)?, weights.map(memory).transpose()?)
            }
            Engine::Cuda(inner, device, ahead) => {
                // SAFETY: as the caller promises.
                let memory = |handed| unsafe { DeviceMemory::new(handed, device) };
                let (gradient, weights) = (memory(gradient)?, weights.map(memory).transpose()?);
                if let Some(ahead) = ahead {
                    ahead.load(gradient.element())?;
                }
                inner.submit(bucket, gradient, weights)
            }
        }
    }

    /// What follows on a stream waits until the step is over that is under way, the `number`-th.
    ///
    /// # Safety
    /// It is a stream of this engine's GPU.
    pub unsafe fn finish_on(&mut self, stream: u64, number: u32) -> Result<()> {
        match self {
            // SAFETY: as the caller promises.
            Engine::Cuda(.., Some(ahead)) => unsafe { ahead.hold(stream, number) },
            _ => Err(Error::BadSetting {
                name: "a stream to wait".into(),
                found: "an engine that was not made for that".into(),
                expected: "run_ahead, on a GPU".into(),
            }),
        }
    }

    /// Lets every stream go on that waits for this.
    pub fn release(&self) {
        if let Engine::Cuda(.., Some(ahead)) = self {
            ahead.release();
        }
    }

    /// What to say if a stream did not wait to the end of the step.
    pub fn fault(&self) -> Option<Error> {
        match self {
            Engine::Cuda(.., Some(ahead)) => ahead.fault(),
            _ => None,
        }
    }

    /// Gives back what could not be given back while a stream waited.
    pub fn give_back(&self) {
        if let Engine::Cuda(_, device, _) = self {
            device.give_back();
        }
    }

    pub fn wait_for(&mut self, time: Duration) -> Result<Option<(Buffers, StepReport)>> {
        Ok(match self {
            Engine::Cpu(inner) => {
                inner.wait_for(time)?.map(|(buffers, report)| (Buffers::Cpu(buffers), report))
            }
            Engine::Cuda(inner, ..) => {
                inner.wait_for(time)?.map(|(buffers, report)| (Buffers::Cuda(buffers), report))
            }
        })
    }

    pub fn returned(&mut self) -> Buffers {
        match self {
            Engine::Cpu(inner) => Buffers::Cpu(inner.returned()),
            Engine::Cuda(inner, ..) => Buffers::Cuda(inner.returned()),
        }
    }

    pub fn set_epoch(&mut self, epoch: f64) {
        of_both!(self, inner => inner.set_epoch(epoch));
    }

    pub fn set_density(&mut self, density: Option<f64>) -> Result<()> {
        of_both!(self, inner => inner.set_density(density))
    }

    pub fn set_samples(&mut self, samples: f64) {
        of_both!(self, inner => inner.set_samples(samples));
    }

    /// What an automatic method has decided since this was asked last, as JSON.
    pub fn decisions(&mut self) -> Vec<String> {
        of_both!(self, inner => inner.decisions()).iter().map(Decision::to_json).collect()
    }

    pub fn memory_bytes(&self) -> usize {
        of_both!(self, inner => inner.memory_bytes())
    }

    pub fn workspace_bytes(&self) -> usize {
        of_both!(self, inner => inner.workspace_bytes())
    }

    pub fn save(&self) -> Result<State> {
        of_both!(self, inner => inner.save())
    }

    pub fn save_after_loss(&mut self, time: Duration) -> Result<State> {
        of_both!(self, inner => inner.save_after_loss(time))
    }

    pub fn restore(&mut self, state: &State) -> Result<()> {
        of_both!(self, inner => inner.restore(state))
    }
}

/// What was handed over does not fit the engine.
pub fn misfit(found: String, expected: &str) -> Error {
    Error::BadSetting { name: "an array".into(), found, expected: expected.into() }
}
