//! The distribution of the gradient over training, beside a normal one (paper 4).

use super::axis::Axis;
use super::chart::Chart;
use super::figure::{Figure, legend_of};
use super::group::Group;
use super::number::{Unit, whole};
use super::svg::{COLOURS, DASHES, Fill, Look, legend};
use crate::event::Distribution;

/// So many of the recorded steps are shown.
const SHOWN: usize = 5;

/// The look of the fitted curve: it stands out from the bars of one run, and keeps apart from the lines of several.
fn fit(drawn: usize) -> Look {
    if drawn == 1 { Look { colour: 2, dash: 1 } } else { Look { colour: COLOURS, dash: 1 } }
}

/// Histograms at a few steps, and the energy that top-k leaves.
pub(crate) fn figure(groups: &[Group<'_>]) -> Figure {
    let drawn: Vec<(&Group<'_>, &[Distribution])> = groups
        .iter()
        .filter_map(|group| {
            let run = group.runs.iter().find(|run| !run.distributions.is_empty())?;
            Some((group, &run.distributions[..]))
        })
        .collect();
    let mut panels: Vec<String> =
        steps(&drawn).into_iter().filter_map(|step| histogram(&drawn, step)).collect();
    panels.extend(energy(&drawn));
    let kinds = legend(&[(fit(drawn.len()), "normal distribution of the same mean and deviation".into())]);
    Figure {
        title: "Is the gradient normally distributed?",
        legend: legend_of(&drawn.iter().map(|(group, _)| *group).collect::<Vec<_>>()) + &kinds,
        panels,
        caption: format!(
            "Worker 0's accumulated gradient at some steps, all layers together (the outermost bins hold all that \
                  lies beyond), with the normal curve from which Gaussian-k takes its threshold (paper 4). Last: the \
             share of the energy that exact top-k leaves (full), and the bound (1 − k/d)² of that paper (dotted), \
             which {}.",
            verdict(&drawn)
        ),
        ..Figure::default()
    }
}

/// Whether the bound of paper 4 holds: as measured, not as promised.
fn verdict(drawn: &[(&Group<'_>, &[Distribution])]) -> String {
    let known = || {
        drawn.iter().flat_map(|(_, some)| *some).filter(|one| one.left.is_finite() && one.bound.is_finite())
    };
    // Both are sums over many elements: rounding alone is no breach.
    let breaches = known().filter(|one| one.left > one.bound * (1.0 + 1e-6)).count();
    match (breaches, known().count()) {
        (_, 0) => "could not be compared".into(),
        (0, all) => format!("holds at all {all} probed gradients"),
        (some, all) => format!("is broken at {some} of {all} probed gradients"),
    }
}

/// Steps spread evenly over those that were recorded, first and last among them.
fn steps(drawn: &[(&Group<'_>, &[Distribution])]) -> Vec<u64> {
    let mut all: Vec<u64> = drawn.iter().flat_map(|(_, some)| some.iter().map(|one| one.step)).collect();
    all.sort_unstable();
    all.dedup();
    let shown = all.len().min(SHOWN);
    let mut steps: Vec<u64> =
        (0..shown).map(|place| all[place * (all.len() - 1) / (shown - 1).max(1)]).collect();
    steps.dedup();
    steps
}

fn histogram(drawn: &[(&Group<'_>, &[Distribution])], step: u64) -> Option<String> {
    let usable = |one: &&Distribution| {
        one.step == step && !one.counts.is_empty() && one.range.0.is_finite() && one.range.1 > one.range.0
    };
    let here: Vec<(&Group<'_>, &Distribution)> =
        drawn.iter().filter_map(|(group, some)| Some((*group, some.iter().find(usable)?))).collect();
    let low = here.iter().map(|(_, one)| one.range.0).reduce(f64::min)?;
    let high = here.iter().map(|(_, one)| one.range.1).reduce(f64::max)?;
    let highest = here.iter().flat_map(|(_, one)| &one.counts).copied().max()?.max(1) as f64;
    let x = Axis::fixed(low, high, Unit::Plain, "standard deviations from the mean");
    let y = Axis::log([0.7, highest].into_iter(), Unit::Plain, "elements in a bin");
    let mut chart = Chart::new(&format!("Step {}", whole(step)), x, y);
    for (group, one) in &here {
        let edge =
            |bin: usize| one.range.0 + (one.range.1 - one.range.0) * bin as f64 / one.counts.len() as f64;
        if let [_] = here[..] {
            for (bin, &count) in one.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let fill = Fill { colour: group.look.colour, hatching: 0 };
                chart.bar(
                    edge(bin),
                    edge(bin + 1),
                    count as f64,
                    fill,
                    &format!("{} elements", whole(count)),
                );
            }
        } else {
            let corners = |bin: usize| [edge(bin), edge(bin + 1)].map(|x| Some((x, one.counts[bin] as f64)));
            chart.line(
                &(0..one.counts.len()).flat_map(corners).collect::<Vec<_>>(),
                group.look,
                &group.label,
            );
        }
    }
    // In standard deviations all fits are the same curve; only the number of elements scales it.
    let mut drawn_for = Vec::new();
    for (_, one) in &here {
        let total: u64 = one.counts.iter().sum();
        let scale = total as f64 * (one.range.1 - one.range.0) / one.counts.len() as f64;
        if drawn_for.contains(&(total, one.counts.len())) {
            continue;
        }
        drawn_for.push((total, one.counts.len()));
        let normal = |place: usize| {
            let at = low + (high - low) * place as f64 / 160.0;
            Some((at, scale * (-at * at / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()))
        };
        chart.line(&(0..=160).map(normal).collect::<Vec<_>>(), fit(drawn.len()), "normal distribution");
    }
    Some(chart.svg())
}

fn energy(drawn: &[(&Group<'_>, &[Distribution])]) -> Option<String> {
    let points = |some: &[Distribution], of: fn(&Distribution) -> f64| -> Vec<Option<(f64, f64)>> {
        some.iter().filter(|one| of(one).is_finite()).map(|one| Some((one.step as f64, of(one)))).collect()
    };
    let values = drawn.iter().flat_map(|(_, some)| some.iter().flat_map(|one| [one.bound, one.left]));
    let last = drawn.iter().flat_map(|(_, some)| some.iter().map(|one| one.step)).max()?;
    let mut chart = Chart::new(
        "Energy left by top-k",
        Axis::fixed(0.0, last as f64, Unit::Plain, "steps"),
        Axis::linear(values.chain([0.0]), Unit::Share, "share of the energy"),
    );
    for (group, some) in drawn {
        let full = Look { dash: 0, ..group.look };
        chart.line(&points(some, |one| one.left), full, &format!("{}: left by top-k", group.label));
        let dotted =
            Look { dash: DASHES.iter().position(|dashes| *dashes == "2 3").unwrap_or(0), ..group.look };
        chart.line(&points(some, |one| one.bound), dotted, &format!("{}: the bound", group.label));
        for one in some.iter().filter(|one| one.left.is_finite()) {
            let title = format!(
                "{}: {} left, bound {}",
                group.label,
                Unit::Share.text(one.left),
                Unit::Share.text(one.bound)
            );
            chart.dot(one.step as f64, one.left, 2.6, group.look, &title);
        }
    }
    Some(chart.svg())
}

#[cfg(test)]
mod tests {
    use super::super::group::groups;
    use super::super::sample;
    use super::*;

    #[test]
    fn a_few_steps_are_shown_the_first_and_the_last_among_them() {
        let mut run = sample::run("topk", 1, 5);
        run.distributions = (0..100).map(|step| Distribution { step, ..Distribution::default() }).collect();
        let runs = [run];
        let groups = groups(&runs);
        let shown = steps(&[(&groups[0], &runs[0].distributions)]);
        assert_eq!((shown.len(), shown[0], shown[SHOWN - 1]), (SHOWN, 0, 99));
        assert!(figure(&groups).caption.contains("holds at all 100"));
        // Without counts there is no histogram, but the energy is known.
        assert_eq!(figure(&groups).panels.len(), 1);
    }
}
