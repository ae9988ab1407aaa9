//! One connection to a peer: a socket, perhaps encrypted, perhaps behind an imitated link.

use std::net::{Shutdown, TcpStream};

use super::seal::Seal;
use super::shaper::Lane;
use super::socket::{Received, receive, send};
use crate::group::Traffic;

/// A connection that never blocks.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    seal: Option<Box<Seal>>,
    /// Where its bytes go instead of to the socket.
    lane: Option<Lane>,
    traffic: Traffic,
}

/// What a closed connection is called in errors.
pub(super) const CLOSED: &str = "it closed the connection";

/// What the system holds for a peer on the same machine. With the sizes it chooses by itself, made for long ways,
/// the bytes have left the processor's cache before they are read: a ring sum of 100 MB by four ranks on two cores
/// takes 1.2 to 1.4 times as long. Peers on other machines keep those sizes, which grow with the distance.
const NEAR_BUFFER: usize = 256 << 10;

/// What the system holds for a peer on another machine beyond what is on the way. Bytes that wait there count as
/// sent; a slow link with megabytes of them would make a rank that is still busy receiving look as if it were
/// silent.
#[cfg(target_os = "linux")]
const FAR_BACKLOG: u32 = 256 << 10;

impl Connection {
    pub fn new(stream: TcpStream, seal: Option<Seal>) -> std::io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let socket = socket2::SockRef::from(&stream);
        if stream.local_addr()?.ip() == stream.peer_addr()?.ip() {
            socket.set_send_buffer_size(NEAR_BUFFER)?;
        } else {
            #[cfg(target_os = "linux")]
            socket.set_tcp_notsent_lowat(FAR_BACKLOG)?;
        }
        Ok(Connection { stream, seal: seal.map(Box::new), lane: None, traffic: Traffic::default() })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn send_through(&mut self, lane: Lane) {
        self.lane = Some(lane);
    }

    pub fn is_encrypted(&self) -> bool {
        self.seal.is_some()
    }

    /// Bytes handed to the system and taken from it.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Takes `head` and then `body`: how many bytes, 0 when it can take none now.
    pub fn write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, String> {
        if self.seal.is_none() {
            return self.hand_on(head, body);
        }
        if !self.flush()? {
            return Ok(0);
        }
        let Some(seal) = &mut self.seal else { return Ok(0) };
        let taken = seal.close(head, body)?;
        self.flush()?;
        Ok(taken)
    }

    /// Sends what is sealed; true when nothing is left. It stops only where the system takes no more: the next
    /// wait ends when that changes, and must not begin before.
    pub fn flush(&mut self) -> Result<bool, String> {
        let Some(mut seal) = self.seal.take() else { return Ok(true) };
        let mut result = Ok(true);
        while !seal.unsent().is_empty() {
            result = self.hand_on(seal.unsent(), &[]).map(|count| {
                seal.sent(count);
                count > 0
            });
            if result != Ok(true) {
                break;
            }
        }
        self.seal = Some(seal);
        result
    }

    fn hand_on(&mut self, head: &[u8], body: &[u8]) -> Result<usize, String> {
        let count = match &mut self.lane {
            None => send(&self.stream, head, body).map_err(|error| error.to_string())?,
            Some(lane) => lane.push(head, body)?,
        };
        self.traffic.sent += count as u64;
        Ok(count)
    }

    /// Fills `into`: how many bytes, 0 when there are none now.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, String> {
        let Some(seal) = &mut self.seal else {
            let count = take(&self.stream, into)?;
            self.traffic.received += count as u64;
            return Ok(count);
        };
        // As with `flush`: it ends empty-handed only when the system has no more.
        loop {
            let opened = seal.open(into)?;
            if opened > 0 || into.is_empty() {
                return Ok(opened);
            }
            let count = take(&self.stream, seal.room())?;
            if count == 0 {
                return Ok(0);
            }
            seal.received(count);
            self.traffic.received += count as u64;
        }
    }

    /// Tells the other end that nothing more will come. What the system has taken is still delivered.
    pub fn shut_down(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn take(stream: &TcpStream, into: &mut [u8]) -> Result<usize, String> {
    match receive(stream, into) {
        Ok(Received::Bytes(count)) => Ok(count),
        Ok(Received::Nothing) => Ok(0),
        Ok(Received::End) => Err(CLOSED.into()),
        Err(error) => Err(error.to_string()),
    }
}
