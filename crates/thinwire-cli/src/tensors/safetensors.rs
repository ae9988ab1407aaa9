//! `.safetensors`: named tensors, in the order of their data.

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as FileDtype, Metadata, TensorInfo};

use super::{Dtype, Info, Tensors};

/// The name under which the format keeps the file's own metadata.
const RESERVED: &str = "__metadata__";

/// All tensors in `bytes`.
pub fn read(bytes: &[u8]) -> Result<Tensors> {
    let (length, header) = SafeTensors::read_metadata(bytes).context("it is not a good .safetensors file")?;
    let data = &bytes[size_of::<u64>() + length..];
    let tensors = header.tensors();
    let mut sorted: Vec<(&String, &&TensorInfo)> = tensors.iter().collect();
    // By name too: tensors without elements share their place with a neighbour.
    sorted.sort_by_key(|(name, info)| (info.data_offsets, *name));
    let mut infos = Vec::with_capacity(sorted.len());
    let mut values = Vec::new();
    let mut rounded = 0;
    for (name, info) in sorted {
        let dtype = dtype(info.dtype).with_context(|| {
            format!("tensor {name:?} is of dtype {}; expected F32, F64, F16 or BF16", info.dtype)
        })?;
        let (begin, end) = info.data_offsets;
        rounded +=
            dtype.read(&data[begin..end], &mut values).with_context(|| format!("in tensor {name:?}"))?;
        infos.push(Info { name: name.clone(), shape: info.shape.clone(), dtype });
    }
    let metadata = header.metadata().clone().map(|entries| entries.into_iter().collect());
    Ok(Tensors { infos, values, fortran_order: false, named: true, metadata, rounded })
}

/// Writes the tensors, with their data in the order they have here; gives the number of values that were cut
/// to the largest of their dtype.
///
/// The library's own `serialize` would sort them anew. Kept in order, a file has the alignment it had, and
/// compressing it again gives the same bucket.
pub fn write(tensors: &Tensors, out: &mut dyn Write) -> Result<usize> {
    let mut entries = Vec::with_capacity(tensors.infos.len());
    let mut offset = 0;
    for info in &tensors.infos {
        ensure!(info.name != RESERVED, "a .safetensors file can't hold a tensor called {RESERVED:?}");
        let end = offset + info.elements() * info.dtype.size();
        let dtype = file_dtype(info.dtype);
        entries.push((
            info.name.clone(),
            TensorInfo { dtype, shape: info.shape.clone(), data_offsets: (offset, end) },
        ));
        offset = end;
    }
    let metadata = tensors.metadata.clone().map(|entries| entries.into_iter().collect::<HashMap<_, _>>());
    let mut header = serde_json::to_vec(&Metadata::new(metadata, entries)?)?;
    // The format asks for data that begin at a multiple of eight.
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    let mut rest = &tensors.values[..];
    let mut clipped = 0;
    for info in &tensors.infos {
        let (values, behind) = rest.split_at(info.elements());
        clipped += info.dtype.write(values, out)?;
        rest = behind;
    }
    Ok(clipped)
}

fn dtype(found: FileDtype) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|&dtype| file_dtype(dtype) == found)
}

fn file_dtype(dtype: Dtype) -> FileDtype {
    match dtype {
        Dtype::F16 => FileDtype::F16,
        Dtype::Bf16 => FileDtype::BF16,
        Dtype::F32 => FileDtype::F32,
        Dtype::F64 => FileDtype::F64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Tensors {
        let info =
            |name: &str, shape: &[usize], dtype| Info { name: name.into(), shape: shape.to_vec(), dtype };
        Tensors {
            infos: vec![
                info("z", &[2, 2], Dtype::F64),
                info("empty", &[0, 4], Dtype::F32),
                info("a", &[], Dtype::F32),
                info("m", &[3], Dtype::Bf16),
                info("h", &[1], Dtype::F16),
            ],
            values: (0..9).map(|i| i as f32 - 4.0).collect(),
            fortran_order: false,
            named: true,
            metadata: Some([("format".to_owned(), "pt".to_owned())].into_iter().collect()),
            rounded: 0,
        }
    }

    #[test]
    fn tensors_come_back_in_their_order() {
        let mut bytes = Vec::new();
        assert_eq!(write(&sample(), &mut bytes).unwrap(), 0);
        assert_eq!(read(&bytes).unwrap(), sample());
    }

    #[test]
    fn a_file_without_tensors_is_a_file() {
        let none = Tensors { infos: vec![], values: vec![], ..sample() };
        let mut bytes = Vec::new();
        write(&none, &mut bytes).unwrap();
        assert_eq!(read(&bytes).unwrap(), none);
    }

    #[test]
    fn other_dtypes_are_named() {
        let info = TensorInfo { dtype: FileDtype::I64, shape: vec![1], data_offsets: (0, 8) };
        let header = serde_json::to_vec(&Metadata::new(None, vec![("steps".into(), info)]).unwrap()).unwrap();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &[0; 8]].concat();
        let message = format!("{:#}", read(&bytes).unwrap_err());
        assert!(message.contains("tensor \"steps\" is of dtype I64; expected F32"), "{message}");
    }

    #[test]
    fn a_reserved_name_is_refused() {
        let mut tensors = sample();
        tensors.infos[0].name = RESERVED.into();
        assert!(write(&tensors, &mut Vec::new()).unwrap_err().to_string().contains(RESERVED));
    }

    #[test]
    fn truncations_are_errors() {
        let mut bytes = Vec::new();
        write(&sample(), &mut bytes).unwrap();
        for cut in 0..bytes.len() {
            read(&bytes[..cut]).unwrap_err();
        }
    }
}
