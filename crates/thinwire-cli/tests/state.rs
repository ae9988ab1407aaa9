//! What was not sent is kept in a file, and nothing of it is lost.

mod common;

use common::*;
use safetensors::tensor::Dtype;

fn restored(folder: &Folder, words: &str) -> Vec<f32> {
    folder.text(words);
    folder.text("decompress o.tw -o o.npy");
    floats(&split_npy(&folder.read("o.npy")).1)
}

#[test]
fn two_steps_conserve_the_mass() {
    // With half-width values too: what the codec loses is kept as well.
    for method in ["topk:density=0.05", "topk:density=0.05,values=f16", "gaussian-k", "random-k:density=0.1"]
    {
        let folder = Folder::new();
        let gradients = [gradient(1_000, 1), gradient(1_000, 2)];
        let mut sent = vec![0.0f32; 1_000];
        for (step, values) in gradients.iter().enumerate() {
            folder.write("g.npy", npy_f32(&[1_000], values));
            let words =
                format!("compress g.npy -o o.tw --method {method} --state s.safetensors --step {step}");
            restored(&folder, &words).iter().zip(&mut sent).for_each(|(value, sum)| *sum += value);
            assert_eq!(folder.json("inspect o.tw")["frame"]["step"], step);
        }
        let residual = tensor(&folder.read("s.safetensors"), "residual/g");
        assert!(residual.iter().any(|&value| value != 0.0), "{method}");
        for index in 0..1_000 {
            let (had, has) = (gradients[0][index] + gradients[1][index], sent[index] + residual[index]);
            assert!((had - has).abs() <= 1e-6, "{method}: element {index} had {had}, has {has}");
        }
    }
}

#[test]
fn what_was_not_sent_first_is_sent_later() {
    let folder = Folder::new();
    folder.write("g.npy", npy_f32(&[4], &[4.0, 3.0, 0.5, 0.25]));
    folder.write("zero.npy", npy_f32(&[4], &[0.0; 4]));
    let first = restored(&folder, "compress g.npy -o o.tw --density 1/4 --state s");
    assert_eq!(first, [4.0, 0.0, 0.0, 0.0]);
    // The same layer by its name, which a .npy file takes from the path.
    std::fs::rename(folder.path("zero.npy"), folder.path("g.npy")).unwrap();
    let second = restored(&folder, "compress g.npy -o o.tw --density 1/4 --state s");
    assert_eq!(second, [0.0, 3.0, 0.0, 0.0]);
}

#[test]
fn a_state_of_another_method_or_another_layer_is_refused() {
    let folder = Folder::new();
    folder.write("g.npy", npy_f32(&[8], &gradient(8, 1)));
    folder.text("compress g.npy -o o.tw --method topk --state s");
    let error = folder.error("compress g.npy -o o.tw --method redsync --state s");
    assert!(error.contains("method \"topk\"") && error.contains("is \"redsync\""), "{error}");
    folder.write("h.npy", npy_f32(&[8], &gradient(8, 1)));
    let error = folder.error("compress h.npy -o o.tw --method topk --state s");
    assert!(error.contains("the state s does not fit") && error.contains("residual/h is missing"), "{error}");
    folder.write("g.npy", npy_f32(&[9], &gradient(9, 1)));
    let error = folder.error("compress g.npy -o o.tw --method topk --state s");
    assert!(error.contains("8 elements; expected 9 elements"), "{error}");
    folder.write("s", "not a state");
    assert!(folder.error("compress g.npy -o o.tw --state s").contains("state s"));
}

#[test]
fn layers_of_other_files_stay_in_the_state() {
    let folder = Folder::new();
    let file = |names: &[&str]| {
        let tensors: Vec<_> =
            names.iter().map(|name| (*name, Dtype::F32, &[4][..], bytes(&gradient(4, 3)))).collect();
        safetensors(&tensors)
    };
    folder.write("both.safetensors", file(&["a", "b"]));
    folder.write("one.safetensors", file(&["a"]));
    folder.text("compress both.safetensors -o o.tw --state s --density 1/8");
    let before = tensor(&folder.read("s"), "residual/b");
    folder.text("compress one.safetensors -o o.tw --state s --density 1/8");
    assert_eq!(tensor(&folder.read("s"), "residual/b"), before);
}

#[test]
fn a_failed_step_changes_nothing() {
    let folder = Folder::new();
    folder.write("g.npy", npy_f32(&[4], &[1.0, 2.0, 3.0, 4.0]));
    folder.text("compress g.npy -o o.tw --state s");
    let (state, output) = (folder.read("s"), folder.read("o.tw"));
    folder.write("g.npy", npy_f32(&[4], &[1.0, f32::NAN, 3.0, 4.0]));
    folder.error("compress g.npy -o o.tw --state s");
    assert_eq!((folder.read("s"), folder.read("o.tw")), (state, output));
    assert_eq!(folder.files(), ["g.npy", "o.tw", "s"]);
}
