//! RedSync's choice of a selector by the size of the layer (Fang, Fu, Yang, Hsieh, 2018).

use super::{Exact, Select, Survey, ThresholdSearch, Trimmed};
use crate::kernels::Score;

/// Exact top-k for small units, trimmed top-k for middling ones, threshold search for large ones; layers
/// smaller still are sent dense, which is a [rule on layers](crate::bucket::LayerRules) and not made here.
///
/// With `alternate` (same-sign quantisation) the unit sends its largest positive elements in one step and
/// its lowest negative ones in the next, beginning with the negative ones as the author's hybrid code does;
/// the search is then never reused. The published signed search lets values of the wrong sign pass when the
/// mean is beyond zero; here a step sends one sign only, and nothing when that sign does not occur.
#[derive(Debug, Clone)]
pub struct BySize {
    /// Up to this many elements: exact. Default 131,072 (the author's code; the paper is remembered to say
    /// 128 KB).
    pub exact_up_to: usize,
    /// Up to this many: trimmed. Above: threshold search. Default 4,194,304 (likewise 4 MB).
    pub trimmed_up_to: usize,
    /// The trimmed selector, and its step.
    pub trimmed: Trimmed,
    /// The threshold search, its bracket and interval.
    pub search: ThresholdSearch,
    /// Whether to send one sign a step, in turns.
    pub alternate: bool,
    side: Score,
}

impl BySize {
    /// RedSync's sizes, for magnitudes or, with `alternate`, for one sign at a time.
    pub fn new(alternate: bool) -> BySize {
        BySize {
            exact_up_to: 131_072,
            trimmed_up_to: 4_194_304,
            trimmed: Trimmed::default(),
            search: ThresholdSearch::default(),
            alternate,
            side: if alternate { Score::Negative } else { Score::Magnitude },
        }
    }
}

impl Select for BySize {
    fn fresh(&self) -> Box<dyn Select> {
        let side = if self.alternate { Score::Negative } else { Score::Magnitude };
        Box::new(BySize { side, search: self.search.forgotten(), ..self.clone() })
    }

    fn quota(&self, len: usize, density: f64) -> usize {
        self.search.quota(len, density)
    }

    fn score(&self, _mean_weight: f64) -> Score {
        self.side
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, step: u64) {
        if survey.len() <= self.exact_up_to {
            Exact.select(survey, k, step);
        } else if survey.len() <= self.trimmed_up_to {
            Trimmed { score: self.side, ..self.trimmed }.select(survey, k, step);
        } else {
            if self.alternate {
                self.search.interval = 1;
            }
            self.search.score = self.side;
            self.search.select(survey, k, step);
        }
    }

    fn commit(&mut self) {
        self.search.commit();
        if self.alternate {
            self.side = if self.side == Score::Negative { Score::Positive } else { Score::Negative };
        }
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        let mut state = self.search.state();
        state.push(("positive_next", (self.side == Score::Positive) as u8 as f64));
        state
    }

    fn restore(&mut self, name: &str, value: f64) -> bool {
        if name != "positive_next" {
            return self.search.restore(name, value);
        }
        if self.alternate {
            self.side = if value == 1.0 { Score::Positive } else { Score::Negative };
        }
        true
    }
}
