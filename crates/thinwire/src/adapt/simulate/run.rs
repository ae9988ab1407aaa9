//! All steps of one driver.

use super::Scene;
use super::auto::Auto;
use super::clock::{Clock, Course};
use super::oracle::Oracle;
use crate::adapt::Limits;
use crate::adapt::cost::Network;
use crate::adapt::decision::Decision;
use crate::adapt::price::{Collective, Way};
use crate::group::Algorithm;
use crate::memory::Warmup;
use crate::pipeline::Recipe;
use crate::{Error, Result, method};

/// Who chooses how steps travel.
#[derive(Debug, Clone, PartialEq)]
pub enum Driver {
    /// The controller, within these limits.
    Auto(Limits),
    /// Somebody who knows everything beforehand and wants the same.
    Oracle(Limits),
    /// Nobody: always one way for each bucket, at one density.
    Fixed {
        /// The ways of the buckets.
        ways: Vec<Way>,
        /// The density of those that do not send everything.
        density: f64,
    },
}

impl Driver {
    /// A method as it is written: `auto` with its parameters, or any other one, whose collectives go by the algorithms
    /// that a training takes for their size.
    ///
    /// An error for a method with a warm-up: there are no epochs here.
    pub fn parse(spec: &str, scene: &Scene) -> Result<Driver> {
        let recipe: Recipe = method::parse(spec)?;
        if recipe.warmup != Warmup::None {
            return Err(Error::BadParameter {
                method: spec.into(),
                name: "warmup".into(),
                value: recipe.warmup.to_string(),
                expected: "none: a simulation has no epochs".into(),
            });
        }
        if let Some(limits) = recipe.limits {
            return Ok(Driver::Auto(limits));
        }
        let (all, density, workers) = (Way::all(spec)?, recipe.density, scene.cluster.workers);
        let of = |elements: &usize| {
            let by_size = |sums: bool| {
                let is = |c: Collective| c.is_sum() == sums;
                let legs = all[0].legs(*elements as f64, density);
                let bytes =
                    legs.iter().filter(|leg| is(leg.collective)).map(|leg| leg.bytes).fold(0.0, f64::max);
                Algorithm::for_size(bytes as usize, workers)
            };
            let fits = |way: &&Way| way.sum == by_size(true) && way.spread == by_size(false);
            let sums = |way: &&Way| way.sum == by_size(true);
            all.iter().find(fits).or_else(|| all.iter().find(sums)).unwrap_or(&all[0]).clone()
        };
        Ok(Driver::Fixed { ways: scene.buckets.iter().map(of).collect(), density })
    }
}

/// One step of a run.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Step {
    /// The network that held.
    pub network: Network,
    /// From the end of the step before to the end of this one.
    pub seconds: f64,
    /// Bytes the busiest worker sent.
    pub bytes: f64,
    /// The share of the gradient's energy that was sent.
    pub gain: f64,
    /// The number of the choice.
    pub choice: u32,
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Run {
    /// All steps.
    pub steps: Vec<Step>,
    /// What was decided.
    pub decisions: Vec<Decision>,
    /// How often the network was probed while training, and how long all probes took, the first one included.
    pub probes: usize,
    /// Seconds of these.
    pub probing: f64,
    /// Bytes that the busiest worker sent for them.
    pub probed_bytes: f64,
    /// How often the gains were measured.
    pub explorations: usize,
    /// Seconds rank 0 spent on measuring gains and on searching.
    pub adapting: f64,
    /// The step after which the gains were known for the first time.
    pub explored_at: Option<usize>,
    /// Seconds of computing in a step, on a usual worker.
    pub compute: f64,
}

impl Run {
    /// Seconds of all, the first probe included.
    pub fn seconds(&self) -> f64 {
        self.steps.iter().map(|step| step.seconds).sum()
    }

    /// Seconds from a step on.
    pub fn seconds_from(&self, step: usize) -> f64 {
        self.steps[step.min(self.steps.len())..].iter().map(|step| step.seconds).sum()
    }

    /// The part of the time in which a usual worker computes.
    pub fn efficiency(&self) -> f64 {
        self.compute * self.steps.len() as f64 / self.seconds().max(f64::MIN_POSITIVE)
    }

    /// Bytes the busiest worker sent, probes included.
    pub fn bytes(&self) -> f64 {
        self.probed_bytes + self.steps.iter().map(|step| step.bytes).sum::<f64>()
    }

    /// The mean share of the energy that a step sent.
    pub fn gain(&self) -> f64 {
        self.steps.iter().map(|step| step.gain).sum::<f64>() / self.steps.len().max(1) as f64
    }

    /// How often the choice changed after the first one.
    pub fn changes(&self) -> usize {
        self.steps.windows(2).filter(|pair| pair[0].choice != pair[1].choice).count()
    }
}

/// What is written down while a run goes on.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    decisions: Vec<Decision>,
    probes: usize,
    probing: f64,
    probed_bytes: f64,
    explorations: usize,
    pub adapting: f64,
    explored_at: Option<usize>,
}

impl Recorder {
    pub fn decided(&mut self, decision: Decision) {
        self.decisions.push(decision);
    }

    pub fn probed(&mut self, seconds: f64, bytes: f64) {
        self.probes += 1;
        self.probing += seconds;
        self.probed_bytes += bytes;
    }

    pub fn explored(&mut self, step: usize) {
        self.explorations += 1;
        self.explored_at.get_or_insert(step);
    }
}

/// Plays a run through. `progress` hears of every step that is over.
pub fn run(scene: &Scene, driver: &Driver, progress: &mut dyn FnMut(usize)) -> Result<Run> {
    scene.cluster.check()?;
    let buckets = scene.buckets.len();
    if buckets == 0 || scene.buckets.contains(&0) || scene.steps == 0 {
        return Err(Error::BadSetting {
            name: "scene".into(),
            found: format!("{buckets} buckets, {} steps", scene.steps),
            expected: "at least one step, and one bucket with elements".into(),
        });
    }
    let (mut clock, mut recorder) = (Clock::new(scene), Recorder::default());
    let mut steps = Vec::with_capacity(scene.steps);
    match driver {
        Driver::Auto(limits) => {
            let mut auto = Auto::new(scene, limits, &mut clock, &mut recorder)?;
            let first = clock.now();
            for step in 0..scene.steps {
                steps.push(auto.step(step, &mut clock, &mut recorder)?);
                progress(step);
            }
            steps[0].seconds += first;
        }
        Driver::Oracle(limits) => {
            let mut oracle = Oracle::new(scene, limits)?;
            for step in 0..scene.steps {
                let (choice, density, gain) = oracle.choose(step, &mut clock)?;
                steps.push(take(step, &mut clock, oracle.ways(), &choice, (density, gain), oracle.number));
                progress(step);
            }
        }
        Driver::Fixed { ways, density } => {
            let choice: Vec<usize> = (0..ways.len()).collect();
            let dense = ways.iter().all(Way::is_dense);
            for step in 0..scene.steps {
                let gain = if dense { 1.0 } else { scene.gains.curve(clock.part(step)).at(*density) };
                steps.push(take(step, &mut clock, ways, &choice, (*density, gain), 1));
                progress(step);
            }
        }
    }
    let Recorder { decisions, probes, probing, probed_bytes, explorations, adapting, explored_at } = recorder;
    let compute = scene.cluster.compute;
    Ok(Run { steps, decisions, probes, probing, probed_bytes, explorations, adapting, explored_at, compute })
}

fn take(
    step: usize,
    clock: &mut Clock<'_>,
    ways: &[Way],
    choice: &[usize],
    (density, gain): (f64, f64),
    number: u32,
) -> Step {
    let network = clock.network(step);
    let shown = clock.step(step, &Course { ways, choice, density, note: 0.0, delay: 0.0, echo: false });
    Step { network, seconds: shown.seconds, bytes: shown.bytes, gain, choice: number }
}
