//! The processes below this one: who they are, signals to all of them, and how they end with it.
//!
//! On Linux this process adopts what it started and what that started in turn ([`Family`]): a process whose
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

/// Sends a signal to what is below `root`, and below none of `spared`. Once more while there are new ones: a process may
/// have started another before the signal reached it.
pub fn signal_below(root: Pid, spared: &[Pid], signal: Signal) {
    let mut known: Vec<Pid> = Vec::new();
    loop {
        let mut new = descendants(root, spared);
        new.retain(|pid| !known.contains(pid));
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

/// All processes below `root` that have not ended, parents before their children, without `spared` and what is below
/// these. Nothing where there is no /proc.
fn descendants(root: Pid, spared: &[Pid]) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = running().filter(|(pid, _)| !spared.contains(pid)).collect();
    let mut found = vec![root];
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

/// What this process has started, and everything below.
#[derive(Debug)]
pub struct Family {
    /// Children from before: a shell may have started some, and then become this program by `exec`.
    others: Vec<Pid>,
    /// The leaders of the groups that were started.
    leaders: Vec<Pid>,
}

impl Family {
    /// None yet; what is started from now on belongs to it. From now on this process is the parent of everything
    /// below it whose own parent ends.
    pub fn found() -> Family {
        // Without it, what leaves its rank is not found; there is nothing that could be done instead.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
        Family { others: descendants(getpid(), &[]), leaders: Vec::new() }
    }

    /// Adds the leader of a group.
    pub fn add(&mut self, leader: Pid) {
        self.leaders.push(leader);
    }

    /// Ends it: `first`, then SIGKILL when the grace period is over or at the next SIGINT, and returns when nothing is
    /// left. What can't be killed (it may belong to another user) is named and left.
    pub fn end(&self, first: Signal, grace: Duration, signals: &mut Signals) {
        if self.has_ended() {
            return;
        }
        let begun = Instant::now();
        self.signal(first);
        let mut at_once = false;
        while !self.has_ended() {
            let over = begun.elapsed().saturating_sub(grace);
            if at_once || !over.is_zero() {
                self.signal(Signal::KILL);
            }
            if over > UNKILLABLE {
                let left = descendants(getpid(), &self.others);
                let left: Vec<String> = left.iter().map(Pid::to_string).collect();
                return output::note(&format!("processes that can't be ended: {}", left.join(", ")));
            }
            let again = signals.wait(PAUSE).contains(&SIGINT);
            at_once |= again && begun.elapsed() > ONCE;
        }
    }

    /// Sends a signal to all as if in one moment. Nobody runs between the first and the last: so no rank blames
    /// another one for having got the signal first, and nothing is started meanwhile.
    fn signal(&self, signal: Signal) {
        for signal in [Signal::STOP, signal, Signal::CONT] {
            if cfg!(target_os = "linux") {
                signal_below(getpid(), &self.others, signal);
            } else {
                for leader in &self.leaders {
                    let _ = rustix::process::kill_process_group(*leader, signal);
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        loop {
            match reap() {
                Ok(Some(_)) => {}
                // The exact answer where this process has no other children: what is below it has a child of it above.
                Ok(None) if self.others.is_empty() => return false,
                Ok(None) => return descendants(getpid(), &self.others).is_empty(),
                Err(_) if cfg!(target_os = "linux") => return true,
                Err(_) => {
                    let has_group = |leader: &Pid| rustix::process::test_kill_process_group(*leader).is_ok();
                    return !self.leaders.iter().any(has_group);
                }
            }
        }
    }
}
