//! What every test needs: a folder, the program, and files to feed it.

// Each test file is a program of its own and uses a part of this.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::{Command, Output};

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde_json::Value;

/// A folder of its own, in which the program is run.
pub struct Folder {
    place: tempfile::TempDir,
}

impl Folder {
    pub fn new() -> Folder {
        Folder { place: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    /// Names of the files there are.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.place.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs `thinwire` with these words, separated by spaces.
    pub fn run(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thinwire"));
        command.args(words.split_whitespace()).current_dir(self.place.path());
        command.output().unwrap()
    }

    /// Runs it, expects success, and gives what it printed.
    pub fn text(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "thinwire {words}\n{errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it with `--json`, and reads what it printed.
    pub fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.text(&format!("{words} --json"))).unwrap()
    }

    /// Runs it, expects failure with code 1 and nothing on the standard output, and gives the error.
    pub fn error(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "thinwire {words}\n{errors}");
        assert!(output.stdout.is_empty(), "thinwire {words} printed before it failed");
        assert!(errors.starts_with("error: "), "{errors}");
        assert!(!errors.contains("panicked") && !errors.contains("backtrace"), "{errors}");
        errors
    }
}

/// Numbers that look like a gradient: many small, few large, both signs.
pub fn gradient(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..len).map(|_| uniform() * uniform() * uniform()).collect()
}

/// A .npy file, made by hand as numpy would.
pub fn npy(descriptor: &str, fortran_order: bool, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let sides: String = shape.iter().map(|side| format!("{side},")).collect();
    let order = if fortran_order { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descriptor}', 'fortran_order': {order}, 'shape': ({sides}), }}");
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let length = (header.len() as u16).to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), data].concat()
}

pub fn npy_f32(shape: &[usize], values: &[f32]) -> Vec<u8> {
    npy("<f4", false, shape, &bytes(values))
}

/// The header and the data of a .npy file.
pub fn split_npy(file: &[u8]) -> (String, Vec<u8>) {
    assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([file[8], file[9]]));
    (String::from_utf8(file[10..10 + length].to_vec()).unwrap(), file[10 + length..].to_vec())
}

pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect()
}

/// A .safetensors file.
pub fn safetensors(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap()));
    serialize(views, None).unwrap()
}

/// The values of an F32 tensor in a .safetensors file.
pub fn tensor(file: &[u8], name: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    assert_eq!(tensor.dtype(), Dtype::F32);
    floats(tensor.data())
}

pub fn distance(one: &[f32], other: &[f32]) -> f64 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}
