//! What a terminal does: Ctrl-C twice, Ctrl-Z and `fg`.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::launch::Launched;
use crate::marked::{Mark, send, wait};

#[test]
fn a_second_ctrl_c_kills_at_once() {
    let mark = Mark::new();
    let script = "trap '' INT TERM; while :; do sleep 1010; done";
    let words = ["launch", "-n", "2", "--grace", "100000", "--", "sh", "-c", script];
    let launched = Launched::new(mark.thinwire(&words));
    wait("both ranks", || mark.count("sleep 1010") == 2);
    let mut last: Option<Instant> = None;
    // Once more after a while, in case that the machine was so busy that two came at once.
    wait("the end of all processes", || {
        if last.is_none_or(|at| at.elapsed() > Duration::from_secs(2)) {
            send(launched.pid(), Signal::INT);
            last = Some(Instant::now());
        }
        mark.processes().is_empty()
    });
}

#[test]
fn ctrl_z_stops_the_ranks_and_fg_continues_them() {
    let mark = Mark::new();
    let launched = Launched::new(mark.thinwire(&["launch", "-n", "2", "--", "sh", "-c", "sleep 1011; true"]));
    wait("both ranks", || mark.count("sleep") == 2);
    let supervisor = mark.supervisor().unwrap();
    let stopped = || {
        let others = mark.processes().into_iter().filter(|process| process.pid != supervisor);
        others.filter(|process| process.state == 'T').count()
    };
    // The launcher, and a shell and a program on each rank.
    send(launched.pid(), Signal::TSTP);
    wait("all to be stopped", || stopped() == 5);
    send(launched.pid(), Signal::CONT);
    wait("all to go on", || stopped() == 0);
    send(launched.pid(), Signal::TSTP);
    wait("all to be stopped again", || stopped() == 5);
    // Also what is stopped ends with its launcher.
    send(launched.pid(), Signal::KILL);
    println!("stopped ranks: all gone after {:?}", mark.gone(Instant::now()));
}
