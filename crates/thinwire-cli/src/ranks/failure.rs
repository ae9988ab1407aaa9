//! Which rank failed first, and how.
//!
//! A rank that fails takes the others with it, within milliseconds: they lose the connection and end with errors of
//! their own. The order in which the system reports processes as ended is not always the order of cause: the
//! connections of a killed process are closed before it is reported, and memory is freed in between. So among
//! the failures of one short span, those that no lost connection causes are taken for the first.

use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGABRT;

/// The exit code of a rank of thinwire that ended because it had lost another one.
pub const LOST_ANOTHER: u8 = 3;

/// How long after the first failure the cause may still be reported.
const SPAN: Duration = Duration::from_secs(2);

/// The numbers of signals. An exit code beyond 128 and the highest, such as 255, is none of a signal.
const SIGNALS: RangeInclusive<i32> = 1..=64;

/// A rank that failed.
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    /// The rank.
    pub rank: usize,
    /// How it ended.
    pub status: ExitStatus,
    /// When that was noticed; the same for all that were noticed at once.
    pub at: Instant,
}

impl Failure {
    /// How likely it is that this failure was caused by another one, in steps.
    fn suspicion(&self) -> u8 {
        match (self.signal(), self.status.code()) {
            // What some libraries do when a connection breaks.
            (Some(SIGABRT), _) => 1,
            (Some(_), _) => 0,
            (None, Some(code)) if code == i32::from(LOST_ANOTHER) => 2,
            _ => 1,
        }
    }

    /// The signal that ended the rank; a shell reports that of its command as 128 and more.
    pub fn signal(&self) -> Option<i32> {
        self.status
            .signal()
            .or_else(|| self.status.code().map(|code| code - 128).filter(|signal| SIGNALS.contains(signal)))
    }
}

/// The ranks that failed first, and how; those that ended because of it are left out.
pub fn describe(failures: &[Failure]) -> String {
    let mut first: Vec<Failure> = earliest(failures);
    first.sort_by_key(|failure| failure.rank);
    let mut ways: Vec<(ExitStatus, Vec<String>)> = Vec::new();
    for Failure { rank, status, .. } in first {
        match ways.iter_mut().find(|(other, _)| *other == status) {
            Some((_, ranks)) => ranks.push(rank.to_string()),
            None => ways.push((status, vec![rank.to_string()])),
        }
    }
    let way = |(status, ranks): (ExitStatus, Vec<String>)| {
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{word} {} ended with {status}", ranks.join(", "))
    };
    ways.into_iter().map(way).collect::<Vec<String>>().join("; ")
}

fn earliest(failures: &[Failure]) -> Vec<Failure> {
    let Some(begin) = failures.iter().map(|failure| failure.at).min() else { return Vec::new() };
    let near = failures.iter().filter(|failure| failure.at.duration_since(begin) <= SPAN);
    let key = |failure: &Failure| (failure.suspicion(), failure.at);
    let Some(first) = near.clone().map(key).min() else { return Vec::new() };
    near.filter(|failure| key(failure) == first).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: i32 = 9;
    const ABORTED: i32 = 6;

    fn exit(code: i32) -> i32 {
        code << 8
    }

    /// From ranks, raw statuses, and milliseconds.
    fn described(failures: &[(usize, i32, u64)]) -> String {
        let begin = Instant::now();
        let failure = |&(rank, status, at)| Failure {
            rank,
            status: ExitStatus::from_raw(status),
            at: begin + Duration::from_millis(at),
        };
        describe(&failures.iter().map(failure).collect::<Vec<Failure>>())
    }

    #[test]
    fn the_first_in_time_is_named_and_not_those_after_it() {
        assert_eq!(
            described(&[(0, exit(1), 5), (2, exit(7), 3), (1, exit(1), 9)]),
            "rank 2 ended with exit status: 7"
        );
        // Long after, a signal is not the cause.
        assert_eq!(described(&[(1, exit(1), 0), (0, KILLED, 3000)]), "rank 1 ended with exit status: 1");
        assert_eq!(described(&[(1, exit(1), 0), (0, ABORTED, 1)]), "rank 1 ended with exit status: 1");
    }

    #[test]
    fn a_cause_that_is_reported_late_is_named_before_its_consequences() {
        let lost = exit(LOST_ANOTHER.into());
        assert_eq!(
            described(&[(0, lost, 0), (2, exit(1), 4), (1, KILLED, 400)]),
            "rank 1 ended with signal: 9 (SIGKILL)"
        );
        assert_eq!(described(&[(0, lost, 0), (2, exit(1), 4)]), "rank 2 ended with exit status: 1");
        assert_eq!(described(&[(0, exit(1), 0), (1, exit(137), 4)]), "rank 1 ended with exit status: 137");
        // No signal has this number.
        assert_eq!(described(&[(0, exit(1), 0), (1, exit(255), 4)]), "rank 0 ended with exit status: 1");
    }

    #[test]
    fn failures_at_once_are_all_named() {
        assert_eq!(
            described(&[(2, exit(2), 0), (0, exit(2), 0), (1, exit(1), 0)]),
            "ranks 0, 2 ended with exit status: 2; rank 1 ended with exit status: 1"
        );
    }
}
