//! Lists of what a step is about to send: on the device, and as long as they are short also in host memory.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::device::Device;
use super::memory::{Buffer, Pinned};
use crate::Result;
use crate::kernels::List;

/// Up to so many entries a list is brought to the host as soon as it is made, in the wait that its length needs
/// anyway; longer ones are coded on the device.
pub(super) const SHORT: usize = 1 << 18;

/// A list of positions or values.
#[derive(Debug)]
pub struct DeviceList<T> {
    device: Arc<Device>,
    memory: Buffer<T>,
    len: usize,
    mirror: Pinned<T>,
    /// The first so many entries are in the mirror, once this wait is over.
    mirrored: usize,
    fetched: u64,
}

impl<T: Pod> DeviceList<T> {
    pub(super) fn new(device: &Arc<Device>) -> DeviceList<T> {
        let (memory, mirror) = (Buffer::empty(device), Pinned::empty(device));
        DeviceList { device: device.clone(), memory, len: 0, mirror, mirrored: 0, fetched: 0 }
    }

    /// The entries, copied to the host.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.memory.read(0..self.len)
    }

    /// The device's address of an entry, or of the place behind the last.
    pub(super) fn at(&self, entry: usize) -> u64 {
        self.memory.at(entry)
    }

    /// Makes room for `more` entries; gives the address of the first of them.
    pub(super) fn room(&mut self, more: usize) -> Result<u64> {
        self.memory.reserve(self.len + more, self.len)?;
        Ok(self.memory.at(self.len))
    }

    /// Whether it is still short with `more` entries.
    pub(super) fn stays_short(&self, more: usize) -> bool {
        self.len + more <= SHORT
    }

    /// Begins to bring `more` entries that are about to be appended to the host, with all before them that are not there,
    /// if the list stays short.
    pub(super) fn fetch_ahead(&mut self, more: usize) -> Result<bool> {
        if !self.stays_short(more) {
            return Ok(false);
        }
        let end = self.len + more;
        self.grow_mirror(end)?;
        self.mirror.fetch(self.mirrored..end, self.memory.at(self.mirrored))?;
        self.fetched = self.device.next_wait();
        self.mirrored = self.len;
        Ok(true)
    }

    /// Appends `more` entries that are in place; `fetched` says that they are in the mirror too.
    pub(super) fn grow(&mut self, more: usize, fetched: bool) {
        if fetched && self.mirrored == self.len {
            self.mirrored += more;
        }
        self.len += more;
    }

    /// Begins to bring entries that are in the mirror to the host once more: the device has changed them.
    pub(super) fn fetch_again(&mut self, range: Range<usize>) -> Result<()> {
        if range.end > self.mirrored {
            return Ok(());
        }
        self.fetched = self.device.next_wait();
        self.mirror.fetch(range.clone(), self.memory.at(range.start))
    }

    /// Removes some ranges, in order.
    pub(super) fn remove(&mut self, ranges: &[Range<usize>]) -> Result<()> {
        let Some(first) = ranges.iter().find(|range| !range.is_empty()).map(|range| range.start) else {
            return Ok(());
        };
        self.on_host(0..self.len)?;
        let (mirror, mut end) = (self.mirror.slice_mut(), first);
        let next_starts = ranges.iter().skip(1).map(|range| range.start).chain([self.len]);
        for (range, next) in ranges.iter().zip(next_starts).filter(|(range, _)| range.start >= first) {
            mirror.copy_within(range.end..next, end);
            end += next - range.end;
        }
        (self.len, self.mirrored) = (end, end);
        self.mirror.send(first..end, self.memory.at(first))?;
        self.device.wait()
    }

    fn grow_mirror(&mut self, len: usize) -> Result<()> {
        if self.mirror.slice().len() < len {
            // Copies into the old one may still be under way.
            self.device.wait()?;
            let mut larger = Pinned::new(&self.device, len + len / 2 + 256)?;
            larger.slice_mut()[..self.mirrored].copy_from_slice(&self.mirror.slice()[..self.mirrored]);
            self.mirror = larger;
        }
        Ok(())
    }

    /// The entries of a range in host memory; waits where they are not there yet.
    pub(super) fn on_host(&mut self, range: Range<usize>) -> Result<&[T]> {
        if range.end > self.mirrored {
            self.grow_mirror(self.len)?;
            self.mirror.fetch(self.mirrored..self.len, self.memory.at(self.mirrored))?;
            self.device.wait()?;
            self.mirrored = self.len;
        }
        self.arrived()?;
        Ok(&self.mirror.slice()[range])
    }

    /// The entries of a range in host memory: from the mirror, or read into `spare`.
    pub(super) fn host<'a>(&'a self, range: Range<usize>, spare: &'a mut Vec<T>) -> Result<&'a [T]> {
        if range.end <= self.mirrored {
            self.arrived()?;
            return Ok(&self.mirror.slice()[range]);
        }
        *spare = self.memory.read(range)?;
        Ok(spare)
    }

    /// Waits if copies into the mirror are under way.
    fn arrived(&self) -> Result<()> {
        self.device.wait_since(self.fetched)
    }

    /// Changes entries in host memory, and brings them back to the device.
    pub(super) fn change(
        &mut self,
        range: Range<usize>,
        change: impl FnOnce(&mut [T]) -> Result<()>,
    ) -> Result<()> {
        self.on_host(range.clone())?;
        change(&mut self.mirror.slice_mut()[range.clone()])?;
        self.mirror.send(range.clone(), self.memory.at(range.start))?;
        self.device.wait()
    }

    /// Entries from `start` on are changed on the device.
    pub(super) fn outdated(&mut self, start: usize) {
        self.mirrored = self.mirrored.min(start);
    }

    /// Appends what the host has.
    pub(super) fn append(&mut self, values: &[T]) -> Result<()> {
        let end = self.len + values.len();
        self.memory.reserve(end, self.len)?;
        if self.mirrored == self.len {
            self.grow_mirror(end)?;
            self.mirror.slice_mut()[self.len..end].copy_from_slice(values);
            self.mirror.send(self.len..end, self.memory.at(self.len))?;
            self.mirrored = end;
        } else {
            self.memory.write(self.len, values)?;
        }
        self.len = end;
        Ok(())
    }
}

impl<T: Pod + std::fmt::Debug + Send> List for DeviceList<T> {
    fn len(&self) -> usize {
        self.len
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.mirrored = self.mirrored.min(len);
    }

    fn bytes(&self) -> usize {
        (self.memory.len() + self.mirror.slice().len()) * size_of::<T>()
    }
}
