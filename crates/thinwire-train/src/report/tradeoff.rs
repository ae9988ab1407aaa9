//! Quality against cost: one dot for each kind of run.

use super::axis::Axis;
use super::chart::Chart;
use super::figure::{Figure, legend_of};
use super::group::Group;
use super::number::{Unit, measure};
use super::table::Comparison;
use crate::event::Measure;

/// The result against bytes sent and against the time of a step; only where there is something to compare.
pub(crate) fn figure(groups: &[Group<'_>], rows: &[Comparison]) -> Figure {
    let Some(kind) = rows.first().map(|row| row.measure) else { return Figure::default() };
    let alike = rows.iter().all(|row| row.measure == kind);
    let drawn: Vec<(&Group<'_>, &Comparison, f64)> =
        groups.iter().zip(rows).filter_map(|(group, row)| Some((group, row, row.value_mean?))).collect();
    if !alike || drawn.len() < 2 {
        return Figure::default();
    }
    let (unit, name) = match kind {
        Measure::Accuracy => (Unit::Share, "test accuracy at the end"),
        Measure::Perplexity => (Unit::Plain, "test perplexity at the end"),
    };
    let panel = |title: &str, x: Axis, of: &dyn Fn(&Comparison) -> Option<f64>| {
        let ends = drawn.iter().flat_map(|(_, row, value)| {
            let spread = row.value_spread.unwrap_or(0.0);
            // Less than a hundredth is no difference to look at.
            let air = spread.max(if kind == Measure::Accuracy { 0.01 } else { 0.03 * value });
            [value - air, value + air]
        });
        let mut chart = Chart::new(title, x, Axis::fitting(ends, unit, name));
        for (group, row, value) in &drawn {
            let Some(x) = of(row) else { continue };
            if let Some(spread) = row.value_spread {
                let ends = [Some((x, value - spread)), Some((x, value + spread))];
                chart.line(
                    &ends,
                    super::svg::Look { dash: 0, ..group.look },
                    "standard deviation over seeds",
                );
            }
            chart.dot(x, *value, 6.0, group.look, &format!("{}: {}", group.label, measure(unit, *value)));
        }
        // Only once all dots are drawn it is known where words find room.
        for (group, row, value) in &drawn {
            if let Some(x) = of(row) {
                chart.words(x, *value, &group.label);
            }
        }
        chart.svg()
    };
    let sent =
        Axis::log(drawn.iter().map(|(_, row, _)| row.sent_mean), Unit::Bytes, "bytes sent by one worker");
    let times = drawn.iter().filter_map(|(_, row, _)| row.seconds_per_step);
    let longest = times.fold(0.0, f64::max) * 1.05;
    let step = Axis::fixed(0.0, longest, Unit::Seconds, "time of a step");
    let better = if kind == Measure::Accuracy { "upper" } else { "lower" };
    Figure {
        title: "What is gained, and at what price",
        legend: legend_of(&groups.iter().collect::<Vec<_>>()),
        panels: vec![
            panel("Quality against bytes", sent, &|row| (row.sent_mean > 0.0).then_some(row.sent_mean)),
            panel("Quality against time", step, &|row| row.seconds_per_step),
        ],
        caption: format!(
            "Each dot is one kind of run; the {better} left corner is where one wants to be. Strokes are one standard \
             deviation over the seeds, where there are several."
        ),
        ..Figure::default()
    }
}
