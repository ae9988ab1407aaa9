//! The range-based N-bit float: a 32-bit float with the low mantissa bits cut off, counted from the smallest
//! magnitude that matters.
//!
//! The bit pattern of a positive float, shifted right, is an integer that grows with the value. Subtracting
//! the pattern of `eps` makes the codes start at one, so that no code is spent below it; zero has code 0, the
//! positive codes follow and the negative ones come after them. Codes are dense near `eps` and sparse near
//! `max`: the spacing doubles every `2^mantissa` codes, and the relative error is the same everywhere.
//!
//! From "FFT-based Gradient Sparsification for the Distributed Training of Deep Neural Networks" (HPDC 2020).
//! Where this departs from it: values are clipped at `min` too, magnitudes below `eps` become zero instead of
//! wrapping around, rounding to nearest is offered beside the paper's truncation, and codes that no value has
//! are refused by the decoder. [`RangeFloat::tuned`] gives both signs `2^(bits-1) - 1` codes; the paper's
//! `2^(bits-1)` positive codes leave the negative side one short of `max`, because zero takes a code.

use crate::codec::bits::{self, BitWriter};
use crate::{Error, Result};

/// Codes held between bytes and values at a time: reading goes one by one, the arithmetic many at once.
const BLOCK: usize = 256;

/// What happens to the mantissa bits that are cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// They are dropped, as in the paper: magnitudes shrink by up to `2^-mantissa`.
    Truncate,
    /// To the nearest code, half away from zero: half that error, and no systematic shrinking.
    Nearest,
}

/// A range-based float of `bits` bits.
///
/// ```
/// use thinwire::codec::{RangeFloat, Rounding};
/// let range = RangeFloat::new(8, 3, 0.125, -2.0, 2.0, Rounding::Truncate)?;
/// assert_eq!(range.encode(0.256), 9);
/// assert_eq!(range.decode(9), Some(0.25));
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RangeFloat {
    bits: u8,
    mantissa: u8,
    rounding: Rounding,
    eps: f32,
    min: f32,
    max: f32,
    /// The shifted pattern of `eps`: code 1.
    base: u32,
    /// How many positive codes there are.
    positive: u32,
    /// How many negative codes there are.
    negative: u32,
}

impl RangeFloat {
    /// The float with these parameters, `eps` cut to the mantissa bits kept so that it is the value of code 1. If
    /// there are not enough codes left to reach `min`, it becomes the lowest value that has one.
    ///
    /// # Errors
    /// [`Error::BadParameter`] unless `bits` is 2 to 16, `mantissa` 1 to `bits`, `eps` a positive normal
    /// number, `min <= -eps`, `max >= eps`, both finite, and the positive side leaves a code for the negative
    /// one.
    pub fn new(bits: u8, mantissa: u8, eps: f32, min: f32, max: f32, rounding: Rounding) -> Result<Self> {
        check_widths(bits, mantissa)?;
        if !(eps.is_normal() && eps > 0.0) {
            return Err(bad("eps", eps, "a positive normal number"));
        }
        if !(max.is_finite() && max >= eps) {
            return Err(bad("max", max, format!("a finite number, at least eps = {eps}")));
        }
        if !(min.is_finite() && min <= -eps) {
            return Err(bad("min", min, format!("a finite number, at most -eps = -{eps}")));
        }
        let shift = 23 - u32::from(mantissa);
        let base = eps.to_bits() >> shift;
        let eps = f32::from_bits(base << shift);
        let codes = |magnitude: f32| (magnitude.to_bits() >> shift) - base + 1;
        let (positive, negative) = (codes(max), codes(-min));
        let spare = (1 << bits) - 1u32;
        if positive >= spare {
            let most = spare - 1;
            return Err(bad("eps", eps, format!("more: {positive} positive codes are above {most}")));
        }
        let mut range = Self { bits, mantissa, rounding, eps, min, max, base, positive, negative };
        if negative > spare - positive {
            range.negative = spare - positive;
            range.min = -f32::from_bits((base + range.negative - 1) << shift);
        }
        Ok(range)
    }

    /// The float that reaches from `max_magnitude` down as far as its codes do, both signs alike.
    ///
    /// A bisection on `eps` would find the same: the number of codes is the distance between the shifted
    /// patterns of `eps` and `max`, so `eps` is `max` less that many codes. It stops at the smallest normal
    /// number, as does `max_magnitude` if it is below that, zero included.
    ///
    /// ```
    /// use thinwire::codec::{RangeFloat, Rounding};
    /// let range = RangeFloat::tuned(10, 5, 1.0, Rounding::Truncate)?;
    /// assert_eq!(range.positive_codes(), 511);
    /// assert!((1.57e-5..1.63e-5).contains(&range.eps()));
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadParameter`] for widths that [`RangeFloat::new`] refuses, or a `max_magnitude` that is
    /// negative or not finite.
    pub fn tuned(bits: u8, mantissa: u8, max_magnitude: f32, rounding: Rounding) -> Result<Self> {
        check_widths(bits, mantissa)?;
        if !(max_magnitude.is_finite() && max_magnitude >= 0.0) {
            return Err(bad("max", max_magnitude, "a finite number, at least zero"));
        }
        let shift = 23 - u32::from(mantissa);
        let mut max = max_magnitude.max(f32::MIN_POSITIVE);
        if rounding == Rounding::Nearest {
            // Up to the next code, so that rounding the largest value up does not lead out of the range.
            let up = f32::from_bits(max.to_bits().next_multiple_of(1 << shift));
            max = if up.is_finite() { up } else { max };
        }
        let each_sign = (1 << (bits - 1)) - 1u32;
        let lowest = f32::MIN_POSITIVE.to_bits() >> shift;
        let base = (max.to_bits() >> shift).saturating_sub(each_sign - 1).max(lowest);
        Self::new(bits, mantissa, f32::from_bits(base << shift), -max, max, rounding)
    }

    /// [`tuned`](RangeFloat::tuned) for the largest magnitude in `values`: nothing is clipped.
    ///
    /// # Errors
    /// As there, and [`Error::BadValues`] with the position of a NaN or an infinity.
    pub fn covering(bits: u8, mantissa: u8, values: &[f32], rounding: Rounding) -> Result<Self> {
        super::check_finite_input("range", values)?;
        let largest = values.iter().fold(0, |largest, value| largest.max(value.abs().to_bits()));
        Self::tuned(bits, mantissa, f32::from_bits(largest), rounding)
    }

    /// Bits a code.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Mantissa bits kept: a value is off by at most `2^-mantissa` of itself, half that with
    /// [`Rounding::Nearest`].
    pub fn mantissa(&self) -> u8 {
        self.mantissa
    }

    /// What happens to the mantissa bits that are cut off.
    pub fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// The smallest magnitude that does not become zero.
    pub fn eps(&self) -> f32 {
        self.eps
    }

    /// The lowest value; what is below is clipped.
    pub fn min(&self) -> f32 {
        self.min
    }

    /// The highest value; what is above is clipped.
    pub fn max(&self) -> f32 {
        self.max
    }

    /// How many positive codes there are: 1 to this number. The negative ones follow.
    pub fn positive_codes(&self) -> u32 {
        self.positive
    }

    /// How many negative codes there are.
    pub fn negative_codes(&self) -> u32 {
        self.negative
    }

    /// The code of a value. NaN has none: a caller checks first; it gets the code of `max` or `min` by its
    /// sign.
    #[inline]
    pub fn encode(&self, value: f32) -> u32 {
        self.encode_counting(value).0
    }

    /// The code, and whether the value had to be clipped.
    #[inline]
    fn encode_counting(&self, value: f32) -> (u32, bool) {
        let shift = 23 - u32::from(self.mantissa);
        let half = match self.rounding {
            Rounding::Truncate => 0,
            Rounding::Nearest => 1 << (shift - 1),
        };
        // Selections instead of branches: signs and clips come in no order that could be predicted.
        let is_negative = value.is_sign_negative();
        let magnitude = value.abs().to_bits();
        let limit = if is_negative { -self.min } else { self.max }.to_bits();
        let last = if is_negative { self.negative } else { self.positive };
        let offset = if is_negative { self.positive } else { 0 };
        let clipped = magnitude > limit;
        // Below eps the subtraction wraps; that code is not used.
        let step = ((magnitude.min(limit) + half) >> shift).wrapping_sub(self.base).wrapping_add(1).min(last);
        (if magnitude < self.eps.to_bits() { 0 } else { offset + step }, clipped)
    }

    /// The value of a code, or nothing for a code that no value has.
    #[inline]
    pub fn decode(&self, code: u32) -> Option<f32> {
        (code <= self.positive + self.negative).then(|| self.decode_unchecked(code))
    }

    /// The value of a code that is known to have one.
    #[inline]
    fn decode_unchecked(&self, code: u32) -> f32 {
        let shift = 23 - u32::from(self.mantissa);
        // Arithmetic instead of branches, for the same reason.
        let is_negative = u32::from(code > self.positive);
        let step = code - is_negative * self.positive;
        let magnitude = (step + self.base).wrapping_sub(1) << shift;
        f32::from_bits((magnitude | is_negative << 31) * u32::from(code != 0))
    }

    /// Appends the codes of finite values; gives the number of values clipped.
    pub(super) fn encode_all(&self, values: &[f32], out: &mut Vec<u8>) -> usize {
        out.reserve(super::encoded_len(&super::ValueForm::Range(*self), values.len()));
        let mut writer = BitWriter::new(out);
        let mut clipped = 0;
        for &value in values {
            let (code, was_clipped) = self.encode_counting(value);
            clipped += usize::from(was_clipped);
            writer.put(code, u32::from(self.bits));
        }
        writer.finish();
        clipped
    }

    /// Reads `count` codes into an empty `out`; the caller has checked the length of `bytes`.
    pub(super) fn decode_all(&self, bytes: &[u8], count: usize, out: &mut Vec<f32>) -> Result<()> {
        let width = u32::from(self.bits);
        bits::check_extent("range-float codes", bytes, count as u64 * u64::from(width))?;
        let last = self.positive + self.negative;
        let (mut largest, mut position) = (0, 0);
        let mut codes = [0; BLOCK];
        while out.len() < count {
            let codes = &mut codes[..BLOCK.min(count - out.len())];
            for code in codes.iter_mut() {
                *code = bits::read(bytes, position, width);
                position += u64::from(width);
            }
            largest = codes.iter().fold(largest, |largest, &code| largest.max(code));
            out.extend(codes.iter().map(|&code| self.decode_unchecked(code.min(last))));
        }
        if largest > last {
            return Err(Error::BadField {
                field: "range-float codes",
                found: format!("code {largest}"),
                expected: format!("at most {last}, the last code of {self}"),
            });
        }
        Ok(())
    }
}

impl std::fmt::Display for RangeFloat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("range{}m{}", self.bits, self.mantissa))
    }
}

fn check_widths(bits: u8, mantissa: u8) -> Result<()> {
    if !(2..=16).contains(&bits) {
        return Err(bad("bits", bits, "2 to 16"));
    }
    if !(1..=bits).contains(&mantissa) {
        return Err(bad("mantissa", mantissa, format!("1 to {bits}, the number of bits")));
    }
    Ok(())
}

#[cold]
fn bad(name: &str, value: impl ToString, expected: impl ToString) -> Error {
    Error::BadParameter {
        method: "range float".into(),
        name: name.into(),
        value: value.to_string(),
        expected: expected.to_string(),
    }
}

#[cfg(test)]
mod tests;
