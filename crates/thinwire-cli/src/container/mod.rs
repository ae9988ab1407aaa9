//! The file `.tw`: one frame, with what is needed to turn it back into tensors.
//!
//! `docs/wire.md` gives the format. Nothing read is trusted: every length is checked against the bytes there
//! are, and every number of elements can be counted, before anything is made from it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use thinwire::Bucket;
use thinwire::codec::Frame;
use thinwire::kernels::Cpu;
use thinwire::method;
use thinwire::pipeline::{Aggregator, Recipe};

use crate::human;
use crate::tensors::{self, Info, Tensors};

/// What every file begins with.
const MAGIC: [u8; 8] = *b"THINWIRE";
/// The version this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes before the JSON header: magic, version, length of the header.
const FIXED_BYTES: usize = 16;

/// The JSON header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The program's version that wrote the file.
    pub thinwire: String,
    /// The method, as text that parses to it.
    pub method: String,
    /// Whether the one tensor's values are in Fortran order.
    pub fortran_order: bool,
    /// The tensors, in the order of their values.
    pub layers: Vec<Info>,
    /// The metadata of the .safetensors file they came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Header {
    /// The header of a file for these tensors, compressed by this method.
    pub fn new(method: &str, tensors: &Tensors) -> Header {
        Header {
            thinwire: env!("CARGO_PKG_VERSION").into(),
            method: method.into(),
            fortran_order: tensors.fortran_order,
            layers: tensors.infos.clone(),
            metadata: tensors.metadata.clone(),
        }
    }

    /// The beginning of a file; a frame must be appended to it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length =
            u32::try_from(json.len()).context("the names of the layers are too long for a .tw file")?;
        let mut bytes = Vec::with_capacity(FIXED_BYTES + json.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&json);
        Ok(bytes)
    }
}

/// A file that has been checked, up to what the frame's sections contain.
#[derive(Debug)]
pub struct Container<'a> {
    pub header: Header,
    pub recipe: Recipe,
    pub bucket: Bucket,
    pub frame: Frame<'a>,
    /// The frame as it is in the file.
    pub frame_bytes: &'a [u8],
}

impl<'a> Container<'a> {
    /// Checks a file. Takes memory in proportion to its header, not to the tensors it speaks of.
    pub fn parse(bytes: &'a [u8]) -> Result<Container<'a>> {
        let magic = &bytes[..bytes.len().min(MAGIC.len())];
        ensure!(
            bytes.starts_with(&MAGIC),
            "it is not a .tw file: it begins with {:?}; expected {:?}",
            String::from_utf8_lossy(magic),
            String::from_utf8_lossy(&MAGIC)
        );
        let number =
            |at: usize| bytes.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().expect("four")));
        let ends = "it is damaged: it ends inside its header";
        let version = number(8).context(ends)?;
        ensure!(
            version == VERSION,
            "it is of format version {version}; this program reads version {VERSION}"
        );
        let length = number(12).context(ends)? as usize;
        let left = bytes.len() - FIXED_BYTES;
        ensure!(length <= left, "{ends}: {length} bytes needed, {left} left");
        let (json, frame_bytes) = bytes[FIXED_BYTES..].split_at(length);
        let header: Header =
            serde_json::from_slice(json).context("it is damaged: its header is not as expected")?;
        check_layers(&header)?;
        let recipe = method::parse(&header.method).context("its method is not one of this program's")?;
        let bucket = tensors::bucket(&header.layers).context("it is damaged: its layers can't be right")?;
        let frame = Frame::parse(frame_bytes).context("it is damaged")?;
        let elements = frame.header().elements as usize;
        ensure!(
            elements == bucket.len(),
            "it is damaged: its layers have {} elements, but its frame has {elements}",
            bucket.len()
        );
        Ok(Container { header, recipe, bucket, frame, frame_bytes })
    }

    /// The bytes the tensors will take in their own dtypes.
    pub fn output_bytes(&self) -> u64 {
        self.header.layers.iter().map(|info| info.elements() as u64 * info.dtype.size() as u64).sum()
    }

    /// Refuses a file that would grow beyond `limit` bytes.
    pub fn check_limit(&self, limit: u64) -> Result<()> {
        let bytes = self.output_bytes();
        ensure!(
            bytes <= limit,
            "its tensors would take {bytes} bytes ({}), but the limit is {limit} ({}); a higher one can be given \
             with --limit",
            human::bytes(bytes),
            human::bytes(limit)
        );
        Ok(())
    }

    /// The values, as a receiver of the frame would have them.
    pub fn values(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.bucket.len()];
        let mut aggregator = Aggregator::new(&self.recipe, self.bucket.clone())?;
        aggregator.sum(&mut Cpu::new(1), [self.frame_bytes], None, 1.0, &mut values)?;
        Ok(values)
    }

    /// The tensors.
    pub fn tensors(self) -> Result<Tensors> {
        let values = self.values().context("it is damaged")?;
        let Header { fortran_order, layers: infos, metadata, .. } = self.header;
        Ok(Tensors { infos, values, fortran_order, named: true, metadata, rounded: 0 })
    }
}

/// What the header says of the layers must make sense by itself; the bucket checks the rest.
fn check_layers(header: &Header) -> Result<()> {
    for info in &header.layers {
        let (name, shape) = (&info.name, &info.shape);
        tensors::elements(shape).with_context(|| {
            format!("it is damaged: layer {name:?} has shape {shape:?}, which is too large")
        })?;
    }
    ensure!(
        !header.fortran_order || header.layers.len() == 1,
        "it is damaged: it is in Fortran order and has {} layers; expected one",
        header.layers.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
