//! What steps show of the ways: how long each takes against the model, and how long a step is without.

use super::{Controller, Observation, SETTLE, Wish};
use crate::Result;
use crate::adapt::decision::Reason;
use crate::adapt::solve::Measured;

/// Steps behind the first ones after a change in which a way shows how long it takes.
pub(super) const STEPS: u64 = 6;
/// How far a way may be from the model before the network is doubted.
const DOUBT: f64 = 1.6;
/// How far it may be at most: where ranks share cores, what is left of a short message is waiting for one's turn.
const FARTHEST: f64 = 20.0;
/// Seconds of a step apart from synchronising, before any was seen: so short that a slow network is not sent a whole
/// model to find out, and long enough that a fast one is not compressed for.
const UNKNOWN_COMPUTE: f64 = 0.02;

impl Controller {
    /// The steps since a change show how long the ways take that are in use.
    pub(super) fn learn(&mut self, seen: &Observation) -> Result<Option<Wish>> {
        // The mean of the two in the middle: the steps are few, and an even number.
        let median = |of: fn(&Measured) -> f64, ratios: &[Measured]| {
            let mut all: Vec<f64> = ratios.iter().map(of).filter(|ratio| ratio.is_finite()).collect();
            all.sort_unstable_by(f64::total_cmp);
            let middle = all.get((all.len().max(1) - 1) / 2).zip(all.get(all.len() / 2));
            middle.map_or(1.0, |(low, high)| 0.5 * (low + high))
        };
        let sync = median(|ratio| ratio.sync, &self.ratios);
        let work = median(|ratio| ratio.work, &self.ratios).clamp(1.0 / FARTHEST, FARTHEST);
        let unlikely = !(1.0 / DOUBT..=DOUBT).contains(&sync);
        if unlikely && self.probed_for != self.choice.number && !self.probing {
            // Rather the network than the model: but only once for a choice.
            self.since -= STEPS;
            self.ratios.clear();
            return Ok(Some(self.wish(Wish::Probe)));
        }
        let sync = sync.clamp(1.0 / FARTHEST, FARTHEST);
        let mut used = self.choice.ways.clone();
        used.sort_unstable();
        used.dedup();
        let matters = [sync, work].iter().any(|ratio| (ratio - 1.0).abs() > 0.1);
        for way in used {
            let known = &mut self.measured[way];
            known.sync = (known.sync * sync).clamp(1.0 / FARTHEST, FARTHEST);
            known.work *= work;
        }
        self.watch.reset();
        // The first steps also show how long a step is, of which something might be saved.
        let first = !std::mem::replace(&mut self.compute_known, true);
        if !(matters || first) || seen.warming {
            return Ok(None);
        }
        let solution = self.best_known()?;
        let wish = self.change_if_worth_it(seen.step, Reason::Time, solution);
        Ok(Some(wish).filter(|wish| matches!(wish, Wish::Change(decision) if decision.changes)))
    }

    /// The next steps show how long the ways take.
    pub(super) fn learn_anew(&mut self) {
        self.since = SETTLE;
        self.ratios.clear();
        self.watch.reset();
    }

    /// The median of the last steps: one in which a model was saved or tested does not count.
    pub(super) fn note_compute(&mut self, seen: &Observation) {
        let rest = seen.interval - seen.sum - seen.spread - seen.work;
        if rest.is_finite() {
            if self.computes.len() == 9 {
                self.computes.remove(0);
            }
            self.computes.push(rest.max(0.0));
        }
    }

    /// Seconds of a step apart from synchronising.
    pub(super) fn compute(&self) -> f64 {
        let mut sorted = self.computes.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(UNKNOWN_COMPUTE)
    }
}
