//! What kernels have found out, for the host.

use std::sync::Arc;

use crate::Result;
use crate::kernels::cuda::device::Device;
use crate::kernels::cuda::memory::{Buffer, Pinned};

/// One 64-bit word that kernels write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Note {
    /// Not 0: coordinates out of order or out of their universe.
    Misplaced,
    /// The last coordinate; of delta-coded ones, the zeros before it.
    Last,
    /// Bits of the largest magnitude.
    Largest,
    /// 1: a positive value was there, 2: a negative one.
    Signs,
    /// The sum of all values, an `f64`.
    Sum,
    /// The sum of their squares, an `f64`.
    Squares,
    /// Values beyond the range of their form.
    Clipped,
    /// Not 0: a value from the wire that is none.
    Wrong,
    /// Ones in a bit string.
    Ones,
    /// The sum of all low bits, or of all quotients.
    Total,
    /// In how many gaps bit 0 is set; the other bits follow.
    GapBits,
}

/// Words there are.
const WORDS: usize = Note::GapBits as usize + 32;

/// The notes in the memory of the GPU, and a copy for the host.
#[derive(Debug)]
pub(super) struct Notes {
    written: Buffer<u64>,
    read: Pinned<u64>,
}

impl Notes {
    pub fn new(device: &Arc<Device>) -> Result<Notes> {
        Ok(Notes { written: Buffer::new(device, WORDS)?, read: Pinned::new(device, WORDS)? })
    }

    /// All become 0, for the kernels that follow.
    pub fn clear(&mut self) -> Result<()> {
        self.written.clear()
    }

    /// The address of one.
    pub fn at(&self, note: Note) -> u64 {
        self.written.at(note as usize)
    }

    /// Waits for everything before, and makes the notes readable.
    pub fn wait(&mut self) -> Result<()> {
        self.read.fetch(0..WORDS, self.written.address())?;
        self.written.device().wait()
    }

    pub fn get(&self, note: Note) -> u64 {
        self.read.slice()[note as usize]
    }

    pub fn float(&self, note: Note) -> f64 {
        f64::from_bits(self.get(note))
    }

    /// In how many gaps each bit is set.
    pub fn gap_bits(&self) -> [u64; 32] {
        std::array::from_fn(|bit| self.read.slice()[Note::GapBits as usize + bit])
    }
}
