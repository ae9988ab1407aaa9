//! Sixteen lanes in plain Rust: the definition, and the fallback on machines without AVX2.

use super::{Lanes, WIDTH};

#[derive(Clone, Copy)]
pub(in super::super) struct Portable([f32; WIDTH]);

#[inline(always)]
fn zip(a: Portable, b: Portable, f: impl Fn(f32, f32) -> f32) -> Portable {
    Portable(std::array::from_fn(|lane| f(a.0[lane], b.0[lane])))
}

#[inline(always)]
fn mask(test: impl Fn(usize) -> bool) -> u16 {
    (0..WIDTH).fold(0, |bits, lane| bits | (test(lane) as u16) << lane)
}

impl Lanes for Portable {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Portable([x; WIDTH])
    }

    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        Portable(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        *to = self.0;
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        zip(self, other, |a, b| a + b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        zip(self, other, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        zip(self, other, |a, b| a / b)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        zip(self, other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        zip(self, other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Portable(self.0.map(f32::abs))
    }

    #[inline(always)]
    fn not_below(self, floor: Self) -> u16 {
        // Written as "not below" and not as "at or above" so that a NaN answers yes.
        #[allow(clippy::neg_cmp_op_on_partial_ord)]
        mask(|lane| !(self.0[lane] < floor.0[lane]))
    }

    #[inline(always)]
    fn signs(self) -> u16 {
        mask(|lane| self.0[lane].is_sign_negative())
    }

    #[inline(always)]
    fn compress(self, mask: u16, first: u32, positions: &mut [u32; WIDTH], bits: &mut [u32; WIDTH]) {
        let (mut left, mut at) = (mask, 0);
        while left != 0 {
            let lane = left.trailing_zeros();
            positions[at] = first + lane;
            bits[at] = self.0[lane as usize].to_bits();
            at += 1;
            left &= left - 1;
        }
    }
}
