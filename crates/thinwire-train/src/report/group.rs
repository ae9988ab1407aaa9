//! Runs that differ in their seed alone belong together: one line, one row.

use thinwire::method::split_spec;

use super::Recorded;
use super::number::{counted, digits};
use super::svg::Look;
use crate::event::{Measure, Run};

/// Runs of one kind.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// The name in legends and tables.
    pub(crate) label: String,
    /// The runs; at least one.
    pub(crate) runs: Vec<&'a Recorded>,
    /// How its lines look.
    pub(crate) look: Look,
}

impl Group<'_> {
    /// The settings, which all runs share except for their seed.
    pub(crate) fn settings(&self) -> &Run {
        &self.runs[0].run
    }

    /// How many different seeds there are.
    pub(crate) fn seeds(&self) -> usize {
        let mut seeds: Vec<u64> = self.runs.iter().map(|run| run.run.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds.len()
    }

    /// Whether it is training without compression.
    pub(crate) fn is_dense(&self) -> bool {
        is_dense(self.settings())
    }

    /// What its test values are.
    pub(crate) fn measure(&self) -> Measure {
        self.settings().measure
    }
}

/// Whether a run sends everything.
pub(crate) fn is_dense(run: &Run) -> bool {
    split_spec(&run.method).0 == "dense"
}

/// The runs, sorted into groups in the order in which they were given.
pub(crate) fn groups(runs: &[Recorded]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut coloured = 0;
    for run in runs {
        let kind = without_seed(&run.run);
        match groups.iter_mut().find(|group| without_seed(group.settings()) == kind) {
            Some(group) => group.runs.push(run),
            None => {
                let first_dense = is_dense(&run.run) && !groups.iter().any(Group::is_dense);
                // Dense training is what the others are measured against: it has the colour of the text.
                let look = if first_dense { Look::dense() } else { Look::numbered(coloured) };
                coloured += usize::from(!first_dense);
                groups.push(Group { label: run.run.name.clone(), runs: vec![run], look });
            }
        }
    }
    tell_apart(&mut groups);
    groups
}

/// The settings two runs must share to be seeds of one another.
fn without_seed(run: &Run) -> Run {
    Run { seed: 0, resumed_at: 0, version: String::new(), ..run.clone() }
}

/// Settings that may tell two groups of one name apart.
pub(crate) fn distinctions(run: &Run) -> [String; 10] {
    [
        run.method.clone(),
        run.model.clone(),
        run.data.clone(),
        run.optimizer.clone(),
        run.schedule.clone(),
        format!("lr {}", digits(run.lr)),
        counted(&run.workers.to_string(), "worker"),
        format!("batch {}", run.batch),
        counted(&digits(run.epochs), "epoch"),
        format!("{} {}", run.group, run.link.as_deref().unwrap_or("unshaped")),
    ]
}

/// Adds to labels that occur more than once whatever differs between their groups.
fn tell_apart(groups: &mut [Group<'_>]) {
    let labels: Vec<String> = groups.iter().map(|group| group.label.clone()).collect();
    let details: Vec<_> = groups.iter().map(|group| distinctions(group.settings())).collect();
    for (place, group) in groups.iter_mut().enumerate() {
        let twins: Vec<usize> = (0..labels.len()).filter(|&other| labels[other] == labels[place]).collect();
        if twins.len() < 2 && !group.label.is_empty() {
            continue;
        }
        let differs =
            |field: &usize| twins.iter().any(|&twin| details[twin][*field] != details[place][*field]);
        let mut words: Vec<&str> =
            (0..10).filter(differs).map(|field| details[place][field].as_str()).collect();
        if words.is_empty() {
            words.push(&group.runs[0].label);
        }
        group.label = format!("{} ({})", group.label, words.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn seeds_are_grouped_and_dense_has_the_colour_of_the_text() {
        let runs = [sample::run("topk", 1, 5), sample::run("dense", 1, 5), sample::run("topk", 2, 5)];
        let groups = groups(&runs);
        assert_eq!(groups.iter().map(|group| group.runs.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(groups[0].seeds(), 2);
        assert_eq!((groups[0].look.colour, groups[1].look.colour), (1, 0));
    }

    #[test]
    fn equal_names_are_told_apart_by_what_differs() {
        let mut runs = [sample::run("topk", 1, 5), sample::run("topk", 1, 5)];
        runs[1].run.workers = 16;
        let groups = groups(&runs);
        let labels: Vec<&str> = groups.iter().map(|group| group.label.as_str()).collect();
        assert_eq!(labels, ["topk (4 workers)", "topk (16 workers)"]);
    }
}
