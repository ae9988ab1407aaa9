//! How long ranks work at both ends of the wire, by real steps.

use std::time::Instant;

use super::Effort;
use super::agree::{largest, median};
use super::fit::two_costs;
use super::gradients::Gradients;
use crate::adapt::cost::Ranks;
use crate::adapt::price::{Labour, Way, Wire, Workshop};
use crate::group::{Algorithm, Group, Mark, SharedGroup};
use crate::synchronizer::Options;
use crate::{Bucket, Result, Synchronizer};

/// Densities at which methods that choose are measured. Values cost less each where there are more of them, so that two would
/// not do.
const DENSITIES: [f64; 3] = [0.003, 0.008, 0.03];

/// Steps that do not count, and seconds of steps that do, but for a number of them in these bounds.
const WARM_UP: usize = 3;
const SECONDS: f64 = 0.1;
const STEPS: std::ops::RangeInclusive<usize> = 5..=25;

/// There are many steps: each may take only this part of the time of a message.
const STEP_OF_MESSAGE: f64 = 0.25;

/// Fewer elements than this would measure the calls.
const FEWEST: usize = 1 << 14;

/// Notes what one method costs a rank, by either algorithm, and in the mean.
pub(super) fn measure(
    group: &SharedGroup,
    method: &str,
    wire: &Wire,
    effort: &Effort,
    supply: &mut Supply,
    workshop: &mut Workshop,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut mean = Labour::default();
    for how in [Algorithm::Ring, Algorithm::Tree] {
        let way = Way::by(method, how)?;
        progress(&way.to_string());
        let labour = by(group, &way, wire, effort, supply)?;
        workshop.set_way(&way, labour);
        mean.element += labour.element / 2.0;
        mean.kept += labour.kept / 2.0;
        mean.received += labour.received / 2.0;
    }
    workshop.set(method, mean);
    Ok(())
}

/// What a method costs by one of its ways.
///
/// Work is what a whole step takes beyond what its collectives take by themselves. That is more than a rank counts
/// itself where ranks share cores and wait for each other, and less where bytes travel while somebody still works. How
/// much of it is for values sent and how much for values received is told by the ranks' own clocks.
fn by(group: &SharedGroup, way: &Way, wire: &Wire, effort: &Effort, supply: &mut Supply) -> Result<Labour> {
    let ranks = Ranks::new(group.size());
    let densities = if way.is_dense() { &[1.0][..] } else { &DENSITIES };
    let (mut before, mut after, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for &density in densities {
        let on_the_wire = |elements: usize| -> f64 {
            let legs = way.legs(elements as f64, density).into_iter().chain(way.verdict());
            legs.map(|leg| wire.seconds(ranks, leg)).sum()
        };
        let mut elements = effort.elements;
        while elements > FEWEST && on_the_wire(elements) > STEP_OF_MESSAGE * effort.seconds {
            elements /= 2;
        }
        let wire = on_the_wire(elements);
        let work = steps(group, way, elements, density, wire, supply)?;
        let (elements, kept) = (elements as f64, way.kept(elements as f64, density));
        before.push(([elements, kept], work.before));
        after.push(([elements, kept], work.after));
        whole.push(([elements, kept], (work.total - wire).max(LEAST * (work.before + work.after))));
    }
    let labour = if way.is_dense() {
        let ([elements, _], seconds) = whole[0];
        Labour { element: seconds / elements, ..Labour::default() }
    } else {
        let ([_, sent], [_, received]) = (two_costs(&before), two_costs(&after));
        let [element, value] = two_costs(&whole);
        let share = if sent + received > 0.0 { sent / (sent + received) } else { 1.0 };
        // In a gather everybody's values are received.
        let times = if way.is_gathered() { ranks.count() as f64 } else { 1.0 };
        Labour { element, kept: value * share, received: value * (1.0 - share) / times }
    };
    tracing::debug!(way = %way, ?before, ?after, ?whole, ?labour);
    Ok(labour)
}

/// However much travels while somebody works, this part of the work is there.
const LEAST: f64 = 0.3;

/// Seconds of work before and after the bytes travel by a rank's own clock, and of the whole step.
struct Work {
    before: f64,
    after: f64,
    total: f64,
}

/// What steps work on: making it takes longer than the steps, so that those of one length share it.
#[derive(Debug, Default)]
pub(super) struct Supply {
    fresh: [Vec<f32>; 2],
    weights: [Vec<f32>; 1],
}

impl Supply {
    fn make(&mut self, elements: usize, rank: usize) {
        if self.weights[0].len() == elements {
            return;
        }
        let source = Gradients::new(elements, 1);
        for (gradient, number) in self.fresh.iter_mut().zip(2 * rank as u64..) {
            gradient.resize(elements, 0.0);
            source.fill(number, gradient);
        }
        self.weights[0].resize(elements, 0.0);
        source.weights(&mut self.weights[0]);
    }
}

/// The slowest rank's times in some steps: the others wait for it.
fn steps(
    group: &SharedGroup,
    way: &Way,
    elements: usize,
    density: f64,
    wire: f64,
    supply: &mut Supply,
) -> Result<Work> {
    let mut group = group.clone();
    // Two dimensions: vectors are sent dense by some methods.
    let columns = 64.min(elements);
    let bucket = Bucket::new(0, [("probe.weight", vec![elements / columns, columns])])?;
    let elements = bucket.len();
    let options = Options { algorithm: Some(way.sum), check_replicas_every: 0, ..Options::default() };
    let mut synchronizer = Synchronizer::with_options(group.clone(), &way.method, bucket, options)?;
    synchronizer.set_epoch(f64::INFINITY);
    if !way.is_dense() {
        synchronizer.set_density(Some(density))?;
    }
    supply.make(elements, group.rank());
    let Supply { fresh, weights } = supply;
    let mut gradients = [Vec::with_capacity(elements)];
    let mut times = Vec::new();
    // A nanosecond for an element, at least.
    let counted = ((SECONDS / (wire + 1e-9 * elements as f64)) as usize).clamp(*STEPS.start(), *STEPS.end());
    for step in 0..WARM_UP + counted {
        gradients[0].clone_from(&fresh[step % 2]);
        group.mark(Mark { step: step as u64, ..Mark::default() });
        group.barrier()?;
        let begun = Instant::now();
        let report = synchronizer.step(&mut gradients, &weights[..])?;
        let total = begun.elapsed();
        if step >= WARM_UP {
            let after = report.times.settle;
            let before = report.times.total.saturating_sub(report.times.exchange + after);
            times.extend([before, after, total].map(|time| time.as_secs_f64()));
        }
    }
    group.mark(Mark::default());
    let times = largest(&mut group, &times)?;
    let every_third = |first: usize| median(times[first..].iter().copied().step_by(3).collect());
    Ok(Work { before: every_third(0), after: every_third(1), total: every_third(2) })
}
