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
//! | a warm-up that has come to another density | finds the fastest ways for that |
//!
//! A change has to be worth it: what would save less than a twentieth of a step at about the same density stays as it
//! is.

use super::cost::{Load, Network, Ranks};
use super::decision::{Choice, Decision, Reason};
use super::estimate::{Shown, Verdict, Watch};
use super::gain::{Curve, Ewma};
use super::price::{Collective, Model, Way};
use super::solve::{MARGIN, Measured, Problem, Solution};
use super::{Limits, gain};
use crate::Result;

/// Steps after a change that are not looked at: memory is emptied, buffers grow.
const SETTLE: u64 = 2;
/// Steps after these in which a way shows how long it takes.
const LEARN: u64 = 6;
/// The gain has changed when it is this far from what it was: the paper's tenth.
const GAIN_CHANGE: f64 = 0.1;
/// Fewest steps from one measurement of the gains to the next; twice as many each time that nothing came of it.
const PATIENCE: u64 = 50;
/// Ways whose time differs by less than this part of a step, and densities by less than this factor, are alike.
const ALIKE: f64 = 0.05;
const ALIKE_DENSITY: f64 = 1.25;
/// How far a way may be from the model before the network is doubted.
const DOUBT: f64 = 1.6;

/// A part of a step that is not worth a change: what compressing has to save at least.
const UNNOTICED: f64 = MARGIN;
/// Each change makes the next one harder for so many steps, up to this factor: where times vary by themselves, as on
/// machines with more ranks than cores, one choice after the other would look better than it is.
const RESTLESS: u64 = 100;
const MOST_RESTLESS: f64 = 1.5;
/// Networks on which steps take times that differ by less than this factor are alike.
const ALIKE_NETWORK: f64 = 1.2;
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
    /// The share of the energy it sent, on average.
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
    priced_density: f64,
    /// The steps after which a choice was made.
    changed_at: Vec<u64>,
}

impl Controller {
    /// For buckets of these lengths, on ranks that a probe has found to be connected like this.
    pub fn new(limits: &Limits, lengths: &[usize], ranks: usize, network: Network) -> Result<Controller> {
        let ways = limits.ways()?;
        let model = Model::new(ranks, network);
        Ok(Controller {
            measured: vec![Measured::default(); ways.len()],
            priced_density: limits.max_density,
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
            changed_at: Vec::new(),
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

    /// The first decision, before anything is known of the gradients: the fastest at the largest density.
    pub fn start(&mut self, step: u64, density: f64) -> Decision {
        let solution = self.problem().at(density.max(self.limits.max_density));
        self.adopt(step, Reason::Start, solution, true)
    }

    /// Other buckets with the same elements in all.
    pub fn relayout(&mut self, step: u64, lengths: &[usize]) -> Decision {
        self.buckets = lengths.iter().map(|length| *length as f64).collect();
        let solution = self.problem().at(self.choice.density);
        (self.probing, self.exploring) = (false, false);
        self.adopt(step, Reason::Start, solution, true)
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
        self.answered_late += u64::from(self.probing);
        if self.answered_late > 10 {
            // The step with the answer was skipped.
            (self.probing, self.answered_late) = (false, 0);
        }
        if let Some(latency) = seen.echo.filter(|_| self.probing) {
            let (network, clear) = self.network_by_echo(seen, latency);
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
        let ratio = Measured { sync: sync / priced.sync(), work: work / priced.work };
        if self.since <= SETTLE + LEARN {
            self.ratios.push(ratio);
            if self.since == SETTLE + LEARN
                && let Some(wish) = self.learn(seen)?
            {
                return Ok(wish);
            }
        } else if !self.probing {
            let shown = self.shown(seen);
            // What nobody would notice in a whole step is no change.
            let whole = self.compute() + priced.seconds();
            let noticed = (sync - priced.sync()).abs() > UNNOTICED * self.restlessness(seen.step) * whole;
            let shown = if noticed {
                shown
            } else {
                Shown { sum: (shown.sum.0, priced.sum), spread: (shown.spread.0, priced.spread) }
            };
            match self.watch.see(shown, priced.sync(), self.network) {
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
        if seen.warming {
            let far = (seen.density / self.priced_density).ln().abs() > ALIKE_DENSITY.ln();
            if far {
                let solution = self.problem().at(seen.density);
                self.priced_density = seen.density;
                return Ok(self.change_if_worth_it(seen.step, Reason::Warmup, solution));
            }
            return Ok(Wish::Nothing);
        }
        Ok(self.look_at_gain(seen))
    }

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
    /// that is clear: a step of many hops says nothing of its bytes, and neither does one whose way takes another time
    /// than the model says, for nobody knows whether its hops or its bytes do.
    fn network_by_echo(&self, seen: &Observation, latency: f64) -> (Network, bool) {
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
        (Network { latency, seconds_per_byte }, clear)
    }

    /// By how much harder than usual a change is, because there were others not long ago.
    fn restlessness(&self, step: u64) -> f64 {
        let recent = self.changed_at.iter().filter(|at| **at + RESTLESS > step).count();
        MOST_RESTLESS.powi(recent.saturating_sub(1).min(4) as i32)
    }

    /// Whether steps take about the same time on this network as on the one that is known.
    fn is_alike(&self, network: Network) -> bool {
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

    /// The next steps show how long the ways take.
    fn learn_anew(&mut self) {
        self.since = SETTLE;
        self.ratios.clear();
        self.watch.reset();
    }

    /// The gains were measured, as wished for.
    pub fn explored(&mut self, step: u64, curve: Curve) -> Result<Option<Decision>> {
        self.exploring = false;
        (self.curve, self.explored, self.last_explored) = (curve, true, step);
        let solution = self.problem().solve()?;
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

    /// The steps since a change show how long the ways take that are in use.
    fn learn(&mut self, seen: &Observation) -> Result<Option<Wish>> {
        // The mean of the two in the middle: the steps are few, and an even number.
        let median = |of: fn(&Measured) -> f64, ratios: &[Measured]| {
            let mut all: Vec<f64> = ratios.iter().map(of).filter(|ratio| ratio.is_finite()).collect();
            all.sort_unstable_by(f64::total_cmp);
            let middle = all.get((all.len().max(1) - 1) / 2).zip(all.get(all.len() / 2));
            middle.map_or(1.0, |(low, high)| 0.5 * (low + high))
        };
        let sync = median(|ratio| ratio.sync, &self.ratios);
        let work = median(|ratio| ratio.work, &self.ratios).clamp(0.2, 5.0);
        let unlikely = !(1.0 / DOUBT..=DOUBT).contains(&sync);
        if unlikely && self.probed_for != self.choice.number && !self.probing {
            // Rather the network than the model: but only once for a choice.
            self.since -= LEARN;
            self.ratios.clear();
            return Ok(Some(self.wish(Wish::Probe)));
        }
        let sync = sync.clamp(0.3, 3.0);
        let mut used = self.choice.ways.clone();
        used.sort_unstable();
        used.dedup();
        let matters = [sync, work].iter().any(|ratio| (ratio - 1.0).abs() > 0.1);
        for way in used {
            let known = &mut self.measured[way];
            known.sync = (known.sync * sync).clamp(0.3, 3.0);
            known.work *= work;
        }
        self.watch.reset();
        // The first steps also show how long a step is, of which something might be saved.
        let first = self.choice.number == 1;
        if !(matters || first) || seen.warming {
            return Ok(None);
        }
        let solution = self.best_known()?;
        let wish = self.change_if_worth_it(seen.step, Reason::Time, solution);
        Ok(Some(wish).filter(|wish| matches!(wish, Wish::Change(decision) if decision.changes)))
    }

    fn decide_on_network(&mut self, step: u64, network: Network) -> Result<Wish> {
        self.model.wire = self.model.wire.moved(self.network, network);
        self.network = network;
        // What was learned on another network is half forgotten.
        self.measured.iter_mut().for_each(|known| known.sync = known.sync.sqrt());
        let solution = self.best_known()?;
        self.learn_anew();
        Ok(self.change_if_worth_it(step, Reason::Network, solution))
    }

    /// The best for what is known; while the gains are not, at the density there is.
    fn best_known(&self) -> Result<Solution> {
        match self.explored {
            true => self.problem().solve(),
            false => Ok(self.problem().at(self.priced_density)),
        }
    }

    fn look_at_gain(&mut self, seen: &Observation) -> Wish {
        if self.exploring {
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

    /// The median of the last steps: one in which a model was saved or tested does not count.
    fn note_compute(&mut self, seen: &Observation) {
        let rest = seen.interval - seen.sum - seen.spread - seen.work;
        if rest.is_finite() {
            if self.computes.len() == 9 {
                self.computes.remove(0);
            }
            self.computes.push(rest.max(0.0));
        }
    }

    fn compute(&self) -> f64 {
        let mut sorted = self.computes.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
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
        }
    }

    /// What the steps of the choice lay on the network, with the seconds it took; seconds as the model would have
    /// them, so that what a way takes more than the model says does not look like a network.
    fn shown(&self, seen: &Observation) -> Shown {
        let ranks: Ranks = self.model.ranks;
        let mut shown = Shown { sum: (Load::default(), 0.0), spread: (Load::default(), 0.0) };
        let mut more = 0.0;
        for (way, elements) in self.choice.ways.iter().zip(&self.buckets) {
            more += self.measured[*way].sync / self.choice.ways.len() as f64;
            for leg in self.ways[*way].legs(*elements, seen.density) {
                let load = leg.collective.load(ranks, leg.bytes);
                match leg.collective {
                    Collective::RingSum | Collective::TreeSum => shown.sum.0 = shown.sum.0 + load,
                    _ => shown.spread.0 = shown.spread.0 + load,
                }
            }
        }
        (shown.sum.1, shown.spread.1) = (seen.sum / more, seen.spread / more);
        shown
    }

    /// A solution becomes the choice, unless what there is is about as good.
    fn change_if_worth_it(&mut self, step: u64, reason: Reason, solution: Solution) -> Wish {
        let problem = self.problem();
        let now = problem.seconds_of(&self.choice.ways, self.choice.density);
        let compresses = |ways: &[usize]| ways.iter().any(|way| !self.ways[*way].is_dense());
        let calm = self.restlessness(step);
        let worth_it = match (compresses(&self.choice.ways), compresses(&solution.ways)) {
            // The margin is crossed one way at its full height and the other way at half of it.
            (false, true) => {
                solution.dense_seconds - solution.seconds
                    > calm * MARGIN * (problem.compute + solution.dense_seconds)
                    || solution.dense_seconds.is_infinite()
            }
            (true, false) => {
                solution.dense_seconds - now < 0.5 * MARGIN * (problem.compute + solution.dense_seconds)
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
    fn adopt(&mut self, step: u64, reason: Reason, solution: Solution, changes: bool) -> Decision {
        if changes {
            self.choice = Choice {
                number: self.choice.number + 1,
                ways: solution.ways.clone(),
                density: solution.density,
            };
            self.changed_at.retain(|at| *at + RESTLESS > step);
            self.changed_at.push(step);
            self.learn_anew();
            (self.since, self.usual_gain) = (0, None);
            self.gain.clear();
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
            compute: problem.compute,
            density: self.choice.density,
            gain: if dense { 1.0 } else { self.curve.at(self.choice.density) },
            seconds: problem.seconds_of(&self.choice.ways, self.choice.density),
            dense_seconds: solution.dense_seconds,
            second,
            gains: self.explored.then(|| self.curve.gains()),
            ways,
            changes,
        }
    }
}

/// Steps that an exploration takes.
pub const EXPLORATION: usize = gain::STEPS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::mix;

    /// Steps as they would be on some network, of a gradient with the default gains.
    struct World {
        controller: Controller,
        network: Network,
        in_force: Choice,
        step: u64,
        compute: f64,
        noise: f64,
        decisions: Vec<Decision>,
        probes: usize,
        listening: bool,
        explorations: usize,
        exploring: usize,
    }

    impl World {
        fn new(method: &str, ranks: usize, elements: &[usize], link: &str, compute: f64) -> World {
            let limits = crate::method::parse(method).unwrap().limits.unwrap();
            let network: Network = link.parse().unwrap();
            let mut controller = Controller::new(&limits, elements, ranks, network).unwrap();
            let first = controller.start(0, 0.0);
            World {
                in_force: controller.choice().clone(),
                controller,
                network,
                step: 0,
                compute,
                noise: 0.0,
                decisions: vec![first],
                probes: 0,
                listening: false,
                explorations: 0,
                exploring: 0,
            }
        }

        fn run(&mut self, steps: u64) {
            for _ in 0..steps {
                self.take();
            }
        }

        fn take(&mut self) {
            self.step += 1;
            let mut truth = self.controller.model.clone();
            truth.wire = truth.wire.moved(self.controller.network, self.network);
            let nothing = vec![Measured::default(); self.controller.ways.len()];
            let problem = Problem { model: &truth, measured: &nothing, ..self.controller.problem() };
            let price = problem.price_of(&self.in_force.ways, self.in_force.density);
            let noise = 1.0 + self.noise * ((mix(self.step) % 2001) as f64 / 1000.0 - 1.0);
            let seen = Observation {
                step: self.step,
                number: self.in_force.number,
                sum: noise * price.sum,
                spread: noise * price.spread,
                work: price.work,
                interval: self.compute + price.work + noise * price.sync(),
                gain: Curve::default().at(self.in_force.density),
                density: self.in_force.density,
                warming: false,
                echo: std::mem::take(&mut self.listening).then_some(noise * self.network.latency),
            };
            let before = self.controller.choice().clone();
            match self.controller.observe(&seen).unwrap() {
                Wish::Nothing => {}
                Wish::Probe => (self.probes, self.listening) = (self.probes + 1, true),
                Wish::Look => {
                    let decision = self.controller.probed(self.step, self.network).unwrap();
                    self.decisions.extend(decision);
                }
                Wish::Explore => (self.explorations, self.exploring) = (self.explorations + 1, EXPLORATION),
                Wish::Change(decision) => self.decisions.push(*decision),
            }
            if self.exploring > 0 {
                self.exploring -= 1;
                if self.exploring == 0 {
                    let decision = self.controller.explored(self.step, Curve::default()).unwrap();
                    self.decisions.extend(decision);
                }
            }
            // An order takes a step to reach everybody.
            self.in_force = before;
        }

        fn is_dense(&self) -> bool {
            self.in_force.ways.iter().all(|way| self.controller.ways[*way].is_dense())
        }

        fn changes(&self) -> usize {
            self.decisions.iter().filter(|decision| decision.changes).count()
        }
    }

    #[test]
    fn a_fast_network_needs_nothing_and_asks_for_nothing() {
        let mut world = World::new("auto", 4, &[1_000_000], "1000gbit,5us", 0.05);
        world.run(200);
        assert!(world.is_dense());
        assert_eq!((world.probes, world.explorations, world.changes()), (0, 0, 1));
    }

    #[test]
    fn a_slow_one_is_compressed_for_and_explored_once() {
        let mut world = World::new("auto", 4, &[1_000_000], "100mbit,1ms", 0.05);
        world.run(200);
        assert!(!world.is_dense());
        assert_eq!(world.explorations, 1);
        assert!(world.in_force.density > 0.001 && world.in_force.density < 0.1, "{:?}", world.in_force);
        let last = world.decisions.last().unwrap();
        assert!(last.saves() > 0.5 && last.second.is_some() && last.gains.is_some(), "{last}");
    }

    #[test]
    fn a_change_of_two_or_more_is_answered_within_twenty_steps() {
        for (from, to) in [
            ("25gbit,1ms", "1gbit,1ms"),
            ("1gbit,1ms", "1gbit,50ms"),
            ("1gbit,50ms", "25gbit,50ms"),
            ("1gbit,1ms", "500mbit,1ms"),
            ("100mbit,1ms", "200mbit,1ms"),
            ("10mbit,20ms", "10gbit,1ms"),
        ] {
            for ranks in [2, 4, 8, 64] {
                let mut world = World::new("auto", ranks, &[25_000_000], from, 0.1);
                world.noise = 0.1;
                world.run(300);
                let known = world.decisions.len();
                world.network = to.parse().unwrap();
                world.run(20);
                let found = world.controller.network();
                let price = |network| {
                    let mut model = world.controller.model.clone();
                    model.wire = super::super::price::Wire::uniform(network);
                    Problem { model: &model, ..world.controller.problem() }
                        .price_of(&world.in_force.ways, world.in_force.density)
                        .sync()
                };
                // Where a step shows the change, it must have been seen.
                let ratio = price(to.parse().unwrap()) / price(from.parse().unwrap());
                if !(0.75..1.35).contains(&ratio) {
                    assert!(world.decisions.len() > known, "{from} to {to}, {ranks}: {found:?}");
                    let off = price(found) / price(to.parse().unwrap());
                    assert!((0.6..1.6).contains(&off), "{from} to {to}, {ranks}: {off} {found:?}");
                }
            }
        }
    }

    #[test]
    fn noise_of_a_tenth_changes_nothing() {
        for link in ["25gbit,1ms", "1gbit,1ms", "1gbit,50ms", "100mbit,5ms"] {
            for ranks in [2, 8, 64] {
                let mut world = World::new("auto", ranks, &[5_000_000, 20_000_000, 300], link, 0.1);
                world.noise = 0.1;
                world.run(100);
                let settled = world.changes();
                world.run(3000);
                assert!(world.changes() <= settled + 1, "{link}, {ranks}: {:#?}", world.decisions);
                // A probe is one empty message.
                assert!(world.probes <= 15, "{link}, {ranks}: {} probes", world.probes);
            }
        }
    }

    #[test]
    fn a_gain_that_falls_is_explored_again_but_not_all_the_time() {
        let mut world = World::new("auto", 4, &[1_000_000], "100mbit,1ms", 0.05);
        world.run(200);
        assert_eq!(world.explorations, 1);
        // As if the gradients had changed: the same density sends less.
        let number = world.in_force.number;
        let seen = |step, gain| Observation {
            step,
            number,
            sum: 0.0,
            spread: f64::NAN,
            interval: 0.1,
            gain,
            density: 0.01,
            ..Observation::default()
        };
        let explores = |world: &mut World, step, gain| {
            world.controller.observe(&seen(step, gain)).unwrap() == Wish::Explore
        };
        let asked = (200..400).filter(|step| explores(&mut world, *step, 0.05)).count();
        assert_eq!(asked, 1);
    }

    #[test]
    fn other_buckets_are_chosen_for_anew() {
        let mut world = World::new("auto", 4, &[1_000_000], "100mbit,1ms", 0.05);
        world.run(50);
        let decision = world.controller.relayout(50, &[600_000, 400_000]);
        assert!(decision.changes && decision.number > world.in_force.number);
        assert_eq!(world.controller.choice().ways.len(), 2);
    }
}
