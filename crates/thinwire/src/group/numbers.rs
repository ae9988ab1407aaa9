//! Vectors that can be summed, as bytes that can be sent.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

#[cfg(target_endian = "big")]
compile_error!("values travel as they stand in memory, and the wire is little-endian");

/// A vector to be summed over all ranks, in place.
///
/// Half-width vectors are added in `f32` and rounded at every hop, as every all-reduce of half-width floats
/// does.
#[derive(Debug)]
pub enum Sum<'a> {
    /// 32-bit floats.
    F32(&'a mut [f32]),
    /// 16-bit IEEE floats.
    F16(&'a mut [f16]),
    /// bfloat16.
    Bf16(&'a mut [bf16]),
}

/// The width of a vector's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// bfloat16.
    Bf16,
}

impl Precision {
    /// Bytes of one element.
    pub fn width(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::F16 | Precision::Bf16 => 2,
        }
    }
}

impl<'a> Sum<'a> {
    /// The width of the elements.
    pub fn precision(&self) -> Precision {
        match self {
            Sum::F32(_) => Precision::F32,
            Sum::F16(_) => Precision::F16,
            Sum::Bf16(_) => Precision::Bf16,
        }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Sum::F32(values) => values.len(),
            Sum::F16(values) => values.len(),
            Sum::Bf16(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A vector whose elements are given as the words that hold them; `None` for [`Precision::F32`], whose
    /// elements do not fit.
    pub fn of_words(precision: Precision, words: &'a mut [u16]) -> Option<Sum<'a>> {
        match precision {
            Precision::F32 => None,
            Precision::F16 => Some(Sum::F16(bytemuck::cast_slice_mut(words))),
            Precision::Bf16 => Some(Sum::Bf16(bytemuck::cast_slice_mut(words))),
        }
    }

    /// The vector as it travels.
    pub fn into_bytes(self) -> &'a mut [u8] {
        match self {
            Sum::F32(values) => bytemuck::cast_slice_mut(values),
            Sum::F16(values) => bytemuck::cast_slice_mut(values),
            Sum::Bf16(values) => bytemuck::cast_slice_mut(values),
        }
    }
}

/// Adds whole elements. Both sides begin at an element of a vector of that precision.
pub(super) fn add(precision: Precision, sums: &mut [u8], more: &[u8]) {
    match precision {
        Precision::F32 => {
            let (sums, more): (&mut [f32], &[f32]) =
                (bytemuck::cast_slice_mut(sums), bytemuck::cast_slice(more));
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        Precision::F16 => add_half::<f16>(bytemuck::cast_slice_mut(sums), bytemuck::cast_slice(more)),
        Precision::Bf16 => add_half::<bf16>(bytemuck::cast_slice_mut(sums), bytemuck::cast_slice(more)),
    }
}

/// Adds in `f32`, a piece at a time, where the conversions run at the speed of SIMD.
fn add_half<H>(sums: &mut [H], more: &[H])
where
    [H]: HalfFloatSliceExt,
{
    const PIECE: usize = 256;
    let (mut a, mut b) = ([0.0f32; PIECE], [0.0f32; PIECE]);
    for (sums, more) in sums.chunks_mut(PIECE).zip(more.chunks(PIECE)) {
        let (a, b) = (&mut a[..sums.len()], &mut b[..sums.len()]);
        sums.convert_to_f32_slice(a);
        more.convert_to_f32_slice(b);
        a.iter_mut().zip(&*b).for_each(|(a, b)| *a += b);
        sums.convert_from_f32_slice(a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_precision_adds() {
        let numbers: Vec<f32> = (0..1000).map(|i| i as f32 / 8.0).collect();
        let twice: Vec<f32> = numbers.iter().map(|x| 2.0 * x).collect();
        let mut single = numbers.clone();
        let other = numbers.clone();
        add(Precision::F32, Sum::F32(&mut single).into_bytes(), bytemuck::cast_slice(&other));
        assert_eq!(single, twice);
        let mut half: Vec<f16> = numbers.iter().map(|&x| f16::from_f32(x)).collect();
        let other = half.clone();
        add(Precision::F16, Sum::F16(&mut half).into_bytes(), bytemuck::cast_slice(&other));
        assert!(half.iter().zip(&twice).all(|(a, &b)| *a == f16::from_f32(b)));
        let mut brain: Vec<bf16> = numbers.iter().map(|&x| bf16::from_f32(x)).collect();
        let other = brain.clone();
        add(Precision::Bf16, Sum::Bf16(&mut brain).into_bytes(), bytemuck::cast_slice(&other));
        assert!(brain.iter().zip(&other).all(|(a, b)| a.to_f32() == 2.0 * b.to_f32()));
    }
}
