//! Starts one process for each rank on this machine, and watches over them.

use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::output;

/// How often the processes are looked at.
const PAUSE: Duration = Duration::from_millis(10);

/// What the ranks are told beyond who they are.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Settings {
    /// Imitate a slower network, such as 100mbit,5ms; @FILE changes it over time (`at 30s: 1gbit,50ms`)
    #[arg(long, value_name = "RATE,DELAY")]
    pub link: Option<String>,
    /// Encrypt, and let only those in who know the secret in this file
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,
    /// Seconds to wait for a rank that makes no progress [default: 30]
    #[arg(long, value_name = "SECONDS")]
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
        variables
    }

    fn port(&self) -> Result<u16> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        Ok(free.context("can't find a free port on 127.0.0.1")?.port())
    }
}

/// Runs `command` once for each of `ranks` ranks and waits for all. When one fails the others get the time of
/// the deadline to end by themselves, with an error that names it, and are then ended.
pub fn start(ranks: usize, settings: &Settings, command: impl Fn(usize) -> Command) -> Result<()> {
    let port = settings.port()?;
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
    let grace =
        Duration::from_secs_f64(settings.deadline.unwrap_or(30.0).clamp(0.0, 1e6)) + Duration::from_secs(5);
    let mut failed: Option<(usize, ExitStatus, Instant)> = None;
    loop {
        for (rank, slot) in running.0.iter_mut().enumerate() {
            let Some(child) = slot else { continue };
            if let Some(status) = child.try_wait().context("can't ask for the state of a process")? {
                *slot = None;
                if !status.success() && failed.is_none() {
                    failed = Some((rank, status, Instant::now()));
                }
            }
        }
        let left: Vec<String> = running.ranks().map(|rank| rank.to_string()).collect();
        match failed {
            Some((rank, status, _)) if left.is_empty() => bail!("rank {rank} ended with {status}"),
            None if left.is_empty() => return Ok(()),
            Some((rank, status, at)) if at.elapsed() > grace => {
                output::note(&format!("ending the ranks that are left: {}", left.join(", ")));
                bail!("rank {rank} ended with {status}");
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
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
