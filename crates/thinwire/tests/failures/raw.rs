//! The words with which a rank joins, said by hand.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use thinwire::group::TcpSettings;
use thinwire::{Error, Result};

/// The version of the protocol that the ranks speak.
pub const VERSION: u16 = 1;

/// The first twelve bytes of every connection.
pub fn greeting(version: u16, secret: bool) -> Vec<u8> {
    [&b"thinwire"[..], &version.to_le_bytes(), &[secret.into(), 0]].concat()
}

/// A call of `rank`, without a secret, that wants to join and can itself be called at `port`.
pub fn join_call(version: u16, rank: u32, size: u32, port: u16) -> Vec<u8> {
    let address = [&Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets()[..], &port.to_le_bytes()].concat();
    let hello = [&[1][..], &rank.to_le_bytes(), &size.to_le_bytes(), &0u64.to_le_bytes(), &address].concat();
    [greeting(version, false), vec![1, hello.len() as u8, 0], hello].concat()
}

/// Calls a port that may not be open yet.
pub fn dial(port: u16) -> std::result::Result<TcpStream, String> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(format!("port {port}: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Joins by hand and dies as soon as it has heard where the others are; gives the reason if it is refused.
pub fn join_and_die(settings: &TcpSettings, version: u16) -> Result<()> {
    let failed = |reason: String| Error::Rendezvous { rank: settings.rank, reason };
    let here = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = here.local_addr().expect("an address").port();
    let mut stream = dial(settings.port).map_err(failed)?;
    let call = join_call(version, settings.rank as u32, settings.size as u32, port);
    stream.write_all(&call).map_err(|error| failed(error.to_string()))?;
    let mut start = [0; 3];
    stream.read_exact(&mut start).map_err(|error| failed(error.to_string()))?;
    if start[0] == 0 {
        let mut reason = String::new();
        stream.read_to_string(&mut reason).map_err(|error| failed(error.to_string()))?;
        return Err(failed(reason));
    }
    kill_process(getpid(), Signal::KILL).expect("a signal to this process");
    Ok(())
}
