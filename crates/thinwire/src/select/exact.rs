//! Exact top-k: the definition every other selector is measured by.

use super::{Select, Survey};

/// The `k` elements of largest score, ties to the lower position: what a full sort would give.
///
/// On the CPU this takes one walk over memory: the elements that can be among the best are collected while
/// the gradient is added, above a threshold guessed from the step before. Their count proves the guess; the
/// exact choice is then made among those few. A guess that was too high costs a second, reading walk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exact;

impl Select for Exact {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(*self)
    }

    fn expect(&self, k: usize) -> usize {
        k
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, _step: u64) {
        survey.keep_top(k);
    }
}
