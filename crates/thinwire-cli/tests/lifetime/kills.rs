//! Kills of ranks and launchers while `thinwire train` runs: nothing is left running, nothing that was recorded is lost,
//! the right rank is named, and the run goes on to the same weights.
//!
//! One series of kills: each starts the run anew, or resumes it where there is a checkpoint, waits for a moment and
//! kills. `metrics.jsonl` must only grow, and the newest checkpoint must be whole after each. A run that has ended is
//! compared with one that was left alone, and the next begins in another folder.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::accused::accused;
use crate::common::Folder;
use crate::marked::{Mark, ORPHANS_END, send};

const WORKERS: usize = 3;

/// The link makes steps long enough to be hit.
const WORDS: &str = "--model cnn:width=2 -n 3 --epochs 3 --probes 0 --method topk:density=0.05";
const SLOWLY: &str = "--save-every 0.1 --link 1gbit,2ms --deadline 20";

/// The launcher ends at the latest after its ranks' deadline and 5 s, and the grace period.
const END: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// This long after the launcher was started, or as soon as there is the process that is to be killed.
    Start(Duration),
    /// This long after all ranks were there.
    Meeting(Duration),
    /// After so many lines more in `metrics.jsonl`.
    Training(usize),
    /// While the folder of a checkpoint is not whole.
    Checkpoint,
    /// When the last event is recorded, and the report is not written.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Launcher,
    Rank(usize),
}

#[derive(Debug, Clone, Copy)]
struct Kill {
    moment: Moment,
    victim: Victim,
    signal: Signal,
}

/// What came out of all kills.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    /// Runs that ended before the moment came; they are no kills.
    too_late: usize,
    completed: usize,
    resumed: usize,
    slowest_launcher: Duration,
    slowest_rank: Duration,
    wrong: Vec<String>,
    /// Errors of other ranks that were looked at.
    errors_of_others: usize,
    /// Those that name no rank, or another than the killed one.
    misnamed: Vec<String>,
}

/// A run in a folder, killed again and again.
struct Series {
    folder: Folder,
    /// Which run this is, of those that were begun.
    number: usize,
    /// The weights of a run that was left alone.
    whole: u64,
    tally: Tally,
}

impl Series {
    fn new() -> Series {
        let folder = Folder::new();
        let text = folder.text(&format!("train {WORDS} --run whole --json -"));
        let outcome: Value = serde_json::from_str(&text).unwrap();
        let whole = outcome["end"]["weights"].as_u64().unwrap();
        Series { folder, number: 0, whole, tally: Tally::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(&format!("{}{}", name, self.number))
    }

    fn words(&self) -> String {
        let Series { number, .. } = self;
        let resume = if self.path("c").join("latest").exists() {
            format!("--resume c{number}")
        } else {
            String::new()
        };
        format!("train {WORDS} --run r{number} --save c{number} {resume}")
    }

    fn metrics(&self) -> Vec<u8> {
        std::fs::read(self.path("r").join("metrics.jsonl")).unwrap_or_default()
    }

    /// Whether one of the newest checkpoint's files is missing or half written.
    fn is_saving(&self) -> bool {
        let folders = std::fs::read_dir(self.path("c")).into_iter().flatten().flatten();
        let mut folders = folders.map(|entry| entry.path()).filter(|path| path.is_dir());
        folders.any(|path| !path.join("checkpoint.json").exists())
    }

    fn has_come(
        &self,
        moment: Moment,
        before: usize,
        mark: &Mark,
        launched: Instant,
        met: &mut Option<Instant>,
    ) -> bool {
        match moment {
            Moment::Start(after) => launched.elapsed() >= after,
            Moment::Meeting(after) => {
                if met.is_none() && (0..WORKERS).all(|rank| mark.rank(rank).is_some()) {
                    *met = Some(Instant::now());
                }
                met.is_some_and(|met| met.elapsed() >= after)
            }
            Moment::Training(lines) => count_lines(&self.metrics()) > before + lines,
            Moment::Checkpoint => self.is_saving() && count_lines(&self.metrics()) > before,
            Moment::End => has_ended(&self.metrics()),
        }
    }

    /// Starts, kills, and looks at what is left.
    fn kill(&mut self, kill: Kill) {
        if !self.metrics().is_empty() && !self.path("c").join("latest").exists() {
            // It was killed before its first checkpoint: there is nothing to resume.
            self.number += 1;
        }
        let (mark, before) = (Mark::new(), self.metrics());
        let words = format!("{} {SLOWLY}", self.words());
        self.tally.resumed += usize::from(words.contains("--resume"));
        let mut command = mark.thinwire(&words.split_whitespace().collect::<Vec<&str>>());
        let logs: [usize; WORKERS] = std::array::from_fn(|rank| self.log(rank).len());
        let errors = std::fs::File::create(self.folder.path("errors")).unwrap();
        command.current_dir(self.folder.path("")).stdout(Stdio::null()).stderr(errors);
        let launched = Instant::now();
        let mut launcher = command.spawn().unwrap();
        let (lines, mut met) = (count_lines(&before), None);
        let mut killed = None;
        while launcher.try_wait().unwrap().is_none() && killed.is_none() {
            assert!(launched.elapsed() < 2 * END, "{kill:?}: the moment does not come");
            let victim = match kill.victim {
                Victim::Launcher => Some(Pid::from_child(&launcher)),
                Victim::Rank(rank) => mark.rank(rank),
            };
            if let Some(victim) =
                victim.filter(|_| self.has_come(kill.moment, lines, &mark, launched, &mut met))
            {
                send(victim, kill.signal);
                killed = Some(Instant::now());
            }
            // A checkpoint is written within milliseconds.
            std::thread::sleep(Duration::from_micros(500));
        }
        self.tally.kills += usize::from(killed.is_some());
        self.tally.too_late += usize::from(killed.is_none());
        let since = killed.unwrap_or_else(Instant::now);
        let status = loop {
            if let Some(status) = launcher.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < END, "{kill:?}: the launcher does not end: {:#?}", mark.processes());
            std::thread::sleep(Duration::from_millis(2));
        };
        let gone = mark.gone(since);
        let slowest = match kill.victim {
            Victim::Launcher => &mut self.tally.slowest_launcher,
            Victim::Rank(_) => &mut self.tally.slowest_rank,
        };
        *slowest = gone.max(*slowest);

        let errors = String::from_utf8_lossy(&self.folder.read("errors")).into_owned();
        assert!(!errors.contains("panicked"), "{kill:?}: {errors}");
        if let Some(wrong) = wrong_names(kill, status.success(), &errors) {
            self.tally.wrong.push(format!("{kill:?}: {wrong}: {errors}"));
        }
        if let Victim::Rank(rank) = kill.victim {
            self.check_names(kill, rank, &errors, logs);
        }
        self.check_history(kill, &before);
        if status.success() || has_ended(&self.metrics()) {
            self.complete();
        }
    }

    /// The log of a rank that does not speak on the terminal.
    fn log(&self, rank: usize) -> String {
        let path = self.path("r").join(format!("worker-{rank}.log"));
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }

    /// Every rank that ended because of the one that was killed blames it and nobody else: on the terminal, or in its log
    /// beyond what was there before.
    fn check_names(&mut self, kill: Kill, killed: usize, terminal: &str, before: [usize; WORKERS]) {
        let mut errors = errors_in(terminal);
        errors.retain(|error| !is_of_launcher(error));
        for (rank, length) in before.into_iter().enumerate().filter(|(rank, _)| *rank != killed) {
            errors.extend(errors_in(&self.log(rank)[length..]));
        }
        self.tally.errors_of_others += errors.len();
        errors.retain(|error| !accused(error).into_iter().eq([killed]));
        self.tally.misnamed.extend(errors.into_iter().map(|error| format!("{kill:?}: {error}")));
    }

    /// Whole lines stay and can be read, and the newest checkpoint is whole.
    fn check_history(&self, kill: Kill, before: &[u8]) {
        let after = self.metrics();
        assert!(after.starts_with(whole_lines(before)), "{kill:?}: metrics.jsonl has lost what it held");
        for line in whole_lines(&after).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let read: Result<Value, _> = serde_json::from_slice(line);
            assert!(read.is_ok(), "{kill:?}: {read:?} in {}", String::from_utf8_lossy(line));
        }
        if self.path("c").join("latest").exists() {
            let read = thinwire_train::checkpoint::read(&self.path("c"));
            assert!(read.is_ok(), "{kill:?}: {:?}", read.err());
        }
    }

    /// Lets the run end, and begins another one.
    fn complete(&mut self) {
        let before = self.metrics();
        if self.path("c").join("latest").exists() {
            let outcome: Value =
                serde_json::from_str(&self.folder.text(&format!("{} {SLOWLY} --json -", self.words())))
                    .unwrap();
            assert_eq!(outcome["end"]["weights"], self.whole, "the run went on to other weights");
            assert!(
                self.metrics().starts_with(whole_lines(&before)),
                "--resume has lost what metrics.jsonl held"
            );
            self.tally.completed += 1;
        }
        self.number += 1;
    }
}

/// Errors, each with the lines that belong to it.
fn errors_in(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("error: "), errors.last_mut()) {
            (Some(error), _) => errors.push(error.to_owned()),
            (None, Some(last)) if line.starts_with("  ") => *last += line,
            _ => {}
        }
    }
    errors
}

fn is_of_launcher(error: &str) -> bool {
    error.contains(" ended with ") || error.contains("ended by ")
}

/// What is wrong with the names in the launcher's error.
fn wrong_names(kill: Kill, ended_well: bool, errors: &str) -> Option<String> {
    let launchers: Vec<&str> =
        errors.lines().filter(|line| line.starts_with("error: ") && is_of_launcher(line)).collect();
    match kill.victim {
        _ if ended_well => (!launchers.is_empty()).then(|| "an error of a run that ended well".to_owned()),
        Victim::Launcher => {
            let named = errors.lines().find(|line| line.contains("rank ") || line.contains("ranks "));
            let named = named.filter(|line| !line.contains("and the ranks with it"));
            named.map(|line| format!("nobody is to be named, but {line:?}"))
        }
        Victim::Rank(rank) => {
            let number = kill.signal.as_raw();
            let expected = format!("error: rank {rank} ended with signal: {number} (");
            let right =
                launchers.len() == 1 && launchers[0].starts_with(&expected) && !launchers[0].contains(';');
            (!right).then(|| format!("expected {expected:?}"))
        }
    }
}

fn whole_lines(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)]
}

fn count_lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Whether the last whole line is the event that ends a run.
fn has_ended(text: &[u8]) -> bool {
    let last = whole_lines(text).trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    let event: Option<Value> = last.and_then(|line| serde_json::from_slice(line).ok());
    event.is_some_and(|event| event["event"] == "end")
}

const SIGNALS: [Signal; 4] = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP];

#[test]
fn who_is_blamed_is_read_from_errors() {
    crate::accused::check_accused();
}

#[test]
fn kills_at_every_moment_leave_nothing_running_and_lose_nothing() {
    use Moment::{Checkpoint, End, Meeting, Start, Training};
    use Victim::{Launcher, Rank};
    const NOW: Duration = Duration::ZERO;
    let mut series = Series::new();
    for (moment, victim, signal) in [
        (Start(NOW), Launcher, Signal::KILL),
        (Start(Duration::from_millis(30)), Launcher, Signal::TERM),
        (Meeting(NOW), Launcher, Signal::KILL),
        (Training(12), Launcher, Signal::KILL),
        (Training(5), Rank(0), Signal::KILL),
        (Checkpoint, Launcher, Signal::KILL),
        (Training(3), Rank(2), Signal::TERM),
        (Checkpoint, Rank(0), Signal::KILL),
        (Training(9), Launcher, Signal::INT),
        (Meeting(NOW), Launcher, Signal::HUP),
        (Checkpoint, Rank(1), Signal::KILL),
        (Training(2), Launcher, Signal::HUP),
        (End, Launcher, Signal::KILL),
    ] {
        series.kill(Kill { moment, victim, signal });
    }
    series.complete();
    println!("{:#?}", series.tally);
    assert!(series.tally.wrong.is_empty() && series.tally.misnamed.is_empty(), "{:#?}", series.tally);
}

/// `./test kills`: as many as THINWIRE_KILLS says, drawn from the seed in THINWIRE_SEED.
#[test]
#[ignore = "takes ten minutes: ./test kills"]
fn random_kills() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}")))
    };
    let (kills, seed) = (number("THINWIRE_KILLS", 200), number("THINWIRE_SEED", 1));
    let mut draw = Draw(seed);
    let mut series = Series::new();
    while series.tally.kills < kills as usize {
        let moment = match draw.below(5) {
            0 => Moment::Start(Duration::from_millis(draw.below(80))),
            1 => Moment::Meeting(Duration::from_millis(draw.below(60))),
            2 => Moment::Training(draw.below(40) as usize),
            3 => Moment::Checkpoint,
            _ => Moment::End,
        };
        let victim = match draw.below(2) {
            0 => Victim::Launcher,
            _ => Victim::Rank(draw.below(WORKERS as u64) as usize),
        };
        let kill = Kill { moment, victim, signal: SIGNALS[draw.below(4) as usize] };
        series.kill(kill);
        println!("{}: {kill:?}", series.tally.kills);
    }
    series.complete();
    println!("seed {seed}: {:#?}", series.tally);
    assert!(series.tally.wrong.is_empty() && series.tally.misnamed.is_empty());
    assert!(series.tally.errors_of_others > 0);
    assert!(series.tally.slowest_launcher <= ORPHANS_END, "{:?}", series.tally.slowest_launcher);
}

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
