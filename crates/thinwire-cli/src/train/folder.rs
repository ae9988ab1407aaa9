//! The folder of a run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use thinwire::group::{Algorithm, Group, SharedGroup};
use thinwire::method::split_spec;
use thinwire_train::trainer::Settings;

/// Longest path that is agreed on.
const LONGEST: usize = 4096;

/// The folder, made by worker 0 and told to the others: the one that was asked for, or a new one under `runs`.
pub fn agree(group: &mut SharedGroup, asked: Option<&Path>, settings: &Settings) -> Result<PathBuf> {
    // A failure of worker 0 reaches the others as an empty message.
    let (mut message, mut failure) = (Vec::new(), None);
    if group.rank() == 0 {
        match asked.map_or_else(|| make_new(Path::new("runs"), &stem(settings)), make) {
            Ok(folder) => message = folder.to_string_lossy().into_owned().into_bytes(),
            Err(error) => failure = Some(error),
        }
    }
    group.broadcast(0, &mut message, LONGEST, Algorithm::Tree)?;
    if let Some(error) = failure {
        return Err(error);
    }
    anyhow::ensure!(!message.is_empty(), "worker 0 could not make the folder of the run");
    let folder =
        PathBuf::from(String::from_utf8(message).context("the path of the run's folder is not text")?);
    make(&folder)
}

/// What kind of run it is, in a few words.
fn stem(settings: &Settings) -> String {
    let word = |spec: &str| split_spec(spec).0.to_owned();
    format!("{}-{}-{}", word(&settings.data), word(&settings.model), word(&settings.method))
}

/// Makes a folder, and those it lies in, unless it is there.
pub fn make(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("can't make the folder {}", folder.display()))?;
    Ok(folder.to_owned())
}

/// The first of `stem`, `stem-2`, `stem-3`, … that is not there yet.
fn make_new(parent: &Path, stem: &str) -> Result<PathBuf> {
    make(parent)?;
    for number in 1_u64.. {
        let name = if number == 1 { stem.to_owned() } else { format!("{stem}-{number}") };
        let folder = parent.join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("can't make the folder {}", folder.display()));
            }
        }
    }
    unreachable!("there are more numbers than folders")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_takes_the_next_number() {
        let parent = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = (0..3).map(|_| make_new(parent.path(), "a-b").unwrap()).collect();
        assert_eq!(names, ["a-b", "a-b-2", "a-b-3"].map(|name| parent.path().join(name)));
    }
}
