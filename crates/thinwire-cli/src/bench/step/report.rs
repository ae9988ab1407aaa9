//! What the benchmark of whole steps came to.

use serde::Serialize;

use super::StepReport;
use crate::bench::percentile;
use crate::{human, output};

/// The whole result.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub backend: &'static str,
    pub ranks: usize,
    pub link: Option<String>,
    pub encrypted: bool,
    pub elements: usize,
    pub buckets: usize,
    pub threads: usize,
    pub steps: usize,
    pub rows: Vec<Figures>,
}

/// One method. Stage times are rank 0's, in milliseconds; the step's is the slowest rank's.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    method: String,
    step_ms: f64,
    best_ms: f64,
    /// What was foretold from a probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ms: Option<f64>,
    /// How many times faster than the first method.
    speed_up: f64,
    select_ms: f64,
    encode_ms: f64,
    exchange_ms: f64,
    settle_ms: f64,
    sent: u64,
    received: u64,
    kept: usize,
    value_ratio: f64,
    wire_ratio: f64,
    gain: f64,
    /// Bytes held beyond gradient, residual and momentum, and that for each coordinate of each rank.
    workspace_bytes: usize,
    workspace_per_coordinate: f64,
}

impl Figures {
    pub fn new(
        method: &str,
        mut seconds: Vec<f64>,
        reports: &[StepReport],
        workspace: usize,
        ranks: usize,
        first: Option<&Figures>,
    ) -> Figures {
        seconds.sort_by(f64::total_cmp);
        let stage = |time: fn(&StepReport) -> std::time::Duration| {
            let mut times: Vec<f64> = reports.iter().map(|report| time(report).as_secs_f64() * 1e3).collect();
            times.sort_by(f64::total_cmp);
            percentile(&times, 50)
        };
        let last = reports[reports.len() - 1];
        // Leaders take turns, and send more than the others.
        let mean =
            |number: fn(&StepReport) -> f64| reports.iter().map(number).sum::<f64>() / reports.len() as f64;
        let step_ms = percentile(&seconds, 50) * 1e3;
        Figures {
            method: method.to_owned(),
            step_ms,
            best_ms: seconds[0] * 1e3,
            predicted_ms: None,
            speed_up: first.map_or(1.0, |first| first.step_ms / step_ms),
            select_ms: stage(|report| report.compression.select_time),
            encode_ms: stage(|report| report.compression.encode_time),
            exchange_ms: stage(|report| report.times.exchange),
            settle_ms: stage(|report| report.times.settle),
            sent: mean(|report| report.traffic.sent as f64) as u64,
            received: mean(|report| report.traffic.received as f64) as u64,
            kept: mean(|report| report.kept() as f64) as usize,
            value_ratio: mean(StepReport::value_ratio),
            wire_ratio: mean(StepReport::wire_ratio),
            gain: mean(StepReport::gain),
            workspace_bytes: workspace,
            workspace_per_coordinate: workspace as f64 / (last.compression.values.max(1) * ranks) as f64,
        }
    }
}

impl Outcome {
    pub fn describe(&self) -> String {
        let link = self.link.as_ref().map_or(String::new(), |link| format!(", link {link}"));
        let encrypted = if self.encrypted { ", encrypted" } else { "" };
        let head = format!(
            "{} ranks, {}{link}{encrypted}; {} elements in {}; {} a rank\n\n",
            self.ranks,
            self.backend,
            human::count(self.elements as u64),
            human::plural(self.buckets, "bucket"),
            human::plural(self.threads, "thread"),
        );
        let foretold = self.rows.iter().any(|row| row.predicted_ms.is_some());
        let mut titles = vec![
            "method",
            ">step ms",
            ">speed-up",
            ">select",
            ">encode",
            ">exchange",
            ">settle",
            ">sent",
            ">wire",
            ">k",
            ">gain",
            ">work space",
        ];
        if foretold {
            titles.insert(2, ">foretold");
        }
        let rows = self.rows.iter().map(|row| {
            let mut cells = vec![
                row.method.clone(),
                human::three_digits(row.step_ms),
                human::ratio(row.speed_up),
                human::three_digits(row.select_ms),
                human::three_digits(row.encode_ms),
                human::three_digits(row.exchange_ms),
                human::three_digits(row.settle_ms),
                human::bytes(row.sent),
                human::ratio(row.wire_ratio),
                human::count(row.kept as u64),
                human::three_digits(row.gain),
                human::bytes(row.workspace_bytes as u64),
            ];
            if foretold {
                cells.insert(2, row.predicted_ms.map_or("-".into(), human::three_digits));
            }
            cells
        });
        head + &output::table(&titles, rows)
            + "\nThe step is the slowest rank's, the stages are rank 0's, all medians in ms. Speed-up is over the first\n\
               method, wire over what a dense ring sends. Work space is what is held beyond gradient, residual and\n\
               momentum.\n"
    }
}
