//! What goes wrong is named, with the way out, and leaves nothing behind.

mod common;

use std::io::Read;
use std::process::{Command, Stdio};

use common::*;
use safetensors::tensor::Dtype;

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

fn with_gradient() -> Folder {
    let folder = Folder::new();
    folder.write("g.npy", npy_f32(&[100], &gradient(100, 1)));
    folder
}

#[test]
fn files_that_are_missing_or_of_another_kind() {
    let folder = with_gradient();
    assert_contains(&folder.error("compress none.npy -o o.tw"), &["can't read none.npy", "No such file"]);
    folder.write("g.txt", "1 2 3");
    assert_contains(&folder.error("compress g.txt -o o.tw"), &["g.txt", ".npy or .safetensors"]);
    folder.write("no.npy", "1 2 3");
    assert_contains(&folder.error("compress no.npy -o o.tw"), &["no.npy", "NUMPY"]);
    folder.write("no.safetensors", "1 2 3");
    assert_contains(&folder.error("compress no.safetensors -o o.tw"), &["no.safetensors", "not a good"]);
    assert_contains(&folder.error("inspect g.npy"), &["g.npy", "not a .tw file", "THINWIRE"]);
    assert_contains(&folder.error("compress . -o o.tw"), &[".npy or .safetensors"]);
}

#[test]
fn outputs_that_can_not_be() {
    let folder = with_gradient();
    folder.text("compress g.npy -o g.tw");
    assert_contains(&folder.error("compress g.npy -o none/o.tw"), &["none/o.tw", "there is no folder none"]);
    assert_contains(&folder.error("compress g.npy -o o.npy"), &["o.npy", "must end in .tw"]);
    assert_contains(&folder.error("decompress g.tw -o o.txt"), &["o.txt", ".npy or .safetensors"]);
    assert_contains(&folder.error("decompress g.tw -o none/o.npy"), &["there is no folder none"]);
    std::fs::create_dir(folder.path("folder.tw")).unwrap();
    assert_contains(&folder.error("compress g.npy -o folder.tw"), &["it is a folder"]);
    assert_eq!(folder.files(), ["folder.tw", "g.npy", "g.tw"]);
}

#[test]
fn inputs_are_not_overwritten() {
    let folder = with_gradient();
    folder.text("compress g.npy -o g.tw");
    let before = folder.read("g.tw");
    // A .tw file under another name, so that input and output may have the same ending.
    folder.write("disguised.npy", &before);
    assert_contains(&folder.error("decompress disguised.npy -o ./disguised.npy"), &["it is an input too"]);
    assert_contains(
        &folder.error("compress g.npy -o o.tw --state g.npy"),
        &["the state g.npy is the gradient"],
    );
    assert_contains(&folder.error("compress g.npy -o o.tw --state ./o.tw"), &["the output too"]);
    assert_eq!(folder.read("disguised.npy"), before);
}

#[test]
fn numbers_that_are_none() {
    let folder = Folder::new();
    for (value, name) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
        let mut values = gradient(300, 1);
        values[217] = value;
        folder.write(
            "g.safetensors",
            safetensors(&[
                ("a", Dtype::F32, &[200], bytes(&values[..200])),
                ("b", Dtype::F32, &[10, 10], bytes(&values[200..])),
            ]),
        );
        for method in ["topk", "dense", "fft", "redsync", "topk:clip=1"] {
            let error = folder.error(&format!("compress g.safetensors -o o.tw --method {method} --state s"));
            assert_contains(&error, &["g.safetensors", name, "layer \"b\" at element 17"]);
        }
    }
    assert_eq!(folder.files(), ["g.safetensors"], "nothing is left behind");
    folder.write("w.npy", npy("<f8", false, &[2], &[1.0f64, 1e300].map(f64::to_le_bytes).concat()));
    assert_contains(&folder.error("compress w.npy -o o.tw"), &["w.npy", "element 1 is 1e300"]);
}

#[test]
fn elements_that_are_no_floats() {
    let folder = Folder::new();
    folder.write("i.npy", npy("<i4", false, &[1], &[0; 4]));
    assert_contains(&folder.error("compress i.npy -o o.tw"), &["i.npy", "'<i4'", "expected floats"]);
    folder.write("i.safetensors", safetensors(&[("steps", Dtype::I64, &[1], vec![0; 8])]));
    let error = folder.error("compress i.safetensors -o o.tw");
    assert_contains(&error, &["i.safetensors", "\"steps\"", "I64", "F32, F64, F16 or BF16"]);
}

#[test]
fn methods_and_parameters_that_are_unknown() {
    let folder = with_gradient();
    let all =
        ["dense", "topk", "gaussian-k", "redsync", "fft", "iwp", "ar-topk", "dgc", "mstopk", "random-k"];
    assert_contains(&folder.error("compress g.npy -o o.tw --method topq"), &all);
    assert_contains(&folder.error("methods topq"), &all);
    assert_contains(
        &folder.error("compress g.npy -o o.tw --method topk:densty=1"),
        &["densty", "density, scope"],
    );
    assert_contains(
        &folder.error("compress g.npy -o o.tw --density 2"),
        &["density=2", "above 0 and up to 1"],
    );
    assert_contains(&folder.error("compress g.npy -o o.tw --method fft --density 0.1"), &["fft:theta="]);
    assert_contains(
        &folder.error("compress g.npy -o o.tw --method dense --density 0.1"),
        &["sends everything"],
    );
    assert_eq!(folder.files(), ["g.npy"]);
}

#[test]
fn weights_that_are_missing_or_do_not_fit() {
    let folder = with_gradient();
    let iwp = "compress g.npy -o o.tw --method iwp";
    assert_contains(&folder.error(iwp), &["iwp", "--weights FILE"]);
    folder.write("w.npy", npy_f32(&[10, 10], &gradient(100, 2)));
    assert_contains(&folder.error(&format!("{iwp} --weights w.npy")), &["w.npy", "[10, 10]", "[100]"]);
    folder.write("w.safetensors", safetensors(&[("other", Dtype::F32, &[100], vec![0; 400])]));
    folder.write("g.safetensors", safetensors(&[("mine", Dtype::F32, &[100], vec![0; 400])]));
    let error = folder.error("compress g.safetensors -o o.tw --method iwp --weights w.safetensors");
    assert_contains(&error, &["\"mine\" of the gradient is not among them"]);
    let unused = folder.run("compress g.npy -o o.tw --weights none.npy");
    assert!(unused.status.success());
    assert_contains(&String::from_utf8(unused.stderr).unwrap(), &["topk", "does not look at weights"]);
}

#[test]
fn damaged_files() {
    let folder = with_gradient();
    folder.text("compress g.npy -o g.tw");
    let good = folder.read("g.tw");
    for at in [0, 9, 13, 20, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        folder.write("bad.tw", &bad);
        assert_contains(&folder.error("inspect bad.tw"), &["can't inspect bad.tw"]);
        assert_contains(&folder.error("decompress bad.tw -o back.npy"), &["can't decompress bad.tw"]);
    }
    folder.write("bad.tw", &good[..good.len() - 3]);
    assert_contains(&folder.error("decompress bad.tw -o back.npy"), &["damaged"]);
    folder.write("bad.tw", [&good[..], b"more"].concat());
    assert_contains(&folder.error("decompress bad.tw -o back.npy"), &["damaged"]);
    assert_eq!(folder.files(), ["bad.tw", "g.npy", "g.tw"]);
}

#[test]
fn outputs_beyond_the_limit() {
    let folder = with_gradient();
    folder.text("compress g.npy -o g.tw");
    let error = folder.error("decompress g.tw -o back.npy --limit 399");
    assert_contains(&error, &["would take 400 bytes", "limit is 399", "--limit"]);
    folder.text("decompress g.tw -o back.npy --limit 0.4kB");
    let usage = folder.run("decompress g.tw -o back.npy --limit much");
    assert_eq!(usage.status.code(), Some(2));
    assert_contains(&String::from_utf8(usage.stderr).unwrap(), &["2GiB"]);
}

#[test]
fn npy_files_for_what_they_can_not_hold() {
    let folder = Folder::new();
    let tensor = |name| (name, Dtype::BF16, &[2][..], vec![0; 4]);
    folder.write("two.safetensors", safetensors(&[tensor("a"), tensor("b")]));
    folder.text("compress two.safetensors -o g.tw");
    assert_contains(&folder.error("decompress g.tw -o back.npy"), &["there are 2", ".safetensors"]);
    folder.write("one.safetensors", safetensors(&[tensor("a")]));
    folder.text("compress one.safetensors -o g.tw");
    assert_contains(&folder.error("decompress g.tw -o back.npy"), &["BF16", ".safetensors"]);
    assert!(!folder.files().contains(&"back.npy".to_owned()));
}

#[test]
fn usage_errors_have_their_own_code() {
    let folder = Folder::new();
    for words in
        ["", "compres", "compress", "compress g.npy", "compress g.npy -o o.tw --threads 0", "inspect"]
    {
        assert_eq!(folder.run(words).status.code(), Some(2), "thinwire {words}");
    }
    for words in
        ["--help", "--version", "compress --help", "decompress -h", "inspect --help", "methods --help"]
    {
        assert_eq!(folder.run(words).status.code(), Some(0), "thinwire {words}");
    }
    assert_contains(&folder.text("compress --help"), &["Examples:", "[default: topk]", "--state"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_thinwire"))
        .args(["methods", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(errors, "");
}
