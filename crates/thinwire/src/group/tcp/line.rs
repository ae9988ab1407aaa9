//! A connection while two ranks get to know each other: messages with a length, in clear or encrypted.
//!
//! The socket never blocks; [`Line::send`] and [`Line::receive`] wait, but never past a time. No byte beyond a message
//! is read, because what follows the introductions belongs to the [`Connection`] that the line becomes.
//!
//! With a secret nothing that comes in clear counts, and nothing is said to one that has not proved that it knows it:
//! anybody on the way could forge a refusal, and a stranger learns nothing from silence.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use snow::TransportState;

use super::connection::{CLOSED, Connection};
use super::hello::{Claim, Hello, OPENING, VERSION, opening};
use super::seal::Seal;
use super::secure::{Identity, LONGEST_HANDSHAKE, TAG};
use super::socket::{Received, poll_until, receive, send};
use crate::group::peer_text;

/// In front of a message: what it is, and its length in two bytes.
const FRAME: usize = 3;
const REFUSED: u8 = 0;
const MESSAGE: u8 = 1;
/// One of the other two, encrypted: which one it is stands inside, so that nobody on the way can change it.
const SEALED: u8 = 2;

/// A reason is cut at this many bytes.
const LONGEST_REASON: usize = 512;

/// How long those that were refused may take to hang up, so that the reason reaches them.
pub(super) const FAREWELL: Duration = Duration::from_millis(200);

/// Why the other end is not one to work with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// It said no, and why. With a secret, only an encrypted refusal is one.
    Refused(String),
    /// It broke off, took too long or spoke nonsense.
    Broken(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused(reason) => write!(f, "refused: {reason}"),
            Failure::Broken(reason) => f.write_str(reason),
        }
    }
}

fn broken(error: std::io::Error) -> Failure {
    Failure::Broken(match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "it did not answer in time".into(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected => CLOSED.into(),
        _ => error.to_string(),
    })
}

/// One end.
pub(super) struct Line {
    stream: TcpStream,
    /// Whether this rank has a secret.
    secret: bool,
    keys: Option<TransportState>,
    /// Bytes of a message that is not whole yet.
    partial: Vec<u8>,
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Line {
    /// Over a connection on which nothing was said yet.
    pub fn new(stream: TcpStream, secret: bool) -> std::io::Result<Line> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Line { stream, secret, keys: None, partial: Vec::new() })
    }

    /// Calls a rank and introduces this one.
    pub fn call(
        stream: TcpStream,
        identity: Option<&Identity>,
        claim: Claim,
        hello: Hello,
        until: Instant,
    ) -> Result<Line, Failure> {
        let mut line = Line::new(stream, identity.is_some()).map_err(broken)?;
        let opening = opening(VERSION, identity.is_some(), claim);
        // What can be said without an answer is said at once, so that the called rank need not wait for it.
        let mut first = opening.to_vec();
        if let Some(identity) = identity {
            let mut handshake = identity.handshake(true, &opening).map_err(Failure::Broken)?;
            let message = handshake.write().map_err(Failure::Broken)?;
            first.extend(line.frame(MESSAGE, &message)?);
            line.put(&first, until)?;
            let answer = line.receive(LONGEST_HANDSHAKE, until)?;
            handshake.read(&answer).map_err(|_| {
                Failure::Broken(format!(
                    "its answer is not that of rank {} of this group (THINWIRE_GROUP)",
                    claim.called
                ))
            })?;
            let message = handshake.write().map_err(Failure::Broken)?;
            first = line.frame(MESSAGE, &message)?;
            line.keys = Some(handshake.finish().map_err(Failure::Broken)?);
        }
        first.extend(line.frame(MESSAGE, &hello.to_bytes())?);
        line.put(&first, until)?;
        Ok(line)
    }

    /// The first bytes of a caller once that many are here. They are not taken.
    pub fn first_bytes(&mut self, count: usize) -> Result<Option<&[u8]>, Failure> {
        debug_assert!(count <= OPENING);
        Ok(if self.fill(count)? { self.partial.get(..count) } else { None })
    }

    /// Takes what [`first_bytes`](Line::first_bytes) has shown.
    pub fn take_first_bytes(&mut self) {
        self.partial.clear();
    }

    /// Encrypts from now on.
    pub fn encrypt(&mut self, keys: TransportState) {
        self.keys = Some(keys);
    }

    fn frame(&mut self, kind: u8, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut frame = vec![kind, 0, 0];
        match &mut self.keys {
            None => frame.extend_from_slice(message),
            Some(keys) => {
                let plain = [&[kind], message].concat();
                frame[0] = SEALED;
                frame.resize(FRAME + plain.len() + TAG, 0);
                let sealed = keys.write_message(&plain, &mut frame[FRAME..]);
                sealed.map_err(|error| Failure::Broken(format!("encryption failed: {error}")))?;
            }
        }
        let length = u16::try_from(frame.len() - FRAME)
            .map_err(|_| Failure::Broken(format!("a message of {} bytes is too long", message.len())))?;
        frame[1..FRAME].copy_from_slice(&length.to_le_bytes());
        Ok(frame)
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8], until: Instant) -> Result<(), Failure> {
        let frame = self.frame(MESSAGE, message)?;
        self.put(&frame, until)
    }

    /// Sends a message if the system takes it at once, as it does when little was said before.
    pub fn send_now(&mut self, message: &[u8]) -> Result<(), Failure> {
        let frame = self.frame(MESSAGE, message)?;
        self.put_now(&frame)
    }

    /// Receives a message of at most `most` bytes. Memory is taken for no longer one.
    pub fn receive(&mut self, most: usize, until: Instant) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(message) = self.try_receive(most)? {
                return Ok(message);
            }
            self.wait(PollFlags::IN, until)?;
        }
    }

    /// The same, or `None` when no whole message is here.
    pub fn try_receive(&mut self, most: usize) -> Result<Option<Vec<u8>>, Failure> {
        if !self.fill(FRAME)? {
            return Ok(None);
        }
        let length = u16::from_le_bytes([self.partial[1], self.partial[2]]) as usize;
        let most = match self.partial[0] {
            SEALED => most.max(LONGEST_REASON) + 1 + TAG,
            REFUSED => LONGEST_REASON,
            MESSAGE => most,
            other => {
                return Err(Failure::Broken(format!("it sent a message of kind {other}, which is unknown")));
            }
        };
        if length > most {
            return Err(Failure::Broken(format!(
                "it announced a message of {length} bytes; at most {most} are right"
            )));
        }
        if !self.fill(FRAME + length)? {
            return Ok(None);
        }
        let frame = std::mem::take(&mut self.partial);
        self.open(frame[0], &frame[FRAME..]).map(Some)
    }

    fn open(&mut self, kind: u8, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let not_sealed =
            || Failure::Broken("its message is not sealed with the same secret (THINWIRE_SECRET)".into());
        match (&mut self.keys, kind) {
            (Some(keys), SEALED) => {
                let mut plain = vec![0; message.len()];
                let length = keys.read_message(message, &mut plain).map_err(|_| not_sealed())?;
                plain.truncate(length);
                match plain.split_first() {
                    Some((&MESSAGE, rest)) => Ok(rest.to_vec()),
                    Some((&REFUSED, reason)) => Err(Failure::Refused(peer_text(reason))),
                    _ => Err(Failure::Broken("its message has no kind".into())),
                }
            }
            (None, REFUSED) if self.secret => Err(Failure::Broken(format!(
                "it refused in clear text, which anybody could do: {}",
                peer_text(message)
            ))),
            (None, REFUSED) => Err(Failure::Refused(peer_text(message))),
            (None, MESSAGE) => Ok(message.to_vec()),
            _ => Err(not_sealed()),
        }
    }

    /// Says no, and why, and nothing more. It never waits; see [`farewell`] for those who have to hear it.
    pub fn refuse(&mut self, reason: &str) {
        if self.secret && self.keys.is_none() {
            return;
        }
        let reason = &reason.as_bytes()[..reason.len().min(LONGEST_REASON)];
        if let Ok(frame) = self.frame(REFUSED, reason) {
            let _ = self.put_now(&frame);
        }
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Throws away what the other end says, and tells whether it has hung up.
    pub fn has_left(&mut self) -> bool {
        let mut nowhere = [0; 1024];
        // So much at once that one who talks without end is not listened to without end.
        for _ in 0..64 {
            match receive(&self.stream, &mut nowhere) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Nothing) => return false,
                Ok(Received::End) | Err(_) => return true,
            }
        }
        false
    }

    /// Whether the other end has hung up.
    pub fn is_closed(&self) -> bool {
        match self.stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Ends the introductions.
    pub fn into_connection(self) -> Result<Connection, Failure> {
        Connection::new(self.stream, self.keys.map(Seal::new)).map_err(broken)
    }

    /// Reads until `count` bytes of a message are here, and no more: whether they are.
    fn fill(&mut self, count: usize) -> Result<bool, Failure> {
        let mut piece = [0; 512];
        while self.partial.len() < count {
            let room = (count - self.partial.len()).min(piece.len());
            match receive(&self.stream, &mut piece[..room]).map_err(broken)? {
                Received::Bytes(count) => self.partial.extend_from_slice(&piece[..count]),
                Received::Nothing => return Ok(false),
                Received::End => return Err(Failure::Broken(CLOSED.into())),
            }
        }
        Ok(true)
    }

    fn put(&mut self, bytes: &[u8], until: Instant) -> Result<(), Failure> {
        let mut gone = 0;
        while gone < bytes.len() {
            let count = send(&self.stream, &bytes[gone..], &[]).map_err(broken)?;
            gone += count;
            if count == 0 {
                self.wait(PollFlags::OUT, until)?;
            }
        }
        Ok(())
    }

    fn put_now(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match send(&self.stream, bytes, &[]).map_err(broken)? {
            count if count == bytes.len() => Ok(()),
            _ => Err(Failure::Broken("it does not read what it is told".into())),
        }
    }

    /// Waits until it can be read or written.
    fn wait(&self, what: PollFlags, until: Instant) -> Result<(), Failure> {
        if Instant::now() >= until {
            return Err(broken(ErrorKind::TimedOut.into()));
        }
        poll_until(&mut [PollFd::new(&self.stream, what)], until).map_err(broken)
    }
}

/// Tells all of them the same, and gives them a moment together to hear it and hang up: a connection that is closed
/// with bytes unread could lose the reason on the way.
pub(super) fn farewell(mut lines: Vec<Line>, reason: &str) {
    lines.iter_mut().for_each(|line| line.refuse(reason));
    let until = Instant::now() + FAREWELL;
    loop {
        lines.retain_mut(|line| !line.has_left());
        if lines.is_empty() || Instant::now() >= until {
            return;
        }
        let mut events: Vec<PollFd<'_>> = lines.iter().map(|line| PollFd::new(line, PollFlags::IN)).collect();
        if poll_until(&mut events, until).is_err() {
            return;
        }
    }
}
