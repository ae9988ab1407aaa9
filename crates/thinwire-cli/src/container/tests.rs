use thinwire::kernels::Cpu;
use thinwire::pipeline::{Compressor, Input};

use super::*;
use crate::tensors::Dtype;

fn sample(method: &str) -> Vec<u8> {
    let info = |name: &str, shape: &[usize], dtype| Info { name: name.into(), shape: shape.to_vec(), dtype };
    let tensors = Tensors {
        infos: vec![
            info("w", &[4, 8], Dtype::F32),
            info("none", &[0], Dtype::F64),
            info("b", &[8], Dtype::Bf16),
        ],
        values: (0..40).map(|i| ((i * 7 % 13) as f32 - 6.0) / 4.0).collect(),
        fortran_order: false,
        named: true,
        metadata: Some([("format".to_owned(), "pt".to_owned())].into_iter().collect()),
        rounded: 0,
    };
    let recipe = method::parse(method).unwrap();
    let mut bytes = Header::new(&recipe.spec, &tensors).to_bytes().unwrap();
    let mut compressor = Compressor::new(recipe, tensors.bucket().unwrap()).unwrap();
    compressor.compress(&mut Cpu::new(1), &Input::new(&tensors.values), &mut bytes).unwrap();
    bytes
}

/// The sample with another JSON header, whose length is right.
fn with_header(change: impl Fn(&str) -> String) -> Vec<u8> {
    let bytes = sample("topk:density=0.1");
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let json = change(std::str::from_utf8(&bytes[16..16 + length]).unwrap());
    [&bytes[..12], &(json.len() as u32).to_le_bytes(), json.as_bytes(), &bytes[16 + length..]].concat()
}

fn message(bytes: &[u8]) -> String {
    format!("{:#}", Container::parse(bytes).unwrap_err())
}

/// Everything that may be done with a file from anywhere.
fn use_it(bytes: &[u8]) -> Result<()> {
    let container = Container::parse(bytes)?;
    container.check_limit(10_000)?;
    container.tensors().map(|_| ())
}

#[test]
fn a_file_comes_back() {
    let bytes = sample("topk:density=0.1");
    let container = Container::parse(&bytes).unwrap();
    assert_eq!(container.output_bytes(), 32 * 4 + 8 * 2);
    assert_eq!(container.recipe.spec, "topk:density=0.1");
    let tensors = container.tensors().unwrap();
    assert_eq!(tensors.values.iter().filter(|&&value| value != 0.0).count(), 4);
    assert_eq!((tensors.infos[2].name.as_str(), tensors.infos[2].dtype), ("b", Dtype::Bf16));
    assert_eq!(tensors.metadata.unwrap()["format"], "pt");
}

#[test]
fn every_truncation_is_an_error() {
    for method in ["topk:density=0.1", "fft", "dense"] {
        let bytes = sample(method);
        for cut in 0..bytes.len() {
            Container::parse(&bytes[..cut]).unwrap_err();
        }
        assert!(message(&[&bytes[..], &[0]].concat()).starts_with("it is damaged"), "one byte too many");
    }
}

#[test]
fn random_damage_is_never_a_panic() {
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for method in ["topk:density=0.1", "fft", "redsync:dense_up_to=8,quantize=true", "dense:values=f16"] {
        let good = sample(method);
        for _ in 0..5_000 {
            let mut bytes = good.clone();
            for _ in 0..=random(3) {
                match random(3) {
                    0 => {
                        let at = random(bytes.len());
                        bytes[at] = random(256) as u8;
                    }
                    1 => {
                        let at = random(bytes.len());
                        bytes[at] ^= 1 << random(8);
                    }
                    _ => {
                        let at = random(bytes.len());
                        // A digit in the header makes another shape or parameter, and a file that parses.
                        bytes[at] = b'0' + random(10) as u8;
                    }
                }
            }
            let _ = use_it(&bytes);
        }
    }
}

#[test]
fn each_kind_of_damage_has_its_words() {
    let replaced = |from: &str, to: &str| message(&with_header(|json| json.replacen(from, to, 1)));
    assert!(message(b"").contains("begins with \"\""));
    assert!(message(b"THINWIRE").contains("ends inside its header"));
    assert!(message(b"\x93NUMPY").contains("expected \"THINWIRE\""));
    let mut bytes = sample("dense");
    bytes[8] = 2;
    assert!(message(&bytes).contains("format version 2"));
    bytes = sample("dense");
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(message(&bytes).contains("4294967295 bytes needed"));
    assert!(replaced("{", "[").contains("its header is not as expected"));
    assert!(replaced("\"method\"", "\"mothod\"").contains("unknown field `mothod`"));
    assert!(replaced("topk", "topq").contains("the methods are: dense"));
    assert!(replaced("\"BF16\"", "\"I8\"").contains("unknown variant `I8`"));
    assert!(replaced("[4,8]", "[4,9]").contains("its layers have 44 elements, but its frame has 40"));
    assert!(replaced("[4,8]", "[4294967295,4294967296,4294967296]").contains("too large"));
    assert!(replaced("[0]", "[0,4294967296,4294967296,4294967296]").contains("too large"));
    assert!(replaced("[4,8]", "[65536,65536]").contains("split it at"));
    assert!(replaced("[4,8]", "[-4,8]").contains("not as expected"));
    assert!(replaced("\"none\"", "\"w\"").contains("appears twice"));
    assert!(
        replaced("\"fortran_order\":false", "\"fortran_order\":true").contains("has 3 layers; expected one")
    );
    bytes = sample("dense");
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    assert!(message(&bytes).contains("checksum"));
}

#[test]
fn a_small_file_can_not_ask_for_much_memory() {
    // A good file of a few hundred bytes that speaks of four billion elements, all of them zero.
    let infos = vec![Info { name: "w".into(), shape: vec![u32::MAX as usize], dtype: Dtype::F64 }];
    let tensors =
        Tensors { infos, values: vec![], fortran_order: false, named: true, metadata: None, rounded: 0 };
    let mut bytes = Header::new("topk", &tensors).to_bytes().unwrap();
    let header = thinwire::codec::Header { step: 0, plan: 0, bucket: 0, elements: u32::MAX };
    thinwire::codec::FrameWriter::new(&mut bytes, header).finish().unwrap();
    let container = Container::parse(&bytes).unwrap();
    let error = container.check_limit(16 << 30).unwrap_err().to_string();
    assert!(error.contains("34359738360") && error.contains("17179869184"), "{error}");
}

#[test]
fn the_documented_beginning_of_a_file() {
    let header = Header {
        thinwire: "0.1.0".into(),
        method: "topk:density=0.5".into(),
        fortran_order: false,
        layers: vec![Info { name: "w".into(), shape: vec![2, 3], dtype: Dtype::F32 }],
        metadata: None,
    };
    let json = r#"{"thinwire":"0.1.0","method":"topk:density=0.5","fortran_order":false,"layers":[{"name":"w","shape":[2,3],"dtype":"F32"}]}"#;
    let bytes = header.to_bytes().unwrap();
    assert_eq!(bytes[..16], *b"\x54\x48\x49\x4e\x57\x49\x52\x45\x01\x00\x00\x00\x7a\x00\x00\x00");
    assert_eq!(std::str::from_utf8(&bytes[16..]).unwrap(), json);
}
