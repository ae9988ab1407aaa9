//! Importance |gradient| / |weight| (IWP: Cheng, Xu: Bandwidth Reduction using Importance Weighted Pruning on
//! Ring AllReduce, 2019), after the abstract.

use std::ops::Range;

use super::{Select, Survey, keep_held, window};
use crate::kernels::Score;

/// Where the importance threshold of a layer comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ImportanceRule {
    /// One threshold for every step, whatever the count: for study.
    Fixed(f32),
    /// One threshold for each layer, moved by 10 % a step when the layer's share leaves the [`window`]'s
    /// inner part, and put right at once when it leaves the window.
    Controlled,
}

/// Keeps the elements whose accumulated gradient is large against their weight: `|u| / max(|w|, guard)`.
///
/// The abstract gives the ratio, that selection is by layer and changes with time, and the ring. The rule
/// for the threshold, the use of the accumulated gradient and the guard are reconstructions.
///
/// The guard is `guard · mean |w|` of the layer, so that fresh biases and other zero weights, whose ratio
/// would be infinite, do not win every step. The mean of a large layer is taken over a
/// [sample](Importance::weight_sample): a guard needs no more, and a walk over all weights would take a third of
/// the step.
#[derive(Debug, Clone, Copy)]
pub struct Importance {
    /// The guard as a fraction of the layer's mean weight. Default 0.001.
    pub guard: f64,
    /// Where the threshold comes from. Default [`ImportanceRule::Controlled`].
    pub rule: ImportanceRule,
    /// The controlled threshold; 0 before the first step.
    threshold: f32,
    learnt: f32,
}

impl Default for Importance {
    fn default() -> Self {
        Importance::new(0.001, ImportanceRule::Controlled)
    }
}

impl Importance {
    /// The weights whose mean makes the guard: all of a unit of up to 65,536 elements, of larger ones 256 pieces
    /// of 256 elements, evenly spaced; the same on every rank.
    ///
    /// ```
    /// use thinwire::select::Importance;
    /// assert_eq!(Importance::weight_sample(&[10..20, 30..1000]), [10..20, 30..1000]);
    /// let sample = Importance::weight_sample(&[0..1_000_000]);
    /// assert_eq!((sample.len(), &sample[1]), (256, &(3906..4162)));
    /// ```
    pub fn weight_sample(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
        const PIECES: usize = 256;
        const PIECE: usize = 256;
        let elements: usize = ranges.iter().map(Range::len).sum();
        if elements <= PIECES * PIECE {
            return ranges.to_vec();
        }
        let stride = elements / PIECES;
        let (mut before, mut next) = (0, 0);
        let mut sample = Vec::with_capacity(PIECES + 1);
        for range in ranges {
            while next < before + range.len() && sample.len() < PIECES {
                let start = range.start + next - before;
                sample.push(start..range.end.min(start + PIECE));
                next += stride;
            }
            before += range.len();
        }
        sample
    }

    /// A selector with nothing remembered.
    pub fn new(guard: f64, rule: ImportanceRule) -> Importance {
        Importance { guard, rule, threshold: 0.0, learnt: 0.0 }
    }
}

impl Select for Importance {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(Importance::new(self.guard, self.rule))
    }

    fn score(&self, mean_weight: f64) -> Score {
        // A layer whose weights are all zero ranks by the gradient alone, whatever the guard.
        let guard = (self.guard * mean_weight) as f32;
        Score::Relative { guard: if guard > 0.0 { guard } else { 1.0 } }
    }

    fn needs_weights(&self) -> bool {
        true
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, _step: u64) {
        match self.rule {
            ImportanceRule::Fixed(threshold) => survey.keep_above(threshold),
            ImportanceRule::Controlled if self.threshold == 0.0 => {
                survey.keep_top(k);
                self.learnt = survey.lowest_kept().next_down().max(0.0);
            }
            ImportanceRule::Controlled => {
                let used = keep_held(survey, self.threshold, k);
                let kept = survey.kept();
                // Steer before the window is left: beyond half way to its ends.
                let (low, high) = ((k + *window(k).start()) / 2, (k + *window(k).end()) / 2);
                self.learnt = if used != self.threshold {
                    used
                } else if kept > high {
                    used * 1.1
                } else if kept < low {
                    used * 0.9
                } else {
                    used
                };
            }
        }
    }

    fn commit(&mut self) {
        self.threshold = self.learnt;
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        vec![("threshold", self.threshold as f64)]
    }

    fn restore(&mut self, name: &str, value: f64) -> bool {
        let known = name == "threshold";
        if known {
            self.threshold = value as f32;
        }
        known
    }
}
