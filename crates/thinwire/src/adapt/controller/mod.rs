//! The controller: what has been measured goes in, decisions come out.
//!
//! It does nothing else: it asks nobody, sends nothing and reads no clock, so that what drives it may be a training, a
//! [simulation](super::simulate) or a test. One rank has it; what it chooses travels to all others with what travels anyway, and all of them
//! change in the same step.
//!
//! | what it sees | what it does |
//! |---|---|
//! | the first step | wishes for the gains to be measured, if compressing could pay |
//! | steps by a new way that take another time than the model says | notes by how much; searches again if it matters |
//! | several steps in a row that take another time than before | the network changed: finds both of its numbers from the times, or wishes to know the latency, and the bandwidth where that does not settle it; searches again, without measuring gains |
//! | a gain that is a tenth off what it was | wishes for the gains to be measured; then searches again |
//! | steps that send next to nothing of what has gathered | the residual runs away: raises the density, and the next time gives sparse methods up |
//! | a warm-up that has come to another density | finds the fastest ways for that |
//!
//! A change has to be worth it: what would save less than a twentieth of a step at about the same density stays as it
//! is.

mod change;
mod learn;
mod network;
mod residual;

use super::cost::Network;
use super::decision::{Choice, Decision, Reason};
use super::estimate::{Shown, Verdict, Watch};
use super::gain::{Curve, Ewma};
use super::price::{Model, Way};
use super::solve::{Measured, Problem, Solution};
use super::{Limits, gain};
use crate::Result;

/// Steps after a change that are not looked at: memory is emptied, buffers grow.
const SETTLE: u64 = 2;
/// The gain has changed when it is this far from what it was: the paper's tenth.
const GAIN_CHANGE: f64 = 0.1;
/// Fewest steps from one measurement of the gains to the next; twice as many each time that nothing came of it.
const PATIENCE: u64 = 50;
/// Densities that differ by less than this factor are alike.
const ALIKE_DENSITY: f64 = 1.25;
/// A part of a step that nobody would notice.
const UNNOTICED: f64 = 0.05;
/// For how many steps a probe is believed that found nothing new: at first, and at most.
const FEWEST_DOUBTS: u64 = 5;
const MOST_DOUBTS: u64 = 320;

/// What one step showed, over all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observation {
    /// The step.
    pub step: u64,
    /// The number of the choice it went by.
    pub number: u32,
    /// Seconds of its sums, without waiting for ranks that came late.
    pub sum: f64,
    /// Seconds of its gathers and broadcasts, likewise.
    pub spread: f64,
    /// Seconds of work, on average.
    pub work: f64,
    /// Seconds from the end of the step before to its own.
    pub interval: f64,
    /// The share of the energy it sent of the buckets of which a part was selected, on average.
    pub gain: f64,
    /// The density it went by, which a warm-up may hold above the chosen one.
    pub density: f64,
    /// Whether a warm-up did.
    pub warming: bool,
    /// Seconds of an empty message to everybody right behind the step, if one was wished for.
    pub echo: Option<f64>,
}

/// What a controller wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// Nothing.
    Nothing,
    /// To know the latency: an empty message behind a step.
    Probe,
    /// To know the bandwidth too: a handful of messages behind a step.
    Look,
    /// That the gains are measured.
    Explore,
    /// That all ranks go by a new choice.
    Change(Box<Decision>),
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Controller {
    limits: Limits,
    ways: Vec<Way>,
    measured: Vec<Measured>,
    buckets: Vec<f64>,
    model: Model,
    network: Network,
    curve: Curve,
    explored: bool,
    computes: Vec<f64>,
    watch: Watch,
    choice: Choice,
    /// Steps by this choice.
    since: u64,
    ratios: Vec<Measured>,
    gain: Ewma,
    /// The gain of the choice when it had settled.
    usual_gain: Option<f64>,
    last_explored: u64,
    patience: u64,
    /// What has been wished for and not come yet.
    probing: bool,
    exploring: bool,
    /// Steps since the answer to a probe was wished for.
    answered_late: u64,
    probed_for: u32,
    /// For how many steps a probe that found nothing new is believed, and until which step that is.
    doubts: u64,
    certain_until: u64,
    /// The density that a warm-up holds above the chosen one, and the one that ways were last chosen for because of that.
    warm: Option<f64>,
    warm_priced: Option<f64>,
    /// Whether a search has seen how long a step takes.
    compute_known: bool,
    /// The steps after which a choice was changed.
    changed_at: Vec<u64>,
    /// The shares of the energy that the last steps sent, while they are too small.
    shares: Vec<f64>,
    /// Whether only ways that send everything may be chosen, because a residual ran away.
    full_only: bool,
    /// Whether nothing more can be done about a residual that runs away.
    powerless: bool,
}

impl Controller {
    /// For buckets of these lengths, on ranks that a probe has found to be connected like this.
    pub fn new(limits: &Limits, lengths: &[usize], ranks: usize, network: Network) -> Result<Controller> {
        let ways = limits.ways()?;
        let model = Model::new(ranks, network);
        Ok(Controller {
            measured: vec![Measured::default(); ways.len()],
            limits: limits.clone(),
            ways,
            buckets: lengths.iter().map(|length| *length as f64).collect(),
            model,
            network,
            curve: Curve::default(),
            explored: false,
            computes: Vec::new(),
            watch: Watch::default(),
            choice: Choice::default(),
            since: 0,
            ratios: Vec::new(),
            gain: Ewma::default(),
            usual_gain: None,
            last_explored: 0,
            patience: PATIENCE,
            probing: false,
            exploring: false,
            answered_late: 0,
            probed_for: 0,
            doubts: FEWEST_DOUBTS,
            certain_until: 0,
            warm: None,
            warm_priced: None,
            compute_known: false,
            changed_at: Vec::new(),
            shares: Vec::new(),
            full_only: false,
            powerless: false,
        })
    }

    /// What all ranks go by.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What may be chosen.
    pub fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// The network, as far as known.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The first decision, before anything is known of the gradients: the fastest at the largest density, or at that of
    /// a warm-up if it begins above.
    pub fn start(&mut self, step: u64, warmup: f64) -> Decision {
        let density = if self.problem().selects() { self.limits.max_density } else { 1.0 };
        self.warm = Some(warmup).filter(|warm| *warm > density);
        self.warm_priced = self.warm;
        let solution = self.at(&self.problem(), density);
        self.adopt(step, Reason::Start, solution, true)
    }

    /// Other buckets with the same elements in all.
    pub fn relayout(&mut self, step: u64, lengths: &[usize]) -> Decision {
        self.buckets = lengths.iter().map(|length| *length as f64).collect();
        let solution = self.at(&self.problem(), self.choice.density);
        self.exploring = false;
        self.adopt(step, Reason::Start, solution, true)
    }

    /// The training goes on from another step, before or behind. What was learned of ways and gains holds.
    pub fn restart(&mut self, step: u64) {
        (self.probing, self.answered_late, self.exploring) = (false, 0, false);
        (self.last_explored, self.certain_until) = (self.last_explored.min(step), 0);
        self.changed_at.clear();
        self.shares.clear();
        self.learn_anew();
    }

    /// Takes in a step.
    pub fn observe(&mut self, seen: &Observation) -> Result<Wish> {
        if seen.number != self.choice.number {
            return Ok(Wish::Nothing);
        }
        self.since += 1;
        if self.since <= SETTLE {
            return Ok(Wish::Nothing);
        }
        self.note_compute(seen);
        if let Some(decision) = self.watch_residual(seen)? {
            return Ok(Wish::Change(Box::new(decision)));
        }
        self.answered_late += u64::from(self.probing);
        if self.answered_late > 10 {
            // The step with the answer was skipped.
            (self.probing, self.answered_late) = (false, 0);
        }
        if let Some(latency) = seen.echo.filter(|_| self.probing) {
            let (network, clear) = self.network_by_echo(seen, latency)?;
            if !clear && !self.is_alike(network) {
                self.answered_late = 0;
                return Ok(self.wish(Wish::Look));
            }
            return Ok(self
                .probed(seen.step, network)?
                .map_or(Wish::Nothing, |it| Wish::Change(Box::new(it))));
        }
        let priced = self.problem().price_of(&self.choice.ways, seen.density);
        let (sync, work) = (seen.sum + seen.spread, seen.work);
        let warmed = std::mem::replace(&mut self.warm, seen.warming.then_some(seen.density)).is_some();
        let ratio = Measured { sync: sync / priced.sync(), work: work / priced.work };
        if self.since <= SETTLE + learn::STEPS {
            self.ratios.push(ratio);
            if self.since == SETTLE + learn::STEPS
                && let Some(wish) = self.learn(seen)?
            {
                return Ok(wish);
            }
        } else if !self.probing {
            let shown = self.shown(seen);
            // What nobody would notice in a whole step is no change.
            let whole = self.compute() + priced.seconds();
            let noticed = (sync - priced.sync()).abs() > UNNOTICED * self.restlessness(seen.step) * whole;
            // What steps show is as the model would have it, and so is what is expected.
            let more = self.learned(seen.density);
            let shown = if noticed {
                shown
            } else {
                Shown {
                    sum: (shown.sum.0, priced.sum / more),
                    spread: (shown.spread.0, priced.spread / more),
                }
            };
            match self.watch.see(shown, priced.sync() / more, self.network) {
                Verdict::Same => {}
                Verdict::Changed(network) => return self.decide_on_network(seen.step, network),
                // After probes that found nothing new, steps are believed that say the same.
                Verdict::Unclear
                    if seen.step < self.certain_until && ratio.sync < 3.0 && ratio.sync > 0.3 =>
                {
                    self.learn_anew();
                }
                Verdict::Unclear => return Ok(self.wish(Wish::Probe)),
            }
        }
        let far = |from: f64| (seen.density / from).ln().abs() > ALIKE_DENSITY.ln();
        if warmed != seen.warming || self.warm.is_some() && self.warm_priced.is_none_or(far) {
            self.warm_priced = self.warm;
            let solution = self.best_known()?;
            return Ok(self.change_if_worth_it(seen.step, Reason::Warmup, solution));
        }
        Ok(if seen.warming { Wish::Nothing } else { self.look_at_gain(seen) })
    }

    /// The gains were measured, as wished for.
    pub fn explored(&mut self, step: u64, curve: Curve) -> Result<Option<Decision>> {
        self.exploring = false;
        (self.curve, self.explored, self.last_explored) = (curve, true, step);
        let solution = self.best_known()?;
        self.gain.clear();
        self.usual_gain = None;
        match self.change_if_worth_it(step, Reason::Gain, solution) {
            Wish::Change(decision) if decision.changes => {
                self.patience = PATIENCE;
                Ok(Some(*decision))
            }
            Wish::Change(decision) => {
                self.patience = (2 * self.patience).min(64 * PATIENCE);
                Ok(Some(*decision))
            }
            _ => Ok(None),
        }
    }

    fn wish(&mut self, wish: Wish) -> Wish {
        self.probing |= matches!(wish, Wish::Probe | Wish::Look);
        self.exploring |= wish == Wish::Explore;
        wish
    }

    /// The best for what is known; while the gains are not, at the largest density.
    fn best_known(&self) -> Result<Solution> {
        self.best_of(&self.problem())
    }

    fn best_of(&self, problem: &Problem<'_>) -> Result<Solution> {
        match (self.explored, self.warm) {
            (true, None) => problem.solve(),
            (true, Some(_)) => Ok(self.at(problem, problem.solve()?.density)),
            (false, _) => Ok(self.at(problem, self.limits.max_density)),
        }
    }

    /// The best at a density, by the ways that are fastest at the one a warm-up makes of it.
    fn at(&self, problem: &Problem<'_>, density: f64) -> Solution {
        let found = problem.at(self.warmed(density));
        // Without anything to select the density stays what the problem says.
        let density = if problem.selects() { f64::from(density as f32) } else { found.density };
        Solution { density, ..found }
    }

    /// The density that steps go by where this one is chosen.
    fn warmed(&self, density: f64) -> f64 {
        self.warm.map_or(density, |warm| warm.max(density))
    }

    fn look_at_gain(&mut self, seen: &Observation) -> Wish {
        if self.exploring || !self.problem().selects() {
            return Wish::Nothing;
        }
        if !self.explored {
            // Where even the least density saves nothing, nobody needs to know what it would send.
            let least = self.problem().at(self.limits.min_density);
            let could_pay = least.ways.iter().any(|way| !self.ways[*way].is_dense());
            return if could_pay { self.wish(Wish::Explore) } else { Wish::Nothing };
        }
        if self.choice.ways.iter().all(|way| self.ways[*way].is_dense()) {
            return Wish::Nothing;
        }
        self.gain.push(seen.gain);
        let Some(gain) = self.gain.value() else { return Wish::Nothing };
        let usual = *self.usual_gain.get_or_insert(gain);
        let changed = (gain - usual).abs() >= GAIN_CHANGE * usual.max(f64::MIN_POSITIVE);
        if changed && seen.step >= self.last_explored + self.patience {
            return self.wish(Wish::Explore);
        }
        Wish::Nothing
    }

    fn problem(&self) -> Problem<'_> {
        Problem {
            model: &self.model,
            ways: &self.ways,
            measured: &self.measured,
            buckets: &self.buckets,
            limits: &self.limits,
            curve: &self.curve,
            compute: self.compute(),
            full_only: self.full_only,
        }
    }
}

/// Steps that an exploration takes.
pub const EXPLORATION: usize = gain::STEPS;

#[cfg(test)]
mod tests;
