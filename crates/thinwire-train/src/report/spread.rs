//! How steps spread: who led them, and how far each was compressed (paper 2).

use super::axis::{Axis, span};
use super::chart::{Chart, Side};
use super::figure::{Figure, legend_of};
use super::group::Group;
use super::number::{Unit, whole};
use super::svg::Fill;
use crate::event::Step;

/// Bins of the histogram of wire ratios.
const BINS: usize = 40;

/// Dense bytes over sent bytes of one step; `None` for a step that was skipped or sent nothing.
pub(crate) fn wire_ratio(step: &Step) -> Option<f64> {
    (!step.skipped && step.sent > 0 && step.dense_bytes > 0)
        .then(|| step.dense_bytes as f64 / step.sent as f64)
}

/// Histograms of leaders and of wire ratios.
pub(crate) fn figure(groups: &[Group<'_>]) -> Figure {
    let panels: Vec<String> = leaders(groups).into_iter().chain(ratios(groups)).collect();
    Figure {
        title: "Leaders and ratios of single steps",
        legend: legend_of(&groups.iter().collect::<Vec<_>>()),
        panels,
        caption: "How often each worker named the coordinates for all (AR-Topk, paper 2: in turn, or whoever has the \
                  most energy; importance pruning, paper 1: drawn by lot), and how the wire ratios of single steps \
                  spread. Even bars mean that no worker's data is favoured."
            .into(),
        ..Figure::default()
    }
}

fn steps<'a>(group: &'a Group<'_>) -> impl Iterator<Item = &'a Step> {
    group.runs.iter().flat_map(|run| &run.steps)
}

fn leaders(groups: &[Group<'_>]) -> Option<String> {
    let led: Vec<&Group<'_>> =
        groups.iter().filter(|group| steps(group).any(|step| step.leader.is_some())).collect();
    let workers = led.iter().map(|group| group.settings().workers);
    let named = led.iter().flat_map(|group| steps(group)).filter_map(|step| step.leader).map(|rank| rank + 1);
    // A rank from a damaged file must not ask for a drawing without end.
    let workers = workers.chain(named).max()?.min(4096);
    let counted = led.iter().map(|group| {
        let mut counts = vec![0u64; workers];
        for leader in steps(group).filter_map(|step| step.leader).filter(|&rank| rank < workers) {
            counts[leader] += 1;
        }
        counts
    });
    let counted: Vec<Vec<u64>> = counted.collect();
    let share = |counts: &[u64], rank: usize| counts[rank] as f64 / counts.iter().sum::<u64>().max(1) as f64;
    let highest =
        counted.iter().flat_map(|counts| (0..workers).map(|rank| share(counts, rank))).fold(0.0, f64::max);
    let x = Axis::counted(-0.5, workers as f64 - 0.5, "worker that led");
    let mut chart =
        Chart::new("Leaders", x, Axis::fixed(0.0, highest * 1.15, Unit::Share, "share of the steps"));
    for (place, (group, counts)) in led.iter().zip(&counted).enumerate() {
        let width = 0.8 / led.len() as f64;
        for (rank, count) in counts.iter().enumerate() {
            let from = rank as f64 - 0.4 + place as f64 * width;
            let fill = Fill { colour: group.look.colour, hatching: group.look.dash % 5 };
            let title = format!("{}: worker {rank} led {} steps", group.label, whole(*count));
            chart.bar(from, from + width, share(counts, rank), fill, &title);
        }
    }
    chart.level(1.0 / workers as f64, "even", Side::Right);
    Some(chart.svg())
}

fn ratios(groups: &[Group<'_>]) -> Option<String> {
    let ratios: Vec<(&Group<'_>, Vec<f64>)> = groups
        .iter()
        .map(|group| (group, steps(group).filter_map(wire_ratio).collect::<Vec<f64>>()))
        .filter(|(_, ratios)| !ratios.is_empty())
        .collect();
    let (low, high) = span(ratios.iter().flat_map(|(_, ratios)| ratios.iter().copied()))?;
    // Bins of equal ratio; a run that never changes its ratio still fills a bin of visible width.
    let (low, high) = (low / 1.1, high * 1.1);
    let edge = |bin: usize| low * (high / low).powf(bin as f64 / BINS as f64);
    let x = Axis::log([low, high].into_iter(), Unit::Times, "dense bytes over sent bytes of a step");
    let shares = ratios.iter().map(|(_, ratios)| {
        let mut counts = [0u64; BINS];
        for ratio in ratios {
            let bin = ((ratio / low).ln() / (high / low).ln() * BINS as f64) as usize;
            counts[bin.min(BINS - 1)] += 1;
        }
        counts.map(|count| count as f64 / ratios.len() as f64)
    });
    let shares: Vec<[f64; BINS]> = shares.collect();
    let highest = shares.iter().flatten().copied().fold(0.0, f64::max);
    let mut chart =
        Chart::new("Wire ratios", x, Axis::fixed(0.0, highest * 1.08, Unit::Share, "share of the steps"));
    for ((group, _), shares) in ratios.iter().zip(&shares) {
        let corners = |bin: usize| [(edge(bin), shares[bin]), (edge(bin + 1), shares[bin])];
        let outline: Vec<(f64, f64)> =
            [(low, 0.0)].into_iter().chain((0..BINS).flat_map(corners)).chain([(high, 0.0)]).collect();
        chart.band(&outline.iter().map(|(x, y)| Some((*x, 0.0, *y))).collect::<Vec<_>>(), group.look);
        chart.line(&outline.into_iter().map(Some).collect::<Vec<_>>(), group.look, &group.label);
    }
    Some(chart.svg())
}
