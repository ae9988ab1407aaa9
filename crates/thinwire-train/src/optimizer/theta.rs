//! The part of the frequencies that the FFT method drops, over a run.
//!
//! Paper 3 (Wang et al., FFT-based gradient sparsification, arXiv 1811.08596) converges if `theta^2` is proportional
//! to the learning rate (Theorem 3.5), and in its experiments drops 0.9 until an epoch at which the learning rate
//! falls, and nothing from then on.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// How `theta`, the part that is dropped, changes over a run.
///
/// As text it is one of `fixed`, `lr` and `drop/EPOCH`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum ThetaSchedule {
    /// The same all the time.
    #[default]
    Fixed,
    /// `theta * sqrt(lr_t / lr)`: Theorem 3.5 of paper 3, with its constant such that `theta` holds at the learning
    /// rate that was set. During a warm-up of the learning rate less is dropped.
    LearningRate,
    /// `theta` until this many epochs are done, then 0: everything is sent. The paper has 130 for ResNet32 and 30
    /// for AlexNet, with a theta of 0.9.
    Drop {
        /// The epoch, above 0.
        epoch: f64,
    },
}

/// The smallest density: where rounding would leave nothing to send, one element of a few still goes.
const SMALLEST: f64 = 1e-9;

impl ThetaSchedule {
    /// The forms of text that parse, for messages and help.
    pub const FORMS: &'static str = "fixed, lr or drop/EPOCH";

    /// The density `1 - theta_t` after `epoch` epochs, when the learning rate is `lr_factor` times the one that was
    /// set: above 0 and up to 1.
    pub fn density(&self, theta: f64, lr_factor: f64, epoch: f64) -> f64 {
        let now = match self {
            ThetaSchedule::Fixed => theta,
            ThetaSchedule::LearningRate => theta * lr_factor.max(0.0).sqrt(),
            ThetaSchedule::Drop { epoch: end } if epoch < *end => theta,
            ThetaSchedule::Drop { .. } => 0.0,
        };
        (1.0 - now).clamp(SMALLEST, 1.0)
    }
}

impl FromStr for ThetaSchedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<ThetaSchedule> {
        let bad = |expected: String| Error::BadSetting {
            name: "theta schedule".into(),
            found: format!("{text:?}"),
            expected,
        };
        match text.split_once('/') {
            None if text == "fixed" => Ok(ThetaSchedule::Fixed),
            None if text == "lr" => Ok(ThetaSchedule::LearningRate),
            Some(("drop", epoch)) => match epoch.parse::<f64>() {
                Ok(epoch) if epoch > 0.0 && epoch.is_finite() => Ok(ThetaSchedule::Drop { epoch }),
                _ => Err(bad(format!("an epoch above 0 in place of {epoch:?}"))),
            },
            _ => Err(bad(format!("one of: {}", ThetaSchedule::FORMS))),
        }
    }
}

impl fmt::Display for ThetaSchedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThetaSchedule::Fixed => out.write_str("fixed"),
            ThetaSchedule::LearningRate => out.write_str("lr"),
            ThetaSchedule::Drop { epoch } => write!(out, "drop/{epoch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }

    #[test]
    fn the_square_of_theta_follows_the_learning_rate() {
        let schedule: ThetaSchedule = "lr".parse().unwrap();
        near(schedule.density(0.9, 1.0, 0.0), 0.1);
        near(schedule.density(0.9, 0.25, 50.0), 0.55);
        let theta = 1.0 - schedule.density(0.9, 0.01, 80.0);
        near(theta * theta, 0.81 * 0.01);
        assert_eq!(schedule.density(0.9, 0.0, 90.0), 1.0);
    }

    #[test]
    fn the_drop_comes_at_its_epoch() {
        let schedule: ThetaSchedule = "drop/130".parse().unwrap();
        near(schedule.density(0.9, 0.1, 129.999), 0.1);
        assert_eq!(schedule.density(0.9, 0.1, 130.0), 1.0);
        near(ThetaSchedule::Fixed.density(0.85, 0.001, 200.0), 0.15);
    }

    #[test]
    fn the_density_is_always_one_a_method_takes() {
        for schedule in
            [ThetaSchedule::Fixed, ThetaSchedule::LearningRate, ThetaSchedule::Drop { epoch: 1.0 }]
        {
            for (theta, factor) in [(0.0, 1.0), (1.0, 1.0), (0.9, 100.0), (-1.0, 1.0), (0.5, f64::INFINITY)] {
                let density = schedule.density(theta, factor, 0.5);
                assert!(density > 0.0 && density <= 1.0, "{schedule} {theta} {factor}: {density}");
            }
        }
    }

    #[test]
    fn texts_round_trip_and_errors_say_what_would_be_right() {
        for text in ["fixed", "lr", "drop/130", "drop/2.5"] {
            assert_eq!(text.parse::<ThetaSchedule>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<ThetaSchedule>().unwrap_err().to_string();
        for text in ["", "drop", "lr/1", "Fixed", "fixed/2"] {
            assert!(error(text).contains("one of: fixed, lr or drop/EPOCH"), "{}", error(text));
        }
        for text in ["drop/0", "drop/-1", "drop/x", "drop/inf", "drop/nan", "drop/"] {
            assert!(error(text).contains("an epoch above 0 in place of"), "{}", error(text));
        }
    }
}
