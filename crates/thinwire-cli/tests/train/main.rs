//! `thinwire train`, `compare` and `report`, as a user has them.

mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod comparison;
#[cfg(target_os = "linux")]
mod full_disk;
mod mistakes;
mod reports;
mod run;

use std::path::Path;

use common::Folder;
use serde_json::Value;

/// A training that is over in a moment.
const TINY: &str = "--model mlp:hidden=16 -n 2 --epochs 1 --probes 0";

/// The figures in the `summary.json` of a run.
fn summary(folder: &Folder, run: &str) -> Value {
    serde_json::from_slice(&folder.read(&format!("{run}/summary.json"))).unwrap()
}

/// Trains with these words, and gives the checksum of the weights.
fn weights(folder: &Folder, words: &str) -> u64 {
    let outcome: Value = serde_json::from_str(&folder.text(&format!("train {words} --json -"))).unwrap();
    outcome["end"]["weights"].as_u64().unwrap()
}

/// Names of what is in a folder.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
