//! The walk over many ranges by several threads, with the same result for any number of them.
//!
//! The ranges are cut into tiles. A tile's statistics are made by one thread in one order, and tiles are
//! merged in order, so sums do not depend on who did what. Each thread collects into a list of its own.

use std::ops::Range;

use super::candidates::Candidates;
use super::walk::{Accumulate, Add, HeavyBall, Nesterov, Read, Replace, Stop, Strip, walk};
use super::{InstructionSet, lanes};
use crate::kernels::{NonFinite, Score, Statistics, Update, Walk};

/// Elements of a tile: 1 MiB, long enough to keep the memory busy, short enough to share out evenly.
const TILE: usize = 1 << 18;

/// Borrowed vectors that begin at position `base` of the bucket. Those a walk does not touch are empty.
pub(super) struct View<'a> {
    pub base: usize,
    pub gradient: &'a [f32],
    pub residual: &'a mut [f32],
    pub momentum: &'a mut [f32],
    pub weights: &'a [f32],
}

impl<'a> View<'a> {
    /// Values to be read only, handed to the walk as its gradient.
    pub fn of(values: &'a [f32], weights: &'a [f32]) -> View<'a> {
        View { base: 0, gradient: values, residual: &mut [], momentum: &mut [], weights }
    }

    /// What the update of `walk` touches, from the first element of the bucket on.
    pub fn whole<'w: 'a>(walk: &'a mut Walk<'w, [f32], [f32]>) -> View<'a> {
        let weights = walk.weights.unwrap_or(&[]);
        match walk.update {
            Update::Keep => View::of(walk.residual, weights),
            Update::Add | Update::Replace => {
                View { base: 0, gradient: walk.gradient, residual: walk.residual, momentum: &mut [], weights }
            }
            Update::HeavyBall(_) | Update::Nesterov(_) => View {
                base: 0,
                gradient: walk.gradient,
                residual: walk.residual,
                momentum: walk.momentum.as_deref_mut().expect("an update with momentum has one"),
                weights,
            },
        }
    }

    pub fn reborrow(&mut self) -> View<'_> {
        View {
            base: self.base,
            gradient: self.gradient,
            residual: self.residual,
            momentum: self.momentum,
            weights: self.weights,
        }
    }

    fn split(self, at: usize) -> (View<'a>, View<'a>) {
        let split = |values: &'a [f32]| values.split_at(if values.is_empty() { 0 } else { at });
        let split_mut = |values: &'a mut [f32]| {
            let at = if values.is_empty() { 0 } else { at };
            values.split_at_mut(at)
        };
        let (gradient, residual) = (split(self.gradient), split_mut(self.residual));
        let (momentum, weights) = (split_mut(self.momentum), split(self.weights));
        let (l, r) = (
            (gradient.0, residual.0, momentum.0, weights.0),
            (gradient.1, residual.1, momentum.1, weights.1),
        );
        (
            View { base: self.base, gradient: l.0, residual: l.1, momentum: l.2, weights: l.3 },
            View { base: self.base + at, gradient: r.0, residual: r.1, momentum: r.2, weights: r.3 },
        )
    }

    fn strip(&mut self, tile: &Range<usize>) -> Strip<'_> {
        let piece = tile.start - self.base..tile.end - self.base;
        let cut = |values: &'a [f32]| if values.is_empty() { values } else { &values[piece.clone()] };
        let cut_mut = |values: &'_ mut [f32]| if values.is_empty() { 0..0 } else { piece.clone() };
        let (residual, momentum) = (cut_mut(self.residual), cut_mut(self.momentum));
        Strip {
            first: tile.start,
            gradient: cut(self.gradient),
            residual: &mut self.residual[residual],
            momentum: &mut self.momentum[momentum],
            weights: cut(self.weights),
        }
    }
}

/// What a walk does to each element.
#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    Update(Update, f32),
    Read,
}

/// A walk, but for the vectors: the same for all threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub set: InstructionSet,
    pub task: Task,
    pub score: Score,
}

/// One thread's share of a walk.
#[derive(Debug, Default, Clone)]
pub(super) struct Part {
    pub candidates: Candidates,
    /// Tiles given to it, how many it finished, and where it stopped in the next one.
    pub tiles: Range<usize>,
    pub finished: usize,
    pub stop: Option<Stop>,
}

/// Cuts ranges into tiles, in order.
pub(super) fn tile(ranges: &[Range<usize>], tiles: &mut Vec<Range<usize>>) {
    tiles.clear();
    for range in ranges {
        tiles.extend(range.clone().step_by(TILE).map(|start| start..range.end.min(start + TILE)));
    }
}

/// Walks all tiles, sharing them among the parts. `statistics` has one entry for each tile.
pub(super) fn spread(
    work: Work,
    view: View<'_>,
    tiles: &[Range<usize>],
    first_tile: usize,
    statistics: &mut [Statistics],
    parts: &mut [Part],
) {
    let [part] = parts else {
        let half = parts.len() / 2;
        let elements: usize = tiles.iter().map(Range::len).sum();
        let share = (elements as u128 * half as u128 / parts.len() as u128) as usize;
        let mut seen = 0;
        let at = tiles.iter().position(|tile| {
            seen += tile.len();
            seen > share
        });
        let at = at.unwrap_or(tiles.len());
        let border = tiles.get(at).map_or(tiles.last().map_or(view.base, |tile| tile.end), |tile| tile.start);
        let base = view.base;
        let (left, right) = view.split(border - base);
        let (left_tiles, right_tiles) = tiles.split_at(at);
        let (left_statistics, right_statistics) = statistics.split_at_mut(at);
        let (left_parts, right_parts) = parts.split_at_mut(half);
        rayon::join(
            || spread(work, left, left_tiles, first_tile, left_statistics, left_parts),
            || spread(work, right, right_tiles, first_tile + at, right_statistics, right_parts),
        );
        return;
    };
    part.tiles = first_tile..first_tile + tiles.len();
    part.finished = 0;
    part.stop = None;
    let mut view = view;
    for (tile, statistics) in tiles.iter().zip(statistics) {
        match work.run(view.strip(tile), &mut part.candidates) {
            Ok(measured) => *statistics = measured,
            Err(stop) => {
                part.stop = Some(stop);
                return;
            }
        }
        part.finished += 1;
    }
}

/// The first non-finite value of any part.
pub(super) fn first_stop(parts: &[Part]) -> Option<NonFinite> {
    parts.iter().filter_map(|part| part.stop.map(|stop| stop.found)).min_by_key(|found| found.position)
}

impl Work {
    fn run(self, strip: Strip<'_>, list: &mut Candidates) -> Result<Statistics, Stop> {
        match self.task {
            Task::Read | Task::Update(Update::Keep, _) => self.choose(Read, strip, list),
            Task::Update(Update::Add, scale) => self.choose(Add { scale }, strip, list),
            Task::Update(Update::Replace, scale) => self.choose(Replace { scale }, strip, list),
            Task::Update(Update::HeavyBall(coefficient), scale) => {
                self.choose(HeavyBall { scale, coefficient }, strip, list)
            }
            Task::Update(Update::Nesterov(coefficient), scale) => {
                self.choose(Nesterov { scale, coefficient }, strip, list)
            }
        }
    }

    fn choose<R: Accumulate>(
        self,
        how: R,
        strip: Strip<'_>,
        list: &mut Candidates,
    ) -> Result<Statistics, Stop> {
        match self.score {
            Score::Relative { .. } => compiled::<R, true>(self.set, how, self.score, strip, list),
            _ => compiled::<R, false>(self.set, how, self.score, strip, list),
        }
    }
}

fn compiled<R: Accumulate, const RELATIVE: bool>(
    set: InstructionSet,
    how: R,
    score: Score,
    strip: Strip<'_>,
    list: &mut Candidates,
) -> Result<Statistics, Stop> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        fn avx512<R: Accumulate, const RELATIVE: bool>(
            how: R,
            score: Score,
            strip: Strip<'_>,
            list: &mut Candidates,
        ) -> Result<Statistics, Stop> {
            walk::<lanes::avx512::Avx512, R, RELATIVE>(how, score, strip, list)
        }
        #[target_feature(enable = "avx2")]
        fn avx2<R: Accumulate, const RELATIVE: bool>(
            how: R,
            score: Score,
            strip: Strip<'_>,
            list: &mut Candidates,
        ) -> Result<Statistics, Stop> {
            walk::<lanes::avx2::Avx2, R, RELATIVE>(how, score, strip, list)
        }
        match set {
            // SAFETY: `InstructionSet::detect` makes these two only when the machine has them.
            InstructionSet::Avx512 => return unsafe { avx512::<R, RELATIVE>(how, score, strip, list) },
            // SAFETY: as above.
            InstructionSet::Avx2 => return unsafe { avx2::<R, RELATIVE>(how, score, strip, list) },
            InstructionSet::Portable => {}
        }
    }
    walk::<lanes::portable::Portable, R, RELATIVE>(how, score, strip, list)
}
