//! Layers that are sent dense beside gathered frames: summed by one all-reduce for all buckets of a step.

mod support;

use support::noise;
use thinwire::group::{Group, Local};
use thinwire::memory::State;
use thinwire::synchronizer::{Layout, StepReport};
use thinwire::{Error, Synchronizer};

const NONE: &[Vec<f32>] = &[];
/// Elements of the vectors of [`model`].
const VECTORS: usize = 4100;

const METHODS: &[&str] = &[
    "redsync:density=0.01",
    "redsync:density=0.01,momentum=0.9,values=bf16",
    "redsync:density=0.01,quantize=true",
    "topk:density=0.01,dense_one_dimensional=true,values=f16",
    "gaussian-k:density=0.01,feedback=false,dense_one_dimensional=true",
    "fft:dense_one_dimensional=true",
];

/// Two buckets, of matrices above and below redsync's limits and of vectors.
fn model() -> Layout {
    let layers = [
        ("a.weight", vec![100, 120]),
        ("a.bias", vec![2000]),
        ("a.small", vec![30, 20]),
        ("b.weight", vec![140, 100]),
        ("b.tiny", vec![5, 5]),
        ("b.bias", vec![2100]),
        ("b.narrow", vec![40, 10]),
    ];
    let layout = Layout::by_size(layers, 4 * 16_600).unwrap();
    assert_eq!(layout.buckets().len(), 2);
    layout
}

fn gradients(layout: &Layout, seed: u64) -> Vec<Vec<f32>> {
    layout.buckets().iter().map(|bucket| noise(bucket.len(), 100 * seed + bucket.id() as u64)).collect()
}

fn first_step(ranks: usize, method: &str) -> Vec<(Vec<Vec<f32>>, StepReport)> {
    let layout = model();
    Local::run(ranks, |group| {
        let mut means = gradients(&layout, group.rank() as u64);
        let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
        let report = synchronizer.step(&mut means, NONE).unwrap();
        (means, report)
    })
}

#[test]
fn vectors_cost_what_an_all_reduce_sends() {
    for &method in METHODS {
        for ranks in [2, 4, 8] {
            let all = first_step(ranks, method);
            let report = &all[0].1.compression;
            let width = if method.contains("values=") { 2 } else { 4 };
            assert_eq!((report.dense, report.dense_bytes), (VECTORS, width * VECTORS), "{method}");
            let in_sum = if ranks > 2 { report.dense_bytes } else { 0 };
            assert_eq!(report.reduced_bytes, in_sum, "{method}, {ranks} ranks");
            let sent: u64 = all.iter().map(|(_, report)| report.traffic.sent).sum();
            let messages: usize = all.iter().map(|(_, report)| report.compression.frame_bytes - in_sum).sum();
            // Each collective puts an envelope around what it sends.
            let least = messages * (ranks - 1) + 2 * (ranks - 1) * in_sum;
            let excess = sent as usize - least;
            assert!(excess < 2000 * ranks * ranks, "{method}, {ranks} ranks: {sent} for {least}");
            assert!(all.iter().all(|(means, _)| *means == all[0].0), "{method}, {ranks} ranks");
        }
    }
}

#[test]
fn vectors_arrive_whole() {
    let layout = model();
    let exact = |bucket: usize, at: usize, ranks: u64| -> f32 {
        (0..ranks).map(|rank| gradients(&layout, rank)[bucket][at]).sum::<f32>() / ranks as f32
    };
    for &method in METHODS {
        let means = first_step(4, method).swap_remove(0).0;
        for (number, bucket) in layout.buckets().iter().enumerate() {
            for layer in bucket.layers().iter().filter(|layer| layer.dimensions() == 1) {
                for at in layer.range().step_by(97) {
                    let (mean, exact) = (means[number][at], exact(number, at, 4));
                    let tolerance = if method.contains("values=") { 0.02 } else { 1e-6 };
                    assert!((mean - exact).abs() <= tolerance, "{method}, {at}: {mean}, {exact}");
                }
            }
        }
    }
}

/// Whether two states hold the same, but for the rounding of a step that was taken back.
fn close(before: &State, after: &State) -> bool {
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * a.abs().max(1.0);
    before.selectors == after.selectors
        && [(&before.residual, &after.residual), (&before.momentum, &after.momentum)]
            .into_iter()
            .all(|(a, b)| a.iter().all(|(name, values)| values.iter().zip(&b[name]).all(close)))
}

#[test]
fn a_rank_that_refuses_makes_all_skip_and_restores() {
    let layout = model();
    for &method in METHODS {
        let means = Local::run(4, |group| {
            let rank = group.rank();
            let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
            synchronizer.step(&mut gradients(&layout, rank as u64), NONE).unwrap();
            for bad in 0..2 {
                let before = synchronizer.save().unwrap();
                let mut means = gradients(&layout, 10 + rank as u64);
                if rank == 2 {
                    let last = means[bad].len() - 1;
                    means[bad][[12_500, last][bad]] = f32::NAN;
                }
                let skipped = synchronizer.step(&mut means, NONE).unwrap_err();
                assert!(matches!(skipped, Error::Skipped { rank: 2, .. }), "{method}: {skipped}");
                assert!(close(&before, &synchronizer.save().unwrap()), "{method}");
            }
            let mut means = gradients(&layout, 20 + rank as u64);
            synchronizer.step(&mut means, NONE).unwrap();
            means
        });
        assert!(means.iter().all(|mean| *mean == means[0]), "{method}");
    }
}

#[test]
fn a_sum_beyond_the_range_is_skipped_by_all() {
    let layout = model();
    Local::run(4, |group| {
        let rank = group.rank();
        let mut synchronizer = Synchronizer::new(group, "redsync:density=0.01", layout.clone()).unwrap();
        synchronizer.step(&mut gradients(&layout, rank as u64), NONE).unwrap();
        let before = synchronizer.save().unwrap();
        let mut means = gradients(&layout, 10 + rank as u64);
        // In a vector of the first bucket, which is dense.
        means[0][12_000 + 7] = 3e38;
        let skipped = synchronizer.step(&mut means, NONE).unwrap_err();
        assert!(matches!(skipped, Error::Skipped { .. }), "{skipped}");
        assert!(skipped.to_string().contains("a sum over all ranks of inf"), "{skipped}");
        assert!(close(&before, &synchronizer.save().unwrap()));
        synchronizer.step(&mut gradients(&layout, 20 + rank as u64), NONE).unwrap();
    });
}
