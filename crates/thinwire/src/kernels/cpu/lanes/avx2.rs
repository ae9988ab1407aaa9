//! Sixteen lanes as two AVX2 registers.

use std::arch::x86_64::*;

use super::portable::Portable;
use super::{Lanes, WIDTH};

#[derive(Clone, Copy)]
pub(in super::super) struct Avx2(__m256, __m256);

/// Both halves of one or two pairs of registers through one intrinsic.
macro_rules! halves {
    ($intrinsic:ident, $a:expr $(, $b:expr)?) => {
        // SAFETY: `Avx2` is named only in code compiled for, and run after detecting, AVX2.
        unsafe { Avx2($intrinsic($a.0 $(, $b.0)?), $intrinsic($a.1 $(, $b.1)?)) }
    };
}

impl Lanes for Avx2 {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: as in `halves`.
        unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        // SAFETY: as in `halves`; both unaligned loads lie inside the array.
        unsafe { Avx2(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        // SAFETY: as in `halves`; both unaligned stores lie inside the array.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), self.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), self.1);
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        halves!(_mm256_add_ps, self, other)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        halves!(_mm256_mul_ps, self, other)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        halves!(_mm256_div_ps, self, other)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        halves!(_mm256_max_ps, self, other)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        halves!(_mm256_min_ps, self, other)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        let sign = Avx2::splat(-0.0);
        halves!(_mm256_andnot_ps, sign, self)
    }

    #[inline(always)]
    fn not_below(self, floor: Self) -> u16 {
        // SAFETY: as in `halves`.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(self.0, floor.0));
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(self.1, floor.1));
            (low | high << 8) as u16
        }
    }

    #[inline(always)]
    fn signs(self) -> u16 {
        // SAFETY: as in `halves`.
        unsafe { (_mm256_movemask_ps(self.0) | _mm256_movemask_ps(self.1) << 8) as u16 }
    }

    // AVX2 has no compress; the rare lanes that pass go one by one.

    #[inline(always)]
    fn pack(self, mask: u16, to: &mut [f32; WIDTH]) {
        let mut lanes = [0.0; WIDTH];
        self.store(&mut lanes);
        Portable::load(&lanes).pack(mask, to);
    }

    #[inline(always)]
    fn pack_positions(mask: u16, first: u32, to: &mut [u32; WIDTH]) {
        Portable::pack_positions(mask, first, to);
    }
}
