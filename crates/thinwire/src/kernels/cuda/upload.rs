//! Small things on their way to the device: copied to pinned memory, from where the device takes them while the host
//! goes on.

use std::sync::Arc;

use bytemuck::Pod;

use super::device::Device;
use super::memory::{Buffer, Pinned};
use crate::Result;

/// Bytes before the first wait. Enough for the messages of several ranks.
const FIRST: usize = 4 << 20;

/// Where something may begin.
const EDGE: usize = 256;

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
        self.make_room(bytes.len())?;
        let range = self.used..self.used + bytes.len();
        self.host.slice_mut()[range.clone()].copy_from_slice(bytes);
        self.host.send(range.clone(), self.memory.at(range.start))?;
        // What comes next begins where any number may begin.
        self.used = range.end.next_multiple_of(EDGE);
        Ok(self.memory.at(range.start))
    }

    /// The same for two lists that one kernel needs: the second does not take the place of the first.
    pub fn send_both<A: Pod, B: Pod>(&mut self, first: &[A], second: &[B]) -> Result<(u64, u64)> {
        self.make_room(size_of_val(first).next_multiple_of(EDGE) + size_of_val(second))?;
        Ok((self.send(first)?, self.send(second)?))
    }

    /// Waits, and begins at the front, if there is no room for so many bytes.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.used + bytes > self.memory.len() {
            self.device.wait()?;
            self.used = 0;
            let wanted = bytes.max(FIRST);
            self.host.reserve(wanted)?;
            self.memory.reserve(wanted, 0)?;
        }
        Ok(())
    }

    /// Everything that was sent has been used.
    pub fn reset(&mut self) {
        self.used = 0;
    }
}
