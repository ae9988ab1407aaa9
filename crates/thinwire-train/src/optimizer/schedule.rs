//! The learning rate over the epochs of a run.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// The part of the learning rate at which a warm-up begins.
pub const WARMUP_FROM: f64 = 0.1;

/// How the learning rate changes over the epochs, as a factor of the one that was set.
///
/// As text it is one of:
/// - `constant`;
/// - `step/30/60`: a tenth after 30 epochs and a hundredth after 60; `step/30/60@0.2` has another factor than 0.1;
/// - `cosine`: half a cosine down to 0 at the end (Loshchilov and Hutter, arXiv 1608.03983); `cosine/0.01` ends at
///   that part of the learning rate.
///
/// [`Display`](fmt::Display) gives the shortest of these that parses to an equal schedule.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Schedule {
    /// The same from the first step to the last.
    #[default]
    Constant,
    /// A factor at each of some epochs.
    Step {
        /// The epochs, ascending, above 0.
        epochs: Vec<f64>,
        /// What the learning rate is multiplied by at each, above 0 and below 1.
        factor: f64,
    },
    /// Half a cosine.
    Cosine {
        /// The factor at the end, from 0, below 1.
        to: f64,
    },
}

const STEP_FACTOR: f64 = 0.1;

impl Schedule {
    /// The forms of text that parse, for messages and help.
    pub const FORMS: &'static str = "constant, step/EPOCH/EPOCH/... (times 0.1 at each), \
                                     step/EPOCH/EPOCH/...@FACTOR, cosine (to 0) or cosine/PART";

    /// The factor after `epoch` epochs of a run of `epochs`; what lies beyond the end is as the end.
    pub fn factor(&self, epoch: f64, epochs: f64) -> f64 {
        match self {
            Schedule::Constant => 1.0,
            Schedule::Step { epochs: at, factor } => {
                let passed = at.iter().filter(|&&at| epoch >= at).count();
                factor.powi(passed as i32)
            }
            Schedule::Cosine { to } => {
                let done = if epochs > 0.0 { (epoch / epochs).clamp(0.0, 1.0) } else { 0.0 };
                to + (1.0 - to) * 0.5 * (1.0 + (PI * done).cos())
            }
        }
    }
}

/// A learning rate with its schedule and warm-up.
///
/// During the warm-up of the first `warmup` epochs the schedule's value is multiplied by a factor that rises in a
/// straight line from [`WARMUP_FROM`] to 1 (Goyal et al., arXiv 1706.02677).
///
/// ```
/// use thinwire_train::optimizer::LearningRate;
/// let lr = LearningRate { base: 0.4, schedule: "step/30@0.5".parse()?, warmup: 4.0 };
/// assert!((lr.at(2.0, 90.0) - 0.4 * 0.55).abs() < 1e-12);
/// assert_eq!((lr.at(4.0, 90.0), lr.at(30.0, 90.0)), (0.4, 0.2));
/// # Ok::<(), thinwire_train::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LearningRate {
    /// The learning rate that was set.
    pub base: f64,
    /// How it changes.
    pub schedule: Schedule,
    /// Epochs of warm-up; 0 for none.
    pub warmup: f64,
}

impl LearningRate {
    /// The part of the learning rate used after `epoch` epochs of a run of `epochs`, warm-up included.
    pub fn factor(&self, epoch: f64, epochs: f64) -> f64 {
        let rise = if epoch < self.warmup {
            WARMUP_FROM + (1.0 - WARMUP_FROM) * epoch.max(0.0) / self.warmup
        } else {
            1.0
        };
        rise * self.schedule.factor(epoch, epochs)
    }

    /// The learning rate after `epoch` epochs of a run of `epochs`.
    pub fn at(&self, epoch: f64, epochs: f64) -> f64 {
        self.base * self.factor(epoch, epochs)
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Schedule> {
        let bad = |expected: String| Error::BadSetting {
            name: "learning-rate schedule".into(),
            found: format!("{text:?}"),
            expected,
        };
        let (form, rest) = match text.split_once('/') {
            Some((form, rest)) => (form, Some(rest)),
            None => (text, None),
        };
        match (form, rest) {
            ("constant", None) => Ok(Schedule::Constant),
            ("cosine", None) => Ok(Schedule::Cosine { to: 0.0 }),
            ("cosine", Some(to)) => match to.parse::<f64>() {
                // Adding zero turns -0 into 0, which is how it is written.
                Ok(part) if (0.0..1.0).contains(&part) => Ok(Schedule::Cosine { to: part + 0.0 }),
                _ => Err(bad(format!(
                    "the part of the learning rate at the end, from 0 and below 1, in place of {to:?}"
                ))),
            },
            ("step", Some(rest)) => {
                let (list, factor) = match rest.split_once('@') {
                    None => (rest, STEP_FACTOR),
                    Some((list, factor)) => match factor.parse::<f64>() {
                        Ok(number) if number > 0.0 && number < 1.0 => (list, number),
                        _ => {
                            return Err(bad(format!("a factor above 0 and below 1 in place of {factor:?}")));
                        }
                    },
                };
                let mut epochs: Vec<f64> = Vec::new();
                for part in list.split('/') {
                    match part.parse::<f64>() {
                        Ok(epoch) if epoch.is_finite() && epoch > epochs.last().copied().unwrap_or(0.0) => {
                            epochs.push(epoch);
                        }
                        _ => {
                            return Err(bad(format!("epochs above 0 in ascending order, not {part:?}")));
                        }
                    }
                }
                Ok(Schedule::Step { epochs, factor })
            }
            _ => Err(bad(format!("one of: {}", Schedule::FORMS))),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Constant => out.write_str("constant"),
            Schedule::Cosine { to: 0.0 } => out.write_str("cosine"),
            Schedule::Cosine { to } => write!(out, "cosine/{to}"),
            Schedule::Step { epochs, factor } => {
                out.write_str("step")?;
                epochs.iter().try_for_each(|epoch| write!(out, "/{epoch}"))?;
                if *factor == STEP_FACTOR { Ok(()) } else { write!(out, "@{factor}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Schedule {
        text.parse().unwrap()
    }

    #[test]
    fn steps_come_at_their_epochs() {
        let step = schedule("step/30/60@0.2");
        let found = [0.0, 29.999, 30.0, 59.9, 60.0, 90.0].map(|epoch| step.factor(epoch, 90.0));
        assert_eq!(found, [1.0, 1.0, 0.2, 0.2, 0.2 * 0.2, 0.2 * 0.2]);
        assert_eq!(schedule("step/2.5").factor(2.5, 5.0), 0.1);
        assert_eq!(schedule("constant").factor(3.0, 5.0), 1.0);
    }

    #[test]
    fn a_cosine_ends_where_it_should() {
        let cosine = schedule("cosine");
        assert_eq!(cosine.factor(0.0, 10.0), 1.0);
        assert!((cosine.factor(5.0, 10.0) - 0.5).abs() < 1e-15);
        assert!((cosine.factor(2.5, 10.0) - 0.853_553_390_593_273_8).abs() < 1e-15);
        assert!(cosine.factor(10.0, 10.0).abs() < 1e-15);
        assert_eq!(cosine.factor(12.0, 10.0), cosine.factor(10.0, 10.0));
        assert!((schedule("cosine/0.01").factor(10.0, 10.0) - 0.01).abs() < 1e-15);
        assert!((schedule("cosine/0.5").factor(5.0, 10.0) - 0.75).abs() < 1e-15);
        assert_eq!(cosine.factor(0.0, 0.0), 1.0, "a run of no epochs");
    }

    #[test]
    fn the_warm_up_rises_in_a_straight_line() {
        let lr = LearningRate { base: 2.0, schedule: schedule("step/3"), warmup: 4.0 };
        let found = [0.0, 1.0, 2.0, 3.0, 4.0].map(|epoch| lr.at(epoch, 10.0));
        for (found, expected) in found.into_iter().zip([0.2, 0.65, 1.1, 0.155, 0.2]) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        let without = LearningRate { warmup: 0.0, ..lr };
        assert_eq!(without.at(0.0, 10.0), 2.0);
    }

    #[test]
    fn texts_round_trip_to_the_shortest_form() {
        for text in ["constant", "step/30", "step/30/60", "step/1.5/60@0.2", "cosine", "cosine/0.01"] {
            assert_eq!(schedule(text).to_string(), text);
        }
        for (text, canonical) in
            [("step/30.0@0.1", "step/30"), ("cosine/0", "cosine"), ("cosine/-0", "cosine")]
        {
            assert_eq!(schedule(text).to_string(), canonical);
        }
    }

    #[test]
    fn what_is_wrong_says_what_would_be_right() {
        let error = |text: &str| text.parse::<Schedule>().unwrap_err().to_string();
        for text in ["", "step", "Cosine", "constant/1", "linear"] {
            assert!(error(text).contains(": one of: constant, step/EPOCH"), "{}", error(text));
        }
        for text in ["step/", "step/0", "step/-1", "step/60/30", "step/3/3", "step/x", "step/inf", "step/nan"]
        {
            assert!(error(text).contains("epochs above 0 in ascending order"), "{}", error(text));
        }
        for text in ["step/3@0", "step/3@1", "step/3@", "step/3@nan", "step/3@0.1@0.1"] {
            assert!(error(text).contains("a factor above 0 and below 1 in place of"), "{}", error(text));
        }
        for text in ["cosine/", "cosine/1", "cosine/-0.1", "cosine/nan", "cosine/0.1/0.2"] {
            assert!(error(text).contains("from 0 and below 1, in place of"), "{}", error(text));
        }
    }
}
