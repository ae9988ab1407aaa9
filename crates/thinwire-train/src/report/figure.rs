//! A figure of the report: a title, a legend, one or more drawings, and a caption that says what one sees.

use std::fmt::Write;

use super::chart::Chart;
use super::group::Group;
use super::series::{Against, Bin, Thinning, pool};
use super::svg::{escape, legend};

/// A figure. One without drawings is left out of the report.
#[derive(Debug, Default)]
pub(crate) struct Figure {
    pub(crate) title: &'static str,
    /// Finished markup.
    pub(crate) legend: String,
    /// Finished drawings.
    pub(crate) panels: Vec<String>,
    /// One or two sentences; plain text.
    pub(crate) caption: String,
    /// Finished markup below the caption, such as a table of the numbers.
    pub(crate) numbers: String,
}

impl Figure {
    /// The figure as markup; `number` counts from 1.
    pub(crate) fn html(&self, number: usize) -> String {
        let mut out = format!("<figure id=\"figure{number}\"><h3>{}</h3>{}", escape(self.title), self.legend);
        let _ = write!(
            out,
            "<div class=\"panels two{} three{}\">{}<figcaption><b>Figure {number}.</b> {}</figcaption></div>{}</figure>",
            self.panels.len() % 2,
            self.panels.len() % 3,
            self.panels.concat(),
            escape(&self.caption),
            self.numbers
        );
        out
    }
}

/// The legend of the groups; none for a single one.
pub(crate) fn legend_of(groups: &[&Group<'_>]) -> String {
    if groups.len() < 2 {
        return String::new();
    }
    let name = |group: &&Group<'_>| match group.runs.len() {
        1 => group.label.clone(),
        runs => format!("{} (mean of {runs})", group.label),
    };
    legend(&groups.iter().map(|group| (group.look, name(group))).collect::<Vec<_>>())
}

/// The thinned quantity of every run of a group.
#[derive(Debug)]
pub(crate) struct Trace<'a> {
    pub(crate) group: &'a Group<'a>,
    pub(crate) runs: Vec<Vec<Option<Bin>>>,
}

impl<'a> Trace<'a> {
    /// The quantity in the steps of a group; `None` if no step has it.
    pub(crate) fn of(
        group: &'a Group<'a>,
        thinning: Thinning,
        smoothing: f64,
        quantity: impl Fn(&crate::event::Step) -> Option<f64>,
    ) -> Option<Trace<'a>> {
        let runs: Vec<_> = group.runs.iter().map(|run| thinning.bins(run, smoothing, &quantity)).collect();
        runs.iter().flatten().any(Option::is_some).then_some(Trace { group, runs })
    }

    /// All its smoothed values.
    pub(crate) fn means(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().flatten().flatten().map(|bin| bin.mean)
    }

    /// All its places along an axis.
    pub(crate) fn places(&self, against: Against) -> impl Iterator<Item = f64> {
        self.runs.iter().flatten().flatten().map(move |bin| bin.place.along(against))
    }

    /// Draws it: raw values faint if `raw`; for several seeds the single ones faint, their mean, and a band of one
    /// standard deviation; a cross where a run was interrupted.
    pub(crate) fn draw(&self, chart: &mut Chart, against: Against, raw: bool) {
        let look = self.group.look;
        if raw {
            for bins in &self.runs {
                let ends = |bin: &Option<Bin>| {
                    let x = bin.map(|bin| bin.place.along(against));
                    [bin.map(|bin| bin.low), bin.map(|bin| bin.high)].map(|y| x.zip(y))
                };
                chart.faint(
                    &bins.iter().flat_map(ends).collect::<Vec<_>>(),
                    look,
                    &format!("{}, raw", self.group.label),
                );
            }
        }
        let single = |bins: &[Option<Bin>]| -> Vec<_> {
            bins.iter().map(|bin| bin.map(|bin| (bin.place.along(against), bin.mean))).collect()
        };
        if let [bins] = &self.runs[..] {
            chart.line(&joined(single(bins)), look, &self.group.label);
        } else {
            let pooled = pool(&self.runs);
            let band = |at: &Option<super::series::Pooled>| {
                at.map(|at| (at.place.along(against), at.mean - at.spread, at.mean + at.spread))
            };
            chart.band(&pooled.iter().map(band).collect::<Vec<_>>(), look);
            for (bins, run) in self.runs.iter().zip(&self.group.runs) {
                chart.faint(
                    &joined(single(bins)),
                    look,
                    &format!("{}, seed {}", self.group.label, run.run.seed),
                );
            }
            let mean: Vec<_> =
                pooled.iter().map(|at| at.map(|at| (at.place.along(against), at.mean))).collect();
            chart.line(&joined(mean), look, &format!("{}, mean of {}", self.group.label, self.runs.len()));
        }
        for (bins, run) in self.runs.iter().zip(&self.group.runs).filter(|(_, run)| run.interrupted()) {
            if let Some(bin) = bins.iter().flatten().next_back() {
                chart.cross(bin.place.along(against), bin.mean, look, &format!("{}: interrupted", run.label));
            }
        }
    }
}

/// A line without gaps of single points: steps that were skipped are no reason to lift the pen.
fn joined(points: Vec<Option<(f64, f64)>>) -> Vec<Option<(f64, f64)>> {
    points.into_iter().filter(Option::is_some).collect()
}
