//! An automatic method at work: what rank 0's controller decides, all ranks do in the same step.
//!
//! With every step rides a note of each rank: what it measured in the step before and, from rank 0, what is to be done
//! in the next. A step that was skipped on one rank was skipped on all, and its notes count nowhere.

use std::time::{Duration, Instant};

use super::note::{self, Ask, MOST_WAYS, Measure, Order};
use crate::adapt::controller::{Controller, Observation, Wish};
use crate::adapt::cost::Network;
use crate::adapt::decision::Decision;
use crate::adapt::estimate::of_the_last_two;
use crate::adapt::gain::Shadow;
use crate::adapt::price::Way;
use crate::adapt::probe::{Budget, quick};
use crate::exchange::{Algorithms, Lane};
use crate::group::{Algorithm, Group};
use crate::kernels::{Kernels, List};
use crate::memory::{Progress, Warmup};
use crate::pipeline::Recipe;
use crate::{Error, Result, method};

/// The largest message that is sent to tell the bandwidth while training.
const MOST_ASKED: usize = 1 << 20;

/// One rank's part in an automatic method.
#[derive(Debug)]
pub(super) struct Adaptation<K: Kernels> {
    ways: Vec<Way>,
    warmup: Warmup,
    lengths: Vec<usize>,
    /// Rank 0 decides.
    controller: Option<Controller>,
    /// What all ranks go by.
    in_force: Order,
    /// What rank 0 will order with its next note.
    next: Order,
    /// What has been ordered for the next step.
    ordered: Option<Order>,
    measured: Measure,
    /// The choice and density of the step that was measured.
    measured_by: (u32, f64, bool),
    last_end: Option<Instant>,
    shadow: Option<Shadow>,
    sample: Vec<f32>,
    values: K::Values,
    decisions: Vec<Decision>,
    /// Time spent on adapting in this step.
    time: Duration,
    /// Seconds of the empty message behind this step.
    echo: f32,
    /// What messages behind this step found.
    found: Option<Network>,
}

impl<K: Kernels> Adaptation<K> {
    /// For lanes of these lengths, if the method is an automatic one. All ranks begin with the same choice.
    pub fn new(
        kernels: &mut K,
        group: &mut dyn Group,
        recipe: &Recipe,
        lengths: Vec<usize>,
    ) -> Result<Option<Adaptation<K>>> {
        let Some(limits) = &recipe.limits else { return Ok(None) };
        let ways = limits.ways()?;
        if ways.len() > MOST_WAYS {
            return Err(Error::BadParameter {
                method: recipe.spec.clone(),
                name: "methods".into(),
                value: limits.methods.join("|"),
                expected: format!(
                    "fewer: they have {} ways to travel, at most {MOST_WAYS} can be told",
                    ways.len()
                ),
            });
        }
        let network = quick(group, Budget::default())?;
        let controller = match group.rank() {
            0 => Some(Controller::new(limits, &lengths, group.size(), network)?),
            _ => None,
        };
        Ok(Some(Adaptation {
            ways,
            warmup: recipe.warmup.clone(),
            lengths,
            controller,
            in_force: Order::default(),
            next: Order::default(),
            ordered: None,
            measured: Measure::default(),
            measured_by: (0, 1.0, false),
            last_end: None,
            shadow: None,
            sample: Vec::new(),
            values: kernels.values(),
            decisions: Vec::new(),
            time: Duration::ZERO,
            echo: 0.0,
            found: None,
        }))
    }

    /// The first choice, or the one for other buckets: rank 0 makes it, and tells it right away.
    pub fn start(&mut self, group: &mut dyn Group, progress: Progress, lengths: Vec<usize>) -> Result<()> {
        self.lengths = lengths;
        let mut words = Vec::new();
        if let Some(controller) = &mut self.controller {
            let density = self.warmup.density(1e-9, progress);
            // Not what is in force: the first order may not have been carried out yet.
            let decision = match controller.choice().number > 0 {
                true => controller.relayout(progress.step, &self.lengths),
                false => controller.start(progress.step, density),
            };
            self.next = Order { choice: controller.choice().clone(), ask: Ask::Nothing };
            record(&mut self.decisions, decision);
            note::write(Measure::default(), &self.next, self.lengths.len(), &mut words);
        }
        let limit = 4 * note::words(self.lengths.len());
        let mut message: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        group.broadcast(0, &mut message, limit, Algorithm::Tree)?;
        let words: Vec<f32> = message.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        if words.len() != note::words(self.lengths.len()) {
            let reason = format!("its first order has {} words", words.len());
            return Err(Error::BadMessage { rank: 0, step: progress.step, reason });
        }
        self.ordered = Some(self.read_order(&words, progress.step)?);
        (self.shadow, self.last_end) = (None, None);
        Ok(())
    }

    /// The number of the choice that this rank goes by.
    pub fn number(&self) -> u32 {
        self.in_force.choice.number
    }

    /// A step begins: does what was ordered. `anew` if the lanes know nothing yet.
    pub fn begin(
        &mut self,
        kernels: &mut K,
        lanes: &mut [Lane<K>],
        progress: Progress,
        anew: bool,
    ) -> Result<()> {
        let begun = Instant::now();
        self.time = Duration::ZERO;
        self.sample.clear();
        (self.echo, self.found) = (0.0, None);
        let before = std::mem::take(&mut self.in_force);
        self.in_force =
            self.ordered.take().unwrap_or(Order { ask: Ask::Nothing, choice: before.choice.clone() });
        if anew || self.in_force.choice != before.choice {
            self.assign(kernels, lanes)?;
        }
        let density = self.density(progress);
        lanes.iter_mut().for_each(|lane| lane.assign_density(density));
        if let Some(lane) = lanes.first_mut().filter(|lane| !lane.needs_verdict()) {
            note::write(self.measured, &self.next, self.lengths.len(), &mut lane.note);
        }
        self.time += begun.elapsed();
        Ok(())
    }

    fn assign(&mut self, kernels: &mut K, lanes: &mut [Lane<K>]) -> Result<()> {
        for (lane, way) in lanes.iter_mut().zip(&self.in_force.choice.ways) {
            let way = &self.ways[*way];
            let algorithms = Algorithms { sum: way.sum, spread: way.spread };
            lane.assign(kernels, method::parse(&way.method)?, algorithms)?;
        }
        Ok(())
    }

    /// The words that ride with the verdict, where the first bucket sends everything.
    pub fn note(&self, lanes: &[Lane<K>]) -> Vec<f32> {
        let mut words = Vec::new();
        if lanes.first().is_some_and(Lane::needs_verdict) {
            note::write(self.measured, &self.next, self.lengths.len(), &mut words);
        }
        words
    }

    /// The density of this step: the chosen one, unless a warm-up is above it.
    fn density(&self, progress: Progress) -> f64 {
        self.warmup.density(self.in_force.choice.density, progress)
    }

    /// All buckets have travelled: an empty message to everybody tells the latency, a handful of them the bandwidth too,
    /// if that was ordered. The exchanges before have brought the ranks together.
    pub fn listen(&mut self, group: &mut dyn Group) -> Result<()> {
        let begun = Instant::now();
        match self.in_force.ask {
            Ask::Nothing => return Ok(()),
            Ask::Latency => {
                group.barrier()?;
                self.echo = begun.elapsed().as_secs_f32();
            }
            Ask::Both => {
                let budget = Budget { most_bytes: MOST_ASKED, ..Budget::default() };
                self.found = Some(quick(group, budget)?);
            }
        }
        self.time += begun.elapsed();
        Ok(())
    }

    /// A bucket is about to travel: rank 0 takes its sample while gains are measured.
    pub fn look(&mut self, kernels: &mut K, bucket: usize, share: f32, gradient: &K::Gradient) -> Result<()> {
        let Some(shadow) = &self.shadow else { return Ok(()) };
        if K::elements(gradient) != self.lengths[bucket] {
            return Ok(());
        }
        let begun = Instant::now();
        self.values.truncate(0);
        for run in shadow.runs(bucket) {
            kernels.append_scaled(gradient, share, run.clone(), &mut self.values)?;
        }
        self.sample.extend_from_slice(kernels.on_host(&mut self.values)?);
        self.time += begun.elapsed();
        Ok(())
    }

    /// A step is over and counts: `notes` are those of all ranks.
    pub fn end(&mut self, group: &dyn Group, progress: Progress, notes: &[f32], mine: Measure) -> Result<()> {
        let begun = Instant::now();
        let words = note::words(self.lengths.len());
        if notes.len() != words * group.size() {
            return Err(Error::GroupLost {
                reason: format!(
                    "step {}: {} words of notes, not {}",
                    progress.step,
                    notes.len(),
                    words * group.size()
                ),
            });
        }
        self.ordered = Some(self.read_order(&notes[..words], progress.step)?);
        let (number, density, warming) = self.measured_by;
        if self.controller.is_some() && number > 0 {
            let measures: Vec<Measure> = notes.chunks(words).map(note::measure).collect();
            let count = measures.len() as f64;
            let [sum, spread] = of_the_last_two(measures.iter().map(|it| [it.sum, it.spread].map(f64::from)));
            // Ranks leave a tree one after the other: the last to come finds all messages there.
            let [echo, _] = of_the_last_two(measures.iter().map(|it| [it.echo.into(), 0.0]));
            let mean =
                |of: fn(&Measure) -> f32| measures.iter().map(|m| f64::from(of(m))).sum::<f64>() / count;
            let seen = Observation {
                step: progress.step,
                number,
                sum,
                spread,
                work: mean(|measure| measure.work),
                interval: mean(|measure| measure.interval),
                gain: mean(|measure| measure.gain),
                density,
                warming,
                echo: Some(echo).filter(|echo| *echo > 0.0),
            };
            self.observe(&seen)?;
        }
        self.learn_network(progress.step)?;
        self.explore(progress.step)?;
        let density = self.density(progress);
        self.measured_by = (self.number(), density, density > self.in_force.choice.density);
        self.time += begun.elapsed();
        let now = Instant::now();
        let interval = self.last_end.replace(now).map_or(Duration::ZERO, |last| now - last);
        // A first step has no interval, and says nothing.
        if interval.is_zero() {
            self.measured_by.0 = 0;
        }
        self.measured =
            Measure { interval: interval.saturating_sub(self.time).as_secs_f32(), echo: self.echo, ..mine };
        Ok(())
    }

    /// A step did not happen: what it measured is worth nothing. What was ordered and not begun still holds.
    pub fn skipped(&mut self) {
        (self.measured_by.0, self.last_end) = (0, None);
    }

    /// The training goes on from another step.
    pub fn restored(&mut self, step: u64) {
        (self.measured_by.0, self.last_end, self.shadow) = (0, None, None);
        if let Some(controller) = &mut self.controller {
            controller.restart(step);
        }
    }

    fn observe(&mut self, seen: &Observation) -> Result<()> {
        let Some(controller) = &mut self.controller else { return Ok(()) };
        let wish = controller.observe(seen)?;
        let ask = match wish {
            Wish::Probe => Ask::Latency,
            Wish::Look => Ask::Both,
            _ => Ask::Nothing,
        };
        self.next = Order { choice: controller.choice().clone(), ask };
        match wish {
            Wish::Nothing | Wish::Probe | Wish::Look => {}
            Wish::Explore => self.shadow = Some(Shadow::new(&self.lengths)),
            Wish::Change(decision) => record(&mut self.decisions, *decision),
        }
        Ok(())
    }

    fn learn_network(&mut self, step: u64) -> Result<()> {
        let (Some(network), Some(controller)) = (self.found.take(), &mut self.controller) else {
            return Ok(());
        };
        if let Some(decision) = controller.probed(step, network)? {
            self.next.choice = controller.choice().clone();
            record(&mut self.decisions, decision);
        }
        Ok(())
    }

    fn explore(&mut self, step: u64) -> Result<()> {
        let (Some(shadow), Some(controller)) = (&mut self.shadow, &mut self.controller) else {
            return Ok(());
        };
        let Some(curve) = shadow.see(&self.sample) else { return Ok(()) };
        self.shadow = None;
        if let Some(decision) = controller.explored(step, curve)? {
            self.next.choice = controller.choice().clone();
            record(&mut self.decisions, decision);
        }
        Ok(())
    }

    fn read_order(&self, words: &[f32], step: u64) -> Result<Order> {
        note::order(words, self.lengths.len(), self.ways.len()).map_err(|reason| Error::BadMessage {
            rank: 0,
            step,
            reason,
        })
    }

    /// The decisions since this was asked last.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// Time spent on adapting in the last step.
    pub fn time(&self) -> Duration {
        self.time
    }
}

fn record(decisions: &mut Vec<Decision>, decision: Decision) {
    tracing::info!(step = decision.step, "{decision}");
    decisions.push(decision);
}
