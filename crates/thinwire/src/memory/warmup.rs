//! How the density falls from "everything" to the target at the beginning of a training.
//!
//! Early gradients change fast and are badly served by old residuals, so RedSync, DGC, Gaussian-k
//! and AR-Topk start denser than they go on. They differ in the ramp.

use std::fmt;
use std::str::FromStr;

use super::Length;

/// How far the training has come, the same on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Optimiser steps done so far.
    pub step: u64,
    /// Epochs done so far, as a real number: 2.5 is half-way through the third.
    pub epoch: f64,
    /// A target density in place of the method's own, where a schedule or controller sets it step by step.
    pub density: Option<f64>,
    /// Steps of the whole run, where they are known.
    pub total_steps: Option<u64>,
}

/// The warm-up of a method: which density it uses, given the target and the progress.
///
/// Written as text it is one of `none`, `dense/1`, `quantized/1` (4 bits), `quantized/1/8`, `dgc`, `gaussian-k`,
/// `ladder/0.25/0.0625`, `linear/5` (from 1 to 0.1) and `linear/5/0.5/0.05`; [`Display`](fmt::Display) gives the shortest
/// of these that parses to an equal warm-up. Lengths are in epochs, in steps (`dense/500steps`) or a part of the run
/// (`quantized/15%`), see [`Length`].
///
/// No warm-up ever goes below the target: a step of the ramp that would is replaced by the target.
/// The papers leave this open: their ramps end above the targets they use, but a user may ask for
/// a denser one.
///
/// ```
/// use thinwire::memory::{Progress, Warmup};
///
/// let warmup: Warmup = "dgc".parse()?;
/// let density = |epoch| warmup.density(0.001, Progress { epoch, ..Progress::default() });
/// assert_eq!([density(0.5), density(1.0), density(3.9), density(4.0)], [0.25, 0.0625, 0.004, 0.001]);
/// assert_eq!(warmup.to_string(), "dgc");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Warmup {
    /// The target density from the first step on.
    #[default]
    None,
    /// Everything is sent, then the target density (RedSync, arXiv 1808.04357). Its authors skip DGC's ramp because an
    /// all-gather at 25 % costs more than a dense all-reduce. Their code has one epoch, off by default; the paper "the
    /// first few".
    Dense(Length),
    /// Everything is sent in so many bits ([`quantized`](crate::method)), then the target density. What rounding loses is
    /// in the residual that the method goes on with, so nothing is lost between the two.
    Quantized {
        /// The length.
        length: Length,
        /// Bits of a value: 2, 3, 4 or 8.
        bits: u8,
    },
    /// One density for each whole epoch, then the target.
    Ladder(Vec<f64>),
    /// A density that falls in a straight line, step by step (AR-Topk's released code, arXiv
    /// 2312.02493: from 1 to 0.1 over 5 epochs), then the target.
    Linear {
        /// The density at the first step.
        from: f64,
        /// The density at the end of the line.
        to: f64,
        /// The length of the line.
        length: Length,
    },
}

const DGC: [f64; 4] = [0.25, 0.0625, 0.015625, 0.004];
const GAUSSIAN_K: [f64; 2] = [0.015625, 0.004];
const LINEAR_FROM: f64 = 1.0;
const LINEAR_TO: f64 = 0.1;
const BITS: u8 = 4;

impl Warmup {
    /// The forms of text that parse, for messages and help.
    pub const FORMS: &'static str = "none, dense/LENGTH, quantized/LENGTH or quantized/LENGTH/BITS, dgc, gaussian-k, \
                                     ladder/DENSITY/DENSITY/..., linear/LENGTH or linear/LENGTH/FROM/TO; a length is \
                                     in epochs (1.5), in steps (500steps) or a part of the run (15%)";

    /// The ramp of the DGC paper (arXiv 1712.01887): 0.25, 0.0625, 0.015625 and 0.004 in the first
    /// four epochs, then the target.
    ///
    /// The list follows target^((epoch + 1) / 5) for a target of 0.001. DGC's released code has the
    /// exponent (epoch + 1) / 6 instead, which gives 0.316, 0.1, 0.032, 0.01 and 0.0032; we keep the
    /// paper's list.
    pub fn dgc() -> Warmup {
        Warmup::Ladder(DGC.to_vec())
    }

    /// The ramp of the Gaussian-k code (arXiv 1911.08772), the end of DGC's: 0.015625 and 0.004 in
    /// the first two epochs, then the target.
    pub fn gaussian_k() -> Warmup {
        Warmup::Ladder(GAUSSIAN_K.to_vec())
    }

    /// The density to use now: 1 means send dense. Never below the target, which is `target` unless the progress
    /// has another; never above 1.
    pub fn density(&self, target: f64, progress: Progress) -> f64 {
        let target = progress.density.unwrap_or(target);
        let ramp = match self {
            Warmup::None => target,
            Warmup::Dense(length) | Warmup::Quantized { length, .. } if length.is_over(progress) => target,
            Warmup::Dense(_) | Warmup::Quantized { .. } => 1.0,
            // The cast drops the fraction: that is the number of the epoch under way.
            Warmup::Ladder(densities) => {
                densities.get(progress.epoch.max(0.0) as usize).copied().unwrap_or(target)
            }
            Warmup::Linear { length, .. } if length.is_over(progress) => target,
            Warmup::Linear { from, to, length } => from + (to - from) * length.passed(progress),
        };
        ramp.max(target).min(1.0)
    }

    /// In how many bits everything is sent now; `None` if it is not, or not in a few bits.
    pub fn bits(&self, progress: Progress) -> Option<u8> {
        match self {
            // Who sets the density asks for values as they are.
            Warmup::Quantized { length, bits } => {
                Some(*bits).filter(|_| !length.is_over(progress) && progress.density.is_none())
            }
            _ => None,
        }
    }

    /// Its length, unless it has none or one that is always in epochs.
    pub fn length(&self) -> Option<Length> {
        match self {
            Warmup::Dense(length) | Warmup::Quantized { length, .. } | Warmup::Linear { length, .. } => {
                Some(*length)
            }
            Warmup::None | Warmup::Ladder(_) => None,
        }
    }
}

impl FromStr for Warmup {
    /// What would be right, to be read after "expected".
    type Err = String;

    fn from_str(text: &str) -> Result<Warmup, String> {
        let mut parts = text.split('/');
        let form = parts.next().unwrap_or_default();
        let values: Vec<&str> = parts.collect();
        match (form, values.as_slice()) {
            ("none", []) => Ok(Warmup::None),
            ("dgc", []) => Ok(Warmup::dgc()),
            ("gaussian-k", []) => Ok(Warmup::gaussian_k()),
            ("dense", [length]) => length.parse().map(Warmup::Dense),
            ("quantized", [length]) => Ok(Warmup::Quantized { length: length.parse()?, bits: BITS }),
            ("quantized", [length, bits]) => {
                Ok(Warmup::Quantized { length: length.parse()?, bits: parse_bits(bits)? })
            }
            ("ladder", [_, ..]) => {
                values.iter().map(|value| parse_density(value)).collect::<Result<_, _>>().map(Warmup::Ladder)
            }
            ("linear", [length]) => {
                Ok(Warmup::Linear { from: LINEAR_FROM, to: LINEAR_TO, length: length.parse()? })
            }
            ("linear", [length, from, to]) => Ok(Warmup::Linear {
                from: parse_density(from)?,
                to: parse_density(to)?,
                length: length.parse()?,
            }),
            _ => Err(format!("one of: {}", Warmup::FORMS)),
        }
    }
}

fn parse_density(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(density) if density > 0.0 && density <= 1.0 => Ok(density),
        _ => Err(format!("a density above 0 and up to 1 in place of {text:?}")),
    }
}

fn parse_bits(text: &str) -> Result<u8, String> {
    match text {
        "2" => Ok(2),
        "3" => Ok(3),
        "4" => Ok(4),
        "8" => Ok(8),
        _ => Err(format!("2, 3, 4 or 8 bits in place of {text:?}")),
    }
}

impl fmt::Display for Warmup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warmup::None => out.write_str("none"),
            Warmup::Dense(length) => write!(out, "dense/{length}"),
            Warmup::Quantized { length, bits: BITS } => write!(out, "quantized/{length}"),
            Warmup::Quantized { length, bits } => write!(out, "quantized/{length}/{bits}"),
            // A ladder without steps is no warm-up, and has no text of its own.
            Warmup::Ladder(densities) if densities.is_empty() => out.write_str("none"),
            Warmup::Ladder(densities) if *densities == DGC => out.write_str("dgc"),
            Warmup::Ladder(densities) if *densities == GAUSSIAN_K => out.write_str("gaussian-k"),
            Warmup::Ladder(densities) => {
                out.write_str("ladder")?;
                densities.iter().try_for_each(|density| write!(out, "/{density}"))
            }
            Warmup::Linear { from, to, length } if (*from, *to) == (LINEAR_FROM, LINEAR_TO) => {
                write!(out, "linear/{length}")
            }
            Warmup::Linear { from, to, length } => write!(out, "linear/{length}/{from}/{to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn densities(warmup: &Warmup, target: f64, epochs: &[f64]) -> Vec<f64> {
        epochs
            .iter()
            .map(|&epoch| warmup.density(target, Progress { epoch, ..Progress::default() }))
            .collect()
    }

    #[test]
    fn none_is_the_target_from_the_start() {
        assert_eq!(densities(&Warmup::None, 0.01, &[0.0, 9.0]), [0.01, 0.01]);
        assert_eq!(Warmup::default(), Warmup::None);
    }

    #[test]
    fn dense_epochs_end_at_the_very_step() {
        let warmup = Warmup::Dense(Length::Epochs(1.5));
        assert_eq!(densities(&warmup, 0.001, &[0.0, 1.0, 1.499, 1.5, 2.0]), [1.0, 1.0, 1.0, 0.001, 0.001]);
        assert_eq!(densities(&Warmup::Dense(Length::Epochs(0.0)), 0.001, &[0.0]), [0.001]);
    }

    #[test]
    fn quantized_epochs_send_everything_in_a_few_bits() {
        let warmup: Warmup = "quantized/1.5/8".parse().unwrap();
        assert_eq!(densities(&warmup, 0.001, &[0.0, 1.499, 1.5]), [1.0, 1.0, 0.001]);
        let bits = |epoch, density| warmup.bits(Progress { epoch, density, step: 3, total_steps: None });
        assert_eq!([bits(0.0, None), bits(1.5, None), bits(0.0, Some(1.0))], [Some(8), None, None]);
        assert_eq!(Warmup::Dense(Length::Epochs(2.0)).bits(Progress::default()), None);
    }

    #[test]
    fn a_ladder_steps_at_whole_epochs() {
        let epochs = [0.0, 0.999, 1.0, 2.5, 3.0, 4.0, 1e300];
        assert_eq!(
            densities(&Warmup::dgc(), 0.001, &epochs),
            [0.25, 0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001]
        );
        assert_eq!(densities(&Warmup::gaussian_k(), 0.001, &[0.0, 1.0, 2.0]), [0.015625, 0.004, 0.001]);
    }

    #[test]
    fn a_ladder_stays_at_or_above_the_target() {
        assert_eq!(densities(&Warmup::dgc(), 0.05, &[0.0, 1.0, 2.0, 3.0]), [0.25, 0.0625, 0.05, 0.05]);
    }

    #[test]
    fn linear_falls_within_an_epoch_too() {
        let warmup: Warmup = "linear/5".parse().unwrap();
        let found = densities(&warmup, 0.01, &[0.0, 2.5, 4.999_999, 5.0]);
        for (found, expected) in found.into_iter().zip([1.0, 0.55, 0.1, 0.01]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        assert_eq!(densities(&"linear/0".parse().unwrap(), 0.01, &[0.0]), [0.01]);
    }

    #[test]
    fn hostile_progress_and_hand_made_values_give_a_usable_density() {
        let warmups = [
            Warmup::Ladder(vec![f64::NAN, -1.0, 7.0]),
            Warmup::dgc(),
            Warmup::Dense(Length::Epochs(f64::NAN)),
        ];
        for warmup in warmups {
            for density in densities(&warmup, 0.01, &[f64::NAN, -3.0, 0.0, 1.0, 2.0, f64::INFINITY]) {
                assert!((0.01..=1.0).contains(&density), "{warmup:?} {density}");
            }
        }
    }

    #[test]
    fn the_canonical_texts_round_trip() {
        for text in [
            "none",
            "dense/1",
            "dense/500steps",
            "quantized/1",
            "quantized/15%",
            "quantized/0.5/3",
            "dgc",
            "gaussian-k",
            "ladder/0.25/0.0625",
            "linear/5",
            "linear/2.5/0.5/0.05",
            "linear/12.5%",
        ] {
            assert_eq!(text.parse::<Warmup>().unwrap().to_string(), text);
        }
        for (text, canonical) in [
            ("linear/5/1.0/0.1", "linear/5"),
            ("ladder/0.25/0.0625/0.015625/0.004", "dgc"),
            ("dense/-0", "dense/0"),
        ] {
            assert_eq!(text.parse::<Warmup>().unwrap().to_string(), canonical);
        }
        assert_eq!(Warmup::Ladder(vec![]).to_string(), "none");
    }

    #[test]
    fn what_is_wrong_says_what_would_be_right() {
        let error = |text: &str| text.parse::<Warmup>().unwrap_err();
        for text in
            ["", "None", "dense", "dense/1/2", "ladder", "linear", "linear/5/1", "dgc/1", "linear/5/1/0.1/2"]
        {
            assert!(error(text).starts_with("one of: none, dense/LENGTH"), "{text}");
        }
        for density in ["nan", "-0.1", "0", "1.01", "inf", "", "x", " 0.5"] {
            let expected = format!("a density above 0 and up to 1 in place of {density:?}");
            assert_eq!(error(&format!("ladder/0.25/{density}")), expected);
            assert_eq!(error(&format!("linear/5/1/{density}")), expected);
        }
        for epochs in ["nan", "-1", "inf", "", "five"] {
            let expected = format!("{} in place of {epochs:?}", Length::FORMS);
            assert_eq!(error(&format!("dense/{epochs}")), expected);
            assert_eq!(error(&format!("linear/{epochs}")), expected);
            assert_eq!(error(&format!("quantized/{epochs}")), expected);
        }
        for bits in ["", "5", "4.0", "16"] {
            assert_eq!(
                error(&format!("quantized/1/{bits}")),
                format!("2, 3, 4 or 8 bits in place of {bits:?}")
            );
        }
    }

    fn any_warmup() -> impl Strategy<Value = Warmup> {
        let density = || (0.0..1.0f64).prop_map(|gap| 1.0 - gap);
        prop_oneof![
            Just(Warmup::None),
            (0.0..1e9f64).prop_map(|epochs| Warmup::Dense(Length::Epochs(epochs))),
            (0..u64::MAX, prop::sample::select(vec![2u8, 3, 4, 8]))
                .prop_map(|(steps, bits)| Warmup::Quantized { length: Length::Steps(steps), bits }),
            prop::collection::vec(density(), 1..6).prop_map(Warmup::Ladder),
            (density(), density(), 0.0..1e9f64).prop_map(|(from, to, epochs)| Warmup::Linear {
                from,
                to,
                length: Length::Epochs(epochs)
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_warmup_round_trips_and_stays_in_range(
            warmup in any_warmup(), target in 1e-6..1.0f64, epoch in 0.0..20.0f64,
        ) {
            prop_assert_eq!(warmup.to_string().parse::<Warmup>(), Ok(warmup.clone()));
            let density = warmup.density(target, Progress { epoch, ..Progress::default() });
            prop_assert!((target..=1.0).contains(&density));
        }
    }
}
