//! What stands at the coordinates: floats, at full width or fewer bits.

mod float;
mod range_float;
mod same_sign;

pub use range_float::{RangeFloat, Rounding};

use crate::codec::quantize::BLOCK;
use crate::codec::{Quantizer, bits};
use crate::group::Precision;
use crate::{Error, Result};

/// How the values of a section are written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueForm {
    /// 32-bit floats, exactly.
    F32,
    /// 16-bit IEEE floats: 11 significant bits, up to 65504.
    F16,
    /// bfloat16: 8 significant bits, the range of a 32-bit float.
    Bf16,
    /// Range-based floats of 2 to 16 bits.
    Range(RangeFloat),
    /// One 32-bit float, the mean of values that have one sign.
    SameSign,
    /// Integers of 2, 3, 4 or 8 bits, with a scale for each 64 (128 with 3 bits).
    Quantized(Quantizer),
    /// No values at all: a leader's coordinates, at which all ranks will add up theirs.
    Absent,
}

impl ValueForm {
    /// Its short name, without parameters: f32, f16, bf16, range, same-sign, quantized or absent.
    pub fn name(&self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Range(_) => "range",
            Self::SameSign => "same-sign",
            Self::Quantized(_) => "quantized",
            Self::Absent => "absent",
        }
    }

    /// The width in which values of this form can be added up without being decoded; `None` if they can't.
    pub fn precision(&self) -> Option<Precision> {
        match self {
            Self::F32 => Some(Precision::F32),
            Self::F16 => Some(Precision::F16),
            Self::Bf16 => Some(Precision::Bf16),
            Self::Range(_) | Self::SameSign | Self::Quantized(_) | Self::Absent => None,
        }
    }
}

impl std::fmt::Display for ValueForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Range(range) => range.fmt(f),
            Self::Quantized(quantizer) => quantizer.fmt(f),
            _ => f.pad(self.name()),
        }
    }
}

/// How many bytes `count` values take.
///
/// ```
/// use thinwire::codec::{value, RangeFloat, Rounding, ValueForm};
/// let ten_bits = ValueForm::Range(RangeFloat::tuned(10, 5, 1.0, Rounding::Truncate)?);
/// assert_eq!(value::encoded_len(&ten_bits, 100), 125);
/// assert_eq!(value::encoded_len(&ValueForm::SameSign, 100), 4);
/// # Ok::<(), thinwire::Error>(())
/// ```
pub fn encoded_len(form: &ValueForm, count: usize) -> usize {
    let wide = count as u64;
    let bytes = match form {
        ValueForm::F32 => wide.saturating_mul(4),
        ValueForm::F16 | ValueForm::Bf16 => wide.saturating_mul(2),
        ValueForm::Range(range) => wide.saturating_mul(u64::from(range.bits())).div_ceil(8),
        ValueForm::SameSign => 4 * wide.min(1),
        ValueForm::Quantized(quantizer) => return quantizer.encoded_len(count),
        ValueForm::Absent => 0,
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Appends `values` to `out`; gives the number of values that were beyond the form's range and were clipped
/// to it.
///
/// ```
/// use thinwire::codec::{value, ValueForm};
/// let (mut bytes, mut back) = (Vec::new(), Vec::new());
/// let clipped = value::encode(&ValueForm::F16, &[1.5, 1e6], &mut bytes)?;
/// value::decode(&ValueForm::F16, &bytes, 2, &mut back)?;
/// assert_eq!((clipped, back), (1, vec![1.5, 65504.0]));
/// # Ok::<(), thinwire::Error>(())
/// ```
///
/// # Errors
/// [`Error::BadValues`] with the position of a NaN or an infinity, or if the form is [`ValueForm::SameSign`]
/// and the values have both signs. Nothing is appended then.
pub fn encode(form: &ValueForm, values: &[f32], out: &mut Vec<u8>) -> Result<usize> {
    check_finite_input(form.name(), values)?;
    Ok(match form {
        ValueForm::F32 => {
            float::encode_f32(values, out);
            0
        }
        ValueForm::F16 => float::encode_f16(values, out),
        ValueForm::Bf16 => float::encode_bf16(values, out),
        ValueForm::Range(range) => range.encode_all(values, out),
        ValueForm::SameSign => {
            same_sign::encode(values, out)?;
            0
        }
        ValueForm::Quantized(quantizer) => {
            encode_quantized(quantizer, values, out)?;
            0
        }
        ValueForm::Absent => 0,
    })
}

/// Reads `count` values into `out`, which is emptied first and stays empty for [`ValueForm::Absent`].
///
/// Every form but [`ValueForm::SameSign`] has bytes for each value, so `out` takes at most 16 times the
/// memory of `bytes`; with that one the caller must know that `count` is sane.
///
/// # Errors
/// [`Error::Truncated`] or [`Error::BadField`] if the bytes are not exactly `count` finite values in this
/// form, with every spare bit zero. `out` is empty then.
pub fn decode(form: &ValueForm, bytes: &[u8], count: usize, out: &mut Vec<f32>) -> Result<()> {
    out.clear();
    bits::check_length("values", bytes, encoded_len(form, count) as u64)?;
    if *form != ValueForm::Absent {
        out.reserve_exact(count);
    }
    let result = match form {
        ValueForm::F32 => {
            float::decode_f32(bytes, out);
            check_finite_output(out)
        }
        ValueForm::F16 => {
            float::decode_f16(bytes, out);
            check_finite_output(out)
        }
        ValueForm::Bf16 => {
            float::decode_bf16(bytes, out);
            check_finite_output(out)
        }
        ValueForm::Range(range) => range.decode_all(bytes, count, out),
        ValueForm::SameSign => same_sign::decode(bytes, count, out),
        ValueForm::Quantized(quantizer) => {
            out.resize(count, 0.0);
            quantizer.decode(bytes, 1.0, out)
        }
        ValueForm::Absent => Ok(()),
    };
    result.inspect_err(|_| out.clear())
}

fn encode_quantized(quantizer: &Quantizer, values: &[f32], out: &mut Vec<u8>) -> Result<()> {
    let begin = out.len();
    for (number, block) in values.chunks(BLOCK).enumerate() {
        let (first, mut work) = (number * BLOCK, [0.0; BLOCK]);
        let work = &mut work[..block.len()];
        work.copy_from_slice(block);
        quantizer.quantize(work, first, out).map_err(|position| {
            out.truncate(begin);
            let position = first + position;
            Error::BadValues {
                form: "quantized",
                found: format!("{} at position {position}", values[position]),
                expected: "magnitudes below 8e37".into(),
            }
        })?;
    }
    Ok(())
}

/// Checks what can be told without looking at every value: the length and the spare bits. What is left are codes
/// that no value has, and values that are not finite.
pub(crate) fn check_outline(form: &ValueForm, bytes: &[u8], count: usize) -> Result<()> {
    bits::check_length("values", bytes, encoded_len(form, count) as u64)?;
    match form {
        ValueForm::Range(range) => {
            bits::check_extent("range-float codes", bytes, count as u64 * u64::from(range.bits()))
        }
        _ => Ok(()),
    }
}

/// Fails with the position of the first value that is not finite.
pub(crate) fn finite_or_position(values: &[f32]) -> Result<(), usize> {
    // The largest magnitude, as bits, tells at the speed of memory; the position is looked for only when
    // needed.
    const INFINITY: u32 = 0x7f80_0000;
    let largest = values.iter().fold(0, |largest, value| largest.max(value.abs().to_bits()));
    if largest < INFINITY {
        return Ok(());
    }
    Err(values.iter().position(|value| !value.is_finite()).unwrap_or(0))
}

/// The same, as the error of an encoder.
fn check_finite_input(form: &'static str, values: &[f32]) -> Result<()> {
    finite_or_position(values).map_err(|position| Error::BadValues {
        form,
        found: format!("{} at position {position}", values[position]),
        expected: "finite values".into(),
    })
}

/// The same, as the error of a decoder.
fn check_finite_output(values: &[f32]) -> Result<()> {
    finite_or_position(values).map_err(|position| not_finite(values[position], position))
}

/// The error of a decoder that met a NaN or an infinity.
#[cold]
fn not_finite(value: f32, position: usize) -> Error {
    Error::BadField {
        field: "values",
        found: format!("{value} at position {position}"),
        expected: "finite values".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms() -> Vec<ValueForm> {
        let range = |bits, mantissa| RangeFloat::tuned(bits, mantissa, 8.0, Rounding::Nearest).unwrap();
        vec![
            ValueForm::F32,
            ValueForm::F16,
            ValueForm::Bf16,
            ValueForm::Range(range(2, 1)),
            ValueForm::Range(range(7, 3)),
            ValueForm::Range(range(10, 5)),
            ValueForm::Range(range(16, 12)),
            ValueForm::SameSign,
            ValueForm::Quantized(Quantizer::new(8).unwrap()),
        ]
    }

    #[test]
    fn lengths_are_exact_at_all_sizes() {
        for form in forms() {
            for count in [0, 1, 2, 3, 7, 8, 9, 100, 255, 256, 257, 10_000] {
                let values: Vec<f32> = (0..count).map(|i| 8.0 - i as f32 / 2000.0).collect();
                let (mut bytes, mut back) = (vec![7], Vec::new());
                assert_eq!(encode(&form, &values, &mut bytes).unwrap(), 0);
                assert_eq!(bytes.len() - 1, encoded_len(&form, count), "{form}");
                decode(&form, &bytes[1..], count, &mut back).unwrap();
                assert_eq!(back.len(), count);
                bytes.push(0);
                assert!(decode(&form, &bytes[1..], count, &mut back).is_err());
                if count > 0 {
                    assert!(decode(&form, &bytes[1..bytes.len() - 2], count, &mut back).is_err());
                }
                assert!(back.is_empty());
            }
        }
    }

    #[test]
    fn non_finite_values_are_refused_with_their_position() {
        for form in forms() {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut out = vec![1];
                let error = encode(&form, &[1.0, 2.0, bad, bad], &mut out).unwrap_err();
                let named =
                    matches!(&error, Error::BadValues { found, .. } if found.ends_with("at position 2"));
                assert!(named, "{error}");
                assert_eq!(out, [1]);
            }
        }
        let mut out = Vec::new();
        let infinities: [(_, &[u8]); 3] = [
            (ValueForm::F32, &[0, 0, 0, 0, 0, 0, 0x80, 0xff]),
            (ValueForm::F16, &[0, 0, 0, 0x7c]),
            (ValueForm::Bf16, &[0, 0, 0xc0, 0x7f]),
        ];
        for (form, bytes) in infinities {
            let error = decode(&form, bytes, 2, &mut out).unwrap_err();
            assert!(
                matches!(&error, Error::BadField { found, .. } if found.ends_with("at position 1")),
                "{error}"
            );
            assert!(out.is_empty());
        }
    }

    #[test]
    fn the_documented_bytes() {
        let mut bytes = Vec::new();
        let mut check = |form, values: &[f32], expected: &[u8]| {
            bytes.clear();
            encode(&form, values, &mut bytes).unwrap();
            assert_eq!(bytes, expected, "{form}");
        };
        check(ValueForm::F32, &[1.0, -2.5], &[0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x20, 0xc0]);
        check(ValueForm::F16, &[1.0, -2.5], &[0x00, 0x3c, 0x00, 0xc1]);
        check(ValueForm::Bf16, &[1.0, -2.5], &[0x80, 0x3f, 0x20, 0xc0]);
        let range = RangeFloat::new(8, 3, 0.125, -2.0, 2.0, Rounding::Truncate).unwrap();
        check(ValueForm::Range(range), &[0.256, 0.0, -2.0], &[0x09, 0x00, 0x42]);
        let range = RangeFloat::tuned(10, 5, 1.0, Rounding::Truncate).unwrap();
        check(ValueForm::Range(range), &[1.0, -1.0, 0.0], &[0xff, 0xf9, 0x0f, 0x00]);
        check(ValueForm::SameSign, &[1.0, 2.0, 6.0], &[0x00, 0x00, 0x40, 0x40]);
        let four_bits = ValueForm::Quantized(Quantizer::new(4).unwrap());
        check(four_bits, &[7.0, -3.0, 1.0, 0.0], &[0x80, 0x3f, 0x8e, 0x74]);
    }

    #[test]
    fn names() {
        let shown: Vec<String> = forms().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            ["f32", "f16", "bf16", "range2m1", "range7m3", "range10m5", "range16m12", "same-sign", "int8"]
        );
        assert_eq!(forms()[4].name(), "range");
    }
}
