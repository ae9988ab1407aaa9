//! Files of named tensors of 32-bit floats, written whole or not at all.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use thinwire::files::{self, Access};

use super::manifest::FileRecord;
use super::{bad, elements};
use crate::{Error, Result};

/// A tensor to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub shape: &'a [usize],
    pub values: &'a [f32],
}

/// A tensor that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owned {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// Writes a file: it is whole or not there.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    files::replace(path, Access::Default, bytes).map_err(|error| Error::io("write", path, &error))
}

/// Refuses values that a reader would refuse.
pub(super) fn check_finite(path: &Path, name: &str, values: &[f32]) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(bad(path, name, format!("{} at element {at}", values[at]), "finite values")),
        None => Ok(()),
    }
}

/// Writes a file of tensors.
pub(super) fn write(
    path: &Path,
    format: &str,
    entries: &[(&str, String)],
    tensors: &BTreeMap<String, View<'_>>,
) -> Result<()> {
    let mut data = Vec::new();
    for (name, tensor) in tensors {
        check_finite(path, name, tensor.values)?;
        let mut bytes = Vec::with_capacity(tensor.values.len() * 4);
        tensor.values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        data.push((name, tensor.shape, bytes));
    }
    let mut views = Vec::new();
    for (name, shape, bytes) in &data {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes).map_err(|error| {
            bad(path, name.as_str(), error.to_string(), "as many values as the shape has")
        })?;
        views.push((name.as_str(), view));
    }
    let mut metadata = HashMap::from([("format".to_owned(), format.to_owned())]);
    metadata.extend(entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let bytes = serialize(views, Some(metadata))
        .map_err(|error| bad(path, "the tensors", error.to_string(), "tensors of a checkpoint"))?;
    write_whole(path, &bytes)
}

/// Length and CRC-32 of a file that is there.
pub(super) fn record(path: &Path, name: String) -> Result<FileRecord> {
    let bytes = files::read_trusted(path).map_err(|error| Error::io("read", path, &error))?;
    Ok(FileRecord { name, length: bytes.len() as u64, crc32: crc32fast::hash(&bytes) })
}

/// Reads a file that must be the one on record.
pub(super) fn read_recorded(folder: &Path, expected: &FileRecord) -> Result<Vec<u8>> {
    let path = &folder.join(&expected.name);
    let length = std::fs::metadata(path).map_err(|error| Error::io("read", path, &error))?.len();
    if length != expected.length {
        return Err(bad(path, "length", format!("{length} bytes"), format!("{} bytes", expected.length)));
    }
    let bytes = files::read_trusted(path).map_err(|error| Error::io("read", path, &error))?;
    let crc32 = crc32fast::hash(&bytes);
    if crc32 != expected.crc32 {
        return Err(bad(path, "CRC-32", format!("{crc32:08x}"), format!("{:08x}", expected.crc32)));
    }
    Ok(bytes)
}

/// The metadata and the tensors of a file.
pub(super) fn parse(
    path: &Path,
    format: &str,
    bytes: &[u8],
) -> Result<(HashMap<String, String>, BTreeMap<String, Owned>)> {
    let (_, header) = SafeTensors::read_metadata(bytes)
        .map_err(|error| bad(path, "the header", error.to_string(), "a safetensors file"))?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let found = metadata.get("format").map_or("none", String::as_str);
    if found != format {
        return Err(bad(path, "metadata format", format!("{found:?}"), format!("{format:?}")));
    }
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| bad(path, "the tensors", error.to_string(), "a whole safetensors file"))?;
    let mut tensors = BTreeMap::new();
    for (name, tensor) in file.tensors() {
        if tensor.dtype() != Dtype::F32 {
            return Err(bad(path, name, format!("{:?}", tensor.dtype()), "F32"));
        }
        let (values, _) = tensor.data().as_chunks();
        let values: Vec<f32> = values.iter().map(|four| f32::from_le_bytes(*four)).collect();
        if elements(tensor.shape()) != Some(values.len()) {
            let found = format!("{} values in shape {:?}", values.len(), tensor.shape());
            return Err(bad(path, name, found, "as many as the shape has"));
        }
        check_finite(path, &name, &values)?;
        tensors.insert(name, Owned { shape: tensor.shape().to_vec(), values });
    }
    Ok((metadata, tensors))
}
