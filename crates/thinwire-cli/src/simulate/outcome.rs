//! What was run and what came out, as `--json` prints it.

use serde::Serialize;
use thinwire::adapt::cost::Network;
use thinwire::adapt::decision::Decision;
use thinwire::adapt::simulate::{Regret, Run, Scene};

use super::Arguments;

/// All of it.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub assumed: Assumed,
    /// The method that was asked for.
    pub run: Named,
    /// Somebody who knows everything beforehand and wants the same; with `auto`.
    pub oracle: Option<Named>,
    pub regret: Option<Regret>,
    /// The fastest fixed choice that sends as much of the gradient as `auto`; with `--compare`.
    pub best_fixed: Option<Named>,
    /// Fixed methods; with `--compare`.
    pub others: Vec<Named>,
    pub decisions: Vec<Decision>,
    /// The network from each step on at which it changes.
    pub networks: Vec<(usize, Network)>,
    /// Seconds the simulation itself took.
    pub took_seconds: f64,
}

/// What was simulated.
#[derive(Debug, Serialize)]
pub struct Assumed {
    pub workers: usize,
    pub parameters: u64,
    pub buckets: usize,
    pub steps: usize,
    pub compute_seconds: f64,
    pub noise: f64,
    pub uneven: f64,
    /// Share and factor.
    pub stragglers: (f64, f64),
    pub hiccups: (f64, f64),
    pub seed: u64,
    /// The schedule by its name, or nothing with a single link.
    pub schedule: Option<String>,
}

/// A run and its name.
#[derive(Debug, Serialize)]
pub struct Named {
    pub name: String,
    pub seconds: f64,
    pub step_seconds: f64,
    /// The part of the time in which a usual worker computes.
    pub efficiency: f64,
    /// Bytes the busiest worker sent, all steps together.
    pub bytes: f64,
    /// The mean share of the gradient's energy that a step sent.
    pub gain: f64,
    /// How often the choice changed.
    pub changes: usize,
    pub probes: usize,
    pub explorations: usize,
    #[serde(skip)]
    pub run: Run,
}

impl Named {
    pub fn new(name: &str, run: Run) -> Named {
        Named {
            name: name.to_owned(),
            seconds: run.seconds(),
            step_seconds: run.seconds() / run.steps.len().max(1) as f64,
            efficiency: run.efficiency(),
            bytes: run.bytes(),
            gain: run.gain(),
            changes: run.changes(),
            probes: run.probes,
            explorations: run.explorations,
            run,
        }
    }
}

impl Outcome {
    /// Of a fixed method.
    pub fn fixed(arguments: &Arguments, scene: &Scene, run: Named) -> Outcome {
        let mut networks: Vec<(usize, Network)> = Vec::new();
        for (number, step) in run.run.steps.iter().enumerate() {
            if networks.last().is_none_or(|(_, before)| *before != step.network) {
                networks.push((number, step.network));
            }
        }
        Outcome {
            assumed: Assumed::new(arguments, scene),
            decisions: run.run.decisions.clone(),
            run,
            oracle: None,
            regret: None,
            best_fixed: None,
            others: Vec::new(),
            networks,
            took_seconds: 0.0,
        }
    }

    /// Of the controller.
    pub fn automatic(arguments: &Arguments, scene: &Scene, auto: Run, oracle: Run, lost: Regret) -> Outcome {
        Outcome {
            oracle: Some(Named::new("oracle", oracle)),
            regret: Some(lost),
            ..Outcome::fixed(arguments, scene, Named::new(&arguments.method, auto))
        }
    }
}

impl Assumed {
    fn new(arguments: &Arguments, scene: &Scene) -> Assumed {
        let cluster = &scene.cluster;
        Assumed {
            workers: cluster.workers,
            parameters: scene.buckets.iter().map(|elements| *elements as u64).sum(),
            buckets: scene.buckets.len(),
            steps: scene.steps,
            compute_seconds: cluster.compute,
            noise: cluster.noise,
            uneven: cluster.uneven,
            stragglers: (cluster.stragglers.share, cluster.stragglers.factor),
            hiccups: (cluster.hiccups.share, cluster.hiccups.factor),
            seed: cluster.seed,
            schedule: arguments.link.is_none().then(|| arguments.schedule.clone()),
        }
    }
}
