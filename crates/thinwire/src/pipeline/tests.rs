//! The invariants, for every method: nothing is lost, k is what was asked, errors leave no trace, a restored
//! run goes on with the same bits.

use super::*;
use crate::codec::{Frame, Header, ValueForm};
use crate::kernels::{Cpu, Update};
use crate::memory::Progress;
use crate::method::{METHODS, parse};
use crate::select::window;
use crate::{Bucket, Error};

fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let x = crate::select::normal_quantile(
                ((crate::select::mix(state) >> 11) as f64 + 0.5) / (1u64 << 53) as f64,
            );
            (x * 0.01) as f32
        })
        .collect()
}

fn bucket() -> Bucket {
    Bucket::new(
        3,
        [
            ("conv1.weight", vec![16, 3, 3, 3]),
            ("conv1.bias", vec![16]),
            ("nothing", vec![0, 7]),
            ("fc.weight", vec![300, 101]),
            ("fc.bias", vec![300]),
            ("out.weight", vec![40, 300]),
        ],
    )
    .unwrap()
}

/// Specs that cover every method and most switches.
const SPECS: &[&str] = &[
    "dense",
    "dense:values=bf16",
    "quantized",
    "quantized:bits=8,rounding=nearest",
    "topk",
    "topk:density=1",
    "topk:scope=layer,dense_one_dimensional=true,values=f16",
    "topk:momentum=0.9,exclude=fc.bias",
    "topk:momentum=0.9,nesterov=true,index=bitmap",
    "topk:momentum=0.9,masking=false",
    "topk:feedback=false",
    "topk:values=int4",
    "gaussian-k:density=0.01",
    "gaussian-k:density=0.01,values=int2,dense_one_dimensional=true",
    "gaussian-k:as_published=true",
    "redsync:density=0.01,dense_up_to=100",
    "redsync:density=0.01,dense_up_to=100,exact_up_to=500,trimmed_up_to=20000",
    "redsync:density=0.01,quantize=true,unquantized=out.*",
    "redsync:momentum=0.9,clip=0.25",
    "fft",
    "fft:feedback=false,index=bitmap,range=1,rounding=truncate,half_input=true",
    "fft:bits=0,block=0",
    "fft:theta=0,bits=0,exclude=fc.bias",
    "iwp",
    "iwp:threshold=0.5",
    "ar-topk:warmup=linear/5",
    "dgc",
    "dgc:as_published=true",
    "mstopk",
    "random-k",
    "random-k:feedback=false,density=0.7",
];

fn receive(compressor: &Compressor, frame: &[u8]) -> Vec<f32> {
    let mut aggregator = Aggregator::new(compressor.recipe(), compressor.bucket().clone()).unwrap();
    let mut output = vec![f32::NAN; compressor.bucket().len()];
    aggregator.sum(&mut Cpu::new(1), [frame], None, 1.0, &mut output).unwrap();
    output
}

#[test]
fn everything_can_be_handed_to_a_background_thread() {
    fn is_send<T: Send>() {}
    is_send::<Compressor>();
    is_send::<Aggregator>();
    is_send::<Cpu>();
}

#[test]
fn the_specs_cover_every_method() {
    // What auto chooses is one of the others.
    for method in METHODS.iter().filter(|method| method.name != "auto") {
        assert!(
            SPECS.iter().any(|spec| parse(spec).unwrap().spec.starts_with(method.name)),
            "{}",
            method.name
        );
    }
}

#[test]
fn nothing_is_lost() {
    let bucket = bucket();
    let weights = noise(bucket.len(), 99);
    for spec in SPECS {
        let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
        let lossless = matches!(compressor.recipe().values, ValuePlan::Fixed(ValueForm::F32));
        // The test makes its own clip factor from a norm summed in another order.
        let exact = lossless && !spec.starts_with("fft") && !spec.contains("clip");
        let dropped = spec.contains("quantize") || !compressor.recipe().feedback;
        let mut frame = Vec::new();
        for step in 0..12 {
            let gradient = noise(bucket.len(), step);
            let before = compressor.memory().clone();
            let progress = Progress { step, epoch: f64::INFINITY, ..Progress::default() };
            let input = Input { weights: Some(&weights), progress, ..Input::new(&gradient) };
            frame.clear();
            let report = compressor.compress(&mut Cpu::new(1), &input, &mut frame).unwrap();
            assert_eq!(report.frame_bytes, frame.len());
            let received = receive(&compressor, &frame);
            let after = &compressor.memory().residual;
            if dropped {
                continue;
            }
            let clip = if spec.contains("clip") { clipped(&gradient) } else { 1.0 };
            for i in 0..bucket.len() {
                let g = gradient[i] * clip;
                let due = match before.update {
                    Update::Add => before.residual[i] + g,
                    Update::HeavyBall(c) => before.residual[i] + (before.momentum[i] * c + g),
                    Update::Nesterov(c) => before.residual[i] + ((before.momentum[i] + g) * c + g),
                    Update::Keep | Update::Replace => unreachable!(),
                };
                let sum = received[i] + after[i];
                if exact {
                    assert_eq!(sum, due, "{spec}, step {step}, element {i}");
                    assert!(received[i] == 0.0 || after[i] == 0.0);
                } else {
                    assert!((sum - due).abs() < 1e-6, "{spec}, step {step}, element {i}: {sum} {due}");
                }
            }
        }
    }
}

fn clipped(gradient: &[f32]) -> f32 {
    let norm = gradient.iter().map(|&g| g as f64 * g as f64).sum::<f64>().sqrt();
    crate::memory::clip_factor(norm, 0.25, 1) as f32
}

#[test]
fn k_is_what_was_asked() {
    let bucket = bucket();
    let weights = noise(bucket.len(), 99);
    for spec in SPECS.iter().filter(|spec| !spec.contains("as_published") && !spec.contains("threshold=")) {
        let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
        for step in 0..8 {
            let gradient = noise(bucket.len(), step);
            let progress = Progress { step, epoch: f64::INFINITY, ..Progress::default() };
            let input = Input { weights: Some(&weights), progress, ..Input::new(&gradient) };
            let report = compressor.compress(&mut Cpu::new(1), &input, &mut Vec::new()).unwrap();
            if report.asked == 0 {
                assert_eq!(report.values, bucket.len(), "{spec}");
                continue;
            }
            let (low, high) = (window(report.asked).start() - 5, window(report.asked).end() + 5);
            assert!((low..=high).contains(&report.kept), "{spec}: {} of {}", report.kept, report.asked);
            assert!(report.gain() > 0.0 && report.gain() <= 1.0 + 1e-6, "{spec}: {}", report.gain());
        }
    }
}

#[test]
fn the_output_layer_is_not_quantised() {
    let plain = bucket();
    let marked = bucket().with_output(&["out.weight"]);
    let exact = |spec: &str, bucket: &Bucket| {
        let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
        let gradient = noise(bucket.len(), 1);
        let mut frame = Vec::new();
        compressor.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut frame).unwrap();
        let parsed = Frame::parse(&frame).unwrap();
        let sent: Vec<_> =
            parsed.sections().filter(|section| *section.value_form() == ValueForm::F32).collect();
        let named = sent.iter().map(|section| bucket.layer_at(section.start() as usize).0.name().to_owned());
        named.collect::<Vec<_>>()
    };
    let quantised = "redsync:density=0.01,quantize=true,dense_up_to=0,fuse_up_to=0";
    assert_eq!(exact(quantised, &plain), [""; 0]);
    assert_eq!(exact(quantised, &marked), ["out.weight"]);
    // Patterns take the place of the mark.
    assert_eq!(exact(&format!("{quantised},unquantized=fc.*"), &marked), ["fc.weight", "fc.bias"]);
    assert_eq!(exact(&format!("{quantised},unquantized=none"), &marked), [""; 0]);
}

#[test]
fn the_gain_is_that_of_what_receivers_read() {
    let bucket = bucket();
    let weights = noise(bucket.len(), 99);
    let more =
        ["fft:range=1", "fft:range=1,feedback=true", "topk:density=0.1,values=f16", "dense:values=f16"];
    // Nesterov's form accumulates more than the gradient.
    let specs = SPECS.iter().chain(&more).filter(|spec| !spec.contains("nesterov"));
    let cases = specs.flat_map(|spec| [(spec, 1.0), (spec, 200.0), (spec, 1e8)]);
    // An input that a half can't hold is not clipped.
    for (spec, scale) in cases.filter(|(spec, scale)| *scale < 1e8 || !spec.contains("half_input")) {
        let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
        let gradient: Vec<f32> = noise(bucket.len(), 1).iter().map(|x| x * scale).collect();
        let input = Input { weights: Some(&weights), ..Input::new(&gradient) };
        let mut frame = Vec::new();
        let report = compressor.compress(&mut Cpu::new(1), &input, &mut frame).unwrap();
        let clip = if spec.contains("clip") { clipped(&gradient) } else { 1.0 };
        let square = |x: f32| f64::from(x).powi(2);
        let energy: f64 = gradient.iter().map(|&g| square(g * clip)).sum();
        let received = receive(&compressor, &frame);
        let missed: f64 = gradient.iter().zip(&received).map(|(&g, &r)| square(g * clip - r)).sum();
        let (gain, expected) = (report.gain(), 1.0 - missed / energy);
        assert!((gain - expected.max(0.0)).abs() < 1e-3, "{spec}, scale {scale}: {gain} {expected}");
    }
}

#[test]
fn a_bad_gradient_is_reported_by_layer_and_leaves_the_memory_as_it_was() {
    let bucket = bucket();
    let weights = noise(bucket.len(), 99);
    for spec in SPECS {
        for (name, index) in [("conv1.weight", 7), ("fc.weight", 12_345), ("out.weight", 11_999)] {
            let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
            let gradient = noise(bucket.len(), 1);
            let input = Input { weights: Some(&weights), ..Input::new(&gradient) };
            let mut frame = Vec::new();
            compressor.compress(&mut Cpu::new(1), &input, &mut frame).unwrap();
            let (before, saved) = (compressor.memory().clone(), compressor.save().unwrap());
            let layer = bucket.layers().iter().find(|layer| layer.name() == name).unwrap();
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut poisoned = gradient.clone();
                poisoned[layer.range().start + index] = bad;
                let length = frame.len();
                let error = compressor
                    .compress(&mut Cpu::new(1), &Input { gradient: &poisoned, ..input }, &mut frame)
                    .unwrap_err();
                let Error::NonFinite { what: "gradient", layer: found, index: at, value } = &error else {
                    panic!("{spec}: {error}");
                };
                assert_eq!((found.as_str(), *at, value.is_nan()), (name, index, bad.is_nan()), "{spec}");
                assert_eq!(frame.len(), length, "nothing half written");
                assert_eq!(compressor.save().unwrap().selectors, saved.selectors, "{spec}: nothing learnt");
                let after = compressor.memory();
                if before.update != Update::Replace {
                    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
                    assert!(close(&after.residual, &before.residual), "{spec}");
                    assert!(close(&after.momentum, &before.momentum), "{spec}");
                }
            }
            frame.clear();
            compressor.compress(&mut Cpu::new(1), &input, &mut frame).unwrap();
        }
    }
}

#[test]
fn weights_are_asked_for_and_looked_at() {
    let bucket = bucket();
    let gradient = noise(bucket.len(), 1);
    let mut compressor = Compressor::new(parse("iwp").unwrap(), bucket.clone()).unwrap();
    let error = compressor.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut Vec::new()).unwrap_err();
    assert_eq!(error, Error::WeightsMissing { method: "iwp".into() });
    let mut weights = noise(bucket.len(), 2);
    weights[1000] = f32::NAN;
    let input = Input { weights: Some(&weights), ..Input::new(&gradient) };
    let error = compressor.compress(&mut Cpu::new(1), &input, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::NonFinite { what: "weights", index: 552, .. }), "{error}");
    let input = Input { weights: Some(&weights[1..]), ..Input::new(&gradient) };
    let error = compressor.compress(&mut Cpu::new(1), &input, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { what: "weights", .. }));
}

#[test]
fn a_layer_that_becomes_important_sends_more_at_the_expense_of_the_others() {
    let names = ["a", "b", "c", "d"];
    let bucket = Bucket::new(0, names.map(|name| (name, vec![100, 100]))).unwrap();
    let weights = noise(bucket.len(), 99);
    let mut compressor = Compressor::new(parse("iwp:density=0.02").unwrap(), bucket.clone()).unwrap();
    // By threshold: what each layer has sent, over its own 200, and averaged over ten steps.
    let mut sent = [[0.0; 4]; 4];
    for step in 0..40 {
        let mut gradient = noise(bucket.len(), step);
        if step >= 20 {
            gradient[10_000..20_000].iter_mut().for_each(|g| *g *= 3.0);
        }
        let progress = Progress { step, ..Input::new(&gradient).progress };
        let input = Input { weights: Some(&weights), progress, ..Input::new(&gradient) };
        let mut frame = Vec::new();
        let report = compressor.compress(&mut Cpu::new(1), &input, &mut frame).unwrap();
        assert_eq!(report.asked, 800);
        assert!(window(800).contains(&report.kept), "step {step}: {}", report.kept);
        let received = receive(&compressor, &frame);
        for (sent, layer) in sent[step as usize / 10].iter_mut().zip(bucket.layers()) {
            *sent += received[layer.range()].iter().filter(|&&value| value != 0.0).count() as f64 / 2000.0;
        }
    }
    assert!(sent[..2].as_flattened().iter().all(|sent| (0.7..1.4).contains(sent)), "{sent:?}");
    let [others, important] = [[0, 2, 3], [1; 3]].map(|layers| layers.map(|layer| sent[3][layer]));
    assert!(important[0] > 1.6 && others.iter().all(|&other| other > 0.2 && other < 0.9), "{sent:?}");
}

#[test]
fn a_restored_run_goes_on_with_the_same_bits() {
    let bucket = bucket();
    let weights = noise(bucket.len(), 99);
    let folder = tempfile::tempdir().unwrap();
    for spec in SPECS {
        let path = folder.path().join("state");
        let mut first = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
        let run = |compressor: &mut Compressor, steps: std::ops::Range<u64>| {
            let mut frames = Vec::new();
            for step in steps {
                let gradient = noise(bucket.len(), step);
                let progress = Progress { step, epoch: step as f64, ..Progress::default() };
                let input = Input { weights: Some(&weights), progress, ..Input::new(&gradient) };
                compressor.compress(&mut Cpu::new(1), &input, &mut frames).unwrap();
            }
            frames
        };
        run(&mut first, 0..7);
        first.save().unwrap().write(&path).unwrap();
        let mut second = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
        second.restore(&crate::memory::State::read(&path).unwrap()).unwrap();
        assert!(run(&mut first, 7..14) == run(&mut second, 7..14), "{spec}");
        assert_eq!(first.save().unwrap(), second.save().unwrap(), "{spec}");
    }
}

#[test]
fn without_feedback_there_is_nothing_to_save_or_to_send_again() {
    let bucket = Bucket::single("w", 8).unwrap();
    let gradient: Vec<f32> = (1..=8).map(|x| x as f32).collect();
    let spec = "topk:density=0.25,feedback=false";
    let mut without = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
    without.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut Vec::new()).unwrap();
    let state = without.save().unwrap();
    assert!(state.residual.is_empty());
    without.restore(&state).unwrap();
    let mut with = Compressor::new(parse("topk:density=0.25").unwrap(), bucket).unwrap();
    assert!(with.restore(&state).is_err(), "a method with feedback needs a residual");
}

#[test]
fn a_restored_compressor_forgets_what_it_had_learnt() {
    let bucket = bucket();
    let spec = "redsync:density=0.01,quantize=true";
    let mut used = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
    let fresh = used.save().unwrap();
    let gradient = noise(bucket.len(), 1);
    used.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut Vec::new()).unwrap();
    assert_ne!(used.save().unwrap().selectors, fresh.selectors);
    let without = crate::memory::State { selectors: Default::default(), ..fresh.clone() };
    used.restore(&without).unwrap();
    assert_eq!(used.save().unwrap(), fresh);
}

#[test]
fn clipping_does_not_erase_huge_gradients() {
    let bucket = Bucket::single("w", 64).unwrap();
    let mut compressor = Compressor::new(parse("topk:density=0.5,clip=1").unwrap(), bucket).unwrap();
    let gradient = [3e19; 64];
    let mut frame = Vec::new();
    compressor.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut frame).unwrap();
    let received = receive(&compressor, &frame);
    assert!((received[0] - 0.125).abs() < 1e-6, "{}", received[0]);
    for norm in [f64::INFINITY, f64::NAN] {
        let input = Input { norm: Some(norm), ..Input::new(&gradient) };
        let error = compressor.compress(&mut Cpu::new(1), &input, &mut frame).unwrap_err();
        assert!(error.to_string().contains("norm"), "{error}");
    }
}

#[test]
fn tiny_and_huge_gradients_keep_their_frequencies() {
    let bucket = Bucket::single("w", 1000).unwrap();
    for scale in [1e-28, 1e18] {
        let mut compressor = Compressor::new(parse("fft").unwrap(), bucket.clone()).unwrap();
        let gradient: Vec<f32> = noise(1000, 5).iter().map(|x| x * scale).collect();
        let report = compressor.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut Vec::new()).unwrap();
        assert_eq!((report.asked, report.kept), (75, 75), "scale {scale}");
    }
}

#[test]
fn frames_do_not_depend_on_the_number_of_threads() {
    let bucket = Bucket::new(0, [("a", vec![500, 400]), ("b", vec![150_000]), ("c", vec![3, 7])]).unwrap();
    let weights = noise(bucket.len(), 99);
    for spec in SPECS {
        let run = |threads| {
            let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
            let (mut cpu, mut frames) = (Cpu::new(threads), Vec::new());
            for step in 0..3 {
                let gradient = noise(bucket.len(), step);
                let progress = Progress { step, epoch: f64::INFINITY, ..Progress::default() };
                let input = Input { weights: Some(&weights), progress, ..Input::new(&gradient) };
                compressor.compress(&mut cpu, &input, &mut frames).unwrap();
            }
            frames
        };
        assert!(run(1) == run(3), "{spec}");
    }
}

#[test]
fn a_state_of_another_model_is_refused_whole() {
    let bucket = bucket();
    let mut compressor = Compressor::new(parse("topk").unwrap(), bucket.clone()).unwrap();
    let other = Bucket::new(0, [("conv1.weight", vec![3])]).unwrap();
    let state = Compressor::new(parse("topk").unwrap(), other).unwrap().save().unwrap();
    let error = compressor.restore(&state).unwrap_err().to_string();
    assert!(error.contains("residual/conv1.weight") && error.contains("432"), "{error}");
}

#[test]
fn a_warm_up_sends_dense_and_then_less() {
    let bucket = bucket();
    let spec = "redsync:density=0.01,warmup=dense/2";
    let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
    let gradient = noise(bucket.len(), 1);
    let mut kept_at = |epoch: f64| {
        let input = Input { progress: Progress { epoch, ..Progress::default() }, ..Input::new(&gradient) };
        compressor.compress(&mut Cpu::new(1), &input, &mut Vec::new()).unwrap()
    };
    assert_eq!(kept_at(0.0).values, bucket.len());
    assert_eq!(kept_at(1.9).kept, 0);
    assert!((400..450).contains(&kept_at(2.0).kept));
}

#[test]
fn a_local_momentum_keeps_out_of_full_steps_and_is_never_cleared() {
    let bucket = bucket();
    let recipe = parse("topk:density=0.01,momentum=0.9,masking=false,warmup=dense/2steps").unwrap();
    let mut compressor = Compressor::new(recipe, bucket.clone()).unwrap();
    let mut momentum = vec![0.0f32; bucket.len()];
    for step in 0..6 {
        let gradient = noise(bucket.len(), step);
        let progress = Progress { step, ..Progress::default() };
        let mut frame = Vec::new();
        compressor
            .compress(&mut Cpu::new(1), &Input { progress, ..Input::new(&gradient) }, &mut frame)
            .unwrap();
        if step < 2 {
            assert_eq!(receive(&compressor, &frame), gradient);
        } else {
            momentum
                .iter_mut()
                .zip(&gradient)
                .for_each(|(momentum, gradient)| *momentum = *momentum * 0.9 + gradient);
        }
        assert_eq!(compressor.memory().momentum, momentum);
    }
}

#[test]
fn theta_zero_without_quantising_is_the_identity() {
    let bucket = bucket();
    let mut compressor = Compressor::new(parse("fft:theta=0,bits=0").unwrap(), bucket.clone()).unwrap();
    let gradient = noise(bucket.len(), 1);
    let mut frame = Vec::new();
    compressor.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut frame).unwrap();
    let received = receive(&compressor, &frame);
    assert!(received.iter().zip(&gradient).all(|(a, b)| (a - b).abs() < 1e-7));
}

#[test]
fn frequencies_of_several_ranks_are_summed_before_one_inverse() {
    let bucket = bucket();
    let mut sum = vec![0.0f32; bucket.len()];
    let mut frames = Vec::new();
    let mut recipe = None;
    for rank in 0..3 {
        let mut compressor = Compressor::new(parse("fft").unwrap(), bucket.clone()).unwrap();
        let gradient = noise(bucket.len(), rank);
        let mut frame = Vec::new();
        compressor.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut frame).unwrap();
        receive(&compressor, &frame).iter().zip(&mut sum).for_each(|(x, sum)| *sum += x / 3.0);
        frames.push(frame);
        recipe = Some(parse("fft").unwrap());
    }
    let mut aggregator = Aggregator::new(&recipe.unwrap(), bucket.clone()).unwrap();
    let mut mean = vec![0.0; bucket.len()];
    aggregator.sum(&mut Cpu::new(1), frames.iter().map(|f| &f[..]), None, 1.0 / 3.0, &mut mean).unwrap();
    assert!(mean.iter().zip(&sum).all(|(a, b)| (a - b).abs() < 1e-7));
}

#[test]
fn a_frame_of_another_step_bucket_or_method_is_refused() {
    let bucket = bucket();
    let mut compressor = Compressor::new(parse("topk").unwrap(), bucket.clone()).unwrap();
    let gradient = noise(bucket.len(), 1);
    let mut frame = Vec::new();
    compressor.compress(&mut Cpu::new(1), &Input { plan: 4, ..Input::new(&gradient) }, &mut frame).unwrap();
    let right = *Frame::parse(&frame).unwrap().header();
    assert_eq!(right, Header { step: 0, plan: 4, bucket: 3, elements: bucket.len() as u32 });
    let mut aggregator = Aggregator::new(compressor.recipe(), bucket.clone()).unwrap();
    let mut output = vec![1.0; bucket.len()];
    let error = aggregator
        .sum(&mut Cpu::new(1), [&frame[..]], Some(&Header { step: 9, ..right }), 1.0, &mut output)
        .unwrap_err();
    assert_eq!(error, Error::OutOfStep { field: "step", found: 0, expected: 9 });
    assert!(output.iter().all(|&x| x == 0.0));
    let shorter = Bucket::single("w", 10).unwrap();
    let mut aggregator = Aggregator::new(compressor.recipe(), shorter).unwrap();
    assert!(aggregator.sum(&mut Cpu::new(1), [&frame[..]], None, 1.0, &mut [0.0; 10]).is_err());
    let mut fft = Compressor::new(parse("fft").unwrap(), bucket.clone()).unwrap();
    frame.clear();
    fft.compress(&mut Cpu::new(1), &Input::new(&gradient), &mut frame).unwrap();
    let mut aggregator = Aggregator::new(compressor.recipe(), bucket.clone()).unwrap();
    let error = aggregator.sum(&mut Cpu::new(1), [&frame[..]], None, 1.0, &mut output).unwrap_err();
    assert!(error.to_string().contains("frequencies"), "{error}");
}

#[test]
fn odd_buckets_work_too() {
    for len in [0, 1, 2, 3, 17] {
        let bucket = Bucket::single("w", len).unwrap();
        let gradient = noise(len, 1);
        for spec in SPECS {
            let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
            let input = Input { weights: Some(&gradient), ..Input::new(&gradient) };
            let mut frame = Vec::new();
            compressor.compress(&mut Cpu::new(1), &input, &mut frame).unwrap();
            assert_eq!(receive(&compressor, &frame).len(), len, "{spec}");
        }
    }
}

#[test]
fn a_spectrum_that_overflows_is_an_error_and_leaves_the_memory_as_it_was() {
    let bucket = Bucket::single("w", 5000).unwrap();
    let mut compressor = Compressor::new(parse("fft").unwrap(), bucket).unwrap();
    let mut frame = Vec::new();
    let input = vec![3e38; 5000];
    let error = compressor.compress(&mut Cpu::new(1), &Input::new(&input), &mut frame).unwrap_err();
    assert!(matches!(error, Error::NonFinite { what: "the spectrum of the gradient", .. }), "{error}");
    assert!(frame.is_empty() && compressor.memory().residual.iter().all(|&r| r == 0.0));
}

proptest::proptest! {
    /// Any finite gradient, however extreme, gives a frame that decodes or an error; and after an error the
    /// compressor works on.
    #[test]
    fn extreme_gradients_never_panic(
        values in proptest::collection::vec(
            proptest::num::f32::NORMAL | proptest::num::f32::SUBNORMAL | proptest::num::f32::ZERO,
            1..300,
        ),
        spec in proptest::sample::select(SPECS),
        scale in proptest::sample::select(&[1.0f32, 1e-30, 1e-10][..]),
    ) {
        let bucket = Bucket::new(0, [("a", vec![values.len() / 2]), ("b", vec![1, values.len().div_ceil(2)])]).unwrap();
        let mut compressor = Compressor::new(parse(spec).unwrap(), bucket.clone()).unwrap();
        let mut cpu = Cpu::new(1);
        for step in 0..4 {
            let gradient: Vec<f32> = values.iter().map(|x| x * scale * if step == 3 { 1e-30 } else { 1.0 }).collect();
            let weights: Vec<f32> = values.iter().rev().copied().collect();
            let progress = Progress { step, epoch: f64::INFINITY, ..Progress::default() };
            let input = Input { weights: Some(&weights), progress, ..Input::new(&gradient) };
            let mut frame = Vec::new();
            match compressor.compress(&mut cpu, &input, &mut frame) {
                Ok(report) => {
                    proptest::prop_assert!(report.kept <= bucket.len());
                    proptest::prop_assert_eq!(receive(&compressor, &frame).len(), bucket.len());
                }
                // Quantised values end at 8e37.
                Err(error) => proptest::prop_assert!(
                    matches!(error, Error::NonFinite { .. } | Error::BadValues { form: "quantized", .. }),
                    "{}: {}",
                    spec,
                    error
                ),
            }
        }
    }
}
