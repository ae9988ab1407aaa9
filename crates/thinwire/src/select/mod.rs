//! Which coordinates travel: one selector a file.
//!
//! Every selector works through a [`Survey`] and keeps one contract on any finite input:
//!
//! - what it keeps is sorted, unique and in range; ties go to the lower position;
//! - it keeps at least one element unless all scores are zero, and never one whose score is zero;
//! - its loops and its output are bounded;
//! - exact selectors keep `k` elements (or all non-zero ones, if there are fewer); approximate ones land in
//!   the [`window`] `[2k/3, 4k/3]`.
//!
//! The papers' own rules miss that window on inputs they were not made for, some by a factor of thirty. The
//! selectors follow the paper as long as it holds `k` and fall back to the exact `k` when it does not. Where
//! that changes the outcome, a switch `as_published` gives the paper's behaviour for study.
//!
//! | selector | from | keeps |
//! |---|---|---|
//! | [`Exact`] | - | exactly `k` |
//! | [`GaussianK`] | Gaussian-k | the window |
//! | [`Trimmed`] | RedSync | exactly `k` |
//! | [`ThresholdSearch`] | RedSync | the window |
//! | [`BySize`] | RedSync | as the one it picks |
//! | [`Importance`] | IWP | the window of the unit's share of its bucket |
//! | [`DgcSampling`] | DGC | `[2k/3, k]`, mostly from `0.8k` |
//! | [`MsTopk`] | MSTopk | exactly `k` |
//! | [`RandomK`] | - | exactly `k` positions |

mod by_size;
mod dgc_sampling;
mod exact;
mod gaussian_k;
mod importance;
mod mstopk;
#[cfg(test)]
pub(crate) mod plain;
mod random_k;
mod shares;
mod survey;
mod threshold_search;
mod trimmed;

use std::fmt::Debug;
use std::ops::RangeInclusive;

pub use by_size::BySize;
pub use dgc_sampling::DgcSampling;
pub use exact::Exact;
pub use gaussian_k::{GaussianK, normal_quantile};
pub use importance::{Importance, ImportanceRule};
pub use mstopk::MsTopk;
pub use random_k::RandomK;
pub(crate) use random_k::mix;
pub(crate) use shares::{Claim, divide_shares};
pub use survey::Survey;
pub use threshold_search::ThresholdSearch;
pub use trimmed::Trimmed;

use crate::kernels::Score;

/// A rule that chooses about `k` elements of a unit: a layer, or several fused into one vector.
///
/// One value serves one unit, because it may remember something from step to step; [`fresh`](Select::fresh)
/// makes another for the next unit.
pub trait Select: Debug + Send + Sync {
    /// A copy with nothing remembered.
    fn fresh(&self) -> Box<dyn Select>;

    /// How many elements a unit of `len` may send at this density: `max(1, floor(len · density))`.
    fn quota(&self, len: usize, density: f64) -> usize {
        (share(len, density).floor() as usize).clamp(1, len.max(1))
    }

    /// How the elements are to be ranked in the coming step. `mean_weight` is the mean magnitude of the
    /// unit's weights (of a [sample](Importance::weight_sample) of them), 0 unless [`needs_weights`](Select::needs_weights).
    fn score(&self, mean_weight: f64) -> Score {
        let _ = mean_weight;
        Score::Magnitude
    }

    /// Whether the ranking looks at the weights.
    fn needs_weights(&self) -> bool {
        false
    }

    /// How many of the best elements the survey should have at hand to choose `k`.
    fn expect(&self, k: usize) -> usize {
        window(k).end() + 1
    }

    /// How many elements the unit would send, by what is remembered; `None`: as many as its quota. A bucket's elements
    /// are divided among its units by that, and [`select`](Select::select) is asked for the unit's share.
    fn wanted(&self) -> Option<usize> {
        None
    }

    /// Before a selection: how many elements all units of the bucket are asked for, and how many they would send.
    /// Without it the unit stands for itself.
    fn steer(&mut self, asked: usize, wanted: usize) {
        let _ = (asked, wanted);
    }

    /// Chooses about `k` elements, `k` being at least 1. Ends with one `keep_…` call on the survey.
    ///
    /// What it learns counts only after [`commit`](Select::commit): a step may still fail in another unit, and
    /// then it must be as if it had not been.
    fn select(&mut self, survey: &mut dyn Survey, k: usize, step: u64);

    /// The step went well; what [`select`](Select::select) learnt is remembered from now on.
    fn commit(&mut self) {}

    /// What is remembered and must be saved so that a restored run goes on with the same bits: names and values.
    fn state(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Takes back one value of [`state`](Select::state). False if the name is unknown.
    fn restore(&mut self, name: &str, value: f64) -> bool {
        let _ = (name, value);
        false
    }
}

/// The counts an approximate selector may return when `k` was asked: `[2k/3, 4k/3]`, rounded inwards.
///
/// ```
/// assert_eq!(thinwire::select::window(100), 67..=133);
/// assert_eq!(thinwire::select::window(1), 1..=1);
/// ```
pub fn window(k: usize) -> RangeInclusive<usize> {
    (2 * k).div_ceil(3)..=4 * k / 3
}

/// `len · density`, without the last bit that makes 28.999… of 100 · 0.29.
fn share(len: usize, density: f64) -> f64 {
    let product = len as f64 * density;
    let whole = product.round();
    if (product - whole).abs() < 1e-9 * whole { whole } else { product }
}

/// Keeps what is above `threshold` if that is in the [`window`], else exactly `k`. Returns the threshold
/// that was used.
fn keep_held(survey: &mut dyn Survey, threshold: f32, k: usize) -> f32 {
    if window(k).contains(&survey.count_above(threshold, *window(k).end())) {
        survey.keep_above(threshold);
        threshold
    } else {
        // The lowest score kept; what lies above the next lower float is what was kept, but for ties.
        survey.keep_top(k);
        survey.lowest_kept().next_down().max(0.0)
    }
}

/// Mean and maximum of the scores, as the threshold rules of RedSync and MSTopk use them: of magnitudes,
/// or of the signed values seen from the chosen side.
fn mean_and_max(survey: &mut dyn Survey, score: Score) -> (f64, f64) {
    let statistics = survey.statistics();
    match score {
        Score::Positive => (statistics.mean(), statistics.max as f64),
        Score::Negative => (-statistics.mean(), -statistics.min as f64),
        Score::Magnitude | Score::Relative { .. } => {
            (statistics.mean_magnitude(), statistics.max_magnitude() as f64)
        }
    }
}

#[cfg(test)]
mod tests;
