//! The last part of a meeting: every rank calls every lower one, and rank 0 keeps watch.
//!
//! A rank that waits can't know whether the rank it waits for is dead or waits itself. So the connection by which a
//! rank joined stays open until all are connected. On it a rank reports whom it is about to call, and rank 0 notices
//! when a rank leaves. Rank 0 then ends the meeting for all with one reason, which names the rank at fault, and
//! completes it for all when everybody has called everybody. So no rank begins to work in a group that is not whole.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::hello::Purpose;
use super::line::{Failure, Line, farewell};
use super::reception::{Caller, Reception};
use super::rendezvous::{is_taken, list};
use super::socket::poll_until;
use super::wire::Peer;

/// How much longer the others wait for rank 0 than it waits for them: it knows who is missing and tells them.
pub(super) const GRACE: Duration = Duration::from_millis(700);

/// Callers that are answered before the other connections are looked at again.
const AT_ONCE: usize = 64;

/// What a rank tells rank 0: a number of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    /// It calls this rank, which is lower than itself.
    Calling(usize),
    /// It has called all lower ranks; sent as its own number.
    Connected,
    /// Its deadline is over: who is missing?
    OutOfTime,
}

const REPORT: usize = 4;
const OUT_OF_TIME: u32 = u32::MAX;

impl Report {
    fn to_bytes(self, rank: usize) -> [u8; REPORT] {
        let number = match self {
            Report::Calling(peer) => peer as u32,
            Report::Connected => rank as u32,
            Report::OutOfTime => OUT_OF_TIME,
        };
        number.to_le_bytes()
    }

    fn parse(bytes: &[u8], rank: usize) -> Result<Report, String> {
        let number = bytes.try_into().map(u32::from_le_bytes);
        match number {
            Ok(OUT_OF_TIME) => Ok(Report::OutOfTime),
            Ok(number) if (number as usize) < rank => Ok(Report::Calling(number as usize)),
            Ok(number) if number as usize == rank => Ok(Report::Connected),
            _ => Err(format!("it sent a report of {bytes:02x?}, which is unknown")),
        }
    }
}

/// The places of the higher ranks, which call this one.
pub(super) struct Places {
    pub rank: usize,
    pub group: u64,
    /// At rank 0, from where the others have joined, from rank 1 on.
    joined: Vec<SocketAddr>,
    data: Vec<Option<(Connection, SocketAddr)>>,
    notes: Vec<Option<(Connection, SocketAddr)>>,
}

impl Places {
    pub fn new(rank: usize, size: usize, group: u64) -> Places {
        let none = || (0..size).map(|_| None).collect();
        Places { rank, group, joined: vec![], data: none(), notes: none() }
    }

    /// Those of rank 0, for the ranks that have joined.
    pub fn of_host(guests: &[Caller], group: u64) -> Places {
        let joined = guests.iter().map(|guest| guest.from).collect();
        Places { joined, ..Places::new(0, guests.len() + 1, group) }
    }

    /// The higher ranks that have not called.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        (self.rank + 1..self.data.len())
            .filter(|&peer| self.data[peer].is_none() || self.notes[peer].is_none())
    }

    /// Answers some of those who have introduced themselves.
    fn answer(&mut self, reception: &Reception) {
        for caller in std::iter::from_fn(|| reception.next()).take(AT_ONCE) {
            self.place(caller, reception);
        }
    }

    fn place(&mut self, mut caller: Caller, reception: &Reception) {
        let peer = caller.rank as usize;
        if let Some(reason) = self.objection(&caller) {
            return reception.refuse(caller, &reason);
        }
        let place = match caller.hello.purpose {
            Purpose::Notes => &mut self.notes[peer],
            _ => &mut self.data[peer],
        };
        match caller.line.send_now(&[]).and_then(|()| caller.line.into_connection()) {
            Ok(connection) => *place = Some((connection, caller.from)),
            Err(failure) => tracing::warn!(from = %caller.from, rank = peer, "a caller left: {failure}"),
        }
    }

    /// Why a caller does not get a place.
    fn objection(&self, caller: &Caller) -> Option<String> {
        let peer = caller.rank as usize;
        let places = match caller.hello.purpose {
            Purpose::Join => {
                let elsewhere = || format!("this is rank {}; groups are joined at rank 0", self.rank);
                let first = peer.checked_sub(1).and_then(|index| self.joined.get(index));
                return Some(first.map_or_else(elsewhere, |first| is_taken(peer, *first)));
            }
            _ if caller.hello.group != self.group => {
                return Some("it belongs to another group of ranks".into());
            }
            Purpose::Data => &self.data,
            Purpose::Notes => &self.notes,
        };
        places[peer].as_ref().map(|(_, first)| is_taken(peer, *first))
    }

    /// All peers, when nobody is missing.
    pub fn into_peers(self, lower: Vec<Peer>) -> Vec<Option<Peer>> {
        let higher = self.data.into_iter().zip(self.notes).skip(self.rank + 1).map(|pair| match pair {
            (Some((data, _)), Some((notes, _))) => Some(Peer::new(data, notes)),
            _ => None,
        });
        lower.into_iter().map(Some).chain([None]).chain(higher).collect()
    }
}

/// What rank 0 knows of a rank.
struct Member {
    line: Line,
    from: SocketAddr,
    calling: Option<usize>,
    connected: bool,
}

/// Rank 0's watch over the others.
pub(super) struct Overseer {
    /// By rank, from 1.
    members: Vec<Member>,
    deadline: Duration,
}

impl Overseer {
    /// Of the ranks from 1 on.
    pub fn new(members: impl Iterator<Item = Caller>, deadline: Duration) -> Overseer {
        let member =
            |caller: Caller| Member { line: caller.line, from: caller.from, calling: None, connected: false };
        Overseer { members: members.map(member).collect(), deadline }
    }

    /// Sends the table to all, then waits until everybody has called everybody.
    pub fn complete(
        mut self,
        table: &[u8],
        reception: &Reception,
        places: &mut Places,
        until: Instant,
    ) -> Result<(), String> {
        let connected = self.hand_out(table, until).and_then(|()| self.watch(reception, places, until));
        match &connected {
            // One that has died since is found by the first collective.
            Ok(()) => self.members.iter_mut().for_each(|member| drop(member.line.send_now(&[]))),
            Err(reason) => farewell(self.members.into_iter().map(|member| member.line).collect(), reason),
        }
        connected
    }

    fn hand_out(&mut self, table: &[u8], until: Instant) -> Result<(), String> {
        for (rank, member) in (1..).zip(&mut self.members) {
            let sent = member.line.send(table, until);
            sent.map_err(|failure| format!("rank {rank} at {} left: {failure}", member.from))?;
        }
        Ok(())
    }

    fn watch(&mut self, reception: &Reception, places: &mut Places, until: Instant) -> Result<(), String> {
        loop {
            if self.members.iter().all(|member| member.connected) && places.missing().next().is_none() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(self.verdict(places));
            }
            let mut events = vec![PollFd::new(reception, PollFlags::IN)];
            events.extend(self.members.iter().map(|member| PollFd::new(&member.line, PollFlags::IN)));
            poll_until(&mut events, until).map_err(|error| error.to_string())?;
            let speaks: Vec<bool> = events[1..].iter().map(|event| !event.revents().is_empty()).collect();
            for (index, _) in speaks.into_iter().enumerate().filter(|(_, speaks)| *speaks) {
                self.read(index, places)?;
            }
            places.answer(reception);
        }
    }

    /// Reads what a rank reports.
    fn read(&mut self, index: usize, places: &Places) -> Result<(), String> {
        let (rank, member) = (index + 1, &mut self.members[index]);
        let left = |failure: &dyn std::fmt::Display, from| {
            format!("rank {rank} at {from} left before all ranks were connected: {failure}")
        };
        loop {
            let report = match member.line.try_receive(REPORT) {
                Ok(None) => return Ok(()),
                Ok(Some(bytes)) => Report::parse(&bytes, rank).map_err(|error| left(&error, member.from))?,
                Err(Failure::Refused(reason)) => return Err(format!("{reason}, says rank {rank}")),
                Err(failure) => return Err(left(&failure, member.from)),
            };
            match report {
                Report::Calling(peer) => member.calling = Some(peer),
                Report::Connected => member.connected = true,
                Report::OutOfTime => return Err(self.verdict(places)),
            }
        }
    }

    /// Who is at fault when the time is over.
    fn verdict(&self, places: &Places) -> String {
        let behind = |rank: &usize| !self.members[rank - 1].connected || places.missing().any(|r| r == *rank);
        let late = (1..=self.members.len()).filter(behind);
        let at_fault: BTreeSet<usize> = late.map(|rank| self.at_fault(rank)).collect();
        let seconds = self.deadline.as_secs_f64();
        format!("no connection from {} within {seconds} s", list(at_fault.into_iter()))
    }

    /// The rank that `rank` waits for, or that waits for nobody.
    fn at_fault(&self, rank: usize) -> usize {
        let member = &self.members[rank - 1];
        match member.calling {
            // Rank 0 answers. A report names a lower rank only, so this ends.
            Some(peer) if !member.connected && peer > 0 => self.at_fault(peer),
            _ => rank,
        }
    }
}

/// Any other rank's connection to rank 0.
pub(super) struct Host {
    pub line: Line,
    pub address: SocketAddr,
    pub rank: usize,
    complete: bool,
}

impl Host {
    pub fn new(line: Line, address: SocketAddr, rank: usize) -> Host {
        Host { line, address, rank, complete: false }
    }

    /// Tells rank 0 whom this rank is about to call.
    pub fn report_call(&mut self, peer: usize) {
        self.report(Report::Calling(peer));
    }

    /// That rank 0 is gone is found when it is listened to.
    fn report(&mut self, report: Report) {
        let _ = self.line.send_now(&report.to_bytes(self.rank));
    }

    /// Reads what rank 0 says: an error when it has ended the meeting, or has left.
    pub fn check(&mut self) -> Result<(), String> {
        while !self.complete {
            match self.line.try_receive(0) {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => self.complete = true,
                Err(Failure::Refused(reason)) => return Err(format!("{reason}, says rank 0")),
                Err(Failure::Broken(reason)) => {
                    let address = self.address;
                    return Err(format!(
                        "rank 0 at {address} left before all ranks were connected: {reason}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Waits until `line` or rank 0 has something to say; an error if rank 0 has ended the meeting.
    pub fn wait_with(&mut self, line: Option<&Line>, until: Instant) -> Result<(), String> {
        let mut events = vec![PollFd::new(&self.line, PollFlags::IN)];
        events.extend(line.map(|line| PollFd::new(line, PollFlags::IN)));
        poll_until(&mut events, until).map_err(|error| error.to_string())?;
        self.check()
    }

    /// Asks rank 0 who is missing; gives `own`, what this rank knows itself, if it has no answer.
    pub fn ask_who_is_missing(&mut self, own: String) -> String {
        self.report(Report::OutOfTime);
        let until = Instant::now() + GRACE;
        while Instant::now() < until && !self.complete {
            if let Err(reason) = self.wait_with(None, until) {
                return reason;
            }
        }
        own
    }

    /// Waits for the calls of all higher ranks, and until rank 0 knows that everybody has called everybody.
    pub fn complete(
        &mut self,
        reception: &Reception,
        places: &mut Places,
        until: Instant,
        deadline: Duration,
    ) -> Result<(), String> {
        self.report(Report::Connected);
        loop {
            let mut missing = places.missing().peekable();
            if self.complete && missing.peek().is_none() {
                return Ok(());
            }
            if Instant::now() >= until {
                let whom = if missing.peek().is_some() { list(missing) } else { "rank 0".into() };
                let own = format!("no connection from {whom} within {} s", deadline.as_secs_f64());
                return Err(self.ask_who_is_missing(own));
            }
            drop(missing);
            let mut events = vec![PollFd::new(reception, PollFlags::IN)];
            if !self.complete {
                events.push(PollFd::new(&self.line, PollFlags::IN));
            }
            poll_until(&mut events, until).map_err(|error| error.to_string())?;
            self.check()?;
            places.answer(reception);
        }
    }
}
