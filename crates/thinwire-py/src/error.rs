//! The engine's errors as exceptions of `thinwire.errors`.

use pyo3::prelude::*;
use thinwire::Error;

/// The class for an error, by what a caller can do about it.
fn class(error: &Error) -> &'static str {
    match error {
        Error::UnknownMethod { .. }
        | Error::UnknownParameter { .. }
        | Error::BadParameter { .. }
        | Error::BadSetting { .. }
        | Error::DuplicateLayer { .. }
        | Error::BucketTooLong { .. }
        | Error::LengthMismatch { .. }
        | Error::WeightsMissing { .. } => "BadArgument",
        Error::Skipped { .. } | Error::NonFinite { .. } => "StepSkipped",
        Error::Disagreement { .. } | Error::ReplicasDiffer { .. } => "RanksDisagree",
        Error::BadState { .. } => "BadState",
        Error::PeerLost { .. }
        | Error::PeerSilent { .. }
        | Error::PeerGaveUp { .. }
        | Error::GroupLost { .. }
        | Error::Rendezvous { .. } => "GroupLost",
        Error::Truncated { .. }
        | Error::BadField { .. }
        | Error::Checksum { .. }
        | Error::OutOfStep { .. }
        | Error::BadValues { .. }
        | Error::BadMessage { .. } => "BadFrame",
        _ => "Error",
    }
}

/// The exception for an error of the engine.
pub fn exception(error: Error) -> PyErr {
    make(class(&error), error.to_string())
}

/// The exception for bytes that are no frame, or none for this place, whatever exactly is wrong with them.
pub fn bad_frame(number: usize, error: Error) -> PyErr {
    make("BadFrame", format!("frame {number}: {error}"))
}

fn make(class: &str, message: String) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("thinwire.errors")
            .and_then(|module| module.getattr(class))
            .and_then(|class| class.call1((message,)));
        made.map_or_else(|failed| failed, PyErr::from_value)
    })
}

/// The same, for results.
pub trait OrException<T> {
    /// The value, or the exception.
    fn or_exception(self) -> PyResult<T>;
}

impl<T> OrException<T> for thinwire::Result<T> {
    fn or_exception(self) -> PyResult<T> {
        self.map_err(exception)
    }
}
