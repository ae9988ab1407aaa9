//! Torch's stream waits for the end of a step, so that the host need not.

use std::sync::Arc;
use std::time::Duration;

use thinwire::kernels::cuda::{Counter, Device, Element, Watch};
use thinwire::{Error, Result};

use crate::group::interpreter;

/// Between two looks at a step that is under way.
const PAUSE: Duration = Duration::from_micros(50);

/// What streams wait on, and what is known of them.
pub struct Ahead {
    device: Arc<Device>,
    /// The steps that are over.
    counter: Arc<Counter>,
    /// Lets them go if the host stands in the way.
    watch: Watch,
    /// Streams beside which the engine goes on.
    tried: Vec<u64>,
    /// Numbers whose kernels are loaded.
    loaded: Vec<Element>,
}

impl Ahead {
    pub fn new(device: &Arc<Device>) -> Result<Ahead> {
        let counter = Arc::new(Counter::new(device)?);
        let watch = Watch::new(device, interpreter(), &counter)?;
        Ok(Ahead { device: device.clone(), counter, watch, tried: Vec::new(), loaded: Vec::new() })
    }

    pub fn counter(&self) -> Arc<Counter> {
        self.counter.clone()
    }

    /// Lets every stream go that waits for this, for good.
    pub fn release(&self) {
        self.watch.end();
        self.counter.release();
        self.device.end_waiting();
    }

    /// Loads the kernels for gradients of such numbers, the first time.
    pub fn load(&mut self, element: Element) -> Result<()> {
        if !self.loaded.contains(&element) {
            self.device.load_all(element)?;
            self.loaded.push(element);
        }
        Ok(())
    }

    /// What follows on the stream waits until so many steps are over. A stream that is new is tried first, once the
    /// engine is idle.
    ///
    /// # Safety
    /// It is a stream of this device.
    pub unsafe fn hold(&mut self, stream: u64, number: u32) -> Result<()> {
        if !self.tried.contains(&stream) {
            while !self.counter.has_reached(number) {
                std::thread::sleep(PAUSE);
            }
            // SAFETY: as the caller promises.
            unsafe { self.device.check_beside(stream) }?;
            self.tried.push(stream);
        }
        // SAFETY: as the caller promises.
        unsafe { self.counter.hold(stream, number) }?;
        self.watch.holds(number);
        Ok(())
    }

    /// What to say if streams did not wait to the end.
    pub fn fault(&self) -> Option<Error> {
        self.watch.fault()
    }
}
