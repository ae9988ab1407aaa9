//! A unit after the walk, on the CPU: answers come from the candidates, and only a question that goes
//! below them leads to another (reading) walk.

use std::ops::Range;

use super::candidates::Candidates;
use super::spread::{Task, View};
use super::{Cpu, Guess, NonFinite, Score, Statistics, Walk};
use crate::select::Survey;

/// The answer to [`Kernels::survey`](crate::kernels::Kernels::survey) on the CPU.
#[derive(Debug)]
pub struct CpuSurvey<'a> {
    cpu: &'a mut Cpu,
    walk: Walk<'a, [f32]>,
    ranges: &'a [Range<usize>],
    guess: &'a mut Guess,
    statistics: Statistics,
    /// The best this many are surely among the candidates.
    expect: usize,
    /// For the guess: what the walk found, and the deepest that was needed.
    found: usize,
    found_from: f32,
    missed: bool,
    needed: usize,
    score_needed: f32,
}

impl<'a> CpuSurvey<'a> {
    pub(super) fn new(
        cpu: &'a mut Cpu,
        walk: Walk<'a, [f32]>,
        ranges: &'a [Range<usize>],
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<Self, NonFinite> {
        let mut walk = walk;
        let floor = guess.floor;
        let task = Task::Update(walk.update, walk.scale);
        let statistics = cpu.walk_all(task, walk.score, View::whole(&mut walk), ranges, expect, floor)?;
        let mut survey = CpuSurvey {
            cpu,
            walk,
            ranges,
            guess,
            statistics,
            expect,
            found: 0,
            found_from: 0.0,
            missed: false,
            needed: 0,
            score_needed: 0.0,
        };
        survey.note_found();
        Ok(survey)
    }

    fn list(&mut self) -> &mut Candidates {
        &mut self.cpu.parts[0].candidates
    }

    fn note_found(&mut self) {
        let list = &self.cpu.parts[0].candidates;
        (self.found, self.found_from) = (list.len(), list.floor());
    }

    fn note_needed(&mut self, count: usize, score: f32) {
        if count > self.needed {
            (self.needed, self.score_needed) = (count, score);
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

    fn score_of(&self, position: usize) -> f32 {
        let value = self.walk.residual[position];
        match self.walk.score {
            Score::Magnitude => value.abs(),
            Score::Positive => value.max(0.0),
            Score::Negative => (-value).max(0.0),
            Score::Relative { guard } => {
                let weight = self.walk.weights.map_or(0.0, |weights| weights[position].abs());
                value.abs() / if weight > guard { weight } else { guard }
            }
        }
    }
}

impl Survey for CpuSurvey<'_> {
    fn len(&self) -> usize {
        self.statistics.count
    }

    fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    fn count_above(&mut self, threshold: f32, enough: usize) -> usize {
        let count = self.reach(threshold, enough);
        if count <= enough {
            self.note_needed(count, threshold);
        }
        count
    }

    fn sample(&mut self, start: usize, stride: usize, scores: &mut Vec<f32>) {
        let mut next = start;
        let mut before = 0;
        for range in self.ranges {
            while next < before + range.len() {
                scores.push(self.score_of(range.start + next - before));
                next += stride;
            }
            before += range.len();
        }
    }

    fn keep_above(&mut self, threshold: f32) {
        let count = self.reach(threshold, self.statistics.count);
        self.note_needed(count, threshold);
        self.list().retain_above(threshold);
    }

    fn keep_top(&mut self, k: usize) -> f32 {
        self.reach_top(k);
        let lowest = self.list().retain_best(k);
        let kept = self.list().len();
        self.note_needed(kept, lowest);
        lowest
    }

    fn keep_band(&mut self, upper: f32, lower: f32, k: usize, start: f64) {
        let above_lower = self.reach(lower, self.statistics.count);
        self.note_needed(above_lower, lower);
        let list = self.list();
        let above = list.count_above(upper);
        let band = list.count_above(lower) - above;
        let room = k.saturating_sub(above).min(band);
        let first = ((band - room) as f64 * start).round() as usize;
        list.retain_above(lower);
        let mut seen = 0;
        list.retain_with(|score| {
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
        let in_bucket = positions.iter().map(|&position| {
            while position as usize >= end {
                let range = ranges.next().expect("a position inside the unit");
                (start, before) = (range.start, end);
                end += range.len();
            }
            (start + position as usize - before) as u32
        });
        self.cpu.parts[0].candidates.replace(in_bucket);
    }

    fn kept(&self) -> usize {
        self.cpu.parts[0].candidates.len()
    }

    fn finish(self, positions: &mut Vec<u32>, values: &mut Vec<f32>) {
        let kept = self.cpu.parts[0].candidates.positions();
        positions.extend_from_slice(kept);
        values.extend(kept.iter().map(|&position| self.walk.residual[position as usize]));
        self.guess.learn(self.needed, self.score_needed, self.found, self.found_from, self.missed);
    }
}
