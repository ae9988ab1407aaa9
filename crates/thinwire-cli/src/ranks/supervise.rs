//! The process between the launcher and the ranks: starts the ranks, watches over them, and ends them.
//!
//! ```text
//! launcher ── supervisor ──┬─ rank 0 ── whatever it starts
//!  (in the terminal's      └─ rank 1 ── ...
//!   process group)         (a session of its own; each rank leads a process group)
//! ```
//!
//! Why a process of its own: it outlives the launcher, also one that gets SIGKILL, and it stays the ancestor of all
//! that runs below ([`processes`]). So it can give the ranks time to end, and then find and kill what is left. Should
//! it be killed itself, the launcher does the same. Invariant: it ends only when nothing is left below it, but for
//! processes that no signal of its user can end.
//!
//! Signals reach the ranks through the launcher and the supervisor, once. None comes from a terminal
//! directly: they are in no session that has one.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid};

use super::failure::{Failure, describe};
use super::processes::{self, Family};
use super::signals::{self, SIGCHLD, SIGINT, Signals, TERMINATING};
use crate::output;

/// How often the launcher is looked at; the end of a rank and signals are noticed at once.
const PAUSE: Duration = Duration::from_millis(50);

/// How much longer than the deadline the others get to end by themselves when a rank has failed.
const MORE: Duration = Duration::from_secs(5);

/// Starts the ranks of a launcher and ends them with it. `thinwire` calls this itself.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The process that started this one
    #[arg(long)]
    launcher: i32,
    #[arg(long)]
    ranks: usize,
    /// Seconds
    #[arg(long)]
    deadline: f64,
    /// Seconds
    #[arg(long)]
    grace: f64,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Arguments {
    /// The command that runs this for `command`.
    pub fn command(
        ranks: usize,
        deadline: Duration,
        grace: Duration,
        command: impl IntoIterator<Item = OsString>,
    ) -> Result<Command> {
        let mut process =
            Command::new(std::env::current_exe().context("can't find this program's own file")?);
        process
            .arg("supervise")
            .args(["--launcher", &std::process::id().to_string(), "--ranks", &ranks.to_string()])
            .args(["--deadline", &deadline.as_secs_f64().to_string()])
            .args(["--grace", &grace.as_secs_f64().to_string(), "--"])
            .args(command);
        Ok(process)
    }
}

/// Why the ranks are to end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cause {
    /// They have, all of them.
    Ended,
    /// One failed, and others did not end by themselves.
    Failure,
    /// The launcher got this signal.
    Signal(i32),
    /// The launcher was killed.
    LauncherGone,
}

struct Supervisor {
    arguments: Arguments,
    signals: Signals,
    family: Family,
    /// The ranks that have not ended.
    running: Vec<(Pid, usize)>,
    failures: Vec<Failure>,
}

/// Runs the ranks until all have ended.
pub fn run(arguments: Arguments) -> Result<()> {
    // It fails only for the leader of a group, which a terminal does not reach either.
    let _ = rustix::process::setsid();
    let signals = Signals::catch(&[&TERMINATING[..], &[SIGCHLD]].concat())?;
    let grace = seconds(arguments.grace);
    let (running, failures) = (Vec::new(), Vec::new());
    let mut supervisor = Supervisor { arguments, signals, family: Family::found(), running, failures };
    let cause = supervisor.start().and_then(|()| supervisor.watch());
    let first = if matches!(cause, Ok(Cause::Signal(SIGINT))) { Signal::INT } else { Signal::TERM };
    supervisor.family.end(first, grace, &mut supervisor.signals);
    supervisor.report(cause?)
}

impl Supervisor {
    fn start(&mut self) -> Result<()> {
        let [program, arguments @ ..] = &self.arguments.command[..] else { bail!("no command was given") };
        for rank in 0..self.arguments.ranks {
            if self.launcher_is_gone() {
                break;
            }
            let mut command = Command::new(program);
            let rank_text = rank.to_string();
            command.args(arguments).env("RANK", &rank_text).env("LOCAL_RANK", &rank_text).process_group(0);
            // Should launcher and supervisor be killed at once.
            processes::end_with_parent(&mut command, Signal::KILL);
            let child = command.spawn().with_context(|| format!("can't start {program:?}"))?;
            // From here on it is known by its number: all children are waited for together.
            let pid = Pid::from_child(&child);
            self.family.add(pid);
            self.running.push((pid, rank));
        }
        Ok(())
    }

    /// Waits until there is a cause for the ranks to end.
    fn watch(&mut self) -> Result<Cause> {
        let deadline = seconds(self.arguments.deadline).saturating_add(MORE);
        let mut caught: Vec<i32> = Vec::new();
        loop {
            self.reap();
            if self.launcher_is_gone() {
                return Ok(Cause::LauncherGone);
            }
            if self.running.is_empty() {
                return Ok(Cause::Ended);
            }
            if let Some(signal) = caught.iter().find(|signal| TERMINATING.contains(signal)) {
                return Ok(Cause::Signal(*signal));
            }
            if self.failures.first().is_some_and(|first| first.at.elapsed() > deadline) {
                let left: Vec<String> = self.running.iter().map(|(_, rank)| rank.to_string()).collect();
                output::note(&format!("ending the ranks that are left: {}", left.join(", ")));
                return Ok(Cause::Failure);
            }
            caught = self.signals.wait(PAUSE);
        }
    }

    fn reap(&mut self) {
        let at = Instant::now();
        while let Ok(Some((pid, status))) = processes::reap() {
            let Some(place) = self.running.iter().position(|(running, _)| *running == pid) else { continue };
            let (_, rank) = self.running.remove(place);
            let status = ExitStatus::from_raw(status.as_raw());
            if !status.success() {
                self.failures.push(Failure { rank, status, at });
            }
        }
    }

    /// Its children go to another process when it ends.
    fn launcher_is_gone(&self) -> bool {
        getppid() != Pid::from_raw(self.arguments.launcher)
    }

    fn report(&self, cause: Cause) -> Result<()> {
        let (by, signal) = match cause {
            Cause::Ended | Cause::Failure if self.failures.is_empty() => return Ok(()),
            Cause::Ended | Cause::Failure => bail!("{}", describe(&self.failures)),
            Cause::Signal(signal) => (signals::name(signal), Some(signal)),
            Cause::LauncherGone => {
                (format!("the loss of the launcher, process {}", self.arguments.launcher), None)
            }
        };
        // Ranks that got the same signal from elsewhere have not failed.
        if self.failures.iter().all(|failure| signal.is_some() && failure.signal() == signal) {
            bail!("ended by {by}, and the ranks with it");
        }
        bail!("{}; the others were ended by {by}", describe(&self.failures))
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
