//! Importance |gradient| / |weight| (IWP: Cheng, Xu: Bandwidth Reduction using Importance Weighted Pruning on
//! Ring AllReduce, 2019), after the abstract.

use std::ops::Range;

use super::{Select, Survey, window};
use crate::kernels::Score;

/// Where the importance threshold of a layer comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ImportanceRule {
    /// One threshold for every step, whatever the count: for study.
    Fixed(f32),
    /// One threshold for each layer, and as many elements as the density gives in the whole bucket. A layer with more
    /// elements above its threshold gets a larger share of them, at the expense of the others. All thresholds are moved
    /// by 10 % a step when the bucket's sum leaves the [`window`]'s inner part. When it leaves the window, they are put
    /// right at once.
    Controlled,
}

/// Keeps the elements whose accumulated gradient is large against their weight: `|u| / max(|w|, guard)`.
///
/// The abstract gives the ratio, that selection is by layer and changes with time, and the ring. The rule
/// for the threshold, the use of the accumulated gradient and the guard are reconstructions.
///
/// Thresholds begin where each layer sends its quota: the ratio of a layer with tiny weights is large everywhere, and by
/// one threshold for all layers it would take everything. From then on a layer's share of the bucket follows the
/// elements above its own threshold, by up to a third a step.
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
    control: Control,
    learnt: Control,
    /// What the bucket was asked for, and what its layers would have sent.
    bucket: Option<(usize, usize)>,
}

/// What the controlled rule remembers of the step before.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Control {
    /// 0 before the first step.
    threshold: f32,
    /// Where the selection was cut, if it was not by the threshold; 0 if it was.
    cut: f32,
    /// Elements above the threshold. It was not counted beyond the window of the share.
    wanted: usize,
}

impl Control {
    /// The threshold of a bucket that was asked for so many elements, and would have sent so many.
    fn steered(&self, asked: usize, wanted: usize) -> f32 {
        let held = window(asked);
        if !held.contains(&wanted) && self.cut > 0.0 {
            return self.cut;
        }
        // Steer before the window is left: beyond half way to its ends.
        let (low, high) = ((asked + *held.start()) / 2, (asked + *held.end()) / 2);
        let factor = match wanted {
            _ if wanted > high => 1.1,
            _ if wanted < low => 0.9,
            _ => 1.0,
        };
        (self.threshold * factor).min(f32::MAX)
    }
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
        Importance { guard, rule, control: Control::default(), learnt: Control::default(), bucket: None }
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

    fn wanted(&self) -> Option<usize> {
        Some(self.control.wanted).filter(|&wanted| wanted > 0)
    }

    fn steer(&mut self, asked: usize, wanted: usize) {
        self.bucket = Some((asked, wanted));
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, _step: u64) {
        let (asked, wanted) = self.bucket.take().unwrap_or((k, self.wanted().unwrap_or(k)));
        let threshold = self.control.steered(asked, wanted);
        self.learnt = match self.rule {
            ImportanceRule::Fixed(threshold) => {
                survey.keep_above(threshold);
                Control::default()
            }
            ImportanceRule::Controlled if threshold == 0.0 => {
                Control { threshold: keep_exactly(survey, k), cut: 0.0, wanted: k }
            }
            ImportanceRule::Controlled => keep_share(survey, threshold, k),
        };
    }

    fn commit(&mut self) {
        self.control = self.learnt;
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        let Control { threshold, cut, wanted } = self.control;
        vec![("threshold", threshold as f64), ("cut", cut as f64), ("wanted", wanted as f64)]
    }

    fn restore(&mut self, name: &str, value: f64) -> bool {
        match name {
            "threshold" => self.control.threshold = value as f32,
            "cut" => self.control.cut = value as f32,
            "wanted" => self.control.wanted = value as usize,
            _ => return false,
        }
        true
    }
}

/// Keeps what is above the threshold if that is in the window of the layer's share, else exactly the share.
fn keep_share(survey: &mut dyn Survey, threshold: f32, share: usize) -> Control {
    let held = window(share);
    let above = survey.count_above(threshold, *held.end());
    let cut = if held.contains(&above) {
        survey.keep_above(threshold);
        0.0
    } else {
        keep_exactly(survey, share)
    };
    // One beyond either end, so that the share of a layer with one element can grow, too.
    let wanted = above.clamp(held.start().saturating_sub(1).max(1), held.end() + 1);
    Control { threshold, cut, wanted }
}

/// Keeps the `k` most important. Gives the threshold that would have kept them, but for ties.
fn keep_exactly(survey: &mut dyn Survey, k: usize) -> f32 {
    survey.keep_top(k);
    survey.lowest_kept().next_down().max(0.0)
}
