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

/// The numbers of the bits that are set.
#[inline(always)]
fn lanes(mut mask: u16) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < WIDTH as u32).then_some(lane)
    })
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
    fn pack(self, mask: u16, to: &mut [f32; WIDTH]) {
        lanes(mask).zip(to).for_each(|(lane, to)| *to = self.0[lane as usize]);
    }

    #[inline(always)]
    fn pack_positions(mask: u16, first: u32, to: &mut [u32; WIDTH]) {
        lanes(mask).zip(to).for_each(|(lane, to)| *to = first + lane);
    }
}
