//! How well the methods reproduce one gradient (paper 3).

use super::axis::Axis;
use super::bars::{Bar, Part, bars};
use super::chart::Chart;
use super::figure::Figure;
use super::group::Group;
use super::number::{Unit, digits};
use super::series::mean_and_spread;
use super::svg::{Fill, Look, legend};
use crate::event::{QUANTILES, Reconstructed};

/// Bars of the relative error, and the quantiles of the errors of single elements.
pub(crate) fn figure(groups: &[Group<'_>]) -> Figure {
    let all = || groups.iter().flat_map(|group| &group.runs).flat_map(|run| &run.reconstructions);
    let gradients = all().count();
    let mut methods: Vec<(&str, Vec<&Reconstructed>)> = Vec::new();
    for one in all().flat_map(|reconstruction| &reconstruction.methods) {
        match methods.iter_mut().find(|(name, _)| *name == one.method) {
            Some((_, some)) => some.push(one),
            None => methods.push((&one.method, vec![one])),
        }
    }
    let mean = |some: &[&Reconstructed], of: &dyn Fn(&Reconstructed) -> f64| {
        mean_and_spread(some.iter().map(|one| of(one))).map_or(f64::NAN, |(mean, _)| mean)
    };
    let bar = |(place, (name, some)): (usize, &(&str, Vec<&Reconstructed>))| {
        let error = mean(some, &|one| one.error);
        let look = Look::numbered(place);
        let fill = Fill { colour: look.colour, hatching: look.dash };
        let title = format!("{name}: relative error {}", digits(error));
        let after = format!("{} at {}", digits(error), Unit::Times.text(mean(some, &|one| one.ratio)));
        Bar { name: (*name).into(), parts: vec![Part { size: error, fill, title }], after }
    };
    let drawn: Vec<Bar> = methods.iter().enumerate().map(bar).collect();
    let longest = drawn.iter().map(Bar::size).fold(0.0, f64::max);
    let mut panels = Vec::new();
    if !drawn.is_empty() {
        panels.push(bars("Relative error, at message ratio", &drawn, longest));
    }
    let lines: Vec<Vec<f64>> = methods
        .iter()
        .map(|(_, some)| {
            let at = |place: usize| mean(some, &|one| one.quantiles.get(place).copied().unwrap_or(f64::NAN));
            (0..QUANTILES.len()).map(at).collect()
        })
        .collect();
    panels.extend(quantiles(&methods, &lines));
    let entry =
        |(place, (name, _)): (usize, &(&str, Vec<&Reconstructed>))| (Look::numbered(place), (*name).into());
    Figure {
        title: "How well each method reproduces a gradient",
        legend: legend(&methods.iter().enumerate().map(entry).collect::<Vec<_>>()),
        panels,
        caption: format!(
            "What is lost when a single gradient is sent without memory of what was left out (paper 3), mean over {} \
             of worker 0. Left: the error |g − g′| / |g|, and dense bytes over the bytes of the message. Right: so many percent of \
             the elements have an error below the curve; an error of zero lies on the lower edge.",
            if gradients == 1 { "one gradient".into() } else { format!("{gradients} gradients") }
        ),
        ..Figure::default()
    }
}

fn quantiles(methods: &[(&str, Vec<&Reconstructed>)], lines: &[Vec<f64>]) -> Option<String> {
    let positive: Vec<f64> =
        lines.iter().flatten().copied().filter(|value| value.is_finite() && *value > 0.0).collect();
    let highest = positive.iter().copied().reduce(f64::max)?;
    // Below a millionth of the gradient an error is rounding.
    let visible = positive.into_iter().map(|value| value.max(highest * 1e-6));
    let x = Axis::fixed(0.0, 1.0, Unit::Share, "elements");
    let y = Axis::log(visible, Unit::Plain, "error over root mean square of the gradient");
    let bottom = y.ends().0;
    let mut chart = Chart::new("Errors of single elements", x, y);
    for (place, ((name, _), line)) in methods.iter().zip(lines).enumerate() {
        let points =
            QUANTILES.iter().zip(line).map(|(percent, value)| Some((percent / 100.0, value.max(bottom))));
        let points: Vec<_> =
            points.filter(|point| point.is_none_or(|(_, value)| value.is_finite())).collect();
        chart.line(&points, Look::numbered(place), name);
    }
    Some(chart.svg())
}
