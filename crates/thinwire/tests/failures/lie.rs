//! A rank that speaks the protocol but sends what it should not: the others refuse it, and take no memory for it.

use super::kill::{LEADER, STEP, methods, sabotaged};
use super::rank::Part;
use super::saboteur::{Deed, Lie, Moment, Sabotage};
use super::start::PATIENT;
use super::{Scenario, judge};

const UNUSABLE: &str = "sent a message that can't be used";

fn lies(method: &str, liar: usize, call: usize, lie: Lie, words: &'static str) -> Scenario {
    let name = format!("lie: {method}, rank {liar} sends {lie:?} in collective {call}");
    let part = Part { elements: 20_000, ..Part::of(method) };
    Scenario::new(name, move || {
        let sabotage = Sabotage { step: Some(STEP), call, moment: Moment::Before, deed: Deed::Send(lie) };
        let ends = sabotaged(part.clone(), liar, sabotage, PATIENT)?.finish()?;
        let (step, rank) = (format!("step {STEP}: "), format!("rank {liar} {words}"));
        // The liar may be the first to notice; its account then comes from itself or by another rank.
        let own = format!("{step}rank {liar} {UNUSABLE}");
        let direct = format!("rank {liar} gave up: {own}");
        let passed_on = format!("gave up because of rank {liar}: {own}");
        judge::all_but(&ends, Some(liar), |end| {
            judge::says(end, &[&step, &rank])
                .or_else(|reason| judge::says(end, &[&direct]).map_err(|_| reason))
                .or_else(|reason| judge::says(end, &[&passed_on]).map_err(|_| reason))
        })
    })
}

pub fn scenarios() -> Vec<Scenario> {
    let methods: Vec<String> = methods().into_iter().map(|(method, _)| method).collect();
    let [_, _, gathered, star, var, iwp] = &methods[..] else { return vec![] };
    let mut all = Vec::new();
    let lie_of_frames = [Lie::Noise, Lie::Half, Lie::ManyCoordinates, Lie::ManySections];
    for lie in lie_of_frames {
        all.push(lies(gathered, 2, 0, lie, UNUSABLE));
        all.push(lies(star, LEADER, 0, lie, UNUSABLE));
    }
    all.push(lies(gathered, 2, 0, Lie::WithoutValues, UNUSABLE));
    all.push(lies(gathered, 2, 0, Lie::TooLong, "disagrees: the number of bytes"));
    all.push(lies(star, LEADER, 0, Lie::TooLong, "disagrees: the number of bytes"));
    // Ranks that can't take part say nothing, and later why.
    all.push(lies(gathered, 2, 0, Lie::Nothing, UNUSABLE));
    all.push(lies(star, LEADER, 0, Lie::Nothing, UNUSABLE));
    all.push(lies(var, 2, 0, Lie::Nothing, UNUSABLE));
    all.push(lies(var, 2, 0, Lie::Half, UNUSABLE));
    all.push(lies(var, LEADER, 1, Lie::Noise, UNUSABLE));
    // The leaders are ranks 1 and 3.
    all.push(lies(iwp, LEADER, 0, Lie::Noise, UNUSABLE));
    all.push(lies(iwp, 3, 1, Lie::Noise, UNUSABLE));
    all.push(lies(iwp, 3, 1, Lie::Nothing, UNUSABLE));
    all
}
