//! The runs as a drawing: time and gain of each step, with the changes of the network.

use thinwire::adapt::simulate::Step;
use thinwire_train::report::{Axis, Chart, Look, Unit, sheet};

use super::outcome::{Named, Outcome};
use super::report::link;
use crate::human;

/// Points of a line: each is the mean of as many steps as it takes.
const POINTS: usize = 250;

/// A line; `None` where there is nothing to draw.
type Line = Vec<Option<(f64, f64)>>;

/// The drawing, as an SVG file.
pub fn svg(outcome: &Outcome) -> String {
    let mut runs: Vec<(&Named, Look, String)> = Vec::new();
    // What lies over the others is drawn last.
    if let Some(best) = &outcome.best_fixed {
        runs.push((best, Look::dense(), format!("best fixed: {}", best.name)));
    }
    if let Some(oracle) = &outcome.oracle {
        runs.push((oracle, Look::numbered(1), "oracle".into()));
    }
    runs.push((&outcome.run, Look::numbered(0), outcome.run.name.clone()));
    let legend: Vec<(Look, String)> = runs.iter().map(|(_, look, name)| (*look, name.clone())).collect();
    let times = panel(outcome, &runs, "Time of a step", Unit::Seconds, "step", |step| step.seconds);
    let gains =
        panel(outcome, &runs, "Share of the gradient's energy that is sent", Unit::Share, "gain", |step| {
            step.gain
        });
    let title = format!(
        "{} on {} workers, {} parameters, {} of computing",
        outcome.run.name,
        outcome.assumed.workers,
        human::count(outcome.assumed.parameters),
        human::seconds(outcome.assumed.compute_seconds)
    );
    sheet(&title, &legend, &[times, gains])
}

fn panel(
    outcome: &Outcome,
    runs: &[(&Named, Look, String)],
    title: &str,
    unit: Unit,
    label: &str,
    of: fn(&Step) -> f64,
) -> String {
    let lines: Vec<Line> = runs.iter().map(|(named, ..)| line(&named.run.steps, of)).collect();
    let heights: Vec<f64> = lines.iter().flatten().flatten().map(|(_, height)| *height).collect();
    let (low, high) =
        heights.iter().fold((f64::INFINITY, 0.0f64), |(low, high), y| (low.min(*y), high.max(*y)));
    // Room for the words above the lines.
    let top = if high > 20.0 * low { high * (high / low).powf(0.15) } else { 1.15 * high };
    let last = outcome.assumed.steps as f64;
    let mut chart = Chart::new(
        title,
        Axis::fitting([0.0, last].into_iter(), Unit::Plain, "step"),
        Axis::fitting([low, top].into_iter(), unit, label),
    );
    for (step, network) in outcome.networks.iter().filter(|_| outcome.networks.len() > 1) {
        let (x, name) = (*step as f64, link(*network));
        if *step > 0 {
            chart.faint(&[Some((x, low)), Some((x, top))], Look::dense(), &name);
        }
        chart.words(x, top, &name);
    }
    for (line, (_, look, name)) in lines.iter().zip(runs) {
        chart.line(line, *look, name);
    }
    chart.svg()
}

/// Means of a few steps each.
fn line(steps: &[Step], of: fn(&Step) -> f64) -> Line {
    let together = steps.len().div_ceil(POINTS).max(1);
    let mean = |(number, some): (usize, &[Step])| {
        let sum: f64 = some.iter().map(of).sum();
        Some(((number * together) as f64, sum / some.len() as f64))
    };
    steps.chunks(together).enumerate().map(mean).collect()
}
