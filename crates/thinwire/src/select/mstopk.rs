//! MSTopk, the baseline of the AR-Topk paper (Shi et al.: Towards Scalable Distributed Training, 2021).

use super::mix;
use super::{Select, Survey, mean_and_max};
use crate::kernels::Score;

/// Bisects a threshold between mean and maximum for 25 rounds, remembering the closest counts on both sides
/// of `k`; keeps all above the upper threshold and fills up to exactly `k` with a run, at a random place, of
/// those between the two.
///
/// Where the two sides stay far apart (equal magnitudes, fewer than `k` above the mean) the run would be
/// arbitrary; from a band of more than `k` on, this selector keeps the exact top-k unless `as_published`.
#[derive(Debug, Clone, Copy)]
pub struct MsTopk {
    /// Bisections. Default 25.
    pub rounds: usize,
    /// Seed of the run's place. Default 0.
    pub seed: u64,
    /// The paper's own behaviour, whatever lies between the two sides.
    pub as_published: bool,
}

impl Default for MsTopk {
    fn default() -> Self {
        MsTopk { rounds: 25, seed: 0, as_published: false }
    }
}

impl Select for MsTopk {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(*self)
    }

    fn expect(&self, k: usize) -> usize {
        2 * k + 1
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, step: u64) {
        let (mean, max) = mean_and_max(survey, Score::Magnitude);
        let far = if self.as_published { survey.len() } else { 2 * k };
        let (mut low, mut high) = (0.0, 1.0);
        let (mut upper, mut lower) = ((max as f32, 0), (0.0f32, usize::MAX));
        for _ in 0..self.rounds {
            let ratio = (low + high) / 2.0;
            let threshold = (mean + ratio * (max - mean)) as f32;
            let count = survey.count_above(threshold, far);
            if count <= k {
                high = ratio;
                if count >= upper.1 {
                    upper = (threshold, count);
                }
            } else {
                low = ratio;
                if count < lower.1 {
                    lower = (threshold, count);
                }
            }
        }
        if upper.1 == k {
            survey.keep_above(upper.0);
        } else if self.as_published || lower.1 <= far {
            let start = mix(self.seed ^ mix(step)) as f64 / u64::MAX as f64;
            survey.keep_band(upper.0, lower.0, k, start);
        } else {
            survey.keep_top(k);
        }
    }
}
