//! Checkpoints: everything a run needs to go on with the same bits, one folder for each.
//!
//! ```text
//! DIR/latest                             the name of the newest checkpoint
//! DIR/step-000123/worker-0.safetensors   what worker 0 has not sent, its momentum, what its selectors remember
//! DIR/step-000123/statistics-0.safetensors   worker 0's running statistics, if the model has any
//! DIR/step-000123/worker-1.safetensors
//! DIR/step-000123/shared.safetensors     weights and the optimiser's state, the same on all workers
//! DIR/step-000123/checkpoint.json        settings, position, layers, and length and CRC-32 of every file
//! ```
//!
//! All files are written into `step-000123.partial`, each brought to the disk, `checkpoint.json` last; then the folder is
//! renamed, and `latest` replaced. A folder without `checkpoint.json` is not a checkpoint. So a run that is stopped at
//! any moment, and a disk that is full at any write, leaves the checkpoint before it, and `latest` with it. What is left
//! of a `.partial` folder is removed when a write fails, and when a run starts to save into `DIR`; one that has its
//! `checkpoint.json` is whole, and gets its name then. A checkpoint of the same step that is of a run with other settings
//! is kept, as `step-000123.replaced`.
//!
//! All workers write into the same `DIR`, and all files are read back from it. Over several machines it must be a
//! shared folder; or else the files of all machines must be copied into one folder before a run is resumed, and what
//! is no longer needed deleted by hand there: only the machine of worker 0 does so itself.

mod manifest;
mod read;
mod tensors;
mod write;

use std::path::{Path, PathBuf};

use crate::error::bad;
use crate::{Error, Result};

pub use manifest::{FileRecord, Layer, Position};
pub use read::{Checkpoint, read};
pub use write::{KEEP, Part, Shared, Writer, Written};

/// A running statistic of a model: not trained but measured, by each worker on its own samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistic {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// As many values as the shape has.
    pub values: Vec<f32>,
}

/// The name of the folder for a step.
fn folder_name(step: u64) -> String {
    format!("step-{step:06}")
}

/// The step of a folder's name; `None` if it is not one of ours.
fn step_of(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.parse().ok()?;
    (folder_name(step) == name).then_some(step)
}

/// What a file of a checkpoint holds, told by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Shared,
    Worker(usize),
    Statistics(usize),
}

impl Content {
    fn file_name(self) -> String {
        match self {
            Content::Shared => "shared.safetensors".into(),
            Content::Worker(rank) => format!("worker-{rank}.safetensors"),
            Content::Statistics(rank) => format!("statistics-{rank}.safetensors"),
        }
    }

    fn of(name: &str) -> Option<Content> {
        let stem = name.strip_suffix(".safetensors")?;
        let content = match stem.split_once('-') {
            None => Content::Shared,
            Some(("worker", rank)) => Content::Worker(rank.parse().ok()?),
            Some(("statistics", rank)) => Content::Statistics(rank.parse().ok()?),
            Some(_) => return None,
        };
        (content.file_name() == name).then_some(content)
    }
}

const MANIFEST: &str = "checkpoint.json";
const LATEST: &str = "latest";
/// What the name of a folder ends with that is being written.
const PARTIAL: &str = ".partial";

/// All folders of checkpoints in `dir` that are complete, with their steps, oldest first.
fn complete(dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| Error::io("read", dir, &error))? {
        let entry = entry.map_err(|error| Error::io("read", dir, &error))?;
        let step = entry.file_name().to_str().and_then(step_of);
        if let Some(step) = step.filter(|_| entry.path().join(MANIFEST).is_file()) {
            found.push((step, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// The newest checkpoint in `dir` that is whole and lacks only its name, because a run was stopped just then.
fn unnamed(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    let whole = entries.filter_map(|entry| {
        let step = entry.file_name().to_str()?.strip_suffix(PARTIAL).and_then(step_of)?;
        entry.path().join(MANIFEST).is_file().then(|| (step, entry.path()))
    });
    whole.max().map(|(_, folder)| folder)
}

/// The number of elements of a shape.
fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, &side| product.checked_mul(side))
}

#[cfg(test)]
mod tests;
