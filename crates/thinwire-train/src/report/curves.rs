//! What was learnt, against steps, bytes and seconds.

use super::axis::Axis;
use super::chart::{Chart, Side};
use super::figure::{Figure, Trace, legend_of};
use super::group::Group;
use super::number::{Unit, measure};
use super::series::{Against, Pooled, Thinning, pool_evaluations};
use crate::event::Measure;

/// Raw losses are drawn for so few runs that they do not hide one another.
const FEW: usize = 3;

const AXES: [(Against, Unit, &str); 3] = [
    (Against::Steps, Unit::Plain, "steps"),
    (Against::Sent, Unit::Bytes, "bytes sent by one worker"),
    (Against::Seconds, Unit::Seconds, "time of training"),
];

fn axis(against: Against, unit: Unit, label: &str, places: impl Iterator<Item = f64>) -> Axis {
    match against {
        Against::Sent => Axis::log(places, unit, label),
        // A little air, so that the last dot is whole.
        _ => {
            Axis::fixed(0.0, 1.02 * places.filter(|place| place.is_finite()).fold(0.0, f64::max), unit, label)
        }
    }
}

/// The training loss.
pub(crate) fn loss(groups: &[Group<'_>], thinning: Thinning) -> Figure {
    let of = |group| Trace::of(group, thinning, 0.02, |step| (!step.skipped).then_some(step.loss));
    let traces: Vec<Trace<'_>> = groups.iter().filter_map(of).collect();
    let raw = traces.iter().map(|trace| trace.runs.len()).sum::<usize>() <= FEW;
    let panel = |(against, unit, label): (Against, Unit, &str)| {
        let x = axis(against, unit, label, traces.iter().flat_map(|trace| trace.places(against)));
        let y = Axis::fitting(traces.iter().flat_map(Trace::means), Unit::Plain, "training loss");
        let mut chart = Chart::new(short(against), x, y);
        traces.iter().for_each(|trace| trace.draw(&mut chart, against, raw));
        chart.svg()
    };
    let faint = match traces.iter().any(|trace| trace.runs.len() > 1) {
        _ if raw => "; the faint area is the raw loss of each step",
        true => "; faint lines are single seeds, bands one standard deviation over them",
        false => "",
    };
    let compared = match traces.len() {
        0 | 1 => "Against bytes, on a logarithmic axis, one sees how far the first bytes carry.",
        _ => {
            "Curves that coincide against steps show that compression costs no learning; against bytes and seconds \
             they show what it saves."
        }
    };
    Figure {
        title: "Training loss",
        legend: legend_of(&traces.iter().map(|trace| trace.group).collect::<Vec<_>>()),
        panels: if traces.is_empty() { Vec::new() } else { AXES.map(panel).to_vec() },
        caption: format!("The loss of worker 0, averaged over 2 % of the steps{faint}. {compared}"),
        ..Figure::default()
    }
}

fn short(against: Against) -> &'static str {
    match against {
        Against::Steps => "Against steps",
        Against::Sent => "Against bytes",
        Against::Seconds => "Against time",
    }
}

/// Accuracy or perplexity on the test set; one figure for each measure there is.
pub(crate) fn tests(groups: &[Group<'_>], target: Option<f64>) -> Vec<Figure> {
    let of = |kind| {
        let groups: Vec<&Group<'_>> = groups.iter().filter(|group| group.measure() == kind).collect();
        test(&groups, kind, target)
    };
    vec![of(Measure::Accuracy), of(Measure::Perplexity)]
}

fn test(groups: &[&Group<'_>], kind: Measure, target: Option<f64>) -> Figure {
    let (unit, name, title) = match kind {
        Measure::Accuracy => (Unit::Share, "test accuracy", "Test accuracy"),
        Measure::Perplexity => (Unit::Plain, "test perplexity", "Test perplexity"),
    };
    let drawn: Vec<(&Group<'_>, Vec<Pooled>)> = groups
        .iter()
        .map(|group| (*group, pool_evaluations(&group.runs)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let all = || drawn.iter().flat_map(|(_, points)| points);
    let panel = |(against, unit_along, label): (Against, Unit, &str)| {
        let x = axis(against, unit_along, label, all().map(|point| point.place.along(against)));
        let ends = all().flat_map(|point| [point.mean - point.spread, point.mean + point.spread]);
        let y = Axis::fitting(ends.chain(target), unit, name);
        let mut chart = Chart::new(short(against), x, y);
        if let Some(target) = target {
            chart.level(target, &format!("target {}", measure(unit, target)), Side::Left);
        }
        for (group, points) in &drawn {
            draw(&mut chart, group, points, against, unit);
        }
        chart.svg()
    };
    let what = match kind {
        Measure::Accuracy => "The part of the test samples that the model gets right",
        Measure::Perplexity => "The perplexity of the model on the test set: less is better",
    };
    let seeds = if groups.iter().any(|group| group.runs.len() > 1) {
        " Bands are one standard deviation over the seeds."
    } else {
        ""
    };
    Figure {
        title,
        legend: legend_of(&drawn.iter().map(|(group, _)| *group).collect::<Vec<_>>()),
        // A single evaluation is no curve; it stands among the headline figures.
        panels: if drawn.iter().all(|(_, points)| points.len() < 2) {
            Vec::new()
        } else {
            AXES.map(panel).to_vec()
        },
        caption: format!(
            "{what}, after so many steps, bytes and seconds of training; the further left a curve lies, the sooner \
             or the cheaper it gets there.{seeds} Evaluations themselves are not in the time."
        ),
        ..Figure::default()
    }
}

fn draw(chart: &mut Chart, group: &Group<'_>, points: &[Pooled], against: Against, unit: Unit) {
    // Many evaluations are thinned like steps are; the last one stays, for it is the result.
    let stride = points.len().div_ceil(300);
    let kept = |place: &usize| (points.len() - 1 - place).is_multiple_of(stride);
    let shown: Vec<&Pooled> = (0..points.len()).filter(kept).map(|place| &points[place]).collect();
    if group.runs.len() > 1 {
        let band = |at: &Pooled| Some((at.place.along(against), at.mean - at.spread, at.mean + at.spread));
        chart.band(&shown.iter().map(|at| band(at)).collect::<Vec<_>>(), group.look);
    }
    let line: Vec<_> = shown.iter().map(|at| Some((at.place.along(against), at.mean))).collect();
    chart.line(&line, group.look, &group.label);
    let dots = if shown.len() <= 30 { &shown[..] } else { &shown[shown.len() - 1..] };
    for at in dots {
        let title = format!("{}: {} at step {}", group.label, measure(unit, at.mean), at.place.step);
        chart.dot(at.place.along(against), at.mean, 2.6, group.look, &title);
    }
}
