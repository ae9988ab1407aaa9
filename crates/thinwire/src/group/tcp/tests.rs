//! Groups over loopback: ranks are threads here, but they know each other only by TCP.

mod failure;
mod hostile;
mod link;
mod meeting;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::group::{Algorithm, Gathered, Group, Local, Sum, Traffic};
use crate::port::free_port;

const HOW: [Algorithm; 2] = [Algorithm::Ring, Algorithm::Tree];

/// Gives the address by which others are to call the one who listens at another.
type Detour = Box<dyn Fn(SocketAddr) -> SocketAddr>;

thread_local! {
    static DETOUR: RefCell<Option<Detour>> = const { RefCell::new(None) };
}

/// Where a rank that listens at `address` is called: elsewhere if its thread has a detour.
pub(super) fn as_others_reach(address: SocketAddr) -> SocketAddr {
    DETOUR.with_borrow(|detour| detour.as_ref().map_or(address, |detour| detour(address)))
}

fn settings(rank: usize, size: usize, port: u16) -> TcpSettings {
    TcpSettings { rank, size, port, deadline: Duration::from_secs(20), ..TcpSettings::default() }
}

/// Runs `work` on every rank, with settings changed by `change`, and gives the results in their order.
fn run<T: Send>(
    size: usize,
    change: impl Fn(&mut TcpSettings) + Sync,
    work: impl Fn(Result<Tcp>) -> T + Sync,
) -> Vec<T> {
    let port = free_port();
    std::thread::scope(|scope| {
        let start = |rank| {
            let (change, work) = (&change, &work);
            scope.spawn(move || {
                let mut settings = settings(rank, size, port);
                change(&mut settings);
                work(Tcp::join(&settings))
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn secret(text: &str) -> Option<Secret> {
    Secret::new(text.as_bytes())
}

fn vector(rank: usize, length: usize) -> Vec<f32> {
    (0..length).map(|i| ((rank * 31 + i * 7) % 1009) as f32 / 7.0 - 60.0).collect()
}

type Results = (Vec<u32>, Gathered, Vec<u8>);

/// Every collective, in every way; everything that came out of them.
fn everything(group: &mut impl Group) -> Vec<Results> {
    let (rank, size) = (group.rank(), group.size());
    let mut all = Vec::new();
    for (how, length) in HOW.into_iter().flat_map(|how| [0, 1, 1000, 300_007].map(|length| (how, length))) {
        let mut values = vector(rank, length);
        group.all_reduce(Sum::F32(&mut values), how).unwrap();
        let mut half: Vec<half::f16> = vector(rank, length).into_iter().map(half::f16::from_f32).collect();
        group.all_reduce(Sum::F16(&mut half), how).unwrap();
        let mut gathered = Gathered::default();
        group.all_gather(&vec![rank as u8; rank * length], size * length, how, &mut gathered).unwrap();
        let root = length % size;
        let mut message = if rank == root { vec![7; 3 * length] } else { vec![] };
        group.broadcast(root, &mut message, 3 * length, how).unwrap();
        group.barrier().unwrap();
        let bits = values.iter().map(|x| x.to_bits()).chain(half.iter().map(|x| x.to_bits().into()));
        all.push((bits.collect(), gathered, message));
    }
    all
}

#[test]
fn every_collective_gives_what_threads_give_bit_for_bit() {
    for size in [1, 2, 3, 5, 8] {
        let expected = Local::run(size, |mut group| everything(&mut group));
        for secret in [None, secret("hush")] {
            let found = run(size, |s| s.secret = secret.clone(), |group| everything(&mut group.unwrap()));
            assert!(found == expected, "{size} {secret:?}");
        }
    }
}

#[test]
fn traffic_counts_envelopes_and_encryption() {
    let length = 1 << 18;
    let encrypted = AtomicUsize::new(0);
    let work = |group: Result<Tcp>| {
        let mut group = group.unwrap();
        encrypted.fetch_add(usize::from(group.encrypted()), Ordering::Relaxed);
        group.all_reduce(Sum::F32(&mut vec![1.0; length]), Algorithm::Ring).unwrap();
        group.barrier().unwrap();
        group.traffic()
    };
    let plain = run(2, |_| (), work);
    let bytes = 4 * length as u64 + 2 * 40;
    assert_eq!(plain, [Traffic { sent: bytes, received: bytes }; 2]);
    assert_eq!(encrypted.load(Ordering::Relaxed), 0);
    let sealed = run(2, |s| s.secret = secret("hush"), work);
    assert_eq!(encrypted.load(Ordering::Relaxed), 2);
    assert!(sealed[0].sent > bytes && sealed[0].sent < bytes + bytes / 50, "{sealed:?}");
    assert_eq!(sealed[0].sent, sealed[1].received);
}
