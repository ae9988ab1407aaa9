//! The words with which a rank joins, said by hand.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use sha2::{Digest, Sha256};
use thinwire::group::TcpSettings;
use thinwire::{Error, Result};

/// The version of the protocol that the ranks speak.
pub const VERSION: u16 = 2;

/// The first twelve bytes of every connection.
pub fn greeting(version: u16, secret: bool) -> Vec<u8> {
    [&b"thinwire"[..], &version.to_le_bytes(), &[secret.into(), 0]].concat()
}

/// A greeting, and the claim that `rank` calls rank 0.
pub fn opening(version: u16, secret: bool, rank: u32) -> Vec<u8> {
    [&greeting(version, secret)[..], &rank.to_le_bytes(), &0u32.to_le_bytes()].concat()
}

/// The number of the group's name: the first bytes of its SHA-256.
fn number_of_name(name: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(name).into();
    u64::from_be_bytes(hash[..8].try_into().expect("eight bytes"))
}

/// A call of `rank`, without a secret, that wants to join and can itself be called at `port`.
pub fn join_call(version: u16, rank: u32, size: u32, port: u16) -> Vec<u8> {
    let address = [&Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets()[..], &port.to_le_bytes()].concat();
    let group = number_of_name("thinwire").to_le_bytes();
    let hello = [&[1][..], &size.to_le_bytes(), &group, &address].concat();
    [opening(version, false, rank), vec![1, hello.len() as u8, 0], hello].concat()
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
