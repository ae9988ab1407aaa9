//! The kinds of memory a device has: vectors that stay, and lists of what a step is about to send.

use std::fmt::Debug;
use std::ops::Range;

use crate::Result;

/// An owned run of `f32` in a device's memory: a residual, a momentum. It reads and writes itself, so that a state
/// is saved without the kernels that work on it.
pub trait Vector: Debug + Send + 'static {
    /// Elements.
    fn len(&self) -> usize;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of a range, in host memory.
    fn read(&self, range: Range<usize>) -> Result<Vec<f32>>;

    /// Puts `values` in place of the elements from `start` on.
    fn write(&mut self, start: usize, values: &[f32]) -> Result<()>;

    /// Takes the elements from `start` on away, into host memory. What was taken is not held any longer where the
    /// device can give a part of a vector back.
    fn take_end(&mut self, start: usize) -> Result<Vec<f32>>;
}

impl Vector for Vec<f32> {
    fn len(&self) -> usize {
        self.len()
    }

    fn read(&self, range: Range<usize>) -> Result<Vec<f32>> {
        Ok(self[range].to_vec())
    }

    fn write(&mut self, start: usize, values: &[f32]) -> Result<()> {
        self[start..start + values.len()].copy_from_slice(values);
        Ok(())
    }

    fn take_end(&mut self, start: usize) -> Result<Vec<f32>> {
        let end = self.split_off(start);
        self.shrink_to_fit();
        Ok(end)
    }
}

/// A list that kernels append to: the positions, or the values, of what a step is about to send. It keeps its memory
/// when it is emptied.
pub trait List: Debug + Send + 'static {
    /// Entries.
    fn len(&self) -> usize;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the entries from `len` on.
    fn truncate(&mut self, len: usize);

    /// Bytes held, in all kinds of memory.
    fn bytes(&self) -> usize;

    /// The entries of a range.
    fn run(&self, range: Range<usize>) -> Run<'_, Self>
    where
        Self: Sized,
    {
        Run { list: self, range }
    }

    /// All entries.
    fn all(&self) -> Run<'_, Self>
    where
        Self: Sized,
    {
        self.run(0..self.len())
    }
}

impl<T: Debug + Send + 'static> List for Vec<T> {
    fn len(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }

    fn bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

/// Some entries of a list, one after another.
#[derive(Debug)]
pub struct Run<'a, L> {
    /// The list.
    pub list: &'a L,
    /// Which entries.
    pub range: Range<usize>,
}

impl<L> Clone for Run<'_, L> {
    fn clone(&self) -> Self {
        Run { list: self.list, range: self.range.clone() }
    }
}

impl<T> Run<'_, Vec<T>> {
    /// The entries, where the list is in host memory.
    pub fn as_slice(&self) -> &[T] {
        &self.list[self.range.clone()]
    }
}

/// The frequency side of a unit, with the work space of its transform.
pub trait Spectrum: Debug + Send + 'static {
    /// Complex bins: the coordinates that can be chosen.
    fn bins(&self) -> usize;

    /// Bytes held, in all kinds of memory.
    fn bytes(&self) -> usize;
}
