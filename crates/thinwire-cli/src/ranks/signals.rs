//! The signals this process waits for, and a wait that a signal ends at once.
//!
//! Handlers only note which signal came; everything else happens where `wait` returns. A signal that was ignored when
//! the program started stays ignored: `nohup` and shells without job control mean it.

use std::ffi::c_int;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

pub use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGTSTP};

/// Signals that end a program.
pub const TERMINATING: [c_int; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Signals that have been caught since they were last asked for.
pub struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Catches `signals` from now on.
    pub fn catch(signals: &[c_int]) -> Result<Signals> {
        let ignored = ignored();
        // Children that end must be noticed whatever was inherited.
        let caught = |signal: c_int| signal == SIGCHLD || ignored & (1 << (signal - 1)) == 0;
        let wanted = signals.iter().filter(|&&signal| caught(signal));
        let (read, write) = UnixStream::pair().context("can't listen for signals")?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, wanted);
        Ok(Signals(delivery.context("can't listen for signals")?))
    }

    /// Those that have come; waits for the first, but no longer than `limit`.
    pub fn wait(&mut self, limit: Duration) -> Vec<c_int> {
        let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        // An interrupted wait is as good as a finished one.
        let _ = poll(&mut [PollFd::new(self.0.get_read(), PollFlags::IN)], Some(&limit));
        self.0.pending().collect()
    }
}

/// A signal's name, such as SIGTERM.
pub fn name(signal: c_int) -> String {
    signal_hook::low_level::signal_name(signal).map_or(format!("signal {signal}"), str::to_owned)
}

/// Stops this process, as Ctrl-Z does, until it is continued.
pub fn stop() {
    // It fails for signals without a default action only.
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
}

/// Ends this process as the signal would have ended one that does not catch it: a shell's loop ends only then.
pub fn end_by(signal: c_int) -> ! {
    // The first process of a container can't be ended by a signal of its own.
    if std::process::id() != 1 {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    std::process::exit(128 + signal)
}

/// The signals that are ignored, as a mask: signal 1 is the lowest bit.
#[cfg(target_os = "linux")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn ignored() -> u64 {
    0
}
