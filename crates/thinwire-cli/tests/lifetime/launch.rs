//! `thinwire launch` with shells, which start processes of their own.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal};

use crate::common::Folder;
use crate::marked::{Mark, ORPHANS_END, send, wait};

/// What ends most programs.
const ALL: [Signal; 4] = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP];

/// In the foreground, in the background, and in a session of its own whose parent has ended.
const FAMILY: &str = "sleep 1001 & (setsid sleep 1002 &); sleep 1003; true";

/// A launcher that has been started.
pub struct Launched(Child);

impl Launched {
    pub fn new(mut command: Command) -> Launched {
        Launched(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// How it ended, and what went to the standard error.
    pub fn end(mut self) -> (ExitStatus, String) {
        let mut errors = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.0.wait().unwrap(), errors)
    }
}

fn family(mark: &Mark, options: &[&str]) -> Launched {
    let words = [&["launch", "-n", "2"], options, &["--", "sh", "-c", FAMILY]].concat();
    let launched = Launched::new(mark.thinwire(&words));
    wait("all processes of both ranks", || {
        (1001..=1003).all(|number| mark.count(&format!("sleep {number}")) == 2)
    });
    launched
}

/// Two ranks that ignore signals.
fn stubborn() -> (Mark, Launched) {
    let mark = Mark::new();
    let script = "trap '' TERM INT HUP; while :; do sleep 1004; done";
    let launched = Launched::new(mark.thinwire(&["launch", "-n", "2", "--", "sh", "-c", script]));
    wait("both ranks", || mark.count("sleep 1004") == 2);
    (mark, launched)
}

#[test]
fn what_ranks_have_started_ends_with_the_launcher() {
    for signal in ALL {
        let mark = Mark::new();
        let launched = family(&mark, &[]);
        send(launched.pid(), signal);
        println!("{signal:?}: all gone after {:?}", mark.gone(Instant::now()));
        let (status, errors) = launched.end();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{errors}");
        let by = if signal == Signal::KILL { "the loss of the launcher, process" } else { "SIG" };
        assert!(errors.starts_with(&format!("error: ended by {by}")), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn ranks_that_ignore_signals_end_too() {
    for signal in ALL {
        let (mark, launched) = stubborn();
        send(launched.pid(), signal);
        println!("{signal:?} ignored: all gone after {:?}", mark.gone(Instant::now()));
    }
}

/// `./test kills`: the same with a bound, for ranks that end when asked to and for those that have to be killed.
#[test]
#[ignore = "measures, so needs a machine that is not busy: ./test kills"]
fn timed_ends_of_orphans() {
    for signal in ALL {
        let mark = Mark::new();
        let launched = family(&mark, &[]);
        send(launched.pid(), signal);
        let willing = mark.gone(Instant::now());
        let (mark, launched) = stubborn();
        send(launched.pid(), signal);
        let stubborn = mark.gone(Instant::now());
        println!("{signal:?}: all gone after {willing:?}, and {stubborn:?} where signals are ignored");
        assert!(willing.max(stubborn) <= ORPHANS_END);
    }
}

#[test]
fn ranks_get_time_to_end() {
    for (signal, heard) in
        [(Signal::KILL, "TERM"), (Signal::TERM, "TERM"), (Signal::HUP, "TERM"), (Signal::INT, "INT")]
    {
        let (mark, folder) = (Mark::new(), Folder::new());
        let script = format!(
            "trap 'sleep 0.2; echo whole > saved-$RANK; exit' {heard}; : > ready-$RANK; while :; do sleep 0.01; done"
        );
        // What is too short on a busy machine would hide that any time was given.
        let mut command = mark.thinwire(&["launch", "-n", "2", "--grace", "25", "--", "sh", "-c", &script]);
        command.current_dir(folder.path(""));
        let launched = Launched::new(command);
        wait("both ranks", || (0..2).all(|rank| folder.path(&format!("ready-{rank}")).exists()));
        send(launched.pid(), signal);
        mark.gone(Instant::now());
        for rank in 0..2 {
            assert_eq!(folder.read(&format!("saved-{rank}")), b"whole\n", "rank {rank}, {signal:?}");
        }
    }
}

#[test]
fn all_end_with_a_supervisor_that_is_killed() {
    let mark = Mark::new();
    let launched = family(&mark, &[]);
    send(mark.supervisor().unwrap(), Signal::KILL);
    println!("supervisor killed: all gone after {:?}", mark.gone(Instant::now()));
    let (status, errors) = launched.end();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("error: the supervisor of the ranks ended with signal: 9"), "{errors}");
}

#[test]
fn what_the_launcher_did_not_start_is_left() {
    let mark = Mark::new();
    let mut command = mark.command("sh");
    // The shell's child is now the launcher's.
    let script = format!("sleep 1009 2>/dev/null & exec \"$0\" launch -n 2 -- sh -c '{FAMILY}'");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_thinwire")]);
    let launched = Launched::new(command);
    wait("all processes", || mark.count("sleep") == 7);
    send(mark.supervisor().unwrap(), Signal::KILL);
    let (_, errors) = launched.end();
    let left: Vec<String> = mark.processes().into_iter().map(|process| process.arguments).collect();
    assert_eq!(left, ["sleep 1009 "], "{errors}");
}

#[test]
fn ranks_end_when_launcher_and_supervisor_are_killed_at_once() {
    let mark = Mark::new();
    let launched = Launched::new(mark.thinwire(&["launch", "-n", "3", "--", "sleep", "1005"]));
    wait("the ranks", || mark.count("sleep") == 3);
    let supervisor = mark.supervisor().unwrap();
    // Neither does anything between the two signals.
    for signal in [Signal::STOP, Signal::KILL] {
        send(supervisor, signal);
        send(launched.pid(), signal);
    }
    println!("launcher and supervisor killed: all gone after {:?}", mark.gone(Instant::now()));
}

#[test]
fn what_a_rank_leaves_behind_ends_with_the_last_rank() {
    let mark = Mark::new();
    let script = "(setsid sleep 1006 &); sleep 1007 & exit 0";
    let launched = Launched::new(mark.thinwire(&["launch", "-n", "2", "--", "sh", "-c", script]));
    let (status, errors) = launched.end();
    assert!(status.success() && mark.processes().is_empty(), "{errors}: {:#?}", mark.processes());
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let mark = Mark::new();
    let script = "trap '' HUP; exec \"$0\" launch -n 2 -- sleep 1008";
    let mut command = mark.command("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_thinwire")]);
    let launched = Launched::new(command);
    wait("the ranks", || mark.count("sleep") == 2);
    // The lower number would be seen first.
    send(launched.pid(), Signal::HUP);
    send(launched.pid(), Signal::TERM);
    let (status, errors) = launched.end();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{errors}");
}

#[test]
fn the_rank_that_failed_first_is_named_and_no_other() {
    // Rank 1 fails while the others wait for it, as if connected: they see its end and fail then.
    let script = "if [ $RANK = 1 ]; then sleep 0.2; KILL; fi; \
                  while [ ! -e gone ]; do sleep 0.01; done; exit 1";
    for (kill, how) in [
        ("kill -9 $$", "signal: 9 (SIGKILL)"),
        ("kill -TERM $$", "signal: 15 (SIGTERM)"),
        ("exit 7", "exit status: 7"),
        ("sh -c 'kill -9 $$'; exit $?", "exit status: 137"),
    ] {
        let (mark, folder) = (Mark::new(), Folder::new());
        // Its entry stays until its end was noticed, however late that is.
        let noticed = "(while [ -e /proc/$$ ]; do sleep 0.01; done; : > gone)";
        let script = script.replace("KILL", &format!("{noticed} & {kill}"));
        let mut command = mark.thinwire(&["launch", "-n", "3", "--", "sh", "-c", &script]);
        command.current_dir(folder.path(""));
        let (status, errors) = Launched::new(command).end();
        assert_eq!(status.code(), Some(1));
        // A shell may have told that its command was killed.
        let told = errors.lines().filter(|line| line.contains("rank")).collect::<Vec<&str>>();
        assert_eq!(told, [format!("error: rank 1 ended with {how}")]);
    }
}
