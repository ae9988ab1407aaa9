//! Writing checkpoints.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thinwire::files::{self, Access, Staged};
use thinwire::group::peer_text;
use thinwire::memory::State;

use super::manifest::{FileRecord, Layer, Manifest, OptimizerRecord, Position};
use super::tensors::{self, View};
use super::{
    Content, LATEST, MANIFEST, PARTIAL, Statistic, bad, complete, elements, folder_name, read, step_of,
};
use crate::optimizer::Optimizer;
use crate::{Error, Result};

/// What is appended to the name of a checkpoint of another run when one of the same step takes its name.
const REPLACED: &str = ".replaced";

/// How many checkpoints are kept unless told otherwise.
pub const KEEP: usize = 2;

/// Writes the checkpoints of a run.
///
/// Every worker calls [`worker`](Writer::worker); their [`Part`]s are gathered by worker 0, which calls
/// [`finish`](Writer::finish). The gathering is also the barrier that is needed between the two. Until then all files
/// are in a folder with a temporary name. When worker 0 has finished, the others call [`publish`](Writer::publish); when
/// anybody has failed, all call [`discard`](Writer::discard).
#[derive(Debug, Clone)]
pub struct Writer {
    dir: PathBuf,
    keep: usize,
}

/// The files that one worker has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The worker.
    pub rank: usize,
    /// Its files.
    pub files: Vec<FileRecord>,
}

/// A part, or why it could not be written.
pub type Written = std::result::Result<Part, String>;

impl Part {
    /// As a message to the other workers.
    pub fn to_message(written: &Written) -> Vec<u8> {
        serde_json::to_vec(written).expect("numbers and text can always be written as JSON")
    }

    /// From such a message; an error says what is wrong with it.
    pub fn from_message(bytes: &[u8]) -> Result<Written> {
        serde_json::from_slice(bytes).map_err(|error| Error::BadSetting {
            name: "part of a checkpoint".into(),
            // It quotes what was sent.
            found: peer_text(error.to_string().as_bytes()),
            expected: "all workers must run the same version of the program".into(),
        })
    }
}

/// What is the same on all workers.
pub struct Shared<'a> {
    /// Settings that must agree for a run to go on with the same bits.
    pub settings: &'a BTreeMap<String, String>,
    /// Where the run stands.
    pub position: Position,
    /// Name and shape of the layers of each bucket, in order.
    pub buckets: &'a [Vec<Layer>],
    /// The weights of each bucket.
    pub weights: &'a [Vec<f32>],
    /// The optimiser.
    pub optimizer: &'a dyn Optimizer,
}

impl Writer {
    /// Writes to `dir`, which is made if it is not there, and keeps the newest `keep` checkpoints.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for a `keep` of 0.
    pub fn new(dir: impl Into<PathBuf>, keep: usize) -> Result<Writer> {
        if keep == 0 {
            let expected = "at least 1".into();
            return Err(Error::BadSetting {
                name: "checkpoints to keep".into(),
                found: "0".into(),
                expected,
            });
        }
        let dir = dir.into();
        std::fs::create_dir_all(&dir).map_err(|error| Error::io("create", &dir, &error))?;
        Ok(Writer { dir, keep })
    }

    /// To be called when a run starts, by every worker and before any of them writes: fails if nothing can be written,
    /// and removes what runs that were stopped while writing have left.
    pub fn start(&self, rank: usize) -> Result<()> {
        files::check_writable(&self.dir).map_err(|error| Error::io("write to", &self.dir, &error))?;
        for entry in std::fs::read_dir(&self.dir).map_err(|error| Error::io("read", &self.dir, &error))? {
            let name = entry.map_err(|error| Error::io("read", &self.dir, &error))?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(step) = name.strip_suffix(PARTIAL).and_then(step_of) {
                self.discard(step)?;
                if rank == 0 && self.partial(step).join(MANIFEST).is_file() {
                    self.publish(step)?;
                }
            } else if files::is_temporary(name) {
                remove(&self.dir.join(name))?;
            }
        }
        Ok(())
    }

    /// Where it writes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of the checkpoint from which a run would go on.
    pub fn newest(&self) -> Option<PathBuf> {
        read::find(&self.dir).ok()
    }

    fn folder(&self, step: u64) -> PathBuf {
        self.dir.join(folder_name(step))
    }

    /// The folder of a checkpoint that is being written.
    fn partial(&self, step: u64) -> PathBuf {
        self.dir.join(folder_name(step) + PARTIAL)
    }

    /// Writes one worker's part of the checkpoint for `step`, the step that comes next.
    ///
    /// # Errors
    /// [`Error::BadFile`] for values that are not finite: such a run can't go on.
    pub fn worker(&self, step: u64, rank: usize, state: &State, statistics: &[Statistic]) -> Result<Part> {
        let folder = &self.partial(step);
        std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))?;

        let name = Content::Worker(rank).file_name();
        let path = &folder.join(&name);
        for (kind, layers) in [("residual", &state.residual), ("momentum", &state.momentum)] {
            for (layer, values) in layers {
                tensors::check_finite(path, &format!("{kind}/{layer}"), values)?;
            }
        }
        state.write(path)?;
        let mut files = vec![tensors::record(path, name)?];

        let name = Content::Statistics(rank).file_name();
        let path = &folder.join(&name);
        if !statistics.is_empty() {
            write_statistics(path, statistics)?;
            files.push(tensors::record(path, name)?);
        }
        Ok(Part { rank, files })
    }

    /// Completes the checkpoint for the step of `shared.position`: writes what is shared and the list of files, gives the
    /// folder its name, lets `latest` name it, and deletes the oldest checkpoints of the same run. Gives its folder.
    ///
    /// Only worker 0 calls this, after all workers have written theirs; `parts` are theirs, in any order.
    pub fn finish(&self, shared: &Shared<'_>, parts: &[Part]) -> Result<PathBuf> {
        let step = shared.position.step;
        let folder = self.partial(step);
        let mut ranks: Vec<usize> = parts.iter().map(|part| part.rank).collect();
        ranks.sort_unstable();
        if !ranks.iter().copied().eq(0..parts.len()) || ranks.is_empty() {
            let expected = "one part of each worker from 0 up".to_owned();
            return Err(bad(&folder, "parts", format!("parts of workers {ranks:?}"), expected));
        }
        std::fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, &error))?;
        let name = Content::Shared.file_name();
        write_shared(&folder.join(&name), shared)?;
        let mut files = vec![tensors::record(&folder.join(&name), name)?];
        files.extend(parts.iter().flat_map(|part| part.files.iter().cloned()));
        files.sort_by(|one, two| one.name.cmp(&two.name));
        let state = shared.optimizer.state().into_iter().map(|(name, _)| name.to_owned()).collect();
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION").into(),
            workers: parts.len(),
            settings: shared.settings.clone(),
            position: shared.position.clone(),
            optimizer: OptimizerRecord { steps: shared.optimizer.step_count(), state },
            buckets: shared.buckets.to_vec(),
            files,
        };
        let path = folder.join(MANIFEST);
        let text = manifest
            .to_text()
            .map_err(|error| bad(&path, "the fields", error.to_string(), "what JSON can hold"))?;
        // All that takes room comes before the checkpoint is one: from there on a full disk seldom gets in the way.
        let latest = self.stage_latest(step)?;
        tensors::write_whole(&path, text.as_bytes())?;
        self.publish(step)?;
        latest.commit().map_err(|error| Error::io("write", &self.dir.join(LATEST), &error))?;
        if let Err(error) = self.prune(step, &manifest) {
            // The checkpoint is there; that an old one could not be deleted is no reason to end the run.
            tracing::warn!("{error}");
        }
        Ok(self.folder(step))
    }

    fn stage_latest(&self, step: u64) -> Result<Staged> {
        let path = self.dir.join(LATEST);
        let staged = Staged::new(&path, Access::Default, |out| writeln!(out, "{}", folder_name(step)));
        staged.map(|(staged, ())| staged).map_err(|error| Error::io("write", &path, &error))
    }

    /// Gives the folder of a checkpoint its name. Does nothing if another worker on the same file system has done so:
    /// that is told by the rename itself, because what is known of a folder on a network may be old.
    pub fn publish(&self, step: u64) -> Result<()> {
        let (partial, folder) = (&self.partial(step), &self.folder(step));
        let full = |error: &std::io::Error| {
            matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists)
        };
        let renamed = match std::fs::rename(partial, folder) {
            Err(error) if full(&error) => {
                make_way(folder, partial)?;
                std::fs::rename(partial, folder)
            }
            renamed => renamed,
        };
        match renamed {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // Files that are not ours stay in the old one.
            Err(error) if full(&error) => move_files(partial, folder)?,
            renamed => renamed.map_err(|error| Error::io("rename", partial, &error))?,
        }
        files::sync_folder(&self.dir).map_err(|error| Error::io("write", &self.dir, &error))
    }

    /// Removes what has been written of a checkpoint that can't be finished. One that is whole and lacks only its name
    /// stays, and gets it at the next start.
    pub fn discard(&self, step: u64) -> Result<()> {
        let partial = self.partial(step);
        if partial.join(MANIFEST).is_file() { Ok(()) } else { delete(&partial) }
    }

    /// Deletes the oldest complete checkpoints before `step` with the same settings, so that `keep` are left.
    fn prune(&self, step: u64, newest: &Manifest) -> Result<()> {
        let same_run = |step: u64, folder: &Path| {
            Manifest::read(folder)
                .is_ok_and(|other| other.position.step == step && other.settings == newest.settings)
        };
        let older: Vec<PathBuf> = complete(&self.dir)?
            .into_iter()
            .filter(|(other, folder)| *other < step && same_run(*other, folder))
            .map(|(_, folder)| folder)
            .collect();
        let surplus = older.len().saturating_sub(self.keep - 1);
        older[..surplus].iter().try_for_each(|folder| delete(folder))
    }
}

/// Lets the checkpoint in `partial` take the name of `folder`: what is there is deleted if it is of the same run, which
/// has gone back, or no checkpoint. One of another run gets another name.
fn make_way(folder: &Path, partial: &Path) -> Result<()> {
    let is_checkpoint = folder.join(MANIFEST).is_file();
    let settings = |folder| Manifest::read(folder).ok().map(|manifest| manifest.settings);
    if !is_checkpoint || settings(folder).is_some_and(|old| settings(partial) == Some(old)) {
        return delete(folder);
    }
    let mut name = folder.as_os_str().to_owned();
    name.push(REPLACED);
    let mut kept = PathBuf::from(&name);
    for number in 2_u64.. {
        if !kept.exists() {
            break;
        }
        let mut numbered = name.clone();
        numbered.push(format!("-{number}"));
        kept = numbered.into();
    }
    tracing::warn!("{} is of a run with other settings; it is now {}", folder.display(), kept.display());
    std::fs::rename(folder, &kept).map_err(|error| Error::io("rename", folder, &error))
}

/// Deletes a checkpoint: first what makes it one, so that half of one is never taken for a whole. Files that are not
/// ours stay, and the folder with them. Other workers may be deleting it too.
fn delete(folder: &Path) -> Result<()> {
    remove(&folder.join(MANIFEST))?;
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| Error::io("read", folder, &error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("read", folder, &error))?;
        if entry.file_name().to_str().is_some_and(is_ours) {
            remove(&entry.path())?;
        }
    }
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed.map_err(|error| Error::io("delete", folder, &error)),
    }
}

/// Moves our files from one folder to another, the list of files last, and deletes the first.
fn move_files(from: &Path, to: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(from).map_err(|error| Error::io("read", from, &error))? {
        names.push(entry.map_err(|error| Error::io("read", from, &error))?.file_name());
    }
    names.sort_by_key(|name| name == MANIFEST);
    for name in names.iter().filter(|name| name.to_str().is_some_and(is_ours)) {
        let old = from.join(name);
        std::fs::rename(&old, to.join(name)).map_err(|error| Error::io("rename", &old, &error))?;
    }
    files::sync_folder(to).map_err(|error| Error::io("write", to, &error))?;
    delete(from)
}

/// Whether a name is that of a checkpoint's file, or of one whose writing was cut short.
fn is_ours(name: &str) -> bool {
    let unfinished = || {
        let (name, process) = name.strip_suffix(".tmp")?.rsplit_once('.')?;
        process.parse::<u32>().is_ok().then_some(name)
    };
    // Earlier versions gave temporary files the number of their process.
    let name = unfinished().unwrap_or(name);
    name == MANIFEST || Content::of(name).is_some() || files::is_temporary(name)
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("delete", path, &error)),
        _ => Ok(()),
    }
}

fn write_statistics(path: &Path, statistics: &[Statistic]) -> Result<()> {
    let mut all = BTreeMap::new();
    for statistic in statistics {
        let view = View { shape: &statistic.shape, values: &statistic.values };
        if all.insert(statistic.name.clone(), view).is_some() {
            return Err(bad(path, statistic.name.as_str(), "the name twice", "every statistic once"));
        }
    }
    // Tensors lie in the file by name; a model wants them in its own order.
    let order: Vec<&str> = statistics.iter().map(|statistic| statistic.name.as_str()).collect();
    let order = serde_json::to_string(&order)
        .map_err(|error| bad(path, "the names", error.to_string(), "what JSON can hold"))?;
    tensors::write(path, read::STATISTICS_FORMAT, &[("order", order)], &all)
}

fn write_shared(path: &Path, shared: &Shared<'_>) -> Result<()> {
    let mut all = BTreeMap::new();
    add_layers(path, "weight", shared.buckets, shared.weights, &mut all)?;
    for (name, values) in shared.optimizer.state() {
        add_layers(path, &format!("optimizer/{name}"), shared.buckets, values, &mut all)?;
    }
    tensors::write(path, read::SHARED_FORMAT, &[], &all)
}

/// Cuts flat runs into layers called `prefix/LAYER`.
fn add_layers<'a>(
    path: &Path,
    prefix: &str,
    buckets: &'a [Vec<Layer>],
    runs: &'a [Vec<f32>],
    all: &mut BTreeMap<String, View<'a>>,
) -> Result<()> {
    if runs.len() != buckets.len() {
        let found = format!("{} buckets of {prefix}", runs.len());
        return Err(bad(path, prefix, found, format!("{} buckets", buckets.len())));
    }
    for (bucket, (layers, run)) in buckets.iter().zip(runs).enumerate() {
        let mut rest = run.as_slice();
        for (name, shape) in layers {
            let cut = elements(shape).and_then(|length| rest.split_at_checked(length));
            let Some((values, after)) = cut else {
                let found = format!("{} values of bucket {bucket}", run.len());
                return Err(bad(path, format!("{prefix}/{name}"), found, format!("more, for {shape:?}")));
            };
            rest = after;
            if all.insert(format!("{prefix}/{name}"), View { shape, values }).is_some() {
                return Err(bad(path, name.as_str(), "the name twice", "every layer once"));
            }
        }
        if !rest.is_empty() {
            let found = format!("{} values of bucket {bucket}", run.len());
            return Err(bad(path, prefix, found, format!("{} fewer, as its layers have", rest.len())));
        }
    }
    Ok(())
}
