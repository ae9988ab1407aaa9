//! Damaged and foreign files are found, and the error names the file.

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize};
use thinwire::memory::State;

use super::super::manifest::Manifest;
use super::super::{LATEST, MANIFEST, read};
use super::{failure, read_all, run, state};

#[test]
fn flipped_bytes_and_cuts_are_found_in_every_file() {
    let run = run();
    let folder = run.write(7);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(13) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, &damaged).unwrap();
            let error = failure(run.path(), &format!("{name}, byte {at}"));
            assert!(error.contains(&name), "{error}");
        }
        // The list of files ends with a line break, which may be missing.
        for length in (0..whole.len() - 1).step_by(17).chain([whole.len() - 2]) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = failure(run.path(), &format!("{name} cut to {length}"));
            assert!(error.contains(&name), "{error}");
        }
        std::fs::write(&path, [whole.as_slice(), b"x"].concat()).unwrap();
        assert!(failure(run.path(), "a longer file").contains(&name));
        if name != MANIFEST {
            std::fs::remove_file(&path).unwrap();
            assert!(failure(run.path(), "a missing file").contains(&name));
        }
        std::fs::write(&path, &whole).unwrap();
        read_all(run.path()).unwrap();
    }
}

#[test]
fn every_flipped_bit_of_the_list_is_found() {
    let run = run();
    let path = run.write(7).join(MANIFEST);
    let mut text = std::fs::read(&path).unwrap();
    Manifest::from_text(&path, &text).unwrap();
    for at in 0..8 * text.len() {
        text[at / 8] ^= 1 << (at % 8);
        let error = Manifest::from_text(&path, &text).unwrap_err();
        assert!(matches!(error, crate::Error::BadFile { .. }), "{error}");
        text[at / 8] ^= 1 << (at % 8);
    }
}

#[test]
fn foreign_files_are_told_from_ours() {
    let run = run();
    let folder = run.write(7);
    let path = folder.join(MANIFEST);
    let text = std::fs::read_to_string(&path).unwrap();
    for (foreign, expected) in [
        ("", "the text"),
        ("[]", "format: \"none\"; \"thinwire-checkpoint-1\""),
        ("{\"format\": 1}", "format: \"none\""),
        ("{\"format\": \"thinwire-checkpoint-1\"}", "missing field"),
        (
            &text.replace("checkpoint-1", "checkpoint-2"),
            "\"thinwire-checkpoint-2\"; \"thinwire-checkpoint-1\"",
        ),
        (&text.replace("\"skipped\": 1", "\"skipped\": 2"), "crc32"),
        (&text.replace("\"skipped\": 1", "\"skipped\": \"1\""), "the fields"),
        (&text.replace("\"skipped\": 1", "\"other\": 1"), "unknown field"),
    ] {
        std::fs::write(&path, foreign).unwrap();
        let error = failure(run.path(), foreign);
        assert!(error.contains(expected) && error.contains(MANIFEST), "{error}");
    }
    std::fs::write(&path, &text).unwrap();
    for (latest, expected) in [
        ("", "a name such as step-000123"),
        ("../step-000007", "a name such as"),
        ("step-7", "a name such as"),
        ("step-000008", "step-000007"),
    ] {
        std::fs::write(run.path().join(LATEST), latest).unwrap();
        match read(run.path()) {
            // Names a folder that is not complete: the one before it.
            Ok(checkpoint) => assert!(checkpoint.folder().ends_with(expected)),
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
        }
    }
    std::fs::rename(&folder, run.path().join("step-000009")).unwrap();
    assert!(
        failure(&run.path().join("step-000009"), "another name").contains("step 9, as the folder's name")
    );
    assert!(failure(&run.path().join("nowhere"), "no folder").contains("nowhere"));
}

type Change<'a, T> = &'a dyn Fn(&mut T);
/// Name, type, shape and bytes.
type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// Changes the list of files or anything else in `checkpoint.json`, with a good checksum.
fn forge(folder: &Path, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::read(folder).unwrap();
    change(&mut manifest);
    std::fs::write(folder.join(MANIFEST), manifest.to_text().unwrap()).unwrap();
}

/// Puts other bytes in a file's place, with a good length and checksum.
fn replace(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).unwrap();
    forge(folder, |manifest| {
        let file = manifest.files.iter_mut().find(|file| file.name == name).unwrap();
        (file.length, file.crc32) = (bytes.len() as u64, crc32fast::hash(bytes));
    });
}

#[test]
fn a_list_of_files_that_can_not_be_is_refused() {
    let run = run();
    let folder = run.write(7);
    let text = std::fs::read_to_string(folder.join(MANIFEST)).unwrap();
    let forgeries: [(&str, Change<Manifest>); 8] = [
        ("../../secret", &|manifest| manifest.files[0].name = "../../secret".into()),
        ("worker-2.safetensors", &|manifest| manifest.files[0].name = "worker-2.safetensors".into()),
        ("worker-01.safetensors", &|manifest| manifest.files[0].name = "worker-01.safetensors".into()),
        ("once each", &|manifest| manifest.files.push(manifest.files[0].clone())),
        ("worker-2.safetensors among them", &|manifest| manifest.workers = 3),
        ("\"fc.bias\" twice", &|manifest| manifest.buckets[1][0].0 = "fc.bias".into()),
        ("fits memory", &|manifest| manifest.buckets[1][0].1 = vec![usize::MAX, 3]),
        ("shared.safetensors among them", &|manifest| {
            manifest.files.retain(|file| file.name != "shared.safetensors");
        }),
    ];
    for (expected, change) in forgeries {
        forge(&folder, change);
        let error = failure(run.path(), expected);
        assert!(error.contains(expected) && error.contains(MANIFEST), "{error}");
        std::fs::write(folder.join(MANIFEST), &text).unwrap();
    }
}

#[test]
fn tensors_that_do_not_belong_are_refused_even_with_a_good_checksum() {
    let run = run();
    let folder = run.write(7);
    let text = std::fs::read_to_string(folder.join(MANIFEST)).unwrap();
    let original = std::fs::read(folder.join("shared.safetensors")).unwrap();
    let file = |format: &str, change: Change<Vec<Tensor>>| {
        let parsed = safetensors::SafeTensors::deserialize(&original).unwrap();
        let own = |(name, view): (String, TensorView<'_>)| {
            (name, view.dtype(), view.shape().to_vec(), view.data().to_vec())
        };
        let mut tensors: Vec<_> = parsed.tensors().into_iter().map(own).collect();
        tensors.sort_by(|one, two| one.0.cmp(&two.0));
        change(&mut tensors);
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        serialize(views, Some([("format".to_owned(), format.to_owned())].into())).unwrap()
    };
    let same = |_: &mut Vec<_>| {};
    // By name: optimizer/first_moment/…, optimizer/second_moment/…, weight/conv.scale, …
    let at = 8;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("the header", b"not a file of tensors".to_vec()),
        ("the header", u64::MAX.to_le_bytes().to_vec()),
        ("metadata format: \"other\"; \"thinwire-shared-1\"", file("other", &same)),
        ("weight/conv.scale: I32; F32", file("thinwire-shared-1", &|all| all[at].1 = Dtype::I32)),
        ("weight/conv.scale: [3, 1]; [3]", file("thinwire-shared-1", &|all| all[at].2 = vec![3, 1])),
        ("weight/conv.scale: no such tensor", file("thinwire-shared-1", &|all| drop(all.remove(at)))),
        ("optimizer/first_moment/conv.scale: no such", file("thinwire-shared-1", &|all| drop(all.remove(0)))),
        ("weight/other: a tensor", {
            file("thinwire-shared-1", &|all| {
                all.push(("weight/other".into(), Dtype::F32, vec![1], vec![0; 4]))
            })
        }),
        ("weight/conv.scale: NaN at element 1; finite values", {
            file("thinwire-shared-1", &|all| all[at].3[4..8].copy_from_slice(&f32::NAN.to_le_bytes()))
        }),
    ];
    for (expected, bytes) in cases {
        replace(&folder, "shared.safetensors", &bytes);
        let error = failure(run.path(), expected);
        assert!(error.contains(expected) && error.contains("shared.safetensors"), "{error}");
        std::fs::write(folder.join(MANIFEST), &text).unwrap();
    }
    replace(&folder, "shared.safetensors", &original);
    read_all(run.path()).unwrap();
}

#[test]
fn workers_files_that_do_not_belong_are_refused() {
    let run = run();
    let folder = run.write(7);
    let name = "worker-1.safetensors";
    let other = tempfile::tempdir().unwrap();
    let made = |change: &dyn Fn(&mut State)| {
        let mut state = state(1, 7);
        change(&mut state);
        let path = other.path().join("state");
        state.write(&path).unwrap();
        std::fs::read(&path).unwrap()
    };
    let cases: [(&str, Vec<u8>); 5] = [
        ("rank: 0 of 2; 1 of 2", made(&|state| state.rank = 0)),
        ("rank: 1 of 4; 1 of 2", made(&|state| state.ranks = 4)),
        ("residual/fc/weight: 2 elements; 6 elements", {
            made(&|state| drop(state.residual.insert("fc/weight".into(), vec![0.0; 2])))
        }),
        ("momentum/new: a tensor", made(&|state| drop(state.momentum.insert("new".into(), vec![])))),
        ("finite values", made(&|state| drop(state.momentum.insert("fc.bias".into(), vec![0.0, f32::NAN])))),
    ];
    for (expected, bytes) in cases {
        replace(&folder, name, &bytes);
        let error = failure(run.path(), expected);
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
    let worker = std::fs::read(folder.join("worker-0.safetensors")).unwrap();
    replace(&folder, name, &std::fs::read(folder.join("shared.safetensors")).unwrap());
    assert!(failure(run.path(), "weights").contains("thinwire-state-2"));
    replace(&folder, "statistics-1.safetensors", &worker);
    replace(&folder, name, &made(&|_| {}));
    assert!(failure(run.path(), "a state").contains("thinwire-statistics-1"));
}
