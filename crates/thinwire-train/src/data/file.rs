//! Finding and reading the files of data sets.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::error::bad;
use crate::{Error, Result};

/// No file of a known data set comes near this size; a compressed file that unpacks to more is broken.
const LARGEST: u64 = 1 << 31;

/// The first file of one of these names, as it is or with `.gz` added, in the first folder that has one.
pub(super) fn find(folders: &[PathBuf], names: &[String]) -> Option<PathBuf> {
    let paths = folders.iter().flat_map(|folder| {
        names.iter().flat_map(move |name| [folder.join(name), folder.join(format!("{name}.gz"))])
    });
    paths.into_iter().find(|path| path.is_file())
}

/// The contents of a file, unpacked if they are packed with gzip. This is told by the first two bytes: no other
/// format read here can begin with them.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(|error| Error::io("open", path, &error))?;
    file.read_to_end(&mut bytes).map_err(|error| Error::io("read", path, &error))?;
    if bytes.starts_with(&[0x1f, 0x8b]) { unpack(path, &bytes) } else { Ok(bytes) }
}

/// Unpacks gzip; `path` is for errors.
pub(super) fn unpack(path: &Path, packed: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let result = MultiGzDecoder::new(packed).take(LARGEST + 1).read_to_end(&mut bytes);
    result.map_err(|error| {
        bad(path, "gzip data", format!("{error} after {} unpacked bytes", bytes.len()), "a whole gzip file")
    })?;
    if bytes.len() as u64 > LARGEST {
        let expected = format!("at most {LARGEST} unpacked bytes");
        return Err(bad(path, "gzip data", format!("more than {LARGEST} unpacked bytes"), expected));
    }
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    /// These bytes packed with gzip.
    pub(in super::super) fn pack(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn packed_and_plain_files_read_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let contents: Vec<u8> = (0..10_000u32).map(|i| (i * i % 251) as u8).collect();
        std::fs::write(folder.path().join("plain"), &contents).unwrap();
        std::fs::write(folder.path().join("packed.gz"), pack(&contents)).unwrap();
        let folders = [folder.path().join("not-there"), folder.path().to_owned()];
        for name in ["plain", "packed"] {
            let path = find(&folders, &["other".into(), name.into()]).unwrap();
            assert_eq!(read(&path).unwrap(), contents, "{name}");
        }
        assert_eq!(find(&folders, &["other".into()]), None);
    }

    #[test]
    fn a_truncated_gzip_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("short.gz");
        let packed = pack(&[7; 5000]);
        for length in [2, 10, packed.len() / 2, packed.len() - 1] {
            std::fs::write(&path, &packed[..length]).unwrap();
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains("short.gz: gzip data: "), "{message}");
        }
        let mut wrong = packed.clone();
        let checksum = packed.len() - 6;
        wrong[checksum] ^= 1;
        std::fs::write(&path, &wrong).unwrap();
        assert!(matches!(read(&path), Err(Error::BadFile { .. })));
    }
}
