//! Answers the calls of other ranks, and of strangers, while the group forms.
//!
//! Every caller gets a short-lived thread and a short time to say who it is, so one that says nothing, or dribbles,
//! holds up nobody. Those that introduce themselves properly are handed on; all others are refused and logged.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::bell::Bell;
use super::hello::Hello;
use super::line::Line;
use super::secure::Identity;

/// How long a caller may take to introduce itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Callers that are listened to at once. One more, and the one that has been silent for longest is hung up on: a
/// rank introduces itself within milliseconds, and calls again if it was too slow.
const MOST_CALLERS: usize = 64;

/// One who has introduced itself.
pub(super) struct Caller {
    pub line: Line,
    pub hello: Hello,
    pub from: SocketAddr,
}

/// What the threads share.
struct Desk {
    rank: usize,
    size: usize,
    identity: Option<Arc<Identity>>,
    /// Callers that have not introduced themselves yet, to be hung up on at the end.
    talking: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Desk {
    fn talking(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.talking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to one caller.
    fn listen(&self, stream: TcpStream, from: SocketAddr) -> Option<Caller> {
        let until = Instant::now() + PATIENCE;
        match Line::answer(stream, self.identity.as_deref(), until) {
            Ok((line, hello)) => match hello.check(self.rank, self.size) {
                Ok(()) => return Some(Caller { line, hello, from }),
                Err(reason) => {
                    tracing::warn!(%from, "a caller was refused: {reason}");
                    line.refuse(&reason);
                }
            },
            Err(failure) => tracing::warn!(%from, "a caller was refused: {failure}"),
        }
        None
    }
}

/// The listener and its threads. The port is closed when it is dropped.
pub(super) struct Reception {
    desk: Arc<Desk>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    callers: Receiver<Caller>,
}

impl Reception {
    /// Answers calls for `rank` of `size`.
    pub fn open(
        listener: TcpListener,
        rank: usize,
        size: usize,
        identity: Option<Arc<Identity>>,
    ) -> std::io::Result<Reception> {
        listener.set_nonblocking(true)?;
        let desk = Arc::new(Desk { rank, size, identity, talking: Mutex::default() });
        let bell = Arc::new(Bell::new()?);
        let (sender, callers) = channel();
        let work = {
            let (desk, bell) = (desk.clone(), bell.clone());
            move || receive_callers(&listener, &desk, &bell, &sender)
        };
        let thread = std::thread::Builder::new().name("thinwire-reception".into()).spawn(work)?;
        Ok(Reception { desk, bell, thread: Some(thread), callers })
    }

    /// The next who has introduced itself; `None` when nobody has by then.
    pub fn next(&self, until: Instant) -> Option<Caller> {
        self.callers.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.bell.ring();
        // The threads end when their connections do. A caller taken in the meantime is hung up on by the other
        // thread, which looks at the bell after each.
        hang_up(&self.desk);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn hang_up(desk: &Desk) {
    for stream in desk.talking().values() {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn receive_callers(listener: &TcpListener, desk: &Desk, bell: &Bell, callers: &Sender<Caller>) {
    std::thread::scope(|scope| {
        for number in 0.. {
            let mut events = [PollFd::new(bell, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            let _ = poll(&mut events, None);
            if !events[0].revents().is_empty() {
                break;
            }
            // It may have gone again, or this process has no file left for it; both pass.
            let Ok((stream, from)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let Ok(copy) = stream.try_clone() else { continue };
            let mut talking = desk.talking();
            if talking.len() >= MOST_CALLERS
                && let Some((_, silent)) = talking.pop_first()
            {
                tracing::warn!(
                    "{MOST_CALLERS} callers have not introduced themselves; the first is hung up on"
                );
                let _ = silent.shutdown(Shutdown::Both);
            }
            talking.insert(number, copy);
            drop(talking);
            let talk = move || {
                let caller = desk.listen(stream, from);
                desk.talking().remove(&number);
                if let Some(caller) = caller {
                    // Nobody waits for it any more when the group is complete.
                    let _ = callers.send(caller);
                }
            };
            let thread = std::thread::Builder::new().name("thinwire-caller".into()).spawn_scoped(scope, talk);
            if thread.is_err() {
                desk.talking().remove(&number);
            }
        }
        hang_up(desk);
    });
}
