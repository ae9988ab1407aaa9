//! The folder of compiled kernels: machine code that will run with the rights of this process.
//!
//! Invariant: code is taken from the folder only if the folder and the file belong to this user or to root and nobody
//! else may write to them, and if the file's SHA-256, over its key and its code, is the one noted in it. The key is a
//! digest of the compiler's version, its options and the source. Everything else is compiled anew: a file that is
//! damaged is replaced, a folder that others can write to is not used, and a warning says why.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::files::{self, Access, Trust, distrust};

/// A SHA-256.
pub(super) type Hash = [u8; 32];

/// What a file begins with; the digest and the code follow.
const MAGIC: &[u8; 16] = b"thinwire-cubin-1";

/// A folder that can be trusted.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The folder that the environment names, made if it is not there. `None` if there is none, or none to be trusted.
    pub fn open() -> Option<Cache> {
        let folder = folder()?;
        match Cache::at(folder.clone()) {
            Ok(cache) => Some(cache),
            Err(reason) => {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| {
                    tracing::warn!(
                        "{}: compiled kernels are neither taken from this folder nor kept there: {reason}",
                        folder.display()
                    );
                });
                None
            }
        }
    }

    /// This folder, made if it is not there; or why it can't be trusted.
    pub fn at(folder: PathBuf) -> Result<Cache, String> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| format!("it can't be made: {error}"))?;
        let about = std::fs::metadata(&folder).map_err(|error| error.to_string())?;
        match distrust(&about, Trust::Code) {
            Some(reason) => Err(reason),
            None => Ok(Cache { folder }),
        }
    }

    /// The code kept under this name, if it is whole and was kept for this key.
    pub fn load(&self, name: &str, key: &Hash) -> Option<Vec<u8>> {
        let path = self.folder.join(name);
        match read(&path, key) {
            Ok(code) => Some(code),
            Err(Refusal::Missing) => None,
            Err(Refusal::Bad(reason)) => {
                tracing::warn!("{}: {reason}; the kernels are compiled anew", path.display());
                None
            }
        }
    }

    /// Keeps code for the next start. A folder that can't be written costs a second then, and nothing else.
    pub fn store(&self, name: &str, key: &Hash, code: &[u8]) {
        let path = self.folder.join(name);
        let bytes = [&MAGIC[..], &digest(key, code), code].concat();
        if let Err(error) = files::replace(&path, Access::Private, &bytes) {
            tracing::debug!(file = %path.display(), %error, "compiled kernels are not kept");
        }
    }
}

/// Why a file is not used.
#[derive(Debug, PartialEq)]
enum Refusal {
    Missing,
    Bad(String),
}

fn read(path: &Path, key: &Hash) -> Result<Vec<u8>, Refusal> {
    let bad = |reason: &str| Refusal::Bad(reason.to_owned());
    let mut file = open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Refusal::Missing,
        _ => Refusal::Bad(error.to_string()),
    })?;
    // Asked of the file that is open: the name may come to mean another one.
    let about = file.metadata().map_err(|error| Refusal::Bad(error.to_string()))?;
    if !about.is_file() {
        return Err(bad("it is not a file"));
    }
    if let Some(reason) = distrust(&about, Trust::Code) {
        return Err(Refusal::Bad(reason));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| Refusal::Bad(error.to_string()))?;
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(bad("it has no checksum, as files of earlier versions, or is damaged"));
    };
    let Some((noted, code)) = rest.split_first_chunk::<32>() else { return Err(bad("it is cut short")) };
    if *noted != digest(key, code) || code.is_empty() {
        return Err(bad("its checksum is wrong: it is damaged, or another file under this name"));
    }
    Ok(code.to_vec())
}

/// Neither follows a link nor waits for the other end of a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

fn digest(key: &Hash, code: &[u8]) -> Hash {
    Sha256::new().chain_update(key).chain_update(code).finalize().into()
}

/// Where compiled kernels are kept: `THINWIRE_CACHE`, else the user's cache folder.
fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("THINWIRE_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("thinwire")))
        .or_else(|| named("HOME").map(|folder| folder.join(".cache/thinwire")))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const KEY: Hash = [7; 32];
    const NAME: &str = "walk-sm_90.cubin";

    fn cache() -> (tempfile::TempDir, Cache, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("a/b")).unwrap();
        let path = cache.folder.join(NAME);
        (folder, cache, path)
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_kept_comes_back_for_its_key_alone() {
        let (_folder, cache, path) = cache();
        assert_eq!(cache.load(NAME, &KEY), None);
        assert_eq!(read(&path, &KEY), Err(Refusal::Missing));
        cache.store(NAME, &KEY, b"code");
        assert_eq!(cache.load(NAME, &KEY).unwrap(), b"code");
        assert_eq!(cache.load(NAME, &[8; 32]), None);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&cache.folder), mode(&path)), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&cache.folder).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn damaged_code_is_never_given() {
        let (_folder, cache, path) = cache();
        cache.store(NAME, &KEY, b"some machine code");
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(cache.load(NAME, &KEY), None, "byte {at}");
            std::fs::write(&path, &good[..at]).unwrap();
            assert_eq!(cache.load(NAME, &KEY), None, "cut to {at} bytes");
        }
        // Files of earlier versions are the code alone.
        std::fs::write(&path, b"\x7fELF and so on").unwrap();
        assert!(matches!(read(&path, &KEY), Err(Refusal::Bad(reason)) if reason.contains("no checksum")));
        cache.store(NAME, &KEY, b"some machine code");
        assert_eq!(cache.load(NAME, &KEY).unwrap(), b"some machine code");
    }

    #[test]
    fn what_others_may_write_is_not_used() {
        let (_folder, cache, path) = cache();
        cache.store(NAME, &KEY, b"code");
        for mode in [0o620, 0o602] {
            set_mode(&path, mode);
            assert_eq!(cache.load(NAME, &KEY), None, "{mode:o}");
        }
        set_mode(&path, 0o644);
        assert!(cache.load(NAME, &KEY).is_some());
        for mode in [0o770, 0o707, 0o1777] {
            set_mode(&cache.folder, mode);
            let reason = Cache::at(cache.folder.clone()).unwrap_err();
            assert!(reason.contains(&format!("mode {mode:o}")) && reason.contains("chmod go-w"), "{reason}");
        }
        set_mode(&cache.folder, 0o755);
        assert!(Cache::at(cache.folder.clone()).is_ok());
    }

    #[test]
    fn links_and_pipes_are_not_code() {
        let (_folder, cache, path) = cache();
        cache.store("elsewhere", &KEY, b"code");
        symlink(cache.folder.join("elsewhere"), &path).unwrap();
        assert_eq!(cache.load(NAME, &KEY), None);
        cache.store(NAME, &KEY, b"new");
        assert_eq!(cache.load("elsewhere", &KEY).unwrap(), b"code", "a link is replaced, not followed");
        assert_eq!(cache.load(NAME, &KEY).unwrap(), b"new");
        std::fs::create_dir(cache.folder.join("folder")).unwrap();
        assert_eq!(cache.load("folder", &KEY), None);
        let file = cache.folder.join("file");
        std::fs::write(&file, "").unwrap();
        assert!(Cache::at(file).unwrap_err().contains("can't be made"));
    }

    #[test]
    fn owners_other_than_the_user_and_root_are_named() {
        // Of a folder of the system the owner is root, who can write everywhere anyway.
        assert_eq!(distrust(&std::fs::metadata("/").unwrap(), Trust::Code), None);
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested: only root can give a file away");
            return;
        }
        let (_folder, cache, path) = cache();
        cache.store(NAME, &KEY, b"code");
        std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
        assert!(matches!(read(&path, &KEY), Err(Refusal::Bad(reason)) if reason.contains("user 4711")));
        std::os::unix::fs::chown(&cache.folder, Some(4711), None).unwrap();
        assert!(Cache::at(cache.folder.clone()).unwrap_err().contains("user 4711"));
    }
}
