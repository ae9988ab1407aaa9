//! Bytes of a message on their way to the GPU.

use std::sync::Arc;

use crate::Result;
use crate::kernels::cuda::device::Device;
use crate::kernels::cuda::memory::{Buffer, Pinned};

/// Bytes copied at a time: while one piece travels, the next is made ready.
const PIECE: usize = 1 << 20;

/// Pinned memory for one message.
#[derive(Debug)]
pub(super) struct Upload {
    pinned: Pinned<u32>,
    /// Words of it that are taken.
    used: usize,
}

impl Upload {
    pub fn new(device: &Arc<Device>) -> Result<Upload> {
        Ok(Upload { pinned: Pinned::new(device, 0)?, used: 0 })
    }

    /// Makes room for the two parts of a message. Nothing may still be under way.
    pub fn begin(&mut self, index_bytes: usize, value_bytes: usize) -> Result<()> {
        self.used = 0;
        // Each may be shifted by less than a word, and is filled up to a word.
        self.pinned.reserve(index_bytes / 4 + value_bytes / 4 + 4)
    }

    /// Begins to copy `bytes` into `words`, from byte `shift` of it on, with zeros around up to whole words. A word more is
    /// there behind them.
    pub fn send(&mut self, bytes: &[u8], shift: usize, words: &mut Buffer<u32>) -> Result<()> {
        assert!(shift < 4, "less than a word");
        let whole = (shift + bytes.len()).div_ceil(4);
        words.reserve(whole + 1, 0)?;
        let from = self.used;
        self.used += whole;
        let mut done = 0;
        while done < whole {
            let piece = (whole - done).min(PIECE / 4);
            let place = &mut self.pinned.slice_mut()[from + done..from + done + piece];
            fill(bytemuck::cast_slice_mut(place), bytes, (4 * done) as isize - shift as isize);
            self.pinned.send(from + done..from + done + piece, words.at(done))?;
            done += piece;
        }
        Ok(())
    }
}

/// Fills `place` with the bytes from `first` on; what lies before or behind them is zero.
fn fill(place: &mut [u8], bytes: &[u8], first: isize) {
    let before = first.min(0).unsigned_abs().min(place.len());
    let from = (first.max(0) as usize).min(bytes.len());
    let len = (place.len() - before).min(bytes.len() - from);
    place[..before].fill(0);
    place[before..before + len].copy_from_slice(&bytes[from..from + len]);
    place[before + len..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn zeros_stand_around_the_bytes() {
        let mut place = [9; 8];
        fill(&mut place, &[1, 2, 3], -3);
        assert_eq!(place, [0, 0, 0, 1, 2, 3, 0, 0]);
        fill(&mut place, &(0..20).collect::<Vec<_>>(), 5);
        assert_eq!(place, [5, 6, 7, 8, 9, 10, 11, 12]);
        fill(&mut place, &(0..20).collect::<Vec<_>>(), 13);
        assert_eq!(place, [13, 14, 15, 16, 17, 18, 19, 0]);
        fill(&mut place, &[], -3);
        assert_eq!(place, [0; 8]);
    }
}
