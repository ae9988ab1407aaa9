//! Atomic replacement of files: every file that thinwire replaces is written here. And which files are trusted that are
//! read again.
//!
//! The bytes go to a temporary file in the same folder, are brought to the disk (fsync), and take the name by a rename,
//! after which the folder is brought to the disk too. So a crash or a full disk at any point leaves the old file or the
//! new one. The temporary file has a random name and is created exclusively (`O_EXCL`): neither a file nor a symbolic
//! link that someone else has put there is ever opened. It is deleted when a write fails; what a killed process leaves
//! behind is recognised by [`is_temporary`].

use std::fs::{File, Metadata, Permissions};
use std::io::{BufWriter, Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

const PREFIX: &str = ".thinwire-";
const SUFFIX: &str = ".tmp";

/// Who may read a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As the process's umask says, but nobody outside the group may write to it.
    Default,
    /// Only its owner.
    Private,
}

/// A file that is on the disk under a temporary name. Dropped, it is deleted.
#[derive(Debug)]
pub struct Staged {
    temporary: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// Writes what `fill` writes to a temporary file beside `path`, and brings it to the disk.
    pub fn new<T, E: From<Error>>(
        path: &Path,
        access: Access,
        fill: impl FnOnce(&mut dyn Write) -> std::result::Result<T, E>,
    ) -> std::result::Result<(Staged, T), E> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).suffix(SUFFIX);
        if access == Access::Default {
            builder.permissions(any_new_file());
        }
        let temporary = builder.tempfile_in(folder_of(path))?;
        let mut writer = BufWriter::new(temporary.as_file());
        let result = fill(&mut writer)?;
        writer.flush()?;
        drop(writer);
        temporary.as_file().sync_all()?;
        Ok((Staged { temporary, path: path.to_owned() }, result))
    }

    /// Gives the file its name. Takes no room for data, so that a full disk seldom gets in the way.
    pub fn commit(self) -> Result<()> {
        self.temporary.persist(&self.path).map_err(|failed| failed.error)?;
        sync_folder(folder_of(&self.path))
    }
}

/// Replaces the file at `path` by `bytes`, or leaves it as it is.
pub fn replace(path: &Path, access: Access, bytes: &[u8]) -> Result<()> {
    let (staged, ()) = Staged::new(path, access, |out| out.write_all(bytes))?;
    staged.commit()
}

/// Whether a name is that of a temporary file of this module.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Whether files can be created and written in a folder; the error is the system's.
pub fn check_writable(folder: &Path) -> Result<()> {
    let mut file = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(folder)?;
    file.write_all(b"thinwire\n")
}

/// Brings the names in a folder to the disk, where the system can.
pub fn sync_folder(folder: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems have no fsync of folders.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The permissions of a new file; the umask is taken off by the system. It may be read again under any umask
/// ([`read_trusted`]).
fn any_new_file() -> Permissions {
    use std::os::unix::fs::PermissionsExt;
    Permissions::from_mode(0o664)
}

/// What a file is trusted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// To be executed: only its owner may write to it.
    Code,
    /// To be read with care: its group may write to it too, as is usual in a shared folder.
    Data,
}

/// The owner that network file systems and user namespaces show where they don't tell the real one.
const UNKNOWN_OWNER: u32 = 65534;

/// Why the contents of a file or folder may be someone else's.
pub(crate) fn distrust(about: &Metadata, trust: Trust) -> Option<String> {
    objection(about.uid(), about.mode() & 0o7777, rustix::process::geteuid().as_raw(), trust)
}

fn objection(owner: u32, mode: u32, user: u32, trust: Trust) -> Option<String> {
    let (writers, right) = match trust {
        Trust::Code => (0o022, "go-w"),
        Trust::Data => (0o002, "o-w"),
    };
    let unknown = owner == UNKNOWN_OWNER && trust == Trust::Data;
    if owner != user && owner != 0 && !unknown {
        return Some(format!(
            "it belongs to user {owner}; expected user {user} or root (if you trust it, use a copy of your own)"
        ));
    }
    (mode & writers != 0)
        .then(|| format!("others may write to it (mode {mode:o}); take that right away with chmod {right}"))
}

/// Reads a file that has to come from this user: one that belongs to somebody else than the user and root, or that
/// everybody may write to, is refused with [`ErrorKind::PermissionDenied`] and the reason.
pub fn read_trusted(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    // Asked of the file that is open: the name may come to mean another one.
    if let Some(reason) = distrust(&file.metadata()?, Trust::Data) {
        return Err(Error::new(ErrorKind::PermissionDenied, reason));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, Access::Default, b"old").unwrap();
        let failed = Staged::new(&path, Access::Default, |out| {
            out.write_all(b"half")?;
            Err::<(), _>(Error::other("no more"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        replace(&path, Access::Private, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["file"]);
        let error = replace(&folder.path().join("no/such/file"), Access::Default, b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn files_of_others_and_those_that_everybody_may_write_are_not_trusted() {
        const USER: u32 = 1000;
        for (owner, mode, code, data) in [
            (USER, 0o644, true, true),
            (0, 0o600, true, true),
            (4711, 0o600, false, false),
            (UNKNOWN_OWNER, 0o644, false, true),
            (USER, 0o664, false, true),
            (USER, 0o646, false, false),
            (UNKNOWN_OWNER, 0o666, false, false),
        ] {
            let found = [Trust::Code, Trust::Data].map(|trust| objection(owner, mode, USER, trust).is_none());
            assert_eq!(found, [code, data], "{owner} {mode:o}");
        }
        let reason = objection(4711, 0o600, 0, Trust::Data).unwrap();
        assert!(reason.contains("user 4711; expected user 0 or root"), "{reason}");
    }

    #[test]
    fn a_file_is_read_if_everybody_may_read_it_but_not_if_everybody_may_write_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, Access::Default, b"new").unwrap();
        assert_eq!(read_trusted(&path).unwrap(), b"new");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let error = read_trusted(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("mode 666") && error.to_string().contains("chmod o-w"), "{error}");
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
            assert!(read_trusted(&path).unwrap_err().to_string().contains("user 4711"));
        }
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        let path = folder.path().join("file");
        symlink(&victim, &path).unwrap();
        // The name that used to be predictable.
        symlink(&victim, folder.path().join(format!("file.{}.tmp", std::process::id()))).unwrap();
        replace(&path, Access::Default, b"new").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_staged_file_is_temporary_until_it_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let stage = || Staged::new(&path, Access::Default, |out| out.write_all(b"x")).unwrap().0;
        let staged = stage();
        assert!(matches!(&names(folder.path())[..], [name] if is_temporary(name)));
        drop(staged);
        assert!(names(folder.path()).is_empty());
        stage().commit().unwrap();
        assert_eq!(names(folder.path()), ["file"]);
        check_writable(folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["file"]);
        assert!(!is_temporary("file") && check_writable(&path).is_err());
    }
}
