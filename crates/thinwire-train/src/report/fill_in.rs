//! How full a sparse ring becomes when nobody agrees on coordinates (paper 1).

use super::axis::Axis;
use super::chart::Chart;
use super::figure::Figure;
use super::group::Group;
use super::number::Unit;
use super::series::mean_and_spread;
use super::svg::{Look, legend};
use crate::event::FillIn;

/// More methods than this are not compared at a glance.
const SHOWN: usize = 12;

const UNAGREED: Look = Look { colour: 2, dash: 0 };
const INDEPENDENT: Look = Look { colour: 1, dash: 1 };
const SENT: Look = Look { colour: 3, dash: 2 };

/// A panel for each group that was probed, all with the same axes.
pub(crate) fn figure(groups: &[Group<'_>]) -> Figure {
    let probed: Vec<(&Group<'_>, Vec<&FillIn>)> = groups
        .iter()
        .map(|group| (group, group.runs.iter().flat_map(|run| &run.fill_ins).collect::<Vec<_>>()))
        // What sends everything is full from the start: it has nothing to show, and would squeeze the others.
        .filter(|(_, some)| {
            some.iter().any(|one| one.unagreed.first().is_some_and(|density| *density < 0.999))
        })
        .take(SHOWN)
        .collect();
    let hops =
        probed.iter().flat_map(|(_, some)| some.iter().map(|one| one.unagreed.len())).max().unwrap_or(0);
    let all = || probed.iter().flat_map(|(_, some)| some.iter());
    let values =
        || all().flat_map(|one| one.unagreed.iter().chain(&one.independent).copied().chain([one.sent]));
    let panel = |(group, some): &(&Group<'_>, Vec<&FillIn>)| {
        let x = Axis::counted(1.0, hops.max(2) as f64, "workers that have added theirs");
        let y = Axis::fitting(values(), Unit::Share, "density of the partial sum");
        let mut chart = Chart::new(&group.label, x, y);
        let mean = |of: &dyn Fn(&FillIn) -> Option<f64>| {
            mean_and_spread(some.iter().filter_map(|one| of(one))).map(|(mean, _)| mean)
        };
        let line = |of: &dyn Fn(&FillIn, usize) -> Option<f64>| -> Vec<Option<(f64, f64)>> {
            (0..hops).map(|hop| Some((hop as f64 + 1.0, mean(&|one| of(one, hop))?))).collect()
        };
        let range = |hop: usize| {
            let at = some
                .iter()
                .filter_map(|one| one.unagreed.get(hop).copied())
                .filter(|density| density.is_finite());
            let (low, high) = super::axis::span(at)?;
            Some((hop as f64 + 1.0, low, high))
        };
        chart.band(&(0..hops).map(range).collect::<Vec<_>>(), UNAGREED);
        chart.line(&line(&|one, hop| one.independent.get(hop).copied()), INDEPENDENT, "independent choices");
        chart.line(&line(&|one, _| Some(one.sent)), SENT, "what did travel");
        let unagreed = line(&|one, hop| one.unagreed.get(hop).copied());
        chart.line(&unagreed, UNAGREED, "without agreement");
        if hops <= 32 {
            for (x, y) in unagreed.into_iter().flatten() {
                chart.dot(x, y, 2.6, UNAGREED, &format!("{} after {x} workers", Unit::Share.text(y)));
            }
        }
        chart.svg()
    };
    Figure {
        title: "How full a sparse ring would become",
        legend: legend(&[
            (UNAGREED, "own coordinates of each worker, as measured".into()),
            (INDEPENDENT, "if choices were independent".into()),
            (SENT, "what did travel".into()),
        ]),
        panels: probed.iter().map(panel).collect(),
        caption: "If every worker added its own coordinates to a sum that travels around a ring, the sum would fill \
                  up hop by hop, the reason for agreed coordinates (paper 1); the band spans the probed steps. \
                  Where workers choose alike, the measured curve lies below that of independent choices, \
                  1 − (1 − density)ⁿ after n workers."
            .into(),
        ..Figure::default()
    }
}
