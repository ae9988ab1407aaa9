use super::*;
use crate::kernels::{Fault, Guess, Kernels, List, Update, Walk};
use crate::select::Survey;

const SETS: &[InstructionSet] = &[
    InstructionSet::Portable,
    #[cfg(target_arch = "x86_64")]
    InstructionSet::Avx2,
    #[cfg(target_arch = "x86_64")]
    InstructionSet::Avx512,
];

fn sets() -> impl Iterator<Item = InstructionSet> {
    let best = SETS.iter().position(|&set| set == InstructionSet::detect()).unwrap();
    SETS[..=best].iter().copied()
}

fn cpu(set: InstructionSet, threads: usize) -> Cpu {
    Cpu { set, ..Cpu::new(threads) }
}

/// Reproducible, roughly normal numbers with a heavy tail here and there.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..len)
        .map(|_| {
            let x = uniform() + uniform() + uniform() - 1.5;
            if uniform() > 0.99 { x * 10.0 } else { x }
        })
        .collect()
}

fn plain_update(update: Update, scale: f32, g: f32, r: f32, m: f32) -> (f32, f32) {
    let g = g * scale;
    match update {
        Update::Keep => (r, m),
        Update::Add => (r + g, m),
        Update::Replace => (g, m),
        Update::HeavyBall(c) => (r + (m * c + g), m * c + g),
        Update::Nesterov(c) => (r + ((m + g) * c + g), (m + g) * c),
    }
}

fn plain_score(score: Score, u: f32, w: f32) -> f32 {
    match score {
        Score::Magnitude => u.abs(),
        Score::Positive => u.max(0.0),
        Score::Negative => (-u).max(0.0),
        Score::Relative { guard } => u.abs() / w.abs().max(guard),
    }
}

#[test]
fn a_step_equals_its_plain_definition_on_every_set_and_thread_count() {
    let updates = [Update::Keep, Update::Add, Update::Replace, Update::HeavyBall(0.9), Update::Nesterov(0.5)];
    let scores = [Score::Magnitude, Score::Positive, Score::Negative, Score::Relative { guard: 0.1 }];
    for (case, (&update, &score)) in
        updates.iter().flat_map(|u| scores.iter().map(move |s| (u, s))).enumerate()
    {
        for len in [1, 2, 15, 16, 17, 63, 64, 65, 4095, 4097, 70_001] {
            let (gradient, weights) = (noise(len, 1 + case as u64), noise(len, 77));
            let (before, moments) = (noise(len, 5), noise(len, 6));
            let k = len.div_ceil(10);
            // The definition: make every element, sort all of them.
            let made: Vec<(f32, f32)> =
                (0..len).map(|i| plain_update(update, 0.5, gradient[i], before[i], moments[i])).collect();
            let scored: Vec<f32> = (0..len).map(|i| plain_score(score, made[i].0, weights[i])).collect();
            let mut order: Vec<usize> = (0..len).filter(|&i| scored[i] > 0.0).collect();
            order.sort_by(|&a, &b| scored[b].total_cmp(&scored[a]).then(a.cmp(&b)));
            order.truncate(k);
            order.sort();
            let mut statistics: Option<Statistics> = None;
            for set in sets() {
                for threads in [1, 3] {
                    let mut cpu = cpu(set, threads);
                    let (mut residual, mut momentum) = (before.clone(), moments.clone());
                    let (mut positions, mut values) = (Vec::new(), Vec::new());
                    let mut guess = Guess::default();
                    let walk = Walk {
                        momentum: Some(&mut momentum),
                        weights: Some(&weights[..]),
                        update,
                        scale: 0.5,
                        score,
                        ..Walk::new(&gradient[..], &mut residual)
                    };
                    let whole = [0..len];
                    let mut survey = cpu.survey(walk, &whole, k, &mut guess).unwrap();
                    let measured = survey.statistics();
                    survey.keep_top(k);
                    Cpu::finish(survey, &mut positions, &mut values).unwrap();
                    cpu.clear(positions.all(), &mut residual).unwrap();
                    cpu.clear(positions.all(), &mut momentum).unwrap();
                    assert!(positions.iter().map(|&p| p as usize).eq(order.iter().copied()));
                    assert!(values.iter().zip(&order).all(|(v, &i)| v.to_bits() == made[i].0.to_bits()));
                    for i in 0..len {
                        let chosen = order.binary_search(&i).is_ok();
                        assert_eq!(residual[i].to_bits(), if chosen { 0 } else { made[i].0.to_bits() });
                        assert_eq!(momentum[i], if chosen { 0.0 } else { made[i].1 });
                    }
                    assert_eq!(*statistics.get_or_insert(measured), measured, "same bits everywhere");
                }
            }
            let statistics = statistics.unwrap();
            let sum: f64 = made.iter().map(|&(u, _)| u as f64).sum();
            let squares: f64 = made.iter().map(|&(u, _)| (u as f64).powi(2)).sum();
            assert!((statistics.sum - sum).abs() <= 1e-5 * len as f64);
            assert!((statistics.sum_squares - squares).abs() <= 1e-5 * squares);
            assert_eq!(statistics.max, made.iter().fold(0f32, |a, &(u, _)| a.max(u)));
            assert_eq!(statistics.min, made.iter().fold(0f32, |a, &(u, _)| a.min(u)));
        }
    }
}

#[test]
fn a_wrong_guess_costs_time_and_never_the_result() {
    let len = 100_000;
    let gradient = noise(len, 3);
    let whole = [0..len];
    let run = |floor: f32, k: usize| {
        let mut cpu = Cpu::new(1);
        let mut residual = vec![0.0; len];
        let mut guess = Guess { floor, ..Guess::default() };
        let walk = Walk::new(&gradient[..], &mut residual);
        let (mut positions, mut values) = (Vec::new(), Vec::new());
        let mut survey = cpu.survey(walk, &whole, k, &mut guess).unwrap();
        survey.keep_top(k);
        Cpu::finish(survey, &mut positions, &mut values).unwrap();
        cpu.clear(positions.all(), &mut residual).unwrap();
        (positions, values, residual)
    };
    for k in [1, 100, 5_000, len] {
        let right = run(0.0, k);
        assert_eq!(right.0.len(), k.min(gradient.iter().filter(|&&x| x != 0.0).count()));
        for floor in [1e-30, 0.5, 1.0, 5.0, 1e30] {
            assert_eq!(run(floor, k), right, "floor {floor}, k {k}");
        }
    }
}

#[test]
fn a_non_finite_value_is_found_first_and_the_memory_is_put_back() {
    let len = 600_000;
    let clean = noise(len, 9);
    let (before, moments) = (noise(len, 10), noise(len, 11));
    let whole = [0..len];
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 17, 300_001, len - 1] {
            for update in [Update::Add, Update::HeavyBall(0.9), Update::Nesterov(0.9)] {
                for threads in [1, 2] {
                    let mut gradient = clean.clone();
                    gradient[at] = bad;
                    if at + 5 < len {
                        gradient[at + 5] = f32::NAN;
                    }
                    let (mut residual, mut momentum) = (before.clone(), moments.clone());
                    let mut guess = Guess::default();
                    let walk = Walk {
                        momentum: Some(&mut momentum),
                        update,
                        score: Score::Positive,
                        ..Walk::new(&gradient[..], &mut residual)
                    };
                    let found = Cpu::new(threads).survey(walk, &whole, 10, &mut guess).unwrap_err();
                    let Fault::NonFinite(found) = found else { panic!("{found}") };
                    assert_eq!(found.position, at);
                    assert_eq!(found.value.to_bits() & 0x7fff_ffff, bad.to_bits() & 0x7fff_ffff);
                    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
                    assert!(close(&residual, &before) && close(&momentum, &moments));
                }
            }
        }
    }
}

#[test]
fn a_sum_that_overflows_is_an_error_too() {
    let mut residual = vec![f32::MAX];
    let walk = Walk::new(&[f32::MAX][..], &mut residual);
    let mut guess = Guess::default();
    let mut cpu = Cpu::new(1);
    let found = cpu.survey(walk, &[0..1], 1, &mut guess).unwrap_err();
    assert_eq!(found, NonFinite { position: 0, value: f32::INFINITY }.into());
    assert_eq!(residual, [f32::MAX]);
}

proptest::proptest! {
    /// Whatever the values, the floor guessed, the quota and the number of threads: what a full sort gives.
    #[test]
    fn exact_top_k_equals_a_full_sort(
        values in proptest::collection::vec(proptest::num::f32::NORMAL | proptest::num::f32::SUBNORMAL | proptest::num::f32::ZERO, 1..3000),
        copies in 1usize..50,
        share in 0.0f64..=1.0,
        expect_share in 0.0f64..=1.0,
        floor in proptest::num::f32::POSITIVE | proptest::num::f32::ZERO,
        threads in 1usize..4,
    ) {
        // Copies make ties and lengths beyond what one thread takes.
        let gradient: Vec<f32> = values.iter().map(|x| x / 4.0).cycle().take(values.len() * copies).collect();
        let len = gradient.len();
        let k = ((len as f64 * share) as usize).max(1);
        let mut order: Vec<u32> = (0..len as u32).filter(|&i| gradient[i as usize] != 0.0).collect();
        order.sort_by(|&a, &b| gradient[b as usize].abs().total_cmp(&gradient[a as usize].abs()).then(a.cmp(&b)));
        order.truncate(k);
        order.sort();
        let mut residual = vec![0.0; len];
        let walk = Walk::new(&gradient[..], &mut residual);
        let mut guess = Guess { floor, ..Guess::default() };
        let mut cpu = Cpu::new(threads);
        let whole = [0..len];
        let expect = (k as f64 * expect_share) as usize;
        let mut survey = cpu.survey(walk, &whole, expect, &mut guess).unwrap();
        survey.keep_top(k);
        let (mut positions, mut kept) = (Vec::new(), Vec::new());
        Cpu::finish(survey, &mut positions, &mut kept).unwrap();
        proptest::prop_assert_eq!(positions, order);
    }
}
