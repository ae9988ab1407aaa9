use super::*;
use crate::codec::value::{self, ValueForm};
use proptest::prelude::*;

const BOTH: [Rounding; 2] = [Rounding::Truncate, Rounding::Nearest];

#[test]
fn the_papers_worked_example() {
    let range = RangeFloat::new(8, 3, 0.125, -2.0, 2.0, Rounding::Truncate).unwrap();
    assert_eq!(range.base, 0x3e0);
    assert_eq!((range.positive_codes(), range.negative_codes()), (33, 33));
    assert_eq!(range.encode(0.256), 9);
    assert_eq!(range.decode(9), Some(0.25));
    assert_eq!(range.encode(-0.256), 33 + 9);
    assert_eq!(range.decode(42), Some(-0.25));
    assert_eq!((range.encode(2.0), range.encode(-2.0)), (33, 66));
    assert_eq!((range.decode(66), range.decode(67), range.decode(255)), (Some(-2.0), None, None));
}

/// The table of tuned eps for the range [-1, 1]: bits, then the printed eps for each mantissa.
const TABLE: &[(u8, &[(u8, &str)])] = &[
    (6, &[(2, "4.88e-3"), (3, "7.03e-2"), (4, "2.66e-1"), (5, "5.16e-1")]),
    (8, &[(2, "2.91e-10"), (3, "1.72e-5"), (4, "4.15e-3"), (5, "6.45e-2"), (6, "2.54e-1"), (7, "5.04e-1")]),
    (10, &[(3, "6.1e-20"), (4, "2.47e-10"), (5, "1.57e-5"), (6, "3.97e-3"), (7, "6.3e-2"), (8, "2.51e-1")]),
    (12, &[(5, "5.6e-20"), (6, "2.36e-10"), (7, "1.54e-5"), (8, "3.92e-3")]),
];

#[test]
fn the_tuned_table() {
    for &(bits, row) in TABLE {
        for &(mantissa, printed) in row {
            let tuned = RangeFloat::tuned(bits, mantissa, 1.0, Rounding::Truncate).unwrap();
            let each_sign = (1 << (bits - 1)) - 1;
            assert_eq!((tuned.positive_codes(), tuned.negative_codes()), (each_sign, each_sign));
            // The table has one positive code more, hence one step lower.
            let eps = f32::from_bits(tuned.eps().to_bits() - (1 << (23 - mantissa)));
            let digits = printed.split('e').next().unwrap().split('.').next_back().unwrap().len();
            assert_eq!(format!("{eps:.digits$e}"), printed, "{tuned}");
            // With that eps the format is the paper's: all positive codes up to 1, the last negative one step
            // short.
            let paper = RangeFloat::new(bits, mantissa, eps, -1.0, 1.0, Rounding::Truncate).unwrap();
            assert_eq!((paper.positive_codes(), paper.negative_codes()), (each_sign + 1, each_sign));
            assert!(paper.min() > -1.0);
            assert_eq!(paper.decode((1 << bits) - 1), Some(paper.min()));
        }
    }
}

#[test]
fn below_the_normal_floats_it_saturates() {
    // The table's "below fp32 normal".
    let range = RangeFloat::tuned(10, 2, 1.0, Rounding::Truncate).unwrap();
    assert_eq!(range.eps(), f32::MIN_POSITIVE);
    assert_eq!(range.positive_codes(), 508 - 4 + 1);
    for rounding in BOTH {
        for tiny in [0.0, f32::from_bits(1), f32::MIN_POSITIVE / 2.0, f32::MIN_POSITIVE, 3e-38] {
            let range = RangeFloat::tuned(10, 5, tiny, rounding).unwrap();
            assert_eq!(range.eps(), f32::MIN_POSITIVE);
            assert_eq!(range.decode(range.encode(tiny)).unwrap() > 0.0, tiny >= f32::MIN_POSITIVE);
        }
    }
}

#[test]
fn tuning_is_what_a_bisection_finds() {
    for bits in 2..=12 {
        for mantissa in 1..=bits {
            for max in [1.0f32, 1.37, 65504.0, 3e-20, 1e-36, 3e38] {
                let each_sign = (1u32 << (bits - 1)) - 1;
                let shift = 23 - u32::from(mantissa);
                let codes = |eps: u32| (max.to_bits() >> shift) - (eps >> shift) + 1;
                // The smallest eps that has not too many codes.
                let (mut low, mut high) = (f32::MIN_POSITIVE.to_bits(), max.to_bits());
                while low < high {
                    let middle = low + (high - low) / 2;
                    if codes(middle) > each_sign { low = middle + 1 } else { high = middle }
                }
                let tuned = RangeFloat::tuned(bits, mantissa, max, Rounding::Truncate).unwrap();
                // With more than a code between, the bisection ends at the start of a code; else at max
                // itself.
                assert_eq!(tuned.eps().to_bits() >> shift, low >> shift, "{tuned} {max}");
            }
        }
    }
}

#[test]
fn zeros_signs_and_clips() {
    for rounding in BOTH {
        let range = RangeFloat::tuned(10, 5, 1.0, rounding).unwrap();
        let below = f32::from_bits(range.eps().to_bits() - 1);
        for zero in [0.0, -0.0, f32::from_bits(1), -f32::MIN_POSITIVE, below, -below] {
            assert_eq!(range.encode(zero), 0, "{zero:e}");
        }
        assert_eq!(range.decode(0).unwrap().to_bits(), 0);
        assert_eq!(range.decode(1), Some(range.eps()));
        assert_eq!(range.encode(range.eps()), 1);
        assert_eq!(range.decode(range.encode(-range.eps())), Some(-range.eps()));
        let mut bytes = Vec::new();
        let form = ValueForm::Range(range);
        assert_eq!(value::encode(&form, &[1.0, -1.0, 1.1, -1.1, f32::MAX, 0.5], &mut bytes).unwrap(), 3);
        let mut back = Vec::new();
        value::decode(&form, &bytes, 6, &mut back).unwrap();
        assert_eq!(back, [1.0, -1.0, 1.0, -1.0, 1.0, 0.5]);
    }
}

#[test]
fn every_code_is_finite_or_refused_and_codes_are_monotone() {
    let mut ranges = vec![RangeFloat::new(8, 3, 0.125, -2.0, 2.0, Rounding::Nearest).unwrap()];
    for (bits, mantissa) in [(2, 1), (2, 2), (5, 1), (8, 3), (10, 5), (16, 8), (16, 16)] {
        for max in [0.0, 1e-38, 1.0, 77.7, f32::MAX] {
            ranges.extend(BOTH.map(|rounding| RangeFloat::tuned(bits, mantissa, max, rounding).unwrap()));
        }
    }
    for range in ranges {
        let mut before = 0.0;
        for code in 0..1 << range.bits() {
            let Some(value) = range.decode(code) else {
                assert!(code > range.positive_codes() + range.negative_codes());
                continue;
            };
            assert!(value.is_finite());
            assert!(value >= range.min() && value <= range.max());
            assert!(value.abs() <= before || code <= range.positive_codes() || value < 0.0);
            if code > 0 && code != range.positive_codes() + 1 {
                assert!(value.abs() > f32::abs(before), "{range} {code}");
            }
            assert_eq!(range.encode(value), code, "{range}");
            before = value;
        }
        // A code without a value is refused.
        if range.positive_codes() + range.negative_codes() < (1 << range.bits()) - 1 {
            let mut bytes = vec![0xff; usize::from(range.bits())];
            let mut out = Vec::new();
            assert!(value::decode(&ValueForm::Range(range), &bytes, 8, &mut out).is_err());
            assert!(out.is_empty());
            bytes.fill(0);
            assert!(value::decode(&ValueForm::Range(range), &bytes, 8, &mut out).is_ok());
        }
    }
}

#[test]
fn bad_parameters_are_named() {
    let new =
        |bits, mantissa, eps, min, max| RangeFloat::new(bits, mantissa, eps, min, max, Rounding::Truncate);
    let named = |result: Result<RangeFloat>, expected: &str| {
        assert!(matches!(&result, Err(Error::BadParameter { name, .. }) if name == expected), "{result:?}");
    };
    named(new(1, 1, 0.1, -1.0, 1.0), "bits");
    named(new(17, 5, 0.1, -1.0, 1.0), "bits");
    named(new(8, 0, 0.1, -1.0, 1.0), "mantissa");
    named(new(8, 9, 0.1, -1.0, 1.0), "mantissa");
    for eps in [0.0, -0.1, 1e-40, f32::NAN, f32::INFINITY] {
        named(new(8, 3, eps, -1.0, 1.0), "eps");
    }
    for max in [0.05, -1.0, f32::NAN, f32::INFINITY] {
        named(new(8, 3, 0.1, -1.0, max), "max");
    }
    for min in [0.0, 1.0, -0.05, f32::NAN, f32::NEG_INFINITY] {
        named(new(8, 3, 0.1, min, 1.0), "min");
    }
    named(new(8, 3, 1e-30, -1.0, 1.0), "eps");
    named(RangeFloat::tuned(8, 3, f32::NAN, Rounding::Truncate), "max");
    named(RangeFloat::tuned(8, 3, -1.0, Rounding::Truncate), "max");
    let covering = RangeFloat::covering(8, 3, &[1.0, f32::NAN], Rounding::Truncate);
    assert!(matches!(covering, Err(Error::BadValues { .. })));
}

fn finite() -> impl Strategy<Value = f32> {
    any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |value| value.is_finite())
}

fn rounding() -> impl Strategy<Value = Rounding> {
    prop::sample::select(BOTH.to_vec())
}

proptest! {
    #[test]
    fn errors_are_bounded_inside_the_range(
        bits in 2u8..=16,
        mantissa in 1u8..=16,
        max in finite(),
        values in prop::collection::vec(finite(), 1..50),
        scale in 0u32..40,
        rounding in rounding(),
    ) {
        let mantissa = mantissa.min(bits);
        let nearest = rounding == Rounding::Nearest;
        let range = RangeFloat::tuned(bits, mantissa, max.abs(), rounding).unwrap();
        let bound = 2f64.powi(-i32::from(mantissa) - i32::from(nearest));
        for value in values {
            // Bring most values into the range, where there is something to see.
            let inside = value.signum() * range.max() / (1u64 << scale) as f32;
            let value = if value.abs() > range.max() { inside } else { value };
            let back = range.decode(range.encode(value)).unwrap();
            if value.abs() < range.eps() {
                prop_assert_eq!(back, 0.0);
            } else if value.abs() <= range.max() {
                prop_assert_eq!(back.signum(), value.signum());
                // At the very top of the floats there is no code to round up to.
                let next = range.max().to_bits().next_multiple_of(1 << (23 - mantissa));
                let allowed = if nearest && f32::from_bits(next).is_infinite() { 2.0 * bound } else { bound };
                let error = ((f64::from(back) - f64::from(value)) / f64::from(value)).abs();
                prop_assert!(error <= allowed, "{} -> {}: {}", value, back, error);
            }
        }
    }

    #[test]
    fn order_is_kept(
        mut values in prop::collection::vec(finite(), 2..60),
        bits in 2u8..=16,
        max in finite(),
    ) {
        values.sort_by(f32::total_cmp);
        for rounding in BOTH {
            let range = RangeFloat::tuned(bits, 1 + bits / 2, max.abs(), rounding).unwrap();
            let back = values.iter().map(|&value| range.decode(range.encode(value)).unwrap());
            prop_assert!(back.is_sorted());
        }
    }

    #[test]
    fn covering_clips_nothing(
        values in prop::collection::vec(finite(), 0..60),
        bits in 2u8..=16,
        rounding in rounding(),
    ) {
        let range = RangeFloat::covering(bits, bits.div_ceil(2), &values, rounding).unwrap();
        let (mut bytes, mut back) = (Vec::new(), Vec::new());
        let form = ValueForm::Range(range);
        prop_assert_eq!(value::encode(&form, &values, &mut bytes).unwrap(), 0);
        value::decode(&form, &bytes, values.len(), &mut back).unwrap();
        for (value, back) in values.iter().zip(&back) {
            prop_assert_eq!(range.decode(range.encode(*value)).unwrap().to_bits(), back.to_bits());
        }
    }

    #[test]
    fn parameters_survive_being_built_again(
        (bits, mantissa) in (2u8..=16, 1u8..=16),
        (eps, min, max) in (finite(), finite(), finite()),
        rounding in rounding(),
    ) {
        let (mantissa, eps, min, max) = (mantissa.min(bits), eps.abs(), -min.abs(), max.abs());
        if let Ok(range) = RangeFloat::new(bits, mantissa, eps, min, max, rounding) {
            let again = RangeFloat::new(
                range.bits(), range.mantissa(), range.eps(), range.min(), range.max(), range.rounding(),
            );
            prop_assert_eq!(again.unwrap(), range);
            prop_assert_eq!(range.decode(1), Some(range.eps()));
            let (positive, negative) = (range.positive_codes(), range.negative_codes());
            for code in [0, 1, positive, positive + 1, positive + negative] {
                prop_assert!(range.decode(code).unwrap().is_finite());
                prop_assert_eq!(range.encode(range.decode(code).unwrap()), code);
            }
        }
    }
}
