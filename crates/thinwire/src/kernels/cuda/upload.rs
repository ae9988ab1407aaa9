//! Small things on their way to the device: copied to pinned memory, from where the device takes them while the host
//! goes on.

use std::sync::Arc;

use bytemuck::Pod;

use super::device::Device;
use super::memory::{Buffer, Pinned};
use crate::Result;

/// Bytes before the first wait. Enough for the messages of several ranks.
const FIRST: usize = 4 << 20;

/// A pair of buffers, filled from the front. When they are full the device is waited for, and they are empty again.
#[derive(Debug)]
pub(super) struct Upload {
    device: Arc<Device>,
    host: Pinned<u8>,
    memory: Buffer<u8>,
    used: usize,
}

impl Upload {
    pub fn new(device: &Arc<Device>) -> Upload {
        Upload { device: device.clone(), host: Pinned::empty(device), memory: Buffer::empty(device), used: 0 }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.host.slice().len() + self.memory.len()
    }

    /// Begins to copy `values` to the device; gives the address where they will be when the stream comes to what
    /// follows.
    pub fn send<T: Pod>(&mut self, values: &[T]) -> Result<u64> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if self.used + bytes.len() > self.memory.len() {
            self.device.wait()?;
            self.used = 0;
            let wanted = bytes.len().max(FIRST);
            self.host.reserve(wanted)?;
            self.memory.reserve(wanted, 0)?;
        }
        let range = self.used..self.used + bytes.len();
        self.host.slice_mut()[range.clone()].copy_from_slice(bytes);
        self.host.send(range.clone(), self.memory.at(range.start))?;
        // What comes next begins where any number may begin.
        self.used = range.end.next_multiple_of(256);
        Ok(self.memory.at(range.start))
    }

    /// Everything that was sent has been used.
    pub fn reset(&mut self) {
        self.used = 0;
    }
}
