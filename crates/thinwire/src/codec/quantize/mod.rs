//! Block quantisation: 64 values share a scale (128 with 3 bits), and each becomes a signed integer of 2, 3, 4 or 8 bits.
//!
//! A block is 256 values: its scales, each a bfloat16, and then the codes. A scale is the largest magnitude over the largest
//! integer, rounded up, so that nothing is clipped; with 2 bits, where only -1, 0 and 1 exist, it is twice the root mean
//! square. A value becomes `round(value / scale)`, to the nearest integer or, with a key, stochastically: rounded up with
//! the probability of its fraction, as in QSGD (Alistarh et al. 2017). The random number is a hash of key and position, so
//! it is the same on every machine and in a resumed run.
//!
//! Few values share a scale because small gradients beside a large one would drown in its rounding errors: Adam sees
//! their squares. Short scales pay for that, and a code times a bfloat16 is exact.
//!
//! Codes lie in planes: byte `j` of a block of 4 bits holds the codes `j` and `j + 128`. Neighbours in a register stay
//! neighbours in memory, so packing is one shift and one or. Three bits are a plane of two and a plane of one.
//!
//! Invariant: `code * scale + rest == value` within one rounding, where `rest` is what [`Quantizer::quantize`] leaves in
//! the place of the values. No result depends on the instruction set: every operation on floats is rounded by itself.

mod block;

use std::ops::Range;

use crate::{Error, Result};
use block::Dither;

/// Values whose codes are packed together. Parts of a message begin and end with whole blocks.
pub const BLOCK: usize = 256;

/// How values become integers: with how many bits, and by which rounding.
///
/// ```
/// use thinwire::codec::Quantizer;
/// let quantizer = Quantizer::new(4)?;
/// let mut values = vec![0.7f32, -0.3, 0.05, 0.0];
/// let mut bytes = Vec::new();
/// quantizer.quantize(&mut values, 0, &mut bytes).unwrap();
/// assert_eq!(bytes.len(), 2 + 2);
/// let mut back = vec![0.0; 4];
/// quantizer.decode(&bytes, 1.0, &mut back).unwrap();
/// assert!((back[0] - 0.7).abs() < 0.01 && (back[1] + 0.3).abs() < 0.01);
/// assert!((back[2] + values[2] - 0.05).abs() < 1e-6); // what is lost is left
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantizer {
    bits: u8,
    /// Of stochastic rounding; `None` rounds to the nearest.
    key: Option<u32>,
}

/// Sums of squares of what was quantised, and of what it lost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QuantizeSums {
    /// Of the values.
    pub energy: f64,
    /// Of the difference to what receivers read.
    pub lost: f64,
}

impl QuantizeSums {
    /// Adds another part's.
    pub fn merge(&mut self, other: QuantizeSums) {
        self.energy += other.energy;
        self.lost += other.lost;
    }
}

impl Quantizer {
    /// To the nearest integer of so many bits.
    ///
    /// # Errors
    /// [`Error::BadParameter`] unless `bits` is 2, 3, 4 or 8.
    pub fn new(bits: u8) -> Result<Quantizer> {
        if matches!(bits, 2 | 3 | 4 | 8) {
            return Ok(Quantizer { bits, key: None });
        }
        Err(Error::BadParameter {
            method: "quantizer".into(),
            name: "bits".into(),
            value: bits.to_string(),
            expected: "2, 3, 4 or 8".into(),
        })
    }

    /// The same with stochastic rounding, whose random numbers are those of `key`.
    pub fn stochastic(self, key: u32) -> Quantizer {
        Quantizer { key: Some(key), ..self }
    }

    /// The key of stochastic rounding; `None` where it is to the nearest.
    pub fn key(&self) -> Option<u32> {
        self.key
    }

    /// The same rounding, with random numbers of another key if it is stochastic.
    pub(crate) fn with_key(self, key: u32) -> Quantizer {
        Quantizer { key: self.key.map(|_| key), ..self }
    }

    /// Bits of a code.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Bits of a value with its share of the scale.
    pub fn bits_per_value(&self) -> f64 {
        8.0 * self.block_len(BLOCK) as f64 / BLOCK as f64
    }

    /// Bytes of `count` values: 2 for each scale, and the codes.
    pub fn encoded_len(&self, count: usize) -> usize {
        let (whole, rest) = (count / BLOCK, count % BLOCK);
        let last = if rest > 0 { self.block_len(rest) } else { 0 };
        whole.saturating_mul(self.block_len(BLOCK)).saturating_add(last)
    }

    fn block_len(&self, count: usize) -> usize {
        block::len(self.bits.into(), count)
    }

    fn dither(&self, first: usize) -> Option<Dither> {
        self.key.map(|key| Dither { key, first: first as u32 })
    }

    /// Appends `values` to `out` and leaves in their place what receivers will not read. `first` is the position of the
    /// first of them, which stochastic rounding goes by.
    ///
    /// # Errors
    /// The position of the first value that is not finite. Its block is not written, and those before it are; the values
    /// of the blocks after them are as they were.
    pub fn quantize(
        &self,
        values: &mut [f32],
        first: usize,
        out: &mut Vec<u8>,
    ) -> Result<QuantizeSums, usize> {
        self.accumulate(None, values, first, out)
    }

    /// The same after `values += scale * gradient`, in one pass. Blocks that are not written have not been added to.
    ///
    /// # Errors
    /// As [`quantize`](Quantizer::quantize), for the sums.
    pub fn accumulate(
        &self,
        gradient: Option<(&[f32], f32)>,
        values: &mut [f32],
        first: usize,
        out: &mut Vec<u8>,
    ) -> Result<QuantizeSums, usize> {
        let begin = out.len();
        out.resize(begin + self.encoded_len(values.len()), 0);
        let bytes = &mut out[begin..];
        let dither = self.dither(first);
        let pass = |bytes: &mut [u8], values: &mut [f32]| match self.bits {
            2 => block::quantize::<2>(gradient, values, dither, bytes),
            3 => block::quantize::<3>(gradient, values, dither, bytes),
            4 => block::quantize::<4>(gradient, values, dither, bytes),
            _ => block::quantize::<8>(gradient, values, dither, bytes),
        };
        pass(bytes, values).inspect_err(|position| {
            let whole = position / BLOCK;
            out.truncate(begin + whole * self.block_len(BLOCK));
        })
    }

    /// `out = values * factor`, for as many values as `out` has.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::BadField`] if `bytes` has another length, or a scale that is not finite or is
    /// negative. `out` may hold anything then.
    pub fn decode(&self, bytes: &[u8], factor: f32, out: &mut [f32]) -> Result<()> {
        self.check(bytes, out.len())?;
        match self.bits {
            2 => block::decode::<2>(bytes, factor, out),
            3 => block::decode::<3>(bytes, factor, out),
            4 => block::decode::<4>(bytes, factor, out),
            _ => block::decode::<8>(bytes, factor, out),
        }
        Ok(())
    }

    /// `sums += values`.
    ///
    /// # Errors
    /// As [`decode`](Quantizer::decode); `sums` is as it was then.
    pub fn add(&self, bytes: &[u8], sums: &mut [f32]) -> Result<()> {
        self.check(bytes, sums.len())?;
        match self.bits {
            2 => block::add::<2>(bytes, sums),
            3 => block::add::<3>(bytes, sums),
            4 => block::add::<4>(bytes, sums),
            _ => block::add::<8>(bytes, sums),
        }
        Ok(())
    }

    /// Checks the length and every scale.
    pub(crate) fn check(&self, bytes: &[u8], count: usize) -> Result<()> {
        crate::codec::bits::check_length("quantised values", bytes, self.encoded_len(count) as u64)?;
        let blocks = bytes.chunks(self.block_len(BLOCK)).zip((0..count).step_by(BLOCK));
        let scales = blocks
            .flat_map(|(bytes, first)| block::scales_of(self.bits.into(), bytes, BLOCK.min(count - first)));
        // Codes reach one beyond the largest integer; that value must be finite too.
        let most = f32::MAX / f32::from(1u8 << (self.bits - 1));
        for (number, scale) in scales.enumerate() {
            if !(0.0..=most).contains(&scale) {
                return Err(Error::BadField {
                    field: "scale of quantised values",
                    found: format!("{scale}, the one at place {number}"),
                    expected: format!("a number from 0 to {most:e}"),
                });
            }
        }
        Ok(())
    }

    /// Cuts `elements` into shards of whole blocks, one for each of `ranks`.
    pub(crate) fn shard(elements: usize, rank: usize, ranks: usize) -> Range<usize> {
        let blocks = elements.div_ceil(BLOCK);
        let at = |rank: usize| (rank * blocks / ranks * BLOCK).min(elements);
        at(rank)..at(rank + 1)
    }
}

impl std::fmt::Display for Quantizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self.bits {
            2 => "int2",
            3 => "int3",
            4 => "int4",
            _ => "int8",
        })
    }
}

#[cfg(test)]
mod tests;
