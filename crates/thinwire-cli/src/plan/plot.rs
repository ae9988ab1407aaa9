//! The plan as a drawing: step time over the link's speed, and speed-up over the number of workers.

use thinwire::adapt::price::Way;
use thinwire_train::report::{Axis, Chart, Look, Side, Unit, sheet};

use super::limit::Limit;
use super::offer::{Methods, dense};
use super::outcome::{Assumed, Outcome};
use super::setting::Setting;
use crate::human;

/// Gbit/s over which the first panel goes, how far it goes on where lines cross beyond, and how finely.
const SLOWEST: f64 = 0.01;
const FAST: f64 = 100.0;
const FASTEST: f64 = 1000.0;
const POINTS: u32 = 80;
/// How many times slower the link is where words begin that end at a crossing.
const WORDS: f64 = 60.0;
/// Workers of the second panel.
const WORKERS: [usize; 22] =
    [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, 256];
/// More lines than this can't be told apart.
const MOST: usize = 6;

/// A line; `None` where there is nothing to draw.
type Line = Vec<Option<(f64, f64)>>;

/// The drawing, as an SVG file. `densities` are those that are drawn beside `dense`.
pub fn svg(outcome: &Outcome, setting: &Setting, methods: &Methods, densities: &[f64]) -> String {
    let shown = densities.iter().take(MOST).enumerate();
    let densities = shown.map(|(number, density)| (*density, Look::numbered(number))).collect();
    let drawing = Drawing { setting, methods, sparse: methods.all_sparse(), densities };
    let mut legend = vec![(Look::dense(), "dense".to_owned())];
    legend.extend(drawing.densities.iter().map(|(density, look)| (*look, name(*density))));
    sheet(&title(&outcome.assumed), &legend, &[drawing.times(), drawing.speedups()])
}

struct Drawing<'a> {
    setting: &'a Setting,
    methods: &'a Methods,
    sparse: Vec<Way>,
    densities: Vec<(f64, Look)>,
}

impl Drawing<'_> {
    /// Seconds of a step at a density.
    fn step(&self, setting: &Setting, density: f64) -> Option<f64> {
        setting.best(&self.sparse, density).map(|(_, price)| setting.step(&price))
    }

    /// Seconds of a step with everything sent.
    fn dense(&self, setting: &Setting) -> f64 {
        dense(setting, self.methods).step_seconds
    }

    /// Gbit/s at which a density stops paying, where the panel may show it.
    fn crossing(&self, density: f64) -> Option<f64> {
        match Limit::of_paying(self.setting, &self.sparse, &self.methods.dense, density, 0.0) {
            Limit::Below(bits) => Some(bits / 1e9).filter(|gbit| (SLOWEST..=FASTEST).contains(gbit)),
            Limit::Never | Limit::Always => None,
        }
    }

    /// Step time over the link's speed.
    fn times(&self) -> String {
        let crossings: Vec<Option<f64>> =
            self.densities.iter().map(|(density, _)| self.crossing(*density)).collect();
        let fastest = crossings.iter().flatten().fold(FAST, |most, gbit| gbit.max(most));
        let rate = |point: u32| SLOWEST * (fastest / SLOWEST).powf(f64::from(point) / f64::from(POINTS));
        let over_rates = |step: &dyn Fn(&Setting) -> Option<f64>| -> Line {
            let at = |gbit: f64| step(&self.setting.at_rate(gbit * 1e9)).map(|step| (gbit, step));
            (0..=POINTS).map(|point| at(rate(point))).collect()
        };
        let of = |density: f64| over_rates(&|setting| self.step(setting, density));
        let mut lines =
            vec![(over_rates(&|setting| Some(self.dense(setting))), Look::dense(), "dense".to_owned())];
        lines.extend(self.densities.iter().map(|&(density, look)| (of(density), look, name(density))));
        let (low, high) = ends(lines.iter().map(|(line, ..)| line));
        let mut chart = Chart::new(
            "Time of a step, and up to where it pays",
            Axis::log([SLOWEST, fastest].into_iter(), Unit::Plain, "link speed (Gbit/s)"),
            Axis::log([low, high].into_iter(), Unit::Seconds, "step"),
        );
        let here = self.setting.rate() / 1e9;
        if (SLOWEST..=fastest).contains(&here) {
            upright(&mut chart, here, low, high, "the link that was asked about");
        }
        for (line, look, name) in &lines {
            chart.line(line, *look, name);
        }
        let mut last = 0.0;
        for ((density, look), crossing) in self.densities.iter().zip(crossings) {
            let Some(gbit) = crossing else { continue };
            let step = self.dense(&self.setting.at_rate(gbit * 1e9));
            let text = format!("up to {}", human::rate(gbit * 1e9));
            // The words stand on a stem: above the line of `dense` where they begin, and above the ones before.
            let top = (1.3 * self.dense(&self.setting.at_rate(gbit * 1e9 / WORDS))).max(2.0 * last);
            last = top;
            chart.faint(&[Some((gbit, step)), Some((gbit, top))], *look, &text);
            chart.dot(gbit, step, 4.0, *look, &format!("{} pays {text}", name(*density)));
            chart.words(gbit, top, &text);
        }
        chart.svg()
    }

    /// Speed-up over the number of workers.
    fn speedups(&self) -> String {
        let over_workers = |density: f64| -> Line {
            let at = |workers: usize| {
                let setting = self.setting.with_workers(workers);
                Some((workers as f64, self.dense(&setting) / self.step(&setting, density)?))
            };
            WORKERS.iter().map(|workers| at(*workers)).collect()
        };
        let lines: Vec<Line> = self.densities.iter().map(|(density, _)| over_workers(*density)).collect();
        let (low, high) = ends(&lines);
        let (low, high) = (low.min(1.0), high.max(1.0));
        let (few, many) = (WORKERS[0] as f64, WORKERS[WORKERS.len() - 1] as f64);
        let mut chart = Chart::new(
            "Speed-up over dense",
            Axis::log([few, many].into_iter(), Unit::Plain, "workers"),
            Axis::fitting([low, high].into_iter(), Unit::Times, "step with dense over step"),
        );
        chart.level(1.0, "as fast as dense", Side::Left);
        let here = self.setting.workers() as f64;
        if (few..=many).contains(&here) {
            upright(&mut chart, here, low, high, "the workers that were asked about");
        }
        for (line, (density, look)) in lines.iter().zip(&self.densities) {
            chart.line(line, *look, &name(*density));
        }
        chart.svg()
    }
}

/// A thin upright line where the question was.
fn upright(chart: &mut Chart, x: f64, low: f64, high: f64, title: &str) {
    chart.faint(&[Some((x, low)), Some((x, high))], Look::dense(), title);
}

/// The least and the largest height.
fn ends<'a>(lines: impl IntoIterator<Item = &'a Line>) -> (f64, f64) {
    let heights = lines.into_iter().flatten().flatten().map(|(_, height)| *height);
    heights
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), height| (low.min(height), high.max(height)))
}

fn name(density: f64) -> String {
    format!("{} sent", human::density(density))
}

fn title(assumed: &Assumed) -> String {
    let parameters = || format!("{} parameters", human::count(assumed.parameters));
    let compute = match assumed.compute_seconds {
        0.0 => String::new(),
        time => format!(", {} of computing", human::seconds(time)),
    };
    format!(
        "{} on {} workers, {}, {} latency{compute}",
        assumed.model.clone().unwrap_or_else(parameters),
        assumed.workers,
        human::rate(assumed.bits_per_second),
        human::seconds(assumed.latency_seconds)
    )
}
