//! Sixteen lanes as one AVX-512 register.

use std::arch::x86_64::*;

use super::{Lanes, WIDTH};

#[derive(Clone, Copy)]
pub(in super::super) struct Avx512(__m512);

/// One intrinsic on one or two registers.
macro_rules! apply {
    ($intrinsic:ident, $($a:expr),+) => {
        // SAFETY: `Avx512` is named only in code compiled for, and run after detecting, AVX-512F.
        Avx512(unsafe { $intrinsic($($a),+) })
    };
}

impl Lanes for Avx512 {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        apply!(_mm512_set1_ps, x)
    }

    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        // The unaligned load lies inside the array.
        apply!(_mm512_loadu_ps, from.as_ptr())
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        // SAFETY: as in `apply`; the unaligned store lies inside the array.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        apply!(_mm512_add_ps, self.0, other.0)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        apply!(_mm512_mul_ps, self.0, other.0)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        apply!(_mm512_div_ps, self.0, other.0)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        apply!(_mm512_max_ps, self.0, other.0)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        apply!(_mm512_min_ps, self.0, other.0)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        apply!(_mm512_abs_ps, self.0)
    }

    #[inline(always)]
    fn not_below(self, floor: Self) -> u16 {
        // SAFETY: as in `apply`.
        unsafe { _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(self.0, floor.0) }
    }

    #[inline(always)]
    fn signs(self) -> u16 {
        // SAFETY: as in `apply`.
        unsafe { _mm512_cmplt_epi32_mask(_mm512_castps_si512(self.0), _mm512_setzero_si512()) }
    }

    // Compression happens in the register because compressing straight to memory is slow on Zen 4.

    #[inline(always)]
    fn pack(self, mask: u16, to: &mut [f32; WIDTH]) {
        apply!(_mm512_maskz_compress_ps, mask, self.0).store(to);
    }

    #[inline(always)]
    fn pack_positions(mask: u16, first: u32, to: &mut [u32; WIDTH]) {
        // SAFETY: as in `apply`; the unaligned store lies inside the array.
        unsafe {
            let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let position = _mm512_add_epi32(lane, _mm512_set1_epi32(first as i32));
            let packed = _mm512_maskz_compress_epi32(mask, position);
            _mm512_storeu_si512(to.as_mut_ptr().cast(), packed);
        }
    }
}
