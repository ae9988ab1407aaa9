//! What must hold for every method on every kind of group, checked from inside one rank.

// Every test binary uses a part of it.
#![allow(dead_code)]

pub mod port;

use port::free_port;
use thinwire::group::{Algorithm, Gathered, Group, Schedule, Secret, SharedGroup, Tcp, TcpSettings};
use thinwire::memory::State;
use thinwire::synchronizer::{Layout, Mean, Options};
use thinwire::{Bucket, Synchronizer};

/// How a method is expected to behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// What stays behind is the accumulated gradient or zero, bit for bit.
    Exact,
    /// What was sent plus what stays behind is right but for rounding.
    Rounded,
    /// The codec drops something.
    Lossy,
}

/// Every method, and every exchange and leader policy.
pub const METHODS: &[(&str, Kind)] = &[
    ("dense", Kind::Lossy),
    ("dense:values=bf16", Kind::Lossy),
    ("quantized", Kind::Rounded),
    ("quantized:bits=2,rounding=stochastic,seed=3", Kind::Rounded),
    ("quantized:bits=3", Kind::Rounded),
    ("quantized:bits=8,rounding=stochastic", Kind::Rounded),
    ("topk:density=0.05", Kind::Exact),
    ("topk:density=0.05,scope=layer,values=f16", Kind::Rounded),
    ("topk:density=0.05,exchange=agreed,leader=var", Kind::Exact),
    ("gaussian-k:density=0.05", Kind::Exact),
    ("gaussian-k:density=0.05,exchange=agreed,leader=random,leaders=2", Kind::Exact),
    ("redsync:density=0.05,dense_up_to=10", Kind::Exact),
    ("redsync:density=0.05,dense_up_to=10,warmup=quantized/1", Kind::Exact),
    ("redsync:density=0.05,dense_up_to=20000", Kind::Exact),
    ("redsync:density=0.05,dense_up_to=20000,values=bf16", Kind::Rounded),
    ("redsync:density=0.05,dense_up_to=10,quantize=true", Kind::Lossy),
    ("fft:theta=0.9,bits=0,feedback=true", Kind::Rounded),
    ("fft", Kind::Lossy),
    ("iwp:dense_up_to=10", Kind::Exact),
    ("iwp:density=0.05,leaders=3,dense_up_to=10", Kind::Exact),
    ("iwp:exchange=gathered,density=0.05", Kind::Exact),
    ("ar-topk:density=0.05", Kind::Exact),
    ("ar-topk:density=0.05,leader=var,exclude=b*", Kind::Exact),
    ("ar-topk:density=0.05,values=bf16", Kind::Rounded),
    ("dgc:density=0.05,dense_one_dimensional=false", Kind::Exact),
    ("mstopk:density=0.05", Kind::Exact),
    ("random-k:density=0.05", Kind::Exact),
    ("random-k:density=0.05,scope=layer", Kind::Exact),
];

/// Runs `work` on `size` ranks that know each other only by TCP, each in a thread of its own.
pub fn over_tcp(size: usize, secret: Option<&str>, work: impl Fn(Tcp) + Sync) {
    over_link(size, secret, None, work);
}

/// The same over an imitated link.
pub fn over_link(size: usize, secret: Option<&str>, link: Option<Schedule>, work: impl Fn(Tcp) + Sync) {
    let port = free_port();
    let secret = secret.and_then(|secret| Secret::new(secret.as_bytes()));
    std::thread::scope(|scope| {
        for rank in 0..size {
            let settings = TcpSettings {
                rank,
                size,
                port,
                secret: secret.clone(),
                link: link.clone(),
                ..TcpSettings::default()
            };
            let work = &work;
            scope.spawn(move || work(Tcp::join(&settings).unwrap()));
        }
    });
}

/// Reproducible numbers, nearly normal.
pub fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = state ^ state >> 29;
        let sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
        sum as f32 / 65536.0 - 2.0
    };
    (0..len).map(|_| next()).collect()
}

/// Two buckets where there are elements for two, of layers of unlike sizes.
pub fn layout(elements: usize) -> Layout {
    let first = elements / 3;
    let layers = [("a.weight", first), ("a.bias", (elements - first) / 50), ("b.weight", 0)];
    let rest = elements - first - layers[1].1;
    let all = [(layers[0].0, vec![first]), (layers[1].0, vec![layers[1].1]), ("b.weight", vec![rest, 1])];
    let some = all.into_iter().filter(|(_, shape)| shape[0] > 0);
    Layout::by_size(some, 4 * first.max(1)).unwrap()
}

/// Runs some steps of `method` and checks the invariants; every rank of the group calls it.
pub fn check_method(group: &SharedGroup, method: &str, kind: Kind, elements: usize, steps: u64) {
    let what = format!("{method}, {elements} elements, rank {} of {}", group.rank(), group.size());
    let layout = layout(elements);
    let options = Options { check_replicas_every: 1, ..Options::default() };
    let mut synchronizer =
        Synchronizer::with_options(group.clone(), method, layout.clone(), options).expect(&what);
    synchronizer.set_epoch(f64::INFINITY);
    let weights: Vec<Vec<f32>> =
        layout.buckets().iter().map(|b| noise(b.len(), 99 + b.id() as u64)).collect();
    for step in 0..steps {
        let before = synchronizer.save().expect(&what);
        let seed = |bucket: &Bucket| 1000 * step + 10 * group.rank() as u64 + bucket.id() as u64;
        let gradients: Vec<Vec<f32>> = layout.buckets().iter().map(|b| noise(b.len(), seed(b))).collect();
        let mut means = gradients.clone();
        let report = synchronizer.step(&mut means, &weights).expect(&what);
        assert_eq!((report.step, report.ranks, report.compression.elements), (step, group.size(), elements));
        let after = synchronizer.save().expect(&what);
        check_k(&report.compression, method, &what, group.size());
        for ((bucket, gradient), mean) in layout.buckets().iter().zip(&gradients).zip(&means) {
            check_equal(group, mean, &what);
            if kind != Kind::Lossy {
                check_nothing_is_lost(group, bucket, (gradient, mean), (&before, &after), kind, &what);
            }
        }
    }
}

/// Invariant 3: what was sent is what was asked for, within the method's tolerance.
fn check_k(report: &thinwire::pipeline::Report, method: &str, what: &str, size: usize) {
    let (asked, kept) = (report.asked, report.kept);
    let leaders = match method {
        method if method.contains("leaders=3") => 3.min(size),
        method if method.contains("leaders=2") => 2.min(size),
        _ => 1,
    };
    assert!(kept <= leaders * (4 * asked / 3).max(asked), "{what}: kept {kept}, asked {asked}");
    let least = if asked < 3 { asked.min(1) } else { 2 * asked / 3 };
    // Some elements are exactly zero and never sent.
    assert!(kept + 2 >= least, "{what}: kept {kept}, asked {asked}");
}

/// Invariant 2: all ranks hold the same bits.
pub fn check_equal(group: &SharedGroup, values: &[f32], what: &str) {
    let mut gathered = Gathered::default();
    let sum = values.iter().fold(0u64, |sum, x| sum.rotate_left(5).wrapping_mul(31) ^ x.to_bits() as u64);
    group.clone().all_gather(&sum.to_le_bytes(), 8, Algorithm::Tree, &mut gathered).expect(what);
    assert!(gathered.iter().all(|other| other == gathered.of(0)), "{what}: replicas differ");
}

/// Invariant 1: over all ranks, what was sent plus what is kept is the gradient plus what was kept before.
fn check_nothing_is_lost(
    group: &SharedGroup,
    bucket: &Bucket,
    (gradient, mean): (&[f32], &[f32]),
    (before, after): (&State, &State),
    kind: Kind,
    what: &str,
) {
    let of = |state: &State| -> Vec<f32> {
        bucket.layers().iter().flat_map(|layer| state.residual[layer.name()].clone()).collect()
    };
    let (before, after) = (of(before), of(after));
    if kind == Kind::Exact {
        for ((r, g), kept) in before.iter().zip(gradient).zip(&after) {
            assert!(*kept == 0.0 || kept.to_bits() == (r + g).to_bits(), "{what}: {r} + {g} left {kept}");
        }
    }
    // A sample is compared between the ranks: all elements of small buckets.
    let stride = 1 + bucket.len() / 2000;
    let at: Vec<usize> = (0..bucket.len()).step_by(stride).collect();
    let pairs: Vec<f32> = at.iter().flat_map(|&i| [before[i] + gradient[i], after[i]]).collect();
    let mut gathered = Gathered::default();
    let bytes: Vec<u8> = pairs.iter().flat_map(|x| x.to_le_bytes()).collect();
    group.clone().all_gather(&bytes, bytes.len(), Algorithm::Ring, &mut gathered).expect(what);
    let number =
        |bytes: &[u8], i: usize| f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap()) as f64;
    for (place, &i) in at.iter().enumerate() {
        let had: f64 = gathered.iter().map(|bytes| number(bytes, 2 * place)).sum();
        let kept: f64 = gathered.iter().map(|bytes| number(bytes, 2 * place + 1)).sum();
        let sent = mean[i] as f64 * group.size() as f64;
        // Half-width sums are rounded at every hop, and that is not fed back.
        let tolerance = if what.contains("bf16") { 0.05 } else { 1e-4 };
        assert!((had - kept - sent).abs() < tolerance, "{what}, element {i}: {had} - {kept} - {sent}");
    }
}

/// With everything sent as it is, every method gives the dense mean.
pub fn check_full_density(group: &SharedGroup, elements: usize) {
    let (rank, size, layout) = (group.rank(), group.size(), layout(elements));
    let buckets = layout.buckets();
    let gradients: Vec<Vec<f32>> =
        buckets.iter().map(|b| noise(b.len(), (rank + 100 * b.id() as usize) as u64)).collect();
    let weights: Vec<Vec<f32>> = buckets.iter().map(|b| noise(b.len(), 7)).collect();
    let means = |method: &str| {
        let mut means = gradients.clone();
        let mut synchronizer = Synchronizer::new(group.clone(), method, layout.clone()).unwrap();
        synchronizer.set_epoch(f64::INFINITY);
        synchronizer.step(&mut means, &weights).unwrap();
        means
    };
    let dense = means("dense");
    for (bucket, dense) in buckets.iter().zip(&dense) {
        for i in (0..bucket.len()).step_by(1 + bucket.len() / 500) {
            let exact: f64 = (0..size)
                .map(|rank| noise(i + 1, (rank + 100 * bucket.id() as usize) as u64)[i] as f64)
                .sum();
            assert!((dense[i] as f64 - exact / size as f64).abs() < 1e-6, "element {i}");
        }
    }
    for method in ["topk", "gaussian-k", "redsync", "iwp", "ar-topk", "dgc", "mstopk", "random-k"] {
        for (mean, dense) in means(&format!("{method}:density=1")).iter().zip(&dense) {
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
            assert!(mean.iter().zip(dense).all(close), "{method}");
        }
    }
    for (mean, dense) in means("fft:theta=0,bits=0").iter().zip(&dense) {
        assert!(mean.iter().zip(dense).all(|(a, b)| (a - b).abs() < 1e-4), "fft");
    }
}

/// Ranks with more samples count for more; one without any only listens.
pub fn check_weighted_mean(group: &SharedGroup) {
    let (rank, size) = (group.rank(), group.size());
    for method in ["dense", "topk:density=1", "ar-topk:density=1", "quantized"] {
        let options = Options { mean: Mean::OfSamples, ..Options::default() };
        let layout = Bucket::single("w", 100).unwrap();
        let mut synchronizer = Synchronizer::with_options(group.clone(), method, layout, options).unwrap();
        for step in 0..3 {
            let samples = |rank: usize| if size > 1 { (rank + step) % size } else { 1 } as f64;
            synchronizer.set_samples(samples(rank));
            let mut mean = [vec![rank as f32 + 1.0; 100]];
            synchronizer.step(&mut mean, &[] as &[Vec<f32>]).unwrap();
            let total: f64 = (0..size).map(samples).sum();
            let expected: f64 =
                (0..size).map(|rank| (rank as f64 + 1.0) * samples(rank)).sum::<f64>() / total;
            // A scale is rounded up by up to 2^-7.
            let within = if method == "quantized" { 0.01 * expected } else { 1e-5 };
            assert!((mean[0][0] as f64 - expected).abs() < within, "{method}: {} {expected}", mean[0][0]);
        }
    }
}
