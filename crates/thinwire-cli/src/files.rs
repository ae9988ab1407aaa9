//! Files in and out: whole or not at all.

use std::fs::{File, metadata};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use thinwire::files::{Access, Staged};

use crate::{human, output};

/// Files above this size take long enough to read that someone may wonder.
const LARGE: u64 = 256 << 20;

/// Reads a whole file. Devices and pipes are refused, because they may have no end.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = || format!("can't read {}", path.display());
    let about = metadata(path).with_context(failed)?;
    ensure!(about.is_file(), "can't read {}: it is not a file", path.display());
    if about.len() > LARGE {
        output::note(&format!("reading {} ({})", path.display(), human::bytes(about.len())));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).with_context(failed)?);
    // One byte beyond the size that was announced tells of a file that is still growing.
    File::open(path)
        .with_context(failed)?
        .take(about.len() + 1)
        .read_to_end(&mut bytes)
        .with_context(failed)?;
    ensure!(bytes.len() as u64 == about.len(), "can't read {}: its size changed meanwhile", path.display());
    Ok(bytes)
}

/// Checks, before any work is done, that `output` can be written without destroying one of the `inputs`.
pub fn check_output(output: &Path, extensions: &[&str], inputs: &[&Path]) -> Result<()> {
    let extension = extension(output);
    ensure!(
        extensions.contains(&extension.as_str()),
        "can't write {}: the name must end in .{}",
        output.display(),
        extensions.join(" or .")
    );
    check_place(output)?;
    for input in inputs {
        if same(output, input) {
            bail!("can't write {}: it is an input too; give the output another name", output.display());
        }
    }
    Ok(())
}

/// Checks, before any work is done, that there is a folder for the file `output`.
pub fn check_place(output: &Path) -> Result<()> {
    ensure!(!output.is_dir(), "can't write {}: it is a folder", output.display());
    let folder = folder_of(output);
    ensure!(folder.is_dir(), "can't write {}: there is no folder {}", output.display(), folder.display());
    Ok(())
}

/// Writes a file through a temporary one in the same folder, so that it is whole or not there.
pub fn write<T>(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let failed = || format!("can't write {}", path.display());
    let (staged, result) = Staged::new(path, Access::Default, fill).with_context(failed)?;
    staged.commit().with_context(failed)?;
    Ok(result)
}

/// The extension in lower case, empty if there is none.
pub fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// Whether two names mean one file. A file that is not there yet is where its folder is.
pub fn same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| -> Option<PathBuf> {
        path.canonicalize()
            .ok()
            .or_else(|| Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?)))
    };
    one == other || place(one).is_some_and(|place_of_one| place(other) == Some(place_of_one))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.tw");
        write(&path, |out| Ok(out.write_all(b"old")?)).unwrap();
        let failed: Result<()> = write(&path, |out| {
            out.write_all(b"new")?;
            bail!("no more")
        });
        assert_eq!(format!("{:#}", failed.unwrap_err()), format!("can't write {}: no more", path.display()));
        assert_eq!(read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn outputs_are_checked_before_any_work() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("in.npy"), b"").unwrap();
        std::fs::create_dir(at("folder.npy")).unwrap();
        let message = |output: &str, inputs: &[&Path]| {
            check_output(&at(output), &["npy", "tw"], inputs).unwrap_err().to_string()
        };
        assert!(message("out.txt", &[]).ends_with("the name must end in .npy or .tw"));
        assert!(message("folder.npy", &[]).ends_with("it is a folder"));
        assert!(message("no/out.npy", &[]).contains("there is no folder"));
        assert!(message("in.npy", &[&at("folder.npy/../in.npy")]).contains("it is an input too"));
        assert!(message("new.tw", &[&at("folder.npy/../new.tw")]).contains("it is an input too"));
        check_output(&at("out.TW"), &["tw"], &[&at("in.npy")]).unwrap();
    }

    #[test]
    fn folders_are_not_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().ends_with("it is not a file"));
    }
}
