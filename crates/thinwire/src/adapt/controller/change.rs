//! Whether a change is worth it, and the decision that says so.

use super::{ALIKE_DENSITY, Controller, Wish};
use crate::adapt::decision::{Choice, Decision, Reason};
use crate::adapt::solve::{MARGIN, SMALL_MARGIN, Solution};

/// Ways whose time differs by less than this part of a step are alike.
const ALIKE: f64 = 0.05;
/// Each change makes the next one harder for so many steps, up to this factor: where times vary by themselves, as on
/// machines with more ranks than cores, one choice after the other would look better than it is.
const RESTLESS: u64 = 100;
const MOST_RESTLESS: f64 = 1.5;

impl Controller {
    /// By how much harder than usual a change is, because there were others not long ago.
    pub(super) fn restlessness(&self, step: u64) -> f64 {
        let recent = self.changed_at.iter().filter(|at| **at + RESTLESS > step).count();
        MOST_RESTLESS.powi(recent.saturating_sub(1).min(4) as i32)
    }

    /// A solution becomes the choice, unless what there is is about as good.
    pub(super) fn change_if_worth_it(&mut self, step: u64, reason: Reason, solution: Solution) -> Wish {
        let problem = self.problem();
        let now = problem.seconds_of(&self.choice.ways, self.warmed(self.choice.density));
        let compresses = |ways: &[usize]| ways.iter().any(|way| !self.ways[*way].is_dense());
        // Bits of the values that are rounded most, where everything is sent.
        let bits = |ways: &[usize]| {
            let bits = ways.iter().filter_map(|way| self.ways[*way].bits());
            bits.fold(f64::INFINITY, f64::min)
        };
        let calm = self.restlessness(step);
        let worth_it = match (compresses(&self.choice.ways), compresses(&solution.ways)) {
            // The margin is crossed one way at its full height and the other way at half of it.
            (false, true) => {
                solution.full_seconds - solution.seconds
                    > calm * MARGIN * (problem.compute + solution.full_seconds)
                    || solution.full_seconds.is_infinite()
            }
            (true, false) => {
                solution.full_seconds - now < 0.5 * MARGIN * (problem.compute + solution.full_seconds)
            }
            // Sending everything in fewer bits, or in more of them again, likewise.
            (false, false) if bits(&self.choice.ways) != bits(&solution.ways) => {
                let whole = problem.compute + now;
                match bits(&solution.ways) > bits(&self.choice.ways) {
                    true => solution.seconds - now < 0.5 * SMALL_MARGIN * whole,
                    false => now - solution.seconds > calm * SMALL_MARGIN * whole,
                }
            }
            (compressed, _) => {
                let other_density = (solution.density / self.choice.density).ln().abs() > ALIKE_DENSITY.ln();
                let other_time = (now - solution.seconds).abs() > calm * ALIKE * (problem.compute + now);
                // Densities that are nearly alike may still be far apart in time.
                let far_apart = (now - solution.seconds).abs() > 2.0 * ALIKE * (problem.compute + now);
                solution.ways != self.choice.ways && other_time || compressed && (other_density || far_apart)
            }
        };
        Wish::Change(Box::new(self.adopt(step, reason, solution, worth_it)))
    }

    /// The decision, and the choice if it `changes` something.
    pub(super) fn adopt(&mut self, step: u64, reason: Reason, solution: Solution, changes: bool) -> Decision {
        if changes {
            self.choice = Choice {
                number: self.choice.number + 1,
                ways: solution.ways.clone(),
                density: solution.density,
            };
            self.changed_at.retain(|at| *at + RESTLESS > step);
            if reason != Reason::Start {
                self.changed_at.push(step);
            }
            // An answer that is still under way belongs to another choice.
            (self.probing, self.answered_late) = (false, 0);
            self.learn_anew();
            (self.since, self.usual_gain) = (0, None);
            self.gain.clear();
            self.shares.clear();
        }
        let problem = self.problem();
        let dense = self.choice.ways.iter().all(|way| self.ways[*way].is_dense());
        let mut ways: Vec<(String, usize)> = Vec::new();
        for way in &self.choice.ways {
            let name = self.ways[*way].to_string();
            match ways.iter_mut().find(|(known, _)| *known == name) {
                Some((_, buckets)) => *buckets += 1,
                None => ways.push((name, 1)),
            }
        }
        let second = solution.second.map(|(way, seconds)| (self.ways[way].to_string(), seconds));
        Decision {
            step,
            number: self.choice.number,
            reason,
            network: self.network,
            compute: if self.computes.is_empty() { 0.0 } else { problem.compute },
            density: if dense { 1.0 } else { self.choice.density },
            gain: if dense { 1.0 } else { self.curve.at(self.warmed(self.choice.density)) },
            seconds: problem.seconds_of(&self.choice.ways, self.warmed(self.choice.density)),
            dense_seconds: Some(solution.dense_seconds).filter(|seconds| seconds.is_finite()),
            second,
            gains: self.explored.then(|| self.curve.gains()),
            ways,
            residual: None,
            changes,
        }
    }
}
