//! The folder of a run.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use thinwire::files;
use thinwire::group::{Algorithm, Group, SharedGroup, peer_text};
use thinwire::method::split_spec;
use thinwire_train::trainer::Settings;

/// Longest name of a folder, in bytes.
const LONGEST: usize = 255;

/// The folder of the run on this worker: the one that its own command line asks for, or else one under its own `runs`, by
/// the name that worker 0 found free. Nothing else that worker 0 says decides where this one writes.
pub fn agree(group: &mut SharedGroup, asked: Option<&Path>, settings: &Settings) -> Result<PathBuf> {
    // A failure of worker 0 reaches the others as an empty message.
    let (mut message, mut own) = (Vec::new(), None);
    if group.rank() == 0 {
        let made = asked.map_or_else(|| make_new(Path::new("runs"), &stem(settings)), make);
        message = made.as_ref().map_or(Vec::new(), |folder| name_of(folder, settings).into_bytes());
        own = Some(made);
    }
    group.broadcast(0, &mut message, LONGEST, Algorithm::Tree)?;
    if let Some(folder) = own {
        return folder;
    }
    ensure!(!message.is_empty(), "worker 0 could not make the folder of the run");
    match asked {
        Some(folder) => make(folder),
        None => make(&Path::new("runs").join(checked_name(&message)?)),
    }
}

/// What others may call the folder that is this one on worker 0.
fn name_of(folder: &Path, settings: &Settings) -> String {
    let name = folder.file_name().and_then(|name| name.to_str()).filter(|name| name.len() <= LONGEST);
    name.map_or_else(|| stem(settings), str::to_owned)
}

/// The name of a folder that another worker has sent: one name, that leads nowhere else.
fn checked_name(message: &[u8]) -> Result<&str> {
    let name = std::str::from_utf8(message).ok().filter(|name| {
        let mut parts = Path::new(name).components();
        let first = parts.next();
        // Spelled as it is: no slash at its end, and no `.`.
        first == Some(Component::Normal(name.as_ref()))
            && parts.next().is_none()
            // It is printed.
            && peer_text(message) == *name
    });
    name.with_context(|| {
        format!(
            "worker 0 named the run's folder {:?}; expected one name without / and ..; give every worker its own --run",
            peer_text(message)
        )
    })
}

/// What kind of run it is, in a few words.
fn stem(settings: &Settings) -> String {
    let word = |spec: &str| split_spec(spec).0.to_owned();
    format!("{}-{}-{}", word(&settings.data), word(&settings.model), word(&settings.method))
}

/// Makes a folder, and those it lies in, unless it is there. One that can't be written is an error.
pub fn make(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("can't make the folder {}", folder.display()))?;
    files::check_writable(folder)
        .with_context(|| format!("can't write to the folder {}", folder.display()))?;
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
    use thinwire::group::Local;

    use super::*;

    #[test]
    fn a_new_folder_takes_the_next_number() {
        let parent = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = (0..3).map(|_| make_new(parent.path(), "a-b").unwrap()).collect();
        assert_eq!(names, ["a-b", "a-b-2", "a-b-3"].map(|name| parent.path().join(name)));
    }

    /// What worker 1 takes for the run's folder when worker 0 sends `message`.
    fn told(message: &[u8], asked: Option<&Path>) -> Result<PathBuf> {
        let mut outcomes = Local::run(2, |group| {
            let mut group = SharedGroup::new(group);
            if group.rank() == 0 {
                let mut message = message.to_vec();
                group.broadcast(0, &mut message, 4096, Algorithm::Tree).unwrap();
                return Ok(PathBuf::new());
            }
            agree(&mut group, asked, &Settings::default())
        });
        outcomes.pop().unwrap()
    }

    #[test]
    fn worker_0_can_not_send_others_elsewhere() {
        let elsewhere = tempfile::tempdir().unwrap();
        let absolute = elsewhere.path().join("chosen-by-worker-0");
        let messages = [
            absolute.to_str().unwrap(),
            "/",
            "..",
            "../chosen-by-worker-0",
            "a/b",
            "a/../b",
            ".",
            "./a",
            "a/",
            "a\0b",
            "\x1b[2J",
            "\u{202e}nur",
        ];
        for message in messages {
            let error = format!("{:#}", told(message.as_bytes(), None).unwrap_err());
            assert!(
                error.contains("expected one name without /") && !error.contains(['\x1b', '\u{202e}']),
                "{error}"
            );
        }
        assert!(told(b"\xff\xfe", None).is_err());
        assert!(told(&[b'a'; 300], None).is_err());
        assert!(!absolute.exists() && !Path::new("../chosen-by-worker-0").exists());
        // Its own command line comes first, whatever worker 0 says.
        let own = elsewhere.path().join("own");
        for message in ["fine", absolute.to_str().unwrap()] {
            assert_eq!(told(message.as_bytes(), Some(&own)).unwrap(), own);
        }
        assert!(own.is_dir() && !absolute.exists());
    }

    #[test]
    fn names_for_others_are_such_as_they_take() {
        let settings = Settings::default();
        for folder in ["/", "..", "a/..", "runs/digits-cnn-2", "/absolute/place"] {
            let name = name_of(Path::new(folder), &settings);
            assert_eq!(checked_name(name.as_bytes()).unwrap(), name, "{folder}");
        }
        assert_eq!(name_of(Path::new("/absolute/place"), &settings), "place");
        assert_eq!(name_of(Path::new(&"a".repeat(300)), &settings), stem(&settings));
    }
}
