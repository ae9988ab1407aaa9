//! What can't be is told by every worker, and nobody waits for anybody.

use std::path::Path;

use thinwire_train::optimizer::{LearningRate, Schedule};
use thinwire_train::trainer::{Settings, check};
use thinwire_train::{Error, checkpoint};

use crate::workers::{Kind, end, errors, small};

const WORKERS: usize = 3;

/// Every worker says all of `parts`, and so does whoever asks before.
fn all_say(settings: &Settings, parts: &[&str]) {
    let before = check(settings, WORKERS).unwrap_err();
    for kind in [Kind::Local, Kind::Tcp] {
        for error in errors(kind, vec![settings.clone(); WORKERS]) {
            // Who comes late may hear it from another.
            for text in [&before, &error].map(Error::to_string) {
                assert!(parts.iter().all(|part| text.contains(part)), "expected {parts:?} in: {text}");
            }
        }
    }
}

#[test]
fn settings_that_can_not_be_are_told_with_what_would_be_right() {
    let plain = || small("topk");
    let name = |text: &str| text.to_owned();
    all_say(&Settings { batch: 500, ..plain() }, &["batch", "500 with 3 workers", "at most 1497"]);
    all_say(&Settings { model: name("nope"), ..plain() }, &["model \"nope\"", "mlp, cnn, resnet"]);
    all_say(&Settings { data: name("nope"), ..plain() }, &["data set \"nope\"", "digits"]);
    all_say(&Settings { method: name("nope"), ..plain() }, &["\"nope\"", "gaussian-k"]);
    all_say(&Settings { optimizer: name("nope"), ..plain() }, &["\"nope\"", "sgd", "adamw"]);
    all_say(&Settings { model: name("mlp:width=3"), ..plain() }, &["width", "hidden"]);
    all_say(&Settings { model: name("lstm"), ..plain() }, &["lstm on images", "lstm is for text"]);
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book.txt");
    std::fs::write(&book, "A line of a book that is long enough.\n".repeat(400)).unwrap();
    let data = format!("text:file={}", book.display());
    all_say(&Settings { data, model: name("cnn"), ..plain() }, &["cnn on text", "images, such as digits"]);
}

#[test]
fn a_worker_with_other_settings_does_not_let_the_others_wait() {
    type Change = fn(&mut Settings);
    let changes: [(&str, Change); 6] = [
        ("refused by itself", |settings| settings.lr.base = -1.0),
        ("other data", |settings| settings.data = "nope".into()),
        ("another model", |settings| settings.model = "mlp:hidden=33".into()),
        ("another method", |settings| settings.method = "dense".into()),
        ("another learning rate", |settings| settings.lr.base = 0.06),
        ("a checkpoint", |settings| settings.resume = Some("nowhere".into())),
    ];
    for (what, change) in changes {
        for kind in [Kind::Local, Kind::Tcp] {
            let mut all = vec![small("topk:density=0.05"); WORKERS];
            change(&mut all[1]);
            let begun = std::time::Instant::now();
            for error in errors(kind, all) {
                assert!(error.to_string().len() > 10, "{what}: {error}");
            }
            // Nobody has waited until the deadline, which is at 30 seconds.
            assert!(begun.elapsed().as_secs() < 20, "{what} over {kind:?}");
        }
    }
}

#[test]
fn a_training_that_diverges_ends_and_names_the_step() {
    for method in ["dense", "topk:density=0.05", "fft", "ar-topk:density=0.05", "redsync"] {
        let lr = LearningRate { base: 1e30, ..small(method).lr };
        let errors = errors(Kind::Local, vec![Settings { lr, epochs: 3.0, ..small(method) }; WORKERS]);
        assert!(errors.iter().any(|error| matches!(error, Error::Diverged { step: 19..40, .. })), "{method}");
        // Those that come to it later hear it from the first.
        for text in errors.iter().map(Error::to_string) {
            assert!(text.contains("diverged") && text.contains("at step"), "{method}: {text}");
            assert!(text.contains("--lr"), "{method}: {text}");
        }
    }
}

#[test]
fn a_training_that_has_no_loss_at_its_end_is_no_success() {
    // Fewer steps than those after which a training is given up.
    let lr = LearningRate { base: 1e30, ..small("dense").lr };
    let settings = Settings { lr, epochs: 0.5, ..small("dense") };
    let errors = errors(Kind::Local, vec![settings; WORKERS]);
    assert!(errors.iter().any(|error| matches!(error, Error::Diverged { .. })), "{errors:?}");
    // Those that come to it later may hear it from the first.
    assert!(errors.iter().all(|error| error.to_string().contains("diverged")), "{errors:?}");
}

/// A checkpoint of a whole small training in `dir`, and its settings.
fn saved(dir: &Path) -> Settings {
    let settings = Settings { save: Some(dir.to_owned()), ..small("topk:density=0.05") };
    end(Kind::Local, WORKERS, &settings);
    Settings { save: None, resume: Some(dir.to_owned()), ..settings }
}

#[test]
fn a_checkpoint_of_other_settings_is_refused_with_both_values() {
    let folder = tempfile::tempdir().unwrap();
    let settings = saved(folder.path());
    let dir = folder.path().to_str().unwrap();
    let with = |change: fn(&mut Settings)| {
        let mut other = settings.clone();
        change(&mut other);
        other
    };
    all_say(&with(|s| s.batch = 20), &["batch 20", dir, "batch 32"]);
    // A run may be made longer, unless the learning rate depends on where it ends.
    assert!(check(&with(|s| s.epochs = 2.0), WORKERS).is_ok());
    all_say(
        &with(|s| s.lr.schedule = Schedule::Cosine { to: 0.0 }),
        &["lr-schedule cosine over 1 epochs", "with lr-schedule constant"],
    );
    all_say(&with(|s| s.seed = 7), &["seed 7", "with seed 1"]);
    all_say(&with(|s| s.lr.base = 0.1), &["lr 0.1", "with lr 0.05"]);
    all_say(&with(|s| s.model = "mlp:hidden=31".into()), &["mlp:hidden=31", "mlp:hidden=32"]);
    all_say(&with(|s| s.method = "topk:density=0.1".into()), &["topk:density=0.1", "topk:density=0.05"]);
    all_say(&with(|s| s.optimizer = "adam".into()), &["optimizer adam", "with optimizer sgd"]);
    let fewer = check(&settings, WORKERS - 1).unwrap_err().to_string();
    assert!(fewer.contains("workers 2") && fewer.contains("with workers 3"), "{fewer}");
    all_say(&with(|s| s.resume = Some("nowhere".into())), &["nowhere", "checkpoint"]);
}

#[test]
fn a_damaged_checkpoint_is_refused_and_the_file_named() {
    let folder = tempfile::tempdir().unwrap();
    let settings = saved(folder.path());
    let place = checkpoint::read(folder.path()).unwrap().folder().to_owned();
    let names = ["shared.safetensors", "worker-0.safetensors", "worker-2.safetensors", "checkpoint.json"];
    for name in names {
        let file = place.join(name);
        let good = std::fs::read(&file).unwrap();
        let mut bad = good.clone();
        // A bit in the middle, of a number or of a name.
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        std::fs::write(&file, &bad).unwrap();
        all_say(&settings, &[file.to_str().unwrap()]);
        std::fs::write(&file, &good[..middle]).unwrap();
        all_say(&settings, &[file.to_str().unwrap()]);
        std::fs::write(&file, good).unwrap();
    }
    assert!(check(&settings, WORKERS).is_ok());
}
