//! Sends and receives that never block and never raise SIGPIPE.

use std::io::{IoSlice, Result};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

/// What came of a receive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// None now.
    Nothing,
    /// None ever again: the other end has closed.
    End,
}

/// Hands `head` and then `body` to the system: how many bytes it took, 0 when it can take none now.
pub(super) fn send(stream: &TcpStream, head: &[u8], body: &[u8]) -> Result<usize> {
    let both = [IoSlice::new(head), IoSlice::new(body)];
    let pieces = match (head.is_empty(), body.is_empty()) {
        (true, true) => return Ok(0),
        (true, false) => &both[1..],
        (false, true) => &both[..1],
        (false, false) => &both[..],
    };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match retry_on_intr(|| sendmsg(stream, pieces, &mut SendAncillaryBuffer::default(), flags)) {
        Ok(count) => Ok(count),
        Err(Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps until something of `events` has happened or `until` has come.
pub(super) fn poll_until(events: &mut [PollFd<'_>], until: Instant) -> Result<()> {
    loop {
        let left = timespec(until.saturating_duration_since(Instant::now()));
        match poll(events, Some(&left)) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().min(i32::MAX as u64) as i64, tv_nsec: time.subsec_nanos().into() }
}

/// Takes what the system has.
pub(super) fn receive(stream: &TcpStream, into: &mut [u8]) -> Result<Received> {
    if into.is_empty() {
        return Ok(Received::Nothing);
    }
    match retry_on_intr(|| recv(stream, &mut *into, RecvFlags::DONTWAIT)) {
        Ok((0, _)) => Ok(Received::End),
        Ok((count, _)) => Ok(Received::Bytes(count)),
        Err(Errno::AGAIN) => Ok(Received::Nothing),
        Err(error) => Err(error.into()),
    }
}
