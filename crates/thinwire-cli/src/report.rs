//! `thinwire report`: the report of runs that are over, or still going.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use thinwire_train::event::Measure;
use thinwire_train::report::{self, Comparison, Recorded};

use crate::{human, output};

/// Write the report of one run, or of several laid over one another.
///
/// One HTML file that needs nothing else: loss and accuracy against steps, bytes and time, where the time of a step
/// goes, what was sent, and what the gradients looked like. Runs that differ in their seed alone are taken together.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  thinwire report runs/digits-cnn-ar-topk\n  \
    thinwire report runs/* -o all.html --target 97%")]
pub struct Arguments {
    /// The folders of the runs, or of comparisons
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The file to write [default: report.html in the folder of the run, or here for several]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The heading
    #[arg(long)]
    title: Option<String>,
    /// Also tell the time to this accuracy, such as 88%, or to this perplexity
    #[arg(long, value_parser = target, allow_negative_numbers = true)]
    target: Option<f64>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// Reads `88%`, `0.88` or a perplexity.
pub fn target(text: &str) -> Result<f64, String> {
    let (number, factor) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number * factor),
        _ => Err("give an accuracy such as 88%, or a perplexity".into()),
    }
}

/// Writes the report.
pub fn run(arguments: Arguments) -> Result<()> {
    let folders = arguments.runs.iter().flat_map(|folder| runs_in(folder)).collect::<Vec<PathBuf>>();
    let runs = folders.iter().map(|run| Recorded::read(run)).collect::<Result<Vec<_>, _>>()?;
    let measure = runs[0].run.measure;
    for (path, run) in folders.iter().zip(&runs) {
        ensure!(
            run.run.measure == measure,
            "{}: its model is measured by {}, that of {} by {}; make a report for each",
            path.display(),
            name_of(run.run.measure),
            folders[0].display(),
            name_of(measure)
        );
    }
    check_target(arguments.target, measure)?;
    let file = match (&arguments.output, &arguments.runs[..]) {
        (Some(file), _) => file.clone(),
        (None, [run]) if run.is_dir() => run.join("report.html"),
        (None, _) => PathBuf::from("report.html"),
    };
    let title = arguments.title.unwrap_or_else(|| title(&runs));
    report::write_with_target(&file, &runs, &title, arguments.target)
        .with_context(|| format!("the report of {}", human::plural(runs.len(), "run")))?;
    let rows = report::compare(&runs, arguments.target);
    if arguments.json {
        return output::print_json(&serde_json::json!({ "report": file, "methods": rows }));
    }
    output::print(&table(&rows))?;
    output::print(&format!("report  {}\n", file.display()))
}

/// The folder itself, or the runs of a comparison that lie in it.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let is_run = |folder: &PathBuf| folder.join("metrics.jsonl").is_file();
    let inside = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut runs: Vec<PathBuf> = inside.filter(is_run).collect();
    runs.sort();
    if is_run(&folder.to_owned()) || runs.is_empty() { vec![folder.to_owned()] } else { runs }
}

/// An accuracy is at most 1.
pub fn check_target(target: Option<f64>, measure: Measure) -> Result<()> {
    match target {
        Some(target) if measure == Measure::Accuracy && target > 1.0 => {
            bail!("--target {target}: an accuracy is at most 1; did you mean {target}%?")
        }
        _ => Ok(()),
    }
}

/// What the runs have in common.
pub fn title(runs: &[Recorded]) -> String {
    let first = &runs[0].run;
    let same = |of: fn(&Recorded) -> &str| runs.iter().all(|run| of(run) == of(&runs[0]));
    match (same(|run| &run.run.model), same(|run| &run.run.data)) {
        (true, true) => format!("{} on {}", first.model, first.data),
        (false, true) => first.data.clone(),
        (true, false) => first.model.clone(),
        (false, false) => "thinwire".into(),
    }
}

fn name_of(measure: Measure) -> &'static str {
    match measure {
        Measure::Accuracy => "accuracy",
        Measure::Perplexity => "perplexity",
    }
}

/// A row for each method.
pub fn table(rows: &[Comparison]) -> String {
    let measure = rows.first().map_or(Measure::Accuracy, |row| row.measure);
    let value = |value: f64| match measure {
        Measure::Accuracy => format!("{:.2} %", 100.0 * value),
        Measure::Perplexity => format!("{value:.3}"),
    };
    let spread = |row: &Comparison| match (row.value_mean, row.value_spread) {
        (Some(mean), Some(spread)) => format!("{} ± {}", value(mean), value(spread)),
        (Some(mean), None) => value(mean),
        (None, _) => "-".into(),
    };
    let optional = |value: Option<f64>, text: fn(f64) -> String| value.map_or("-".into(), text);
    let seconds = |seconds: f64| human::duration(std::time::Duration::from_secs_f64(seconds.max(0.0)));
    let row = |row: &Comparison| {
        let mut cells = vec![
            row.name.clone(),
            row.runs.to_string(),
            spread(row),
            human::bytes(row.sent_mean as u64),
            optional(row.wire_ratio, human::ratio),
            optional(row.wire_ratio_settled, human::ratio),
            optional(row.wire_ratio_compressed, human::ratio),
            row.seconds_per_step.map_or("-".into(), seconds),
            optional(row.speedup_against_dense, human::ratio),
        ];
        if row.target.is_some() {
            cells.push(match row.seconds_to_target {
                Some(time) => seconds(time),
                None => format!("{} of {} runs", row.reached, row.runs),
            });
        }
        cells
    };
    let to_target =
        rows.iter().find_map(|row| row.target).map(|target| format!(">time to {}", value(target)));
    let result = format!(">{}", name_of(measure));
    let mut titles = vec![
        "method",
        ">runs",
        &result,
        ">sent",
        ">wire ratio",
        ">after warm-up",
        ">compressed layers",
        ">a step",
        ">speed-up",
    ];
    titles.extend(to_target.as_deref());
    output::table(&titles, rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn targets_are_parts_or_numbers() {
        assert_eq!([target("88%"), target("0.88"), target("4.5")], [Ok(0.88), Ok(0.88), Ok(4.5)]);
        assert!(target("x").is_err() && target("-1").is_err() && target("0").is_err());
    }
}
