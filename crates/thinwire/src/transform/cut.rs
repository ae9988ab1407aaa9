//! How a vector is cut into blocks, wherever they are transformed.

use super::FftBlock;
use super::block::fast_length;
use crate::{Error, Result};

/// Full blocks, and what is left after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Elements of a full block; 0 when there is none.
    pub block: usize,
    /// How many full blocks there are.
    pub blocks: usize,
    /// Elements left after them.
    pub rest: usize,
    /// The same padded, the size of the last transform.
    pub tail: usize,
}

impl Cut {
    /// Cuts `n` elements.
    pub fn new(n: usize, block: FftBlock) -> Result<Cut> {
        let (block, blocks, rest, padded) = match block {
            FftBlock::Whole => (0, 0, n, fast_length(n)),
            FftBlock::Elements(block) if block >= 2 && block.is_multiple_of(2) => {
                let (blocks, rest) = (n / block, n % block);
                (if blocks > 0 { block } else { 0 }, blocks, rest, rest.next_multiple_of(2))
            }
            FftBlock::Elements(block) => {
                return Err(Error::BadParameter {
                    method: "fft".into(),
                    name: "block".into(),
                    value: block.to_string(),
                    expected: "an even number of at least 2".into(),
                });
            }
        };
        Ok(Cut { block, blocks, rest, tail: if rest > 0 { padded } else { 0 } })
    }

    /// The elements in full blocks, which have as many coefficients.
    pub fn full_len(&self) -> usize {
        self.block * self.blocks
    }

    /// The length of a spectrum in f32, always even.
    pub fn coefficients(&self) -> usize {
        self.full_len() + self.tail
    }
}
