//! How groups form, and whom they keep out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::group::tcp::hello::{Claim, HELLO, Hello, OPENING, Purpose, VERSION, number_of_name, opening};

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

fn hello(purpose: Purpose, size: u32) -> [u8; HELLO] {
    let group = number_of_name("thinwire");
    Hello { purpose, size, group, address: ([127, 0, 0, 1], 1).into() }.to_bytes()
}

/// The first bytes of `caller` for rank 0.
fn open_as(caller: u32, version: u16, secret: bool) -> [u8; OPENING] {
    opening(version, secret, Claim { caller, called: 0 })
}

/// A call without a secret.
fn call(opening: [u8; OPENING], hello: &[u8]) -> Vec<u8> {
    let length = (hello.len() as u16).to_le_bytes();
    [&opening, &[1, length[0], length[1]][..], hello].concat()
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
    let right = open_as(1, VERSION, false);
    let join = hello(Purpose::Join, 2);
    let elsewhere = opening(VERSION, false, Claim { caller: 1, called: 7 });
    let other_name = Hello { group: number_of_name("other"), ..Hello::parse(&join).unwrap() };
    let cases = [
        (call(open_as(1, VERSION + 1, false), &join), "version 3 of the protocol, this rank version 2"),
        (call(open_as(1, VERSION, true), &[0; 32]), "this rank has none"),
        (call(right, &hello(Purpose::Join, 3)), "this group has 2 ranks, it was told 3"),
        (call(open_as(2, VERSION, false), &join), "rank 2, but the ranks are 0 to 1"),
        (call(open_as(0, VERSION, false), &join), "which is this rank"),
        (call(right, &hello(Purpose::Data, 2)), "not complete yet"),
        (call(elsewhere, &join), "rank 1 called rank 7, this is rank 0"),
        (call(right, &other_name.to_bytes()), "another name (THINWIRE_GROUP)"),
        // Malformed callers are told nothing.
        (call(right, &[9; HELLO]), ""),
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
}

#[test]
fn with_a_secret_strangers_are_told_nothing() {
    let mut heard = vec![];
    bothered(
        |port| {
            for (version, has_secret) in [(VERSION, false), (VERSION + 1, false), (VERSION + 1, true)] {
                let bytes = call(open_as(1, version, has_secret), &hello(Purpose::Join, 2));
                let mut stream = dial(port);
                stream.write_all(&bytes).unwrap();
                let _ = stream.read_to_end(&mut heard);
            }
        },
        secret("hush"),
    );
    assert_eq!(heard, b"");
}

#[test]
fn silent_and_broken_callers_hold_up_nobody() {
    for secret in [None, secret("hush")] {
        let mut kept = Vec::new();
        let begun = Instant::now();
        bothered(
            |port| {
                let whole = call(open_as(1, VERSION, secret.is_some()), &hello(Purpose::Join, 2));
                for length in [0, 1, 5, 12, 13, 20, 23, 30] {
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
    settings.deadline = Duration::from_secs(if settings.rank == 0 { 6 } else { 30 });
}

fn error_of(group: Result<Tcp>) -> String {
    group.map(|group| group.rank()).unwrap_err().to_string()
}

#[test]
fn another_secret_or_none_is_refused_on_both_sides() {
    // The host names what it has found wrong; the guest gets no answer, and learns where to look.
    for (theirs, own, words) in [
        (secret("Hush"), "has it another secret (THINWIRE_SECRET)?", "its secret is not that of this group"),
        (None, "has its group a secret (THINWIRE_SECRET)?", "this group has a secret, it has none"),
    ] {
        let change = |s: &mut TcpSettings| {
            // So that the host hears the guest, however late that begins.
            s.deadline = Duration::from_secs(if s.rank == 1 { 5 } else { 10 });
            s.secret = if s.rank == 1 { theirs.clone() } else { secret("hush") };
        };
        let errors = run(2, change, error_of);
        assert!(errors[1].contains("rank 0 at 127.0.0.1"), "{errors:?}");
        assert!(errors[1].contains(own), "{errors:?}");
        assert!(errors[0].contains("no word from rank 1 of 2") && errors[0].contains(words), "{errors:?}");
    }
}

#[test]
fn with_a_secret_a_refusal_in_clear_text_ends_nothing() {
    // Somebody answers in the place of rank 0 first, and tries to make rank 1 give up.
    let port = free_port();
    let impostor = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::scope(|scope| {
        let join = move |rank| {
            let settings = TcpSettings { secret: secret("hush"), ..settings(rank, 2, port) };
            Tcp::join(&settings).map(drop)
        };
        let guest = scope.spawn(move || join(1));
        for _ in 0..2 {
            let (mut stream, _) = impostor.accept().unwrap();
            let reason = b"go \x1b[2Jaway";
            stream.read_exact(&mut [0; OPENING]).unwrap();
            stream.write_all(&[&[0, reason.len() as u8, 0], &reason[..]].concat()).unwrap();
        }
        drop(impostor);
        let host = scope.spawn(move || join(0));
        assert_eq!((host.join().unwrap(), guest.join().unwrap()), (Ok(()), Ok(())));
    });
}

#[test]
fn what_a_peer_sends_reaches_no_terminal_as_it_is() {
    let port = free_port();
    let impostor = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let error = std::thread::scope(|scope| {
        let guest = scope.spawn(move || error_of(Tcp::join(&settings(1, 2, port))));
        let (mut stream, _) = impostor.accept().unwrap();
        let reason = b"\x1b]0;owned\x07go\raway";
        stream.write_all(&[&[0, reason.len() as u8, 0], &reason[..]].concat()).unwrap();
        guest.join().unwrap()
    });
    assert!(error.contains("rank 0 refused") && error.contains("owned"), "{error}");
    assert!(!error.chars().any(char::is_control), "{error:?}");
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
    // By rank and by the address of the first.
    let refused = "rank 0 refused: there is a rank 1 already, at 127.0.0.1:";
    assert!(errors[1..].iter().any(|error| error.contains(refused)), "{errors:?}");
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
        first.write_all(&call(open_as(1, VERSION, false), &hello(Purpose::Join, 3))).unwrap();
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
