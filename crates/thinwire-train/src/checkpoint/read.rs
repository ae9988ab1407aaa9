//! Reading checkpoints. Whatever is in the files, nothing here panics, and an error names the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thinwire::files;
use thinwire::memory::State;

use super::manifest::{FileRecord, Layer, Manifest, Position};
use super::tensors::{self, Owned};
use super::{Content, LATEST, MANIFEST, Statistic, bad, complete, elements, step_of, unnamed};
use crate::optimizer::Optimizer;
use crate::{Error, Result};

pub(super) const SHARED_FORMAT: &str = "thinwire-shared-1";
pub(super) const STATISTICS_FORMAT: &str = "thinwire-statistics-1";

/// A checkpoint that was read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    folder: PathBuf,
    manifest: Manifest,
    /// The weights of each bucket.
    pub weights: Vec<Vec<f32>>,
    /// What the optimiser remembers: by name, then by bucket.
    pub optimizer: Vec<(String, Vec<Vec<f32>>)>,
}

/// Reads the newest checkpoint in `dir`, or the one that `dir` is.
///
/// Lengths and CRCs of all files are checked, and all of what is shared; each worker's state is checked when it is
/// read. Should `latest` name a folder that is being written anew, the newest complete one before it is taken.
///
/// # Errors
/// [`Error::BadFile`] with the file, the field, what was found and what was expected; [`Error::Io`] for a file that
/// can't be read.
pub fn read(dir: &Path) -> Result<Checkpoint> {
    let folder = find(dir)?;
    let manifest = Manifest::read(&folder)?;
    let named = folder.file_name().and_then(|name| step_of(name.to_str()?));
    if let Some(step) = named.filter(|&step| step != manifest.position.step) {
        let found = format!("step {}", manifest.position.step);
        return Err(bad(
            &folder.join(MANIFEST),
            "position",
            found,
            format!("step {step}, as the folder's name"),
        ));
    }
    let mut shared = Vec::new();
    for file in &manifest.files {
        let bytes = tensors::read_recorded(&folder, file)?;
        if file.name == Content::Shared.file_name() {
            shared = bytes;
        }
    }
    let path = &folder.join(Content::Shared.file_name());
    let (_, mut all) = tensors::parse(path, SHARED_FORMAT, &shared)?;
    let weights = take_layers(path, "weight", &manifest.buckets, &mut all)?;
    let mut optimizer = Vec::new();
    for name in &manifest.optimizer.state {
        let runs = take_layers(path, &format!("optimizer/{name}"), &manifest.buckets, &mut all)?;
        optimizer.push((name.clone(), runs));
    }
    if let Some(name) = all.keys().next() {
        let expected = format!("only weights and the optimiser's {:?}", manifest.optimizer.state);
        return Err(bad(path, name.as_str(), "a tensor", expected));
    }
    Ok(Checkpoint { folder, manifest, weights, optimizer })
}

/// The folder of the checkpoint that `dir` is or names.
pub(super) fn find(dir: &Path) -> Result<PathBuf> {
    if dir.join(MANIFEST).is_file() {
        return Ok(dir.to_owned());
    }
    let path = &dir.join(LATEST);
    if !path.is_file() {
        // Stopped between its first checkpoint and the name of it.
        if let Some((_, newest)) = complete(dir).ok().and_then(|mut all| all.pop()) {
            tracing::warn!("there is no {}; going on from {}", path.display(), newest.display());
            return Ok(newest);
        }
        if let Some(whole) = unnamed(dir) {
            tracing::warn!("there is no {}; going on from {}", path.display(), whole.display());
            return Ok(whole);
        }
        let expected = format!("{MANIFEST} or {LATEST}: a checkpoint, or a folder of checkpoints");
        return Err(bad(dir, "the folder", "neither", expected));
    }
    let text = files::read_trusted(path).map_err(|error| Error::io("read", path, &error))?;
    let text = String::from_utf8_lossy(&text);
    let name = text.trim_end();
    let Some(step) = step_of(name) else {
        let shown: String = name.chars().take(40).collect();
        return Err(bad(path, "the name", format!("{shown:?}"), "a name such as step-000123"));
    };
    let folder = dir.join(name);
    if folder.join(MANIFEST).is_file() {
        return Ok(folder);
    }
    let older = complete(dir)?.into_iter().rev().find(|(other, _)| *other < step);
    let Some((_, older)) = older else {
        return Err(bad(
            &folder,
            MANIFEST,
            "no such file",
            "a complete checkpoint, and there is no older one",
        ));
    };
    tracing::warn!("{} is not complete; going on from {} instead", folder.display(), older.display());
    Ok(older)
}

/// Puts tensors called `prefix/LAYER` together to flat runs.
fn take_layers(
    path: &Path,
    prefix: &str,
    buckets: &[Vec<Layer>],
    all: &mut BTreeMap<String, Owned>,
) -> Result<Vec<Vec<f32>>> {
    let mut runs = Vec::new();
    for layers in buckets {
        let mut run = Vec::new();
        for (layer, shape) in layers {
            let name = format!("{prefix}/{layer}");
            let Some(tensor) = all.remove(&name) else {
                return Err(bad(path, name, "no such tensor", format!("one of {shape:?}")));
            };
            if tensor.shape != *shape {
                return Err(bad(path, name, format!("{:?}", tensor.shape), format!("{shape:?}")));
            }
            run.extend_from_slice(&tensor.values);
        }
        runs.push(run);
    }
    Ok(runs)
}

impl Checkpoint {
    /// The folder it was read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version of the program that wrote it.
    pub fn version(&self) -> &str {
        &self.manifest.version
    }

    /// How many workers there were.
    pub fn workers(&self) -> usize {
        self.manifest.workers
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.manifest.settings
    }

    /// Where the run stands.
    pub fn position(&self) -> &Position {
        &self.manifest.position
    }

    /// Name and shape of the layers of each bucket.
    pub fn buckets(&self) -> &[Vec<Layer>] {
        &self.manifest.buckets
    }

    /// Whether a run with these settings goes on with the same bits.
    ///
    /// # Errors
    /// [`Error::BadSetting`] with the first setting that differs and both values.
    pub fn check_settings(&self, settings: &BTreeMap<String, String>) -> Result<()> {
        let names: std::collections::BTreeSet<&String> =
            self.settings().keys().chain(settings.keys()).collect();
        let text = |value: Option<&String>| value.cloned().unwrap_or_else(|| "(not set)".into());
        for name in names {
            let (now, then) = (settings.get(name), self.settings().get(name));
            if now != then {
                return Err(Error::BadSetting {
                    name: name.clone(),
                    found: text(now),
                    expected: format!(
                        "the checkpoint {} was made with {name} {}",
                        self.folder.display(),
                        text(then)
                    ),
                });
            }
        }
        Ok(())
    }

    /// Puts back what the optimiser remembered.
    ///
    /// # Errors
    /// [`Error::BadSetting`] if the optimiser remembers other things.
    pub fn restore(&self, optimizer: &mut dyn Optimizer) -> Result<()> {
        let own: Vec<&str> = optimizer.state().into_iter().map(|(name, _)| name).collect();
        let found: Vec<&str> = self.optimizer.iter().map(|(name, _)| name.as_str()).collect();
        // Names may differ: after sparse steps Adam remembers denominators in the place of the first moment.
        if own.len() != found.len() {
            return Err(Error::BadSetting {
                name: "the optimiser's state".into(),
                found: format!("{found:?} in {}", self.folder.display()),
                expected: format!("the optimiser of this run remembers {own:?}"),
            });
        }
        for (name, runs) in &self.optimizer {
            optimizer.restore(name, runs.clone())?;
        }
        optimizer.set_step_count(self.manifest.optimizer.steps);
        Ok(())
    }

    /// What one worker had not sent, and its running statistics.
    pub fn worker(&self, rank: usize) -> Result<(State, Vec<Statistic>)> {
        let Some(file) = self.manifest.file(Content::Worker(rank)) else {
            let expected = format!("workers 0 to {}", self.workers().saturating_sub(1));
            return Err(bad(&self.folder, "workers", format!("no worker {rank}"), expected));
        };
        let state = self.state(rank, file)?;
        let statistics = match self.manifest.file(Content::Statistics(rank)) {
            None => Vec::new(),
            Some(file) => self.statistics(file)?,
        };
        Ok((state, statistics))
    }

    fn state(&self, rank: usize, file: &FileRecord) -> Result<State> {
        let path = &self.folder.join(&file.name);
        tensors::read_recorded(&self.folder, file)?;
        let state = State::read(path).map_err(|error| match error {
            thinwire::Error::BadState { field, found, expected, .. } => bad(path, field, found, expected),
            other => Error::Engine(other),
        })?;
        if (state.rank, state.ranks) != (rank as u64, self.workers() as u64) {
            let found = format!("{} of {}", state.rank, state.ranks);
            return Err(bad(path, "rank", found, format!("{rank} of {}", self.workers())));
        }
        let lengths: BTreeMap<&str, Option<usize>> =
            self.buckets().iter().flatten().map(|(name, shape)| (name.as_str(), elements(shape))).collect();
        for (kind, layers) in [("residual", &state.residual), ("momentum", &state.momentum)] {
            for (layer, values) in layers {
                let place = format!("{kind}/{layer}");
                match lengths.get(layer.as_str()) {
                    None => return Err(bad(path, place, "a tensor", "only layers of the model")),
                    Some(expected) if *expected != Some(values.len()) => {
                        let expected = format!("{} elements", expected.unwrap_or_default());
                        return Err(bad(path, place, format!("{} elements", values.len()), expected));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(state)
    }

    fn statistics(&self, file: &FileRecord) -> Result<Vec<Statistic>> {
        let path = &self.folder.join(&file.name);
        let bytes = tensors::read_recorded(&self.folder, file)?;
        let (metadata, mut all) = tensors::parse(path, STATISTICS_FORMAT, &bytes)?;
        let order = metadata.get("order").map_or("", String::as_str);
        let order: Vec<String> = serde_json::from_str(order)
            .map_err(|error| bad(path, "metadata order", error.to_string(), "a list of names"))?;
        let mut statistics = Vec::new();
        for name in order {
            let Some(Owned { shape, values }) = all.remove(&name) else {
                return Err(bad(path, name, "no such tensor", "one for each name of the order"));
            };
            statistics.push(Statistic { name, shape, values });
        }
        match all.keys().next() {
            Some(name) => Err(bad(path, name.as_str(), "a tensor", "its name in the order")),
            None => Ok(statistics),
        }
    }
}
