//! A borrowed run of numbers in the GPU's memory.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;

use crate::Result;
use crate::kernels::cuda::device::Device;
use crate::kernels::cuda::memory::{Buffer, read_from};

/// Where numbers are and how many. Whoever makes one answers for the memory: it stays until the work on the stream that
/// uses it is done.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::kernels::cuda) struct Run<T> {
    pub address: u64,
    pub len: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Run<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Run<T> {}

impl<T: Pod> Run<T> {
    /// `len` numbers from `address` on.
    pub fn new(address: u64, len: usize) -> Run<T> {
        Run { address, len, kind: PhantomData }
    }

    /// A part of a buffer.
    pub fn of(buffer: &Buffer<T>, range: Range<usize>) -> Run<T> {
        assert!(range.start <= range.end && range.end <= buffer.len(), "inside the buffer");
        Run::new(buffer.at(range.start), range.len())
    }

    /// A copy for the host, which waits for it.
    pub fn read(&self, device: &Device) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        read_from(device, self.address, &mut values)?;
        Ok(values)
    }
}
