//! `kill -9` of a rank in every stage.

use std::time::Duration;

use rustix::process::Signal;
use thinwire::exchange::Leaders;

use super::rank::Part;
use super::saboteur::{Deed, Moment, Sabotage};
use super::start::{PATIENT, Ranks, SHORT, SIZE};
use super::{Scenario, judge, raw};

/// The step in which ranks die. In it rank 1 leads, and rank 0 does not.
pub const STEP: u64 = 1;
pub const LEADER: usize = 1;

/// A link slow enough for a rank to die in the midst of every collective.
pub const SLOW: &str = "20mbit,30ms";

/// A method of each exchange, and how many collectives a step of it has with the comparison of the replicas.
pub fn methods() -> Vec<(String, usize)> {
    let leads = |seed: &u64| Leaders::Random { count: 2, seed: *seed }.of_step(STEP, SIZE) == [LEADER, 3];
    let seed = (0..1000).find(leads).expect("some seed");
    vec![
        ("dense".into(), 3),
        ("quantized".into(), 2),
        ("topk:density=0.05".into(), 2),
        ("ar-topk:density=0.05,leader=star".into(), 3),
        ("ar-topk:density=0.05,leader=var".into(), 4),
        (format!("iwp:density=0.05,leaders=2,seed={seed}"), 5),
    ]
}

/// Runs ranks of which `victim` commits `sabotage`.
pub fn sabotaged(part: Part, victim: usize, sabotage: Sabotage, deadline: f64) -> Result<Ranks, String> {
    let mut ranks = Ranks::new();
    ranks.deadlines = [deadline; SIZE];
    if sabotage.moment == Moment::Inside {
        ranks.variables.push(("THINWIRE_LINK", SLOW.into()));
    }
    ranks.start_all(|rank| Part {
        loud: rank == LEADER,
        sabotage: Some(sabotage.clone()).filter(|_| rank == victim),
        ..part.clone()
    })?;
    Ok(ranks)
}

fn dies(name: &str, part: Part, victim: usize, step: Option<u64>, call: usize, moment: Moment) -> Scenario {
    let place = step.map_or("comparing notes".into(), |step| format!("step {step}, collective {call}"));
    let name = format!("kill: {name}, rank {victim} {moment:?} {place}");
    Scenario::new(name, move || {
        let sabotage = Sabotage { step, call, moment, deed: Deed::Die };
        let ends = sabotaged(part.clone(), victim, sabotage, PATIENT)?.finish()?;
        judge::was_killed(&ends, victim)?;
        // Some may still be in the step before, or already in the one after.
        let step = step.unwrap_or(0);
        judge::blamed(&ends, victim, step.saturating_sub(1)..=step + 1)
    })
}

pub fn scenarios() -> Vec<Scenario> {
    let mut all = joining();
    for moment in [Moment::Before, Moment::Inside, Moment::After] {
        for victim in [0, 2] {
            all.push(dies("topk", Part::of("topk"), victim, None, 0, moment));
        }
    }
    for (method, calls) in methods() {
        let part = Part { elements: 50_000, ..Part::of(&method) };
        for victim in [0, LEADER] {
            for call in 0..calls {
                for moment in [Moment::Before, Moment::Inside] {
                    all.push(dies(&method, part.clone(), victim, Some(STEP), call, moment));
                }
            }
            // What is left of the step is each rank's own affair.
            all.push(dies(&method, part.clone(), victim, Some(STEP), calls - 1, Moment::After));
        }
        let part = Part { background: true, buckets: 2, check_replicas_every: 0, ..part };
        let name = format!("{method} in the background");
        for (victim, call, moment) in [(0, 0, Moment::Before), (LEADER, 1, Moment::Inside)] {
            all.push(dies(&name, part.clone(), victim, Some(STEP), call, moment));
        }
    }
    all
}

/// Ranks that die while the group forms. No step has begun, so none is named.
fn joining() -> Vec<Scenario> {
    let mut all = Vec::new();
    for victim in [0, 1] {
        all.push(Scenario::new(format!("kill: rank {victim} while the ranks gather"), move || {
            let mut ranks = Ranks::new();
            // Rank 0 tells the others who is missing; when it is missing itself, each has to find out.
            match victim {
                0 => ranks.deadlines = [SHORT; SIZE],
                _ => ranks.deadlines[0] = SHORT,
            }
            let part = Part::of("topk");
            (0..3).try_for_each(|rank| ranks.start(rank, &part, &[]))?;
            std::thread::sleep(Duration::from_millis(500));
            ranks.signal(victim, Signal::KILL)?;
            ranks.wait_for(&[victim])?;
            ranks.start(3, &part, &[])?;
            let ends = ranks.finish()?;
            judge::was_killed(&ends, victim)?;
            judge::all_but(&ends, Some(victim), |end| {
                judge::says(end, &["could not join the group"])?;
                judge::blames_only(end, victim)
            })
        }));
    }
    // Wherever the meeting, or the training after it, happens to be.
    for (victim, delay) in [0, 1, 3].into_iter().flat_map(|v| [30, 80, 200].map(|d| (v, d))) {
        all.push(Scenario::new(format!("kill: rank {victim} after {delay} ms"), move || {
            let mut ranks = Ranks::new();
            // On a busy machine the ranks start seconds apart.
            ranks.deadlines = [PATIENT; SIZE];
            let secret = (delay % 40 == 0).then(|| ("THINWIRE_SECRET", "hush".to_owned()));
            ranks.variables.extend(secret);
            let pause = Duration::from_millis(1);
            ranks.start_all(|_| Part { steps: 1_000_000, pause, ..Part::of("topk") })?;
            std::thread::sleep(Duration::from_millis(delay));
            ranks.signal(victim, Signal::KILL)?;
            let ends = ranks.finish()?;
            judge::was_killed(&ends, victim)?;
            judge::all_but(&ends, Some(victim), |end| {
                judge::blames_only(end, victim)
                    .or_else(|reason| judge::found_rank_0_gone(end, &ends, victim).map_err(|_| reason))
            })
        }));
    }
    for victim in [1, 3] {
        all.push(Scenario::new(
            format!("kill: rank {victim} when it was told where the others are"),
            move || {
                let mut ranks = Ranks::new();
                ranks.deadlines = [SHORT; SIZE];
                let half_join = |rank| Some(raw::VERSION).filter(|_| rank == victim);
                ranks.start_all(|rank| Part { half_join: half_join(rank), ..Part::of("topk") })?;
                let ends = ranks.finish()?;
                judge::was_killed(&ends, victim)?;
                judge::all_but(&ends, Some(victim), |end| {
                    judge::says(end, &["could not join the group"])?;
                    judge::blames_only(end, victim)
                })
            },
        ));
    }
    all
}
