//! Starts one process for each rank on this machine, and watches over them.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use thinwire::group::TcpSettings;

use crate::output;

/// How often the processes are looked at.
const PAUSE: Duration = Duration::from_millis(10);

/// How much longer than the deadline the others get to end by themselves when a rank has failed.
const GRACE: Duration = Duration::from_secs(5);

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

/// Runs `command` once for each of `ranks` ranks and waits for all. When one fails the others get the time of
/// the deadline to end by themselves, with an error that names it, and are then ended.
pub fn start(ranks: usize, settings: &Settings, command: impl Fn(usize) -> Command) -> Result<()> {
    let deadline = settings.for_ranks(ranks)?.deadline;
    let port = settings.port()?;
    // Whoever ends this process means the ranks too.
    static ENDED: AtomicBool = AtomicBool::new(false);
    ctrlc::set_handler(|| ENDED.store(true, Ordering::Relaxed)).context("can't listen for signals")?;
    let mut running = Running(Vec::new());
    for rank in 0..ranks {
        let mut command = command(rank);
        command
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("LOCAL_WORLD_SIZE", ranks.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .envs(settings.variables());
        let started = command.spawn();
        let child = started.with_context(|| format!("can't start {:?}", command.get_program()))?;
        running.0.push(Some(child));
    }
    let mut failed: Vec<(usize, ExitStatus)> = Vec::new();
    let mut first_failure = None;
    loop {
        for (rank, slot) in running.0.iter_mut().enumerate() {
            let Some(child) = slot else { continue };
            if let Some(status) = child.try_wait().context("can't ask for the state of a process")? {
                *slot = None;
                if !status.success() {
                    failed.push((rank, status));
                    first_failure.get_or_insert_with(Instant::now);
                }
            }
        }
        if ENDED.load(Ordering::Relaxed) {
            bail!("ended by a signal, and the ranks with it");
        }
        let left: Vec<String> = running.ranks().map(|rank| rank.to_string()).collect();
        match first_failure {
            Some(_) if left.is_empty() => bail!("{}", describe(failed)),
            None if left.is_empty() => return Ok(()),
            Some(at) if at.elapsed() > deadline.saturating_add(GRACE) => {
                output::note(&format!("ending the ranks that are left: {}", left.join(", ")));
                bail!("{}", describe(failed));
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// Which ranks failed, and how. One that was killed comes first: the others have ended because of it.
fn describe(mut failed: Vec<(usize, ExitStatus)>) -> String {
    failed.sort_by_key(|(_, status)| status.signal().is_none());
    let mut ways: Vec<(ExitStatus, Vec<usize>)> = Vec::new();
    for (rank, status) in failed {
        match ways.iter_mut().find(|(other, _)| *other == status) {
            Some((_, ranks)) => ranks.push(rank),
            None => ways.push((status, vec![rank])),
        }
    }
    let way = |(status, mut ranks): (ExitStatus, Vec<usize>)| {
        ranks.sort_unstable();
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{word} {} ended with {status}", ranks.join(", "))
    };
    ways.into_iter().map(way).collect::<Vec<String>>().join("; ")
}

/// The processes that have not ended; they do when this goes out of scope.
struct Running(Vec<Option<Child>>);

impl Running {
    fn ranks(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, child)| child.is_some()).map(|(rank, _)| rank)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.0.iter_mut().flatten() {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
