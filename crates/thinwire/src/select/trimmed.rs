//! Trimmed top-k (RedSync: Fang, Fu, Yang, Hsieh, 2018).

use super::{Select, Survey, mean_and_max};
use crate::kernels::Score;

/// Lowers a threshold from the maximum towards the mean until at least `k` elements pass, then takes the
/// exact top-k of those that passed. The result is the exact top-k; trimming only shortens the way.
///
/// The published loop never ends on a vector of zeros or of equal magnitudes. Here it ends at the mean:
/// below that trimming saves nothing. Where the walk of a device brings the best `k` by itself, as a GPU's does from the
/// second step on, nothing is trimmed: the device would wait for each round.
#[derive(Debug, Clone, Copy)]
pub struct Trimmed {
    /// How far the threshold falls each round, as a fraction (at least 0.01) of the way from mean to
    /// maximum. Default 0.2.
    pub step: f64,
    /// What is ranked: magnitudes, or one sign for same-sign quantisation.
    pub score: Score,
}

impl Default for Trimmed {
    fn default() -> Self {
        Trimmed { step: 0.2, score: Score::Magnitude }
    }
}

impl Select for Trimmed {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(*self)
    }

    fn score(&self, _mean_weight: f64) -> Score {
        self.score
    }

    fn expect(&self, k: usize) -> usize {
        k
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, _step: u64) {
        if survey.brings_best(k) {
            return survey.keep_top(k);
        }
        let (mean, max) = mean_and_max(survey, self.score);
        let step = self.step.clamp(0.01, 1.0);
        let rounds = (1.0 / step).ceil() as usize;
        for round in 1..=rounds {
            let threshold = mean + (1.0 - round as f64 * step).max(0.0) * (max - mean);
            if survey.count_above(threshold as f32, k - 1) >= k {
                break;
            }
        }
        survey.keep_top(k);
    }
}
