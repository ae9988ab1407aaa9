//! How long a step of each model takes: forward pass, backward pass and reading the gradients, on one core.
//!
//! `cargo run --release -p thinwire-train --example model_speed [SECONDS [MODEL]]`

use std::time::{Duration, Instant};

use burn::tensor::Device;
use thinwire_train::Result;
use thinwire_train::data::{Batch, Kind};
use thinwire_train::model::{build, pass};

const GREY: Kind = Kind::Images { channels: 1, height: 28, width: 28, classes: 10 };
const COLOUR: Kind = Kind::Images { channels: 3, height: 32, width: 32, classes: 10 };
const DIGITS: Kind = Kind::Images { channels: 1, height: 8, width: 8, classes: 10 };
const TEXT: Kind = Kind::Text { vocabulary: 65, length: 64 };

/// Model, data, samples in a batch.
const CASES: &[(&str, Kind, usize)] = &[
    ("mlp", GREY, 32),
    ("cnn", DIGITS, 32),
    ("cnn", GREY, 32),
    ("cnn", COLOUR, 32),
    ("resnet20", COLOUR, 16),
    ("lstm:width=64,hidden=128", TEXT, 8),
    ("lstm", TEXT, 8),
    ("gpt:layers=2,width=64", TEXT, 8),
    ("gpt", TEXT, 8),
];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let model = arguments.next().unwrap_or_default();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
    println!("{:26} {:>6} {:>10} {:>12} {:>12}", "model", "batch", "weights", "forward ms", "step ms");
    for &(spec, kind, samples) in CASES.iter().filter(|(spec, ..)| spec.starts_with(&model)) {
        pool.install(|| measure(spec, kind, samples, seconds))?;
    }
    Ok(())
}

/// The medians of as many steps as there is time for.
fn measure(spec: &str, kind: Kind, samples: usize, seconds: f64) -> Result<()> {
    let device = Device::flex().autodiff();
    let (_, segments) = build(spec, kind, 1, &device)?;
    let batch = batch(kind, samples);
    let mut flat = Vec::new();
    let (mut forwards, mut steps) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs_f64(seconds) || steps.len() < 3 {
        flat.clear();
        let step = Instant::now();
        let (input, targets) = pass::input(&batch, kind, &device);
        let forward_done = || forwards.push(step.elapsed());
        pass::forward_backward(&segments, input, targets, forward_done, |number, gradients| {
            segments[number].gradients(gradients, &mut flat);
        });
        steps.push(step.elapsed());
    }
    let (forward, step, weights) = (median(&mut forwards), median(&mut steps), flat.len());
    println!("{spec:26} {samples:6} {weights:10} {forward:12.2} {step:12.2}");
    Ok(())
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Values without meaning: the time does not depend on them.
fn batch(kind: Kind, samples: usize) -> Batch {
    let some = |number: usize| number.wrapping_mul(2_654_435_761) >> 7;
    match kind {
        Kind::Images { channels, height, width, classes } => Batch {
            samples,
            pixels: (0..samples * channels * height * width)
                .map(|x| (some(x) % 401) as f32 / 200.0 - 1.0)
                .collect(),
            tokens: Vec::new(),
            targets: (0..samples).map(|x| (some(x) % classes) as i32).collect(),
        },
        Kind::Text { vocabulary, length } => {
            let tokens: Vec<i32> = (0..samples * length).map(|x| (some(x) % vocabulary) as i32).collect();
            Batch { samples, pixels: Vec::new(), targets: tokens.iter().rev().copied().collect(), tokens }
        }
    }
}
