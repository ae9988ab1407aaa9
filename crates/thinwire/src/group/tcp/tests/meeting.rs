//! How groups form, and whom they keep out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::group::tcp::hello::{GREETING, HELLO, Hello, Purpose, VERSION, greeting};

fn dial(port: u16) -> TcpStream {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < patience, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn hello(purpose: Purpose, rank: u32, size: u32) -> [u8; HELLO] {
    Hello { purpose, rank, size, group: 0, address: ([127, 0, 0, 1], 1).into() }.to_bytes()
}

/// A call without a secret.
fn call(greeting: [u8; GREETING], hello: &[u8]) -> Vec<u8> {
    let length = (hello.len() as u16).to_le_bytes();
    [&greeting, &[1, length[0], length[1]][..], hello].concat()
}

/// Runs two ranks, of which the second comes after `bother` has had its way with the port.
fn bothered(bother: impl FnOnce(u16), secret: Option<Secret>) {
    let port = free_port();
    let settings = |rank| TcpSettings { secret: secret.clone(), ..settings(rank, 2, port) };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| Tcp::join(&settings(0)).unwrap().barrier());
        bother(port);
        let second = scope.spawn(|| Tcp::join(&settings(1)).unwrap().barrier());
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (Ok(()), Ok(())));
    });
}

/// What is said to one who sends `bytes`, if anything.
fn answer(port: u16, bytes: &[u8]) -> String {
    let mut stream = dial(port);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(answer.get(3..).unwrap_or_default()).into_owned()
}

#[test]
fn callers_that_do_not_fit_are_refused_and_told_why() {
    let right = greeting(VERSION, false);
    let cases = [
        (
            call(greeting(VERSION + 1, false), &hello(Purpose::Join, 1, 2)),
            "version 2 of the protocol, this rank version 1",
        ),
        (call(greeting(VERSION, true), &[0; 32]), "this rank has none"),
        (call(right, &hello(Purpose::Join, 1, 3)), "this group has 2 ranks, it was told 3"),
        (call(right, &hello(Purpose::Join, 2, 2)), "rank 2, but the ranks are 0 to 1"),
        (call(right, &hello(Purpose::Join, 0, 2)), "which is this rank"),
        (call(right, &hello(Purpose::Data, 1, 2)), "not complete yet"),
        (call(right, &[9; HELLO]), "purpose 9"),
        // Told nothing: it would not understand.
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ""),
        // A length that is not right is not waited for.
        ([&right[..], &[1, 0xff, 0xff]].concat(), ""),
    ];
    bothered(
        |port| {
            for (bytes, words) in &cases {
                let said = answer(port, bytes);
                assert!(said.contains(words) && said.is_empty() == words.is_empty(), "{said}");
            }
        },
        None,
    );
    bothered(
        |port| {
            assert!(
                answer(port, &call(right, &hello(Purpose::Join, 1, 2))).contains("this group has a secret")
            )
        },
        secret("hush"),
    );
}

#[test]
fn silent_and_broken_callers_hold_up_nobody() {
    for secret in [None, secret("hush")] {
        let mut kept = Vec::new();
        let begun = Instant::now();
        bothered(
            |port| {
                let whole = call(greeting(VERSION, secret.is_some()), &hello(Purpose::Join, 1, 2));
                for length in [0, 1, 5, 12, 13, 15, 30] {
                    let mut stream = dial(port);
                    stream.write_all(&whole[..length]).unwrap();
                    kept.push(stream);
                    dial(port).write_all(&whole[..length]).unwrap();
                }
                for seed in 0..20u32 {
                    let noise = (0..999u32).map(|i| (i.wrapping_mul(seed * 7919 + 31) >> 3) as u8);
                    let _ = dial(port).write_all(&noise.collect::<Vec<u8>>());
                }
            },
            secret.clone(),
        );
        assert!(begun.elapsed() < Duration::from_secs(15));
    }
}

#[test]
fn any_number_of_silent_callers_holds_up_nobody() {
    let mut kept = Vec::new();
    bothered(|port| kept.extend((0..200).map(|_| dial(port))), None);
}

/// Rank 0 waits for the others as briefly as a busy machine allows; they wait for its word.
fn impatient(settings: &mut TcpSettings) {
    settings.deadline = Duration::from_secs(if settings.rank == 0 { 2 } else { 20 });
}

fn error_of(group: Result<Tcp>) -> String {
    group.map(|group| group.rank()).unwrap_err().to_string()
}

#[test]
fn another_secret_or_none_is_refused_on_both_sides() {
    for (theirs, words) in [
        (secret("Hush"), "rank 0 refused: its secret is not that of this group"),
        (None, "rank 0 refused: this group has a secret, it has none"),
    ] {
        let change = |s: &mut TcpSettings| {
            impatient(s);
            s.secret = if s.rank == 1 { theirs.clone() } else { secret("hush") };
        };
        let errors = run(2, change, error_of);
        assert!(errors[1].contains(words), "{errors:?}");
        assert!(errors[0].contains("no word from rank 1 of 2"), "{errors:?}");
    }
}

#[test]
fn ranks_that_were_told_other_sizes_or_one_rank_twice_are_refused() {
    let errors = run(
        3,
        |s| {
            impatient(s);
            s.size = if s.rank == 2 { 4 } else { 3 };
        },
        error_of,
    );
    assert!(errors[2].contains("rank 0 refused: this group has 3 ranks, it was told 4"), "{errors:?}");
    assert!(
        errors[0].contains("no word from rank 2 of 3") && errors[1].contains("rank 2 of 3"),
        "{errors:?}"
    );
    let errors = run(
        3,
        |s| {
            impatient(s);
            s.rank = s.rank.min(1);
        },
        error_of,
    );
    assert!(
        errors[1..].iter().any(|e| e.contains("rank 0 refused: there is a rank 1 already")),
        "{errors:?}"
    );
}

#[test]
fn the_ranks_that_did_not_come_are_listed_by_all() {
    let port = free_port();
    let join = |rank| {
        let mut settings = settings(rank, 5, port);
        impatient(&mut settings);
        Tcp::join(&settings)
    };
    let errors = std::thread::scope(|scope| {
        let ranks = [0, 3].map(|rank| scope.spawn(move || error_of(join(rank))));
        ranks.map(|rank| rank.join().unwrap())
    });
    assert!(errors.iter().all(|error| error.contains("no word from ranks 1, 2, 4 of 5")), "{errors:?}");
    let brief = TcpSettings { deadline: Duration::from_millis(400), ..settings(2, 5, port) };
    let alone = error_of(Tcp::join(&brief));
    assert!(alone.contains("rank 0 at 127.0.0.1") && alone.contains("could not be reached"), "{alone}");
}

#[test]
fn a_rank_that_was_started_again_takes_its_place() {
    let port = free_port();
    std::thread::scope(|scope| {
        let join = move |rank| Tcp::join(&settings(rank, 3, port)).unwrap().barrier();
        let host = scope.spawn(move || join(0));
        let mut first = dial(port);
        first.write_all(&call(greeting(VERSION, false), &hello(Purpose::Join, 1, 3))).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
        let others = [2, 1].map(|rank| scope.spawn(move || join(rank)));
        assert_eq!(host.join().unwrap(), Ok(()));
        assert_eq!(others.map(|rank| rank.join().unwrap()), [Ok(()), Ok(())]);
    });
}

#[test]
fn a_port_that_is_taken_is_an_error_with_a_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = error_of(Tcp::join(&settings(0, 2, taken.local_addr().unwrap().port())));
    assert!(error.contains("choose another MASTER_PORT"), "{error}");
    let error =
        error_of(Tcp::join(&TcpSettings { master: "192.0.2.1".into(), ..settings(0, 2, free_port()) }));
    assert!(error.contains("THINWIRE_BIND"), "{error}");
}

#[test]
fn a_port_that_is_free_a_moment_later_is_taken_then() {
    let port = free_port();
    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| scope.spawn(move || Tcp::join(&settings(rank, 2, port)).map(drop)));
        std::thread::sleep(Duration::from_millis(50));
        drop(taken);
        assert_eq!(ranks.map(|rank| rank.join().unwrap()), [Ok(()), Ok(())]);
    });
}

#[test]
fn ports_are_closed_when_the_group_is_complete() {
    let port = free_port();
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| scope.spawn(move || Tcp::join(&settings(rank, 2, port)).unwrap()));
        let groups = ranks.map(|rank| rank.join().unwrap());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        let ends = groups.map(|mut group| scope.spawn(move || group.barrier()));
        assert_eq!(ends.map(|end| end.join().unwrap()), [Ok(()), Ok(())]);
    });
}

#[test]
fn one_rank_needs_no_network() {
    let mut group =
        Tcp::join(&TcpSettings { master: "nowhere.invalid".into(), port: 0, ..TcpSettings::default() })
            .unwrap();
    group.barrier().unwrap();
    group.all_reduce(Sum::F32(&mut [1.0]), Algorithm::Tree).unwrap();
}
