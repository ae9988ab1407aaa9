//! A connection while two ranks get to know each other: it blocks, but never past a time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use snow::TransportState;

use super::connection::Connection;
use super::hello::{GREETING, HELLO, Hello, Stranger, VERSION, check_greeting, greeting};
use super::seal::Seal;
use super::secure::{Identity, LONGEST_HANDSHAKE, TAG};

/// In front of a message: what it is, and its length in two bytes.
const FRAME: usize = 3;
const REFUSED: u8 = 0;
const MESSAGE: u8 = 1;

/// A reason is cut at this many bytes.
const LONGEST_REASON: usize = 512;

/// How long one that was refused may take to hang up, so that the reason reaches it.
const FAREWELL: Duration = Duration::from_millis(200);

/// Why the other end is not one to work with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// It said no, and why.
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
        ErrorKind::UnexpectedEof => "it closed the connection".into(),
        _ => error.to_string(),
    })
}

/// One end.
pub(super) struct Line {
    stream: TcpStream,
    keys: Option<TransportState>,
}

impl Line {
    /// Calls, and introduces itself.
    pub fn call(
        stream: TcpStream,
        identity: Option<&Identity>,
        hello: Hello,
        until: Instant,
    ) -> Result<Line, Failure> {
        stream.set_nodelay(true).map_err(broken)?;
        let mut line = Line { stream, keys: None };
        let greeting = greeting(VERSION, identity.is_some());
        line.put(&greeting, until)?;
        if let Some(identity) = identity {
            let mut handshake = identity.handshake(true, &greeting).map_err(Failure::Broken)?;
            line.send(&handshake.write().map_err(Failure::Broken)?, until)?;
            let answer = line.receive(LONGEST_HANDSHAKE, until)?;
            handshake
                .read(&answer)
                .map_err(|error| Failure::Broken(format!("its answer is not right: {error}")))?;
            line.send(&handshake.write().map_err(Failure::Broken)?, until)?;
            line.keys = Some(handshake.finish().map_err(Failure::Broken)?);
        }
        line.send(&hello.to_bytes(), until)?;
        Ok(line)
    }

    /// Is called: who is it? One that can understand it is told why it is refused.
    pub fn answer(
        stream: TcpStream,
        identity: Option<&Identity>,
        until: Instant,
    ) -> Result<(Line, Hello), Failure> {
        stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).map_err(broken)?;
        let mut line = Line { stream, keys: None };
        let mut greeting = [0; GREETING];
        line.get(&mut greeting, until)?;
        match check_greeting(&greeting, identity.is_some()) {
            Ok(()) => {}
            Err(Stranger::Unknown(reason)) => return Err(Failure::Broken(reason)),
            Err(Stranger::Refused(reason)) => {
                line.refuse(&reason);
                return Err(Failure::Broken(reason));
            }
        }
        if let Some(identity) = identity {
            let mut handshake = identity.handshake(false, &greeting).map_err(Failure::Broken)?;
            let wrong = |error: snow::Error| Failure::Broken(format!("its handshake is not right: {error}"));
            handshake.read(&line.receive(LONGEST_HANDSHAKE, until)?).map_err(wrong)?;
            line.send(&handshake.write().map_err(Failure::Broken)?, until)?;
            if handshake.read(&line.receive(LONGEST_HANDSHAKE, until)?).is_err() {
                let reason = "its secret is not that of this group (THINWIRE_SECRET)";
                line.refuse(reason);
                return Err(Failure::Broken(reason.into()));
            }
            line.keys = Some(handshake.finish().map_err(Failure::Broken)?);
        }
        match Hello::parse(&line.receive(HELLO, until)?) {
            Ok(hello) => Ok((line, hello)),
            Err(reason) => {
                line.refuse(&reason);
                Err(Failure::Broken(reason))
            }
        }
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8], until: Instant) -> Result<(), Failure> {
        let mut frame = vec![MESSAGE, 0, 0];
        match &mut self.keys {
            None => frame.extend_from_slice(message),
            Some(keys) => {
                frame.resize(FRAME + message.len() + TAG, 0);
                let sealed = keys.write_message(message, &mut frame[FRAME..]);
                sealed.map_err(|error| Failure::Broken(format!("encryption failed: {error}")))?;
            }
        }
        let length = u16::try_from(frame.len() - FRAME)
            .map_err(|_| Failure::Broken(format!("a message of {} bytes is too long", message.len())))?;
        frame[1..FRAME].copy_from_slice(&length.to_le_bytes());
        self.put(&frame, until)
    }

    /// Receives a message of at most `most` bytes. Memory is taken for no longer one.
    pub fn receive(&mut self, most: usize, until: Instant) -> Result<Vec<u8>, Failure> {
        let mut frame = [0; FRAME];
        self.get(&mut frame, until)?;
        let length = u16::from_le_bytes([frame[1], frame[2]]) as usize;
        let most = match frame[0] {
            REFUSED => LONGEST_REASON,
            MESSAGE => most + if self.keys.is_some() { TAG } else { 0 },
            other => {
                return Err(Failure::Broken(format!("it sent a message of kind {other}, which is unknown")));
            }
        };
        if length > most {
            return Err(Failure::Broken(format!(
                "it announced a message of {length} bytes; at most {most} are right"
            )));
        }
        let mut message = vec![0; length];
        self.get(&mut message, until)?;
        if frame[0] == REFUSED {
            // It came in clear, from who knows whom: nothing of it may upset a terminal.
            let reason = String::from_utf8_lossy(&message);
            return Err(Failure::Refused(reason.chars().filter(|c| !c.is_control()).collect()));
        }
        let Some(keys) = &mut self.keys else { return Ok(message) };
        let mut plain = vec![0; length];
        let length = keys.read_message(&message, &mut plain).map_err(|_| {
            Failure::Broken("its message is not sealed with the same secret (THINWIRE_SECRET)".into())
        })?;
        plain.truncate(length);
        Ok(plain)
    }

    /// Says no, and why, and hangs up.
    pub fn refuse(self, reason: &str) {
        let until = Instant::now() + FAREWELL;
        let reason = &reason.as_bytes()[..reason.len().min(LONGEST_REASON)];
        let mut frame = vec![REFUSED, 0, 0];
        frame[1..].copy_from_slice(&(reason.len() as u16).to_le_bytes());
        frame.extend_from_slice(reason);
        if self.put(&frame, until).is_err() || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        // Closed at once, with its words unread, the connection could lose the reason on the way.
        let mut read = 0;
        while read < 1 << 16 && self.limit(until).is_ok() {
            match (&self.stream).read(&mut [0; 1024]) {
                Ok(count) if count > 0 => read += count,
                _ => break,
            }
        }
    }

    /// Whether the other end has hung up.
    pub fn is_closed(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let closed = match self.stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        closed || self.stream.set_nonblocking(false).is_err()
    }

    /// Ends the introductions.
    pub fn into_connection(self) -> std::io::Result<Connection> {
        Connection::new(self.stream, self.keys.map(Seal::new))
    }

    fn limit(&self, until: Instant) -> Result<(), Failure> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(broken(ErrorKind::TimedOut.into()));
        }
        let limit = Some(left.max(Duration::from_millis(1)));
        self.stream
            .set_read_timeout(limit)
            .and_then(|()| self.stream.set_write_timeout(limit))
            .map_err(broken)
    }

    fn get(&self, into: &mut [u8], until: Instant) -> Result<(), Failure> {
        let mut here = 0;
        while here < into.len() {
            // The limit is on the whole: one that sends a byte now and then does not get more time.
            self.limit(until)?;
            match (&self.stream).read(&mut into[here..]) {
                Ok(0) => return Err(broken(ErrorKind::UnexpectedEof.into())),
                Ok(count) => here += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    fn put(&self, bytes: &[u8], until: Instant) -> Result<(), Failure> {
        self.limit(until)?;
        (&self.stream).write_all(bytes).map_err(broken)
    }
}
