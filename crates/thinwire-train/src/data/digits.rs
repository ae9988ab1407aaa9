//! The digits of the UCI repository: 1,797 images of 8 by 8 pixels, part of the program.

use std::path::Path;

use thinwire::method::Parameters;

use super::DataSet;
use super::file::unpack;
use super::images::{Images, image_set};
use super::shard::shuffle;
use crate::Result;
use crate::error::bad;

/// "Optical Recognition of Handwritten Digits", CC BY 4.0; see the README beside the file.
const PACKED: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// How many of the images are trained on; the other 300 are the test set.
const TRAIN: usize = 1497;

/// The split into training and test images is random, but always the same.
const SPLIT: u64 = 1797;

/// Opens the digits.
pub(super) fn open(parameters: &Parameters) -> Result<DataSet> {
    let path = Path::new("digits.csv.gz (in the program)");
    let all = parse(path, &String::from_utf8_lossy(&unpack(path, PACKED)?))?;
    let mut order: Vec<usize> = (0..all.labels.len()).collect();
    shuffle(&mut order, SPLIT);
    let (train, test) = order.split_at(TRAIN);
    Ok(image_set(parameters.to_string(), 10, pick(&all, train), pick(&all, test), false))
}

fn pick(all: &Images, numbers: &[usize]) -> Images {
    Images {
        shape: all.shape,
        pixels: numbers.iter().flat_map(|number| &all.pixels[number * 64..][..64]).copied().collect(),
        labels: numbers.iter().map(|&number| all.labels[number]).collect(),
    }
}

/// Lines of 64 pixels from 0 to 16 and a digit, with commas between them.
fn parse(path: &Path, text: &str) -> Result<Images> {
    let mut images = Images { shape: [1, 8, 8], pixels: Vec::new(), labels: Vec::new() };
    for (number, line) in text.lines().enumerate() {
        let place = || format!("line {}", number + 1);
        let values: Option<Vec<u8>> = line.split(',').map(|value| value.parse().ok()).collect();
        match values.as_deref() {
            Some([pixels @ .., label]) if pixels.len() == 64 && *label < 10 => {
                images.pixels.extend_from_slice(pixels);
                images.labels.push(*label);
            }
            _ => return Err(bad(path, place(), format!("{line:?}"), "64 pixels and a digit")),
        }
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{self, Batch, Kind};

    #[test]
    fn there_are_1797_digits_of_ten_classes() {
        let set = data::open("digits").unwrap();
        assert_eq!(set.kind, Kind::Images { channels: 1, height: 8, width: 8, classes: 10 });
        assert_eq!((set.spec.as_str(), set.train.len(), set.test.len()), ("digits", 1497, 300));
        let mut counts = [0; 10];
        let mut batch = Batch::default();
        for samples in [&set.train, &set.test] {
            samples.batch(&(0..samples.len()).collect::<Vec<_>>(), None, &mut batch);
            assert_eq!(batch.pixels.len(), samples.len() * 64);
            batch.targets.iter().for_each(|&class| counts[class as usize] += 1);
        }
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180], "as UCI counts them");
        let mut test = [0; 10];
        batch.targets.iter().for_each(|&class| test[class as usize] += 1);
        assert!(test.iter().all(|&count| count >= 15), "every class is in the test set: {test:?}");
    }

    #[test]
    fn the_split_is_always_the_same() {
        let labels = || {
            let (set, mut batch) = (data::open("digits").unwrap(), Batch::default());
            set.test.batch(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], None, &mut batch);
            batch.targets
        };
        assert_eq!(labels(), labels());
        assert_eq!(
            labels(),
            [2, 7, 8, 1, 2, 3, 5, 0, 2, 5, 4, 0],
            "runs are compared across versions of the program"
        );
    }

    #[test]
    fn a_line_that_is_no_digit_is_named() {
        let line = format!("{}7", "3,".repeat(64));
        assert_eq!(parse(Path::new("x"), &line).unwrap().labels, [7]);
        for wrong in ["", "1,2", &line.replace('7', "10"), &line.replace('3', "x"), &format!("{line},1")] {
            let message = parse(Path::new("x"), &format!("{line}\n{wrong}\n")).unwrap_err().to_string();
            assert!(message.starts_with("x: line 2: "), "{message}");
        }
    }
}
