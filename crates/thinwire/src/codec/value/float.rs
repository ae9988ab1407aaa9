//! IEEE floats of 32 and 16 bits and bfloat16, little endian.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Values converted at a time: a buffer this long lives on the stack and in the first-level cache.
const BLOCK: usize = 256;

/// A 16-bit float that the `half` crate converts slices of.
trait Half: Copy {
    const ZERO: Self;
    const LARGEST: f32;
    fn narrow(wide: &[f32], narrow: &mut [Self]);
    fn widen(narrow: &[Self], wide: &mut [f32]);
    fn to_bytes(self) -> [u8; 2];
    fn from_bytes(bytes: [u8; 2]) -> Self;
}

macro_rules! half {
    ($type:ident, $largest:expr) => {
        impl Half for $type {
            const ZERO: Self = $type::ZERO;
            const LARGEST: f32 = $largest;
            fn narrow(wide: &[f32], narrow: &mut [Self]) {
                narrow.convert_from_f32_slice(wide);
            }
            fn widen(narrow: &[Self], wide: &mut [f32]) {
                narrow.convert_to_f32_slice(wide);
            }
            fn to_bytes(self) -> [u8; 2] {
                self.to_le_bytes()
            }
            fn from_bytes(bytes: [u8; 2]) -> Self {
                Self::from_le_bytes(bytes)
            }
        }
    };
}
half!(f16, 65504.0);
half!(bf16, f32::from_bits(0x7f7f_0000));

/// Appends 32-bit floats.
pub(super) fn encode_f32(values: &[f32], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 4 * values.len(), 0);
    for (slot, value) in out[start..].as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *slot = value.to_le_bytes();
    }
}

/// Appends 16-bit floats; gives the number of values clipped to the largest finite one.
pub(super) fn encode_f16(values: &[f32], out: &mut Vec<u8>) -> usize {
    encode_half::<f16>(values, out)
}

/// The same for bfloat16.
pub(super) fn encode_bf16(values: &[f32], out: &mut Vec<u8>) -> usize {
    encode_half::<bf16>(values, out)
}

fn encode_half<H: Half>(values: &[f32], out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + 2 * values.len(), 0);
    let slots = out[start..].as_chunks_mut::<2>().0;
    let (mut wide, mut narrow) = ([0.0; BLOCK], [H::ZERO; BLOCK]);
    let mut clipped = 0;
    for (values, slots) in values.chunks(BLOCK).zip(slots.chunks_mut(BLOCK)) {
        let (wide, narrow) = (&mut wide[..values.len()], &mut narrow[..values.len()]);
        for (wide, value) in wide.iter_mut().zip(values) {
            clipped += usize::from(value.abs() > H::LARGEST);
            *wide = value.clamp(-H::LARGEST, H::LARGEST);
        }
        H::narrow(wide, narrow);
        for (slot, half) in slots.iter_mut().zip(narrow) {
            *slot = half.to_bytes();
        }
    }
    clipped
}

/// Reads 32-bit floats into an empty `out` with room for them.
pub(super) fn decode_f32(bytes: &[u8], out: &mut Vec<f32>) {
    out.extend(bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)));
}

/// Reads 16-bit floats into an empty `out` with room for them.
pub(super) fn decode_f16(bytes: &[u8], out: &mut Vec<f32>) {
    decode_half::<f16>(bytes, out);
}

/// The same for bfloat16.
pub(super) fn decode_bf16(bytes: &[u8], out: &mut Vec<f32>) {
    decode_half::<bf16>(bytes, out);
}

fn decode_half<H: Half>(bytes: &[u8], out: &mut Vec<f32>) {
    let halves = bytes.as_chunks::<2>().0;
    out.resize(halves.len(), 0.0);
    let mut narrow = [H::ZERO; BLOCK];
    for (halves, values) in halves.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let narrow = &mut narrow[..halves.len()];
        for (narrow, half) in narrow.iter_mut().zip(halves) {
            *narrow = H::from_bytes(*half);
        }
        H::widen(narrow, values);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ValueForm, decode, encode};
    use super::*;
    use proptest::prelude::*;

    fn finite(patterns: Vec<u32>) -> Vec<f32> {
        patterns.into_iter().map(f32::from_bits).filter(|value| value.is_finite()).collect()
    }

    #[test]
    fn beyond_the_largest_is_clipped_and_counted() {
        let values = [65504.0, 65504.1, -1e9, f32::MAX, f32::MIN, 65519.9, -65504.0];
        let (mut bytes, mut back) = (Vec::new(), Vec::new());
        assert_eq!(encode(&ValueForm::F16, &values, &mut bytes).unwrap(), 5);
        decode(&ValueForm::F16, &bytes, values.len(), &mut back).unwrap();
        assert_eq!(back, [65504.0, 65504.0, -65504.0, 65504.0, -65504.0, 65504.0, -65504.0]);

        let largest = bf16::MAX.to_f32();
        bytes.clear();
        assert_eq!(encode(&ValueForm::Bf16, &[f32::MAX, largest, -f32::MAX], &mut bytes).unwrap(), 2);
        decode(&ValueForm::Bf16, &bytes, 3, &mut back).unwrap();
        assert_eq!(back, [largest, largest, -largest]);
    }

    proptest! {
        #[test]
        fn halves_round_to_nearest_even(bits in prop::collection::vec(any::<u32>(), 0..600)) {
            // Every finite pattern, over more than one block; the scalar conversion is the definition.
            let values = finite(bits);
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            encode(&ValueForm::F16, &values, &mut bytes).unwrap();
            decode(&ValueForm::F16, &bytes, values.len(), &mut back).unwrap();
            for (value, back) in values.iter().zip(&back) {
                let plain = f16::from_f32(value.clamp(-65504.0, 65504.0)).to_f32();
                prop_assert_eq!(plain.to_bits(), back.to_bits());
            }
            bytes.clear();
            encode(&ValueForm::Bf16, &values, &mut bytes).unwrap();
            decode(&ValueForm::Bf16, &bytes, values.len(), &mut back).unwrap();
            for (value, back) in values.iter().zip(&back) {
                let plain = bf16::from_f32(value.clamp(-bf16::MAX.to_f32(), bf16::MAX.to_f32())).to_f32();
                prop_assert_eq!(plain.to_bits(), back.to_bits());
            }
        }

        #[test]
        fn f32_keeps_every_bit(bits in prop::collection::vec(any::<u32>(), 0..300)) {
            let values = finite(bits);
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            prop_assert_eq!(encode(&ValueForm::F32, &values, &mut bytes).unwrap(), 0);
            decode(&ValueForm::F32, &bytes, values.len(), &mut back).unwrap();
            prop_assert!(values.iter().map(|v| v.to_bits()).eq(back.iter().map(|v| v.to_bits())));
        }
    }
}
