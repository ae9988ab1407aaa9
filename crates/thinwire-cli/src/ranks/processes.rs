//! The processes below this one: who they are, signals to all of them, and how they end with it.
//!
//! On Linux this process adopts what it started and what that started in turn ([`adopt_orphans`]): a process whose
//! parent ends becomes a child of this one, whatever session or group it made for itself. So nothing that was started
//! below can leave, and this process has no child left exactly when all have ended. Elsewhere only the groups of the
//! processes that it started itself are known.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid};

use super::signals::{SIGINT, Signals};
use crate::output;

/// How often is looked for what is left.
const PAUSE: Duration = Duration::from_millis(50);

/// How long after SIGKILL something is waited for.
const UNKILLABLE: Duration = Duration::from_secs(5);

/// Signals that come within this time mean the same: `timeout` sends one to the program and one to its group, and who
/// presses Ctrl-C again has seen that the first was not enough.
const ONCE: Duration = Duration::from_millis(300);

/// Makes this process the parent of everything below it whose own parent ends.
pub fn adopt_orphans() {
    // Without it, what leaves its rank is not found; there is nothing that could be done instead.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Lets the system send `signal` to the command's process when this process ends, in whatever way (Linux). Call it
/// and spawn the command from the main thread: the system takes the end of the spawning thread for that of the process.
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getppid, set_parent_process_death_signal};
        let parent = Some(getpid());
        let ask = move || {
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have ended before it was asked for.
            if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        };
        // SAFETY: between fork and exec this makes two system calls and neither allocates nor locks.
        unsafe { command.pre_exec(ask) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (command, signal);
}

/// Takes notice of a child that has ended; `Err` when there are no children.
pub fn reap() -> io::Result<Option<(Pid, WaitStatus)>> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Sends a signal to everything below this process but `spared`, and to the groups of `leaders` where the system
/// does not tell what is below.
pub fn signal_all(leaders: &[Pid], spared: Option<Pid>, signal: Signal) {
    if cfg!(not(target_os = "linux")) {
        for leader in leaders {
            let _ = rustix::process::kill_process_group(*leader, signal);
        }
        return;
    }
    // Once more while there are new ones: a process may have started another before the signal reached it.
    let mut known: Vec<Pid> = spared.into_iter().collect();
    loop {
        let new: Vec<Pid> = descendants().into_iter().filter(|pid| !known.contains(pid)).collect();
        for pid in &new {
            // It may have ended just now, or belong to another user.
            let _ = rustix::process::kill_process(*pid, signal);
        }
        known.extend(&new);
        if new.is_empty() {
            return;
        }
    }
}

/// All processes below this one that have not ended, parents before their children.
pub fn descendants() -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = running().collect();
    let mut found = vec![getpid()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, above)| *above == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// Every process of this machine that has not ended, and its parent.
fn running() -> impl Iterator<Item = (Pid, Pid)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        // Processes come and go meanwhile.
        let about = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name, in brackets, may hold anything; after it come the state and the parent.
        let mut rest = about.rsplit_once(')')?.1.split_whitespace();
        let has_ended = matches!(rest.next()?, "Z" | "X");
        let parent = Pid::from_raw(rest.next()?.parse().ok()?)?;
        (!has_ended).then_some((pid, parent))
    })
}

/// How everything below this process is to end.
pub struct Ending<'a> {
    /// What this process started.
    pub leaders: &'a [Pid],
    /// The signal that asks for it.
    pub first: Signal,
    /// How long after that SIGKILL follows.
    pub grace: Duration,
}

/// Ends everything below this process: the first signal, SIGKILL when the grace period is over or at the next
/// SIGINT, and returns when nothing is left. What can't be killed (it may belong to another user) is named and left.
pub fn end_all(ending: &Ending, signals: &mut Signals) {
    if !is_anything_left(ending.leaders) {
        return;
    }
    let begun = Instant::now();
    signal_frozen(ending.leaders, ending.first);
    let mut at_once = false;
    while is_anything_left(ending.leaders) {
        let over = begun.elapsed().saturating_sub(ending.grace);
        if at_once || !over.is_zero() {
            signal_frozen(ending.leaders, Signal::KILL);
        }
        if over > UNKILLABLE {
            let left = descendants().into_iter().map(|pid| pid.to_string()).collect::<Vec<String>>();
            return output::note(&format!("processes that can't be ended: {}", left.join(", ")));
        }
        let again = signals.wait(PAUSE).contains(&SIGINT);
        at_once |= again && begun.elapsed() > ONCE;
    }
}

/// Sends a signal to everything below this process as if to all in one moment. Nobody runs between the first and the
/// last: so no rank blames another one for having got the signal first, and nothing is started meanwhile.
fn signal_frozen(leaders: &[Pid], signal: Signal) {
    for signal in [Signal::STOP, signal, Signal::CONT] {
        signal_all(leaders, None, signal);
    }
}

/// Whether anything below this process has not ended.
fn is_anything_left(leaders: &[Pid]) -> bool {
    loop {
        match reap() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            // No children; on Linux then nothing is left.
            Err(_) => {
                let has_group = |leader: &Pid| rustix::process::test_kill_process_group(*leader).is_ok();
                return cfg!(not(target_os = "linux")) && leaders.iter().any(has_group);
            }
        }
    }
}
