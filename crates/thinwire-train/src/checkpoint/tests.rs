//! Checkpoints come back bit for bit, and a crash leaves the one before.

mod damage;
mod resume;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thinwire::memory::State;

use super::*;
use crate::optimizer::{Layout, Optimizer, build};
use crate::trainer::Tally;

const WORKERS: usize = 2;

/// A run of two workers with everything a checkpoint can hold.
struct Run {
    dir: tempfile::TempDir,
    settings: BTreeMap<String, String>,
    buckets: Vec<Vec<Layer>>,
    weights: Vec<Vec<f32>>,
    optimizer: Box<dyn Optimizer>,
}

fn optimizer(spec: &str) -> Box<dyn Optimizer> {
    let layout = Layout { lengths: &[8, 3], decays: &[vec![0..6], vec![]], momentum_in_memory: false };
    build(spec, layout).unwrap()
}

fn run() -> Run {
    let layer = |name: &str, shape: &[usize]| (name.to_owned(), shape.to_vec());
    let mut weights = vec![vec![0.1, -0.0, 1e-45, f32::MAX, -1.5, 2.0, 3.0, 4.0], vec![0.3, 0.7, -0.9]];
    let mut optimizer = optimizer("adam");
    optimizer.step(0.01, 1.0, &mut weights, &[vec![0.25; 8], vec![-0.5; 3]]);
    let settings = [("method", "topk:density=0.01"), ("lr", "0.1"), ("model", "cnn \"x\"\n")];
    Run {
        dir: tempfile::tempdir().unwrap(),
        settings: settings.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        buckets: vec![
            vec![layer("fc/weight", &[2, 3]), layer("fc.bias", &[2]), layer("none", &[0, 4])],
            vec![layer("conv.scale", &[3])],
        ],
        weights,
        optimizer,
    }
}

fn position(step: u64) -> Position {
    let tally = Tally { skipped: 1, seconds: 0.25, sent: u64::MAX, best: Some(0.5), ..Tally::default() };
    Position { step, tally }
}

fn state(rank: usize, step: u64) -> State {
    let mut state = State {
        method: "topk:density=0.01".into(),
        step,
        epoch: 0.3,
        rank: rank as u64,
        ranks: WORKERS as u64,
        ..State::default()
    };
    state.residual.insert("fc/weight".into(), vec![rank as f32, -0.0, 1e-45, 0.5, 0.25, 7.0]);
    state.momentum.insert("fc.bias".into(), vec![0.1, 0.2]);
    state.selectors.insert("fc/weight".into(), [("ratio".to_owned(), 0.1 + 0.2)].into());
    state
}

fn statistics(rank: usize) -> Vec<Statistic> {
    let one =
        |name: &str, values: Vec<f32>| Statistic { name: name.into(), shape: vec![values.len()], values };
    vec![one("norm.variance", vec![1.0, rank as f32]), one("norm.mean", vec![-0.0])]
}

impl Run {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn writer(&self) -> Writer {
        Writer::new(self.path(), KEEP).unwrap()
    }

    /// The workers' half of a checkpoint.
    fn parts(&self, step: u64) -> Vec<Part> {
        // Worker 1 first: the order does not matter. Worker 1 alone has statistics.
        let of = |rank: usize| {
            let statistics = if rank == 1 { statistics(rank) } else { vec![] };
            let part = self.writer().worker(step, rank, &state(rank, step), &statistics).unwrap();
            Part::from_message(&Part::to_message(&Ok(part))).unwrap().unwrap()
        };
        (0..WORKERS).rev().map(of).collect()
    }

    fn shared(&self, step: u64) -> Shared<'_> {
        Shared {
            settings: &self.settings,
            position: position(step),
            buckets: &self.buckets,
            weights: &self.weights,
            optimizer: &*self.optimizer,
        }
    }

    fn write(&self, step: u64) -> PathBuf {
        self.writer().finish(&self.shared(step), &self.parts(step)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn bits(runs: &[Vec<f32>]) -> Vec<Vec<u32>> {
    runs.iter().map(|run| run.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Reads all there is; the error's text.
fn read_all(folder: &Path) -> Result<()> {
    let checkpoint = read(folder)?;
    (0..checkpoint.workers()).try_for_each(|rank| checkpoint.worker(rank).map(drop))
}

fn failure(folder: &Path, what: &str) -> String {
    match read_all(folder) {
        Ok(()) => panic!("{what} was not found"),
        Err(Error::BadFile { path, place, found, expected }) => {
            format!("{path}: {place}: {found}; {expected}")
        }
        Err(error @ Error::Io { .. }) => error.to_string(),
        Err(other) => panic!("{what}: an error of another kind: {other}"),
    }
}

#[test]
fn everything_comes_back_bit_for_bit() {
    let run = run();
    let folder = run.write(123);
    assert_eq!(folder, run.path().join("step-000123"));
    assert_eq!(run.names(), ["latest", "step-000123"]);
    for place in [run.path(), &folder] {
        let checkpoint = read(place).unwrap();
        assert_eq!(checkpoint.folder(), folder);
        assert_eq!(checkpoint.position(), &position(123));
        assert_eq!(checkpoint.settings(), &run.settings);
        assert_eq!(checkpoint.buckets(), run.buckets);
        assert_eq!((checkpoint.workers(), checkpoint.version()), (WORKERS, env!("CARGO_PKG_VERSION")));
        assert_eq!(bits(&checkpoint.weights), bits(&run.weights));
        let mut optimizer = optimizer("adam");
        checkpoint.restore(&mut *optimizer).unwrap();
        assert_eq!(optimizer.step_count(), 1);
        for ((name, found), (expected_name, expected)) in
            optimizer.state().into_iter().zip(run.optimizer.state())
        {
            assert_eq!((name, bits(found)), (expected_name, bits(expected)));
        }
        assert_eq!(checkpoint.worker(0).unwrap(), (state(0, 123), vec![]));
        let (found, measured) = checkpoint.worker(1).unwrap();
        assert_eq!((found, &measured), (state(1, 123), &statistics(1)));
        assert!(measured[1].values[0].is_sign_negative());
        assert!(checkpoint.worker(2).unwrap_err().to_string().contains("no worker 2"));
    }
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(
        files,
        [
            "checkpoint.json",
            "shared.safetensors",
            "statistics-1.safetensors",
            "worker-0.safetensors",
            "worker-1.safetensors"
        ]
    );
}

#[test]
fn settings_that_differ_are_named_with_both_values() {
    let run = run();
    run.write(7);
    let checkpoint = read(run.path()).unwrap();
    checkpoint.check_settings(&run.settings).unwrap();
    let with = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
        let mut settings = run.settings.clone();
        change(&mut settings);
        let error = checkpoint.check_settings(&settings).unwrap_err();
        assert!(matches!(error, Error::BadSetting { .. }));
        error.to_string()
    };
    let error = with(&|settings| drop(settings.insert("lr".into(), "0.2".into())));
    assert!(
        error.starts_with("lr 0.2: the checkpoint") && error.ends_with("was made with lr 0.1"),
        "{error}"
    );
    let error = with(&|settings| drop(settings.remove("lr")));
    assert!(error.starts_with("lr (not set):"), "{error}");
    let error = with(&|settings| drop(settings.insert("clip".into(), "1".into())));
    assert!(error.ends_with("was made with clip (not set)"), "{error}");

    let error = checkpoint.restore(&mut *optimizer("sgd")).unwrap_err().to_string();
    assert!(error.contains("first_moment") && error.contains("[\"momentum\"]"), "{error}");
}

#[test]
fn a_crash_while_writing_leaves_the_checkpoint_before() {
    let run = run();
    let first = run.write(10);
    // Stopped after the workers' files, in the middle of one, and before `latest`.
    let parts = run.parts(20);
    assert_eq!(read(run.path()).unwrap().folder(), first);
    let (partial, second) = (run.path().join("step-000020.partial"), run.path().join("step-000020"));
    assert!(failure(&partial, "an unfinished checkpoint").contains("checkpoint.json or latest"));
    std::fs::write(partial.join("shared.safetensors.4711.tmp"), b"half").unwrap();
    std::fs::write(partial.join(".thinwire-4f6K1a.tmp"), b"half").unwrap();
    assert_eq!(read(run.path()).unwrap().folder(), first);
    run.writer().finish(&run.shared(20), &parts).unwrap();
    std::fs::write(run.path().join(LATEST), "step-000010\n").unwrap();
    assert_eq!(read(run.path()).unwrap().position().step, 10);
    read_all(&second).unwrap();
    // Of a run that went back: the newest is written again and not finished.
    run.write(20);
    assert_eq!(read(run.path()).unwrap().position().step, 20);
    run.writer().worker(20, 0, &state(0, 20), &[]).unwrap();
    assert_eq!(read(run.path()).unwrap().position().step, 20);
    // Incomplete, as the folders of earlier versions were.
    std::fs::remove_file(second.join(MANIFEST)).unwrap();
    assert_eq!(read(run.path()).unwrap().position().step, 10);
    // Stopped before the first `latest`.
    std::fs::remove_file(run.path().join(LATEST)).unwrap();
    assert_eq!(read(run.path()).unwrap().position().step, 10);
    std::fs::write(run.path().join(LATEST), "step-000020\n").unwrap();
    // Nothing older is left.
    std::fs::remove_file(first.join(MANIFEST)).unwrap();
    assert!(failure(run.path(), "nothing complete").contains("step-000020"));
}

#[test]
fn what_a_stopped_run_left_is_cleaned_up_at_the_next_start() {
    let run = run();
    run.write(10);
    run.parts(20);
    let at = |name: &str| run.path().join(name);
    std::fs::write(at("step-000020.partial/.thinwire-aB3dE6.tmp"), "half").unwrap();
    std::fs::write(at(".thinwire-aB3dE6.tmp"), "half").unwrap();
    // Not ours, and one with something that is not ours.
    std::fs::create_dir(at("notes.partial")).unwrap();
    run.parts(30);
    std::fs::write(at("step-000030.partial/note.txt"), "?").unwrap();
    // Stopped when it was whole and had not yet its name: over a new one, and over one with a foreign file.
    let rewritten = run.write(40);
    run.write(50);
    std::fs::write(at("step-000050/note.txt"), "the good one").unwrap();
    for step in ["step-000040", "step-000050"] {
        std::fs::rename(at(step), at(&format!("{step}.partial"))).unwrap();
    }
    std::fs::create_dir(at("step-000050")).unwrap();
    std::fs::rename(at("step-000050.partial/note.txt"), at("step-000050/note.txt")).unwrap();
    assert!(!rewritten.exists());
    // Worker 1 leaves to worker 0 what is whole.
    run.writer().start(1).unwrap();
    assert!(!rewritten.exists() && at("step-000040.partial").exists());
    run.writer().start(0).unwrap();
    let left = ["latest", "notes.partial", "step-000030.partial", "step-000040", "step-000050"];
    assert_eq!(run.names(), left);
    assert_eq!(std::fs::read_dir(at("step-000030.partial")).unwrap().count(), 1);
    assert_eq!(std::fs::read(at("step-000050/note.txt")).unwrap(), b"the good one");
    for step in ["step-000040", "step-000050"] {
        read_all(&at(step)).unwrap();
    }
    assert_eq!(read(run.path()).unwrap().position().step, 50);
}

#[test]
fn the_first_checkpoint_is_found_that_has_not_yet_its_name() {
    let run = run();
    let folder = run.write(10);
    let partial = run.path().join("step-000010.partial");
    std::fs::rename(&folder, &partial).unwrap();
    std::fs::remove_file(run.path().join(LATEST)).unwrap();
    // As the launcher reads it, before any worker has started.
    assert_eq!(read(run.path()).unwrap().position().step, 10);
    read_all(run.path()).unwrap();
    run.writer().start(0).unwrap();
    assert_eq!(read(run.path()).unwrap().folder(), folder);
    // One that is not whole is none.
    std::fs::rename(&folder, &partial).unwrap();
    std::fs::remove_file(partial.join(MANIFEST)).unwrap();
    assert!(failure(run.path(), "half of a checkpoint").contains("neither"));
}

#[test]
fn a_checkpoint_of_another_run_is_kept_under_another_name() {
    let mut run = run();
    for seed in ["5", "6", "7"] {
        run.settings.insert("seed".into(), seed.into());
        run.write(10);
    }
    // The same run again takes the place of its own.
    run.write(10);
    assert_eq!(run.names(), ["latest", "step-000010", "step-000010.replaced", "step-000010.replaced-2"]);
    for (name, seed) in [("", "7"), ("step-000010.replaced", "5"), ("step-000010.replaced-2", "6")] {
        let checkpoint = read(&run.path().join(name)).unwrap();
        assert_eq!(checkpoint.settings().get("seed").map(String::as_str), Some(seed), "{name}");
        read_all(&run.path().join(name)).unwrap();
    }
}

#[test]
fn a_folder_that_can_not_be_written_is_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(Writer::new(file.join("c"), KEEP).unwrap_err().to_string().contains("can't create"));
    let error = Writer::new("/proc/self", KEEP).unwrap().start(0).unwrap_err().to_string();
    assert!(error.starts_with("can't write to /proc/self: "), "{error}");
}

#[test]
fn only_complete_checkpoints_of_the_same_run_are_deleted() {
    let mut run = run();
    run.write(1);
    run.write(2);
    assert_eq!(run.names(), ["latest", "step-000001", "step-000002"]);
    // Left by a crash, later than the first two; a foreign folder; one with a note; another run's.
    run.parts(3);
    std::fs::create_dir(run.path().join("step-4")).unwrap();
    std::fs::write(run.path().join("step-4").join(MANIFEST), "{}").unwrap();
    std::fs::create_dir(run.path().join("step-000004")).unwrap();
    std::fs::write(run.path().join("step-000004").join(MANIFEST), "{}").unwrap();
    std::fs::write(run.path().join("step-000002/note.txt"), "the good one").unwrap();
    std::fs::write(run.path().join("step-000001/worker-0.safetensors.12.tmp"), "half").unwrap();
    run.settings.insert("seed".into(), "5".into());
    run.write(5);
    run.settings.remove("seed");
    run.write(6);
    let kept = [
        "latest",
        "step-000002",
        "step-000003.partial",
        "step-000004",
        "step-000005",
        "step-000006",
        "step-4",
    ];
    assert_eq!(run.names(), kept);
    run.write(7);
    let left: Vec<_> = std::fs::read_dir(run.path().join("step-000002"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["note.txt"], "what is not ours stays");
    assert!(run.path().join("step-000006").join(MANIFEST).is_file());
    // A run that went back deletes nothing that lies ahead.
    run.write(5_000_000);
    run.write(8);
    assert!(run.path().join("step-5000000").join(MANIFEST).is_file());
    assert_eq!(read(run.path()).unwrap().position().step, 8);
}

#[test]
fn what_can_not_be_read_back_is_not_written() {
    let mut run = run();
    run.write(1);
    let writer = run.writer();
    assert!(Writer::new(run.path(), 0).unwrap_err().to_string().contains("at least 1"));
    let mut broken = state(0, 2);
    broken.residual.insert("fc.bias".into(), vec![0.0, f32::INFINITY]);
    let error = writer.worker(2, 0, &broken, &[]).unwrap_err().to_string();
    assert!(error.contains("residual/fc.bias: inf at element 1"), "{error}");
    let mut measured = statistics(0);
    measured[1].values[0] = f32::NAN;
    assert!(writer.worker(2, 0, &state(0, 2), &measured).unwrap_err().to_string().contains("norm.mean: NaN"));
    measured[1].name = measured[0].name.clone();
    assert!(writer.worker(2, 0, &state(0, 2), &measured).unwrap_err().to_string().contains("twice"));
    measured.truncate(1);
    measured[0].shape = vec![3];
    assert!(writer.worker(2, 0, &state(0, 2), &measured).is_err());

    let parts = run.parts(2);
    let finish = |run: &Run, parts: &[Part]| writer.finish(&run.shared(2), parts).unwrap_err().to_string();
    assert!(finish(&run, &parts[..1]).contains("parts of workers [1]"));
    assert!(finish(&run, &[]).contains("parts of workers []"));
    assert!(Part::from_message(b"?").is_err());
    // The error quotes the message, and is printed.
    let quoted = Part::from_message(br#"{"\u001b[2J\u202e": 1}"#).unwrap_err().to_string();
    assert!(quoted.contains("\u{fffd}[2J\u{fffd}") && !quoted.contains(['\x1b', '\u{202e}']), "{quoted:?}");
    let failed = Written::Err("no room".into());
    assert_eq!(Part::from_message(&Part::to_message(&failed)).unwrap(), failed);
    run.weights[1][2] = f32::NAN;
    assert!(finish(&run, &parts).contains("weight/conv.scale: NaN at element 2"));
    run.weights[1] = vec![0.0; 4];
    assert!(finish(&run, &parts).contains("1 fewer"));
    run.weights[1] = vec![0.0; 2];
    assert!(finish(&run, &parts).contains("weight/conv.scale: 2 values of bucket 1"));
    run.weights.pop();
    assert!(finish(&run, &parts).contains("1 buckets of weight"));
    run.buckets[1][0].0 = "fc.bias".into();
    run.weights.push(vec![0.0; 3]);
    assert!(finish(&run, &parts).contains("fc.bias: the name twice"));
    assert_eq!(read(run.path()).unwrap().position().step, 1, "the last good one is still the latest");
}
