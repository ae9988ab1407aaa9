//! What a run came to, in a few lines.

use std::path::Path;
use std::time::Duration;

use thinwire_train::event::{End, Run};

use super::progress::measured;
use crate::{human, output};

/// The lines.
pub fn text(folder: &Path, run: &Run, end: &End) -> String {
    let seconds = |seconds: f64| human::duration(Duration::from_secs_f64(seconds.max(0.0)));
    let mut lines = vec![
        ("result", format!("{} (best {})", measured(end.measure, end.value), best(end))),
        (
            "bytes sent",
            format!("{} by a worker; dense: {}", human::bytes(end.sent), human::bytes(end.dense_bytes)),
        ),
        ("wire ratio", ratios(end)),
        (
            "time",
            format!("{} for {} steps, {} each", seconds(end.seconds), end.steps, seconds(end.times.total)),
        ),
        ("stages", stages(end)),
    ];
    if run.workers > 1 {
        lines.push(("exchange", exchange(end)));
    }
    if end.skipped > 0 {
        lines.push(("skipped", human::plural(end.skipped as usize, "step")));
    }
    lines.push(("report", folder.join("report.html").display().to_string()));
    output::lines(&lines)
}

fn best(end: &End) -> String {
    let text = measured(end.measure, end.best);
    text.split_once(' ').map_or(text.clone(), |(_, number)| number.to_owned())
}

fn ratios(end: &End) -> String {
    let mut text = human::ratio(end.wire_ratio);
    if let Some(settled) =
        end.wire_ratio_settled.filter(|settled| (settled / end.wire_ratio - 1.0).abs() > 0.01)
    {
        text += &format!("; {} after the warm-up", human::ratio(settled));
    }
    if let Some(compressed) = end.wire_ratio_compressed {
        text += &format!("; {} on compressed layers", human::ratio(compressed));
    }
    text
}

fn stages(end: &End) -> String {
    let times = &end.times;
    let known = times.forward + times.backward + times.wait + times.optimizer;
    let stages = [
        ("forward", times.forward),
        ("backward", times.backward),
        ("waiting for the exchange", times.wait),
        ("optimiser", times.optimizer),
        ("rest", times.total - known),
    ];
    let stage = |(name, seconds): (&str, f64)| {
        format!("{name} {}", human::duration(Duration::from_secs_f64(seconds.max(0.0))))
    };
    format!("{}; overhead {:.1} %", stages.map(stage).join(", "), 100.0 * end.overhead)
}

fn exchange(end: &End) -> String {
    let times = &end.times;
    let stages =
        [("select", times.select), ("encode", times.encode), ("wire", times.exchange), ("sum", times.settle)];
    let stage = |(name, seconds): (&str, f64)| {
        format!("{name} {}", human::duration(Duration::from_secs_f64(seconds.max(0.0))))
    };
    format!("{}; {:.0} % of it beside the backward pass", stages.map(stage).join(", "), 100.0 * end.hidden)
}
