//! Four workers train a softmax regression with each method: what is sent late must arrive, with the right sign
//! and scale, or the loss stays behind the dense one.

use thinwire::group::{Group, Local};
use thinwire::synchronizer::Options;
use thinwire::{Bucket, Synchronizer};

const WORKERS: usize = 4;
const SAMPLES: usize = 200;
const FEATURES: usize = 60;
const CLASSES: usize = 10;
const STEPS: u64 = 300;

/// Reproducible numbers, nearly normal.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = self.0 ^ self.0 >> 29;
        let sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
        (sum as f32 / 65536.0 - 2.0) * 1.732
    }
}

/// A worker's samples: overlapping clusters, one for each class.
struct Shard {
    features: Vec<[f32; FEATURES]>,
    labels: Vec<usize>,
}

fn shards() -> Vec<Shard> {
    let mut noise = Noise(7);
    let centres: Vec<[f32; FEATURES]> =
        (0..CLASSES).map(|_| std::array::from_fn(|_| noise.next() * 0.35)).collect();
    let mut shard = |_| {
        let labels: Vec<usize> = (0..SAMPLES).map(|i| i % CLASSES).collect();
        let features =
            labels.iter().map(|&c| std::array::from_fn(|f| centres[c][f] + noise.next())).collect();
        Shard { features, labels }
    };
    (0..WORKERS).map(&mut shard).collect()
}

/// Mean cross-entropy of a shard, and its gradient. Weights are class by class, then the biases.
fn loss(shard: &Shard, weights: &[f32], gradient: &mut [f32]) -> f32 {
    gradient.fill(0.0);
    let mut total = 0.0;
    for (x, &label) in shard.features.iter().zip(&shard.labels) {
        let score = |c: usize| {
            let row = &weights[c * FEATURES..(c + 1) * FEATURES];
            row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + weights[CLASSES * FEATURES + c]
        };
        let scores: [f32; CLASSES] = std::array::from_fn(score);
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = scores.iter().map(|s| (s - most).exp()).sum();
        total += sum.ln() + most - scores[label];
        for c in 0..CLASSES {
            let error = ((scores[c] - most).exp() / sum - (c == label) as u8 as f32) / SAMPLES as f32;
            let row = &mut gradient[c * FEATURES..(c + 1) * FEATURES];
            row.iter_mut().zip(x).for_each(|(g, x)| *g += error * x);
            gradient[CLASSES * FEATURES + c] += error;
        }
    }
    total / SAMPLES as f32
}

/// Trains with a method on one rank for each shard; returns the final loss over all shards. Every rank updates
/// weights of its own, which stay the same only if the exchange keeps them so. With `momentum` the optimiser has
/// its own.
fn train(spec: &str, momentum: f32, shards: &[Shard]) -> f32 {
    let layers = [("weight", vec![CLASSES, FEATURES]), ("bias", vec![CLASSES])];
    let bucket = Bucket::new(0, layers).unwrap();
    let mut weights = Local::run(WORKERS, |group| {
        let shard = &shards[group.rank()];
        let options = Options { check_replicas_every: 50, ..Options::default() };
        let mut synchronizer = Synchronizer::with_options(group, spec, bucket.clone(), options).unwrap();
        synchronizer.set_epoch(f64::INFINITY);
        let mut noise = Noise(3);
        let mut weights = [(0..bucket.len()).map(|_| noise.next() * 0.05).collect::<Vec<f32>>()];
        let mut velocity = vec![0.0; bucket.len()];
        let mut gradients = [vec![0.0; bucket.len()]];
        for _ in 0..STEPS {
            loss(shard, &weights[0], &mut gradients[0]);
            synchronizer.step(&mut gradients, &weights).unwrap();
            for ((w, v), g) in weights[0].iter_mut().zip(&mut velocity).zip(&gradients[0]) {
                *v = momentum * *v + g;
                *w -= 0.1 * *v;
            }
        }
        weights
    });
    let [weights] = weights.remove(0);
    let mut gradient = vec![0.0; bucket.len()];
    shards.iter().map(|shard| loss(shard, &weights, &mut gradient)).sum::<f32>() / WORKERS as f32
}

#[test]
fn every_method_learns_what_dense_learns() {
    let shards = shards();
    let start = (CLASSES as f32).ln();
    let dense = train("dense", 0.0, &shards);
    assert!(dense < 0.5 * start, "dense learns: {dense} from about {start}");
    let specs = [
        ("dense:values=bf16", 1.01),
        ("quantized:bits=8", 1.01),
        ("quantized", 1.02),
        ("quantized:bits=3,rounding=stochastic", 1.05),
        ("quantized:bits=2", 1.10),
        ("topk:density=0.05", 1.05),
        ("topk:density=0.05,values=f16,scope=layer", 1.05),
        ("topk:density=0.05,values=int4", 1.05),
        ("gaussian-k:density=0.05", 1.05),
        ("redsync:density=0.05,dense_up_to=0", 1.05),
        ("redsync:density=0.05,dense_up_to=0,quantize=true", 1.10),
        ("fft", 1.05),
        ("iwp:density=1/16,dense_up_to=0", 1.15),
        ("iwp:density=1/16,dense_up_to=0,leaders=2", 1.15),
        ("iwp:density=1/16,dense_up_to=0,exchange=gathered", 1.15),
        ("ar-topk:density=0.05", 1.05),
        ("ar-topk:density=0.05,leader=var", 1.05),
        ("ar-topk:density=0.05,values=bf16", 1.05),
        ("gaussian-k:density=0.05,exchange=agreed,leader=random,leaders=2", 1.05),
        ("dgc:density=0.05", 1.05),
        ("mstopk:density=0.05", 1.05),
        ("random-k:density=0.1", 1.10),
    ];
    for (spec, within) in specs {
        let loss = train(spec, 0.0, &shards);
        println!("{spec}: {loss} against {dense}, {:.3}", loss / dense);
        assert!(loss < within * dense, "{spec}: {loss} against {dense}");
    }
}

#[test]
fn corrected_momentum_learns_faster_than_none() {
    // Masking clears the momentum wherever something was just sent, so with a twentieth sent in every step it
    // is less than the optimiser's own momentum would be, and still far better than none.
    let shards = shards();
    let none = train("dense", 0.0, &shards);
    let specs =
        ["dgc:density=0.05,momentum=0.9", "redsync:density=0.05,dense_up_to=0,momentum=0.9,nesterov=true"];
    for spec in specs {
        let loss = train(spec, 0.0, &shards);
        println!("{spec}: {loss} against {none} without momentum");
        assert!(loss < 0.6 * none, "{spec}: {loss} against {none} without momentum");
    }
}

#[test]
fn without_feedback_the_same_bytes_stay_behind() {
    // What the residual is for: the same method, the same bytes, and nothing kept for later.
    let shards = shards();
    let pairs = [("topk:density=0.02", "topk:density=0.02,feedback=false"), ("fft", "fft:feedback=false")];
    for (with, without) in pairs {
        let losses = (train(with, 0.0, &shards), train(without, 0.0, &shards));
        println!("{with}: {} with feedback, {} without", losses.0, losses.1);
        assert!(losses.0 < 0.8 * losses.1, "{with}: {losses:?}");
    }
}
