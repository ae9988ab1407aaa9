//! A run as it was recorded, sorted by what its events tell.

use std::path::{Path, PathBuf};

use thinwire::adapt::decision::Decision;

use crate::event::{self, Distribution, End, Evaluation, Event, FillIn, Reconstruction, Run, Step, Times};
use crate::{Error, Result};

/// The events of one run.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// The name of the folder it was read from.
    pub label: String,
    /// What was trained, and how.
    pub run: Run,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The measurements of the test set.
    pub evaluations: Vec<Evaluation>,
    /// The distributions of the gradient.
    pub distributions: Vec<Distribution>,
    /// How full a sparse ring without agreed coordinates would have become.
    pub fill_ins: Vec<FillIn>,
    /// How well each method would have reproduced the gradient.
    pub reconstructions: Vec<Reconstruction>,
    /// What an automatic method decided.
    pub decisions: Vec<Decision>,
    /// Steps and sentences.
    pub notes: Vec<(u64, String)>,
    /// What it came to; `None` for a run that was interrupted.
    pub end: Option<End>,
}

impl Recorded {
    /// Reads a run. `path` is its folder, which holds `metrics.jsonl`, or that file itself. A run that was
    /// interrupted is read as far as it came; lines that can't be read are left out, with a warning.
    pub fn read(path: &Path) -> Result<Recorded> {
        let (file, folder) = if path.is_dir() {
            (path.join("metrics.jsonl"), path.to_path_buf())
        } else {
            (path.to_path_buf(), path.parent().map(Path::to_path_buf).unwrap_or_default())
        };
        let record = event::read_record(&file)?;
        let damage = record.damage();
        // `.` has a name only once it is spelled out.
        let folder = folder.canonicalize().unwrap_or(folder);
        let label = folder.file_name().map(PathBuf::from).unwrap_or(folder);
        let recorded = Recorded::from_events(label.display().to_string(), record.events);
        let recorded = recorded.ok_or_else(|| Error::BadFile {
            path: file.display().to_string(),
            place: "the lines".into(),
            found: damage
                .as_ref()
                .map_or("no run has begun".into(), |damage| format!("no run has begun; {damage}")),
            expected: "the event \"run\" before all others".into(),
        })?;
        if let Some(damage) = damage {
            tracing::warn!("{}: {damage}; the rest is read", file.display());
        }
        Ok(recorded)
    }

    /// Sorts the events; `None` if no run begins in them. What comes before the first that does is counted to it: its own
    /// beginning was lost.
    pub fn from_events(label: String, events: Vec<Event>) -> Option<Recorded> {
        let mut recorded = Recorded { label, ..Recorded::default() };
        let mut begun = false;
        for event in events {
            match event {
                Event::Run(run) => {
                    recorded.resume(*run);
                    begun = true;
                }
                Event::Step(step) => recorded.steps.push(step),
                Event::Evaluation(evaluation) => recorded.evaluations.push(evaluation),
                Event::Distribution(distribution) => recorded.distributions.push(distribution),
                Event::FillIn(fill_in) => recorded.fill_ins.push(fill_in),
                Event::Reconstruction(reconstruction) => recorded.reconstructions.push(reconstruction),
                Event::Decision(decision) => recorded.decisions.push(*decision),
                Event::Note { step, text } => recorded.notes.push((step, text)),
                Event::End(end) => recorded.end = Some(*end),
            }
        }
        begun.then_some(recorded)
    }

    /// A run that was resumed in the same file: what had been done after the checkpoint was done again.
    fn resume(&mut self, run: Run) {
        let at = run.resumed_at;
        self.steps.retain(|step| step.step < at);
        self.evaluations.retain(|evaluation| evaluation.step <= at);
        self.distributions.retain(|distribution| distribution.step < at);
        self.fill_ins.retain(|fill_in| fill_in.step < at);
        self.reconstructions.retain(|reconstruction| reconstruction.step < at);
        self.decisions.retain(|decision| decision.step < at);
        self.end = None;
        self.run = run;
    }

    /// Whether it stopped before its end.
    pub fn interrupted(&self) -> bool {
        self.end.is_none()
    }

    /// How many steps were done.
    pub fn steps_done(&self) -> u64 {
        let last = self.steps.last().map_or(self.run.resumed_at, |step| step.step + 1);
        self.end.as_ref().map_or(last, |end| end.steps)
    }

    /// Accuracy or perplexity at the end, or at the last evaluation there was.
    pub fn value(&self) -> Option<f64> {
        let last = self.evaluations.last().map(|evaluation| evaluation.value);
        self.end.as_ref().map(|end| end.value).or(last)
    }

    /// Bytes a worker sent in all steps: the mean over the workers, or those of worker 0 while the run goes on.
    pub fn sent(&self) -> u64 {
        self.end.as_ref().map_or_else(|| self.steps.iter().map(|step| step.sent).sum(), |end| end.sent)
    }

    /// Bytes a dense ring would have sent.
    pub fn dense_bytes(&self) -> u64 {
        let counted = || self.steps.iter().map(|step| step.dense_bytes).sum();
        self.end.as_ref().map_or_else(counted, |end| end.dense_bytes)
    }

    /// Mean times of a step; `None` before the first.
    pub fn times(&self) -> Option<Times> {
        self.end.as_ref().map(|end| end.times).or_else(|| mean_times(&self.steps))
    }

    /// The part of the exchange that lay beside the backward pass, from 0 to 1.
    pub fn hidden(&self) -> Option<f64> {
        self.times().and_then(|times| times.hidden()).filter(|hidden| hidden.is_finite())
    }

    /// Seconds of training, without evaluations, probes and checkpoints.
    pub fn seconds(&self) -> f64 {
        let last = self.steps.last().map_or(0.0, |step| step.elapsed);
        self.end.as_ref().map_or(last, |end| end.seconds)
    }
}

fn mean_times(steps: &[Step]) -> Option<Times> {
    let mut sum = Times::default();
    steps.iter().for_each(|step| sum.add(&step.times));
    (!steps.is_empty()).then(|| sum.over(steps.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::event::EventWriter;

    fn write(path: &Path, events: &[Event]) {
        event::set_aside(path).unwrap();
        let mut writer = EventWriter::create(path).unwrap();
        events.iter().for_each(|event| writer.write(event).unwrap());
    }

    #[test]
    fn a_run_is_read_from_its_folder_or_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("first");
        std::fs::create_dir(&run).unwrap();
        let events = sample::events("topk", 1, 20);
        write(&run.join("metrics.jsonl"), &events);
        for path in [run.clone(), run.join("metrics.jsonl")] {
            let recorded = Recorded::read(&path).unwrap();
            assert_eq!((recorded.label.as_str(), recorded.steps.len()), ("first", 20));
            assert!(!recorded.interrupted() && recorded.value().is_some());
        }
    }

    #[test]
    fn an_interrupted_run_is_read_as_far_as_it_came() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics.jsonl");
        let mut events = sample::events("topk", 1, 20);
        events.pop();
        write(&file, &events);
        let whole = Recorded::read(&file).unwrap();
        assert!(whole.interrupted());
        assert!(whole.sent() > 0 && whole.times().unwrap().total > 0.0 && whole.hidden().is_some());
        // Cut in the middle of the last line, as a process that is killed leaves it.
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, &text[..text.len() - 10]).unwrap();
        assert!(Recorded::read(&file).unwrap().interrupted());
    }

    #[test]
    fn values_that_are_not_numbers_survive_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics.jsonl");
        let step = Step { loss: f64::NAN, gain: f64::INFINITY, ..Step::default() };
        write(&file, &[Event::Run(Box::default()), Event::Step(step)]);
        assert!(Recorded::read(&file).unwrap().steps[0].loss.is_nan());
    }

    #[test]
    fn missing_and_damaged_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Recorded::read(folder.path()).unwrap_err().to_string();
        assert!(missing.contains("metrics.jsonl"), "{missing}");
        let file = folder.path().join("metrics.jsonl");
        std::fs::write(&file, "{\"event\":\"run\"}\n{}\n").unwrap();
        let damaged = Recorded::read(&file).unwrap_err().to_string();
        assert!(damaged.contains("line 1"), "{damaged}");
        write(&file, &[Event::Step(Step::default())]);
        let headless = Recorded::read(&file).unwrap_err().to_string();
        assert!(headless.contains("no run has begun"), "{headless}");
        std::fs::write(&file, "").unwrap();
        assert!(Recorded::read(&file).is_err());
    }

    #[test]
    fn a_record_goes_on_after_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics.jsonl");
        let events = sample::events("topk", 1, 20);
        write(&file, &events[..10]);
        let whole = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, whole.clone() + "{\"event\":\"st").unwrap();
        let mut writer = EventWriter::append(&file).unwrap();
        writer.write(&events[10]).unwrap();
        assert_eq!(event::read(&file).unwrap(), &events[..11]);
        assert!(std::fs::read_to_string(&file).unwrap().starts_with(&whole));
        assert!(EventWriter::append(&folder.path().join("none")).is_err());
    }

    #[test]
    fn steps_done_again_after_a_resume_count_once() {
        let mut events = sample::events("topk", 1, 20);
        let again = Run { resumed_at: 10, ..Run::default() };
        events.push(Event::Run(Box::new(again)));
        events.extend((10..15).map(|step| Event::Step(Step { step, ..Step::default() })));
        let recorded = Recorded::from_events("r".into(), events).unwrap();
        assert_eq!(
            recorded.steps.iter().map(|step| step.step).collect::<Vec<_>>(),
            (0..15).collect::<Vec<_>>()
        );
        assert!(recorded.interrupted());
        assert_eq!(recorded.steps_done(), 15);
    }
}
