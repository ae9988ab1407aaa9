//! Streams that wait for the host, so that the host need not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::{result as driver, sys};

use super::card::Left;
use super::device::{Device, fault};
use super::event::Event;
use super::memory::{Buffer, Pinned};
use crate::{Error, Result};

/// How long a stream that is free to go on may take for next to nothing.
const PATIENCE: Duration = Duration::from_secs(3);

/// A number that the host raises and streams wait for. It is compared as a clock is: what it was raised to a moment ago
/// is less, also where it has begun again from zero.
#[derive(Debug)]
pub struct Counter {
    device: Arc<Device>,
    /// In pinned memory.
    word: *mut AtomicU32,
    /// The same as the GPU sees it.
    address: sys::CUdeviceptr,
    released: AtomicBool,
}

// SAFETY: the word is reached by atomic operations only.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

impl Counter {
    /// One that is zero.
    pub fn new(device: &Arc<Device>) -> Result<Counter> {
        let _current = device.bind()?;
        let failed = |error| fault("take memory for streams to wait on", error);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: plain allocation, aligned to more than a word.
        let word = unsafe { driver::malloc_host(size_of::<AtomicU32>(), flags) }
            .map_err(failed)?
            .cast::<AtomicU32>();
        // SAFETY: the memory was just taken.
        unsafe { word.write(AtomicU32::new(0)) };
        let mut counter =
            Counter { device: device.clone(), word, address: 0, released: AtomicBool::new(false) };
        // SAFETY: the memory was mapped for the device as it was taken.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut counter.address, word.cast(), 0) }
            .result()
            .map_err(failed)?;
        Ok(counter)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: taken in `new`, and given back when this is dropped.
        unsafe { &*self.word }
    }

    /// Raises it by one. What the host has seen done before, a stream that goes on by this finds done.
    pub fn raise(&self) {
        self.word().fetch_add(1, Ordering::Release);
    }

    /// Raises it so far that nothing waits for it any longer, for good.
    pub fn release(&self) {
        if !self.released.swap(true, Ordering::SeqCst) {
            self.word().fetch_add(1 << 30, Ordering::Release);
        }
    }

    /// Whether it was raised to this number, or beyond.
    pub fn has_reached(&self, number: u32) -> bool {
        self.word().load(Ordering::Acquire).wrapping_sub(number) as i32 >= 0
    }

    /// What follows on `stream` waits until this has reached the number.
    ///
    /// # Safety
    /// `stream` is a stream of the device's primary context.
    pub unsafe fn hold(&self, stream: u64, number: u32) -> Result<()> {
        let _current = self.device.bind()?;
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the stream is there; the word stays as long as streams may wait for it (see `drop`).
        unsafe { sys::cuStreamWaitValue32_v2(stream as sys::CUstream, self.address, number, flags) }
            .result()
            .map_err(|error| fault("let a stream wait for the host", error))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.release();
        self.device.free(Left::OnHost(self.word as usize));
    }
}

impl Device {
    /// Fails unless this device's stream goes on, with work and copies, while `stream` and its copies wait. Streams may
    /// share a queue of the hardware; then both would stand still for ever.
    ///
    /// # Safety
    /// As of [`Counter::hold`].
    pub unsafe fn check_beside(self: &Arc<Self>, stream: u64) -> Result<()> {
        let gate = Counter::new(self)?;
        let (mut here, there) = (Pinned::<u32>::new(self, 4)?, Buffer::<u32>::zeros(self, 4)?);
        self.wait()?;
        // SAFETY: as the caller promises.
        let passed = unsafe { gate.hold(stream, 1) }.and_then(|()| self.passes(stream, &mut here, &there));
        gate.release();
        // Until then the copies need their memory.
        self.record(Some(stream)).and_then(|event| self.until(&event))?;
        self.wait()?;
        if passed? {
            return Ok(());
        }
        let connections = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS");
        let found = connections.map_or("is not set".into(), |number| format!("is {number}"));
        Err(Error::Device {
            action: "let torch's stream wait for the engine's".into(),
            reason: format!(
                "both are in one queue of the hardware, where neither would go on; CUDA_DEVICE_MAX_CONNECTIONS \
                 {found}: set it to 32, or leave run_ahead out"
            ),
        })
    }

    /// Whether this stream's work is done while the other one waits.
    fn passes(self: &Arc<Self>, stream: u64, here: &mut Pinned<u32>, there: &Buffer<u32>) -> Result<bool> {
        let other = stream as sys::CUstream;
        let failed = |error| fault("copy beside a stream that waits", error);
        let (first, second) = here.slice_mut().split_at_mut(2);
        // SAFETY: both memories are long enough, and are kept until both streams have been waited for.
        unsafe {
            driver::memcpy_htod_async(there.at(0), &first[..1], other).map_err(failed)?;
            driver::memcpy_dtoh_async(&mut first[1..], there.at(1), other).map_err(failed)?;
            driver::memset_d8_async(there.at(2), 0, 4, self.stream()).map_err(failed)?;
            driver::memcpy_htod_async(there.at(2), &second[..1], self.stream()).map_err(failed)?;
            driver::memcpy_dtoh_async(&mut second[1..], there.at(3), self.stream()).map_err(failed)?;
        }
        let (event, begun) = (self.record(None)?, Instant::now());
        while !event.is_over()? {
            if begun.elapsed() > PATIENCE {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(true)
    }

    fn until(&self, event: &Event) -> Result<()> {
        while !event.is_over()? {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}
