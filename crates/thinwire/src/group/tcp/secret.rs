//! The group's shared secret and where it comes from.
//!
//! A secret is any sequence of bytes. It is never converted to text: random bytes are rarely UTF-8, and a conversion
//! would lose them or drop the secret. A secret that can't be read is an error, because a group that goes on without
//! it would be open to everybody.
//!
//! The key comes from it by Argon2id, salted with the group's name. Whoever is called by a rank could check guesses of
//! the secret against what it heard; so each guess has to cost time and memory. At the parameters below it is about
//! 60 ms and 32 MiB, which a rank pays once, because the key is kept for the life of the process.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use sha2::{Digest, Sha256};

use super::settings::bad;
use crate::Error;

const VARIABLE: &str = "THINWIRE_SECRET";
const FILE_VARIABLE: &str = "THINWIRE_SECRET_FILE";

/// Memory of a derivation in KiB, and how often it is passed over.
const MEMORY: u32 = 32 << 10;
const PASSES: u32 = 3;

/// The key of a group.
pub(super) type Key = [u8; 32];

/// What the ranks of a group know and nobody else does.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bytes: Arc<[u8]>,
}

impl Secret {
    /// From any bytes, and the more random the better; `None` when there are none.
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        (!bytes.is_empty()).then(|| Secret { bytes: bytes.into() })
    }

    /// The key of the group with this name. It is derived once in a process; other threads wait for it.
    pub(super) fn key(&self, group: &str) -> Result<Key, String> {
        static KEYS: Mutex<Vec<(Secret, String, Key)>> = Mutex::new(Vec::new());
        let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, key)) = keys.iter().find(|(secret, name, _)| secret == self && name == group) {
            return Ok(*key);
        }
        let key = self.derive(group)?;
        keys.push((self.clone(), group.to_owned(), key));
        Ok(key)
    }

    fn derive(&self, group: &str) -> Result<Key, String> {
        let failed = |error: argon2::Error| format!("can't derive a key from the secret: {error}");
        let parameters = Params::new(MEMORY, PASSES, 1, None).map_err(failed)?;
        // Of any length, as a salt must be.
        let salt = Sha256::new().chain_update(b"thinwire group\0").chain_update(group).finalize();
        let mut memory = vec![Block::default(); parameters.block_count()];
        let mut key = Key::default();
        Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
            .hash_password_into_with_memory(&self.bytes, &salt, &mut key, &mut memory)
            .map_err(failed)?;
        Ok(key)
    }
}

/// The secret is not shown.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The secret of the environment: `THINWIRE_SECRET` itself, or the content of the file `THINWIRE_SECRET_FILE`. One
/// line break at its end does not belong to it.
pub(super) fn from_variables(variable: &impl Fn(&str) -> Option<OsString>) -> crate::Result<Option<Secret>> {
    match (variable(VARIABLE), variable(FILE_VARIABLE)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(bad(VARIABLE, "(hidden)", "only one of it and THINWIRE_SECRET_FILE")),
        (Some(value), None) => parse(VARIABLE, &value.into_vec()).map(Some),
        (None, Some(path)) => {
            let path = PathBuf::from(path);
            let secret = parse(FILE_VARIABLE, &read(&path)?)?;
            // Once for the ranks of a machine.
            if variable("LOCAL_RANK").is_none_or(|rank| rank == "0") {
                warn_if_shared(&path);
            }
            Ok(Some(secret))
        }
    }
}

/// The secret without the line break that editors append.
fn parse(name: &'static str, bytes: &[u8]) -> crate::Result<Secret> {
    // A carriage return alone is a byte of the secret: random ones may end so.
    let bytes = bytes.strip_suffix(b"\r\n").or(bytes.strip_suffix(b"\n")).unwrap_or(bytes);
    Secret::new(bytes).ok_or_else(|| bad(name, "", "a secret that is not empty"))
}

fn read(path: &Path) -> crate::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::Io {
        action: "read",
        path: format!("{} (THINWIRE_SECRET_FILE)", path.display()),
        reason: error.to_string(),
    })
}

/// Warns if users other than the owner may read or change the file.
fn warn_if_shared(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        tracing::warn!(
            "the secret file {} can be read or changed by other users (mode {mode:03o}); run chmod 600 on it",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn from(name: &str, value: &[u8]) -> crate::Result<Option<Secret>> {
        from_variables(&|asked| (asked == name).then(|| OsString::from_vec(value.to_vec())))
    }

    fn from_file(path: &Path) -> crate::Result<Option<Secret>> {
        from(FILE_VARIABLE, &path.as_os_str().to_owned().into_vec())
    }

    #[test]
    fn secrets_are_bytes_and_every_byte_counts() {
        // As text both would be three replacement characters.
        let (one, other) = (b"\xff\xfe\xfd", b"\xfd\xfe\xff");
        let found = from(VARIABLE, one).unwrap();
        assert_eq!(found, Secret::new(one));
        assert!(found.is_some());
        assert_ne!(found, from(VARIABLE, other).unwrap());
        assert_eq!(Secret::new(b""), None);
        assert_eq!(from_variables(&|_| None), Ok(None));
    }

    #[test]
    fn a_key_depends_on_every_byte_and_on_the_group_and_is_derived_once() {
        let key = |bytes: &[u8], group| Secret::new(bytes).unwrap().key(group).unwrap();
        let first = key(b"hush", "a");
        assert_ne!(first, key(b"Hush", "a"));
        assert_ne!(first, key(b"hush", "b"));
        // A thousand derivations would take a minute and more.
        let begun = std::time::Instant::now();
        for _ in 0..1000 {
            assert_eq!(first, key(b"hush", "a"));
        }
        let cached = begun.elapsed() / 1000;
        let begun = std::time::Instant::now();
        assert_eq!(Secret::new(b"hush").unwrap().derive("a").unwrap(), first);
        assert!(begun.elapsed() > 10 * cached);
    }

    #[test]
    fn a_file_holds_the_same_bytes_and_may_have_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OsString::from_vec(b"secret \xff".to_vec()));
        for (content, secret) in [
            (&b"hush\n"[..], &b"hush"[..]),
            (b"\xff\0\xfe\r\n", b"\xff\0\xfe"),
            (b"hush", b"hush"),
            (b"hush\r", b"hush\r"),
            (b"hush\n\r", b"hush\n\r"),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(from_file(&path).unwrap(), Secret::new(secret));
        }
    }

    #[test]
    fn a_secret_that_can_not_be_read_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let missing = from_file(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("none") && missing.contains(FILE_VARIABLE), "{missing}");
        let is_folder = from_file(folder.path()).unwrap_err().to_string();
        assert!(is_folder.contains(FILE_VARIABLE), "{is_folder}");
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "\n").unwrap();
        assert!(from_file(&empty).unwrap_err().to_string().contains("not empty"));
        assert!(from(VARIABLE, b"").unwrap_err().to_string().contains("THINWIRE_SECRET is \"\""));
        let both = from_variables(&|_| Some("hush".into())).unwrap_err().to_string();
        assert!(both.contains("only one of") && !both.contains("hush"), "{both}");
    }

    #[test]
    fn a_file_that_others_may_read_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "hush").unwrap();
        let warnings = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            crate::test_log::warnings_of(|| from_file(&path).unwrap())
        };
        assert_eq!(warnings(0o600), "");
        for mode in [0o640, 0o604, 0o622] {
            let said = warnings(mode);
            assert!(said.contains(&format!("mode {mode:o}")) && said.contains("chmod 600"), "{said}");
        }
    }
}
