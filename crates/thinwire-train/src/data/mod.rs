//! Data sets: read into memory, cut into batches, the same on every worker for the same seed.

mod augment;
mod cifar;
mod cifar_png;
mod digits;
mod file;
mod idx;
mod images;
pub mod shard;
mod text;
mod vocabulary;

use std::sync::Arc;

use thinwire::method::Parameters;

use crate::Result;
use crate::catalog::{self, Choice};

/// A data set in memory.
#[derive(Clone)]
pub struct DataSet {
    /// Its name with the parameters that differ from their defaults.
    pub spec: String,
    /// What its samples are.
    pub kind: Kind,
    /// What is trained on.
    pub train: Arc<dyn Samples>,
    /// What is measured on.
    pub test: Arc<dyn Samples>,
}

/// What the samples of a data set are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Images, each of one class.
    Images {
        /// Channels of a pixel.
        channels: usize,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// Number of classes.
        classes: usize,
    },
    /// Runs of tokens, each to be told from those before it.
    Text {
        /// Number of different tokens.
        vocabulary: usize,
        /// Tokens in a sample.
        length: usize,
    },
}

/// Samples by number.
pub trait Samples: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes these samples to `batch`, whose memory is used again. With `augment`, a number that stands for seed
    /// and epoch, each sample is varied in a way that depends only on it and on the sample's number.
    fn batch(&self, samples: &[usize], augment: Option<u64>, batch: &mut Batch);
}

/// Some samples, ready for a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Number of samples.
    pub samples: usize,
    /// Of images: pixels, scaled to about mean 0 and deviation 1, sample by sample, channel by channel, row by row.
    pub pixels: Vec<f32>,
    /// Of text: the tokens seen, sample by sample.
    pub tokens: Vec<i32>,
    /// Of images: the class of each sample; of text: for each token the one that follows it.
    pub targets: Vec<i32>,
}

/// What opens a data set.
pub type Open = fn(&Parameters) -> Result<DataSet>;

/// All data sets.
pub const DATA: &[Choice<Open>] = &[
    Choice {
        name: "digits",
        summary: "1,797 handwritten digits of 8x8 pixels (UCI); part of the program",
        parameters: &[],
        build: digits::open,
    },
    Choice {
        name: "mnist",
        summary: "70,000 handwritten digits of 28x28 pixels",
        parameters: idx::MNIST,
        build: idx::open_mnist,
    },
    Choice {
        name: "fashion-mnist",
        summary: "70,000 pieces of clothing of 28x28 pixels",
        parameters: idx::FASHION_MNIST,
        build: idx::open_fashion_mnist,
    },
    Choice {
        name: "cifar-10",
        summary: "60,000 photographs of 32x32 pixels in colour, of ten classes",
        parameters: cifar::PARAMETERS,
        build: cifar::open,
    },
    Choice {
        name: "text",
        summary: "any text file in UTF-8, as characters or words",
        parameters: text::TEXT,
        build: text::open_text,
    },
    Choice {
        name: "king-james",
        summary: "the King James Bible, 4.1 million characters",
        parameters: text::KING_JAMES,
        build: text::open_king_james,
    },
];

/// Opens a data set by name and parameters, such as `digits` or `text:file=book.txt,tokens=words`.
pub fn open(spec: &str) -> Result<DataSet> {
    let (choice, parameters) = catalog::find("data set", DATA, spec)?;
    (choice.build)(&parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_data_set_is_answered_with_those_there_are() {
        let error = open("imagenet").map(|_| ()).unwrap_err().to_string();
        let known = "digits, mnist, fashion-mnist, cifar-10, text, king-james";
        assert_eq!(error, format!("there is no data set \"imagenet\"; there are: {known}"));
        assert!(open("digits:folder=x").is_err(), "digits have no parameters");
    }

    /// Reads the real data sets, which docs/data.md tells how to get, from `data` at the root of the repository:
    /// `cargo test --release -p thinwire-train -- --ignored --nocapture real_data`.
    #[test]
    #[ignore = "needs the data sets"]
    fn real_data_sets_have_the_samples_they_should() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");
        let images = |channels, size| Kind::Images { channels, height: size, width: size, classes: 10 };
        let sets = [
            ("digits".into(), images(1, 8), (1_497, 300)),
            ("fashion-mnist".into(), images(1, 28), (60_000, 10_000)),
            (format!("mnist:folder={folder}/mnist"), images(1, 28), (60_000, 10_000)),
            (format!("cifar-10:folder={folder}/cifar-10"), images(3, 32), (50_000, 10_000)),
            (
                format!("king-james:file={folder}/king-james.txt"),
                Kind::Text { vocabulary: 64, length: 64 },
                (61_421, 3_232),
            ),
            (
                format!("king-james:file={folder}/king-james.txt,tokens=words,length=32"),
                Kind::Text { vocabulary: 10_000, length: 32 },
                (28_049, 1_476),
            ),
        ];
        for (spec, kind, samples) in sets {
            let start = std::time::Instant::now();
            let set = open(&spec).unwrap();
            println!("{spec}: {:.3} s, {:?}", start.elapsed().as_secs_f64(), set.kind);
            assert_eq!((set.kind, (set.train.len(), set.test.len())), (kind, samples), "{spec}");
            let start = std::time::Instant::now();
            let (numbers, mut batch) = ((0..set.train.len()).collect::<Vec<_>>(), Batch::default());
            numbers.chunks(32).for_each(|chunk| set.train.batch(chunk, Some(1), &mut batch));
            println!("  {:.2} us a sample", start.elapsed().as_secs_f64() * 1e6 / numbers.len() as f64);
            if let Kind::Images { classes, .. } = set.kind {
                set.train.batch(&numbers, None, &mut batch);
                let counts =
                    (0..classes).map(|class| batch.targets.iter().filter(|&&x| x == class as i32).count());
                let expected = set.train.len() / classes;
                assert!(counts.clone().all(|count| count.abs_diff(expected) < expected / 5), "{spec}");
                println!("  {:?}", counts.collect::<Vec<_>>());
            }
        }
    }
}
