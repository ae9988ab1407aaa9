//! Bytes of a step, against those of a dense ring.

use super::axis::Axis;
use super::chart::{Chart, Side};
use super::figure::{Figure, Trace, legend_of};
use super::group::Group;
use super::number::Unit;
use super::series::{Against, Thinning};

/// The part of the run over which lines are averaged: some methods alternate from step to step.
const SMOOTHING: f64 = 0.02;

/// Bytes per step, and how many times less than dense that is.
pub(crate) fn figure(groups: &[Group<'_>], thinning: Thinning) -> Figure {
    let sent = |group| {
        Trace::of(group, thinning, SMOOTHING, |step| {
            (step.sent > 0 && !step.skipped).then_some(step.sent as f64)
        })
    };
    let ratio = |group| Trace::of(group, thinning, SMOOTHING, super::spread::wire_ratio);
    let sent: Vec<Trace<'_>> = groups.iter().filter_map(sent).collect();
    let ratio: Vec<Trace<'_>> = groups.iter().filter_map(ratio).collect();
    let dense =
        groups.iter().flat_map(|group| &group.runs).flat_map(|run| &run.steps).map(|step| step.dense_bytes);
    let dense = dense.max().unwrap_or(0) as f64;
    let raw = groups.len() == 1 && groups[0].runs.len() == 1;
    let mut panels = Vec::new();
    if !sent.is_empty() {
        let values = sent.iter().flat_map(Trace::means).chain((dense > 0.0).then_some(dense));
        let mut chart =
            Chart::new("Bytes of a step", steps(&sent), Axis::log(values, Unit::Bytes, "sent by one worker"));
        chart.level(dense, "dense ring", Side::Right);
        sent.iter().for_each(|trace| trace.draw(&mut chart, Against::Steps, raw));
        panels.push(chart.svg());
    }
    if !ratio.is_empty() {
        let values = ratio.iter().flat_map(Trace::means).chain([1.0]);
        let y = Axis::fitting(values, Unit::Times, "dense bytes over sent bytes");
        let mut chart = Chart::new("Wire ratio", steps(&ratio), y);
        chart.level(1.0, "dense ring", Side::Right);
        ratio.iter().for_each(|trace| trace.draw(&mut chart, Against::Steps, raw));
        panels.push(chart.svg());
    }
    Figure {
        title: "Bytes on the wire",
        legend: legend_of(&sent.iter().map(|trace| trace.group).collect::<Vec<_>>()),
        panels,
        caption: "All bytes that worker 0 sent for a step, averaged over 2 % of the steps: values, coordinates, headers, and what the collective \
                  passes on for others. The ratio is to a dense ring all-reduce; while the density warms up (papers \
                  2, 4 and 5) more is sent."
            .into(),
        ..Figure::default()
    }
}

fn steps(traces: &[Trace<'_>]) -> Axis {
    let places = traces.iter().flat_map(|trace| trace.places(Against::Steps));
    Axis::fixed(0.0, places.fold(0.0, f64::max), Unit::Plain, "steps")
}
