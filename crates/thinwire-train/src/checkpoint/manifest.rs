//! `checkpoint.json`: what the other files are, and where the run stands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use thinwire::files;

use super::{Content, MANIFEST, bad, elements};
use crate::trainer::Tally;
use crate::{Error, Result};

const FORMAT: &str = "thinwire-checkpoint-1";

/// Where a run stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The step that comes next; as many steps are done.
    pub step: u64,
    /// What the steps so far add up to.
    pub tally: Tally,
}

/// Name and shape of a weight tensor.
pub type Layer = (String, Vec<usize>);

/// A file of a checkpoint as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Its name within the folder.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
    /// Its CRC-32.
    pub crc32: u32,
}

/// The optimiser's part of the shared file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OptimizerRecord {
    /// Steps done.
    pub steps: u64,
    /// What it remembers, by name.
    pub state: Vec<String>,
}

/// All of `checkpoint.json` but its format and checksum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Version of the program.
    pub version: String,
    pub workers: usize,
    /// What must agree for a run to go on with the same bits.
    pub settings: BTreeMap<String, String>,
    pub position: Position,
    pub optimizer: OptimizerRecord,
    /// The layers of each bucket.
    pub buckets: Vec<Vec<Layer>>,
    pub files: Vec<FileRecord>,
}

/// The file: the contents with what protects them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<Contents> {
    format: String,
    /// Of the contents, written without spaces.
    crc32: u32,
    checkpoint: Contents,
}

impl Manifest {
    /// The text of the file.
    pub fn to_text(&self) -> std::result::Result<String, serde_json::Error> {
        let crc32 = crc32fast::hash(serde_json::to_string(self)?.as_bytes());
        let envelope = Envelope { format: FORMAT.into(), crc32, checkpoint: self };
        Ok(serde_json::to_string_pretty(&envelope)? + "\n")
    }

    /// Reads the file in `folder` and checks everything that can be told without the others.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = &folder.join(MANIFEST);
        let bytes = files::read_trusted(path).map_err(|error| Error::io("read", path, &error))?;
        Manifest::from_text(path, &bytes)
    }

    /// Reads the text of the file `path`.
    pub fn from_text(path: &Path, bytes: &[u8]) -> Result<Manifest> {
        let value: serde_json::Value = serde_json::from_slice(bytes)
            .map_err(|error| bad(path, "the text", error.to_string(), "JSON"))?;
        // Before all else: what another version wrote may look quite different.
        let format = value.get("format").and_then(|format| format.as_str()).unwrap_or("none");
        if format != FORMAT {
            return Err(bad(path, "format", format!("{format:?}"), format!("{FORMAT:?}")));
        }
        let envelope: Envelope<Manifest> = serde_json::from_value(value)
            .map_err(|error| bad(path, "the fields", error.to_string(), "those of a checkpoint"))?;
        let manifest = envelope.checkpoint;
        let text = serde_json::to_string(&manifest)
            .map_err(|error| bad(path, "the fields", error.to_string(), "those of a checkpoint"))?;
        let computed = crc32fast::hash(text.as_bytes());
        if computed != envelope.crc32 {
            let found = format!("{computed:08x} of what is there");
            return Err(bad(path, "crc32", found, format!("{:08x} as noted in it", envelope.crc32)));
        }
        manifest.check(path)?;
        Ok(manifest)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let mut names = BTreeSet::new();
        for (name, shape) in self.buckets.iter().flatten() {
            if !names.insert(name) {
                return Err(bad(path, "buckets", format!("layer {name:?} twice"), "every layer once"));
            }
            if elements(shape).is_none() {
                return Err(bad(
                    path,
                    "buckets",
                    format!("layer {name:?} of {shape:?}"),
                    "a shape that fits memory",
                ));
            }
        }
        let mut found = BTreeSet::new();
        for file in &self.files {
            let of_this_run = |content: &Content| match content {
                Content::Shared => true,
                Content::Worker(rank) | Content::Statistics(rank) => *rank < self.workers,
            };
            match Content::of(&file.name).filter(of_this_run) {
                Some(content) if found.insert(content) => {}
                _ => {
                    let expected = format!(
                        "shared.safetensors, worker-R.safetensors or statistics-R.safetensors, once each, with R below {}",
                        self.workers
                    );
                    return Err(bad(path, "files", format!("{:?}", file.name), expected));
                }
            }
        }
        let needed = std::iter::once(Content::Shared).chain((0..self.workers).map(Content::Worker));
        for content in needed {
            if !found.contains(&content) {
                let expected = format!("{} among them", content.file_name());
                return Err(bad(path, "files", format!("{} files", self.files.len()), expected));
            }
        }
        Ok(())
    }

    /// The record of a file, if it is part of the checkpoint.
    pub fn file(&self, content: Content) -> Option<&FileRecord> {
        let name = content.file_name();
        self.files.iter().find(|file| file.name == name)
    }
}
