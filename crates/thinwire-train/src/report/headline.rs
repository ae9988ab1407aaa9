//! What stands above the figures: the headline figures of one kind of run, or the table that compares several.

use std::fmt::Write;

use super::group::Group;
use super::number::{Unit, measure, whole, with_spread};
use super::svg::{escape, legend};
use super::table::Comparison;
use crate::event::Measure;

/// The unit of a measure.
pub(crate) fn unit(kind: Measure) -> Unit {
    match kind {
        Measure::Accuracy => Unit::Share,
        Measure::Perplexity => Unit::Plain,
    }
}

fn text(unit: Unit, value: Option<f64>) -> String {
    value.map_or("–".into(), |value| unit.text(value))
}

/// Large figures for a single kind of run.
pub(crate) fn cards(row: &Comparison) -> String {
    let unit_of_value = unit(row.measure);
    let name = match row.measure {
        Measure::Accuracy => "test accuracy",
        Measure::Perplexity => "test perplexity",
    };
    let value = match (row.value_mean, row.value_spread) {
        (Some(value), None) => measure(unit_of_value, value),
        (Some(value), spread) => with_spread(unit_of_value, value, spread),
        (None, _) => "–".into(),
    };
    let best = row.best_mean.map(|best| format!("best {}", measure(unit_of_value, best)));
    let settled =
        row.wire_ratio_settled.map(|ratio| format!("{} after the warm-up", Unit::Times.text(ratio)));
    let mut cards = vec![
        (name, value, best.unwrap_or_default()),
        (
            "sent by a worker",
            Unit::Bytes.text(row.sent_mean),
            format!("a dense ring: {}", Unit::Bytes.text(row.dense_mean)),
        ),
        (
            "wire ratio",
            text(Unit::Times, row.wire_ratio),
            settled.unwrap_or("dense bytes over sent bytes".into()),
        ),
        (
            "time of a step",
            text(Unit::Seconds, row.seconds_per_step),
            format!("training took {}", Unit::Seconds.text(row.seconds)),
        ),
        ("hidden", text(Unit::Share, row.hidden), "of the exchange lay beside the backward pass".into()),
    ];
    if let Some(target) = row.target {
        let title = format!("until {}", measure(unit_of_value, target));
        let reached =
            row.seconds_to_target.map_or("not reached".into(), |seconds| Unit::Seconds.text(seconds));
        cards.push(("time to target", reached, title));
    }
    let mut out = String::from("<div class=\"cards\">");
    for (name, value, below) in cards {
        let _ = write!(
            out,
            "<div class=\"card\"><span class=\"name\">{}</span><span class=\"figure\">{}</span><span class=\"below\">{}</span></div>",
            escape(name),
            escape(&value),
            escape(&below)
        );
    }
    out.push_str("</div>");
    out
}

/// The table that compares several kinds of runs.
pub(crate) fn table(groups: &[Group<'_>], rows: &[Comparison]) -> String {
    let target = rows.iter().find_map(|row| row.target);
    let mut heads: Vec<String> =
        ["run", "seeds", "result", "best", "sent", "wire ratio", "time of a step", "speed-up", "hidden"]
            .map(String::from)
            .to_vec();
    if let (Some(target), Some(row)) = (target, rows.first()) {
        heads.push(format!("time to {}", measure(unit(row.measure), target)));
    }
    let mut out = String::from("<div class=\"scroll\"><table class=\"comparison\"><thead><tr>");
    for head in &heads {
        let _ = write!(out, "<th>{}</th>", escape(head));
    }
    out.push_str("</tr></thead><tbody>");
    for (group, row) in groups.iter().zip(rows) {
        let kind = unit(row.measure);
        let value = match (row.value_mean, row.value_spread) {
            (Some(value), None) => measure(kind, value),
            (Some(value), spread) => with_spread(kind, value, spread),
            (None, _) => "–".into(),
        };
        let words = if row.measure == Measure::Perplexity { "perplexity " } else { "" };
        let mut cells = vec![
            if row.runs == row.seeds {
                row.seeds.to_string()
            } else {
                format!("{} ({} runs)", row.seeds, row.runs)
            },
            format!("{words}{value}"),
            row.best_mean.map_or("–".into(), |best| measure(kind, best)),
            Unit::Bytes.text(row.sent_mean),
            text(Unit::Times, row.wire_ratio),
            row.seconds_per_step.map_or("–".into(), |seconds| {
                with_spread(Unit::Seconds, seconds, row.seconds_per_step_spread)
            }),
            text(Unit::Times, row.speedup_against_dense),
            text(Unit::Share, row.hidden),
        ];
        if target.is_some() {
            cells.push(match row.seconds_to_target {
                Some(seconds) => Unit::Seconds.text(seconds),
                None => format!("{} of {} got there", row.reached, row.runs),
            });
        }
        let stopped = match row.interrupted {
            0 => String::new(),
            _ if row.runs == 1 => " <span class=\"badge\">interrupted</span>".into(),
            some => format!(" <span class=\"badge\">{some} interrupted</span>"),
        };
        let name = legend(&[(group.look, row.name.clone())]);
        let _ = write!(out, "<tr><th>{name}{stopped}</th>");
        for cell in cells {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out.push_str(
        "<p class=\"small\">Results over several seeds are mean ± standard deviation. Wire ratio: bytes of a dense ring \
         over all bytes sent. Speed-up: time of a dense step over this one's, on the same link. Hidden: the part of the \
         exchange beside the backward pass.</p>",
    );
    out
}

/// Runs that stopped early, one line each.
pub(crate) fn interruptions(groups: &[Group<'_>]) -> String {
    let mut out = String::new();
    for run in groups.iter().flat_map(|group| &group.runs).filter(|run| run.interrupted()) {
        let _ = write!(
            out,
            "<p class=\"warning\"><b>{}</b> (seed {}) was interrupted after {} of {} steps; its figures are those until \
             then.</p>",
            escape(&run.label),
            run.run.seed,
            whole(run.steps_done()),
            whole(run.run.steps)
        );
    }
    out
}
