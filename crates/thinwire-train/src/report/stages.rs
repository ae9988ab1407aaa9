//! Where the time of a step goes, and what is hidden beside the backward pass.

use std::fmt::Write;

use super::bars::{Bar, Part, bars};
use super::figure::Figure;
use super::group::Group;
use super::number::Unit;
use super::series::mean_and_spread;
use super::svg::{Fill, escape, legend_of_fills};
use crate::event::Times;

type Stage = (&'static str, Fill, fn(&Times) -> f64);

const fn fill(colour: usize, hatching: usize) -> Fill {
    Fill { colour, hatching }
}

/// What the training waits for, in the order of a step.
const OPEN: [Stage; 7] = [
    ("data", fill(7, 0), |times| times.data),
    ("forward", fill(5, 0), |times| times.forward),
    ("backward", fill(1, 0), |times| times.backward),
    ("copy", fill(4, 1), |times| times.copy),
    ("wait", fill(2, 2), |times| times.wait),
    ("optimiser", fill(3, 3), |times| times.optimizer),
    ("rest", fill(6, 4), rest),
];

/// What runs beside it.
const BESIDE: [Stage; 4] = [
    ("select", fill(4, 0), |times| times.select),
    ("encode", fill(6, 1), |times| times.encode),
    ("exchange", fill(2, 0), |times| times.exchange),
    ("settle", fill(3, 2), |times| times.settle),
];

fn rest(times: &Times) -> f64 {
    let named: f64 = OPEN[..6].iter().map(|(_, _, of)| of(times)).sum();
    (times.total - named).max(0.0)
}

/// Stacked bars for each group.
pub(crate) fn figure(groups: &[Group<'_>]) -> Figure {
    let timed: Vec<(&Group<'_>, Vec<Times>)> = groups
        .iter()
        .map(|group| (group, group.runs.iter().filter_map(|run| run.times()).collect::<Vec<_>>()))
        .filter(|(_, times)| times.iter().any(|times| times.total > 0.0))
        .collect();
    let parts = |times: &[Times], stages: &[Stage]| -> Vec<Part> {
        let part = |(name, fill, of): &Stage| {
            let size = mean(times, of);
            Part { size, fill: *fill, title: format!("{name}: {}", Unit::Seconds.text(size)) }
        };
        stages.iter().map(part).collect()
    };
    let open: Vec<Bar> = timed
        .iter()
        .map(|(group, times)| Bar {
            name: group.label.clone(),
            parts: parts(times, &OPEN),
            after: Unit::Seconds.text(mean(times, &|times| times.total)),
        })
        .collect();
    let beside: Vec<Bar> = timed
        .iter()
        .map(|(group, times)| {
            let parts = parts(times, &BESIDE);
            let hidden = mean_and_spread(group.runs.iter().filter_map(|run| run.hidden()));
            let hidden = hidden.map_or("no share known".into(), |(hidden, _)| {
                format!("{} hidden", Unit::Share.text(hidden))
            });
            Bar { name: group.label.clone(), parts, after: hidden }
        })
        .collect();
    // One scale for both, unless what runs beside dwarfs the step or is dwarfed by it.
    let longest = |bars: &[Bar]| bars.iter().map(Bar::size).fold(0.0, f64::max);
    let both = longest(&open).max(longest(&beside));
    let panels = vec![bars("The step", &open, both), bars("Beside the backward pass", &beside, both)];
    let fills = |stages: &[Stage]| stages.iter().map(|(name, fill, _)| (*fill, *name)).collect::<Vec<_>>();
    Figure {
        title: "Where the time of a step goes",
        legend: format!(
            "<div class=\"legends\"><div><b>The step:</b> {}</div><div><b>Beside it:</b> {}</div></div>",
            legend_of_fills(&fills(&OPEN)),
            legend_of_fills(&fills(&BESIDE))
        ),
        numbers: if timed.is_empty() { String::new() } else { numbers(&timed) },
        panels: if timed.is_empty() { Vec::new() } else { panels },
        caption: "Left: mean time of a step; \"wait\" is what the exchange adds after the backward pass. Right, on the \
                  same scale: the work of the synchronizer, bucket by bucket, while the backward pass still runs \
                  (paper 5), and the part of its time that stayed hidden so."
            .into(),
    }
}

fn mean(times: &[Times], of: &dyn Fn(&Times) -> f64) -> f64 {
    mean_and_spread(times.iter().map(of)).map_or(0.0, |(mean, _)| mean)
}

fn numbers(timed: &[(&Group<'_>, Vec<Times>)]) -> String {
    let mut out = String::from(
        "<details><summary>The numbers</summary><div class=\"scroll\"><table><thead><tr><th>run</th>",
    );
    let stages = || OPEN.iter().chain(&BESIDE);
    for (name, _, _) in stages() {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for (group, times) in timed {
        let _ = write!(out, "<tr><th>{}</th>", escape(&group.label));
        for (_, _, of) in stages() {
            let _ = write!(out, "<td>{}</td>", Unit::Seconds.text(mean(times, of)));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></details>");
    out
}

#[cfg(test)]
mod tests {
    use super::super::group::groups;
    use super::super::sample;
    use super::*;

    #[test]
    fn the_parts_make_up_the_step() {
        let runs = [sample::run("topk", 1, 30)];
        let times = runs[0].times().unwrap();
        let sum: f64 = OPEN.iter().map(|(_, _, of)| of(&times)).sum();
        assert!((sum - times.total).abs() < 1e-9);
        let figure = figure(&groups(&runs));
        assert_eq!(figure.panels.len(), 2);
        assert!(figure.panels[1].contains("% hidden"), "{}", figure.panels[1]);
    }
}
