//! Starts one process for each rank on this machine: the launcher's side.
//!
//! The ranks belong to a supervisor ([`supervise`]). The launcher keeps the terminal: it passes on the signals that it
//! gets, and waits.

use std::ffi::OsString;
use std::net::TcpListener;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use thinwire::group::TcpSettings;

use super::processes::{self, Family};
use super::signals::{self, SIGCHLD, SIGTSTP, Signals, TERMINATING};
use super::supervise;

/// Longest wait between looks at the supervisor; signals and its end are noticed at once.
const PAUSE: Duration = Duration::from_secs(1);

/// How long ranks get to end when they are asked to.
const GRACE: Duration = Duration::from_secs(3);

/// How much longer than the grace period the supervisor gets.
const LATE: Duration = Duration::from_secs(10);

/// The supervisor has told the user what went wrong.
#[derive(Debug, thiserror::Error)]
#[error("see above")]
pub struct Reported;

/// What the ranks are told beyond who they are.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
pub struct Settings {
    /// Imitate a slower network, such as 100mbit,5ms; @FILE changes it over time (`at 30s: 1gbit,50ms`)
    #[arg(long, value_name = "RATE,DELAY")]
    pub link: Option<String>,
    /// Encrypt, and let only those in who know the secret in this file
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,
    /// Seconds to wait for a rank that makes no progress [default: 30]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub deadline: Option<f64>,
    /// The port at which rank 0 waits [default: a free one]
    #[arg(long)]
    pub port: Option<u16>,
    /// Seconds that ranks get to end when this program is ended, before they are killed [default: 3]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub grace: Option<f64>,
}

impl Settings {
    /// The environment that says so.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = Vec::new();
        let mut set = |name, value: Option<String>| variables.extend(value.map(|value| (name, value)));
        set("THINWIRE_LINK", self.link.clone());
        set("THINWIRE_SECRET_FILE", self.secret_file.clone());
        set("THINWIRE_DEADLINE", self.deadline.map(|seconds| seconds.to_string()));
        set("THINWIRE_PORT", self.port.map(|port| port.to_string()));
        variables
    }

    /// The settings of this process, which is a rank: what its options say, and otherwise the environment.
    pub fn of_this_rank(&self) -> thinwire::Result<TcpSettings> {
        self.settings(|name| std::env::var_os(name))
    }

    /// What each of `ranks` ranks that this process starts will find, so that a mistake is told once, and not by
    /// each of them.
    pub fn for_ranks(&self, ranks: usize) -> thinwire::Result<TcpSettings> {
        self.settings(|name| match name {
            "RANK" => Some("0".into()),
            "WORLD_SIZE" => Some(ranks.to_string().into()),
            "MASTER_ADDR" | "MASTER_PORT" => None,
            // Not the first of its machine: that one warns of what is only to be warned of.
            "LOCAL_RANK" => Some("1".into()),
            name => std::env::var_os(name),
        })
    }

    fn settings(&self, environment: impl Fn(&str) -> Option<OsString>) -> thinwire::Result<TcpSettings> {
        let own = self.variables();
        let lookup = |name: &str| {
            let own = own.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into());
            own.or_else(|| environment(name))
        };
        TcpSettings::from_lookup(lookup).map_err(|error| match error {
            // Named as it was given.
            thinwire::Error::BadSetting { name, found, expected } => {
                let option = match name.as_str() {
                    "THINWIRE_LINK" if self.link.is_some() => "--link",
                    "THINWIRE_SECRET_FILE" if self.secret_file.is_some() => "--secret-file",
                    "THINWIRE_DEADLINE" if self.deadline.is_some() => "--deadline",
                    "THINWIRE_PORT" | "MASTER_PORT" if self.port.is_some() => "--port",
                    name => name,
                };
                thinwire::Error::BadSetting { name: option.into(), found, expected }
            }
            other => other,
        })
    }

    fn grace(&self) -> Result<Duration> {
        let Some(seconds) = self.grace else { return Ok(GRACE) };
        Duration::try_from_secs_f64(seconds)
            .ok()
            .with_context(|| format!("--grace {seconds}: give 0 seconds or more"))
    }

    fn port(&self) -> Result<u16> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        // Below those that the system gives out by itself, so that no connection takes it before rank 0 does; each
        // process looks elsewhere first.
        let first = u64::from(std::process::id()) * 331;
        let low = (0..1000).map(|number| 10_000 + ((first + number) % 20_000) as u16);
        // Or else one that the system gives.
        let found = low.chain([0]).map(|port| TcpListener::bind(("127.0.0.1", port)));
        let free = found.flatten().next().context("can't find a free port on 127.0.0.1")?;
        Ok(free.local_addr()?.port())
    }
}

/// Has `command` run once for each of `ranks` ranks by a supervisor, and waits for its end. When one fails the others
/// get the time of the deadline to end by themselves, with an error that names it, and are then ended.
pub fn start(ranks: usize, settings: &Settings, command: Vec<OsString>) -> Result<()> {
    let deadline = settings.for_ranks(ranks)?.deadline;
    let grace = settings.grace()?;
    let port = settings.port()?;
    let mut signals = Signals::catch(&[&TERMINATING[..], &[SIGCHLD, SIGTSTP]].concat())?;
    // Should the supervisor be killed.
    let family = Family::found();
    let supervisor = supervise::Arguments::command(ranks, deadline, grace, command)?
        .env("WORLD_SIZE", ranks.to_string())
        .env("LOCAL_WORLD_SIZE", ranks.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .envs(settings.variables())
        .spawn();
    let mut supervisor = supervisor.context("can't start a process that starts the ranks")?;
    let (ended, signal) = wait(&mut supervisor, &mut signals, grace)?;
    // Nothing is left unless the supervisor was killed.
    family.end(Signal::TERM, grace, &mut signals);
    match (ended, signal) {
        (Some(status), None) if status.success() => Ok(()),
        // It has said what went wrong.
        (Some(status), None) if status.code().is_some() => Err(Reported.into()),
        (Some(status), None) => {
            bail!("the supervisor of the ranks ended with {status}, and the ranks with it")
        }
        (_, Some(signal)) => signals::end_by(signal),
        (None, None) => bail!("the supervisor of the ranks did not end"),
    }
}

/// Waits for the supervisor and passes on what signals mean: how it ended, unless it did not in time, and the
/// signal that it was asked to end by.
fn wait(
    supervisor: &mut Child,
    signals: &mut Signals,
    grace: Duration,
) -> Result<(Option<ExitStatus>, Option<i32>)> {
    let pid = Pid::from_child(supervisor);
    let mut asked: Option<(i32, Instant)> = None;
    loop {
        if let Some(status) = supervisor.try_wait().context("can't ask for the state of a process")? {
            return Ok((Some(status), asked.map(|(signal, _)| signal)));
        }
        if let Some((signal, _)) = asked.filter(|(_, at)| at.elapsed() > grace.saturating_add(LATE)) {
            return Ok((None, Some(signal)));
        }
        for signal in signals.wait(PAUSE) {
            if signal == SIGTSTP {
                // Ctrl-Z: the ranks are in no group that the terminal knows.
                processes::signal_below(pid, &[], Signal::STOP);
                signals::stop();
                processes::signal_below(pid, &[], Signal::CONT);
            } else if let Some(terminating) = Signal::from_named_raw(signal).filter(|_| signal != SIGCHLD) {
                // It may have ended just now.
                let _ = rustix::process::kill_process(pid, terminating);
                asked.get_or_insert((signal, Instant::now()));
            }
        }
    }
}
