//! What must be true of the ranks at their ends.

use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;

use super::accused::accused;
use super::rank::ENDED_WITH_ERROR;
use super::start::End;

/// More memory than this is not taken because of what another rank sends.
const MOST_MEMORY: u64 = 100_000;

/// All ranks' ends, for a message.
fn describe(ends: &[End]) -> String {
    let one = |end: &End| {
        let said = end.said.lines().map(|line| format!("\n      {line}")).collect::<String>();
        format!("\n  rank {}: {}, {:?}{said}", end.rank, end.status, end.findings)
    };
    ends.iter().map(one).collect()
}

/// Checks one thing of each rank but `except`, and that nobody has panicked.
pub fn all_but(
    ends: &[End],
    except: Option<usize>,
    check: impl Fn(&End) -> Result<(), String>,
) -> Result<(), String> {
    for end in ends {
        let checked = match end {
            end if end.said.contains("panicked") => Err("it has panicked".into()),
            end if Some(end.rank) == except => Ok(()),
            end => check(end),
        };
        checked.map_err(|reason| format!("rank {}: {reason}{}", end.rank, describe(ends)))?;
    }
    Ok(())
}

/// It ended with an error, in an orderly way.
pub fn ended_with_error(end: &End) -> Result<(), String> {
    let Some(findings) = &end.findings else { return Err("it has not said how it ended".into()) };
    match findings {
        _ if end.status.code() != Some(ENDED_WITH_ERROR) => Err("it has not ended with an error".into()),
        _ if findings.sockets > 0 => Err(format!("it left {} sockets open", findings.sockets)),
        _ if findings.grown_kilobytes > MOST_MEMORY => {
            Err(format!("its memory has grown by {} kB", findings.grown_kilobytes))
        }
        _ => Ok(()),
    }
}

/// It ended with an error that has all these words.
pub fn says(end: &End, words: &[&str]) -> Result<(), String> {
    ended_with_error(end)?;
    match words.iter().find(|word| !end.error().contains(**word)) {
        Some(word) => Err(format!("its error does not say {word:?}")),
        None => Ok(()),
    }
}

/// It ended with an error that blames `culprit` and no other rank.
pub fn blames_only(end: &End, culprit: usize) -> Result<(), String> {
    ended_with_error(end)?;
    let ranks = accused(end.error());
    if ranks.iter().eq([&culprit]) {
        return Ok(());
    }
    Err(format!("its error blames ranks {ranks:?} instead of rank {culprit} alone"))
}

/// It came to rank 0 when that had given up, because of `culprit`: a rank that is started late on a busy machine.
pub fn found_rank_0_gone(end: &End, ends: &[End], culprit: usize) -> Result<(), String> {
    says(end, &["could not join the group: rank 0 at", "could not be reached"])?;
    let first = ends.iter().find(|end| end.rank == 0).ok_or("rank 0 has not ended")?;
    blames_only(first, culprit)
}

pub fn ended_well(end: &End) -> Result<(), String> {
    match &end.findings {
        Some(findings) if findings.sockets > 0 => Err(format!("it left {} sockets open", findings.sockets)),
        Some(_) if end.status.success() => Ok(()),
        _ => Err("it has not ended well".into()),
    }
}

pub fn was_killed(ends: &[End], rank: usize) -> Result<(), String> {
    let killed = ends.iter().any(|end| end.rank == rank && end.status.signal() == Some(9));
    if killed { Ok(()) } else { Err(format!("rank {rank} was to be killed, and was not{}", describe(ends))) }
}

/// Every other rank blames `culprit`, and says in which of `steps` it was.
pub fn blamed(ends: &[End], culprit: usize, steps: RangeInclusive<u64>) -> Result<(), String> {
    all_but(ends, Some(culprit), |end| {
        ended_with_error(end)?;
        let error = end.error();
        let blames = ["lost rank", "no word from rank", "because of rank"]
            .iter()
            .any(|words| error.contains(&format!("{words} {culprit}")));
        if !blames {
            return Err(format!("its error does not blame rank {culprit}"));
        }
        let step = error.strip_prefix("step ").and_then(|rest| rest.split_once(':'));
        match step.and_then(|(number, _)| number.parse().ok()) {
            Some(step) if steps.contains(&step) => Ok(()),
            _ => Err(format!("its error does not name a step of {steps:?}")),
        }
    })
}
