//! A rank that is stopped (SIGSTOP): the others end by the deadline, and the rank itself when it goes on.

use std::time::Duration;

use rustix::process::Signal;

use super::kill::{LEADER, STEP, methods, sabotaged};
use super::rank::Part;
use super::saboteur::{Deed, Moment, Sabotage};
use super::start::{Ranks, SIZE};
use super::{Scenario, judge};

pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![while_joining()];
    let places = [(0, Moment::Before), (LEADER, Moment::Inside), (2, Moment::After)];
    for (number, (method, _)) in methods().into_iter().enumerate() {
        let (victim, moment) = places[number % places.len()];
        let name = format!("freeze: {method}, rank {victim} {moment:?} step {STEP}, collective 0");
        all.push(Scenario::new(name, move || {
            let part = Part { elements: 50_000, ..Part::of(&method) };
            let sabotage = Sabotage { step: Some(STEP), call: 0, moment, deed: Deed::Freeze };
            let mut ranks = sabotaged(part, victim, sabotage)?;
            let others: Vec<usize> = (0..SIZE).filter(|&rank| rank != victim).collect();
            ranks.wait_for(&others)?;
            ranks.signal(victim, Signal::CONT)?;
            let ends = ranks.finish()?;
            judge::blamed(&ends, victim, STEP - 1..=STEP + 1)?;
            judge::all_but(&ends[victim..=victim], None, |end| judge::says(end, &["step"]))
        }));
    }
    all
}

fn while_joining() -> Scenario {
    Scenario::new("freeze: rank 1 before it joins", || {
        let mut ranks = Ranks::new();
        ranks.start_all(|rank| Part { freeze_first: rank == 1, ..Part::of("topk") })?;
        ranks.wait_for(&[0, 2, 3])?;
        std::thread::sleep(Duration::from_millis(100));
        ranks.signal(1, Signal::CONT)?;
        let ends = ranks.finish()?;
        judge::all_but(&ends, Some(1), |end| judge::says(end, &["could not join the group", "rank 1"]))?;
        judge::all_but(&ends[1..2], None, |end| judge::says(end, &["rank 0", "could not be reached"]))
    })
}
