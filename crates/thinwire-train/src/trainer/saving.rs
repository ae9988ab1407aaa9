//! Writing the checkpoints of a run: all workers together, on disks that may be full.
//!
//! Invariant: every worker takes part in every collective of a checkpoint, whatever its own disk does, and all learn
//! the same outcome. A checkpoint that can't be written costs a note; the run goes on and tries again with the next. Only
//! when the last one of a run is missing does the run end with an error, after everything else has been told.

use thinwire::group::{Algorithm, Gathered, Group, peer_text};

use super::Settings;
use super::resume::read_statistics;
use super::sum_over_workers;
use super::tally::Tally;
use super::worker::Worker;
use crate::checkpoint::{KEEP, Part, Position, Shared, Writer};
use crate::{Error, Result};

/// Longest message of a worker about its files.
const LONGEST_PART: usize = 65_536;
/// Longest reason that is told to others, in characters.
const LONGEST_REASON: usize = 1_000;

/// The checkpoints of one worker.
pub(super) struct Saving {
    writer: Writer,
    /// The step of the last checkpoint and what went wrong with it, if anything did.
    failed: Option<(u64, String)>,
}

impl Saving {
    /// Before any worker writes. A folder that can't be written is told now and not after the first part of the
    /// training. `None` if nothing is to be saved.
    pub fn start(settings: &Settings, rank: usize) -> Result<Option<Saving>> {
        let Some(dir) = &settings.save else { return Ok(None) };
        let writer = Writer::new(dir, KEEP)?;
        writer.start(rank)?;
        Ok(Some(Saving { writer, failed: None }))
    }

    /// Writes the checkpoint for `step`, or finds that it can't be; gives what there is to be told about it.
    pub fn save(&mut self, worker: &mut Worker<'_>, step: u64, tally: &Tally) -> Result<Option<String>> {
        let failure = self.write(worker, step, tally)?;
        let settled = match &failure {
            None => self.writer.publish(step),
            Some(_) => self.writer.discard(step),
        };
        if let Err(error) = settled {
            tracing::warn!("{error}");
        }
        let dir = self.writer.dir().display();
        let told = match (&self.failed, &failure) {
            (None, Some(reason)) => Some(format!(
                "the checkpoint of step {step} could not be written to {dir}: {reason}. The training goes on, and tries \
                 again when the next is due"
            )),
            (Some(_), None) => Some(format!("checkpoints are written to {dir} again")),
            _ => None,
        };
        self.failed = failure.map(|reason| (step, reason));
        Ok(told)
    }

    /// Gives the step's failure to all workers; `None` if the checkpoint is there.
    fn write(&self, worker: &mut Worker<'_>, step: u64, tally: &Tally) -> Result<Option<String>> {
        let sent = sum_over_workers(worker, tally.sent())?;
        let state = worker.synchronizer.save()?;
        let written = self.writer.worker(step, worker.rank, &state, &read_statistics(worker));
        let message = Part::to_message(&of_the_disk(written)?);
        let mut gathered = Gathered::default();
        worker.group.all_gather(&message, LONGEST_PART, Algorithm::Tree, &mut gathered)?;
        let mut parts = Vec::new();
        for (rank, message) in gathered.iter().enumerate() {
            match Part::from_message(message)? {
                Ok(part) => parts.push(part),
                Err(reason) => return Ok(Some(of_worker(rank, reason.as_bytes()))),
            }
        }
        let mut failure = Vec::new();
        if worker.rank == 0 {
            let shared = Shared {
                settings: &worker.settings.identity(worker.workers),
                position: Position { step, tally: tally.with_others(sent) },
                buckets: worker.buckets.layers(),
                weights: &worker.weights,
                optimizer: worker.optimizer.as_ref(),
            };
            if let Err(reason) = of_the_disk(self.writer.finish(&shared, &parts))? {
                failure = reason.into_bytes();
            }
        }
        worker.group.broadcast(0, &mut failure, LONGEST_PART, Algorithm::Tree)?;
        Ok((!failure.is_empty()).then(|| of_worker(0, &failure)))
    }

    /// The run is over: an error if its last checkpoint is not there.
    pub fn end(self) -> Result<()> {
        let Some((step, reason)) = self.failed else { return Ok(()) };
        let newest = match self.writer.newest() {
            Some(folder) => format!("the newest one is {}", folder.display()),
            None => "there is no other one".into(),
        };
        Err(Error::NotSaved { dir: self.writer.dir().display().to_string(), step, reason, newest })
    }
}

/// What the disk is to blame for is told to the others in words; every other error ends the run.
fn of_the_disk<T>(result: Result<T>) -> Result<std::result::Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error @ (Error::Io { .. } | Error::Engine(thinwire::Error::Io { .. }))) => {
            Ok(Err(error.to_string().chars().take(LONGEST_REASON).collect()))
        }
        Err(error) => Err(error),
    }
}

/// The words of another worker, fit to be shown.
fn of_worker(rank: usize, reason: &[u8]) -> String {
    let reason: String = peer_text(reason).chars().take(LONGEST_REASON).collect();
    format!("worker {rank}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_others_reach_no_terminal_as_they_are() {
        assert_eq!(of_worker(2, b"no\nroom\x1b[2J\xe2\x80\xae"), "worker 2: no room\u{fffd}[2J\u{fffd}");
        assert_eq!(of_worker(0, &[b'a'; 9_999]).len(), "worker 0: ".len() + LONGEST_REASON);
    }
}
