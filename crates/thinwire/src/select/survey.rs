//! What a selector may ask of an accumulated vector.

use crate::kernels::Statistics;

/// A vector after accumulation, seen by a selector: it can be measured, counted and cut, but not touched.
///
/// Elements are ranked by their [`Score`](crate::kernels::Score), ties to the lower position; elements with
/// score 0 are kept only by [`keep_positions`](Survey::keep_positions). A selector asks what it needs and ends with one `keep_…` call; the caller then
/// gets what was kept by [`finish`](Survey::finish). A device answers in whatever way is cheapest for it. The CPU has
/// collected the best elements while it accumulated, and goes back to memory only when asked for more.
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
    fn statistics(&self) -> &Statistics;

    /// How many scores are above `threshold`. Counting may stop beyond `enough`: a larger answer means
    /// "more than `enough`", any answer up to `enough` is exact.
    fn count_above(&mut self, threshold: f32, enough: usize) -> usize;

    /// Every `stride`-th score from element `start` on, appended to `scores`.
    fn sample(&mut self, start: usize, stride: usize, scores: &mut Vec<f32>);

    /// Keeps the scores above `threshold`.
    fn keep_above(&mut self, threshold: f32);

    /// Keeps the `k` best (all non-zero ones, if there are fewer) and returns the lowest score kept.
    fn keep_top(&mut self, k: usize) -> f32;

    /// Keeps the scores above `upper`, and fills up to `k` with a run, in order of position, of those above
    /// `lower`. The run begins at fraction `start` (0 to 1) of the places where it can begin.
    fn keep_band(&mut self, upper: f32, lower: f32, k: usize, start: f64);

    /// Keeps the elements at `positions`, counted from the unit's first element, sorted.
    fn keep_positions(&mut self, positions: &[u32]);

    /// How many are kept.
    fn kept(&self) -> usize;

    /// Ends the selection: appends the positions in the bucket (sorted) and the values of what was kept.
    /// Nothing is changed by that; [`Kernels::clear`](crate::kernels::Kernels::clear) empties the memory there
    /// once the message is made.
    fn finish(self, positions: &mut Vec<u32>, values: &mut Vec<f32>)
    where
        Self: Sized;
}
