//! Points in streams: for other streams to wait for, and to read times off.

use std::sync::Arc;

use cudarc::driver::{DriverError, result as driver, sys};

use super::device::{Device, fault};
use crate::{Error, Result};

impl Device {
    /// An event in the stream `of` (this device's own if `None`), for others to wait for.
    pub fn record(self: &Arc<Self>, of: Option<u64>) -> Result<Event> {
        let stream = of.map_or(self.stream(), |of| of as sys::CUstream);
        self.point(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING, stream)
    }

    /// The time on the device between two [stamps](Device::stamp), in milliseconds; waits for the second.
    pub fn milliseconds(&self, from: &Event, to: &Event) -> Result<f32> {
        let _current = self.bind()?;
        let failed = |error| fault("read a time off the GPU", error);
        // SAFETY: both events are there, and were made for timing.
        unsafe {
            driver::event::synchronize(to.event).map_err(failed)?;
            driver::event::elapsed(from.event, to.event).map_err(failed)
        }
    }

    /// A point in this device's stream whose time can be read: for benchmarks, with a driver from 12.8 on.
    pub fn stamp(self: &Arc<Self>) -> Result<Event> {
        let version = super::device::driver_version()?;
        if version < 12_080 {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(Error::Device {
                action: "take times on the GPU".into(),
                reason: format!("NVIDIA's driver supports CUDA {major}.{minor}; expected 12.8 or later"),
            });
        }
        self.point(sys::CUevent_flags::CU_EVENT_DEFAULT, self.stream())
    }

    fn point(self: &Arc<Self>, flags: sys::CUevent_flags, stream: sys::CUstream) -> Result<Event> {
        let _current = self.bind()?;
        let failed = |error| fault("mark a point in a stream", error);
        let event = Event { event: driver::event::create(flags).map_err(failed)?, device: self.clone() };
        // SAFETY: the event was just made, and the stream is of this context.
        unsafe { driver::event::record(event.event, stream) }.map_err(failed)?;
        Ok(event)
    }

    /// What follows on this stream comes after the event.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: event and stream are there.
        unsafe {
            driver::stream::wait_event(
                self.stream(),
                event.event,
                sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
            )
        }
        .map_err(|error| fault("wait for another stream", error))
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    event: sys::CUevent,
    device: Arc<Device>,
}

// SAFETY: a handle of the driver, usable from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the stream has come to it.
    pub(super) fn is_over(&self) -> Result<bool> {
        let _current = self.device.bind()?;
        // SAFETY: the event is there.
        match unsafe { driver::event::query(self.event) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(fault("look at another stream", error)),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.bind() {
            // SAFETY: the event is not used any longer; the driver keeps what streams still wait for.
            let _ = unsafe { driver::event::destroy(self.event) };
        }
    }
}
