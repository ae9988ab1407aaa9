//! `.npy`: one array, in C or Fortran order.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, TypeStr, WriteOptions, WriterBuilder};

use super::{Dtype, Info, Tensors};

/// The longest header numpy itself accepts without being told to.
const HEADER_LIMIT: usize = 10_000;

/// The array in `bytes`, as one tensor called `name`, in the order of the file.
pub fn read(mut bytes: Vec<u8>, name: String) -> Result<Tensors> {
    check_header(&bytes)?;
    let mut rest = &bytes[..];
    let header = NpyHeader::from_reader(&mut rest).context("it is not a good .npy file")?;
    let begin = bytes.len() - rest.len();
    let (dtype, endianness) = dtype(&header.dtype())?;
    let sides = header.shape().iter().map(|&side| usize::try_from(side));
    let shape: Vec<usize> = sides.collect::<Result<_, _>>().context("the shape is too large")?;
    let elements = super::elements(&shape).context("the shape is too large")?;
    let (needed, found) = (elements.saturating_mul(dtype.size()), bytes.len() - begin);
    ensure!(
        needed == found,
        "shape {shape:?} of {dtype} needs {needed} bytes of data, but the file has {found}"
    );
    let data = &mut bytes[begin..];
    if endianness == Endianness::Big {
        data.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    let mut values = Vec::with_capacity(elements);
    let rounded = dtype.read(data, &mut values)?;
    Ok(Tensors {
        infos: vec![Info { name, shape, dtype }],
        values,
        fortran_order: header.order() == Order::Fortran,
        named: false,
        metadata: None,
        rounded,
    })
}

/// Writes the one tensor there is; gives the number of values that were cut to the largest of its dtype.
pub fn write(tensors: &Tensors, out: &mut dyn Write) -> Result<usize> {
    let [Info { shape, dtype, .. }] = &tensors.infos[..] else {
        bail!(
            "a .npy file holds one tensor, but there are {}; write a .safetensors file",
            tensors.infos.len()
        );
    };
    let descriptor = match dtype {
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
        Dtype::Bf16 => bail!("a .npy file can't hold BF16; write a .safetensors file"),
    };
    let kind: TypeStr = descriptor.parse().expect("a type of numpy");
    let sides: Vec<u64> = shape.iter().map(|&side| side as u64).collect();
    let order = if tensors.fortran_order { Order::Fortran } else { Order::C };
    let options = WriteOptions::new_header_only().order(order).dtype(DType::Plain(kind)).shape(&sides);
    options.writer(&mut *out).write_header_only()?;
    dtype.write(&tensors.values, out)
}

/// Looks at the header before the parser does: it takes memory by the length that stands there, stack by the
/// depth of the brackets, and multiplies the shape without looking.
fn check_header(bytes: &[u8]) -> Result<()> {
    ensure!(bytes.starts_with(b"\x93NUMPY"), "it is not a .npy file: it does not begin with \\x93NUMPY");
    let length = match bytes.get(6) {
        Some(1) => bytes.get(8..10).map(|two| (10, usize::from(u16::from_le_bytes([two[0], two[1]])))),
        _ => bytes
            .get(8..12)
            .map(|four| (12, u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize)),
    };
    let (begin, length) = length.context("the file ends inside its header")?;
    ensure!(length <= HEADER_LIMIT, "its header has {length} bytes; expected at most {HEADER_LIMIT}");
    let header = bytes.get(begin..begin + length).context("the file ends inside its header")?;
    // A plain array has two, of the dictionary and of the shape.
    let brackets = header.iter().filter(|byte| b"([{".contains(byte)).count();
    ensure!(brackets <= 2, "its elements are records; expected plain floats (f2, f4 or f8)");
    let after_bracket = header.rsplit(|byte| b"([".contains(byte)).next().unwrap_or_default();
    let sides = after_bracket.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let numbers = sides.map(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
    let countable = numbers.collect::<Option<Vec<_>>>().and_then(|shape| super::elements(&shape));
    countable.context("the shape is too large")?;
    Ok(())
}

fn dtype(found: &DType) -> Result<(Dtype, Endianness)> {
    if let DType::Plain(kind) = found
        && kind.type_char() == TypeChar::Float
    {
        let dtype = match kind.size_field() {
            2 => Some(Dtype::F16),
            4 => Some(Dtype::F32),
            8 => Some(Dtype::F64),
            _ => None,
        };
        if let Some(dtype) = dtype {
            return Ok((dtype, kind.endianness()));
        }
    }
    bail!("its elements are {}; expected floats (f2, f4 or f8)", found.descr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn described(descriptor: &str, shape: &str) -> String {
        format!("{{'descr': '{descriptor}', 'fortran_order': False, 'shape': {shape}, }}\n")
    }

    #[test]
    fn orders_shapes_and_dtypes_come_back() {
        for (shape, fortran_order) in
            [(vec![], false), (vec![0, 3], true), (vec![2, 3], true), (vec![2, 3], false), (vec![6], false)]
        {
            for dtype in [Dtype::F16, Dtype::F32, Dtype::F64] {
                let elements: usize = shape.iter().product();
                let tensors = Tensors {
                    infos: vec![Info { name: "g".into(), shape: shape.clone(), dtype }],
                    values: (0..elements).map(|i| i as f32 - 1.5).collect(),
                    fortran_order,
                    named: false,
                    metadata: None,
                    rounded: 0,
                };
                let mut bytes = Vec::new();
                assert_eq!(write(&tensors, &mut bytes).unwrap(), 0);
                assert_eq!((bytes.len() - elements * dtype.size()) % 64, 0, "numpy aligns the data");
                assert_eq!(read(bytes, "g".into()).unwrap(), tensors);
            }
        }
    }

    #[test]
    fn big_endian_is_read() {
        let data: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|value| value.to_be_bytes()).collect();
        let tensors = read(file(&described(">f4", "(2,)"), &data), "g".into()).unwrap();
        assert_eq!((tensors.values, tensors.infos[0].dtype), (vec![1.5, -2.0], Dtype::F32));
    }

    #[test]
    fn what_is_no_float_array_is_named() {
        let message = |bytes: Vec<u8>| format!("{:#}", read(bytes, "g".into()).unwrap_err());
        assert!(message(file(&described("<i8", "(1,)"), &[0; 8])).contains("'<i8'"));
        assert!(message(file(&described("<c8", "(1,)"), &[0; 8])).contains("'<c8'"));
        assert!(
            message(file(&described("<f4", "(2,)"), &[0; 7]))
                .contains("needs 8 bytes of data, but the file has 7")
        );
        assert!(message(file(&described("<f4", "(1,)"), &[0; 8])).contains("needs 4 bytes"));
        assert!(
            message(file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", &[]))
                .contains("records")
        );
        assert!(message(file(&"(".repeat(9_000), &[])).contains("records"));
        for shape in ["(4294967296, 4294967296)", "(0, 4294967296, 4294967296)", "(99999999999999999999,)"] {
            assert!(
                message(file(&described("<f4", shape), &[])).contains("the shape is too large"),
                "{shape}"
            );
        }
        assert!(message(b"PK\x03\x04".to_vec()).contains("NUMPY"));
        assert!(message(b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec()).contains("at most 10000"));
        let good = file(&described("<f4", "(2,)"), &[0; 8]);
        for cut in 0..good.len() {
            read(good[..cut].to_vec(), "g".into()).unwrap_err();
        }
    }
}
