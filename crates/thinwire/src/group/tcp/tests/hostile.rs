//! Floods of strangers while the ranks meet, forwarded connections, and ranks that die or freeze between their calls.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::*;
use crate::group::tcp::hello::{Claim, Hello, OPENING, Purpose, Table, VERSION, number_of_name, opening};
use crate::group::tcp::introduction::Desk;
use crate::group::tcp::line::Line;
use crate::group::tcp::reception::{Caller, Reception, WARNINGS};
use crate::group::tcp::secure::Identity;
use crate::group::tcp::socket::poll_until;
use crate::test_log::{warnings_of, watch_log};

/// Connections that a flood keeps open.
const KEPT: usize = 200;

fn name() -> u64 {
    number_of_name("thinwire")
}

/// Connects from one address of this machine.
fn dial_from(source: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
    Ok(socket.into())
}

/// Connects when somebody listens.
fn dial_until(port: u16, until: Instant) -> TcpStream {
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Connections a second that a flood is to reach; it tries a tenth more.
const RATE: f64 = 1000.0;

/// What a meeting under a flood may take longer than one without.
const FLOOD_COSTS: Duration = Duration::from_secs(2);

/// What came of a flood.
#[derive(Debug, Default)]
struct Flood {
    connections: AtomicU64,
    /// Bytes that malformed callers have heard.
    heard: AtomicU64,
    /// The lengths of the answers to the beginning of a handshake.
    answers: Mutex<Vec<usize>>,
    /// What those were told that claimed a rank that is there.
    told: Mutex<Vec<String>>,
    /// Connections a second, when it is over.
    rate: Mutex<f64>,
}

impl Flood {
    /// Whether callers of every kind have had their answers, if they get any.
    fn has_tried_everything(&self) -> bool {
        let answered = !self.answers.lock().unwrap().is_empty() || !self.told.lock().unwrap().is_empty();
        answered && self.connections.load(Ordering::Relaxed) > 2 * KEPT as u64
    }
}

/// A caller of a flood that was not hung up on.
enum Stranger {
    /// How many bytes of a greeting it has said, a byte at a time.
    Malformed(usize),
    /// Begins a handshake: the called rank has to answer before it can know the secret of the other.
    Handshake,
    /// Claims rank 1, without a secret.
    SecondClaim,
}

impl Stranger {
    /// Looks what was said to it.
    fn hear(&self, mut stream: TcpStream, result: &Flood) {
        let mut answer = [0; 1024];
        let _ = stream.set_nonblocking(true);
        let count = stream.read(&mut answer).unwrap_or(0);
        match self {
            Stranger::Malformed(_) => drop(result.heard.fetch_add(count as u64, Ordering::Relaxed)),
            _ if count == 0 => {}
            Stranger::Handshake => result.answers.lock().unwrap().push(count),
            Stranger::SecondClaim => {
                result.told.lock().unwrap().push(String::from_utf8_lossy(&answer[3..count]).into_owned());
            }
        }
    }
}

/// A whole call without a secret, or the first message of one with another secret.
fn whole_call(identity: Option<&Identity>) -> Vec<u8> {
    let opening = opening(VERSION, identity.is_some(), Claim { caller: 1, called: 0 });
    let message = match identity {
        Some(identity) => identity.handshake(true, &opening).unwrap().write().unwrap(),
        None => {
            let address = ([127, 0, 0, 1], 1).into();
            Hello { purpose: Purpose::Join, size: 4, group: name(), address }.to_bytes().to_vec()
        }
    };
    [&opening[..], &[1, message.len() as u8, 0], &message].concat()
}

/// Strangers of every kind, until `stop`. With a secret they know another one.
fn flood(source: IpAddr, port: u16, other: Option<&Identity>, stop: &AtomicBool, result: &Flood) {
    let opening = opening(VERSION, other.is_some(), Claim { caller: 1, called: 0 });
    let begun = Instant::now();
    let mut kept: VecDeque<(TcpStream, Stranger)> = VecDeque::new();
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let due = begun + Duration::from_secs_f64(number as f64 / (1.1 * RATE));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let Ok(mut stream) = dial_from(source, port) else { continue };
        result.connections.fetch_add(1, Ordering::Relaxed);
        let noise: Vec<u8> = (0..300u64).map(|i| (i.wrapping_mul(number * 7919 + 31) >> 3) as u8).collect();
        let whole = Stranger::Malformed(OPENING);
        let (bytes, stranger) = match number % 7 {
            0 => (vec![], whole),
            1 => (noise, whole),
            2 => ([&opening[..], &[1, 31, 0, 1, 2]].concat(), whole),
            3 => ([&opening[..], &[1, 0xff, 0xff]].concat(), whole),
            4 => (opening[..1].to_vec(), Stranger::Malformed(1)),
            5 if other.is_some() => (whole_call(other), Stranger::Handshake),
            5 => (whole_call(None), Stranger::SecondClaim),
            _ => continue,
        };
        // Some are hung up on in the midst of it.
        let _ = stream.write_all(&bytes);
        kept.push_back((stream, stranger));
        // The slow ones say one more byte now and then.
        let slow = kept.iter_mut().find_map(|(stream, stranger)| match stranger {
            Stranger::Malformed(said) if *said < OPENING => Some((stream, said)),
            _ => None,
        });
        if let Some((stream, said)) = slow {
            let _ = stream.write_all(&opening[*said..*said + 1]);
            *said += 1;
        }
        if kept.len() > KEPT
            && let Some((stream, stranger)) = kept.pop_front()
        {
            stranger.hear(stream, result);
        }
    }
    *result.rate.lock().unwrap() =
        result.connections.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    kept.into_iter().for_each(|(stream, stranger)| stranger.hear(stream, result));
}

/// Four ranks meet: rank 0 and rank 1, then a flood begins, and when `long_enough` the other two come. Gives how long
/// these take, and the flood.
fn meet_under(
    source: Option<&str>,
    secret: Option<Secret>,
    long_enough: impl Fn(&Flood) -> bool,
) -> (Duration, Flood) {
    let (port, stop, result) = (free_port(), AtomicBool::new(false), Flood::default());
    let join = |rank| {
        let deadline = Duration::from_secs(60);
        let settings = TcpSettings { secret: secret.clone(), deadline, ..settings(rank, 4, port) };
        Tcp::join(&settings).unwrap().barrier().unwrap();
    };
    let other = secret.as_ref().map(|_| Identity::new(&Secret::new(b"Hush").unwrap(), "thinwire").unwrap());
    let (first_is_there, limit) =
        (Arc::new(AtomicBool::new(false)), Instant::now() + Duration::from_secs(60));
    let met = std::thread::scope(|scope| {
        let (join, stop, result, there) = (&join, &stop, &result, first_is_there.clone());
        let watch = move |line: &str| {
            there.fetch_or(line.contains("rank 1 has joined"), Ordering::Relaxed);
        };
        let host = scope.spawn(move || watch_log(watch, || join(0)));
        let first = scope.spawn(move || join(1));
        let wait = |what: &str, done: &dyn Fn() -> bool| {
            while !done() {
                assert!(Instant::now() < limit && !host.is_finished(), "waited in vain for {what}");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        wait("rank 1", &|| first_is_there.load(Ordering::Relaxed));
        if let Some(source) = source {
            let (source, other) = (source.parse().unwrap(), other.as_ref());
            scope.spawn(move || flood(source, port, other, stop, result));
            wait("the flood", &|| long_enough(result));
        }
        let others_come = Instant::now();
        let others = [2, 3].map(|rank| scope.spawn(move || join(rank)));
        let ends: Vec<_> = others.into_iter().chain([host, first]).map(|rank| rank.join()).collect();
        let met = others_come.elapsed();
        stop.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
        met
    });
    (met, result)
}

/// Malformed callers hear nothing, others what they are to hear.
fn check_what_was_heard(flood: &Flood, secret: bool) {
    assert_eq!(flood.heard.load(Ordering::Relaxed), 0);
    let (answers, told) = (flood.answers.lock().unwrap(), flood.told.lock().unwrap());
    assert_eq!((answers.is_empty(), told.is_empty()), (!secret, secret));
    // New public keys, which say nothing of the secret: a frame's head, two keys and two tags.
    assert!(answers.iter().all(|length| *length == 3 + 2 * 32 + 2 * 16), "{answers:?}");
    let refused =
        |text: &String| *text == told[0] && text.contains("there is a rank 1 already, at 127.0.0.1:");
    assert!(told.iter().all(refused), "{told:?}");
}

#[test]
fn ranks_meet_under_a_flood_of_strangers_who_hear_nothing() {
    for secret in [None, secret("hush")] {
        for source in ["127.0.0.2", "127.0.0.1"] {
            let (_, flood) = meet_under(Some(source), secret.clone(), Flood::has_tried_everything);
            check_what_was_heard(&flood, secret.is_some());
        }
    }
}

#[test]
#[ignore = "measures, so needs a machine that is not busy: ./test flood"]
fn timed_meetings_under_a_flood() {
    for secret in [None, secret("hush")] {
        let quiet = (0..3).map(|_| meet_under(None, secret.clone(), |_| true).0).max().unwrap();
        println!("secret {}: the slowest of 3 quiet meetings took {quiet:?}", secret.is_some());
        for source in ["127.0.0.2", "127.0.0.1"] {
            for _ in 0..3 {
                let begun = Instant::now();
                let a_while = |_: &Flood| begun.elapsed() > Duration::from_secs(3);
                let (met, flood) = meet_under(Some(source), secret.clone(), a_while);
                let rate = *flood.rate.lock().unwrap();
                println!("  flood from {source}: met in {met:?} under {rate:.0} connections a second");
                check_what_was_heard(&flood, secret.is_some());
                assert!(rate >= RATE, "the flood reached {rate:.0} connections a second instead of {RATE}");
                assert!(met <= quiet + FLOOD_COSTS, "{met:?}; a quiet meeting took {quiet:?}");
            }
        }
    }
}

/// Rank 0 waits for rank 2 while others claim to be rank 1 without end: how long until it gave up.
fn second_claims(deadline: Duration) -> Duration {
    let (port, done) = (free_port(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let brief = TcpSettings { deadline, ..settings(0, 3, port) };
        let host = scope.spawn(move || {
            let begun = Instant::now();
            (Tcp::join(&brief).map(drop).unwrap_err().to_string(), begun.elapsed())
        });
        let told: Vec<_> = (0..4).map(|_| scope.spawn(|| claim_without_end(port, &done))).collect();
        // A net: without a deadline that holds this would go on for ever.
        let limit = Instant::now() + deadline + Duration::from_secs(40);
        while !host.is_finished() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = host.is_finished();
        done.store(true, Ordering::Relaxed);
        assert!(ended, "rank 0 still waits");
        let (error, elapsed) = host.join().unwrap();
        assert!(error.contains("no word from rank 2 of 3"), "{error}");
        let told: Vec<String> = told.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let refused = |text: &String| text.contains("there is a rank 1 already, at 127.0.0.1:");
        assert!(told.iter().any(refused), "{told:?}");
        elapsed
    })
}

/// Claims rank 1 again and again; what the first of these was told.
fn claim_without_end(port: u16, done: &AtomicBool) -> Option<String> {
    let (mut told, mut kept) = (None, VecDeque::new());
    while !done.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let until = Instant::now() + Duration::from_secs(5);
        let Ok(mut line) = call(stream, None, 1, 0, 3, name(), until) else { continue };
        if told.is_none() {
            told = line.receive(100, until).err().map(|failure| failure.to_string());
        }
        // Those that were refused do not hang up.
        kept.push_back(line);
        kept.drain(..kept.len().saturating_sub(50));
    }
    told
}

#[test]
fn a_flood_of_second_claims_does_not_move_the_deadline() {
    second_claims(Duration::from_secs(3));
}

#[test]
#[ignore = "measures, so needs a machine that is not busy: ./test flood"]
fn timed_deadline_under_a_flood_of_second_claims() {
    let deadline = Duration::from_secs(3);
    let elapsed = second_claims(deadline);
    println!("a deadline of {deadline:?} under second claims without end: over after {elapsed:?}");
    assert!(elapsed >= deadline && elapsed <= deadline + Duration::from_secs(1), "{elapsed:?}");
}

/// Joins as `caller` of `size`, or calls for another purpose.
fn call(
    stream: TcpStream,
    identity: Option<&Identity>,
    caller: u32,
    called: u32,
    size: u32,
    group: u64,
    until: Instant,
) -> std::result::Result<Line, crate::group::tcp::line::Failure> {
    let hello = Hello { purpose: Purpose::Join, size, group, address: ([127, 0, 0, 1], 1).into() };
    Line::call(stream, identity, Claim { caller, called }, hello, until)
}

fn desk(rank: usize, size: usize, identity: Option<Arc<Identity>>) -> (Reception, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Reception::open(listener, Desk { rank, size, identity, name: name() }).unwrap(), address)
}

fn next(reception: &Reception, until: Instant) -> Caller {
    loop {
        if let Some(caller) = reception.next() {
            return caller;
        }
        assert!(Instant::now() < until, "nobody has called");
        poll_until(&mut [PollFd::new(reception, PollFlags::IN)], until).unwrap();
    }
}

#[test]
fn second_claims_do_not_make_a_flood_of_warnings() {
    const CLAIMS: usize = 400;
    let (reception, address) = desk(0, 3, None);
    let until = Instant::now() + Duration::from_secs(60);
    let (mut kept, begun) = (Vec::new(), Instant::now());
    let warnings = warnings_of(|| {
        for _ in 0..CLAIMS {
            let stream = TcpStream::connect(address).unwrap();
            kept.push(call(stream, None, 1, 0, 3, name(), until).unwrap());
            reception.refuse(next(&reception, until), "there is a rank 1 already");
        }
    });
    let logged = warnings.matches("a caller was refused").count();
    let seconds = begun.elapsed().as_secs() as usize + 2;
    assert!(logged >= 1 && logged <= seconds * WARNINGS as usize, "{logged} in {seconds} s");
    let refusals = reception.refusals();
    assert!(
        refusals.contains("400 callers were refused") && refusals.contains("rank 1 already"),
        "{refusals}"
    );
}

#[test]
fn a_second_claim_after_all_have_joined_is_refused_by_rank_and_address() {
    let port = free_port();
    std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            let result = Tcp::join(&settings(0, 3, port));
            result.map(|group| group.rank()).unwrap_err().to_string()
        });
        let until = Instant::now() + Duration::from_secs(20);
        let join = |rank| {
            let stream = dial_until(port, until);
            let from = stream.local_addr().unwrap();
            (call(stream, None, rank, 0, 3, name(), until).unwrap(), from)
        };
        let (mut first, from) = join(1);
        let (mut other, _) = join(2);
        // With the table the ranks are no longer gathered.
        for line in [&mut first, &mut other] {
            line.receive(Table::bytes(3), until).unwrap();
        }
        let said = join(1).0.receive(Table::bytes(3), until).unwrap_err().to_string();
        assert_eq!(said, format!("refused: there is a rank 1 already, at {from} (RANK)"));
        drop(first);
        let error = host.join().unwrap();
        assert!(error.contains(&format!("rank 1 at {from} left")), "{error}");
    });
}

/// Forwards one call to `target`, with the called rank of the claim changed to `claim`.
fn forward(target: SocketAddr, claim: Option<u32>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || pass_on(listener.accept().unwrap().0, target, claim));
    address
}

/// Connects a caller with `target`, in both directions.
fn pass_on(mut near: TcpStream, target: SocketAddr, claim: Option<u32>) {
    let Ok(mut far) = TcpStream::connect(target) else { return };
    let mut opening = [0; OPENING];
    if near.read_exact(&mut opening).is_err() {
        return;
    }
    if let Some(rank) = claim {
        opening[OPENING - 4..].copy_from_slice(&rank.to_le_bytes());
    }
    let _ = far.write_all(&opening);
    let (mut back, mut home) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut back, &mut home);
        let _ = home.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut near, &mut far);
    let _ = far.shutdown(std::net::Shutdown::Write);
}

#[test]
fn a_call_that_is_forwarded_to_another_rank_is_refused_by_both() {
    let secret = secret("hush").unwrap();
    let identity = || Arc::new(Identity::new(&secret, "thinwire").unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    let (reception, rank_2) = desk(2, 4, Some(identity()));
    // The call that was meant for rank 2 comes through.
    let stream = TcpStream::connect(forward(rank_2, None)).unwrap();
    let own = identity();
    let caller = std::thread::spawn(move || call(stream, Some(&own), 3, 2, 4, name(), until).map(drop));
    let come = next(&reception, until);
    assert_eq!(come.rank, 3);
    caller.join().unwrap().unwrap();
    for (claim, here) in [(None, "rank 3 called rank 1, this is rank 2"), (Some(2), "calls itself rank 3")] {
        let stream = TcpStream::connect(forward(rank_2, claim)).unwrap();
        let result = call(stream, Some(&identity()), 3, 1, 4, name(), until);
        assert!(result.is_err(), "{claim:?}");
        let said = reception.refusals();
        assert!(said.contains(here), "{claim:?}: {said}");
        assert!(reception.next().is_none(), "{claim:?}");
    }
}

/// Ranks 1 and 2 of four are called by way of each other's proxy, which passes calls on to the wrong one of them. Gives
/// what all say. With `claims` the proxies put in the claim who is really called.
fn errors_when_two_are_swapped(secret: Option<Secret>, claims: bool) -> Vec<String> {
    let (port, over) = (free_port(), AtomicBool::new(false));
    let proxies = [1, 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [0, 1].map(|index| proxies[index].local_addr().unwrap());
    // Where ranks 1 and 2 listen.
    let real: Mutex<[Option<SocketAddr>; 2]> = Mutex::new([None; 2]);
    let real = Arc::new(real);
    std::thread::scope(|scope| {
        for (index, proxy) in proxies.iter().enumerate() {
            let (real, over) = (real.clone(), &over);
            scope.spawn(move || {
                while let Ok((near, _)) = proxy.accept()
                    && !over.load(Ordering::Relaxed)
                {
                    let target = real.lock().unwrap()[1 - index].unwrap();
                    let claim = claims.then_some(2 - index as u32);
                    std::thread::spawn(move || pass_on(near, target, claim));
                }
            });
        }
        let join = |rank: usize, secret, real: Arc<Mutex<[Option<SocketAddr>; 2]>>| {
            if let 1 | 2 = rank {
                DETOUR.set(Some(Box::new(move |address| {
                    real.lock().unwrap()[rank - 1] = Some(address);
                    addresses[rank - 1]
                })));
            }
            let deadline = Duration::from_secs(if rank == 0 { 6 } else { 20 });
            let result = Tcp::join(&TcpSettings { secret, deadline, ..settings(rank, 4, port) });
            result.map(|group| group.rank()).unwrap_err().to_string()
        };
        let ranks = [0, 1, 2, 3].map(|rank| {
            let (secret, real) = (secret.clone(), real.clone());
            scope.spawn(move || join(rank, secret, real))
        });
        let errors = ranks.map(|rank| rank.join());
        over.store(true, Ordering::Relaxed);
        addresses.iter().for_each(|address| drop(TcpStream::connect(address)));
        errors.into_iter().map(|error| error.unwrap()).collect()
    })
}

#[test]
fn swapped_connections_are_refused_and_the_ranks_named() {
    // The called ranks know: one by the claim in clear, or by the handshake where the claim was changed.
    for (claims, words) in [
        (false, "called rank 1, this is rank 2"),
        (true, "but its handshake is not for rank 2 of this group"),
    ] {
        let errors = errors_when_two_are_swapped(secret("hush"), claims);
        assert!(errors[2].contains(words), "{claims}: {errors:#?}");
        assert!(errors.iter().all(|error| error.contains("no connection from")), "{claims}: {errors:#?}");
    }
    // Without one an honest claim tells as much, and ends the call at once.
    let errors = errors_when_two_are_swapped(None, false);
    assert!(errors.iter().all(|error| error.contains("called rank 1, this is rank 2")), "{errors:#?}");
}

/// Plays rank 1 of four, which is `gone` when it has called rank 0 and answered rank 2, but not rank 3. Gives what the
/// others say.
fn errors_when_rank_1_is_gone(dies: bool) -> Vec<String> {
    let port = free_port();
    std::thread::scope(|scope| {
        let join = move |rank| {
            // For one that freezes it has to pass; what is staged before takes a moment.
            let deadline = Duration::from_secs(if dies {
                60
            } else if rank == 0 {
                12
            } else {
                30
            });
            let result = Tcp::join(&TcpSettings { deadline, ..settings(rank, 4, port) });
            result.map(|group| group.rank()).unwrap_err().to_string()
        };
        let ranks = [0, 2, 3].map(|rank| scope.spawn(move || join(rank)));
        let until = Instant::now() + Duration::from_secs(20);
        let (reception, address) = desk(1, 4, None);
        let call_host = |purpose, group| {
            let stream = dial_until(port, until);
            let hello = Hello { purpose, size: 4, group, address };
            Line::call(stream, None, Claim { caller: 1, called: 0 }, hello, until).unwrap()
        };
        let mut host = call_host(Purpose::Join, name());
        let table = Table::parse(&host.receive(Table::bytes(4), until).unwrap(), 4).unwrap();
        let mut kept = vec![];
        for purpose in [Purpose::Data, Purpose::Notes] {
            let mut line = call_host(purpose, table.group);
            line.receive(0, until).unwrap();
            kept.push(line);
        }
        let mut answered = 0;
        while answered < 2 {
            let mut caller = next(&reception, until);
            if caller.rank == 2 {
                caller.line.send_now(&[]).unwrap();
                answered += 1;
            }
            kept.push(caller.line);
        }
        if dies {
            drop((host, kept, reception));
            return ranks.map(|rank| rank.join().unwrap()).into();
        }
        let errors = ranks.map(|rank| rank.join().unwrap()).into();
        drop((host, kept, reception));
        errors
    })
}

#[test]
fn a_rank_that_is_gone_between_two_calls_is_named_by_all_and_nobody_else_is() {
    for dies in [true, false] {
        for error in errors_when_rank_1_is_gone(dies) {
            assert!(error.contains("rank 1"), "dies: {dies}: {error}");
            let own = error.split(" could not join the group: ").nth(1).unwrap();
            let bystanders = ["rank 3 ", "ranks 1, 3", "from rank 2", "from rank 3"];
            assert!(!bystanders.iter().any(|words| own.contains(words)), "dies: {dies}: {error}");
        }
    }
}

#[test]
fn a_connection_that_is_reset_in_the_meeting_is_no_error_without_a_name() {
    let port = free_port();
    let error = std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            let result = Tcp::join(&settings(0, 2, port));
            result.map(|group| group.rank()).unwrap_err().to_string()
        });
        let until = Instant::now() + Duration::from_secs(20);
        let call = |purpose, group| {
            let stream = dial_until(port, until);
            // Closed, it resets the connection.
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            let hello = Hello { purpose, size: 2, group, address: ([127, 0, 0, 1], 1).into() };
            Line::call(stream, None, Claim { caller: 1, called: 0 }, hello, until).unwrap()
        };
        let mut join = call(Purpose::Join, name());
        let table = Table::parse(&join.receive(Table::bytes(2), until).unwrap(), 2).unwrap();
        for _ in 0..50 {
            drop(call(Purpose::Data, table.group));
        }
        drop(join);
        host.join().unwrap()
    });
    assert!(error.contains("rank 1 at 127.0.0.1"), "{error}");
}
