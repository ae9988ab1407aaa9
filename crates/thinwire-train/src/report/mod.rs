//! The report of training runs: one HTML file that needs nothing else, readable offline, on a phone and on paper.
//!
//! Everything in it comes from the events of [`crate::event`]. One run makes a report of that run; several are laid
//! over one another, and runs that differ in their seed alone are taken together as mean and spread.
//!
//! Each figure stands in a file of its own; they draw with `chart` and `bars`, which write SVG with CSS classes
//! instead of colours, so that one drawing serves light, dark and paper. [`Chart`] and [`sheet`] are for drawings that
//! stand in a file of their own.

mod axis;
mod bars;
mod chart;
mod curves;
mod decisions;
mod distribution;
mod figure;
mod fill_in;
mod group;
mod headline;
mod kept;
mod number;
mod reconstruction;
mod recorded;
#[cfg(test)]
mod sample;
mod series;
mod settings;
mod sheet;
mod spread;
mod stages;
mod svg;
pub mod table;
#[cfg(test)]
mod tests;
mod tradeoff;
mod wire;

use std::fmt::Write;
use std::path::Path;

use thinwire::files::{self, Access};

pub use axis::Axis;
pub use chart::{Chart, Side};
pub use number::Unit;
pub use recorded::Recorded;
pub use sheet::sheet;
pub use svg::Look;
pub use table::{Comparison, compare};

use self::figure::Figure;
use self::group::{Group, distinctions, groups};
use self::series::Thinning;
use self::svg::{HATCHINGS, escape};
use crate::{Error, Result};

/// The report of `runs` as one HTML document. `title` stands above it.
pub fn html(runs: &[Recorded], title: &str) -> String {
    html_with_target(runs, title, None)
}

/// The same, with the time each run took to an accuracy (from 0 to 1) or a perplexity of `target`.
pub fn html_with_target(runs: &[Recorded], title: &str, target: Option<f64>) -> String {
    let groups = groups(runs);
    let rows = table::compare_groups(&groups, target);
    let mut body = format!("<header><h1>{}</h1><p>{}</p></header>", escape(title), escape(&about(&groups)));
    body.push_str(&headline::interruptions(&groups));
    match &rows[..] {
        [] => body.push_str("<p>There are no runs.</p>"),
        [row] => body.push_str(&headline::cards(row)),
        rows => body.push_str(&headline::table(&groups, rows)),
    }
    let thinning = Thinning::of(runs);
    let figures: Vec<Figure> = [tradeoff::figure(&groups, &rows)]
        .into_iter()
        .chain(curves::tests(&groups, target))
        .chain([
            curves::loss(&groups, thinning),
            stages::figure(&groups),
            wire::figure(&groups, thinning),
            kept::figure(&groups, thinning),
            spread::figure(&groups),
            fill_in::figure(&groups),
            distribution::figure(&groups),
            reconstruction::figure(&groups),
        ])
        .filter(|figure| !figure.panels.is_empty())
        .collect();
    for (place, figure) in figures.iter().enumerate() {
        body.push_str(&figure.html(place + 1));
    }
    if !groups.is_empty() {
        let _ = write!(body, "<section><h2>Settings</h2>{}</section>", settings::table(&groups));
    }
    body.push_str(&decisions::table(&groups));
    body.push_str(&settings::notes(&groups));
    body.push_str(PAPERS);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <meta name=\"color-scheme\" content=\"light dark\"/><title>{}</title><style>{}</style></head>\n\
         <body>{HATCHINGS}<main>{body}</main></body></html>\n",
        escape(title),
        include_str!("style.css")
    )
}

/// Writes the report to `path`. A report that was there is replaced only once the new one is whole.
pub fn write(path: &Path, runs: &[Recorded], title: &str) -> Result<()> {
    replace(path, &html(runs, title))
}

/// The same, with the time each run took to `target`.
pub fn write_with_target(path: &Path, runs: &[Recorded], title: &str, target: Option<f64>) -> Result<()> {
    replace(path, &html_with_target(runs, title, target))
}

fn replace(path: &Path, text: &str) -> Result<()> {
    files::replace(path, Access::Default, text.as_bytes()).map_err(|error| Error::io("write", path, &error))
}

/// What all runs have in common, in one line.
fn about(groups: &[Group<'_>]) -> String {
    let Some(first) = groups.first() else { return String::new() };
    let of = distinctions(first.settings());
    let shared =
        |field: &usize| groups.iter().all(|group| distinctions(group.settings())[*field] == of[*field]);
    let words: Vec<&str> = (0..of.len()).filter(shared).map(|field| of[field].as_str()).collect();
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// Which paper is which.
const PAPERS: &str = "<footer><h2>Papers</h2><ol>\
<li>Cheng, Xu: importance-weighted pruning on ring all-reduce, 2019 (arXiv 1901.01544)</li>\
<li>Tyagi, Swany: AR-Topk, flexible communication for gradient compression, IEEE BigData 2023</li>\
<li>Wang and others: FFT-based gradient sparsification, HPDC 2020 (arXiv 1811.08596)</li>\
<li>Shi and others: Gaussian-k, understanding top-k sparsification, 2019 (arXiv 1911.08772)</li>\
<li>Fang and others: RedSync, reducing synchronization bandwidth, 2018 (arXiv 1808.04357)</li>\
</ol></footer>";
