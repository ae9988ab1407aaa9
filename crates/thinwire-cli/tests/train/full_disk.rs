//! A disk that fills, or becomes read-only, at any write: the training goes on, or ends with everything saved so far.
//!
//! The disk is full for one process, by a library that is loaded into it (`full_disk.c`); `./test root` does the same
//! with small file systems.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use thinwire_train::checkpoint;
use thinwire_train::event::{self, Event};
use thinwire_train::report::Recorded;

use crate::common::Folder;
use crate::{names, weights};

/// 14 steps of two workers, and a checkpoint after 5, 10 and 14.
const WORDS: &str = "--model mlp:hidden=16 -n 2 --batch 16 --epochs 0.3 --save-every 0.1 --probes 0 --threads 1 --method topk";
const STEPS: u64 = 14;
const NO_ROOM: &str = "No space left on device";
const READ_ONLY: &str = "Read-only file system";

/// How a disk is full.
#[derive(Debug, Clone, Copy)]
struct Full {
    /// The number of the call that is the first to fail.
    from: usize,
    /// How many fail; `None`: all from there on.
    count: Option<usize>,
    /// The only rank whose disk it is; `None`: that of all processes.
    rank: Option<usize>,
    /// It is not full but read-only.
    read_only: bool,
}

impl Full {
    fn error(self) -> &'static str {
        if self.read_only { READ_ONLY } else { NO_ROOM }
    }
}

/// The library, compiled. Rust needs a C compiler for its linker, so there is one.
fn library(folder: &Folder) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/train/full_disk.c");
    let library = folder.path("full_disk.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(compiler.status().expect("a C compiler, as cc").success());
    library
}

/// Ends the process, should the test fail before it has ended.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a program prints that is to end by itself.
fn output(command: &mut Command, what: &str) -> Output {
    let mut running = Running(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()));
    let begun = Instant::now();
    while running.0.as_mut().unwrap().try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}: does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
    running.0.take().unwrap().wait_with_output().unwrap()
}

/// What came of a training on a full disk.
struct Outcome {
    what: String,
    /// The system's error when a write fails.
    reason: &'static str,
    succeeded: bool,
    printed: String,
    errors: String,
}

impl Outcome {
    fn of(what: String, reason: &'static str, output: Output) -> Outcome {
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{what}: {:?}\n{errors}", output.status);
        Outcome { succeeded: output.status.success(), what, reason, printed, errors }
    }

    /// Everything that must hold wherever the disk was full. `run` and `save` are the folders.
    fn check(&self, run: &Path, save: &Path) {
        let Outcome { what, reason, succeeded, printed, errors } = self;
        let say = format!("{what}, success {succeeded}:\n{errors}");
        assert!(!errors.contains("panicked"), "{say}");
        // Every failure is reported with its reason.
        let is_error = |line: &&str| line.starts_with("error: ");
        assert_eq!(errors.lines().any(|line| is_error(&line)), !succeeded, "{say}");
        assert!(*succeeded || errors.contains(reason), "{say}");

        let steps = self.check_record(run, &say);
        let saved = check_checkpoints(save, &say);
        // The training went on, however much of it could be kept.
        let ended = printed.contains("accuracy");
        assert!(ended || steps == 0, "the training ended with its disk after {steps} steps; {say}");
        if *succeeded {
            assert!(ended && saved == Some(STEPS), "{saved:?}; {say}");
        } else if ended && saved != Some(STEPS) {
            assert!(errors.contains("the training has ended, but the checkpoint of its last step"), "{say}");
        }
    }

    /// Every line is whole, and what is missing was told. Gives the steps that were recorded.
    fn check_record(&self, run: &Path, say: &str) -> usize {
        let file = run.join("metrics.jsonl");
        let Ok(text) = std::fs::read_to_string(&file) else { return 0 };
        assert!(text.is_empty() || text.ends_with('\n'), "a torn line; {say}");
        for line in text.lines() {
            assert!(serde_json::from_str::<Event>(line).is_ok(), "{line:?}; {say}");
        }
        let events = event::read(&file).unwrap();
        assert_eq!(events.len(), text.lines().count());
        if events.is_empty() {
            return 0;
        }
        let recorded = Recorded::read(run).unwrap();
        let all = recorded.steps.len() as u64 == STEPS && recorded.end.is_some();
        let told = self.errors.contains("what happens is not recorded until there is room");
        assert!(all || told || !self.printed.contains("accuracy"), "events are missing; {say}");
        recorded.steps.len()
    }
}

/// The newest checkpoint can be read, with all its parts, and nothing half-written is left. Gives its step.
fn check_checkpoints(save: &Path, say: &str) -> Option<u64> {
    if !save.exists() {
        return None;
    }
    let all = names(save);
    let folders: Vec<&String> = all.iter().filter(|name| name.starts_with("step-")).collect();
    for name in &all {
        let whole = save.join(name).join("checkpoint.json").is_file();
        // A folder that lacks only its name gets it at the next start.
        assert!(name == "latest" || whole, "{name} is left; {say}");
    }
    if !folders.iter().any(|name| !name.ends_with(".partial")) {
        return None;
    }
    let checkpoint = checkpoint::read(save).unwrap_or_else(|error| panic!("{error}; {say}"));
    for rank in 0..checkpoint.workers() {
        checkpoint.worker(rank).unwrap_or_else(|error| panic!("{error}; {say}"));
    }
    Some(checkpoint.position().step)
}

/// Trains in `folder` on a disk that is full in this way.
fn train(folder: &Folder, library: &Path, group: &str, full: Full) -> Outcome {
    for name in ["r", "c"] {
        let _ = std::fs::remove_dir_all(folder.path(name));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_thinwire"));
    command.args(format!("train {WORDS} --group {group} --run r --save c").split_whitespace());
    command.current_dir(folder.path("")).env("LD_PRELOAD", library).env("FULL_FROM", full.from.to_string());
    command.env("FULL_COUNT", folder.path("calls"));
    if let Some(count) = full.count {
        command.env("FULL_FOR", count.to_string());
    }
    if let Some(rank) = full.rank {
        command.env("FULL_RANK", rank.to_string());
    }
    if full.read_only {
        command.env("FULL_READ_ONLY", "");
    }
    let what = format!("{group}, {full:?}");
    let outcome = Outcome::of(what.clone(), full.error(), output(&mut command, &what));
    outcome.check(&folder.path("r"), &folder.path("c"));
    outcome
}

/// How many calls of a training need room on a disk: all processes' in one, or those of one rank.
fn calls(folder: &Folder, library: &Path, group: &str, rank: Option<usize>) -> usize {
    let never = Full { from: usize::MAX >> 1, count: None, rank, read_only: false };
    let outcome = train(folder, library, group, never);
    assert!(outcome.succeeded && !outcome.errors.contains(NO_ROOM), "{}", outcome.errors);
    String::from_utf8(folder.read("calls")).unwrap().parse().unwrap()
}

/// Lets the disk be full at every call, or at every so many. Gives at how many it was, and how often the training came to
/// its end.
fn sweep(group: &str, step: usize, full: Full) -> (usize, usize) {
    let Full { rank, .. } = full;
    let folder = Folder::new();
    let library = library(&folder);
    let whole = weights(&folder, &format!("{WORDS} --group {group}"));
    let calls = calls(&folder, &library, group, rank);
    let (mut points, mut ended) = (0, 0);
    for from in (0..calls).step_by(step) {
        let outcome = train(&folder, &library, group, Full { from, ..full });
        points += 1;
        ended += usize::from(outcome.printed.contains("accuracy"));
        // What is there goes on as if nothing had been.
        if from % 8 == 0 && folder.path("c/latest").exists() {
            let again = format!("{WORDS} --group {group} --run r --save c --resume c");
            assert_eq!(weights(&folder, &again), whole, "resumed after {from}");
            assert_eq!(Recorded::read(&folder.path("r")).unwrap().steps_done(), STEPS);
            assert!(names(&folder.path("c")).iter().all(|name| !name.ends_with(".partial")));
        }
    }
    println!(
        "{group}, rank {rank:?}: {calls} calls need room; {ended} of {points} trainings came to their end"
    );
    assert!(calls > 10, "{calls} calls");
    (points, ended)
}

/// From the start on, for all.
const ALWAYS: Full = Full { from: 0, count: None, rank: None, read_only: false };

#[test]
fn a_disk_that_is_read_only_from_any_write_on() {
    let (points, ended) = sweep("local", 5, Full { read_only: true, ..ALWAYS });
    assert!(points > 12 && ended > points / 2, "{ended} of {points}");
}

#[test]
fn a_disk_that_is_full_from_any_write_on() {
    let (points, ended) = sweep("local", 1, ALWAYS);
    // Only what comes before the first step ends the training: that was checked for each.
    assert!(points > 60 && ended > points / 2, "{ended} of {points}");
}

#[test]
fn a_disk_that_is_full_for_a_while() {
    for count in [1, 20] {
        let (points, ended) = sweep("local", 3, Full { count: Some(count), ..ALWAYS });
        assert!(ended > points / 2, "{ended} of {points}");
    }
}

#[test]
fn a_disk_that_is_full_for_one_rank_alone() {
    for rank in [0, 1] {
        let (points, ended) = sweep("tcp", 4, Full { rank: Some(rank), ..ALWAYS });
        assert!(ended > points / 2, "rank {rank}: {ended} of {points}");
    }
}

#[test]
fn what_was_missed_is_noted_once_there_is_room_again() {
    let folder = Folder::new();
    let library = library(&folder);
    let mut seen = 0;
    for from in (0..90).step_by(5) {
        let outcome = train(&folder, &library, "local", Full { from, count: Some(3), ..ALWAYS });
        let recorded = Recorded::read(&folder.path("r"));
        let notes = recorded.map_or(Vec::new(), |recorded| recorded.notes);
        let noted = notes.iter().any(|(_, text)| text.contains("could not be recorded"));
        assert_eq!(
            noted,
            outcome.errors.contains("events are recorded in r/metrics.jsonl again"),
            "{}",
            outcome.errors
        );
        seen += usize::from(noted);
    }
    assert!(seen > 0, "no event was ever missed");
}

/// A file system of its own, of a few kilobytes.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn new(place: &Path, size: usize) -> Small<'_> {
        std::fs::create_dir_all(place).unwrap();
        let size = format!("size={size}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(place).status();
        assert!(status.unwrap().success(), "mount a tmpfs at {}: are you root?", place.display());
        Small(place)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
#[ignore = "needs root: ./test root"]
fn a_small_file_system_that_fills_anywhere() {
    let folder = Folder::new();
    let place = folder.path("disk");
    let (mut failed, mut whole) = (0, 0);
    for size in (4..240).step_by(4) {
        let _small = Small::new(&place, size << 10);
        let mut command = Command::new(env!("CARGO_BIN_EXE_thinwire"));
        command.args(format!("train {WORDS} --group local --run r --save c").split_whitespace());
        let what = format!("{size} KiB");
        let outcome = Outcome::of(what.clone(), NO_ROOM, output(command.current_dir(&place), &what));
        outcome.check(&place.join("r"), &place.join("c"));
        failed += usize::from(!outcome.succeeded);
        whole += usize::from(outcome.succeeded && !outcome.errors.contains(NO_ROOM));
    }
    println!("{failed} of 59 sizes were too small, {whole} large enough");
    assert!(failed > 10 && whole > 10, "{failed} failed, {whole} were whole");
}
