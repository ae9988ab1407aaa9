//! A rank that is stopped (SIGSTOP): the others end by the deadline, and the rank itself when it goes on.

use std::time::Duration;

use rustix::process::Signal;

use super::kill::{LEADER, SLOW, STEP, methods, sabotaged};
use super::rank::Part;
use super::saboteur::{Deed, Moment, Sabotage};
use super::start::{Ranks, SHORT, SIZE};
use super::{Scenario, judge};

pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![while_joining(), for_longer_than_its_own_deadline()];
    let places = [(0, Moment::Before), (LEADER, Moment::Inside), (2, Moment::After)];
    for (number, (method, _)) in methods().into_iter().enumerate() {
        let (victim, moment) = places[number % places.len()];
        let name = format!("freeze: {method}, rank {victim} {moment:?} step {STEP}, collective 0");
        all.push(Scenario::new(name, move || {
            let part = Part { elements: 50_000, ..Part::of(&method) };
            let sabotage = Sabotage { step: Some(STEP), call: 0, moment, deed: Deed::Freeze };
            let mut ranks = sabotaged(part, victim, sabotage, SHORT)?;
            let others: Vec<usize> = (0..SIZE).filter(|&rank| rank != victim).collect();
            ranks.wait_for(&others)?;
            ranks.signal(victim, Signal::CONT)?;
            let ends = ranks.finish()?;
            judge::blamed(&ends, victim, STEP - 1..=STEP + 1)?;
            // It has overslept, but it is the others who have given up, and it is told why.
            let words = format!("because of rank {victim}: ");
            judge::all_but(&ends[victim..=victim], None, |end| judge::says(end, &["step ", &words]))
        }));
    }
    all
}

/// What has come while a rank was stopped counts, though its own deadline is over when it looks.
fn for_longer_than_its_own_deadline() -> Scenario {
    Scenario::new("freeze: topk, rank 1 for longer than its own deadline, and all go on", || {
        let mut ranks = Ranks::new();
        ranks.deadlines[1] = SHORT;
        ranks.variables.push(("THINWIRE_LINK", SLOW.into()));
        let part = Part { elements: 50_000, ..Part::of("topk") };
        let sabotage = Sabotage { step: Some(STEP), call: 0, moment: Moment::Inside, deed: Deed::Freeze };
        let sabotage = |rank| Some(sabotage.clone()).filter(|_| rank == 1);
        ranks.start_all(|rank| Part { sabotage: sabotage(rank), ..part.clone() })?;
        ranks.wait_until_stopped(1)?;
        std::thread::sleep(Duration::from_secs_f64(1.5 * SHORT));
        ranks.signal(1, Signal::CONT)?;
        judge::all_but(&ranks.finish()?, None, judge::ended_well)
    })
}

fn while_joining() -> Scenario {
    Scenario::new("freeze: rank 1 before it joins", || {
        let mut ranks = Ranks::new();
        (ranks.deadlines[0], ranks.deadlines[1]) = (SHORT, SHORT);
        ranks.start_all(|rank| Part { freeze_first: rank == 1, ..Part::of("topk") })?;
        ranks.wait_for(&[0, 2, 3])?;
        ranks.wait_until_stopped(1)?;
        ranks.signal(1, Signal::CONT)?;
        let ends = ranks.finish()?;
        judge::all_but(&ends, Some(1), |end| judge::says(end, &["could not join the group", "rank 1"]))?;
        judge::all_but(&ends[1..2], None, |end| judge::says(end, &["rank 0", "could not be reached"]))
    })
}
