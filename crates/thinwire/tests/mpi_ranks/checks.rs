//! What must work, against its definition.

use std::time::Duration;

use half::{bf16, f16};
use thinwire::group::{Algorithm, Gathered, Group, Mpi, SharedGroup, Sum};

use super::Scenario;
use super::support::{METHODS, check_full_density, check_method, check_weighted_mean};

const LENGTHS: [usize; 5] = [0, 1, 2, 1000, 1_000_003];
const HOW: [Algorithm; 2] = [Algorithm::Ring, Algorithm::Tree];
const RANKS: &[usize] = &[1, 2, 3, 4, 5];

pub fn scenarios() -> Vec<Scenario> {
    let deadline = Duration::from_secs(30);
    let scenario =
        |name, work| Scenario { name, ranks: RANKS, deadline, ends_well: true, work, judge: all_ok };
    vec![
        scenario("sums", sums),
        scenario("messages", messages),
        Scenario { ranks: &[3], ..scenario("long", long) },
        Scenario { ranks: &[1, 2, 3, 4, 5, 8], ..scenario("methods", methods) },
    ]
}

/// Every method keeps the invariants.
fn methods(group: Mpi) -> String {
    let group = SharedGroup::new(group);
    for (elements, steps) in [(1, 2), (2, 2), (1000, 2), (1_000_003, 1)] {
        METHODS.iter().for_each(|&(method, kind)| check_method(&group, method, kind, elements, steps));
    }
    check_full_density(&group, 1000);
    check_weighted_mean(&group);
    "ok".into()
}

fn all_ok(found: &[String]) -> Result<(), String> {
    match found.iter().find(|found| *found != "ok") {
        None => Ok(()),
        Some(found) => Err(found.clone()),
    }
}

fn number(rank: usize, i: usize) -> f32 {
    ((rank * 31 + i * 7) % 1009) as f32 / 7.0 - 60.0
}

/// Every rank has the bits of rank 0.
fn assert_equal_on_all(group: &mut Mpi, bytes: &[u8], what: &str) {
    let mut first = bytes.to_vec();
    group.broadcast(0, &mut first, bytes.len(), Algorithm::Tree).unwrap();
    assert!(first == bytes, "{what}: not the bits of rank 0");
}

fn sums(mut group: Mpi) -> String {
    let (rank, size) = (group.rank(), group.size());
    for (len, how) in LENGTHS.into_iter().flat_map(|len| HOW.map(|how| (len, how))) {
        let what = format!("{how} sum of {len}");
        let exact = |i: usize| (0..size).map(|rank| number(rank, i) as f64).sum::<f64>();

        let mut single: Vec<f32> = (0..len).map(|i| number(rank, i)).collect();
        group.all_reduce(Sum::F32(&mut single), how).unwrap();
        assert!(single.iter().enumerate().all(|(i, &x)| (x as f64 - exact(i)).abs() < 1e-3), "{what}");
        assert_equal_on_all(&mut group, bytemuck::cast_slice(&single), &what);

        // Rounded at every hop: off by half a unit in the last place for each, of sums up to 60 x 5.
        let mut half: Vec<f16> = (0..len).map(|i| f16::from_f32(number(rank, i))).collect();
        group.all_reduce(Sum::F16(&mut half), how).unwrap();
        assert!(half.iter().enumerate().all(|(i, x)| (x.to_f64() - exact(i)).abs() < 1.0), "{what} f16");
        assert_equal_on_all(&mut group, bytemuck::cast_slice(&half), &what);

        let mut brain: Vec<bf16> = (0..len).map(|i| bf16::from_f32(number(rank, i))).collect();
        group.all_reduce(Sum::Bf16(&mut brain), how).unwrap();
        assert!(brain.iter().enumerate().all(|(i, x)| (x.to_f64() - exact(i)).abs() < 8.0), "{what} bf16");
        assert_equal_on_all(&mut group, bytemuck::cast_slice(&brain), &what);
    }
    // Halves and whole numbers have an exact sum, so these may not be off at all.
    let total = (size * (size - 1) / 2) as f32;
    for how in HOW {
        let mut half = vec![f16::from_f32(rank as f32 + 0.5); 999];
        let mut brain = vec![bf16::from_f32(rank as f32 + 1.0); 999];
        group.all_reduce(Sum::F16(&mut half), how).unwrap();
        group.all_reduce(Sum::Bf16(&mut brain), how).unwrap();
        assert!(half.iter().all(|x| x.to_f32() == total + 0.5 * size as f32), "{how} {}", half[0]);
        assert!(brain.iter().all(|x| x.to_f32() == total + size as f32), "{how} {}", brain[0]);
    }
    "ok".into()
}

fn messages(mut group: Mpi) -> String {
    let (rank, size) = (group.rank(), group.size());
    let mut gathered = Gathered::default();
    for len in LENGTHS {
        // All of the same length, and each of its own.
        for factor in [0, 1] {
            let length = |rank: usize| if factor == 0 { len } else { len / (rank + 1) * (rank % 3) };
            let message = |rank: usize| vec![rank as u8 + 1; length(rank)];
            group.all_gather(&message(rank), 2 * len, Algorithm::Tree, &mut gathered).unwrap();
            assert!((0..size).all(|rank| gathered.of(rank) == message(rank)), "all-gather of {len}");
        }
        for (root, how) in (0..size).flat_map(|root| HOW.map(|how| (root, how))) {
            let message: Vec<u8> = (0..len).map(|i| (i * 7 + root) as u8).collect();
            let mut mine = if rank == root { message.clone() } else { vec![9; 3] };
            group.broadcast(root, &mut mine, len, how).unwrap();
            assert!(mine == message, "{how} broadcast of {len} from {root}");
        }
    }
    assert!(group.broadcast(size, &mut Vec::new(), 9, Algorithm::Ring).is_err());

    // Nobody passes a barrier before the last has come.
    let begun = std::time::Instant::now();
    if rank == size - 1 {
        std::thread::sleep(Duration::from_millis(100));
    }
    group.barrier().unwrap();
    assert!(rank == 0 || rank == size - 1 || begun.elapsed() > Duration::from_millis(20));

    // What is counted as sent by all is what is counted as received by all.
    let traffic = group.traffic();
    let mut bytes = traffic.sent.to_le_bytes().to_vec();
    bytes.extend(traffic.received.to_le_bytes());
    group.all_gather(&bytes, 16, Algorithm::Tree, &mut gathered).unwrap();
    let sum = |at: usize| -> u64 {
        gathered.iter().map(|m| u64::from_le_bytes(m[at..at + 8].try_into().unwrap())).sum()
    };
    assert_eq!(sum(0), sum(8), "bytes sent and received");
    "ok".into()
}

/// Vectors and messages of many pieces, whose ends are not those of the pieces.
fn long(mut group: Mpi) -> String {
    let (rank, size, len) = (group.rank(), group.size(), 5_000_011);
    for how in HOW {
        let mut values: Vec<f32> = (0..len).map(|i| (i % 1000 + rank) as f32).collect();
        let before = group.traffic();
        group.all_reduce(Sum::F32(&mut values), how).unwrap();
        let sent = (group.traffic() - before).sent as f64 / (4 * len) as f64;
        assert!(sent <= 2.0 * (size - 1) as f64, "{sent} of the vector sent");
        let ranks = (size * (size - 1) / 2) as f32;
        let good = |(i, &x): (usize, &f32)| x == (i % 1000 * size) as f32 + ranks;
        assert!(values.iter().enumerate().all(good), "{how}");
    }
    let message =
        |rank: usize| (0..(rank + 1) * 4_000_037).map(|i| (i * 13 + rank) as u8).collect::<Vec<u8>>();
    let mut gathered = Gathered::default();
    group.all_gather(&message(rank), usize::MAX, Algorithm::Ring, &mut gathered).unwrap();
    assert!((0..size).all(|rank| gathered.of(rank) == message(rank)));
    let mut mine = if rank == 1 { message(1) } else { Vec::new() };
    group.broadcast(1, &mut mine, usize::MAX, Algorithm::Ring).unwrap();
    assert!(mine == message(1));
    "ok".into()
}
