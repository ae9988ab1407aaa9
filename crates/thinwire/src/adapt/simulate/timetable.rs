//! Which network holds when.

use std::time::Duration;

use crate::adapt::cost::Network;
use crate::group::Schedule;
use crate::{Error, Result};

/// The network over a run: by parts of the run, by steps, or by seconds since its beginning.
///
/// ```
/// use thinwire::adapt::simulate::Timetable;
///
/// let table = Timetable::c1();
/// assert_eq!(table.at(0, 1000, 0.0).latency, 0.001);
/// assert_eq!(table.at(500, 1000, 0.0).latency, 0.05);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Timetable {
    changes: Changes,
}

#[derive(Debug, Clone, PartialEq)]
enum Changes {
    /// Since which part of the run, and what; in order.
    Parts(Vec<(f64, Network)>),
    /// As in a file for `--link @FILE`.
    Scheduled(Schedule),
}

/// The epochs of the run that C1 and C2 are written for: AR-Topk's of ResNet-18.
const EPOCHS: f64 = 50.0;

impl Timetable {
    /// One network for the whole run.
    pub fn constant(network: Network) -> Timetable {
        Timetable { changes: Changes::Parts(vec![(0.0, network)]) }
    }

    /// AR-Topk's C1: 12 epochs each at 1 ms and 25 Gbit/s, 1 ms and 1 Gbit/s, 50 ms and 1 Gbit/s; the last 14 of 50 at
    /// 50 ms and 25 Gbit/s.
    pub fn c1() -> Timetable {
        Timetable::epochs(&[(0.0, 1.0, 25.0), (12.0, 1.0, 1.0), (24.0, 50.0, 1.0), (36.0, 50.0, 25.0)])
    }

    /// AR-Topk's C2: low latency and high bandwidth, moderate, high latency and low bandwidth, moderate, and back.
    ///
    /// The paper gives no numbers. These are of the ladder in the authors' code: its ends, 1 ms with 25 Gbit/s and
    /// 32 ms with 1 Gbit/s, and for "moderate" 8 ms with 10 Gbit/s.
    pub fn c2() -> Timetable {
        Timetable::epochs(&[
            (0.0, 1.0, 25.0),
            (12.0, 8.0, 10.0),
            (20.0, 32.0, 1.0),
            (28.0, 8.0, 10.0),
            (36.0, 1.0, 25.0),
        ])
    }

    fn epochs(changes: &[(f64, f64, f64)]) -> Timetable {
        let network = |ms: f64, gbit: f64| Network { latency: ms / 1e3, seconds_per_byte: 8e-9 / gbit };
        let changes = changes.iter().map(|&(epoch, ms, gbit)| (epoch / EPOCHS, network(ms, gbit)));
        Timetable { changes: Changes::Parts(changes.collect()) }
    }

    /// From a file of links for `--link @FILE`: by steps, or by seconds since the beginning.
    ///
    /// An error if some link has no rate, or there is none at the beginning.
    pub fn from_schedule(schedule: Schedule) -> Result<Timetable> {
        for link in schedule.links() {
            Network::try_from(link)?;
        }
        if schedule.link(Duration::ZERO, 0).rate.is_none() {
            return Err(Error::BadSetting {
                name: "schedule".into(),
                found: "no link at the beginning".into(),
                expected: "a first line with a link alone, such as 1gbit,1ms".into(),
            });
        }
        Ok(Timetable { changes: Changes::Scheduled(schedule) })
    }

    /// The network in a step of so many, so many seconds after the beginning.
    pub fn at(&self, step: usize, steps: usize, seconds: f64) -> Network {
        match &self.changes {
            Changes::Parts(changes) => {
                // The same quotient, computed elsewhere, may be a hair larger.
                let part = step as f64 / steps as f64 + 1e-12;
                changes[changes.partition_point(|(since, _)| *since <= part).max(1) - 1].1
            }
            Changes::Scheduled(schedule) => {
                let link = schedule.link(Duration::from_secs_f64(seconds.clamp(0.0, 1e15)), step as u64);
                let bits = link.rate.unwrap_or(u64::MAX) as f64;
                Network { latency: link.delay.as_secs_f64(), seconds_per_byte: 8.0 / bits }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_parts_of_the_run() {
        let gbit =
            |table: &Timetable, step: usize| (8e-9 / table.at(step, 1000, 0.0).seconds_per_byte).round();
        let ms = |table: &Timetable, step: usize| (1e3 * table.at(step, 1000, 0.0).latency).round();
        let (c1, c2) = (Timetable::c1(), Timetable::c2());
        let steps = [0, 239, 240, 479, 480, 719, 720, 999];
        assert_eq!(steps.map(|step| gbit(&c1, step)), [25.0, 25.0, 1.0, 1.0, 1.0, 1.0, 25.0, 25.0]);
        assert_eq!(steps.map(|step| ms(&c1, step)), [1.0, 1.0, 1.0, 1.0, 50.0, 50.0, 50.0, 50.0]);
        let steps = [0, 240, 400, 560, 720];
        assert_eq!(steps.map(|step| gbit(&c2, step)), [25.0, 10.0, 1.0, 10.0, 25.0]);
        assert_eq!(steps.map(|step| ms(&c2, step)), [1.0, 8.0, 32.0, 8.0, 1.0]);
    }

    #[test]
    fn a_file_goes_by_time_or_by_steps() {
        let table = |text: &str| Timetable::from_schedule(Schedule::parse(text, "x").unwrap());
        let timed = table("1gbit,1ms\nat 30s: 100mbit,20ms").unwrap();
        assert_eq!(timed.at(900, 1000, 29.9), "1gbit,1ms".parse().unwrap());
        assert_eq!(timed.at(100, 1000, 30.0), "100mbit,20ms".parse().unwrap());
        let stepped = table("1gbit,1ms\nat step 300: 100mbit,20ms").unwrap();
        assert_eq!(stepped.at(299, 1000, 1e9), "1gbit,1ms".parse().unwrap());
        assert_eq!(stepped.at(300, 1000, 0.0), "100mbit,20ms".parse().unwrap());
        for text in ["at 1s: 1gbit,1ms", "5ms", "1gbit\nat 1s: 20ms"] {
            assert!(table(text).unwrap_err().to_string().contains("1gbit,1ms"), "{text}");
        }
    }
}
