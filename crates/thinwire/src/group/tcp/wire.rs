//! The streams of one rank over sockets: for every peer one connection for data and one for notes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};

use super::connection::Connection;
use super::schedule::Schedule;
use super::shaper::Shaper;
use super::socket::timespec;
use crate::group::Traffic;
use crate::group::wire::{Fault, Interest, Note, Wire};

/// How long a note may take to leave. Notes are small and the socket is theirs alone, so only a peer that has
/// stopped reading long ago makes it wait.
const NOTE_PATIENCE: Duration = Duration::from_millis(200);

/// Received bytes of notes that are not whole: room for two.
const NOTE_ROOM: usize = 2048;

/// The number under which the shaper's bell is polled.
const ROOM_AGAIN: u64 = u64::MAX;

/// The two connections to a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub data: Connection,
    /// `None` once it has broken: then nothing is heard of the peer, and others will notice.
    pub notes: Option<Connection>,
    /// Bytes of a note that is not whole yet.
    partial: Vec<u8>,
}

impl Peer {
    pub fn new(data: Connection, notes: Connection) -> Peer {
        Peer { data, notes: Some(notes), partial: Vec::with_capacity(NOTE_ROOM) }
    }
}

/// One rank's sockets. One thread uses them all, and sleeps in one place.
#[derive(Debug)]
pub struct TcpWire {
    rank: usize,
    /// By rank; `None` for this one, and for all when closed.
    peers: Vec<Option<Peer>>,
    /// All sockets. Data is reported when it changes from none to some, and room likewise: whoever waits has
    /// tried to read and write before and was told that there is none.
    events: OwnedFd,
    /// Peers whose notes can be read.
    speaking: Vec<usize>,
    shaper: Option<Shaper>,
    deadline: Duration,
    /// What closed connections had carried.
    before: Traffic,
}

impl TcpWire {
    pub(super) fn new(
        rank: usize,
        mut peers: Vec<Option<Peer>>,
        link: Option<Schedule>,
        deadline: Duration,
    ) -> std::io::Result<TcpWire> {
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        for (number, peer) in (0u64..).zip(&peers) {
            let Some(peer) = peer else { continue };
            let both = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&events, peer.data.stream(), EventData::new_u64(2 * number), both)?;
            if let Some(notes) = &peer.notes {
                epoll::add(&events, notes.stream(), EventData::new_u64(2 * number + 1), EventFlags::IN)?;
            }
        }
        let shaper = match link {
            None => None,
            Some(link) => {
                let sockets: Vec<_> = peers.iter().map(|p| p.as_ref().map(|p| p.data.stream())).collect();
                let shaper = Shaper::start(link, &sockets)?;
                epoll::add(&events, shaper.bell(), EventData::new_u64(ROOM_AGAIN), EventFlags::IN)?;
                for (number, peer) in peers.iter_mut().enumerate() {
                    if let Some(peer) = peer {
                        peer.data.send_through(shaper.lane(number));
                    }
                }
                Some(shaper)
            }
        };
        let speaking = Vec::with_capacity(peers.len());
        Ok(TcpWire { rank, peers, events, speaking, shaper, deadline, before: Traffic::default() })
    }

    fn data(&mut self, peer: usize) -> Result<&mut Connection, Fault> {
        let closed = || Fault { peer, reason: "this rank has closed the connection".into() };
        self.peers.get_mut(peer).and_then(Option::as_mut).map(|peer| &mut peer.data).ok_or_else(closed)
    }

    /// A note of `peer`; `None` when the rest has not come. A connection that breaks or brings nonsense is given
    /// up.
    fn note_of(&mut self, peer: usize) -> Option<Note> {
        let Some(Some(at)) = self.peers.get_mut(peer) else { return None };
        loop {
            match Note::parse(&at.partial) {
                Ok(Some((note, length))) => {
                    at.partial.drain(..length);
                    return Some(note);
                }
                Ok(None) => {}
                Err(nonsense) => {
                    tracing::warn!(rank = peer, "its notes are no longer read: {nonsense}");
                    at.notes = None;
                    return None;
                }
            }
            let notes = at.notes.as_mut()?;
            let held = at.partial.len();
            at.partial.resize(NOTE_ROOM, 0);
            let count = notes.read(&mut at.partial[held..]);
            at.partial.truncate(held + count.as_ref().copied().unwrap_or(0));
            match count {
                Ok(0) => return None,
                Ok(_) => {}
                Err(_) => {
                    at.notes = None;
                    return None;
                }
            }
        }
    }

    fn end(&mut self) {
        for peer in self.peers.iter_mut().filter_map(Option::take) {
            let Peer { data, notes, .. } = peer;
            self.before.sent += data.traffic().sent;
            self.before.received += data.traffic().received;
            data.shut_down();
            if let Some(mut notes) = notes {
                // A connection that is closed with bytes unread may take those with it that are on their way.
                while notes.read(&mut [0; NOTE_ROOM]).is_ok_and(|count| count > 0) {}
                notes.shut_down();
            }
        }
    }
}

impl Wire for TcpWire {
    fn begin_step(&mut self, step: u64) {
        if let Some(shaper) = &self.shaper {
            shaper.begin_step(step);
        }
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.peers.len()
    }

    fn write(&mut self, peer: usize, head: &[u8], body: &[u8]) -> Result<usize, Fault> {
        self.data(peer)?.write(head, body).map_err(|reason| Fault { peer, reason })
    }

    fn read(&mut self, peer: usize, into: &mut [u8]) -> Result<usize, Fault> {
        self.data(peer)?.read(into).map_err(|reason| Fault { peer, reason })
    }

    fn flush(&mut self, peer: usize) -> Result<bool, Fault> {
        self.data(peer)?.flush().map_err(|reason| Fault { peer, reason })
    }

    fn wait(&mut self, interest: &Interest, until: Instant) -> Result<(), Fault> {
        let room = self.shaper.as_ref().and_then(|shaper| shaper.room_again(&interest.write));
        let until = room.map_or(until, |room| room.min(until));
        // Notes that are here already wake nobody any more.
        let until = if self.speaking.is_empty() { until } else { Instant::now() };
        let mut space = [MaybeUninit::uninit(); 64];
        let events = loop {
            let timeout = timespec(until.saturating_duration_since(Instant::now()));
            match epoll::wait(&self.events, &mut space, Some(&timeout)) {
                Ok((events, _)) => break events,
                // Also of a process that was stopped and goes on: what has come meanwhile is still looked for.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Fault { peer: self.rank, reason: error.to_string() }),
            }
        };
        for event in events {
            match event.data.u64() {
                ROOM_AGAIN => {
                    if let Some(shaper) = &self.shaper {
                        shaper.bell().quiet();
                    }
                }
                number if number % 2 == 1 => {
                    let peer = (number / 2) as usize;
                    if !self.speaking.contains(&peer) {
                        self.speaking.push(peer);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn tell(&mut self, peer: usize, note: &Note) {
        let Some(Some(at)) = self.peers.get_mut(peer) else { return };
        let Some(notes) = &mut at.notes else { return };
        if send_note(notes, &note.to_bytes()).is_err() {
            // Half a note would make nonsense of the next. What the peer has said is still read.
            let _ = notes.stream().shutdown(std::net::Shutdown::Write);
        }
    }

    fn hear(&mut self) -> Option<(usize, Note)> {
        while let Some(&peer) = self.speaking.last() {
            if let Some(note) = self.note_of(peer) {
                return Some((peer, note));
            }
            self.speaking.pop();
        }
        None
    }

    fn hears(&self, peer: usize) -> bool {
        self.peers.get(peer).and_then(Option::as_ref).is_some_and(|peer| peer.notes.is_some())
    }

    fn traffic(&self) -> Traffic {
        self.peers.iter().flatten().map(|peer| peer.data.traffic()).fold(self.before, |sum, one| Traffic {
            sent: sum.sent + one.sent,
            received: sum.received + one.received,
        })
    }

    fn encrypted(&self) -> bool {
        let mut connections =
            self.peers.iter().flatten().flat_map(|peer| [Some(&peer.data), peer.notes.as_ref()]).flatten();
        self.peers.iter().any(Option::is_some) && connections.all(Connection::is_encrypted)
    }

    fn close(&mut self) {
        if let Some(shaper) = &mut self.shaper {
            shaper.discard();
        }
        self.end();
    }
}

impl Drop for TcpWire {
    /// Unlike a group that was given up, one that has done its work delivers what is on the way.
    fn drop(&mut self) {
        if let Some(shaper) = &mut self.shaper {
            shaper.finish(Instant::now() + self.deadline);
        }
        self.end();
    }
}

fn send_note(notes: &mut Connection, bytes: &[u8]) -> Result<(), String> {
    let until = Instant::now() + NOTE_PATIENCE;
    let mut gone = 0;
    loop {
        gone += notes.write(&bytes[gone..], &[])?;
        if gone == bytes.len() && notes.flush()? {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("it does not read its notes".into());
        }
        let mut room = [PollFd::new(notes.stream(), PollFlags::OUT)];
        match poll(&mut room, Some(&timespec(left))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
