//! How the ranks find each other.
//!
//! Rank 0 waits at an address all know. The others call it and say where they can be called; when all have, it
//! hands everybody the table. Then each rank calls every lower one twice, for data and for notes, while rank 0
//! [keeps watch](super::overseer). Whatever else comes to an open port is refused, and the ports are closed when the
//! group is complete.
//!
//! No wait depends on strangers: callers are answered by a thread of their own, nothing that is said to one blocks, and
//! every loop looks at its deadline before it looks at the next caller.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::connection::CLOSED;
use super::hello::{Claim, Hello, Purpose, Table, number_of_name};
use super::introduction::Desk;
use super::line::{Failure, Line, farewell};
use super::overseer::{GRACE, Host, Overseer, Places};
use super::reception::{Caller, Reception};
use super::secure::Identity;
use super::settings::TcpSettings;
use super::socket::poll_until;
use super::wire::Peer;
use crate::{Error, Result};

/// Between two calls that were not answered: from the first to the second, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long one call may take; then it is made again.
const ONE_CALL: Duration = Duration::from_secs(5);

/// How long rank 0 waits for a port that somebody else has: the rank 0 before it may still be ending, and a process
/// that was being started while the port was looked for keeps it until it runs its program.
const PORT_PATIENCE: Duration = Duration::from_secs(3);

/// Connects this rank with all others.
pub(super) fn meet(settings: &TcpSettings) -> Result<Vec<Option<Peer>>> {
    if settings.size == 1 {
        return Ok(vec![None]);
    }
    // The deadline is for the other ranks: the time that the key takes does not count.
    let identity = match &settings.secret {
        None => None,
        Some(secret) => {
            let identity = Identity::new(secret, &settings.group).map_err(|r| failed(settings, r))?;
            Some(Arc::new(identity))
        }
    };
    let meeting = Meeting { settings, identity, until: Instant::now() + settings.deadline };
    let peers = if settings.rank == 0 { meeting.host() } else { meeting.visit() };
    peers.map_err(|reason| failed(settings, reason))
}

fn failed(settings: &TcpSettings, reason: String) -> Error {
    Error::Rendezvous { rank: settings.rank, reason }
}

fn words(error: std::io::Error) -> String {
    error.to_string()
}

struct Meeting<'a> {
    settings: &'a TcpSettings,
    identity: Option<Arc<Identity>>,
    until: Instant,
}

impl Meeting<'_> {
    /// Rank 0.
    fn host(&self) -> Result<Vec<Option<Peer>>, String> {
        let listener = self.listen_as_host()?;
        let here = listener.local_addr().map_err(words)?;
        self.warn_of_open_port(here);
        let reception = Reception::open(listener, self.desk()).map_err(words)?;
        let guests = self.gather(&reception, here)?;
        // Its own address is the one they have called.
        let addresses = [here].into_iter().chain(guests.iter().map(|guest| guest.hello.address));
        let table = Table { group: group_number(), addresses: addresses.collect() };
        let mut places = Places::of_host(&guests, table.group);
        let overseer = Overseer::new(guests.into_iter(), self.settings.deadline);
        let complete = overseer.complete(&table.to_bytes(), &reception, &mut places, self.until);
        complete.map_err(|reason| reason + &reception.refusals())?;
        Ok(places.into_peers(vec![]))
    }

    /// Waits until all other ranks have joined.
    fn gather(&self, reception: &Reception, here: SocketAddr) -> Result<Vec<Caller>, String> {
        let size = self.settings.size;
        let mut guests: Vec<Option<Caller>> = (1..size).map(|_| None).collect();
        loop {
            if guests.iter().all(Option::is_some) {
                // Whoever has left while the others were waited for may come again.
                guests.iter_mut().for_each(|guest| drop(guest.take_if(|guest| guest.line.is_closed())));
                if guests.iter().all(Option::is_some) {
                    return Ok(guests.into_iter().flatten().collect());
                }
            }
            if Instant::now() >= self.until {
                let missing = list((1..size).filter(|&rank| guests[rank - 1].is_none()));
                let seconds = self.settings.deadline.as_secs_f64();
                let reason = format!("no word from {missing} of {size} at {here} within {seconds} s");
                farewell(guests.into_iter().flatten().map(|guest| guest.line).collect(), &reason);
                return Err(reason + &reception.refusals());
            }
            match reception.next() {
                Some(caller) if caller.hello.purpose == Purpose::Join => seat(caller, &mut guests, reception),
                Some(caller) => reception.refuse(caller, "the group is not complete yet"),
                None => {
                    let mut event = [PollFd::new(reception, PollFlags::IN)];
                    poll_until(&mut event, self.until).map_err(words)?;
                }
            }
        }
    }

    fn desk(&self) -> Desk {
        let TcpSettings { rank, size, .. } = *self.settings;
        let name = number_of_name(&self.settings.group);
        Desk { rank, size, identity: self.identity.clone(), name }
    }

    /// Any other rank.
    fn visit(&self) -> Result<Vec<Option<Peer>>, String> {
        let TcpSettings { rank, size, master, port, .. } = self.settings;
        let mut reception: Option<(Reception, SocketAddr)> = None;
        let hello = |local: SocketAddr| {
            // The port stays open when the call has to be made again.
            if reception.is_none() {
                reception = Some(self.open_reception(local)?);
            }
            let address = reception.as_ref().map_or(local, |(_, address)| *address);
            let group = number_of_name(&self.settings.group);
            Ok(Hello { purpose: Purpose::Join, size: *size as u32, group, address })
        };
        let target = Target::Master(master, *port);
        let call = Call { peer: 0, target, answer: Table::bytes(*size), until: self.until + GRACE };
        let (line, table, address) = self.call(call, hello, None)?;
        let table = Table::parse(&table, *size).map_err(|reason| format!("rank 0 sent {reason}"))?;
        let Some((reception, _)) = reception else { return Err("rank 0 was not called".into()) };
        let mut host = Host::new(line, address, *rank);
        let connected = self.connect(&mut host, &table, &reception);
        if let Err(reason) = &connected {
            // For the others, who would have to find out by themselves.
            farewell(vec![host.line], reason);
        }
        // A call for another rank, say: only the called rank can tell.
        connected.map_err(|reason| reason + &reception.refusals())
    }

    /// Calls all lower ranks and waits for the calls of the higher ones.
    fn connect(
        &self,
        host: &mut Host,
        table: &Table,
        reception: &Reception,
    ) -> Result<Vec<Option<Peer>>, String> {
        let TcpSettings { rank, size, deadline, .. } = *self.settings;
        let mut lower = Vec::new();
        for peer in 0..rank {
            host.report_call(peer);
            let address = if peer == 0 { host.address } else { table.addresses[peer] };
            let mut connect = |purpose| {
                let hello = Hello { purpose, size: size as u32, group: table.group, address };
                let call = Call { peer, target: Target::Address(address), answer: 0, until: self.until };
                let (line, _, _) = self.call(call, |_| Ok(hello), Some(host))?;
                line.into_connection().map_err(|failure| format!("rank {peer} at {address} left: {failure}"))
            };
            lower.push(Peer::new(connect(Purpose::Data)?, connect(Purpose::Notes)?));
        }
        let mut places = Places::new(rank, size, table.group);
        host.complete(reception, &mut places, self.until + GRACE, deadline)?;
        Ok(places.into_peers(lower))
    }

    /// Calls a rank until it answers; gives its answer too, and the address that worked. It ends early when `host`
    /// says that the meeting has ended.
    fn call(
        &self,
        call: Call<'_>,
        mut hello: impl FnMut(SocketAddr) -> Result<Hello, String>,
        mut host: Option<&mut Host>,
    ) -> Result<(Line, Vec<u8>, SocketAddr), String> {
        let Call { peer, target, answer, until } = call;
        let claim = Claim { caller: self.settings.rank as u32, called: peer as u32 };
        let mut pause = FIRST_PAUSE;
        let mut last = String::from("its name has no address");
        let mut called = false;
        loop {
            for address in target.addresses(&mut last) {
                let limit = (Instant::now() + ONE_CALL).min(self.until);
                let left = limit.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                let stream = match TcpStream::connect_timeout(&address, left) {
                    Ok(stream) => stream,
                    Err(error) => {
                        last = error.to_string();
                        continue;
                    }
                };
                let introduction = hello(stream.local_addr().map_err(words)?)?;
                let line = Line::call(stream, self.identity.as_deref(), claim, introduction, limit);
                let answered = match line {
                    Ok(line) => self.answer(line, answer, until, host.as_deref_mut())?,
                    Err(failure) => Err(failure),
                };
                match answered {
                    Ok((line, answer)) => return Ok((line, answer, address)),
                    Err(Failure::Refused(reason)) => return Err(format!("rank {peer} refused: {reason}")),
                    // The last call of all is cut short, which says nothing.
                    Err(Failure::Broken(_)) if called && Instant::now() >= self.until => {}
                    Err(Failure::Broken(reason)) => last = self.explain(reason),
                }
            }
            called = true;
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.settings.deadline.as_secs_f64();
                let own = format!("rank {peer} at {target} could not be reached within {seconds} s: {last}");
                return Err(match host {
                    None => own,
                    Some(host) => host.ask_who_is_missing(own),
                });
            }
            match host.as_deref_mut() {
                None => std::thread::sleep(pause.min(left)),
                Some(host) => host.wait_with(None, Instant::now() + pause.min(left))?,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for the answer of a rank that was called; the outer error is that the meeting has ended.
    fn answer(
        &self,
        mut line: Line,
        most: usize,
        until: Instant,
        host: Option<&mut Host>,
    ) -> Result<Result<(Line, Vec<u8>), Failure>, String> {
        let Some(host) = host else {
            return Ok(line.receive(most, until).map(|answer| (line, answer)));
        };
        loop {
            match line.try_receive(most) {
                Ok(Some(answer)) => return Ok(Ok((line, answer))),
                Ok(None) if Instant::now() < until => host.wait_with(Some(&line), until)?,
                Ok(None) => return Ok(Err(Failure::Broken("it did not answer in time".into()))),
                Err(failure) => return Ok(Err(failure)),
            }
        }
    }

    /// Adds to the words for a call that failed what a rank with another secret is not told.
    fn explain(&self, reason: String) -> String {
        match &self.identity {
            _ if reason != CLOSED => reason,
            Some(_) => {
                reason + "; has it another secret (THINWIRE_SECRET)? Or is another rank at its address?"
            }
            None => reason + "; has its group a secret (THINWIRE_SECRET)?",
        }
    }

    fn listen_as_host(&self) -> Result<TcpListener, String> {
        let TcpSettings { master, port, bind, .. } = self.settings;
        let addresses: Vec<SocketAddr> = match bind {
            Some(ip) => vec![(*ip, *port).into()],
            None => (master.as_str(), *port)
                .to_socket_addrs()
                .map_err(|error| format!("MASTER_ADDR {master:?} has no address: {error}"))?
                .collect(),
        };
        let patience = self.until.min(Instant::now() + PORT_PATIENCE);
        let listener = loop {
            match TcpListener::bind(&addresses[..]) {
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < patience => {
                    std::thread::sleep(FIRST_PAUSE);
                }
                other => break other,
            }
        };
        listener.map_err(|error| {
            let way_out = match error.kind() {
                ErrorKind::AddrInUse => "; choose another MASTER_PORT (or THINWIRE_PORT)",
                ErrorKind::AddrNotAvailable => {
                    "; MASTER_ADDR must be an address of the machine of rank 0, or THINWIRE_BIND be set"
                }
                _ => "",
            };
            format!(
                "can't listen at {}: {error}{way_out}",
                bind.map_or(master.clone(), |ip| ip.to_string()) + &format!(":{port}")
            )
        })
    }

    /// Opens this rank's own port at the address from which it reaches rank 0, and says how others call it.
    fn open_reception(&self, local: SocketAddr) -> Result<(Reception, SocketAddr), String> {
        let TcpSettings { bind, .. } = *self.settings;
        let ip = bind.unwrap_or(local.ip());
        let listener =
            TcpListener::bind((ip, 0)).map_err(|error| format!("can't listen at {ip}: {error}"))?;
        let here = listener.local_addr().map_err(words)?;
        self.warn_of_open_port(here);
        let reception = Reception::open(listener, self.desk()).map_err(words)?;
        let ip = if ip.is_unspecified() { local.ip() } else { ip };
        let address = (ip, here.port()).into();
        #[cfg(test)]
        let address = super::tests::as_others_reach(address);
        Ok((reception, address))
    }

    fn warn_of_open_port(&self, here: SocketAddr) {
        if self.identity.is_none() && !here.ip().to_canonical().is_loopback() {
            tracing::warn!(
                "listening at {here} without a secret: whoever reaches it can take part; set THINWIRE_SECRET"
            );
        }
    }
}

/// A call that is made until it is answered.
struct Call<'a> {
    peer: usize,
    target: Target<'a>,
    /// The most bytes of an answer.
    answer: usize,
    /// How long an answer is waited for.
    until: Instant,
}

/// Whom to call.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// By name, which may get its address only while we wait.
    Master(&'a str, u16),
    Address(SocketAddr),
}

impl Target<'_> {
    /// The addresses to try; if there are none, `problem` says why.
    fn addresses(&self, problem: &mut String) -> Vec<SocketAddr> {
        match *self {
            Target::Address(address) => vec![address],
            Target::Master(name, port) => match (name, port).to_socket_addrs() {
                Ok(addresses) => addresses.collect(),
                Err(error) => {
                    *problem = error.to_string();
                    vec![]
                }
            },
        }
    }
}

impl std::fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Master(name, port) => write!(f, "{name}:{port}"),
            Target::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Gives a caller its place, unless it is taken by one that is still there.
fn seat(caller: Caller, guests: &mut [Option<Caller>], reception: &Reception) {
    let rank = caller.rank as usize;
    match &guests[rank - 1] {
        Some(first) if !first.line.is_closed() => {
            reception.refuse(caller, &is_taken(rank, first.from));
        }
        _ => {
            tracing::debug!(from = %caller.from, "rank {rank} has joined");
            guests[rank - 1] = Some(caller);
        }
    }
}

/// Why a second claim to a rank is refused.
pub(super) fn is_taken(rank: usize, first: SocketAddr) -> String {
    format!("there is a rank {rank} already, at {first} (RANK)")
}

/// Tells this group from others that use the same port one after the other.
fn group_number() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

/// Ranks, for an error.
pub(super) fn list(ranks: impl Iterator<Item = usize>) -> String {
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, ranks.join(", "))
}
