//! What probes and steps show of the network.

use super::{ALIKE_DENSITY, Controller, FEWEST_DOUBTS, MOST_DOUBTS, Observation, UNNOTICED, Wish};
use crate::Result;
use crate::adapt::cost::{Load, Network, Ranks};
use crate::adapt::decision::{Decision, Reason};
use crate::adapt::estimate::Shown;
use crate::adapt::price::Model;
use crate::adapt::solve::{Measured, Problem, Solution};
use crate::adapt::{Limits, Solver};

/// Networks on which steps take times that differ by less than this factor are alike.
const ALIKE_NETWORK: f64 = 1.2;

impl Controller {
    /// The network was probed, as wished for.
    pub fn probed(&mut self, step: u64, network: Network) -> Result<Option<Decision>> {
        (self.probing, self.answered_late) = (false, 0);
        self.probed_for = self.choice.number;
        if self.is_alike(network) {
            // It is not the network, so it is what the ways take on it.
            self.doubts = (2 * self.doubts).min(MOST_DOUBTS);
            self.certain_until = step + self.doubts;
            self.learn_anew();
            return Ok(None);
        }
        self.doubts = FEWEST_DOUBTS;
        match self.decide_on_network(step, network)? {
            Wish::Change(decision) => Ok(Some(*decision)),
            _ => Ok(None),
        }
    }

    /// The network by an empty message and a step: what the step took beyond its latency, its bytes took. And whether
    /// that is enough to decide by. A step of many hops says little of its bytes, and neither does one whose way takes
    /// another time than the model says, for nobody knows whether its hops or its bytes do; but where the least and the
    /// most that the bytes can have taken lead to the same choice, nobody needs to know.
    pub(super) fn network_by_echo(&self, seen: &Observation, latency: f64) -> Result<(Network, bool)> {
        let Shown { sum, spread } = self.shown(seen);
        let (load, seconds) = (sum.0 + spread.0, sum.1 + spread.1);
        let rest = seconds - load.hops * latency;
        // Where next to nothing is left, nothing can be said of the bytes but that they took no more than that.
        let little = 0.1 * seconds;
        let seconds_per_byte = match load.bytes > 0.0 {
            true if rest > little => rest / load.bytes,
            true => self.network.seconds_per_byte.min(little / load.bytes),
            false => self.network.seconds_per_byte,
        };
        let as_priced = (seen.sum + seen.spread) / seconds;
        let clear = rest > 0.5 * seconds && (0.8..1.25).contains(&as_priced);
        let network = Network { latency, seconds_per_byte };
        if clear || load.bytes == 0.0 {
            return Ok((network, clear));
        }
        let most = (rest.max(0.0) + 0.25 * seconds.max(seen.sum + seen.spread)) / load.bytes;
        let least = (rest - 0.25 * seconds).max(0.01 * seconds) / load.bytes;
        let at = |seconds_per_byte: f64| Network { latency, seconds_per_byte };
        Ok((network, self.leads_to_the_same(at(least), at(most))?))
    }

    /// Whether the best choice for each of two networks is about as good on the other.
    fn leads_to_the_same(&self, one: Network, other: Network) -> Result<bool> {
        let models = [one, other].map(|network| {
            let wire = self.model.wire.moved(self.network, network);
            Model { wire, ..self.model.clone() }
        });
        // Both solvers find the same, and this is the faster one.
        let limits = Limits { solver: Solver::Grid, ..self.limits.clone() };
        let problems =
            [0, 1].map(|which| Problem { model: &models[which], limits: &limits, ..self.problem() });
        let [mine, theirs] = [self.best_of(&problems[0])?, self.best_of(&problems[1])?];
        let alike = |problem: &Problem<'_>, best: &Solution, instead: &Solution| {
            let seconds = problem.seconds_of(&instead.ways, instead.density);
            seconds - best.seconds < UNNOTICED * (problem.compute + best.seconds)
        };
        Ok(alike(&problems[0], &mine, &theirs)
            && alike(&problems[1], &theirs, &mine)
            && (mine.density / theirs.density).ln().abs() < ALIKE_DENSITY.ln())
    }

    /// Whether steps take about the same time on this network as on the one that is known.
    pub(super) fn is_alike(&self, network: Network) -> bool {
        let before = self.problem().price_of(&self.choice.ways, self.choice.density).sync();
        let mut moved = self.model.clone();
        moved.wire = moved.wire.moved(self.network, network);
        let problem = Problem { model: &moved, ..self.problem() };
        let after = problem.price_of(&self.choice.ways, self.choice.density).sync();
        let near = |ratio: f64, factor: f64| (1.0 / factor..=factor).contains(&ratio);
        let bytes = network.seconds_per_byte / self.network.seconds_per_byte;
        // Latencies of a few microseconds are never alike, and never matter.
        let latency = (network.latency + 1e-4) / (self.network.latency + 1e-4);
        near(after / before, ALIKE_NETWORK) && near(bytes, 2.0) && near(latency, 1.5)
    }

    pub(super) fn decide_on_network(&mut self, step: u64, network: Network) -> Result<Wish> {
        self.model.wire = self.model.wire.moved(self.network, network);
        self.network = network;
        // What was learned on another network is half forgotten.
        self.measured.iter_mut().for_each(|known| known.sync = known.sync.sqrt());
        let solution = self.best_known()?;
        self.learn_anew();
        Ok(self.change_if_worth_it(step, Reason::Network, solution))
    }

    /// What the steps of the choice lay on the network, with the seconds it took; seconds as the model would have
    /// them, so that what a way takes more than the model says does not look like a network.
    pub(super) fn shown(&self, seen: &Observation) -> Shown {
        let ranks: Ranks = self.model.ranks;
        let mut shown = Shown { sum: (Load::default(), 0.0), spread: (Load::default(), 0.0) };
        let buckets = self.choice.ways.iter().zip(&self.buckets);
        let legs = buckets.flat_map(|(way, elements)| self.ways[*way].legs(*elements, seen.density));
        for leg in legs.chain(self.choice.ways.iter().find_map(|way| self.ways[*way].verdict())) {
            let load = leg.collective.load(ranks, leg.bytes);
            match leg.collective.is_sum() {
                true => shown.sum.0 = shown.sum.0 + load,
                false => shown.spread.0 = shown.spread.0 + load,
            }
        }
        let more = self.learned(seen.density);
        (shown.sum.1, shown.spread.1) = (seen.sum / more, seen.spread / more);
        shown
    }

    /// How much longer the choice is known to take on the network than the model says.
    pub(super) fn learned(&self, density: f64) -> f64 {
        let plain = vec![Measured::default(); self.ways.len()];
        let plain =
            Problem { measured: &plain, ..self.problem() }.price_of(&self.choice.ways, density).sync();
        let known = self.problem().price_of(&self.choice.ways, density).sync();
        if plain > 0.0 { known / plain } else { 1.0 }
    }
}
