//! Whether the methods send as many coordinates as they were asked for.

use super::axis::Axis;
use super::chart::{Chart, Side};
use super::figure::{Figure, Trace, legend_of};
use super::group::Group;
use super::number::Unit;
use super::series::{Against, Thinning};

/// The part of the run over which the line is averaged.
const SMOOTHING: f64 = 0.02;

/// Achieved over asked k.
pub(crate) fn figure(groups: &[Group<'_>], thinning: Thinning) -> Figure {
    let of = |group| {
        Trace::of(group, thinning, SMOOTHING, |step| {
            (step.asked > 0 && !step.skipped).then(|| step.kept as f64 / step.asked as f64)
        })
    };
    let traces: Vec<Trace<'_>> = groups.iter().filter_map(of).collect();
    let panel = || {
        let places = traces.iter().flat_map(|trace| trace.places(Against::Steps));
        let x = Axis::fixed(0.0, places.fold(0.0, f64::max), Unit::Plain, "steps");
        // A method that keeps to its k exactly must not fill the height with rounding.
        let values = traces.iter().flat_map(Trace::means).chain([0.8, 1.2]);
        let mut chart =
            Chart::new("Achieved over asked k", x, Axis::fitting(values, Unit::Times, "sent over asked"));
        chart.level(1.0, "as asked", Side::Right);
        traces.iter().for_each(|trace| {
            trace.draw(&mut chart, Against::Steps, traces.len() == 1 && traces[0].runs.len() == 1)
        });
        chart.svg()
    };
    Figure {
        title: "Is k what was asked?",
        legend: legend_of(&traces.iter().map(|trace| trace.group).collect::<Vec<_>>()),
        panels: if traces.is_empty() { Vec::new() } else { vec![panel()] },
        caption: "Coordinates that were sent over those that were asked for, averaged over 2 % of the steps. Exact selection lies on 1; selection by \
                  an estimated threshold (Gaussian-k, paper 4; threshold search and reuse, paper 5) scatters around \
                  it, and coordinates agreed by several leaders (paper 1) may lie above it."
            .into(),
        ..Figure::default()
    }
}
