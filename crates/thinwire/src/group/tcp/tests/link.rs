//! Groups over an imitated link.

use std::time::Instant;

use super::*;

fn link(text: &str) -> Option<Schedule> {
    Some(text.parse::<Link>().unwrap().into())
}

#[test]
fn an_imitated_link_changes_nothing_but_the_time() {
    let expected = Local::run(3, |mut group| everything(&mut group));
    for secret in [None, secret("hush")] {
        let change = |s: &mut TcpSettings| {
            s.secret = secret.clone();
            s.link = link("2gbit,1ms");
        };
        assert!(run(3, change, |group| everything(&mut group.unwrap())) == expected, "{secret:?}");
    }
}

#[test]
fn a_slow_link_takes_its_time() {
    let times = run(
        2,
        |s| s.link = link("50mbit,5ms"),
        |group| {
            let mut group = group.unwrap();
            // Before the barrier: the other rank may be through it and sending while this one wakes up.
            let begun = Instant::now();
            group.barrier().unwrap();
            // 1 MB to each other at 50 Mbit/s, of which the burst goes ahead.
            group.all_reduce(Sum::F32(&mut vec![1.0; 250_000]), Algorithm::Ring).unwrap();
            begun.elapsed()
        },
    );
    assert!(times.iter().all(|&time| time >= Duration::from_millis(155)), "{times:?}");
}

#[test]
fn the_last_message_of_a_rank_that_ends_is_delivered() {
    let received = run(
        2,
        |s| s.link = link("20mbit,20ms"),
        |group| {
            let mut group = group.unwrap();
            let mut message = if group.rank() == 0 { vec![5; 100_000] } else { vec![] };
            group.broadcast(0, &mut message, 100_000, Algorithm::Ring).unwrap();
            message
        },
    );
    assert!(received.iter().all(|message| *message == [5; 100_000]));
}
