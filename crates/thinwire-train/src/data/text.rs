//! Text: a file cut into tokens, and the tokens into samples.

use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

use thinwire::method::{Kind as Type, Parameter, Parameters};

use super::vocabulary::{Vocabulary, of_words, words};
use super::{Batch, DataSet, Kind, Samples};
use crate::error::bad;
use crate::{Error, Result};

const TOKENS: Parameter = Parameter {
    name: "tokens",
    kind: Type::Choice(&["characters", "words"]),
    default: "characters",
    help: "what the text is cut into",
};
const VOCABULARY: Parameter = Parameter {
    name: "vocabulary",
    kind: Type::Count { min: 2, max: i32::MAX as u64 },
    default: "10000",
    help: "different tokens at most: the most frequent, and one for all others",
};
const LENGTH: Parameter = Parameter {
    name: "length",
    kind: Type::Count { min: 1, max: 1 << 20 },
    default: "64",
    help: "tokens in a sample",
};
const TEST: Parameter = Parameter {
    name: "test",
    kind: Type::Fraction,
    default: "0.05",
    help: "part of the file, at its end, that is the test set",
};

/// Parameters of `text`.
pub(super) const TEXT: &[Parameter] = &[
    Parameter { name: "file", kind: Type::Text, default: "", help: "the text file, in UTF-8; must be given" },
    TOKENS,
    VOCABULARY,
    LENGTH,
    TEST,
];

/// Parameters of `king-james`.
pub(super) const KING_JAMES: &[Parameter] = &[
    Parameter { name: "file", kind: Type::Text, default: "data/king-james.txt", help: "the text file" },
    TOKENS,
    VOCABULARY,
    LENGTH,
    TEST,
];

/// Opens any text file.
pub(super) fn open_text(parameters: &Parameters) -> Result<DataSet> {
    if parameters.text("file").is_empty() {
        let expected = "text:file=PATH names a text file in UTF-8".into();
        return Err(Error::BadSetting { name: "file".into(), found: "is not given".into(), expected });
    }
    open(parameters, "give the path of a text file in UTF-8, as in text:file=PATH")
}

/// Opens the King James Bible, one verse a line.
pub(super) fn open_king_james(parameters: &Parameters) -> Result<DataSet> {
    let file = parameters.text("file");
    let folder = Path::new(file).parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map(|folder| format!("mkdir -p {} && ", folder.display())).unwrap_or_default();
    // Each verse follows its reference: "Ge1:1 In the beginning". Without an input of its own the program would take
    // what stands on the shell's.
    let command = format!(
        "apt-get install -y bible-kjv bible-kjv-text && {folder}\
         bible -f gen1:1-rev22:21 </dev/null | sed 's/^[^ ]* //' >{file}"
    );
    open(parameters, &command)
}

fn open(parameters: &Parameters, command: &str) -> Result<DataSet> {
    let path = Path::new(parameters.text("file"));
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::MissingData {
            data: parameters.method().into(),
            missing: path.display().to_string(),
            command: command.into(),
        },
        _ => Error::io("read", path, &error),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let found = format!("0x{:02x}", error.as_bytes()[place]);
        bad(path, format!("byte {place}"), found, "text in UTF-8")
    })?;
    // Some editors put a byte order mark at the start; it is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let most = parameters.count("vocabulary") as usize;
    match parameters.choice("tokens") {
        "words" => cut(parameters, path, &words(text), |training| of_words(training, most)),
        _ => {
            let characters: Vec<char> = text.chars().collect();
            cut(parameters, path, &characters, |training| Vocabulary::new(training, most))
        }
    }
}

/// The two parts of the text. The vocabulary knows the training part alone.
fn cut<Token: Copy + Eq + Hash + Ord>(
    parameters: &Parameters,
    path: &Path,
    tokens: &[Token],
    vocabulary: impl FnOnce(&[Token]) -> Vocabulary<Token>,
) -> Result<DataSet> {
    let length = parameters.count("length") as usize;
    let test = (tokens.len() as f64 * parameters.number("test")) as usize;
    let (train, test) = tokens.split_at(tokens.len() - test);
    for (part, name) in [(train, "training part"), (test, "test part")] {
        if part.len() <= length {
            let found = format!("{} {}", part.len(), parameters.choice("tokens"));
            let expected = format!(
                "at least {} for length={length} and test={}: a longer file, a smaller length or another test",
                length + 1,
                parameters.number("test")
            );
            return Err(bad(path, name, found, expected));
        }
    }
    let vocabulary = vocabulary(train);
    let samples = |part| Arc::new(TextSamples { tokens: vocabulary.numbers(part), length });
    Ok(DataSet {
        spec: parameters.to_string(),
        kind: Kind::Text { vocabulary: vocabulary.len(), length },
        train: samples(train),
        test: samples(test),
    })
}

/// A text, cut into samples that follow each other without overlap.
struct TextSamples {
    tokens: Vec<i32>,
    length: usize,
}

impl Samples for TextSamples {
    fn len(&self) -> usize {
        // The last token of a sample is followed by one that is no part of it.
        (self.tokens.len() - 1) / self.length
    }

    fn batch(&self, samples: &[usize], _augment: Option<u64>, batch: &mut Batch) {
        batch.samples = samples.len();
        batch.pixels.clear();
        batch.tokens.clear();
        batch.targets.clear();
        for &sample in samples {
            let piece = &self.tokens[sample * self.length..][..self.length + 1];
            batch.tokens.extend_from_slice(&piece[..self.length]);
            batch.targets.extend_from_slice(&piece[1..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    fn open(contents: &[u8], rest: &str) -> Result<DataSet> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, contents).unwrap();
        data::open(&format!("text:file={}{rest}", path.display()))
    }

    fn message(contents: &[u8], rest: &str) -> String {
        open(contents, rest).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn samples_follow_each_other_and_targets_follow_tokens() {
        let set = open(b"abcdefghijklmnopqrst", ",length=3,test=0.2").unwrap();
        assert_eq!(set.kind, Kind::Text { vocabulary: 17, length: 3 });
        // 16 letters: a sample of three at 0, 3, 6, 9 and 12, and p follows the last.
        assert_eq!((set.train.len(), set.test.len()), (5, 1));
        let mut batch = Batch { pixels: vec![1.0], ..Batch::default() };
        set.train.batch(&[4, 0], Some(3), &mut batch);
        assert_eq!((batch.samples, batch.pixels.len()), (2, 0));
        assert_eq!(batch.tokens, [13, 14, 15, 1, 2, 3]);
        assert_eq!(batch.targets, [14, 15, 16, 2, 3, 4]);
        set.test.batch(&[0], None, &mut batch);
        assert_eq!(
            (&batch.tokens[..], &batch.targets[..]),
            (&[0; 3][..], &[0; 3][..]),
            "q, r, s and t are unknown"
        );
    }

    #[test]
    fn words_are_numbered_by_frequency() {
        let set =
            open("the sea , the sky\n".repeat(10).as_bytes(), ",tokens=words,length=5,test=0.5").unwrap();
        assert_eq!(set.kind, Kind::Text { vocabulary: 6, length: 5 });
        assert_eq!((set.train.len(), set.test.len()), (5, 5));
        let (mut train, mut test) = (Batch::default(), Batch::default());
        set.train.batch(&[0], None, &mut train);
        set.test.batch(&[0], None, &mut test);
        // Equally frequent: "," before "<eos>" before "sea" before "sky".
        assert_eq!(train.tokens, [1, 4, 2, 1, 5]);
        assert_eq!(train.targets, [4, 2, 1, 5, 3]);
        assert_eq!(train, test);
        let rest = ",tokens=words,length=5,test=0.5,vocabulary=2";
        let small = open("the sea , the sky\n".repeat(10).as_bytes(), rest).unwrap();
        assert_eq!(small.kind, Kind::Text { vocabulary: 2, length: 5 });
        small.train.batch(&[0], None, &mut train);
        assert_eq!(train.tokens, [1, 0, 0, 1, 0]);
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        let kind = |text: &str| open(text.as_bytes(), ",length=2,test=0.4").unwrap().kind;
        assert_eq!(kind("\u{feff}ababababab"), kind("ababababab"));
    }

    #[test]
    fn text_that_can_not_be_used_is_refused_with_the_reason() {
        assert!(message(b"", "").contains("a.txt: training part: 0 characters; expected at least 65"));
        assert!(
            message(&[b'a'; 100], "").contains("test part: 5 characters; expected at least 65 for length=64")
        );
        assert!(message(&[b'a'; 1000], ",test=0").contains("test part: 0 characters"));
        assert!(message(&[b'a'; 100], ",test=0.9").contains("training part: 10 characters"));
        assert!(message(b"good \xff bad", "").contains("a.txt: byte 5: 0xff; expected text in UTF-8"));
        assert!(message(b"", ",tokens=bytes").contains("characters, words"));
        assert!(message(b"cut \xe2\x82", "").contains("byte 4: 0xe2"));
    }

    #[test]
    fn a_file_that_is_not_there_or_not_given_is_told() {
        let error = |spec: &str| data::open(spec).map(|_| ()).unwrap_err();
        assert_eq!(error("text").to_string(), "file is not given: text:file=PATH names a text file in UTF-8");
        assert!(matches!(error("text:file=not/there"), Error::MissingData { .. }));
        let missing = error("king-james:file=not/there.txt").to_string();
        assert!(missing.contains("bible-kjv-text && mkdir -p not && bible -f gen1:1-rev22:21"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(error(&format!("text:file={}", folder.path().display())), Error::Io { .. }));
    }
}
