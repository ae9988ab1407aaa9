//! Where the events of a run go: worker 0 shows and keeps them all, the others log what matters.
//!
//! A disk that is full when the run has begun costs events and not the training: a warning tells what is not recorded,
//! every further event is tried, and what is missing is noted in the file once there is room again.

use std::path::{Path, PathBuf};

use thinwire_train::event::{self, Event, EventWriter};
use thinwire_train::report::Recorded;
use thinwire_train::trainer::Settings;
use thinwire_train::{Error, Result};

use super::progress::Progress;
use crate::logging::Log;
use crate::{human, output};

pub enum Recorder {
    Speaking(Metrics, Progress),
    Logging(Log),
}

impl Recorder {
    /// The recorder of one worker, in the folder of the run.
    pub fn new(folder: &Path, rank: usize, settings: &Settings, workers: usize) -> Result<Recorder> {
        if rank == 0 {
            return Ok(Recorder::Speaking(Metrics::open(folder, settings, workers)?, Progress::new()));
        }
        Ok(Recorder::Logging(Log::open(&folder.join(format!("worker-{rank}.log")), rank, settings)?))
    }

    /// Records an event. Only that a run can't be recorded from its very beginning is an error.
    pub fn record(&mut self, event: &Event) -> Result<()> {
        match self {
            Recorder::Speaking(metrics, progress) => {
                progress.show(event);
                if let Some(warning) = metrics.write(event)? {
                    progress.note(&warning);
                }
            }
            Recorder::Logging(log) => log.write(event),
        }
        Ok(())
    }

    /// The training is over, or has failed.
    pub fn end(&mut self, error: Option<&Error>) {
        match (self, error) {
            (Recorder::Speaking(_, progress), _) => progress.end(),
            (Recorder::Logging(log), Some(error)) => log.line(&format!("error: {error}")),
            (Recorder::Logging(_), None) => {}
        }
    }
}

/// `metrics.jsonl`.
pub struct Metrics {
    path: PathBuf,
    writer: EventWriter,
    begun: bool,
    /// The last step there was an event of.
    step: u64,
    /// Events that could not be written since the last one that could.
    missing: usize,
}

impl Metrics {
    /// The file of the run that is resumed, if it was recorded in this folder; otherwise a new one. What another run has
    /// recorded there is given another name.
    fn open(folder: &Path, settings: &Settings, workers: usize) -> Result<Metrics> {
        let path = folder.join("metrics.jsonl");
        let writer = if settings.resume.is_some() && is_same_run(&path, settings, workers) {
            EventWriter::append(&path)?
        } else {
            if let Some(aside) = event::set_aside(&path)? {
                output::note(&format!("an earlier record is kept as {}", aside.display()));
            }
            EventWriter::create(&path)?
        };
        Ok(Metrics { path, writer, begun: false, step: 0, missing: 0 })
    }

    /// Writes an event; gives what the user should know. An error only for the first event: without it the record is of
    /// no use, and nothing is lost yet.
    fn write(&mut self, event: &Event) -> Result<Option<String>> {
        if let Event::Step(step) = event {
            self.step = step.step;
        }
        if !self.begun {
            self.begun = true;
            return self.writer.write(event).map(|()| None);
        }
        let before = self.missing;
        if before > 0 {
            let events = human::plural(before, "event");
            let text = format!("before this, {events} could not be recorded");
            if self.writer.write(&Event::Note { step: self.step, text }).is_err() {
                self.missing += 1;
                return Ok(None);
            }
        }
        let (missing, told) = match (self.writer.write(event), before) {
            (Ok(()), 0) => (0, None),
            (Ok(()), before) => {
                let events = human::plural(before, "event");
                (
                    0,
                    Some(format!(
                        "events are recorded in {} again; {events} are missing",
                        self.path.display()
                    )),
                )
            }
            (Err(error), before) => {
                let told = format!(
                    "{error}. The training goes on; what happens is not recorded until there is room"
                );
                (1, (before == 0).then_some(told))
            }
        };
        self.missing = missing;
        Ok(told)
    }
}

/// Whether a record is of the run that is resumed. How long it is to be, and how it is measured, may have changed.
fn is_same_run(path: &Path, settings: &Settings, workers: usize) -> bool {
    let Ok(recorded) = Recorded::read(path) else { return false };
    let mut identity = settings.identity(workers);
    identity.remove("seed");
    recorded.run.seed == settings.seed
        && identity.iter().all(|(name, value)| recorded.run.settings.get(name) == Some(value))
}
