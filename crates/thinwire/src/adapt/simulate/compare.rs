//! A controller, the oracle and fixed choices side by side.

use super::Scene;
use super::run::{Driver, Run, run};
use crate::Result;
use crate::adapt::Limits;
use crate::adapt::gain::LADDER;

/// Steps from an exploration's last one until all ranks go by what was decided.
const DELAY: usize = 2;

/// What a controller lost against an oracle.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Regret {
    /// Of the whole run: how much longer it took, as a part of the oracle's time.
    pub total: f64,
    /// The same from when the gains were known for the first time and the choice they led to was in force.
    pub after_exploration: f64,
    /// What exploring took, as a part of the run: all probes, rank 0's work beside the training, and what the steps
    /// before the first choice by known gains took longer than the oracle's.
    pub exploration: f64,
}

/// What a controller lost against an oracle on the same scene.
pub fn regret(auto: &Run, oracle: &Run) -> Regret {
    let known = auto.explored_at.map_or(0, |step| (step + DELAY).min(auto.steps.len()));
    let excess = |from: usize| {
        let best = oracle.seconds_from(from);
        (auto.seconds_from(from) - best) / best.max(f64::MIN_POSITIVE)
    };
    let early = (auto.seconds() - auto.seconds_from(known)) - (oracle.seconds() - oracle.seconds_from(known));
    let exploring = auto.probing + auto.adapting + early.max(0.0);
    Regret { total: excess(0), after_exploration: excess(known), exploration: exploring / auto.seconds() }
}

/// The results of [`compare`].
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The controller.
    pub auto: Run,
    /// Somebody who knows everything beforehand.
    pub oracle: Run,
    /// What the one lost against the other.
    pub regret: Regret,
    /// The fastest fixed choice that sends at least as much of the gradient as the controller did: what could have
    /// been chosen once and for all, in hindsight.
    pub best_fixed: Option<(String, Run)>,
    /// The slowest of the papers' fixed choices.
    pub worst_fixed: Option<(String, Run)>,
}

/// What AR-Topk's authors compare with, at their densities.
const PAPER: [&str; 7] = [
    "dense",
    "topk:density=0.1",
    "topk:density=0.01",
    "topk:density=0.001",
    "ar-topk:density=0.1",
    "ar-topk:density=0.01",
    "ar-topk:density=0.001",
];

/// Runs the controller, the oracle, and every fixed choice within the limits at the densities of the ladder.
pub fn compare(scene: &Scene, limits: &Limits, progress: &mut dyn FnMut(&str, usize)) -> Result<Comparison> {
    let mut told = |name: &str, driver: Driver| run(scene, &driver, &mut |step| progress(name, step));
    let auto = told("auto", Driver::Auto(limits.clone()))?;
    let oracle = told("oracle", Driver::Oracle(limits.clone()))?;
    let mut best: Option<(String, Run)> = None;
    for way in limits.ways()? {
        for density in LADDER.into_iter().filter(|c| !way.is_dense() || *c == LADDER[0]) {
            let name =
                if way.is_dense() { way.to_string() } else { format!("{way}, {:.1} %", 100.0 * density) };
            let ways = vec![way.clone(); scene.buckets.len()];
            let fixed = told(&name, Driver::Fixed { ways, density })?;
            let faster = best.as_ref().is_none_or(|(_, best)| fixed.seconds() < best.seconds());
            if fixed.gain() >= auto.gain() && faster {
                best = Some((name, fixed));
            }
        }
    }
    let mut worst: Option<(String, Run)> = None;
    for spec in PAPER {
        let fixed = told(spec, Driver::parse(spec, scene)?)?;
        if worst.as_ref().is_none_or(|(_, worst)| fixed.seconds() > worst.seconds()) {
            worst = Some((spec.to_owned(), fixed));
        }
    }
    let regret = regret(&auto, &oracle);
    Ok(Comparison { auto, oracle, regret, best_fixed: best, worst_fixed: worst })
}
