//! Imitates a slow network in user space: what a rank sends waits here until it would have arrived.
//!
//! A rank has one way out, shared by all its peers, with a rate and a bounded queue; after it every byte takes the
//! same time. The receiver's side is not slowed down, as with `tc … tbf` on the sender. A thread hands the bytes
//! to the sockets when their time has come; the sockets themselves are those the rank reads from. Words of TCP
//! that carry no data, and control notes, pass freely.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use super::bell::Bell;
use super::pace::Pace;
use super::schedule::Schedule;
use super::socket::send;
use super::socket::timespec;

/// What is on its way to one peer.
#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// When each piece arrives, and how long it is.
    pieces: VecDeque<(Instant, usize)>,
    /// Its socket takes no more for now.
    blocked: bool,
    /// The rank was told that there is no room for this peer.
    turned_away: bool,
    /// Why nothing can be sent to it any more.
    broken: Option<String>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    queues: Vec<Queue>,
    /// Set when no more will come: deliver what is there, until then at the latest.
    finish_by: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    schedule: Schedule,
    began: Instant,
    step: AtomicU64,
    state: Mutex<State>,
    /// Wakes the thread.
    work: Bell,
    /// Wakes the rank: there is room again for a peer it was turned away from.
    room: Bell,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The imitated link of one rank.
#[derive(Debug)]
pub(super) struct Shaper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The way to one peer.
#[derive(Debug)]
pub(super) struct Lane {
    shared: Arc<Shared>,
    peer: usize,
}

impl Shaper {
    /// Starts with the sockets of the peers, by rank.
    pub fn start(schedule: Schedule, sockets: &[Option<&TcpStream>]) -> std::io::Result<Shaper> {
        let own = |socket: &Option<&TcpStream>| socket.map(TcpStream::try_clone).transpose();
        let sockets = sockets.iter().map(own).collect::<std::io::Result<Vec<_>>>()?;
        let began = Instant::now();
        let pace = Pace::new(schedule.link(began.elapsed(), 0), began);
        let queues = sockets.iter().map(|_| Queue::default()).collect();
        let state = Mutex::new(State { pace, queues, finish_by: None });
        let (work, room, step) = (Bell::new()?, Bell::new()?, AtomicU64::new(0));
        let shared = Arc::new(Shared { schedule, began, step, state, work, room });
        let work = {
            let shared = shared.clone();
            move || deliver(&shared, &sockets)
        };
        let thread = std::thread::Builder::new().name("thinwire-link".into()).spawn(work)?;
        Ok(Shaper { shared, thread: Some(thread) })
    }

    pub fn lane(&self, peer: usize) -> Lane {
        Lane { shared: self.shared.clone(), peer }
    }

    /// Another step of the training begins.
    pub fn begin_step(&self, step: u64) {
        self.shared.step.store(step, Ordering::Relaxed);
    }

    /// Rings when a peer that was turned away may come again.
    pub fn bell(&self) -> &Bell {
        &self.shared.room
    }

    /// When to try again to send to one of `peers`; `None` when the bell will say so.
    pub fn room_again(&self, peers: &[usize]) -> Option<Instant> {
        let state = self.shared.lock();
        let by_time =
            peers.iter().any(|&peer| state.queues.get(peer).is_some_and(|queue| !queue.turned_away));
        by_time.then(|| state.pace.takes_at(Instant::now()))
    }

    /// Throws away what is on the way.
    pub fn discard(&mut self) {
        self.shared.lock().queues.iter_mut().for_each(Queue::clear);
        self.finish(Instant::now());
    }

    /// Returns when everything has been delivered, or `until` has come.
    pub fn finish(&mut self, until: Instant) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.lock().finish_by = Some(until);
        self.shared.work.ring();
        // It does not panic; if it did, there would be nothing more to be done.
        let _ = thread.join();
    }
}

impl Drop for Shaper {
    fn drop(&mut self) {
        self.discard();
    }
}

impl Lane {
    /// Takes `head` and then `body`: how many bytes, 0 when the queue is full.
    pub fn push(&mut self, head: &[u8], body: &[u8]) -> Result<usize, String> {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let State { pace, queues, .. } = &mut *state;
        let step = self.shared.step.load(Ordering::Relaxed);
        pace.set(self.shared.schedule.link(now - self.shared.began, step));
        let queue = &mut queues[self.peer];
        if let Some(reason) = &queue.broken {
            return Err(reason.clone());
        }
        let idle = queue.pieces.is_empty();
        let (total, most) = (head.len() + body.len(), pace.in_flight() as usize);
        let mut taken = 0;
        while taken < total && pace.takes_at(now) <= now {
            if queue.bytes.len() >= most {
                queue.turned_away = true;
                break;
            }
            let length = pace.piece().min(total - taken);
            let of_head = head.len().saturating_sub(taken).min(length);
            let of_body = taken.saturating_sub(head.len());
            queue.bytes.extend(&head[head.len().min(taken)..][..of_head]);
            queue.bytes.extend(&body[of_body..][..length - of_head]);
            // A delay that shrinks lets no piece overtake another.
            let arrives = pace.take(length, now).max(queue.pieces.back().map_or(now, |last| last.0));
            queue.pieces.push_back((arrives, length));
            taken += length;
        }
        drop(state);
        if idle && taken > 0 {
            self.shared.work.ring();
        }
        Ok(taken)
    }
}

impl Queue {
    fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
    }

    /// Sends the pieces whose time has come; true when the peer that was turned away may come again.
    fn send_due(&mut self, socket: &TcpStream, now: Instant) -> bool {
        self.blocked = false;
        while let Some((_, length)) = self.pieces.front_mut().filter(|piece| piece.0 <= now) {
            let (first, second) = self.bytes.as_slices();
            let first = &first[..first.len().min(*length)];
            let second = &second[..second.len().min(*length - first.len())];
            match send(socket, first, second) {
                Ok(0) => {
                    self.blocked = true;
                    break;
                }
                Ok(count) => {
                    self.bytes.drain(..count);
                    *length -= count;
                    if *length == 0 {
                        self.pieces.pop_front();
                    }
                }
                Err(error) => {
                    self.broken = Some(error.to_string());
                    self.clear();
                }
            }
        }
        let blocked = self.blocked && self.broken.is_none();
        !blocked && std::mem::take(&mut self.turned_away)
    }
}

/// The thread: hands the bytes on until it is told to finish and has nothing left.
fn deliver(shared: &Shared, sockets: &[Option<TcpStream>]) {
    loop {
        let mut state = shared.lock();
        let now = Instant::now();
        let mut room = false;
        for (queue, socket) in state.queues.iter_mut().zip(sockets) {
            if let Some(socket) = socket {
                room |= queue.send_due(socket, now);
            }
        }
        if room {
            shared.room.ring();
        }
        let empty = state.queues.iter().all(|queue| queue.pieces.is_empty());
        if state.finish_by.is_some_and(|until| empty || now >= until) {
            return;
        }
        // Those that are blocked are woken by their sockets, whatever their time is.
        let waiting = state.queues.iter().filter(|queue| !queue.blocked);
        let next = waiting.filter_map(|queue| queue.pieces.front().map(|piece| piece.0));
        let next = next.chain(state.finish_by).min();
        let blocked = state.queues.iter().zip(sockets).filter(|(queue, _)| queue.blocked);
        let sockets = blocked.filter_map(|(_, socket)| socket.as_ref());
        let mut events: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::OUT)).collect();
        drop(state);
        events.push(PollFd::new(&shared.work, PollFlags::IN));
        let timeout = next.map(|next| timespec(next.saturating_duration_since(Instant::now())));
        // Whatever woke it, the time has to be looked at again.
        let _ = poll(&mut events, timeout.as_ref());
        shared.work.quiet();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::group::tcp::link::Link;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_arrive_in_order_and_not_too_early() {
        let (near, mut far) = pair();
        let begun = Instant::now();
        let link: Link = "50mbit,5ms".parse().unwrap();
        let mut shaper = Shaper::start(link.into(), &[None, Some(&near)]).unwrap();
        let mut lane = shaper.lane(1);
        let message: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 / 5) as u8).collect();
        let mut gone = 0;
        while gone < message.len() {
            let (head, body) = message[gone..].split_at((message.len() - gone).min(40));
            match lane.push(head, body).unwrap() {
                0 => std::thread::sleep(Duration::from_millis(1)),
                count => gone += count,
            }
        }
        assert!(shaper.room_again(&[1]).is_some());
        let reader = std::thread::spawn(move || {
            let mut come = vec![0; 1_000_000];
            far.read_exact(&mut come).unwrap();
            (come, begun.elapsed())
        });
        shaper.finish(Instant::now() + Duration::from_secs(20));
        let (come, time) = reader.join().unwrap();
        assert!(come == message);
        // 1,000,000 bytes and their headers, less the burst, at 50 Mbit/s, and the delay.
        assert!(time >= Duration::from_millis(160), "{time:?}");
    }

    #[test]
    fn a_peer_that_does_not_read_holds_up_nobody_else() {
        let ((stuck, _far), (near, mut far)) = (pair(), pair());
        let link: Link = "10gbit".parse().unwrap();
        let mut shaper = Shaper::start(link.into(), &[Some(&stuck), Some(&near)]).unwrap();
        let (mut to_stuck, mut lane) = (shaper.lane(0), shaper.lane(1));
        let patience = Instant::now() + Duration::from_secs(20);
        let mut full = 0;
        // It is full when it takes nothing for a while.
        while full < 50 {
            assert!(Instant::now() < patience);
            if to_stuck.push(&[], &[0; 1 << 16]).unwrap() == 0 {
                full += 1;
                std::thread::sleep(Duration::from_millis(1));
            } else {
                full = 0;
            }
        }
        assert_eq!(lane.push(b"hel", b"lo").unwrap(), 5);
        let mut come = [0; 5];
        far.read_exact(&mut come).unwrap();
        assert_eq!(&come, b"hello");
        shaper.discard();
    }
}
