//! How long a part of a training takes: in epochs, in steps, or as a part of the run.

use std::fmt;
use std::str::FromStr;

use super::Progress;

/// A length counted from the start of a training.
///
/// Written as text: `1.5` (epochs), `500steps`, `15%` (of the run's steps, which must be known then).
///
/// ```
/// use thinwire::memory::{Length, Progress};
///
/// let length: Length = "15%".parse()?;
/// let at = |step| Progress { step, total_steps: Some(1000), ..Progress::default() };
/// assert!(!length.is_over(at(149)) && length.is_over(at(150)));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many epochs.
    Epochs(f64),
    /// So many steps.
    Steps(u64),
    /// This part of the run's steps, from 0 to 1.
    Part(f64),
}

impl Length {
    /// The forms of text that parse, for messages.
    pub const FORMS: &'static str = "a number of epochs such as 1.5, a number of steps such as 500steps, or a part of \
                                     the run such as 15%";

    /// Which part of this length has passed, from 0 to 1. An infinite epoch is the end of any length; a part of a run of
    /// unknown length has not begun to pass.
    pub fn passed(&self, progress: Progress) -> f64 {
        let (now, end) = match *self {
            Length::Epochs(epochs) => (progress.epoch, epochs),
            _ if progress.epoch == f64::INFINITY => return 1.0,
            Length::Steps(steps) => (progress.step as f64, steps as f64),
            Length::Part(part) => match progress.total_steps {
                Some(total) => (progress.step as f64, (part * total as f64).ceil()),
                None => return 0.0,
            },
        };
        // NaN, which only callers make, is the start.
        let now = now.max(0.0);
        if now < end { now / end } else { 1.0 }
    }

    /// Whether this length has passed.
    pub fn is_over(&self, progress: Progress) -> bool {
        self.passed(progress) >= 1.0
    }
}

impl FromStr for Length {
    /// What would be right, to be read after "expected".
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        let expected = || format!("{} in place of {text:?}", Length::FORMS);
        if let Some(steps) = text.strip_suffix("steps") {
            return steps.parse().map(Length::Steps).map_err(|_| expected());
        }
        let (number, is_part) = match text.strip_suffix('%') {
            Some(number) => (number, true),
            None => (text, false),
        };
        match number.parse::<f64>() {
            Ok(percent) if is_part && (0.0..=100.0).contains(&percent) => {
                Ok(Length::Part(percent.abs() / 100.0))
            }
            Ok(epochs) if !is_part && epochs >= 0.0 && epochs.is_finite() => Ok(Length::Epochs(epochs.abs())),
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Epochs(epochs) => write!(out, "{epochs}"),
            Length::Steps(steps) => write!(out, "{steps}steps"),
            Length::Part(part) => write!(out, "{}%", percent(*part)),
        }
    }
}

/// The percentage that is read as this part again: 100 times it, or a neighbour where that is rounded.
fn percent(part: f64) -> f64 {
    let near = 100.0 * part;
    let candidates = [near, (near * 1e12).round() / 1e12, near.next_down(), near.next_up()];
    let exact = candidates.into_iter().filter(|candidate| candidate / 100.0 == part);
    exact.min_by_key(|candidate| candidate.to_string().len()).unwrap_or(near)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(step: u64, epoch: f64, total_steps: Option<u64>) -> Progress {
        Progress { step, epoch, total_steps, ..Progress::default() }
    }

    #[test]
    fn each_is_counted_by_its_own_measure() {
        let steps = Length::Steps(10);
        assert_eq!([steps.passed(at(5, 9.0, None)), steps.passed(at(10, 0.0, None))], [0.5, 1.0]);
        let epochs = Length::Epochs(1.5);
        assert!(!epochs.is_over(at(99, 1.499, None)) && epochs.is_over(at(0, 1.5, None)));
        let part = Length::Part(0.1);
        assert!(!part.is_over(at(10, 0.0, Some(105))) && part.is_over(at(11, 0.0, Some(105))));
        assert_eq!(part.passed(at(1000, 0.0, None)), 0.0);
    }

    #[test]
    fn no_length_is_over_at_once_and_an_infinite_epoch_ends_any() {
        for text in ["0", "0steps", "0%"] {
            assert!(text.parse::<Length>().unwrap().is_over(at(0, 0.0, Some(100))), "{text}");
        }
        for text in ["1000", "1000steps", "100%"] {
            assert!(text.parse::<Length>().unwrap().is_over(at(0, f64::INFINITY, None)), "{text}");
        }
        assert_eq!(Length::Epochs(1.0).passed(at(0, f64::NAN, None)), 0.0);
    }

    #[test]
    fn what_is_wrong_says_what_would_be_right() {
        for text in ["", "%", "steps", "-1", "nan", "inf", "101%", "-1%", "1.5steps", "1 steps", "five"] {
            let error = text.parse::<Length>().unwrap_err();
            assert_eq!(error, format!("{} in place of {text:?}", Length::FORMS));
        }
    }

    proptest! {
        #[test]
        fn any_length_round_trips(
            length in prop_oneof![
                (0.0..1e9f64).prop_map(Length::Epochs),
                any::<u64>().prop_map(Length::Steps),
                (0.0..=100.0f64).prop_map(|percent| Length::Part(percent / 100.0)),
                (0u32..=100).prop_map(|percent| Length::Part(f64::from(percent) / 100.0)),
            ],
        ) {
            prop_assert_eq!(length.to_string().parse::<Length>(), Ok(length));
        }
    }
}
