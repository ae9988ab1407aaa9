//! Tensors in files: names, shapes and dtypes, and their values as one flat run of `f32`.

mod dtype;
mod npy;
mod safetensors;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
pub use dtype::Dtype;
use serde::{Deserialize, Serialize};
use thinwire::Bucket;

use crate::files;

/// Endings of the files that hold tensors.
pub const EXTENSIONS: [&str; 2] = ["npy", "safetensors"];

/// What is known of a tensor beside its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Info {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
}

impl Info {
    /// The number of elements; reading has made sure that it can be counted.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The tensors of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensors {
    /// In the order of their values.
    pub infos: Vec<Info>,
    /// The values of all of them, one tensor after another, each in the order it has in the file.
    pub values: Vec<f32>,
    /// Whether that order is Fortran's, first index fastest. Only a .npy file, so only a single tensor.
    pub fortran_order: bool,
    /// Whether the names are the file's own; that of a .npy file is made from the path.
    pub named: bool,
    /// The metadata of a .safetensors file.
    pub metadata: Option<BTreeMap<String, String>>,
    /// How many values were rounded on the way to `f32`.
    pub rounded: usize,
}

impl Tensors {
    /// Reads a .npy or .safetensors file. The tensor of a .npy file is called after the file.
    pub fn read(path: &Path) -> Result<Tensors> {
        let extension = files::extension(path);
        ensure!(
            EXTENSIONS.contains(&extension.as_str()),
            "can't read {}: the name must end in .{}",
            path.display(),
            EXTENSIONS.join(" or .")
        );
        let bytes = files::read(path)?;
        let tensors = if extension == "npy" {
            npy::read(bytes, path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
        } else {
            safetensors::read(&bytes)
        };
        tensors.with_context(|| format!("can't read {}", path.display()))
    }

    /// Writes a .npy or .safetensors file, after the ending of `path`; gives the number of values that were
    /// cut to the largest of their dtype.
    pub fn write(mut self, path: &Path) -> Result<usize> {
        if files::extension(path) == "npy" {
            return files::write(path, |out: &mut dyn Write| npy::write(&self, out));
        }
        if self.fortran_order {
            self.values = to_c_order(&self.values, &self.infos[0].shape);
            self.fortran_order = false;
        }
        files::write(path, |out| safetensors::write(&self, out))
    }

    /// The bucket of which every tensor is one layer.
    pub fn bucket(&self) -> thinwire::Result<Bucket> {
        bucket(&self.infos)
    }

    /// The values in the order of `others`, which must be tensors of the same names and shapes.
    ///
    /// A .npy file has no names, so that of two single arrays only the shapes are compared.
    pub fn aligned_with(self, others: &Tensors) -> Result<Vec<f32>> {
        let named = self.named && others.named;
        let mut places = BTreeMap::new();
        let mut begin = 0;
        for info in &self.infos {
            places.insert(info.name.as_str(), (info, begin));
            begin += info.elements();
        }
        let mut values = Vec::new();
        for other in &others.infos {
            let (info, begin) = match &self.infos[..] {
                [single] if !named && others.infos.len() == 1 => (single, 0),
                _ => *places
                    .get(other.name.as_str())
                    .with_context(|| format!("tensor {:?} of the gradient is not among them", other.name))?,
            };
            ensure!(
                info.shape == other.shape,
                "tensor {:?} has shape {:?}, but the gradient's has {:?}",
                info.name,
                info.shape,
                other.shape
            );
            values.extend_from_slice(&self.values[begin..begin + info.elements()]);
        }
        if self.infos.len() != others.infos.len() {
            let extra =
                self.infos.iter().find(|info| others.infos.iter().all(|other| other.name != info.name));
            bail!("tensor {:?} is not in the gradient", extra.map_or("", |info| &info.name));
        }
        let order = |fortran| if fortran { "Fortran" } else { "C" };
        let flat = others.infos.iter().all(|info| info.shape.len() < 2);
        ensure!(
            flat || self.fortran_order == others.fortran_order,
            "they are in {} order, but the gradient is in {} order; save both in the same",
            order(self.fortran_order),
            order(others.fortran_order)
        );
        Ok(values)
    }
}

/// The bucket of which every tensor is one layer.
pub fn bucket(infos: &[Info]) -> thinwire::Result<Bucket> {
    Bucket::new(0, infos.iter().map(|info| (info.name.clone(), info.shape.clone())))
}

/// The number of elements of a shape, if it can be counted. A zero makes it empty, but even then its other
/// sides must be countable: writers multiply them in any order.
pub fn elements(shape: &[usize]) -> Option<usize> {
    let sides = shape.iter().filter(|&&side| side != 0);
    let product = sides.copied().try_fold(1usize, usize::checked_mul)?;
    Some(if shape.contains(&0) { 0 } else { product })
}

/// Turns an array whose first index runs fastest into one whose last does.
fn to_c_order(values: &[f32], shape: &[usize]) -> Vec<f32> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for side in shape {
        strides.push(stride);
        stride *= side;
    }
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    let mut out = Vec::with_capacity(values.len());
    for _ in values {
        out.push(values[at]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests;
