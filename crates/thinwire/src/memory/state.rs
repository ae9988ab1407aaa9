//! Everything a run needs to go on with the same bits, by parameter name, in one safetensors file.
//!
//! Tensors are called `residual/NAME` and `momentum/NAME`. What selectors remember is in the file's metadata,
//! as the bits of each number, so that nothing is rounded on the way.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

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

const FORMAT: &str = "thinwire-state-1";

impl State {
    /// Writes the state to a temporary file beside `path` and renames it: the file is whole or not there.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = |action, reason: String| Error::Io { action, path: path.display().to_string(), reason };
        let bytes = self.to_bytes().map_err(|reason| failed("make", reason))?;
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = Path::new(&temporary);
        let written = std::fs::File::create(temporary).and_then(|mut file| {
            std::io::Write::write_all(&mut file, &bytes)?;
            file.sync_all()?;
            std::fs::rename(temporary, path)
        });
        written.map_err(|error| {
            // The error of the write is the one to report, whatever comes of tidying up.
            let _ = std::fs::remove_file(temporary);
            failed("write", error.to_string())
        })
    }

    /// Takes the layers and units of another bucket in.
    pub(crate) fn extend(&mut self, other: State) {
        self.method = other.method;
        self.residual.extend(other.residual);
        self.momentum.extend(other.momentum);
        self.selectors.extend(other.selectors);
    }

    /// Reads a state; a file that is damaged or of another kind is an error that names it.
    pub fn read(path: &Path) -> Result<State> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Error::Io {
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
            ("method".to_owned(), self.method.clone()),
            ("selectors".to_owned(), serde_json::to_string(&bits).map_err(|e| e.to_string())?),
            ("step".to_owned(), self.step.to_string()),
            ("epoch".to_owned(), self.epoch.to_bits().to_string()),
            ("rank".to_owned(), self.rank.to_string()),
            ("ranks".to_owned(), self.ranks.to_string()),
        ]);
        serialize(views, Some(metadata)).map_err(|e| e.to_string())
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
        if field("format") != FORMAT {
            return Err(bad("metadata format", format!("{:?}", field("format")), FORMAT));
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
}
