//! Processes that a test has started, and all that they have started: found by a variable in their environment,
//! which is passed on whatever else a process does.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

const NAME: &str = "THINWIRE_TEST_MARK";

/// A net for a busy machine. Where a bound is to be shown, the time is printed.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Within this time nothing is left that a launcher has started, however it ended. Only `./test kills` asserts it.
pub const ORPHANS_END: Duration = Duration::from_secs(5);

/// A mark of its own. What carries it is killed in the end, whatever the test finds.
pub struct Mark(String);

/// A process with the mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    /// As in `ps`: R, S, T, ...
    pub state: char,
    /// Its variable RANK.
    pub rank: Option<usize>,
    pub arguments: String,
}

impl Mark {
    pub fn new() -> Mark {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        Mark(format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)))
    }

    /// `program` with the mark. It ignores no signal, whatever this one ignores.
    pub fn command(&self, program: &str) -> Command {
        static CATCH: Once = Once::new();
        CATCH.call_once(catch_what_is_ignored);
        let mut command = Command::new(program);
        command.env(NAME, &self.0);
        command
    }

    /// `thinwire` with the mark.
    pub fn thinwire(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_thinwire"));
        command.args(arguments);
        command
    }

    /// All processes with the mark that have not ended.
    pub fn processes(&self) -> Vec<Process> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        pids.filter_map(|pid| self.look(pid)).collect()
    }

    /// Processes come and go meanwhile; one that has ended has no environment.
    fn look(&self, pid: Pid) -> Option<Process> {
        let place = format!("/proc/{pid}");
        let environment = std::fs::read(format!("{place}/environ")).ok()?;
        let value = |name: &str| {
            let named = |pair: &[u8]| Some(pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
            environment.split(|byte| *byte == 0).find_map(named)
        };
        if value(NAME)? != self.0.as_bytes() {
            return None;
        }
        let about = std::fs::read_to_string(format!("{place}/stat")).ok()?;
        let mut rest = about.rsplit(')').next()?.split_whitespace();
        let (state, parent) = (rest.next()?.chars().next()?, rest.next()?.parse().ok()?);
        let arguments = std::fs::read(format!("{place}/cmdline")).ok()?;
        Some(Process {
            pid,
            parent,
            state,
            rank: value("RANK").and_then(|rank| String::from_utf8(rank).ok()?.parse().ok()),
            arguments: String::from_utf8_lossy(&arguments).replace('\0', " "),
        })
    }

    /// The process of a rank itself, not what it has started.
    pub fn rank(&self, rank: usize) -> Option<Pid> {
        let supervisor = self.supervisor()?.as_raw_nonzero().get();
        let is_it = |process: &Process| process.rank == Some(rank) && process.parent == supervisor;
        self.processes().into_iter().find(is_it).map(|process| process.pid)
    }

    /// The process between launcher and ranks.
    pub fn supervisor(&self) -> Option<Pid> {
        let is_it = |process: &Process| process.rank.is_none() && process.arguments.contains(" supervise ");
        self.processes().into_iter().find(is_it).map(|process| process.pid)
    }

    /// How many processes have a command line that begins so.
    pub fn count(&self, command: &str) -> usize {
        self.processes().iter().filter(|process| process.arguments.starts_with(command)).count()
    }

    /// Waits until none is left: how long that took since `since`.
    pub fn gone(&self, since: Instant) -> Duration {
        wait_or(
            "the end of all processes",
            || self.processes().is_empty(),
            || format!("{:#?}", self.processes()),
        );
        since.elapsed()
    }
}

/// `nohup`, and shells for what they run in the background, let programs ignore signals, and these pass it on to what they
/// start. What is caught instead is not passed on, and has no effect here either.
fn catch_what_is_ignored() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    for signal in
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP].into_iter().filter(|n| mask & (1 << (n - 1)) != 0)
    {
        signal_hook::flag::register(signal, Arc::default()).unwrap();
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        for process in self.processes() {
            let _ = rustix::process::kill_process(process.pid, Signal::KILL);
        }
    }
}

/// Waits for an event.
pub fn wait(what: &str, until: impl FnMut() -> bool) {
    wait_or(what, until, String::new);
}

fn wait_or(what: &str, mut until: impl FnMut() -> bool, about: impl Fn() -> String) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < LIMIT, "waited too long for {what}: {}", about());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a process that may have ended.
pub fn send(pid: Pid, signal: Signal) {
    let _ = rustix::process::kill_process(pid, signal);
}
