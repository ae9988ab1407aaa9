//! Walks and selectors.

use std::ops::Range;
use std::sync::Arc;

use thinwire::kernels::cuda::{Buffer, Cuda, Device, Element, Gradient};
use thinwire::kernels::{Cpu, Fault, Guess, Kernels, Statistics, Update, Walk};
use thinwire::select::{
    BySize, DgcSampling, Exact, GaussianK, Importance, MsTopk, RandomK, Select, ThresholdSearch, Trimmed,
};

use super::data::{Noise, assert_same};

/// Kernels on one device for all of a test, so that they are loaded once.
fn cuda() -> Cuda {
    thread_local! {
        static DEVICE: Arc<Device> = Device::open(0).unwrap();
    }
    Cuda::on(DEVICE.with(Arc::clone)).unwrap()
}

/// What a step of one unit came to.
#[derive(Debug)]
struct Step {
    outcome: Result<Statistics, Fault>,
    positions: Vec<u32>,
    values: Vec<f32>,
    residual: Vec<f32>,
    momentum: Vec<f32>,
}

/// What a step works on.
struct Setting<'a> {
    gradient: &'a [f32],
    weights: &'a [f32],
    ranges: &'a [Range<usize>],
    update: Update,
    scale: f32,
    k: usize,
    step: u64,
}

fn mean_weight<K: Kernels>(
    kernels: &mut K,
    weights: &K::Gradient,
    ranges: &[Range<usize>],
    selector: &dyn Select,
) -> f64 {
    let sample = Importance::weight_sample(ranges);
    if selector.needs_weights() {
        kernels.statistics(weights, &sample).unwrap().mean_magnitude()
    } else {
        0.0
    }
}

/// One side, CPU or GPU, with its memory.
struct Side<K: Kernels> {
    kernels: K,
    residual: K::Vector,
    momentum: K::Vector,
    guess: Guess,
    selector: Box<dyn Select>,
}

impl<K: Kernels> Side<K> {
    fn new(mut kernels: K, len: usize, selector: &dyn Select) -> Side<K> {
        let (residual, momentum) = (kernels.zeros(len).unwrap(), kernels.zeros(len).unwrap());
        Side { kernels, residual, momentum, guess: Guess::default(), selector: selector.fresh() }
    }

    fn step(
        &mut self,
        setting: &Setting<'_>,
        gradient: &K::Gradient,
        weights: &K::Gradient,
        read: impl Fn(&mut K, K::Positions, K::Values) -> (Vec<u32>, Vec<f32>),
    ) -> Step {
        use thinwire::kernels::{List, Vector};
        let &Setting { ranges, update, scale, k, step, .. } = setting;
        let Side { kernels, residual, momentum, guess, selector } = self;
        let mean_weight = mean_weight(kernels, weights, ranges, selector.as_ref());
        let score = selector.score(mean_weight);
        let (mut positions, mut values) = (kernels.positions(), kernels.values());
        let walk = Walk {
            momentum: Some(&mut *momentum),
            weights: Some(weights),
            update,
            scale,
            score,
            ..Walk::new(gradient, &mut *residual)
        };
        let outcome = match kernels.survey(walk, ranges, selector.expect(k), guess) {
            Err(fault) => Err(fault),
            Ok(mut survey) => {
                selector.select(&mut survey, k, step);
                K::finish(survey, &mut positions, &mut values)
            }
        };
        if outcome.is_ok() {
            selector.commit();
            kernels.clear(positions.all(), residual).unwrap();
        } else {
            positions.truncate(0);
            values.truncate(0);
        }
        let (positions, values) = read(kernels, positions, values);
        let len = residual.len();
        Step {
            outcome,
            positions,
            values,
            residual: residual.read(0..len).unwrap(),
            momentum: momentum.read(0..len).unwrap(),
        }
    }
}

fn read_device(
    cuda: &mut Cuda,
    positions: <Cuda as Kernels>::Positions,
    mut values: <Cuda as Kernels>::Values,
) -> (Vec<u32>, Vec<f32>) {
    (positions.to_vec().unwrap(), cuda.on_host(&mut values).unwrap().to_vec())
}

/// Runs several steps on both sides and compares everything.
fn compare(what: &str, selector: &dyn Select, len: usize, steps: &[Setting<'_>]) {
    let mut cpu = Side::new(Cpu::new(1), len, selector);
    let mut cuda = Side::new(cuda(), len, selector);
    for (number, setting) in steps.iter().enumerate() {
        let device = cuda.kernels.device().clone();
        let (gradient, weights) =
            (Buffer::of(&device, setting.gradient).unwrap(), Buffer::of(&device, setting.weights).unwrap());
        let expected =
            cpu.step(setting, setting.gradient, setting.weights, |_, positions, values| (positions, values));
        let found = cuda.step(setting, &Gradient::of(&gradient), &Gradient::of(&weights), read_device);
        let what = format!("{what}, {len} elements, k {}, step {number}", setting.k);
        assert_eq!(found.outcome, expected.outcome, "{what}");
        if let Some(i) = (0..found.positions.len().max(expected.positions.len()))
            .find(|&i| found.positions.get(i) != expected.positions.get(i))
        {
            panic!(
                "{what}: position {i} is {:?} of {}; expected {:?} of {}",
                found.positions.get(i),
                found.positions.len(),
                expected.positions.get(i),
                expected.positions.len()
            );
        }
        assert_same(&found.values, &expected.values, &format!("{what}: values"));
        if expected.outcome.is_ok() {
            assert_same(&found.residual, &expected.residual, &format!("{what}: residual"));
            assert_same(&found.momentum, &expected.momentum, &format!("{what}: momentum"));
        }
    }
}

fn selectors() -> Vec<(&'static str, Box<dyn Select>)> {
    let small = |alternate| {
        let mut by_size = BySize::new(alternate);
        (by_size.exact_up_to, by_size.trimmed_up_to) = (1000, 20_000);
        by_size
    };
    vec![
        ("exact", Box::new(Exact)),
        ("gaussian-k", Box::new(GaussianK::default())),
        ("gaussian-k as published", Box::new(GaussianK { as_published: true })),
        ("trimmed", Box::new(Trimmed::default())),
        ("threshold search", Box::new(ThresholdSearch::default())),
        ("by size", Box::new(small(false))),
        ("by size, one sign", Box::new(small(true))),
        ("importance", Box::new(Importance::default())),
        ("dgc", Box::new(DgcSampling::default())),
        ("mstopk", Box::new(MsTopk::default())),
        ("mstopk as published", Box::new(MsTopk { as_published: true, ..MsTopk::default() })),
        ("random-k", Box::new(RandomK::default())),
    ]
}

/// The whole vector, or a few ranges of it.
fn ranges(noise: &mut Noise, len: usize) -> Vec<Range<usize>> {
    if noise.below(2) == 0 || len < 8 {
        return vec![0..len];
    }
    let mut cuts: Vec<usize> = (0..6).map(|_| noise.below(len)).collect();
    cuts.sort();
    cuts.dedup();
    let ranges: Vec<Range<usize>> = cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
    if ranges.is_empty() { vec![0..len] } else { ranges }
}

const SIZES: &[usize] = &[1, 2, 15, 16, 17, 255, 4095, 4096, 4097, 65_537, 262_144, 300_001, 1_000_003];

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn every_selector_chooses_the_same_elements() {
    let mut noise = Noise::fresh();
    for (name, selector) in selectors() {
        for &len in SIZES {
            let ranges = ranges(&mut noise, len);
            let elements: usize = ranges.iter().map(Range::len).sum();
            let density = [0.001, 0.01, 0.15, 1.0][noise.below(4)];
            let k = selector.quota(elements, density);
            let weights = noise.normal(len);
            let gradients: Vec<Vec<f32>> = (0..4).map(|_| noise.normal(len)).collect();
            let steps: Vec<Setting<'_>> = gradients
                .iter()
                .enumerate()
                .map(|(step, gradient)| Setting {
                    gradient,
                    weights: &weights,
                    ranges: &ranges,
                    update: Update::Add,
                    scale: 1.0,
                    k,
                    step: step as u64,
                })
                .collect();
            compare(name, selector.as_ref(), len, &steps);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn hostile_vectors_are_chosen_from_alike() {
    let mut noise = Noise::fresh();
    for (name, selector) in selectors() {
        for &len in &[1usize, 17, 5000, 100_000, 400_003] {
            for _ in 0..6 {
                let k = selector.quota(len, [0.001, 0.02, 0.5][noise.below(3)]);
                let weights = noise.normal(len);
                let gradients: Vec<(&str, Vec<f32>)> = (0..3).map(|_| noise.hostile(len)).collect();
                let whole = [0..len];
                let kinds: Vec<&str> = gradients.iter().map(|(kind, _)| *kind).collect();
                let steps: Vec<Setting<'_>> = gradients
                    .iter()
                    .enumerate()
                    .map(|(step, (_, gradient))| Setting {
                        gradient,
                        weights: &weights,
                        ranges: &whole,
                        update: Update::Add,
                        scale: 1.0,
                        k,
                        step: step as u64,
                    })
                    .collect();
                compare(&format!("{name} of {kinds:?}"), selector.as_ref(), len, &steps);
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn every_update_enters_the_memory_alike() {
    let mut noise = Noise::fresh();
    for update in
        [Update::Add, Update::Replace, Update::HeavyBall(0.9), Update::Nesterov(0.5), Update::HeavyBall(0.0)]
    {
        for &len in SIZES {
            for selector in [&Exact as &dyn Select, &Importance::default()] {
                let ranges = ranges(&mut noise, len);
                let k = selector.quota(len, 0.01);
                let weights = noise.normal(len);
                let gradients: Vec<Vec<f32>> = (0..3).map(|_| noise.normal(len)).collect();
                let steps: Vec<Setting<'_>> = gradients
                    .iter()
                    .enumerate()
                    .map(|(step, gradient)| Setting {
                        gradient,
                        weights: &weights,
                        ranges: &ranges,
                        update,
                        scale: 0.37,
                        k,
                        step: step as u64,
                    })
                    .collect();
                compare(&format!("{update:?}"), selector, len, &steps);
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn a_wrong_guess_costs_time_and_never_the_result() {
    let mut noise = Noise::fresh();
    let len = 500_000;
    let gradient = noise.normal(len);
    for k in [1usize, 500, 50_000, len] {
        for floor in [0.0, 1e-30, 0.5, 1.0, 5.0, 1e30] {
            let setting = Setting {
                gradient: &gradient,
                weights: &gradient,
                ranges: &[0..len],
                update: Update::Add,
                scale: 1.0,
                k,
                step: 0,
            };
            let mut cpu = Side::new(Cpu::new(1), len, &Exact);
            let mut cuda = Side::new(cuda(), len, &Exact);
            cuda.guess.floor = floor;
            let device = cuda.kernels.device().clone();
            let on_device = Buffer::of(&device, &gradient).unwrap();
            let expected =
                cpu.step(&setting, &gradient, &gradient, |_, positions, values| (positions, values));
            let found =
                cuda.step(&setting, &Gradient::of(&on_device), &Gradient::of(&on_device), read_device);
            assert!(found.positions == expected.positions, "floor {floor}, k {k}");
            assert_same(&found.residual, &expected.residual, &format!("floor {floor}, k {k}"));
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn a_non_finite_value_is_found_first_and_never_enters() {
    let mut noise = Noise::fresh();
    let len = 600_000;
    for update in [Update::Add, Update::HeavyBall(0.9), Update::Nesterov(0.9)] {
        for selector in [&Exact as &dyn Select, &GaussianK::default(), &RandomK::default()] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let (first, second) = (noise.normal(len), noise.normal(len));
                let mut damaged = noise.normal(len);
                let at = noise.below(len);
                damaged[at] = bad;
                damaged[len - 1] = f32::NAN;
                let mut cuda = Side::new(cuda(), len, selector);
                let device = cuda.kernels.device().clone();
                let mut run = |gradient: &[f32]| {
                    let setting = Setting {
                        gradient,
                        weights: gradient,
                        ranges: &[0..len],
                        update,
                        scale: 1.0,
                        k: 600,
                        step: 0,
                    };
                    let on_device = Buffer::of(&device, gradient).unwrap();
                    cuda.step(&setting, &Gradient::of(&on_device), &Gradient::of(&on_device), read_device)
                };
                let before = run(&first);
                let found = run(&damaged);
                let Err(Fault::NonFinite(where_)) = &found.outcome else { panic!("{:?}", found.outcome) };
                assert_eq!(where_.position, at.min(len - 1));
                assert!(where_.value.is_nan() == bad.is_nan() || at == len - 1);
                for (after, before) in found
                    .residual
                    .iter()
                    .zip(&before.residual)
                    .chain(found.momentum.iter().zip(&before.momentum))
                {
                    assert!(
                        after.is_finite() && (after - before).abs() <= 1e-4 * (1.0 + before.abs()),
                        "{after} {before}"
                    );
                }
                assert!(run(&second).outcome.is_ok());
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn half_width_gradients_are_read_in_place() {
    let mut noise = Noise::fresh();
    for element in [Element::F16, Element::Bf16] {
        for &len in SIZES {
            let words: Vec<u16> = noise
                .normal(len)
                .iter()
                .map(|&x| {
                    if element == Element::F16 {
                        half::f16::from_f32(x).to_bits()
                    } else {
                        half::bf16::from_f32(x).to_bits()
                    }
                })
                .collect();
            let widened: Vec<f32> = words
                .iter()
                .map(|&bits| {
                    if element == Element::F16 {
                        half::f16::from_bits(bits).to_f32()
                    } else {
                        half::bf16::from_bits(bits).to_f32()
                    }
                })
                .collect();
            let setting = Setting {
                gradient: &widened,
                weights: &widened,
                ranges: &[0..len],
                update: Update::Add,
                scale: 1.5,
                k: len.div_ceil(100),
                step: 0,
            };
            let mut cpu = Side::new(Cpu::new(1), len, &Exact);
            let mut cuda = Side::new(cuda(), len, &Exact);
            let device = cuda.kernels.device().clone();
            let memory = Buffer::of(&device, &words).unwrap();
            // SAFETY: the buffer holds as many such numbers, and stays.
            let gradient = unsafe { Gradient::new(memory.address(), len, element, None) }.unwrap();
            for _ in 0..2 {
                let expected =
                    cpu.step(&setting, &widened, &widened, |_, positions, values| (positions, values));
                let found = cuda.step(&setting, &gradient, &gradient, read_device);
                assert_eq!(found.outcome, expected.outcome);
                assert!(found.positions == expected.positions);
                assert_same(&found.residual, &expected.residual, element.name());
            }
        }
    }
}
