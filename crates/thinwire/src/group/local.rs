//! Ranks as threads of one process, for tests and simulation.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wire::{Fault, Interest, Note, Wire};
use super::{DEADLINE, Mesh, Traffic};

/// A group whose ranks are threads. See the [module](super) for an example.
pub type Local = Mesh<LocalWire>;

impl Local {
    /// One group for each of `size` ranks, to be moved into a thread each.
    pub fn connect(size: usize) -> Vec<Local> {
        Local::connect_within(size, DEADLINE)
    }

    /// The same with another deadline.
    pub fn connect_within(size: usize, deadline: Duration) -> Vec<Local> {
        let hub = Arc::new(Hub {
            pipes: (0..size * size).map(|_| Mutex::default()).collect(),
            bells: (0..size).map(|_| Bell::default()).collect(),
        });
        let wire = |rank| LocalWire { hub: hub.clone(), rank, size, heard: 0, traffic: Traffic::default() };
        (0..size).map(|rank| Mesh::over(wire(rank), deadline)).collect()
    }

    /// Runs `work` on `size` ranks, each in a thread of its own, and gives what they return, in their order.
    ///
    /// # Panics
    /// When one of them does.
    pub fn run<T: Send>(size: usize, work: impl Fn(Local) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let start = |group| scope.spawn(|| work(group));
            let threads: Vec<_> = Local::connect(size).into_iter().map(start).collect();
            let end = |thread: std::thread::ScopedJoinHandle<'_, T>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect()
        })
    }
}

/// Bytes a pipe holds before its writer has to wait.
const ROOM: usize = 1 << 20;

/// From one rank to another.
#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    notes: VecDeque<Note>,
    /// One of the two ends is gone.
    closed: bool,
}

/// Rung when something has changed for a rank.
#[derive(Debug, Default)]
struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

#[derive(Debug)]
struct Hub {
    /// From rank `a` to rank `b` at `a * size + b`.
    pipes: Vec<Mutex<Pipe>>,
    bells: Vec<Bell>,
}

/// A rank that panicked has left nothing half done in a pipe.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bell {
    fn ring(&self) {
        *lock(&self.rings) += 1;
        self.rung.notify_all();
    }
}

/// One rank's end of the pipes between threads.
#[derive(Debug)]
pub struct LocalWire {
    hub: Arc<Hub>,
    rank: usize,
    size: usize,
    /// Rings dealt with.
    heard: u64,
    traffic: Traffic,
}

impl LocalWire {
    fn to(&self, peer: usize) -> MutexGuard<'_, Pipe> {
        lock(&self.hub.pipes[self.rank * self.size + peer])
    }

    fn from(&self, peer: usize) -> MutexGuard<'_, Pipe> {
        lock(&self.hub.pipes[peer * self.size + self.rank])
    }

    fn fault(&self, peer: usize) -> Fault {
        Fault { peer, reason: "its thread has ended".into() }
    }
}

impl Wire for LocalWire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn write(&mut self, peer: usize, head: &[u8], body: &[u8]) -> Result<usize, Fault> {
        let mut pipe = self.to(peer);
        if pipe.closed {
            return Err(self.fault(peer));
        }
        let room = ROOM - pipe.bytes.len();
        let head = &head[..head.len().min(room)];
        let body = &body[..body.len().min(room - head.len())];
        pipe.bytes.extend(head);
        pipe.bytes.extend(body);
        drop(pipe);
        let taken = head.len() + body.len();
        if taken > 0 {
            self.hub.bells[peer].ring();
            self.traffic.sent += taken as u64;
        }
        Ok(taken)
    }

    fn read(&mut self, peer: usize, into: &mut [u8]) -> Result<usize, Fault> {
        let mut pipe = self.from(peer);
        let mut count = 0;
        while count < into.len() && !pipe.bytes.is_empty() {
            count += pipe.bytes.read(&mut into[count..]).expect("reading from memory does not fail");
        }
        if count == 0 && pipe.closed {
            return Err(self.fault(peer));
        }
        drop(pipe);
        if count > 0 {
            self.hub.bells[peer].ring();
            self.traffic.received += count as u64;
        }
        Ok(count)
    }

    fn flush(&mut self, _peer: usize) -> Result<bool, Fault> {
        Ok(true)
    }

    fn wait(&mut self, _interest: &Interest, until: Instant) -> Result<(), Fault> {
        let bell = &self.hub.bells[self.rank];
        let mut rings = lock(&bell.rings);
        while *rings == self.heard {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            rings = bell.rung.wait_timeout(rings, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.heard = *rings;
        Ok(())
    }

    fn tell(&mut self, peer: usize, note: &Note) {
        self.to(peer).notes.push_back(note.clone());
        self.hub.bells[peer].ring();
    }

    fn hear(&mut self) -> Option<(usize, Note)> {
        (0..self.size).find_map(|peer| self.from(peer).notes.pop_front().map(|note| (peer, note)))
    }

    fn hears(&self, peer: usize) -> bool {
        let pipe = self.from(peer);
        !pipe.closed || !pipe.notes.is_empty()
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn close(&mut self) {
        for peer in (0..self.size).filter(|&peer| peer != self.rank) {
            self.to(peer).closed = true;
            self.from(peer).closed = true;
            self.hub.bells[peer].ring();
        }
    }
}

impl Drop for LocalWire {
    fn drop(&mut self) {
        self.close();
    }
}
