//! Answers the calls of other ranks, and of strangers, while the group forms.
//!
//! One thread listens to all callers at once and never waits for one of them; [`Callers`] decides who leaves when
//! there is no room. Ranks that introduce themselves properly go into a queue of limited length; all others are
//! refused. Refusals are logged, at most [`WARNINGS`] a second, also those of the thread that reads the queue.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::bell::Bell;
use super::callers::{Callers, Entry};
use super::connection::CLOSED;
use super::hello::Hello;
use super::introduction::{Desk, Introduction, Progress};
use super::line::{FAREWELL, Line};
use super::socket::poll_until;

/// How long a caller may take to introduce itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Callers that are accepted before those that are here are listened to again.
const AT_ONCE: usize = 64;

/// Ranks that have introduced themselves and may wait for their answer, beyond one for each rank.
const WAITING: usize = 64;

/// Refused callers that are logged in a second; the others are counted.
pub(super) const WARNINGS: u32 = 32;

/// One who has introduced itself.
pub(super) struct Caller {
    pub line: Line,
    pub rank: u32,
    pub hello: Hello,
    pub from: SocketAddr,
}

/// What the thread and its owner share.
#[derive(Default)]
struct Shared {
    ready: VecDeque<Caller>,
    /// How many callers were refused, and the last of those that came furthest, among which a rank with a wrong secret
    /// would be.
    refused: u64,
    furthest: Option<(u8, SocketAddr, String)>,
    log: Log,
}

impl Shared {
    /// Takes notice of a caller that was refused. If that is to be logged, gives how many before it were not.
    fn refuse(&mut self, from: SocketAddr, reached: u8, reason: &str) -> Option<u64> {
        self.refused += 1;
        if self.furthest.as_ref().is_none_or(|(furthest, ..)| reached >= *furthest) {
            self.furthest = Some((reached, from, reason.to_owned()));
        }
        self.log.admits(Instant::now())
    }
}

/// How far one has come that has introduced itself: further than all others.
const INTRODUCED: u8 = u8::MAX;

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The listener and its thread. The port is closed when it is dropped.
pub(super) struct Reception {
    shared: Arc<Mutex<Shared>>,
    /// Rung when somebody is ready.
    ready: Arc<Bell>,
    /// Rung at the end.
    end: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Reception {
    /// Answers the calls that come in at `listener`.
    pub fn open(listener: TcpListener, desk: Desk) -> std::io::Result<Reception> {
        listener.set_nonblocking(true)?;
        // A flood must not fill the system's queue while this thread is busy: there nobody chooses who leaves.
        socket2::SockRef::from(&listener).listen(1024)?;
        let shared = Arc::<Mutex<Shared>>::default();
        let (ready, end) = (Arc::new(Bell::new()?), Arc::new(Bell::new()?));
        let mut thread = Acceptor {
            most_ready: desk.size + WAITING,
            listener,
            desk,
            callers: Callers::new(),
            shared: shared.clone(),
            ready: ready.clone(),
        };
        let bell = end.clone();
        let thread =
            std::thread::Builder::new().name("thinwire-reception".into()).spawn(move || thread.run(&bell))?;
        Ok(Reception { shared, ready, end, thread: Some(thread) })
    }

    /// The next who has introduced itself, if somebody has.
    pub fn next(&self) -> Option<Caller> {
        self.ready.quiet();
        let mut shared = lock(&self.shared);
        let caller = shared.ready.pop_front();
        if !shared.ready.is_empty() {
            self.ready.ring();
        }
        caller
    }

    /// Refuses a caller that has introduced itself.
    pub fn refuse(&self, mut caller: Caller, reason: &str) {
        let logged = lock(&self.shared).refuse(caller.from, INTRODUCED, reason);
        if let Some(rest) = logged {
            report_rest(rest);
            tracing::warn!(from = %caller.from, rank = caller.rank, "a caller was refused: {reason}");
        }
        caller.line.refuse(reason);
    }

    /// How many callers were refused and why one that came far was, for an error.
    pub fn refusals(&self) -> String {
        let shared = lock(&self.shared);
        match &shared.furthest {
            None => String::new(),
            Some((_, from, reason)) => {
                let count = shared.refused;
                let callers = if count == 1 { "caller was" } else { "callers were" };
                format!("; {count} {callers} refused, one of them from {from}: {reason}")
            }
        }
    }
}

/// It can be read when [`next`](Reception::next) has somebody.
impl AsFd for Reception {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.end.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One that is listened to, or one that was refused and has a moment to hear why.
enum Guest {
    Introducing(SocketAddr, Introduction),
    Leaving(Line),
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Guest::Introducing(_, introduction) => introduction.as_fd(),
            Guest::Leaving(line) => line.as_fd(),
        }
    }
}

struct Acceptor {
    listener: TcpListener,
    desk: Desk,
    most_ready: usize,
    callers: Callers<Guest>,
    shared: Arc<Mutex<Shared>>,
    ready: Arc<Bell>,
}

impl Acceptor {
    fn run(&mut self, end: &Bell) {
        loop {
            let soonest = self.callers.iter().map(|entry| entry.until).min();
            let until = soonest.into_iter().chain(lock(&self.shared).log.until()).min();
            let until = until.unwrap_or_else(|| Instant::now() + PATIENCE);
            let mut events =
                vec![PollFd::new(end, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            events.extend(self.callers.iter().map(|entry| PollFd::new(&entry.caller, PollFlags::IN)));
            let polled = poll_until(&mut events, until);
            let happened: Vec<bool> = events.iter().map(|event| !event.revents().is_empty()).collect();
            if polled.is_err() {
                // No memory for it; that passes.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            if happened[0] {
                let rest = lock(&self.shared).log.next_second(Instant::now());
                return report_rest(rest);
            }
            // From the end, because the last one takes the place of one that leaves.
            for at in (0..self.callers.len()).rev() {
                // The time is over for one that dribbles, too.
                if self.callers.get_mut(at).until <= Instant::now() {
                    self.dismiss(at, "it has not introduced itself in time");
                } else if happened[2 + at] {
                    self.listen(at);
                }
            }
            if happened[1] {
                self.accept();
            }
            let rest = lock(&self.shared).log.flush(Instant::now());
            report_rest(rest);
        }
    }

    /// Takes new callers in, and listens to each at once: most have something to say already.
    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                    let no_room =
                        matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM));
                    // No file is left for it, unless somebody leaves. Or it has gone again.
                    if !no_room || self.callers.displace(None, Instant::now()).is_none() {
                        std::thread::sleep(Duration::from_millis(1));
                        return;
                    }
                    continue;
                }
            };
            self.welcome(stream, from);
        }
    }

    fn welcome(&mut self, stream: TcpStream, from: SocketAddr) {
        let Ok(introduction) = Introduction::new(stream, &self.desk) else { return };
        let now = Instant::now();
        let entry = Entry::new(from.ip(), now, now + PATIENCE, Guest::Introducing(from, introduction));
        if let Some(entry) = self.callers.admit(entry)
            && let Guest::Introducing(from, _) = entry.caller
        {
            self.refused(from, 0, "too many callers; it has said the least".into());
        }
        self.listen(self.callers.len() - 1);
    }

    fn listen(&mut self, at: usize) {
        let entry = self.callers.get_mut(at);
        let (from, introduction) = match &mut entry.caller {
            Guest::Introducing(from, introduction) => (*from, introduction),
            Guest::Leaving(line) => {
                if line.has_left() {
                    self.callers.remove(at);
                }
                return;
            }
        };
        let progress = introduction.advance(&self.desk);
        if let Progress::Waiting = progress {
            let progress = introduction.progress();
            return entry.set_progress(progress, Instant::now());
        }
        let reached = introduction.progress();
        let Guest::Introducing(_, introduction) = self.callers.remove(at).caller else { return };
        let mut line = introduction.into_line();
        match progress {
            Progress::Waiting => {}
            Progress::Introduced(rank, hello) => self.hand_on(Caller { line, rank, hello, from }),
            Progress::Refused(reason, tell) => {
                if tell {
                    line.refuse(&reason);
                    let now = Instant::now();
                    self.callers.admit(Entry::new(from.ip(), now, now + FAREWELL, Guest::Leaving(line)));
                }
                self.refused(from, reached, reason);
            }
        }
    }

    /// Ends the introduction of one whose time is over.
    fn dismiss(&mut self, at: usize, reason: &str) {
        if let Guest::Introducing(from, _) = self.callers.remove(at).caller {
            self.refused(from, 0, reason.into());
        }
    }

    fn hand_on(&mut self, caller: Caller) {
        let mut shared = lock(&self.shared);
        if shared.ready.len() >= self.most_ready {
            // It calls again.
            drop(shared);
            return self.refused(caller.from, 0, "too many wait for an answer".into());
        }
        shared.ready.push_back(caller);
        drop(shared);
        self.ready.ring();
    }

    fn refused(&mut self, from: SocketAddr, reached: u8, reason: String) {
        // One that left by itself says less than one that was sent away.
        let reached = if reason.contains(CLOSED) { 0 } else { reached };
        let logged = lock(&self.shared).refuse(from, reached, &reason);
        if let Some(rest) = logged {
            report_rest(rest);
            tracing::warn!(%from, "a caller was refused: {reason}");
        }
    }
}

/// Which refusals are logged, so that a flood of callers is none of warnings.
struct Log {
    since: Instant,
    logged: u32,
    /// Those of this second that were not logged.
    rest: u64,
}

impl Default for Log {
    fn default() -> Log {
        Log { since: Instant::now(), logged: 0, rest: 0 }
    }
}

impl Log {
    /// Takes notice of a refusal. If it is to be logged, gives how many of the seconds before were not.
    fn admits(&mut self, now: Instant) -> Option<u64> {
        let rest = self.flush(now);
        if self.logged == WARNINGS {
            self.rest += 1;
            return None;
        }
        self.logged += 1;
        Some(rest)
    }

    /// When there is something to report.
    fn until(&self) -> Option<Instant> {
        (self.rest > 0).then(|| self.since + Duration::from_secs(1))
    }

    /// Begins a new second if this one is over; gives how many were not logged in it.
    fn flush(&mut self, now: Instant) -> u64 {
        if now.saturating_duration_since(self.since) < Duration::from_secs(1) {
            return 0;
        }
        self.next_second(now)
    }

    fn next_second(&mut self, now: Instant) -> u64 {
        std::mem::replace(self, Log { since: now, logged: 0, rest: 0 }).rest
    }
}

fn report_rest(rest: u64) {
    if rest > 0 {
        tracing::warn!("{rest} more callers were refused");
    }
}
