//! What somebody would choose who knows everything beforehand.
//!
//! The same objective as the controller's, with the same limits: but the true network of the step that comes, as each
//! collective really finds it, the true gains, nothing to learn, no probe and no delay.

use super::Scene;
use super::clock::Clock;
use crate::Result;
use crate::adapt::cost::{Network, Ranks};
use crate::adapt::gain::Curve;
use crate::adapt::price::{Model, Way, Workshop};
use crate::adapt::solve::{Measured, Problem, Solution};
use crate::adapt::{Limits, Solver};

/// A change of the gains' exponent by less than this part is none.
const SAME: f64 = 2e-3;

pub(super) struct Oracle<'a> {
    scene: &'a Scene,
    limits: Limits,
    ways: Vec<Way>,
    measured: Vec<Measured>,
    buckets: Vec<f64>,
    compute: f64,
    known: Option<(Network, f64, Solution)>,
    /// Counts its choices.
    pub number: u32,
}

impl<'a> Oracle<'a> {
    pub fn new(scene: &'a Scene, limits: &Limits) -> Result<Oracle<'a>> {
        let ways = limits.ways()?;
        let cluster = &scene.cluster;
        let slowest = (0..cluster.workers).map(|rank| cluster.usual_pace(rank)).fold(1.0, f64::max);
        // Of many that vary evenly to both sides, the slowest is nearly at the end.
        let count = cluster.workers as f64;
        let noise = 1.0 + cluster.noise * (count - 1.0) / (count + 1.0);
        Ok(Oracle {
            scene,
            // Both solvers find the same, and this is the faster one.
            limits: Limits { solver: Solver::Grid, ..limits.clone() },
            measured: vec![Measured::default(); ways.len()],
            ways,
            buckets: scene.buckets.iter().map(|elements| *elements as f64).collect(),
            compute: cluster.compute * slowest * noise,
            known: None,
            number: 0,
        })
    }

    pub fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// The best for a step, and the gain it has.
    pub fn choose(&mut self, step: usize, clock: &mut Clock<'_>) -> Result<(Vec<usize>, f64, f64)> {
        let (network, part) = (clock.network(step), clock.part(step));
        let exponent = self.scene.gains.exponent(part);
        let same = |(before, gains, _): &(Network, f64, Solution)| {
            *before == network && (gains / exponent - 1.0).abs() < SAME
        };
        let curve: Curve = self.scene.gains.curve(part);
        if !self.known.as_ref().is_some_and(same) {
            let model = Model {
                ranks: Ranks::new(self.scene.cluster.workers),
                wire: clock.truth(network),
                workshop: Workshop::default(),
            };
            let problem = Problem {
                model: &model,
                ways: &self.ways,
                measured: &self.measured,
                buckets: &self.buckets,
                limits: &self.limits,
                curve: &curve,
                compute: self.compute,
                full_only: false,
            };
            let solution = problem.solve()?;
            let differs = |(_, _, before): &(Network, f64, Solution)| before.ways != solution.ways;
            self.number += u32::from(self.known.as_ref().is_none_or(differs));
            self.known = Some((network, exponent, solution));
        }
        let Some((_, _, Solution { ways, density, .. })) = &self.known else {
            return Ok((Vec::new(), 1.0, 1.0));
        };
        let dense = ways.iter().all(|way| self.ways[*way].is_dense());
        Ok((ways.clone(), *density, if dense { 1.0 } else { curve.at(*density) }))
    }
}
