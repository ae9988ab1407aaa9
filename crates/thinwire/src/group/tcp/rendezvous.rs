//! How the ranks find each other.
//!
//! Rank 0 waits at an address all know. The others call it and say where they can be called; when all have, it
//! hands everybody the table. Then each rank calls every lower one twice, for data and for notes. Whatever else
//! comes to an open port is refused, and the ports are closed when the group is complete.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::hello::{Hello, Purpose, Table};
use super::line::{Failure, Line};
use super::reception::{Caller, Reception};
use super::secure::Identity;
use super::settings::TcpSettings;
use super::wire::Peer;
use crate::{Error, Result};

/// Between two calls that were not answered: from the first to the second, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long one call may take; then it is made again.
const ONE_CALL: Duration = Duration::from_secs(5);

/// How much longer the others wait for rank 0 than it waits for them: it knows who is missing and tells them.
const GRACE: Duration = Duration::from_millis(700);

/// How long rank 0 waits for a port that somebody else has: the rank 0 before it may still be ending, and a process
/// that was being started while the port was looked for keeps it until it runs its program.
const PORT_PATIENCE: Duration = Duration::from_secs(3);

/// Connects this rank with all others.
pub(super) fn meet(settings: &TcpSettings) -> Result<Vec<Option<Peer>>> {
    if settings.size == 1 {
        return Ok(vec![None]);
    }
    let meeting = Meeting {
        settings,
        identity: match &settings.secret {
            None => None,
            Some(secret) => Some(Arc::new(Identity::new(secret.clone()).map_err(|r| failed(settings, r))?)),
        },
        until: Instant::now() + settings.deadline,
    };
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
        let size = self.settings.size;
        let listener = self.listen_as_host()?;
        let here = listener.local_addr().map_err(words)?;
        self.warn_of_open_port(here);
        let reception = Reception::open(listener, 0, size, self.identity.clone()).map_err(words)?;
        let mut guests: Vec<Option<Caller>> = (0..size).map(|_| None).collect();
        while guests[1..].iter().any(Option::is_none) {
            match reception.next(self.until) {
                Some(caller) if caller.hello.purpose == Purpose::Join => {
                    seat(caller, &mut guests);
                    if guests[1..].iter().all(Option::is_some) {
                        // Whoever has left while the others were waited for may come again.
                        guests
                            .iter_mut()
                            .for_each(|guest| drop(guest.take_if(|guest| guest.line.is_closed())));
                    }
                }
                Some(caller) => refuse(caller, "the group is not complete yet"),
                None => {
                    let missing = list((1..size).filter(|&rank| guests[rank].is_none()));
                    let seconds = self.settings.deadline.as_secs_f64();
                    let reason = format!("no word from {missing} of {size} at {here} within {seconds} s");
                    guests.into_iter().flatten().for_each(|guest| guest.line.refuse(&reason));
                    return Err(reason);
                }
            }
        }
        // Its own address is the one they have called.
        let address = |guest: &Option<Caller>| guest.as_ref().map_or(here, |guest| guest.hello.address);
        let table = Table { group: group_number(), addresses: guests.iter().map(address).collect() };
        for (rank, guest) in guests.into_iter().enumerate() {
            let Some(mut guest) = guest else { continue };
            let told = guest.line.send(&table.to_bytes(), self.until);
            told.map_err(|failure| format!("rank {rank} at {} left: {failure}", guest.from))?;
        }
        self.collect(&reception, table.group, vec![])
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
            Ok(Hello { purpose: Purpose::Join, rank: *rank as u32, size: *size as u32, group: 0, address })
        };
        let target = Target::Master(master, *port);
        let table_bytes = Table::bytes(*size);
        let (_, table, host) = self.call(0, target, hello, table_bytes, self.until + GRACE)?;
        let table = Table::parse(&table, *size).map_err(|reason| format!("rank 0 sent {reason}"))?;
        let Some((reception, _)) = reception else { return Err("rank 0 was not called".into()) };
        let mut lower = Vec::new();
        for peer in 0..*rank {
            let address = if peer == 0 { host } else { table.addresses[peer] };
            let connect = |purpose| {
                let group = table.group;
                let hello = Hello { purpose, rank: *rank as u32, size: *size as u32, group, address };
                let (line, _, _) = self.call(peer, Target::Address(address), |_| Ok(hello), 0, self.until)?;
                line.into_connection().map_err(words)
            };
            lower.push(Peer::new(connect(Purpose::Data)?, connect(Purpose::Notes)?));
        }
        self.collect(&reception, table.group, lower)
    }

    /// Calls `peer` until it answers; gives its answer too, and the address that worked.
    fn call(
        &self,
        peer: usize,
        target: Target<'_>,
        mut hello: impl FnMut(SocketAddr) -> Result<Hello, String>,
        answer: usize,
        until: Instant,
    ) -> Result<(Line, Vec<u8>, SocketAddr), String> {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut last = String::from("its name has no address");
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
                let line = Line::call(stream, self.identity.as_deref(), introduction, limit);
                match line.and_then(|mut line| line.receive(answer, until).map(|answer| (line, answer))) {
                    Ok((line, answer)) => return Ok((line, answer, address)),
                    Err(Failure::Refused(reason)) => return Err(format!("rank {peer} refused: {reason}")),
                    Err(Failure::Broken(reason)) => last = reason,
                }
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.settings.deadline.as_secs_f64();
                return Err(format!(
                    "rank {peer} at {target} could not be reached within {seconds} s: {last}"
                ));
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for the calls of all higher ranks.
    fn collect(
        &self,
        reception: &Reception,
        group: u64,
        lower: Vec<Peer>,
    ) -> Result<Vec<Option<Peer>>, String> {
        let TcpSettings { rank, size, .. } = *self.settings;
        let mut data: Vec<Option<Connection>> = (0..size).map(|_| None).collect();
        let mut notes: Vec<Option<Connection>> = (0..size).map(|_| None).collect();
        let missing = |data: &[Option<Connection>], notes: &[Option<Connection>]| -> Vec<usize> {
            (rank + 1..size).filter(|&peer| data[peer].is_none() || notes[peer].is_none()).collect()
        };
        loop {
            let still = missing(&data, &notes);
            if still.is_empty() {
                break;
            }
            let Some(mut caller) = reception.next(self.until) else {
                let seconds = self.settings.deadline.as_secs_f64();
                return Err(format!("no connection from {} within {seconds} s", list(still.into_iter())));
            };
            let peer = caller.hello.rank as usize;
            let place = match caller.hello.purpose {
                Purpose::Join if rank == 0 => {
                    refuse(
                        caller,
                        &format!("there is a rank {peer} already; is the group of an earlier start?"),
                    );
                    continue;
                }
                Purpose::Join => {
                    refuse(caller, &format!("this is rank {rank}; groups are joined at rank 0"));
                    continue;
                }
                _ if caller.hello.group != group => {
                    refuse(caller, "it belongs to another group of ranks");
                    continue;
                }
                Purpose::Data => &mut data[peer],
                Purpose::Notes => &mut notes[peer],
            };
            if place.is_some() {
                refuse(caller, &format!("there is a rank {peer} already"));
                continue;
            }
            match caller.line.send(&[], self.until) {
                Ok(()) => *place = Some(caller.line.into_connection().map_err(words)?),
                Err(failure) => tracing::warn!(from = %caller.from, rank = peer, "a caller left: {failure}"),
            }
        }
        let higher = data.into_iter().zip(notes).skip(rank + 1).map(|pair| match pair {
            (Some(data), Some(notes)) => Some(Peer::new(data, notes)),
            _ => None,
        });
        Ok(lower.into_iter().map(Some).chain([None]).chain(higher).collect())
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
        let TcpSettings { rank, size, bind, .. } = *self.settings;
        let ip = bind.unwrap_or(local.ip());
        let listener =
            TcpListener::bind((ip, 0)).map_err(|error| format!("can't listen at {ip}: {error}"))?;
        let here = listener.local_addr().map_err(words)?;
        self.warn_of_open_port(here);
        let reception = Reception::open(listener, rank, size, self.identity.clone()).map_err(words)?;
        let ip = if ip.is_unspecified() { local.ip() } else { ip };
        Ok((reception, (ip, here.port()).into()))
    }

    fn warn_of_open_port(&self, here: SocketAddr) {
        if self.identity.is_none() && !here.ip().to_canonical().is_loopback() {
            tracing::warn!(
                "listening at {here} without a secret: whoever reaches it can take part; set THINWIRE_SECRET"
            );
        }
    }
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

fn refuse(caller: Caller, reason: &str) {
    tracing::warn!(from = %caller.from, rank = caller.hello.rank, "a caller was refused: {reason}");
    caller.line.refuse(reason);
}

/// Gives a caller its place, unless it is taken by one that is still there.
fn seat(caller: Caller, guests: &mut [Option<Caller>]) {
    let rank = caller.hello.rank as usize;
    match &guests[rank] {
        Some(first) if !first.line.is_closed() => {
            let reason = format!("there is a rank {rank} already, at {} (RANK)", first.from);
            refuse(caller, &reason);
        }
        _ => guests[rank] = Some(caller),
    }
}

/// Tells this group from others that use the same port one after the other.
fn group_number() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

fn list(ranks: impl Iterator<Item = usize>) -> String {
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, ranks.join(", "))
}
