//! What must fail, and how.

use std::time::{Duration, Instant};

use thinwire::Result;
use thinwire::group::{Algorithm, Gathered, Group, Mark, Mpi, Sum};

use super::{Judge, Scenario, Work};

const DEADLINE: Duration = Duration::from_millis(1500);

/// Where no deadline is to pass.
const PATIENT: Duration = Duration::from_secs(20);

const MARK: Mark = Mark { step: 7, plan: 1, bucket: 0 };

pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, work: Work, judge: Judge| Scenario {
        name,
        ranks: &[2, 4],
        deadline: PATIENT,
        ends_well: false,
        work,
        judge,
    };
    let late =
        |ranks, name, work: Work| Scenario { ranks, deadline: DEADLINE, ..scenario(name, work, missed) };
    vec![
        scenario(
            "another step",
            |group| against_a_barrier(group, |group| marked(group, Mark { step: 8, ..MARK })),
            |found| named(found, "the step is 8 there and 7 here", "the step is 7 there and 8 here"),
        ),
        scenario(
            "another plan",
            |group| against_a_barrier(group, |group| marked(group, Mark { plan: 5, ..MARK })),
            |found| named(found, "the plan is 5 there and 1 here", "the plan is 1 there and 5 here"),
        ),
        scenario(
            "another collective",
            |group| {
                against_a_barrier(group, |group| {
                    group.all_gather(b"x", 1, Algorithm::Tree, &mut Gathered::default())
                })
            },
            |found| {
                let words = "the collective is all-gather there and barrier here";
                named(found, words, "the collective is barrier there and all-gather here")
            },
        ),
        scenario(
            "left early",
            |mut group| {
                group.mark(MARK);
                if group.rank() == 1 { "left".into() } else { end(group, |group| group.barrier()) }
            },
            |found| {
                let words = "the collective is end of the group there and barrier here";
                named(found, words, "the collective is barrier there and end of the group here")
            },
        ),
        scenario("another length", another_length, |found| {
            let words = "the number of bytes is 44 there and 40 here";
            named(found, words, "the number of bytes is 40 there and 44 here")
        }),
        scenario("over the limit", over_the_limit, |found| {
            let words = "the number of bytes is 100 there and at most 99 here";
            if found.iter().all(|found| found.contains(words)) { Ok(()) } else { Err(words.into()) }
        }),
        late(&[2, 5], "stalled ring", |group| stalled(group, Algorithm::Ring)),
        late(&[4], "stalled tree", |group| stalled(group, Algorithm::Tree)),
        late(&[3], "stopped", stopped),
        late(&[4], "gone", gone),
        scenario("abandoned", abandoned, heard),
        scenario("panicked", panicked, |found| {
            others_than(1, found, |found| {
                // From itself, or from one that had heard it.
                let ways = ["rank 1 gave up: this rank panicked", "because of rank 1: this rank panicked"];
                ways.iter().any(|words| found.contains(words))
            })
        }),
    ]
}

/// Runs what must fail, and then sees that the group is lost.
fn end(mut group: Mpi, work: impl FnOnce(&mut Mpi) -> Result<()>) -> String {
    let begun = Instant::now();
    let Err(error) = work(&mut group) else { return "no error".into() };
    let took = begun.elapsed();
    let again = group.barrier().map_or_else(|error| error.to_string(), |()| "no error".into());
    if !again.contains("was given up") {
        return format!("the group lives on after {error}: {again}");
    }
    format!("{} ms: {error}", took.as_millis())
}

fn marked(group: &mut Mpi, mark: Mark) -> Result<()> {
    group.mark(mark);
    group.barrier()
}

fn against_a_barrier(mut group: Mpi, other: fn(&mut Mpi) -> Result<()>) -> String {
    group.mark(MARK);
    let odd = group.rank() == 1;
    end(group, |group| if odd { other(group) } else { group.barrier() })
}

fn another_length(mut group: Mpi) -> String {
    group.mark(MARK);
    let len = if group.rank() == 1 { 11 } else { 10 };
    end(group, |group| group.all_reduce(Sum::F32(&mut vec![1.0; len]), Algorithm::Ring))
}

fn over_the_limit(group: Mpi) -> String {
    // Only rank 0 refuses; the others hear of it.
    let limit = if group.rank() == 0 { 99 } else { 100 };
    end(group, |group| {
        group
            .all_gather(&[0; 100], limit, Algorithm::Tree, &mut Gathered::default())
            .and_then(|()| group.barrier())
    })
}

fn stalled(mut group: Mpi, how: Algorithm) -> String {
    group.barrier().expect("all are there at first");
    group.mark(Mark { step: 12, ..MARK });
    if group.rank() == 1 {
        std::thread::sleep(DEADLINE * 5);
    } else {
        // Those that come later must not be taken for missing by those whose deadline passes first.
        std::thread::sleep(DEADLINE / 2 * (group.rank() % 2) as u32);
    }
    end(group, |group| group.all_reduce(Sum::F32(&mut vec![1.0; 3_000_000]), how))
}

/// Rank 1 is stopped wherever it is, most likely while bytes move.
fn stopped(mut group: Mpi) -> String {
    group.barrier().expect("all are there at first");
    group.mark(Mark { step: 12, ..MARK });
    let shell = (group.rank() == 1).then(|| {
        let script = "sleep 0.3; kill -STOP $0; sleep 7; kill -CONT $0";
        let own = std::process::id().to_string();
        std::process::Command::new("sh").args(["-c", script, &own]).spawn().expect("a shell")
    });
    let mut values = vec![1.0; 3_000_000];
    let mut begun = Instant::now();
    let error = loop {
        match group.all_reduce(Sum::F32(&mut values), Algorithm::Ring) {
            Ok(()) => begun = Instant::now(),
            Err(error) => break error,
        }
    };
    let took = begun.elapsed();
    if let Some(mut shell) = shell {
        shell.wait().expect("a shell");
    }
    format!("{} ms: {error}", took.as_millis())
}

fn gone(mut group: Mpi) -> String {
    group.barrier().expect("all are there at first");
    group.mark(Mark { step: 12, ..MARK });
    if group.rank() == 1 {
        // Not dropped, so nobody is told.
        std::mem::forget(group);
        return "gone".into();
    }
    end(group, |group| group.all_reduce(Sum::F32(&mut [1.0]), Algorithm::Ring))
}

fn abandoned(mut group: Mpi) -> String {
    group.barrier().expect("all are there at first");
    if group.rank() == 1 {
        std::thread::sleep(Duration::from_millis(300));
        group.abandon("out of disk space");
    }
    end(group, |group| group.all_reduce(Sum::F32(&mut [1.0]), Algorithm::Tree))
}

fn panicked(mut group: Mpi) -> String {
    group.barrier().expect("all are there at first");
    if group.rank() == 1 {
        panic!("on purpose");
    }
    end(group, |group| group.barrier())
}

/// Every rank names rank 1 or is it, and says what differs: as seen from the others, or as seen from rank 1 when
/// that was heard first.
fn named(found: &[String], words: &str, mirrored: &str) -> Result<(), String> {
    let says = |found: &String| found.contains(words) || found.contains(mirrored);
    others_than(1, found, |found| found.contains("rank 1") && says(found))?;
    if says(&found[1]) || found[1] == "left" { Ok(()) } else { Err(format!("rank 1 should say: {mirrored}")) }
}

/// Rank 1 was named by all others, in time.
fn missed(found: &[String]) -> Result<(), String> {
    // The deadline, the roll call, and what a busy machine takes.
    let most = DEADLINE * 2 + Duration::from_millis(2500);
    others_than(1, found, |found| {
        let in_time = milliseconds(found).is_some_and(|took| took < most.as_millis());
        in_time && found.contains("no word from rank 1") && found.contains("step 12")
    })
}

/// The reason was heard by all others, before the deadline.
fn heard(found: &[String]) -> Result<(), String> {
    others_than(1, found, |found| {
        let early = milliseconds(found).is_some_and(|took| took < PATIENT.as_millis());
        early && found.contains("out of disk space") && found.contains("rank 1 gave up")
    })?;
    if found[1].contains("out of disk space") { Ok(()) } else { Err("rank 1 has forgotten why".into()) }
}

fn others_than(odd: usize, found: &[String], good: impl Fn(&String) -> bool) -> Result<(), String> {
    match found.iter().enumerate().find(|(rank, found)| *rank != odd && !good(found)) {
        None => Ok(()),
        Some((rank, _)) => Err(format!("rank {rank} did not find what it should")),
    }
}

fn milliseconds(found: &str) -> Option<u128> {
    found.split_once(" ms: ")?.0.parse().ok()
}
