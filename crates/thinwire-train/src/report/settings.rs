//! The settings of the runs, and their notes.

use std::fmt::Write;

use super::group::Group;
use super::number::{Unit, counted, digits, whole};
use super::svg::escape;

/// So many notes of one run are printed.
const NOTES: usize = 40;

/// Names and values of what can be set.
fn settings(group: &Group<'_>) -> Vec<(&'static str, String)> {
    let run = group.settings();
    let seeds: Vec<String> = group.runs.iter().map(|run| run.run.seed.to_string()).collect();
    let folders: Vec<&str> = group.runs.iter().map(|run| run.label.as_str()).collect();
    let versions: std::collections::BTreeSet<&str> =
        group.runs.iter().map(|run| run.run.version.as_str()).collect();
    let resumed: Vec<String> = group
        .runs
        .iter()
        .filter(|run| run.run.resumed_at > 0)
        .map(|run| format!("{} at step {}", run.label, whole(run.run.resumed_at)))
        .collect();
    let skipped: usize = group.runs.iter().flat_map(|run| &run.steps).filter(|step| step.skipped).count();
    let mut rows = vec![
        ("method", run.method.clone()),
        ("density", if run.density < 1.0 { Unit::Share.text(run.density) } else { "dense".into() }),
        ("model", run.model.clone()),
        (
            "weights",
            format!(
                "{} in {}",
                whole(run.parameters as u64),
                counted(&run.buckets.len().to_string(), "bucket")
            ),
        ),
        ("data", run.data.clone()),
        (
            "samples",
            format!("{} to train, {} to test", whole(run.samples.0 as u64), whole(run.samples.1 as u64)),
        ),
        ("optimiser", run.optimizer.clone()),
        ("learning rate", format!("{}, {}", digits(run.lr), run.schedule)),
        ("workers", run.workers.to_string()),
        ("batch of one worker", run.batch.to_string()),
        (
            "length",
            format!("{}, {}", counted(&digits(run.epochs), "epoch"), counted(&whole(run.steps), "step")),
        ),
        ("link", format!("{}, {}", run.group, run.link.as_deref().unwrap_or("as it is"))),
        ("threads of one worker", run.threads.to_string()),
        ("seeds", seeds.join(", ")),
        ("folders", folders.join(", ")),
        ("version", versions.into_iter().collect::<Vec<_>>().join(", ")),
    ];
    if !resumed.is_empty() {
        rows.push(("resumed", resumed.join(", ")));
    }
    rows.push(("skipped steps", whole(skipped as u64)));
    rows
}

/// The settings as a table; what all groups share stands once.
pub(crate) fn table(groups: &[Group<'_>]) -> String {
    let all: Vec<Vec<(&str, String)>> = groups.iter().map(settings).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in all.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let value = |rows: &[(&str, String)], name: &str| {
        rows.iter().find(|(other, _)| *other == name).map_or("–".to_owned(), |(_, value)| value.clone())
    };
    let mut out = String::from("<div class=\"scroll\"><table class=\"settings\">");
    if groups.len() > 1 {
        out.push_str("<thead><tr><th></th>");
        for group in groups {
            let _ = write!(out, "<th>{}</th>", escape(&group.label));
        }
        out.push_str("</tr></thead>");
    }
    out.push_str("<tbody>");
    for name in names {
        let values: Vec<String> = all.iter().map(|rows| value(rows, name)).collect();
        let _ = write!(out, "<tr><th>{name}</th>");
        if values.iter().all(|value| *value == values[0]) {
            let _ =
                write!(out, "<td class=\"shared\" colspan=\"{}\">{}</td>", values.len(), escape(&values[0]));
        } else {
            values.iter().for_each(|value| out.push_str(&format!("<td>{}</td>", escape(value))));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// The notes of all runs; nothing if there are none.
pub(crate) fn notes(groups: &[Group<'_>]) -> String {
    let mut out = String::new();
    for run in groups.iter().flat_map(|group| &group.runs).filter(|run| !run.notes.is_empty()) {
        let _ = write!(out, "<h4>{}</h4><ul class=\"notes\">", escape(&run.label));
        for (step, text) in run.notes.iter().take(NOTES) {
            let _ =
                write!(out, "<li><span class=\"step\">step {}</span> {}</li>", whole(*step), escape(text));
        }
        if run.notes.len() > NOTES {
            let _ = write!(out, "<li>and {} more</li>", run.notes.len() - NOTES);
        }
        out.push_str("</ul>");
    }
    if out.is_empty() { out } else { format!("<section><h2>Notes</h2>{out}</section>") }
}
