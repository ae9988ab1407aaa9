//! Threshold binary search with reuse (RedSync: Fang, Fu, Yang, Hsieh, 2018).

use super::{Select, Survey, keep_held, mean_and_max, share, window};
use crate::kernels::Score;

/// Searches a ratio between mean (0) and maximum (1) of the magnitudes at which about `k` elements lie above
/// `mean + ratio · (max - mean)`, and uses the found ratio for some steps before it searches again. Mean and
/// maximum are new in each step, so the threshold follows the residual.
///
/// The published search accepts `(k/2, 2k)` and gives up when the bracket is shorter than 0.1; it may end
/// with one element or with thirty times `k`. Here the search ends in the [`window`] or with exactly `k`,
/// also in the steps that reuse a ratio, and the ratio kept for later is then the one of those `k`.
/// `as_published` gives the author's code: its window, and no repair (but at least the largest element).
#[derive(Debug, Clone, Copy)]
pub struct ThresholdSearch {
    /// The search stops when the bracket of ratios is this short, or 1e-6. Default 0.1.
    pub bracket: f64,
    /// Steps from one search to the next; 1 searches always. Default 5.
    pub interval: u64,
    /// What is ranked: magnitudes, or one sign for same-sign quantisation (the paper never reuses then).
    pub score: Score,
    /// The paper's own behaviour, whatever the count.
    pub as_published: bool,
    remembered: Remembered,
    learnt: Remembered,
}

#[derive(Debug, Clone, Copy)]
struct Remembered {
    ratio: f64,
    steps_since_search: u64,
}

impl Remembered {
    /// Long ago: the first step searches.
    const NOTHING: Remembered = Remembered { ratio: 0.0, steps_since_search: u64::MAX >> 12 };
}

impl Default for ThresholdSearch {
    fn default() -> Self {
        ThresholdSearch {
            bracket: 0.1,
            interval: 5,
            score: Score::Magnitude,
            as_published: false,
            remembered: Remembered::NOTHING,
            learnt: Remembered::NOTHING,
        }
    }
}

impl ThresholdSearch {
    /// The same settings with nothing remembered.
    pub(super) fn forgotten(&self) -> ThresholdSearch {
        ThresholdSearch { remembered: Remembered::NOTHING, learnt: Remembered::NOTHING, ..*self }
    }

    /// The published search, for a window of counts.
    fn search(
        &self,
        survey: &mut dyn Survey,
        k: usize,
        accept: impl Fn(usize) -> bool,
        enough: usize,
    ) -> f64 {
        let (mean, max) = mean_and_max(survey, self.score);
        let (mut low, mut high, mut ratio) = (0.0, 1.0, 0.5);
        while high - low > self.bracket.max(1e-6) {
            ratio = (low + high) / 2.0;
            let count = survey.count_above((mean + ratio * (max - mean)) as f32, enough);
            if accept(count) {
                break;
            }
            if count < k {
                high = ratio;
            } else {
                low = ratio;
            }
        }
        ratio
    }
}

impl Select for ThresholdSearch {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(self.forgotten())
    }

    /// The author's code keeps `floor(n·density) + 1`.
    fn quota(&self, len: usize, density: f64) -> usize {
        (share(len, density) as usize + 1).min(len.max(1))
    }

    fn score(&self, _mean_weight: f64) -> Score {
        self.score
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, _step: u64) {
        let (mean, max) = mean_and_max(survey, self.score);
        let mut next = self.remembered;
        next.steps_since_search += 1;
        if next.steps_since_search >= self.interval {
            next.steps_since_search = 0;
            next.ratio = if self.as_published {
                let all = survey.len();
                self.search(survey, k, |count| 2 * count > k && count < 2 * k, all)
            } else {
                self.search(survey, k, |count| window(k).contains(&count), *window(k).end())
            };
        }
        let threshold = (mean + next.ratio * (max - mean)) as f32;
        if !self.as_published {
            let used = keep_held(survey, threshold, k);
            if used != threshold && max > mean {
                next.ratio = ((used as f64 - mean) / (max - mean)).clamp(0.0, 1.0);
            }
        } else if survey.count_above(threshold, 0) == 0 {
            survey.keep_top(1);
        } else {
            survey.keep_above(threshold);
        }
        self.learnt = next;
    }

    fn commit(&mut self) {
        self.remembered = self.learnt;
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        let Remembered { ratio, steps_since_search } = self.remembered;
        vec![("ratio", ratio), ("steps_since_search", steps_since_search as f64)]
    }

    fn restore(&mut self, name: &str, value: f64) -> bool {
        match name {
            "ratio" => self.remembered.ratio = value,
            "steps_since_search" => self.remembered.steps_since_search = value as u64,
            _ => return false,
        }
        true
    }
}
