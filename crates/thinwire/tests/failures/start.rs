//! Starts ranks as processes and waits for their ends.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::rank::{Findings, PART, Part};
use super::support::port::free_port;

/// Ranks in most scenarios.
pub const SIZE: usize = 4;

/// The deadline of ranks for which none is to pass, in seconds.
pub const PATIENT: f64 = 15.0;

/// The deadline of those for which it is.
pub const SHORT: f64 = 4.0;

/// No scenario takes longer unless a rank hangs; the rest is for machines that have other things to do.
const LIMIT: Duration = Duration::from_secs(30);

/// Ranks that are started, one by one or all together.
pub struct Ranks {
    pub port: u16,
    pub size: usize,
    /// Of each rank, in seconds.
    pub deadlines: [f64; SIZE],
    /// For all ranks.
    pub variables: Vec<(&'static str, String)>,
    /// What each rank's program is started with.
    pub prefix: Vec<Vec<String>>,
    folder: tempfile::TempDir,
    running: Vec<Option<Child>>,
    ends: Vec<Option<ExitStatus>>,
    begun: Instant,
}

/// How a rank ended.
pub struct End {
    pub rank: usize,
    pub status: ExitStatus,
    /// `None` if it could not tell.
    pub findings: Option<Findings>,
    /// Its standard error.
    pub said: String,
}

impl End {
    /// Its error; empty if it had none.
    pub fn error(&self) -> &str {
        self.findings.as_ref().and_then(|findings| findings.error.as_deref()).unwrap_or_default()
    }
}

impl Ranks {
    pub fn new() -> Ranks {
        Ranks {
            port: free_port(),
            size: SIZE,
            deadlines: [PATIENT; SIZE],
            variables: vec![],
            prefix: vec![vec![]; SIZE],
            folder: tempfile::tempdir().expect("a folder"),
            running: (0..SIZE).map(|_| None).collect(),
            ends: vec![None; SIZE],
            begun: Instant::now(),
        }
    }

    /// Starts all ranks with the parts that `part` gives them.
    pub fn start_all(&mut self, part: impl Fn(usize) -> Part) -> Result<(), String> {
        (0..self.size).try_for_each(|rank| self.start(rank, &part(rank), &[]))
    }

    /// Starts one rank, with variables of its own.
    pub fn start(&mut self, rank: usize, part: &Part, variables: &[(&str, &str)]) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let words = &self.prefix[rank];
        let mut command = match words.split_first() {
            None => Command::new(program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let file = |kind: &str| File::create(self.file(rank, kind)).map_err(|error| error.to_string());
        let child = command
            .env(PART, serde_json::to_string(part).map_err(|error| error.to_string())?)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", self.size.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", self.port.to_string())
            .env("THINWIRE_DEADLINE", self.deadlines[rank].to_string())
            .env("RUST_BACKTRACE", "0")
            .envs(self.variables.iter().cloned())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(file("out")?)
            .stderr(file("err")?)
            .spawn();
        self.running[rank] = Some(child.map_err(|error| format!("can't start rank {rank}: {error}"))?);
        Ok(())
    }

    fn file(&self, rank: usize, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{rank}.{kind}"))
    }

    pub fn signal(&self, rank: usize, signal: Signal) -> Result<(), String> {
        let child = self.running[rank].as_ref().ok_or_else(|| format!("rank {rank} has ended"))?;
        kill_process(Pid::from_child(child), signal).map_err(|error| error.to_string())
    }

    /// Waits until a rank has joined the group.
    pub fn wait_until_joined(&self, rank: usize) -> Result<(), String> {
        while !std::fs::read_to_string(self.file(rank, "out")).unwrap_or_default().contains("joined") {
            if self.begun.elapsed() > LIMIT {
                return Err(format!("rank {rank} has not joined: {}", self.said(rank)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until a rank has been stopped by a signal.
    pub fn wait_until_stopped(&self, rank: usize) -> Result<(), String> {
        let child = self.running[rank].as_ref().ok_or_else(|| format!("rank {rank} has ended"))?;
        let file = format!("/proc/{}/status", child.id());
        while !std::fs::read_to_string(&file).unwrap_or_default().contains("State:\tT") {
            if self.begun.elapsed() > LIMIT {
                return Err(format!("rank {rank} has not stopped: {}", self.said(rank)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits for the ends of these ranks.
    pub fn wait_for(&mut self, ranks: &[usize]) -> Result<(), String> {
        loop {
            let mut waiting = Vec::new();
            for &rank in ranks {
                let Some(child) = &mut self.running[rank] else { continue };
                match child.try_wait().map_err(|error| error.to_string())? {
                    Some(status) => (self.ends[rank], self.running[rank]) = (Some(status), None),
                    None => waiting.push(rank),
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if self.begun.elapsed() > LIMIT {
                let said: String =
                    (0..self.size).map(|rank| format!("\n  rank {rank}: {}", self.said(rank))).collect();
                return Err(format!("ranks {waiting:?} have not ended within {LIMIT:?}{said}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for all that were started; gives their ends.
    pub fn finish(mut self) -> Result<Vec<End>, String> {
        self.wait_for(&(0..self.size).collect::<Vec<usize>>())?;
        let end = |rank: usize| {
            let out = std::fs::read_to_string(self.file(rank, "out")).unwrap_or_default();
            let findings = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
            let said = std::fs::read_to_string(self.file(rank, "err")).unwrap_or_default();
            Some(End { rank, status: self.ends[rank]?, findings, said })
        };
        Ok((0..self.size).filter_map(end).collect())
    }

    fn said(&self, rank: usize) -> String {
        let read = |kind| std::fs::read_to_string(self.file(rank, kind)).unwrap_or_default();
        format!("{:?} {:?}", read("out"), read("err"))
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            // It may have ended just now. One that is stopped ends too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
