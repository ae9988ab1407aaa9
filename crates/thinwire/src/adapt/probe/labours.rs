//! How long ranks work at both ends of the wire, by real steps.

use super::Effort;
use super::agree::{largest, median};
use super::fit::two_costs;
use crate::adapt::cost::Ranks;
use crate::adapt::price::{Labour, Way, Wire};
use crate::group::{Group, Mark, SharedGroup};
use crate::select::mix;
use crate::synchronizer::Options;
use crate::{Bucket, Result, Synchronizer};

/// Densities at which methods that choose are measured.
const DENSITIES: [f64; 2] = [0.003, 0.03];

/// Steps that do not count, and steps that do.
const WARM_UP: usize = 3;
const STEPS: usize = 5;

/// Fewer elements than this would measure the calls.
const FEWEST: usize = 1 << 14;

/// What one method costs a rank.
pub(super) fn measure(
    group: &SharedGroup,
    method: &str,
    wire: &Wire,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Labour> {
    let ways = Way::all(method)?;
    let way = &ways[ways.len() - 1];
    let ranks = Ranks::new(group.size());
    let mut labour = Labour::default();
    let densities = if way.is_dense() { &[1.0][..] } else { &DENSITIES };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for &density in densities {
        progress(&format!("{method} at {density}"));
        let on_the_wire = |elements: usize| -> f64 {
            way.legs(elements as f64, density).into_iter().map(|leg| wire.seconds(ranks, leg)).sum()
        };
        let mut elements = effort.elements;
        while elements > FEWEST && on_the_wire(elements) > effort.seconds {
            elements /= 2;
        }
        let work = steps(group, method, way, elements, density)?;
        let (elements, kept) = (elements as f64, way.kept(elements as f64, density));
        let received = if way.is_gathered() { kept * ranks.count() as f64 } else { kept };
        before.push(([elements, kept], work.before));
        after.push(([elements, received], work.after));
    }
    if way.is_dense() {
        let ([elements, _], seconds) = before[0];
        labour.element = (seconds + after[0].1) / elements;
    } else {
        let ([own, kept], [theirs, received]) = (two_costs(&before), two_costs(&after));
        labour = Labour { element: own + theirs, kept, received };
    }
    tracing::debug!(method, ?before, ?after, ?labour);
    Ok(labour)
}

/// Seconds of work before and after the bytes travel.
struct Work {
    before: f64,
    after: f64,
}

/// The slowest rank's work in some steps: the others wait for it.
fn steps(group: &SharedGroup, method: &str, way: &Way, elements: usize, density: f64) -> Result<Work> {
    let mut group = group.clone();
    // Two dimensions: vectors are sent dense by some methods.
    let columns = 64.min(elements);
    let bucket = Bucket::new(0, [("probe.weight", vec![elements / columns, columns])])?;
    let elements = bucket.len();
    let options = Options { algorithm: Some(way.sum), check_replicas_every: 0, ..Options::default() };
    let mut synchronizer = Synchronizer::with_options(group.clone(), method, bucket, options)?;
    synchronizer.set_epoch(f64::INFINITY);
    if !way.is_dense() {
        synchronizer.set_density(Some(density))?;
    }
    let seed = group.rank() as u64 + 1;
    let fresh = [gradient(elements, 2 * seed), gradient(elements, 2 * seed + 1)];
    let weights = [weights(elements)];
    let mut gradients = [Vec::with_capacity(elements)];
    let mut times = Vec::new();
    for step in 0..WARM_UP + STEPS {
        gradients[0].clone_from(&fresh[step % 2]);
        group.mark(Mark { step: step as u64, ..Mark::default() });
        group.barrier()?;
        let report = synchronizer.step(&mut gradients, &weights)?;
        if step >= WARM_UP {
            let after = report.times.settle;
            let before = report.times.total.saturating_sub(report.times.exchange + after);
            times.extend([before.as_secs_f64(), after.as_secs_f64()]);
        }
    }
    group.mark(Mark::default());
    let times = largest(&mut group, &times)?;
    let every_other = |first: usize| median(times[first..].iter().copied().step_by(2).collect());
    Ok(Work { before: every_other(0), after: every_other(1) })
}

/// Values as a gradient has them: many small ones, few large ones, each rank its own but for a common part.
fn gradient(elements: usize, seed: u64) -> Vec<f32> {
    let value = |position: usize| {
        let (fresh, common) = (bell(position as u64, seed), bell(position as u64, 0));
        1e-3 * (0.2 * common + fresh + 0.1 * fresh * fresh * fresh)
    };
    (0..elements).map(value).collect()
}

fn weights(elements: usize) -> Vec<f32> {
    (0..elements).map(|position| 0.02 * bell(position as u64, u64::MAX)).collect()
}

/// Four uniform numbers out of one random word, added up: nearly normal, deviation 1.
fn bell(position: u64, seed: u64) -> f32 {
    let word = mix((position + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ mix(seed));
    let sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    (sum as f32 / 65536.0 - 2.0) * 1.732
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_have_a_mean_near_zero_and_a_tail() {
        let values = gradient(100_000, 3);
        let mean = values.iter().sum::<f32>() / 1e5;
        let square = values.iter().map(|value| value * value).sum::<f32>() / 1e5;
        assert!(mean.abs() < 2e-5 && (1e-6..4e-6).contains(&square), "{mean} {square}");
        let beyond = values.iter().filter(|value| value.abs() > 3.0 * square.sqrt()).count();
        assert!((500..3000).contains(&beyond), "{beyond}");
        assert_ne!(values, gradient(100_000, 4));
    }
}
