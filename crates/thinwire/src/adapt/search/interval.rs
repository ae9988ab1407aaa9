//! Where the variable may lie.

use crate::{Error, Result};

/// How an interval is walked: by equal differences or by equal ratios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal differences, as in the paper. The default.
    #[default]
    Linear,
    /// Equal ratios, for an interval above zero.
    Logarithmic,
}

/// The values a search may try: from `low` to `high`, both among them.
///
/// The paper draws its densities linearly from 0.001 to 0.1, and so does the default. Nine draws in ten then lie
/// above 0.01, in the upper half of what the ladder 0.001, 0.004, 0.011, 0.033, 0.1 covers; [`Scale::Logarithmic`]
/// gives every factor the same share. A grid needs that. NSGA-II's picks are no nearer for it, as it spreads its
/// population along the front wherever that began.
///
/// ```
/// use thinwire::adapt::search::{Interval, Scale};
///
/// assert_eq!(Interval::default(), Interval::new(0.001, 0.1, Scale::Linear)?);
/// assert!((Interval::default().at(0.5) - 0.0505).abs() < 1e-12);
/// assert!((Interval::new(0.001, 0.1, Scale::Logarithmic)?.at(0.5) - 0.01).abs() < 1e-12);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Interval {
    /// An error unless the bounds and their difference are finite, in order, and above zero if the scale is
    /// logarithmic.
    pub fn new(low: f64, high: f64, scale: Scale) -> Result<Interval> {
        let wrong = |expected: &str| Error::BadSetting {
            name: "interval".into(),
            found: format!("{low} to {high}"),
            expected: expected.into(),
        };
        if !(low <= high && (high - low).is_finite()) {
            return Err(wrong("finite bounds, the lower one first"));
        }
        if scale == Scale::Logarithmic && low <= 0.0 {
            return Err(wrong("bounds above 0, for the scale is logarithmic"));
        }
        Ok(Interval { low, high, scale })
    }

    /// The lower bound.
    pub fn low(self) -> f64 {
        self.low
    }

    /// The upper bound.
    pub fn high(self) -> f64 {
        self.high
    }

    /// The scale.
    pub fn scale(self) -> Scale {
        self.scale
    }

    /// The value at this part of the way: `low` at 0, before it and at NaN, `high` at 1 and beyond. Never outside.
    pub fn at(self, part: f64) -> f64 {
        let Interval { low, high, scale } = self;
        if part.is_nan() || part <= 0.0 {
            return low;
        }
        if part >= 1.0 {
            return high;
        }
        let value = match scale {
            Scale::Linear => low + part * (high - low),
            Scale::Logarithmic => (low.ln() + part * (high.ln() - low.ln())).exp(),
        };
        value.clamp(low, high)
    }
}

/// The paper's: densities from 0.001 to 0.1, linear.
impl Default for Interval {
    fn default() -> Interval {
        Interval { low: 0.001, high: 0.1, scale: Scale::Linear }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_value_lies_outside(
            low in 1e-9..1e9f64, width in 0.0..1e9f64, part in -1.0..2.0f64, log in any::<bool>(),
        ) {
            let scale = if log { Scale::Logarithmic } else { Scale::Linear };
            let high = low + width;
            let interval = Interval::new(low, high, scale).unwrap();
            prop_assert!((low..=high).contains(&interval.at(part)));
            prop_assert_eq!([0.0, 1.0, f64::NAN].map(|part| interval.at(part)), [low, high, low]);
        }
    }

    #[test]
    fn bounds_that_make_no_interval() {
        for (low, high, scale) in [
            (1.0, 0.0, Scale::Linear),
            (f64::NAN, 1.0, Scale::Linear),
            (0.0, f64::NAN, Scale::Linear),
            (0.0, f64::INFINITY, Scale::Linear),
            (f64::MIN, f64::MAX, Scale::Linear),
            (0.0, 1.0, Scale::Logarithmic),
            (-1.0, 1.0, Scale::Logarithmic),
        ] {
            assert!(Interval::new(low, high, scale).is_err(), "{low} {high} {scale:?}");
        }
        assert!(Interval::new(1.0, 1.0, Scale::Logarithmic).is_ok());
        // The ratio of the bounds overflows; the values still lie between them.
        let wide = Interval::new(1e-300, 1e300, Scale::Logarithmic).unwrap();
        assert!((wide.at(0.5).ln() - 0.0).abs() < 1e-9);
    }
}
