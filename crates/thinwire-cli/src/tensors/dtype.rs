//! The kinds of floats a file may hold. The engine works on `f32`.

use std::io::Write;

use anyhow::{Result, ensure};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// A kind of float, named as in safetensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Dtype {
    F16,
    Bf16,
    F32,
    F64,
}

/// Values that are converted at a time.
const PIECE: usize = 1 << 14;

impl Dtype {
    pub const ALL: [Dtype; 4] = [Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64];

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F32 => 4,
            Dtype::F64 => 8,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Dtype::F16 => "F16",
            Dtype::Bf16 => "BF16",
            Dtype::F32 => "F32",
            Dtype::F64 => "F64",
        }
    }

    /// Appends little-endian `bytes` to `values`; gives the number of elements that had to be rounded.
    pub fn read(self, bytes: &[u8], values: &mut Vec<f32>) -> Result<usize> {
        match self {
            Dtype::F16 => {
                values.extend(bytes.as_chunks().0.iter().map(|&two| f16::from_le_bytes(two).to_f32()))
            }
            Dtype::Bf16 => {
                values.extend(bytes.as_chunks().0.iter().map(|&two| bf16::from_le_bytes(two).to_f32()));
            }
            Dtype::F32 => values.extend(bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four))),
            Dtype::F64 => return read_f64(bytes, values),
        }
        Ok(0)
    }

    /// Writes `values` as little-endian bytes; gives the number that were too large and were cut to the
    /// largest there is.
    pub fn write(self, values: &[f32], out: &mut dyn Write) -> Result<usize> {
        let mut clipped = 0;
        let mut bytes = Vec::with_capacity(PIECE * self.size());
        for piece in values.chunks(PIECE) {
            bytes.clear();
            match self {
                Dtype::F16 => bytes.extend(piece.iter().flat_map(|&value| {
                    let narrow = f16::from_f32(value);
                    let beyond = narrow.is_infinite() && value.is_finite();
                    clipped += usize::from(beyond);
                    if beyond { f16::MAX.copysign(narrow) } else { narrow }.to_le_bytes()
                })),
                Dtype::Bf16 => bytes.extend(piece.iter().flat_map(|&value| {
                    let narrow = bf16::from_f32(value);
                    let beyond = narrow.is_infinite() && value.is_finite();
                    clipped += usize::from(beyond);
                    if beyond { bf16::MAX.copysign(narrow) } else { narrow }.to_le_bytes()
                })),
                Dtype::F32 => bytes.extend(piece.iter().flat_map(|value| value.to_le_bytes())),
                Dtype::F64 => bytes.extend(piece.iter().flat_map(|&value| f64::from(value).to_le_bytes())),
            }
            out.write_all(&bytes)?;
        }
        Ok(clipped)
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

fn read_f64(bytes: &[u8], values: &mut Vec<f32>) -> Result<usize> {
    let mut rounded = 0;
    for (index, &eight) in bytes.as_chunks().0.iter().enumerate() {
        let wide = f64::from_le_bytes(eight);
        let value = wide as f32;
        // An infinity that was none in the file must not be blamed on the file.
        ensure!(
            value.is_finite() || !wide.is_finite(),
            "element {index} is {wide:e}, but the largest that can be compressed is {:e}",
            f32::MAX
        );
        rounded += usize::from(f64::from(value) != wide && wide.is_finite());
        values.push(value);
    }
    Ok(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_fit_come_back() {
        let values = [0.0, -0.0, 1.5, -2.0, 0.15625, f32::INFINITY];
        for dtype in Dtype::ALL {
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            assert_eq!(dtype.write(&values, &mut bytes).unwrap(), 0);
            assert_eq!(bytes.len(), values.len() * dtype.size());
            assert_eq!(dtype.read(&bytes, &mut back).unwrap(), 0);
            assert_eq!(
                back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
                values.map(f32::to_bits),
                "{dtype}"
            );
        }
    }

    #[test]
    fn what_is_too_large_is_cut_and_counted() {
        for (dtype, largest) in [(Dtype::F16, 65504.0), (Dtype::Bf16, bf16::MAX.to_f32())] {
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            assert_eq!(dtype.write(&[f32::MAX, -f32::MAX, 1.0], &mut bytes).unwrap(), 2);
            dtype.read(&bytes, &mut back).unwrap();
            assert_eq!(back, [largest, -largest, 1.0]);
        }
    }

    #[test]
    fn wide_floats_are_rounded_and_counted_or_refused() {
        let bytes = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut values = Vec::new();
        assert_eq!(Dtype::F64.read(&bytes(&[0.1, 0.5, 1e-300, f64::NAN]), &mut values).unwrap(), 2);
        assert_eq!((values[0], values[1], values[2]), (0.1, 0.5, 0.0));
        assert!(values[3].is_nan());
        let error = Dtype::F64.read(&bytes(&[1.0, -1e300]), &mut values).unwrap_err().to_string();
        assert!(error.starts_with("element 1 is -1e300"), "{error}");
    }

    #[test]
    fn names_are_those_of_safetensors() {
        for dtype in Dtype::ALL {
            assert_eq!(serde_json::to_string(&dtype).unwrap(), format!("{:?}", dtype.name()));
        }
    }
}
