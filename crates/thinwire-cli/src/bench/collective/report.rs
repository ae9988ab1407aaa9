//! What the benchmark of the collectives came to.

use serde::Serialize;
use thinwire::group::Traffic;

use super::{Case, What};
use crate::bench::percentile;
use crate::{human, output};

/// The whole result.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub backend: &'static str,
    pub ranks: usize,
    pub link: Option<String>,
    pub encrypted: bool,
    pub rows: Vec<Figures>,
}

/// One collective with one algorithm at one size.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    collective: &'static str,
    algorithm: &'static str,
    bytes: usize,
    repeats: usize,
    p50_ms: f64,
    p99_ms: f64,
    best_ms: f64,
    /// Bytes rank 0 sent and received in one run.
    sent: u64,
    received: u64,
    /// The least time the bandwidth allows, and the median over it.
    bound_ms: Option<f64>,
    over_bound: Option<f64>,
}

impl Figures {
    pub fn new(
        case: Case,
        size: usize,
        mut seconds: Vec<f64>,
        traffic: Traffic,
        bandwidth: Option<u64>,
    ) -> Figures {
        seconds.sort_by(f64::total_cmp);
        let (n, bytes) = (size as f64, case.bytes as f64);
        let on_the_wire = match case.what {
            What::AllReduce => 2.0 * (n - 1.0) / n * bytes,
            What::AllGather => (n - 1.0) * bytes,
            What::Broadcast => bytes,
            What::Barrier => 0.0,
        };
        let bound_ms = bandwidth.map(|bits| on_the_wire * 8e3 / bits as f64).filter(|&bound| bound > 0.0);
        let p50_ms = percentile(&seconds, 50) * 1e3;
        Figures {
            collective: match case.what {
                What::AllReduce => "all-reduce",
                What::AllGather => "all-gather",
                What::Broadcast => "broadcast",
                What::Barrier => "barrier",
            },
            algorithm: case.algorithm.map_or("-", |algorithm| algorithm.name()),
            bytes: case.bytes,
            repeats: seconds.len(),
            p50_ms,
            p99_ms: percentile(&seconds, 99) * 1e3,
            best_ms: seconds[0] * 1e3,
            sent: traffic.sent,
            received: traffic.received,
            bound_ms,
            over_bound: bound_ms.map(|bound| p50_ms / bound),
        }
    }
}

impl Outcome {
    pub fn describe(&self) -> String {
        let link = self.link.as_ref().map_or(String::new(), |link| format!(", link {link}"));
        let encrypted = if self.encrypted { ", encrypted" } else { "" };
        let head = format!("{} ranks, {}{link}{encrypted}\n\n", self.ranks, self.backend);
        let titles =
            ["collective", "algorithm", ">bytes", ">p50 ms", ">p99 ms", ">sent", ">bound ms", ">over bound"];
        let rows = self.rows.iter().map(|row| {
            let optional = |value: Option<f64>| value.map_or("-".into(), human::three_digits);
            vec![
                row.collective.into(),
                row.algorithm.into(),
                human::bytes(row.bytes as u64),
                human::three_digits(row.p50_ms),
                human::three_digits(row.p99_ms),
                human::bytes(row.sent),
                optional(row.bound_ms),
                row.over_bound.map_or("-".into(), human::ratio),
            ]
        });
        head + &output::table(&titles, rows)
            + "\nTimes are those of the slowest rank; sent is by rank 0, in one run.\n"
    }
}
