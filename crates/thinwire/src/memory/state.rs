//! Everything a run needs to go on with the same bits, by parameter name, in one safetensors file.
//!
//! Tensors are called `residual/NAME` and `momentum/NAME`. What selectors remember is in the file's metadata,
//! as the bits of each number, so that nothing is rounded on the way.
//!
//! The metadata also holds a CRC-32 of the whole file, computed with its own eight digits as zeros. So every change of
//! a byte is found, padding and names included. Files of the first format have none and are still read.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

use crate::files::{self, Access};
use crate::{Error, Result};

/// What compressors keep from step to step, of any number of buckets.
///
/// ```
/// use thinwire::memory::State;
/// let mut state = State { method: "topk".into(), ..State::default() };
/// state.residual.insert("conv.weight".into(), vec![0.5, -0.0, f32::MIN_POSITIVE]);
/// let path = std::env::temp_dir().join(format!("thinwire-doc-{}.safetensors", std::process::id()));
/// state.write(&path)?;
/// assert_eq!(State::read(&path)?, state);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// The method it was made with, as text.
    pub method: String,
    /// What was not sent, by layer.
    pub residual: BTreeMap<String, Vec<f32>>,
    /// The momentum, by layer; empty without momentum correction.
    pub momentum: BTreeMap<String, Vec<f32>>,
    /// What selectors remember: by unit, then by name.
    pub selectors: BTreeMap<String, BTreeMap<String, f64>>,
    /// The step that comes next.
    pub step: u64,
    /// Epochs done, for methods that warm up.
    pub epoch: f64,
    /// The rank it belongs to: every rank has a residual of its own.
    pub rank: u64,
    /// How many ranks there were; 0 where no group was involved.
    pub ranks: u64,
}

const FORMAT: &str = "thinwire-state-2";
/// Without a checksum.
const FIRST_FORMAT: &str = "thinwire-state-1";

/// What stands before the checksum in the header. It can't be part of a name or a value: a quotation mark there has a
/// backslash before it.
const CHECKSUM_KEY: &[u8] = b"\"crc32\":\"";
const NO_CHECKSUM: &str = "00000000";

impl State {
    /// Writes the state to a temporary file beside `path` and renames it: the file is whole or not there.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = |action, reason: String| Error::Io { action, path: path.display().to_string(), reason };
        let bytes = self.to_bytes().map_err(|reason| failed("make", reason))?;
        files::replace(path, Access::Default, &bytes).map_err(|error| failed("write", error.to_string()))
    }

    /// Takes the layers and units of another bucket in.
    pub(crate) fn extend(&mut self, other: State) {
        self.method = other.method;
        self.residual.extend(other.residual);
        self.momentum.extend(other.momentum);
        self.selectors.extend(other.selectors);
    }

    /// Reads a state. A file that is damaged or of another kind is an error that names it; so is one of another user, or
    /// that everybody may write to ([`files::read_trusted`]).
    pub fn read(path: &Path) -> Result<State> {
        let name = path.display().to_string();
        let bytes = files::read_trusted(path).map_err(|error| Error::Io {
            action: "read",
            path: name.clone(),
            reason: error.to_string(),
        })?;
        State::from_bytes(&bytes, &name)
    }

    fn to_bytes(&self) -> std::result::Result<Vec<u8>, String> {
        let kinds = [("residual", &self.residual), ("momentum", &self.momentum)];
        let data: Vec<(String, Vec<u8>)> = kinds
            .iter()
            .flat_map(|(kind, layers)| {
                layers.iter().map(move |(name, values)| (format!("{kind}/{name}"), values))
            })
            .map(|(name, values)| (name, values.iter().flat_map(|x| x.to_le_bytes()).collect()))
            .collect();
        let mut views = Vec::new();
        for (name, bytes) in &data {
            let view =
                TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes).map_err(|e| e.to_string())?;
            views.push((name.as_str(), view));
        }
        let bits: BTreeMap<&String, BTreeMap<&String, u64>> = self
            .selectors
            .iter()
            .map(|(unit, values)| {
                (unit, values.iter().map(|(name, value)| (name, value.to_bits())).collect())
            })
            .collect();
        let metadata = HashMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("crc32".to_owned(), NO_CHECKSUM.to_owned()),
            ("method".to_owned(), self.method.clone()),
            ("selectors".to_owned(), serde_json::to_string(&bits).map_err(|e| e.to_string())?),
            ("step".to_owned(), self.step.to_string()),
            ("epoch".to_owned(), self.epoch.to_bits().to_string()),
            ("rank".to_owned(), self.rank.to_string()),
            ("ranks".to_owned(), self.ranks.to_string()),
        ]);
        let mut bytes = serialize(views, Some(metadata)).map_err(|e| e.to_string())?;
        let digits = format!("{:08x}", crc32fast::hash(&bytes));
        let place = checksum_place(&bytes).ok_or("the header has no place for the checksum")?;
        bytes[place].copy_from_slice(digits.as_bytes());
        Ok(bytes)
    }

    fn from_bytes(bytes: &[u8], path: &str) -> Result<State> {
        let bad = |field: &str, found: String, expected: &str| Error::BadState {
            path: path.to_owned(),
            field: field.to_owned(),
            found,
            expected: expected.to_owned(),
        };
        let (_, header) = SafeTensors::read_metadata(bytes)
            .map_err(|error| bad("the header", error.to_string(), "a safetensors file"))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let field = |name: &str| metadata.get(name).cloned().unwrap_or_default();
        match (field("format").as_str(), metadata.get("crc32")) {
            (FIRST_FORMAT, None) => {}
            (FORMAT, Some(noted)) => {
                let computed = checksum(bytes)
                    .ok_or_else(|| bad("metadata crc32", format!("{noted:?}"), "eight digits"))?;
                if computed != *noted {
                    return Err(bad("CRC-32", computed, &format!("{noted} as noted in the file")));
                }
            }
            (FORMAT | FIRST_FORMAT, _) => {
                return Err(bad(
                    "metadata crc32",
                    format!("{:?}", field("crc32")),
                    "the checksum of its format",
                ));
            }
            (other, _) => return Err(bad("metadata format", format!("{other:?}"), FORMAT)),
        }
        let bits: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(&field("selectors"))
            .map_err(|error| bad("metadata selectors", error.to_string(), "numbers by unit and name"))?;
        // Files written before there were groups do not have these.
        let number = |name: &str| match metadata.get(name) {
            None => Ok(0),
            Some(text) => {
                text.parse().map_err(|_| bad(&format!("metadata {name}"), text.clone(), "a number"))
            }
        };
        let mut state = State {
            step: number("step")?,
            epoch: f64::from_bits(number("epoch")?),
            rank: number("rank")?,
            ranks: number("ranks")?,
            method: field("method"),
            selectors: bits
                .into_iter()
                .map(|(unit, values)| {
                    (unit, values.into_iter().map(|(n, v)| (n, f64::from_bits(v))).collect())
                })
                .collect(),
            ..State::default()
        };
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| bad("the tensors", error.to_string(), "a whole safetensors file"))?;
        for (name, tensor) in tensors.tensors() {
            let (layers, layer) = match name.split_once('/') {
                Some(("residual", layer)) => (&mut state.residual, layer),
                Some(("momentum", layer)) => (&mut state.momentum, layer),
                _ => return Err(bad(&name, "a tensor".into(), "residual/NAME or momentum/NAME")),
            };
            if tensor.dtype() != Dtype::F32 {
                return Err(bad(&name, format!("{:?}", tensor.dtype()), "F32"));
            }
            let (values, _) = tensor.data().as_chunks();
            let values: Vec<f32> = values.iter().map(|four| f32::from_le_bytes(*four)).collect();
            if let Some(at) = values.iter().position(|x| !x.is_finite()) {
                return Err(bad(&name, format!("{} at element {at}", values[at]), "finite values"));
            }
            layers.insert(layer.to_owned(), values);
        }
        Ok(state)
    }
}

/// Where the digits of the checksum are in a file.
fn checksum_place(bytes: &[u8]) -> Option<Range<usize>> {
    let (length, rest) = bytes.split_first_chunk()?;
    let header = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let key = header.windows(CHECKSUM_KEY.len()).position(|part| part == CHECKSUM_KEY)?;
    let first = length.len() + key + CHECKSUM_KEY.len();
    let end = first + NO_CHECKSUM.len();
    (bytes.get(end) == Some(&b'"')).then_some(first..end)
}

/// The checksum of a file, as text; `None` without a place for it.
fn checksum(bytes: &[u8]) -> Option<String> {
    let place = checksum_place(bytes)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..place.start]);
    hasher.update(NO_CHECKSUM.as_bytes());
    hasher.update(&bytes[place.end..]);
    Some(format!("{:08x}", hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> State {
        let method = "redsync:quantize=true".into();
        let mut state = State { method, step: 1 << 60, epoch: 0.3, rank: 3, ranks: 4, ..State::default() };
        state.residual.insert("a/b".into(), vec![1.0, -0.0, 1e-45, f32::MAX]);
        state.residual.insert("empty".into(), vec![]);
        state.momentum.insert("a/b".into(), vec![0.1, 0.2, 0.3, 0.4]);
        let ratio = [("ratio".to_owned(), 0.1 + 0.2), ("big".to_owned(), 1e300)];
        state.selectors.insert("a/b".into(), ratio.into_iter().collect());
        state
    }

    #[test]
    fn a_state_comes_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.safetensors");
        let state = sample();
        state.write(&path).unwrap();
        let back = State::read(&path).unwrap();
        assert_eq!(back, state);
        assert!(back.residual["a/b"][1].is_sign_negative());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn damage_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.safetensors");
        let bytes = sample().to_bytes().unwrap();
        for cut in [0, 4, 9, 40, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let error = State::read(&path).unwrap_err().to_string();
            assert!(error.contains("state.safetensors"), "{error}");
        }
        let mut foreign = sample().to_bytes().unwrap();
        let at = foreign.windows(16).position(|w| w == FORMAT.as_bytes()).unwrap();
        foreign[at + 15] = b'9';
        std::fs::write(&path, &foreign).unwrap();
        assert!(State::read(&path).unwrap_err().to_string().contains("thinwire-state-9"));
        assert!(matches!(State::read(&folder.path().join("none")), Err(Error::Io { action: "read", .. })));
    }

    #[test]
    fn a_folder_that_is_not_there_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let error = sample().write(&folder.path().join("no/such/state")).unwrap_err();
        assert!(matches!(error, Error::Io { action: "write", .. }), "{error}");
    }

    /// What is read from `bytes`, or the error's text.
    fn read(bytes: &[u8]) -> std::result::Result<State, String> {
        State::from_bytes(bytes, "state").map_err(|error| error.to_string())
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_refused() {
        let mut bytes = sample().to_bytes().unwrap();
        let mut accepted = Vec::new();
        for at in 0..bytes.len() {
            let good = bytes[at];
            for other in (0..=255).filter(|other| *other != good) {
                bytes[at] = other;
                if read(&bytes).is_ok() {
                    accepted.push((at, other));
                }
            }
            bytes[at] = good;
        }
        assert!(accepted.is_empty(), "{} changes were accepted: {accepted:?}", accepted.len());
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "cut to {cut} bytes");
        }
        for more in [b"\0".as_slice(), b" ", b"more"] {
            assert!(read(&[&bytes, more].concat()).is_err());
        }
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(read(&bytes).unwrap_err().contains("CRC-32"));
        bytes[last] ^= 1;
        assert_eq!(read(&bytes).unwrap(), sample());
    }

    /// A file of the first format.
    fn first_format(metadata: &[(&str, &str)]) -> Vec<u8> {
        let metadata = metadata.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let values = 0.5_f32.to_le_bytes();
        let tensor = TensorView::new(Dtype::F32, vec![1], &values).unwrap();
        serialize([("residual/a", tensor)], Some(metadata.collect())).unwrap()
    }

    #[test]
    fn files_without_a_checksum_are_those_of_the_first_format() {
        let first = [
            ("format", FIRST_FORMAT),
            ("method", "topk"),
            ("selectors", "{}"),
            ("step", "7"),
            ("epoch", "0"),
        ];
        let mut state = State { method: "topk".into(), step: 7, ..State::default() };
        state.residual.insert("a".into(), vec![0.5]);
        assert_eq!(read(&first_format(&first)).unwrap(), state);
        let lost = [("format", FORMAT), ("selectors", "{}"), ("step", "7"), ("epoch", "0")];
        assert!(read(&first_format(&lost)).unwrap_err().contains("metadata crc32"));
        let short = [&lost[..], &[("crc32", "123")]].concat();
        assert!(read(&first_format(&short)).unwrap_err().contains("eight digits"));
        let changed = [&first[..], &[("crc32", NO_CHECKSUM)]].concat();
        assert!(read(&first_format(&changed)).unwrap_err().contains("the checksum of its format"));
    }

    #[test]
    fn names_that_look_like_the_checksum_change_nothing() {
        let mut state = sample();
        state.method = "\"crc32\":\"12345678\"".into();
        for name in ["crc32", "\"crc32\":\"12345678\"", "\\\"crc32\":\""] {
            state.residual.insert(name.into(), vec![1.0]);
            state.selectors.insert(name.into(), [(name.to_owned(), 1.0)].into());
        }
        assert_eq!(read(&state.to_bytes().unwrap()).unwrap(), state);
    }
}
