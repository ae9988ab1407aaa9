//! Files go in, come back, and are what they were: names, shapes, dtypes, order.

mod common;

use common::*;
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors};
use serde_json::Value;

/// The methods that compress by themselves, each with whether it needs the weights.
fn method_names(folder: &Folder) -> Vec<(String, bool)> {
    let methods = folder.json("methods");
    let entry = |method: &Value| {
        (method["name"].as_str().unwrap().to_owned(), method["needs_weights"].as_bool().unwrap())
    };
    let alone = |method: &&Value| !method["needs_ranks"].as_bool().unwrap();
    methods["methods"].as_array().unwrap().iter().filter(alone).map(entry).collect()
}

#[test]
fn every_method_round_trips_an_npy_file() {
    let folder = Folder::new();
    let values = gradient(5_000, 1);
    folder.write("g.npy", npy_f32(&[50, 100], &values));
    folder.write("w.npy", npy_f32(&[50, 100], &gradient(5_000, 2)));
    let norm = distance(&values, &vec![0.0; values.len()]);
    let methods = method_names(&folder);
    assert!(methods.len() >= 10 && methods.iter().any(|(name, needs)| name == "iwp" && *needs));
    for (name, needs_weights) in methods {
        let weights = if needs_weights { "--weights w.npy" } else { "" };
        let report = folder.json(&format!("compress g.npy -o {name}.tw --method {name} {weights}"));
        assert_eq!(
            (report["elements"].as_u64(), report["method"].as_str()),
            (Some(5_000), Some(name.as_str()))
        );
        let back = folder.json(&format!("decompress {name}.tw -o {name}.npy"));
        assert_eq!(back["tensors"], 1);

        let (header, data) = split_npy(&folder.read(&format!("{name}.npy")));
        assert!(header.contains("'<f4'") && header.contains("(50, 100, )"), "{header}");
        let restored = floats(&data);
        let error = distance(&values, &restored) / norm;
        assert!((error - report["relative_error"].as_f64().unwrap()).abs() < 1e-6, "{name}");
        assert!(error <= 1.0 + 1e-6, "{name} makes the gradient worse than nothing: {error}");
        assert!(restored.iter().any(|&value| value != 0.0), "{name}");
        let sent = report["kept"].as_u64().unwrap() + report["dense"].as_u64().unwrap();
        let inspected = folder.json(&format!("inspect {name}.tw"));
        assert_eq!(inspected["totals"]["count"].as_u64(), Some(sent), "{name}");
        assert_eq!(inspected["totals"]["file_bytes"], report["file_bytes"], "{name}");
    }
}

#[test]
fn every_method_round_trips_several_layers() {
    let folder = Folder::new();
    let file = |seed| {
        safetensors(&[
            ("conv.weight", Dtype::F32, &[8, 3, 3, 3], bytes(&gradient(216, seed))),
            ("conv.bias", Dtype::F32, &[8], bytes(&gradient(8, seed + 1))),
            ("empty", Dtype::F32, &[0, 5], vec![]),
            ("scale", Dtype::F32, &[], bytes(&[0.25])),
            ("fc.weight", Dtype::F32, &[40, 50], bytes(&gradient(2_000, seed + 2))),
        ])
    };
    folder.write("g.safetensors", file(1));
    folder.write("w.safetensors", file(9));
    let names = ["conv.weight", "conv.bias", "empty", "scale", "fc.weight"];
    for (name, needs_weights) in method_names(&folder) {
        let weights = if needs_weights { "--weights w.safetensors" } else { "" };
        let report = folder.json(&format!("compress g.safetensors -o g.tw --method {name} {weights}"));
        folder.text("decompress g.tw -o back.safetensors");
        let (before, after) = (folder.read("g.safetensors"), folder.read("back.safetensors"));
        let (one, other) =
            (SafeTensors::deserialize(&before).unwrap(), SafeTensors::deserialize(&after).unwrap());
        assert_eq!(other.len(), names.len());
        for tensor in names {
            assert_eq!(one.tensor(tensor).unwrap().shape(), other.tensor(tensor).unwrap().shape(), "{name}");
        }
        // What each layer has adds up to what the sections have.
        let inspected = folder.json("inspect g.tw");
        let sum = |list: &str, field: &str| -> u64 {
            inspected[list].as_array().unwrap().iter().map(|entry| entry[field].as_u64().unwrap()).sum()
        };
        for field in ["count", "index_bytes", "value_bytes"] {
            assert_eq!(sum("layers", field), sum("sections", field), "{name} {field}");
        }
        assert_eq!(sum("layers", "value_bytes"), report["value_bytes"].as_u64().unwrap(), "{name}");
    }
}

#[test]
fn dense_restores_bit_for_bit() {
    let folder = Folder::new();
    let f64s: Vec<u8> = [0.5f64, -3.0, 1e-3f32.into()].iter().flat_map(|value| value.to_le_bytes()).collect();
    let f16s: Vec<u8> =
        [1.5f32, -0.1, 6e4].iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
    let bf16s: Vec<u8> =
        [1.5f32, -0.1, 1e38].iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect();
    let extremes = [f32::MAX, f32::MIN_POSITIVE, 1e-45, -1.0];
    folder.write(
        "g.safetensors",
        safetensors(&[
            ("double", Dtype::F64, &[3], f64s),
            ("single", Dtype::F32, &[2, 2], bytes(&extremes)),
            ("half", Dtype::F16, &[3], f16s),
            ("brain", Dtype::BF16, &[3, 1], bf16s),
        ]),
    );
    let report = folder.json("compress g.safetensors -o g.tw --method dense");
    assert_eq!((report["relative_error"].as_f64(), report["rounded"].as_u64()), (Some(0.0), Some(0)));
    folder.text("decompress g.tw -o back.safetensors");
    assert_eq!(folder.read("g.safetensors"), folder.read("back.safetensors"));
}

#[test]
fn metadata_and_the_order_of_the_data_are_kept() {
    let folder = Folder::new();
    // In an order the library would not write: short before long, "b" before "a".
    let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let padded = format!("{header:width$}", width = header.len().next_multiple_of(8));
    let file = [&(padded.len() as u64).to_le_bytes()[..], padded.as_bytes(), &bytes(&[1.0, 2.0])].concat();
    folder.write("g.safetensors", &file);
    folder.text("compress g.safetensors -o g.tw --method dense");
    folder.text("decompress g.tw -o back.safetensors");
    assert_eq!(folder.read("back.safetensors"), file);
}

#[test]
fn npy_files_keep_dtype_and_fortran_order() {
    let folder = Folder::new();
    let halves: Vec<u8> = (0..6).flat_map(|i| f16::from_f32(i as f32).to_le_bytes()).collect();
    let doubles: Vec<u8> = (0..6).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    for (descriptor, data) in [("<f2", halves), ("<f8", doubles), ("<f4", bytes(&[0., 1., 2., 3., 4., 5.]))] {
        for fortran_order in [false, true] {
            folder.write("g.npy", npy(descriptor, fortran_order, &[2, 3], &data));
            folder.text("compress g.npy -o g.tw --method dense");
            folder.text("decompress g.tw -o back.npy");
            let (header, back) = split_npy(&folder.read("back.npy"));
            assert!(header.contains(&format!("'{descriptor}'")) && header.contains("(2, 3, )"), "{header}");
            let order = if fortran_order { "True" } else { "False" };
            assert!(header.contains(&format!("'fortran_order': {order}")), "{header}");
            assert_eq!(back, data);
        }
    }
    // The other format knows one order only: the array is the same, its bytes are not.
    folder.text("decompress g.tw -o back.safetensors");
    assert_eq!(tensor(&folder.read("back.safetensors"), "g"), [0., 2., 4., 1., 3., 5.]);
}

#[test]
fn big_endian_arrays_are_read() {
    let folder = Folder::new();
    let data: Vec<u8> = [1.5f64, -2.0].iter().flat_map(|value| value.to_be_bytes()).collect();
    folder.write("g.npy", npy(">f8", false, &[2], &data));
    folder.text("compress g.npy -o g.tw --method dense");
    folder.text("decompress g.tw -o back.safetensors");
    let file = folder.read("back.safetensors");
    let tensors = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.tensor("g").unwrap().data(), [1.5f64, -2.0].map(f64::to_le_bytes).as_flattened());
}

#[test]
fn scalars_and_empty_arrays_work_with_every_method() {
    let folder = Folder::new();
    for (shape, values) in [(&[][..], &[0.5f32][..]), (&[0], &[]), (&[3, 0, 2], &[])] {
        folder.write("g.npy", npy_f32(shape, values));
        for (name, needs_weights) in method_names(&folder) {
            let weights = if needs_weights { "--weights g.npy" } else { "" };
            folder.text(&format!("compress g.npy -o g.tw --method {name} {weights}"));
            folder.text("inspect g.tw");
            folder.text("decompress g.tw -o back.npy");
            let (header, data) = split_npy(&folder.read("back.npy"));
            let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
            assert!(header.contains(&format!("'shape': ({sides})")), "{header}");
            assert_eq!(data.len(), 4 * values.len());
        }
    }
    folder.write("none.safetensors", safetensors(&[]));
    folder.text("compress none.safetensors -o g.tw");
    folder.text("inspect g.tw");
    folder.text("decompress g.tw -o back.safetensors");
    assert_eq!(SafeTensors::deserialize(&folder.read("back.safetensors")).unwrap().len(), 0);
}

#[test]
fn conversions_that_lose_something_are_told() {
    let folder = Folder::new();
    let doubles: Vec<u8> = [0.1f64, 0.5, 0.2].iter().flat_map(|value| value.to_le_bytes()).collect();
    folder.write("g.npy", npy("<f8", false, &[3], &doubles));
    let text = folder.text("compress g.npy -o g.tw --method dense");
    assert!(text.contains("2 values from F64 to F32"), "{text}");
    assert_eq!(folder.json("compress g.npy -o g.tw --method dense")["rounded"], 2);
    // What was kept of two steps adds up to more than a half can hold.
    for values in [[6e4f32, 4e4], [0.0, 4e4]] {
        let halves = values.map(|value| f16::from_f32(value).to_le_bytes()).concat();
        folder.write("h.npy", npy("<f2", false, &[2], &halves));
        folder.text("compress h.npy -o h.tw --density 1/2 --state s");
    }
    assert_eq!(folder.json("decompress h.tw -o back.npy")["clipped"], 1);
    assert_eq!(split_npy(&folder.read("back.npy")).1, [f16::ZERO, f16::MAX].map(f16::to_le_bytes).concat());
}
