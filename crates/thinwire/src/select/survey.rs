//! What a selector may ask of an accumulated vector.

use crate::kernels::Statistics;

/// A vector after accumulation, seen by a selector: it can be measured, counted and cut, but not touched.
///
/// Elements are ranked by their [`Score`](crate::kernels::Score), ties to the lower position; elements with
/// score 0 are kept only by [`keep_positions`](Survey::keep_positions). A selector asks what it needs and ends with one `keep_…` call; the caller then
/// gets what was kept by [`Kernels::finish`](crate::kernels::Kernels::finish). A device answers in whatever way is cheapest
/// for it. The CPU has collected the best elements while it accumulated, and goes back to memory only when asked for
/// more. A device that must wait for an answer does so when it is asked and not before; once it has failed, it answers
/// as for a vector of zeros, and the end of the selection says what went wrong.
pub trait Survey {
    /// Elements in the unit.
    fn len(&self) -> usize;

    /// Where the unit begins in its bucket.
    fn start(&self) -> usize;

    /// Whether the unit has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Statistics of the accumulated values (not of the scores).
    fn statistics(&mut self) -> Statistics;

    /// How many scores are above `threshold`. Counting may stop beyond `enough`: a larger answer means
    /// "more than `enough`", any answer up to `enough` is exact.
    fn count_above(&mut self, threshold: f32, enough: usize) -> usize;

    /// Whether the best `k` come of the walk before anything is asked: then to narrow them down first is only to wait.
    fn brings_best(&self, k: usize) -> bool {
        let _ = k;
        false
    }

    /// Every `stride`-th score from element `start` on, appended to `scores`.
    fn sample(&mut self, start: usize, stride: usize, scores: &mut Vec<f32>);

    /// Keeps the scores above `threshold`.
    fn keep_above(&mut self, threshold: f32);

    /// Keeps the `k` best (all non-zero ones, if there are fewer).
    fn keep_top(&mut self, k: usize);

    /// The lowest score that [`keep_top`](Survey::keep_top) has kept; 0 if it kept none.
    fn lowest_kept(&mut self) -> f32;

    /// Keeps the scores above `upper`, and fills up to `k` with a run, in order of position, of those above
    /// `lower`. The run begins at fraction `start` (0 to 1) of the places where it can begin.
    fn keep_band(&mut self, upper: f32, lower: f32, k: usize, start: f64);

    /// Keeps the elements at `positions`, counted from the unit's first element, sorted.
    fn keep_positions(&mut self, positions: &[u32]);

    /// How many are kept.
    fn kept(&mut self) -> usize;
}
