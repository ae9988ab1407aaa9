//! Sixteen floats at a time, on three instruction sets.
//!
//! The walk is written once over [`Lanes`]. Every implementation keeps the same sixteen lanes and rounds
//! each operation by itself, so all of them give the same bits.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod portable;

/// How many floats one [`Lanes`] holds.
pub(super) const WIDTH: usize = 16;

/// Sixteen `f32`. The SIMD implementations may be named only in functions compiled for their instruction
/// set and called after that set was detected; that is what makes their safe methods sound.
pub(super) trait Lanes: Copy {
    fn splat(x: f32) -> Self;
    fn load(from: &[f32; WIDTH]) -> Self;
    fn store(self, to: &mut [f32; WIDTH]);
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self` where it is larger, else `other` (also where either is NaN).
    fn max(self, other: Self) -> Self;
    /// `self` where it is lower, else `other` (also where either is NaN).
    fn min(self, other: Self) -> Self;
    fn abs(self) -> Self;
    /// One bit per lane that is not below `floor`: at or above it, or NaN.
    fn not_below(self, floor: Self) -> u16;
    /// One bit per lane whose sign bit is set.
    fn signs(self) -> u16;
    /// Writes the lanes named by `mask`, packed to the front; what lies behind them is unspecified.
    fn pack(self, mask: u16, to: &mut [f32; WIDTH]);
    /// Writes the numbers of the lanes named by `mask`, counted from `first`, in the same way.
    fn pack_positions(mask: u16, first: u32, to: &mut [u32; WIDTH]);
}

#[cfg(test)]
mod tests {
    use super::portable::Portable;
    use super::*;

    const HOSTILE: [f32; WIDTH] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-42,
        -1e-42,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        3.5,
        -3.5,
        f32::MIN_POSITIVE,
        1e-3,
        -7.0,
    ];

    fn bits(lanes: impl Lanes) -> [u32; WIDTH] {
        let mut out = [0.0; WIDTH];
        lanes.store(&mut out);
        // A NaN's payload may differ between instruction sets; that it is one may not.
        out.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
    }

    #[inline(always)]
    fn trace<L: Lanes>() -> Vec<[u32; WIDTH]> {
        let (a, mut turned) = (L::load(&HOSTILE), HOSTILE);
        turned.rotate_left(5);
        let b = L::load(&turned);
        let mut rows = vec![
            bits(a.add(b)),
            bits(a.mul(b)),
            bits(a.div(b)),
            bits(a.max(b)),
            bits(a.min(b)),
            bits(a.abs()),
        ];
        for floor in [0.0, 1e-45, 1.0, f32::MAX] {
            let mask = a.abs().not_below(L::splat(floor));
            let (mut positions, mut packed) = ([0; WIDTH], [0.0; WIDTH]);
            L::pack_positions(mask, 100, &mut positions);
            a.pack(mask, &mut packed);
            let kept = mask.count_ones() as usize;
            positions[kept..].fill(0);
            packed[kept..].fill(0.0);
            rows.extend([
                positions,
                bits(L::load(&packed)),
                [mask as u32; WIDTH],
                [a.signs() as u32 & !(1 << 10); WIDTH],
            ]);
        }
        rows
    }

    #[test]
    fn every_instruction_set_agrees_with_the_portable_one() {
        let expected = trace::<Portable>();
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2")]
            fn avx2() -> Vec<[u32; WIDTH]> {
                trace::<super::avx2::Avx2>()
            }
            #[target_feature(enable = "avx512f")]
            fn avx512() -> Vec<[u32; WIDTH]> {
                trace::<super::avx512::Avx512>()
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the instruction set was just detected.
                assert_eq!(unsafe { avx2() }, expected);
            }
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the instruction set was just detected.
                assert_eq!(unsafe { avx512() }, expected);
            }
        }
        assert_eq!(expected[5][3], 1f32.to_bits());
    }
}
