//! Everything that can go wrong in a training.

use std::path::Path;

/// The result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the values that disagreed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model, data set, optimiser or schedule that does not exist.
    #[error("there is no {what} {name:?}; there are: {known}")]
    Unknown {
        /// What was asked for: "model", say.
        what: &'static str,
        /// What was given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A setting that can't be.
    #[error("{name} {found}: {expected}")]
    BadSetting {
        /// Its name, as the user gives it.
        name: String,
        /// What was given.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A data set that is not there.
    #[error("{data}: can't find {missing}\nget it with: {command}")]
    MissingData {
        /// The data set.
        data: String,
        /// The file or folder, and where it was looked for.
        missing: String,
        /// The command that gets it, and where to put it.
        command: String,
    },
    /// A file whose contents are not what they should be.
    #[error("{path}: {place}: {found}; expected {expected}")]
    BadFile {
        /// The file.
        path: String,
        /// The field, tensor or line.
        place: String,
        /// What was there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A file that can't be read or written.
    #[error("can't {action} {path}: {reason}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The loss is no longer a number.
    #[error(
        "the loss of worker {rank} is {loss} at step {step}: the training has diverged; try a smaller --lr or --clip"
    )]
    Diverged {
        /// The worker.
        rank: usize,
        /// The step.
        step: u64,
        /// The loss.
        loss: f64,
    },
    /// Workers that should hold the same weights do not.
    #[error(
        "worker {rank} and worker {other} hold different weights at the end: please report this as a bug"
    )]
    ReplicasDiffer {
        /// This worker.
        rank: usize,
        /// The other one.
        other: usize,
    },
    /// The training went to its end, but its last checkpoint is missing.
    #[error(
        "the training has ended, but the checkpoint of its last step, {step}, could not be written to {dir}: {reason}; \
         {newest}"
    )]
    NotSaved {
        /// The folder of the checkpoints.
        dir: String,
        /// The step.
        step: u64,
        /// Which worker could not write what, and why.
        reason: String,
        /// The newest checkpoint that is there, in words.
        newest: String,
    },
    /// Something in the engine or between the workers.
    #[error(transparent)]
    Engine(#[from] thinwire::Error),
}

/// A file whose contents are not what they should be.
pub(crate) fn bad(
    path: &Path,
    place: impl Into<String>,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::BadFile {
        path: path.display().to_string(),
        place: place.into(),
        found: found.into(),
        expected: expected.into(),
    }
}

impl Error {
    /// A file that can't be read or written.
    pub fn io(action: &'static str, path: &Path, error: &std::io::Error) -> Error {
        Error::Io { action, path: path.display().to_string(), reason: error.to_string() }
    }
}
