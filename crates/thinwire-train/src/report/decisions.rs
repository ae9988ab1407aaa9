//! What automatic methods decided, and why.

use std::fmt::Write;

use thinwire::adapt::decision::{Decision, Reason};

use super::group::Group;
use super::svg::escape;

/// So many decisions of one run are printed.
const MOST: usize = 60;

/// The decisions of all runs, a table for each; nothing if there are none.
pub(crate) fn table(groups: &[Group<'_>]) -> String {
    let mut out = String::new();
    for run in groups.iter().flat_map(|group| &group.runs).filter(|run| !run.decisions.is_empty()) {
        let _ = write!(
            out,
            "<h4>{}</h4><table><thead><tr><th>step</th><th>why</th><th>network</th><th>way</th><th>density</th>\
             <th>gain</th><th>synchronising</th><th>dense would take</th><th>saves of a step</th>\
             <th>second best</th></tr></thead><tbody>",
            escape(&run.label)
        );
        run.decisions.iter().take(MOST).for_each(|decision| row(&mut out, decision));
        out.push_str("</tbody></table>");
        if run.decisions.len() > MOST {
            let _ = write!(out, "<p>and {} more in metrics.jsonl</p>", run.decisions.len() - MOST);
        }
    }
    match out.is_empty() {
        true => out,
        false => format!("<section><h2>Decisions</h2>{out}</section>"),
    }
}

fn row(out: &mut String, decision: &Decision) {
    let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
    let why = match decision.reason {
        Reason::Start => "start",
        Reason::Network => "network",
        Reason::Gain => "gain",
        Reason::Time => "times",
        Reason::Warmup => "warm-up",
        Reason::Residual => "residual",
    };
    let (density, gain) = match decision.is_dense() {
        true => ("all".to_owned(), "1".to_owned()),
        false => (format!("{:.3} %", 100.0 * decision.density), format!("{:.2}", decision.gain)),
    };
    let network =
        format!("{:.3} Gbit/s, {}", 8e-9 / decision.network.seconds_per_byte, ms(decision.network.latency));
    let kept = if decision.changes { "" } else { "still " };
    let second = decision.second.as_ref().map_or("-".into(), |(way, time)| format!("{way}, {}", ms(*time)));
    let _ = write!(
        out,
        "<tr><td>{}</td><td>{why}</td><td>{network}</td><td>{kept}{}</td><td>{density}</td><td>{gain}</td>\
         <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        decision.step,
        escape(&decision.ways_in_words()),
        ms(decision.seconds),
        decision.dense_seconds.map_or("-".into(), ms),
        decision.saves().map_or("-".into(), |saves| format!("{:.0} %", 100.0 * saves)),
        escape(&second),
    );
}
