//! What holds for every model.

mod statistics;

use burn::tensor::{Device, Int, Tensor};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::data::Batch;

const DIGITS: Kind = Kind::Images { channels: 1, height: 8, width: 8, classes: 10 };
const TEXT: Kind = Kind::Text { vocabulary: 11, length: 9 };
const COLOURS: Kind = Kind::Images { channels: 3, height: 12, width: 10, classes: 4 };

/// Every model, small, with a rate at which plain SGD learns a tiny batch by heart.
const CASES: &[(&str, Kind, f32)] = &[
    ("mlp:hidden=32", DIGITS, 0.3),
    ("mlp:hidden=16,layers=3", COLOURS, 0.3),
    ("cnn:width=4,hidden=16", DIGITS, 0.3),
    ("cnn:width=2,depth=3,hidden=16", COLOURS, 0.3),
    ("resnet:depth=8", COLOURS, 0.1),
    ("resnet20", DIGITS, 0.1),
    ("lstm:width=8,hidden=12", TEXT, 3.0),
    ("lstm:width=8,layers=2,hidden=16", TEXT, 3.0),
    ("gpt:layers=2,width=32,heads=4", TEXT, 0.3),
];

fn device() -> Device {
    Device::flex().autodiff()
}

fn model(spec: &str, kind: Kind, seed: u64) -> Vec<Box<dyn Segment>> {
    build(spec, kind, seed, &device()).expect("the model fits the data").1
}

/// Samples drawn from a seed, with targets that have nothing to do with them.
fn batch(kind: Kind, samples: usize, seed: u64) -> Batch {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut batch = Batch { samples, ..Batch::default() };
    match kind {
        Kind::Images { channels, height, width, classes } => {
            let pixels = samples * channels * height * width;
            batch.pixels = (0..pixels).map(|_| random.random_range(-1.7..1.7)).collect();
            batch.targets = (0..samples).map(|_| random.random_range(0..classes as i32)).collect();
        }
        Kind::Text { vocabulary, length } => {
            let mut tokens =
                || (0..samples * length).map(|_| random.random_range(0..vocabulary as i32)).collect();
            (batch.tokens, batch.targets) = (tokens(), tokens());
        }
    }
    batch
}

fn tensors(kind: Kind, samples: usize, seed: u64) -> (Flow, Tensor<1, Int>) {
    pass::input(&batch(kind, samples, seed), kind, &device())
}

fn read(segments: &[Box<dyn Segment>]) -> Vec<f32> {
    let mut flat = Vec::new();
    segments.iter().for_each(|segment| segment.read(&mut flat));
    flat
}

fn write(segments: &mut [Box<dyn Segment>], mut flat: &[f32]) {
    for segment in segments {
        let length = segment.weights().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        let (own, rest) = flat.split_at(length);
        segment.write(own);
        flat = rest;
    }
    assert!(flat.is_empty());
}

/// The loss and all gradients in the order of the forward pass.
fn step(segments: &[Box<dyn Segment>], input: Flow, targets: Tensor<1, Int>) -> (f32, Vec<f32>) {
    let mut parts = vec![Vec::new(); segments.len()];
    let mut order = Vec::new();
    let loss = pass::forward_backward(
        segments,
        input,
        targets,
        || (),
        |number, gradients| {
            order.push(number);
            segments[number].gradients(gradients, &mut parts[number]);
        },
    );
    assert!(order.iter().copied().eq((0..segments.len()).rev()), "from the last segment to the first");
    (loss, parts.concat())
}

/// The same without cuts.
fn whole(segments: &[Box<dyn Segment>], input: Flow, targets: Tensor<1, Int>) -> (f32, Vec<f32>) {
    let logits = segments.iter().fold(input, |flow, segment| segment.forward(flow)).features();
    let loss = loss::cross_entropy(logits, targets);
    let value = loss.clone().into_scalar::<f32>();
    let mut gradients = loss.backward();
    let mut flat = Vec::new();
    segments.iter().for_each(|segment| segment.gradients(&mut gradients, &mut flat));
    (value, flat)
}

fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread").install(work)
}

#[test]
fn gradients_with_cuts_are_those_without() {
    for &(spec, kind, _) in CASES {
        let segments = model(spec, kind, 1);
        let (input, targets) = tensors(kind, 5, 2);
        let (loss, cut) = step(&segments, input.clone(), targets.clone());
        let (expected_loss, expected) = whole(&segments, input, targets);
        assert_eq!(loss, expected_loss, "{spec}");
        assert_eq!(cut.len(), expected.len(), "{spec}");
        assert!(expected.iter().any(|x| *x != 0.0), "{spec}");
        let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        for (number, (cut, expected)) in cut.iter().zip(&expected).enumerate() {
            assert!((cut - expected).abs() <= 1e-6 * largest, "{spec}, gradient {number}: {cut}, {expected}");
        }
    }
}

#[test]
fn every_tensor_has_the_gradient_that_finite_differences_show() {
    for &(spec, kind, _) in CASES {
        let mut segments = model(spec, kind, 3);
        let (input, targets) = tensors(kind, 6, 4);
        let (_, gradient) = step(&segments, input.clone(), targets.clone());
        let weights = read(&segments);
        let tensors: Vec<_> = segments.iter().flat_map(|segment| segment.weights()).collect();
        let mut begin = 0;
        for (name, shape) in tensors {
            let range = begin..begin + shape.iter().product::<usize>();
            begin = range.end;
            // Along the gradient itself the loss must grow by the gradient's length.
            let length = gradient[range.clone()].iter().map(|x| x * x).sum::<f32>().sqrt();
            let mut at = |distance: f32| {
                let mut moved = weights.clone();
                for index in range.clone() {
                    moved[index] += distance * gradient[index] / length.max(1e-12);
                }
                write(&mut segments, &moved);
                whole_loss(&segments, input.clone(), targets.clone())
            };
            // A step can cross a kink of ReLU or of the pooling; a wrong gradient is wrong for all steps.
            let slopes = [4e-3f32, 1e-3, 2.5e-4].map(|step| (at(step) - at(-step)) / (2.0 * f64::from(step)));
            let expected = f64::from(length);
            let right = slopes.iter().any(|slope| (slope - expected).abs() < 0.02 * expected + 2e-4);
            assert!(right, "{spec} {name}: {slopes:?} against {expected}");
        }
    }
}

fn whole_loss(segments: &[Box<dyn Segment>], input: Flow, targets: Tensor<1, Int>) -> f64 {
    let logits = segments.iter().fold(input, |flow, segment| segment.forward(flow)).features();
    f64::from(loss::cross_entropy(logits, targets).into_scalar::<f32>())
}

#[test]
fn weights_come_back_as_they_were_written() {
    for &(spec, kind, _) in CASES {
        let mut segments = model(spec, kind, 5);
        let before = read(&segments);
        for segment in &segments {
            let mut flat = Vec::new();
            segment.read(&mut flat);
            let length: usize =
                segment.weights().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
            assert_eq!(flat.len(), length, "{spec}");
        }
        let other: Vec<f32> = before.iter().map(|x| 0.5 * x + 0.01).collect();
        write(&mut segments, &other);
        assert_eq!(read(&segments), other, "{spec}");
        // What was written still learns.
        let (input, targets) = tensors(kind, 3, 6);
        let (_, gradient) = step(&segments, input, targets);
        assert_eq!(gradient.len(), other.len(), "{spec}");
        assert!(gradient.iter().any(|x| *x != 0.0), "{spec}");
    }
}

#[test]
fn names_of_weights_differ() {
    for &(spec, kind, _) in CASES {
        let names: Vec<_> = model(spec, kind, 5).iter().flat_map(|segment| segment.weights()).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().map(|(name, _)| name).collect();
        assert_eq!(unique.len(), names.len(), "{spec}: {names:?}");
    }
}

#[test]
fn a_seed_stands_for_the_same_weights_also_on_many_threads() {
    for &(spec, kind, _) in CASES {
        let expected = read(&model(spec, kind, 7));
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..6).map(|rank| scope.spawn(move || read(&model(spec, kind, 7 + rank % 2)))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread that only builds")).collect()
        });
        for (rank, weights) in all.iter().enumerate() {
            assert_eq!(weights == &expected, rank % 2 == 0, "{spec} on thread {rank}");
        }
    }
}

#[test]
fn the_same_pass_on_one_thread_gives_the_same_bits() {
    for &(spec, kind, _) in CASES {
        let run = || {
            alone(|| {
                let segments = model(spec, kind, 8);
                let (input, targets) = tensors(kind, 7, 9);
                let (loss, gradient) = step(&segments, input, targets);
                (loss.to_bits(), gradient.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            })
        };
        assert_eq!(run(), run(), "{spec}");
    }
}

#[test]
fn a_tiny_batch_is_learnt_by_heart() {
    for &(spec, kind, rate) in CASES {
        let mut segments = model(spec, kind, 10);
        let (input, targets) = tensors(kind, 4, 11);
        let mut losses = Vec::new();
        for _ in 0..60 {
            let (loss, gradient) = step(&segments, input.clone(), targets.clone());
            let weights: Vec<f32> =
                read(&segments).iter().zip(&gradient).map(|(w, g)| w - rate * g).collect();
            write(&mut segments, &weights);
            losses.push(loss);
        }
        let (first, last) = (losses[0], losses[59]);
        assert!(last < 0.3 * first, "{spec}: {losses:?}");
    }
}

#[test]
fn measuring_gives_the_loss_and_the_hits() {
    for &(spec, kind, _) in CASES.iter().filter(|(spec, ..)| !spec.starts_with("resnet")) {
        let segments = model(spec, kind, 12);
        let measuring: Vec<_> = segments.iter().map(|segment| segment.measuring()).collect();
        let (input, targets) = tensors(kind, 9, 13);
        let (loss, correct) = pass::evaluate(&measuring, input.clone(), targets.clone());
        let logits = segments.iter().fold(input, |flow, segment| segment.forward(flow)).features();
        let rows = targets.dims()[0] as f64;
        assert_eq!(correct, loss::correct(&logits, &targets), "{spec}");
        let mean = f64::from(loss::cross_entropy(logits, targets).into_scalar::<f32>());
        assert!((loss - mean * rows).abs() < 1e-5 * loss, "{spec}: {loss} against {mean} for each of {rows}");
    }
}

#[test]
fn data_of_the_wrong_kind_is_refused_with_what_would_be_right() {
    for &(spec, kind, _) in CASES {
        let (wrong, right) = match kind {
            Kind::Images { .. } => (Kind::Text { vocabulary: 10, length: 8 }, "is for images"),
            Kind::Text { .. } => (DIGITS, "is for text"),
        };
        let Err(error) = build(spec, wrong, 0, &device()) else { panic!("{spec} took {wrong:?}") };
        assert!(matches!(error, Error::BadSetting { .. }), "{error}");
        assert!(error.to_string().contains(right), "{error}");
    }
}

#[test]
fn an_unknown_model_and_a_bad_parameter_are_refused() {
    let message = |spec| build(spec, DIGITS, 0, &device()).err().expect("it can't be built").to_string();
    assert!(
        message("vgg").contains("there are: mlp, cnn, resnet, resnet20, lstm, gpt"),
        "{}",
        message("vgg")
    );
    assert!(message("cnn:depth=5").contains("from 2 to 4"), "{}", message("cnn:depth=5"));
    assert!(message("cnn:depth=4").contains("at least 16 rows"), "{}", message("cnn:depth=4"));
}

#[test]
fn the_sizes_are_those_of_the_documentation() {
    let grey = Kind::Images { channels: 1, height: 28, width: 28, classes: 10 };
    let colour = Kind::Images { channels: 3, height: 32, width: 32, classes: 10 };
    let letters = Kind::Text { vocabulary: 65, length: 64 };
    let documented = [
        ("mlp", grey, 269_322),
        ("mlp", DIGITS, 85_002),
        ("cnn", grey, 206_922),
        ("cnn", colour, 268_650),
        ("cnn", DIGITS, 22_602),
        ("resnet", colour, 269_722),
        ("resnet20", colour, 269_722),
        ("resnet:depth=32", colour, 464_154),
        ("resnet:depth=44", colour, 658_586),
        ("resnet:depth=56", colour, 853_018),
        ("resnet:depth=110", colour, 1_727_962),
        ("lstm", letters, 419_265),
        ("gpt", letters, 818_176),
    ];
    let found = documented.map(|(spec, kind, _)| (spec, kind, read(&model(spec, kind, 0)).len()));
    assert_eq!(found, documented);
}

#[test]
fn a_depth_that_no_residual_network_has_is_refused() {
    let error = build("resnet:depth=18", COLOURS, 0, &device()).err().expect("18 is not 6n + 2").to_string();
    assert!(error.contains("depth=18") && error.contains("6n + 2; the nearest are 14 and 20"), "{error}");
}

#[test]
fn no_token_looks_ahead() {
    for &(spec, kind, _) in CASES.iter().filter(|(_, kind, _)| matches!(kind, Kind::Text { .. })) {
        let segments = model(spec, kind, 20);
        let mut batch = batch(kind, 2, 21);
        let logits = |batch: &Batch| {
            let (input, _) = pass::input(batch, kind, &device());
            let logits = segments.iter().fold(input, |flow, segment| segment.forward(flow)).features();
            logits.into_data().as_slice::<f32>().expect("f32").to_vec()
        };
        let before = logits(&batch);
        // The sixth token of the first sample of nine, with eleven logits for each.
        batch.tokens[5] = (batch.tokens[5] + 1) % 11;
        let after = logits(&batch);
        let changed: Vec<bool> =
            before.chunks(11).zip(after.chunks(11)).map(|(before, after)| before != after).collect();
        let expected: Vec<bool> = (0..18).map(|token| (5..9).contains(&token)).collect();
        assert_eq!(changed, expected, "{spec}");
    }
}

#[test]
fn heads_that_do_not_divide_the_width_are_refused() {
    let error = build("gpt:width=30", TEXT, 0, &device()).err().expect("4 does not divide 30").to_string();
    assert!(error.contains("must divide the width"), "{error}");
}
