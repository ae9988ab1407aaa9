//! Ranks that die, stall or lie, and links that are cut.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use crate::group::tcp::connection::Connection;
use crate::group::tcp::wire::Peer;

const SHORT: Duration = Duration::from_millis(2500);

/// Runs with a short deadline once all are connected; gives each rank's error.
fn failing(size: usize, secret: Option<Secret>, work: impl Fn(Tcp) -> Result<()> + Sync) -> Vec<Error> {
    run(
        size,
        |s| s.secret = secret.clone(),
        |group| {
            let mut group = group.unwrap();
            group.set_deadline(SHORT);
            work(group).unwrap_err()
        },
    )
}

#[test]
fn a_rank_that_ends_is_named_by_all() {
    for (how, secret) in HOW.into_iter().flat_map(|how| [None, secret("hush")].map(|secret| (how, secret))) {
        let errors = failing(5, secret, |mut group| {
            if group.rank() == 3 {
                return Err(Error::GroupLost { reason: "rank 3 ends here".into() });
            }
            group.all_reduce(Sum::F32(&mut vec![1.0; 1 << 20]), how)
        });
        assert!(errors.iter().all(|error| error.to_string().contains("rank 3")), "{how}: {errors:?}");
    }
}

#[test]
fn a_rank_that_stalls_is_named_by_all_at_the_deadline() {
    for how in HOW {
        let begun = Instant::now();
        let errors = failing(5, None, |mut group| {
            if group.rank() == 2 {
                std::thread::sleep(SHORT * 3);
                return group.barrier();
            }
            group.all_reduce(Sum::F32(&mut vec![1.0; 1 << 20]), how)
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        for error in [0, 1, 3, 4].map(|rank| errors[rank].to_string()) {
            assert!(error.contains("no word from rank 2"), "{how}: {error}");
        }
    }
}

#[test]
fn an_abandoned_group_tells_why() {
    for secret in [None, secret("hush")] {
        let errors = failing(3, secret, |mut group| {
            if group.rank() == 1 {
                group.abandon("out of disk space");
            }
            group.barrier()
        });
        assert!(errors.iter().all(|error| error.to_string().contains("out of disk space")), "{errors:?}");
    }
}

/// A group of two whose rank 1 is played by the test, which holds its two sockets.
fn fake() -> (Tcp, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Connection::new(listener.accept().unwrap().0, None).unwrap(), far)
    };
    let ((data, far_data), (notes, far_notes)) = (connect(), connect());
    let wire = TcpWire::new(0, vec![None, Some(Peer::new(data, notes))], None, SHORT).unwrap();
    (Mesh::over(wire, SHORT), far_data, far_notes)
}

#[test]
fn nonsense_in_a_data_stream_is_an_error_that_names_the_rank() {
    for noise in [vec![0xaa; 4000], b"tw>".repeat(50)] {
        let (mut group, mut data, mut notes) = fake();
        data.write_all(&noise).unwrap();
        let error = group.barrier().unwrap_err().to_string();
        assert!(error.contains("rank 1 disagrees"), "{error}");
        let mut said = Vec::new();
        notes.read_to_end(&mut said).unwrap();
        assert!(String::from_utf8_lossy(&said).contains("rank 1 disagrees"));
    }
}

#[test]
fn nonsense_in_an_encrypted_stream_is_an_error_that_names_the_rank() {
    // A relay in front of rank 0 changes a bit of what it forwards, once everything is connected.
    let relay = Relay::start();
    let port = relay.port;
    let errors = std::thread::scope(|scope| {
        let join = |rank, port| TcpSettings { secret: secret("hush"), ..settings(rank, 2, port) };
        let (host, guest) = (join(0, relay.target), join(1, port));
        let host = scope.spawn(move || Tcp::join(&host).unwrap());
        let guest = scope.spawn(move || Tcp::join(&guest).unwrap());
        let groups = [host.join().unwrap(), guest.join().unwrap()];
        relay.damage.store(true, Ordering::SeqCst);
        let ends = groups.map(|mut group| scope.spawn(move || group.barrier().unwrap_err().to_string()));
        ends.map(|end| end.join().unwrap())
    });
    assert!(errors.iter().any(|error| error.contains("damaged")), "{errors:?}");
    assert!(errors[0].contains("rank 1") && errors[1].contains("rank 0"), "{errors:?}");
}

#[test]
fn a_length_that_is_too_long_takes_no_memory() {
    let (mut group, mut data, _notes) = fake();
    // An all-gather that announces 2^60 bytes.
    let mut envelope = [0u8; 40];
    envelope[..4].copy_from_slice(b"tw>\x03");
    envelope[8] = 1;
    envelope[39] = 0x10;
    data.write_all(&envelope).unwrap();
    let mut gathered = Gathered::default();
    let error = group.all_gather(b"mine", 1000, Algorithm::Tree, &mut gathered).unwrap_err().to_string();
    assert!(error.contains("1152921504606846976 there and at most 1000"), "{error}");
    assert!(gathered.bytes() < 2000);
}

#[test]
fn nonsense_for_notes_is_put_aside_and_data_still_flows() {
    let (mut group, mut data, mut notes) = fake();
    group.set_deadline(Duration::from_secs(20));
    notes.write_all(&[9; 100]).unwrap();
    let far = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let mut envelope = [0; 40];
        data.read_exact(&mut envelope).unwrap();
        data.write_all(&envelope).unwrap();
        data
    });
    group.barrier().unwrap();
    drop(far.join().unwrap());
    let error = group.barrier().unwrap_err().to_string();
    assert!(error.contains("lost rank 1") && error.contains("closed the connection"), "{error}");
}

#[test]
fn a_rank_that_only_talks_is_not_waited_for_any_longer() {
    let (mut group, _data, mut notes) = fake();
    notes.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let talker = std::thread::spawn(move || {
        let note = crate::group::wire::Note::Waiting { at: [0; 40], on: vec![0] }.to_bytes().repeat(1000);
        while notes.write_all(&note).is_ok() {}
    });
    assert!(group.barrier().unwrap_err().to_string().contains("no word from rank 1"));
    talker.join().unwrap();
}

/// Forwards connections to another port until it is told to stop, and then forwards nothing, but keeps them open.
struct Relay {
    port: u16,
    target: u16,
    stop: Arc<AtomicBool>,
    damage: Arc<AtomicBool>,
}

impl Relay {
    fn start() -> Relay {
        let (target, listener) = (free_port(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let (stop, damage) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let relay = Relay { port, target, stop: stop.clone(), damage: damage.clone() };
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(std::io::Result::ok) {
                // Not there yet: hang up, it will be called again.
                let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let ways = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
                for (mut from, mut to) in ways {
                    let (stop, damage) = (stop.clone(), damage.clone());
                    std::thread::spawn(move || {
                        let mut piece = [0; 65536];
                        while let Ok(count @ 1..) = from.read(&mut piece) {
                            if stop.load(Ordering::SeqCst) {
                                // Held, not closed.
                                std::thread::sleep(Duration::from_secs(20));
                                return;
                            }
                            if damage.load(Ordering::SeqCst) {
                                piece[count - 1] ^= 1;
                            }
                            if to.write_all(&piece[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        });
        relay
    }
}

#[test]
fn a_cut_link_ends_all_ranks_by_the_deadline() {
    let relay = Relay::start();
    let groups = std::thread::scope(|scope| {
        let ports = [relay.target, relay.port, relay.port];
        let join = move |rank: usize| Tcp::join(&settings(rank, 3, ports[rank])).unwrap();
        let ranks = [0, 1, 2].map(|rank| scope.spawn(move || join(rank)));
        ranks.map(|rank| rank.join().unwrap())
    });
    let begun = Instant::now();
    let all_passed = std::sync::Barrier::new(3);
    let errors = std::thread::scope(|scope| {
        let ends = groups.map(|mut group| {
            let (all_passed, relay) = (&all_passed, &relay);
            scope.spawn(move || {
                group.set_deadline(SHORT);
                group.barrier().unwrap();
                all_passed.wait();
                relay.stop.store(true, Ordering::SeqCst);
                (0..100)
                    .find_map(|_| group.all_reduce(Sum::F32(&mut vec![1.0; 1 << 18]), Algorithm::Ring).err())
            })
        });
        ends.map(|end| end.join().unwrap().unwrap().to_string())
    });
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(errors[1].contains("rank 0") && errors[2].contains("rank 0"), "{errors:?}");
}

#[test]
fn nothing_is_left_open() {
    // Other tests open and close files at the same time: this process runs the test once more, alone.
    const ALONE: &str = "THINWIRE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let program = std::env::current_exe().unwrap();
        let test = "group::tcp::tests::failure::nothing_is_left_open";
        let result =
            std::process::Command::new(program).args(["--exact", test]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&result.stdout).into_owned();
        assert!(result.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = (open(), threads());
    for link in [None, Some("1gbit,1ms".parse::<Link>().unwrap().into())] {
        run(3, |s| s.link = link.clone(), |group| group.unwrap().barrier().unwrap());
        let lost = |group: Result<Tcp>| {
            let mut group = group.unwrap();
            group.abandon("enough");
            assert!(group.barrier().is_err());
        };
        run(3, |s| s.link = link.clone(), lost);
    }
    // A thread that has been joined may still be on its way out.
    let until = Instant::now() + Duration::from_secs(10);
    while (open(), threads()) != before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((open(), threads()), before);
}
