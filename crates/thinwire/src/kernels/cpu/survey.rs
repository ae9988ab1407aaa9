//! A unit after the walk, on the CPU: answers come from the candidates, and only a question that goes
//! below them leads to another (reading) walk.

use std::ops::Range;

use super::candidates::Candidates;
use super::spread::{Task, View};
use super::{Cpu, NonFinite, Score, Statistics};
use crate::kernels::{Guess, Update, Walk};
use crate::select::Survey;

/// The answer to [`Kernels::survey`](crate::kernels::Kernels::survey) on the CPU.
#[derive(Debug)]
pub struct CpuSurvey<'a> {
    cpu: &'a mut Cpu,
    walk: Walk<'a, [f32], [f32]>,
    ranges: &'a [Range<usize>],
    guess: &'a mut Guess,
    statistics: Statistics,
    /// For a survey of frequencies: both parts of each, which are sent in the place of the magnitude.
    parts: Option<&'a [f32]>,
    /// The lowest score that `keep_top` kept.
    lowest: f32,
    /// The best this many are surely among the candidates.
    expect: usize,
    /// For the guess: how many the walk found from which score on, whether that was too few, the most that
    /// had to be at hand, and the deepest point of the tail that is known.
    found: (usize, f32),
    missed: bool,
    needed: usize,
    known: (usize, f32),
}

impl<'a> CpuSurvey<'a> {
    pub(super) fn new(
        cpu: &'a mut Cpu,
        walk: Walk<'a, [f32], [f32]>,
        ranges: &'a [Range<usize>],
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<Self, NonFinite> {
        let mut walk = walk;
        let relative = matches!(walk.score, Score::Relative { .. });
        assert!(!relative || walk.weights.is_some(), "Score::Relative needs the weights");
        if guess.floor == 0.0 {
            guess.floor = sampled_floor(&walk, ranges, expect, &mut cpu.sample);
        }
        let floor = guess.floor;
        let task = Task::Update(walk.update, walk.scale);
        let statistics = cpu.walk_all(task, walk.score, View::whole(&mut walk), ranges, expect, floor)?;
        let mut survey = CpuSurvey {
            cpu,
            walk,
            ranges,
            guess,
            statistics,
            parts: None,
            lowest: 0.0,
            expect,
            found: (0, 0.0),
            missed: false,
            needed: 0,
            known: (0, 0.0),
        };
        survey.note_found();
        Ok(survey)
    }

    /// The same survey, of bins whose parts are `parts`.
    pub(super) fn with_parts(self, parts: &'a [f32]) -> Self {
        CpuSurvey { parts: Some(parts), ..self }
    }

    /// Appends what was kept, and learns where to cut in the next step.
    pub(super) fn finish(self, positions: &mut Vec<u32>, values: &mut Vec<f32>) -> Statistics {
        let list = &self.cpu.parts[0].candidates;
        let (room, width) = (self.expect.max(list.len()), if self.parts.is_some() { 2 } else { 1 });
        positions.reserve(room);
        values.reserve(width * room);
        positions.extend_from_slice(list.positions());
        match self.parts.map(|parts| parts.as_chunks::<2>().0) {
            None => values.extend_from_slice(list.values()),
            Some(pairs) => values.extend(list.positions().iter().flat_map(|&bin| pairs[bin as usize])),
        }
        self.guess.learn(self.needed, self.known, self.found, self.missed);
        self.statistics
    }

    fn list(&mut self) -> &mut Candidates {
        &mut self.cpu.parts[0].candidates
    }

    fn note_found(&mut self) {
        let list = &self.cpu.parts[0].candidates;
        self.found = (list.len(), list.floor());
    }

    /// Notes that `count` elements lie from `score` on.
    fn note_known(&mut self, count: usize, score: f32) {
        self.needed = self.needed.max(count);
        if count > self.known.0 {
            self.known = (count, score);
        }
    }

    /// Walks the accumulated values again, collecting from `floor` on.
    fn look_again(&mut self, expect: usize, floor: f32) {
        self.missed = true;
        self.expect = expect;
        let view = View::of(self.walk.residual, self.walk.weights.unwrap_or(&[]));
        self.cpu
            .walk_all(Task::Read, self.walk.score, view, self.ranges, expect, floor)
            .expect("the accumulated values were found finite");
        self.note_found();
    }

    /// Makes the list complete above `threshold`, or longer than `enough` there; returns the count above.
    fn reach(&mut self, threshold: f32, enough: usize) -> usize {
        let floor = if threshold < 0.0 { 0.0 } else { threshold.next_up() };
        let known = self.list().count_above(threshold);
        if known > enough || floor >= self.list().floor() {
            return known;
        }
        self.look_again(self.expect.max(enough.min(self.statistics.count).saturating_add(1)), floor);
        self.list().count_above(threshold)
    }

    /// Makes sure the best `k` are in the list.
    fn reach_top(&mut self, k: usize) {
        let k = k.min(self.statistics.count);
        if k <= self.expect && self.list().len() >= k {
            return;
        }
        // First a little lower, where the tail says twice as many lie; then, if need be, from zero.
        let found = self.list().len().max(1);
        let lower = self.list().floor() * (2.0 * k as f32 / found as f32).powf(-1.0 / self.guess.steepness);
        for floor in [lower, 0.0] {
            if self.list().floor() <= f32::from_bits(1) && k <= self.expect {
                return;
            }
            self.look_again(self.expect.max(k), floor);
            if self.list().len() >= k {
                return;
            }
        }
    }
}

/// The score of the value `accumulated` at a position.
fn score_of(walk: &Walk<'_, [f32], [f32]>, position: usize, accumulated: f32) -> f32 {
    match walk.score {
        Score::Magnitude => accumulated.abs(),
        Score::Positive => accumulated.max(0.0),
        Score::Negative => (-accumulated).max(0.0),
        Score::Relative { guard } => {
            let weight = walk.weights.map_or(0.0, |weights| weights[position].abs());
            accumulated.abs() / if weight > guard { weight } else { guard }
        }
    }
}

/// A first guess where the best `expect` elements begin, from a sample of what the walk will make; 0, which
/// collects from the start, where a sample would say too little.
///
/// Without it the first step would still be right, but slower and with longer lists.
fn sampled_floor(
    walk: &Walk<'_, [f32], [f32]>,
    ranges: &[Range<usize>],
    expect: usize,
    scores: &mut Vec<f32>,
) -> f32 {
    let elements: usize = ranges.iter().map(Range::len).sum();
    let size = (elements / 256).clamp(4096, 1 << 15);
    let tail = (size as f64 * expect as f64 / elements as f64 * 1.5) as usize + 8;
    if elements < 16 * size || tail > size / 4 || expect == 0 {
        return 0.0;
    }
    let momentum = |position: usize| walk.momentum.as_deref().map_or(0.0, |momentum| momentum[position]);
    let sample = |position: usize| {
        let residual = walk.residual[position];
        let gradient = if walk.update == Update::Keep { 0.0 } else { walk.gradient[position] * walk.scale };
        let accumulated = match walk.update {
            Update::Keep => residual,
            Update::Add => residual + gradient,
            Update::Replace => gradient,
            Update::HeavyBall(c) => residual + (momentum(position) * c + gradient),
            Update::Nesterov(c) => residual + ((momentum(position) + gradient) * c + gradient),
        };
        score_of(walk, position, accumulated)
    };
    // Runs of one cache line, evenly spaced.
    let stride = elements / (size / 16);
    scores.clear();
    let (mut before, mut next) = (0, 0);
    for range in ranges {
        while next < before + range.len() {
            let first = range.start + next - before;
            scores.extend((first..range.end.min(first + 16)).map(sample));
            next += stride;
        }
        before += range.len();
    }
    let at = scores.len().saturating_sub(tail);
    *scores.select_nth_unstable_by(at, f32::total_cmp).1
}

impl Survey for CpuSurvey<'_> {
    fn len(&self) -> usize {
        self.statistics.count
    }

    fn start(&self) -> usize {
        self.ranges.first().map_or(0, |range| range.start)
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }

    fn count_above(&mut self, threshold: f32, enough: usize) -> usize {
        let count = self.reach(threshold, enough);
        if count <= enough {
            self.note_known(count, threshold);
        } else {
            // To know that there are too many, one more than enough had to be at hand.
            self.needed = self.needed.max(enough + 1);
        }
        count
    }

    fn sample(&mut self, start: usize, stride: usize, scores: &mut Vec<f32>) {
        let mut next = start;
        let mut before = 0;
        for range in self.ranges {
            while next < before + range.len() {
                let position = range.start + next - before;
                scores.push(score_of(&self.walk, position, self.walk.residual[position]));
                next += stride;
            }
            before += range.len();
        }
    }

    fn keep_above(&mut self, threshold: f32) {
        let count = self.reach(threshold, self.statistics.count);
        self.note_known(count, threshold);
        self.list().retain_above(threshold);
    }

    fn keep_top(&mut self, k: usize) {
        self.reach_top(k);
        self.lowest = self.list().retain_best(k);
        let kept = self.list().len();
        self.note_known(kept, self.lowest);
    }

    fn lowest_kept(&mut self) -> f32 {
        self.lowest
    }

    fn keep_band(&mut self, upper: f32, lower: f32, k: usize, start: f64) {
        let above_lower = self.reach(lower, self.statistics.count);
        self.note_known(above_lower, lower);
        let list = self.list();
        let above = list.count_above(upper);
        let band = list.count_above(lower) - above;
        let room = k.saturating_sub(above).min(band);
        let first = ((band - room) as f64 * start).round() as usize;
        list.retain_above(lower);
        let mut seen = 0;
        list.retain(|_, score| {
            if score > upper {
                return true;
            }
            seen += 1;
            (first..first + room).contains(&(seen - 1))
        });
    }

    fn keep_positions(&mut self, positions: &[u32]) {
        let mut ranges = self.ranges.iter();
        let (mut start, mut before, mut end) = (0, 0, 0);
        let residual = &*self.walk.residual;
        let elements = positions.iter().map(|&position| {
            while position as usize >= end {
                let range = ranges.next().expect("a position inside the unit");
                (start, before) = (range.start, end);
                end += range.len();
            }
            let in_bucket = start + position as usize - before;
            (in_bucket as u32, residual[in_bucket])
        });
        self.cpu.parts[0].candidates.replace(elements);
    }

    fn kept(&mut self) -> usize {
        self.cpu.parts[0].candidates.len()
    }
}
