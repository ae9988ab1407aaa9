//! Every selector on friendly and hostile inputs, against the contract and against the plain survey.

use super::plain::PlainSurvey;

use super::*;
use crate::kernels::{Cpu, Guess, Kernels, List, Walk};

fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    (mix(*state) >> 11) as f64 / (1u64 << 53) as f64
}

fn normal(state: &mut u64) -> f64 {
    normal_quantile(uniform(state).clamp(1e-15, 1.0 - 1e-15))
}

/// Named inputs of any length: those of the papers, and those that broke their code.
fn inputs(len: usize, seed: u64) -> Vec<(&'static str, Vec<f32>)> {
    let mut state = seed;
    let mut make = |f: &mut dyn FnMut(&mut u64, usize) -> f64| {
        (0..len).map(|i| f(&mut state, i) as f32).collect::<Vec<f32>>()
    };
    vec![
        ("normal", make(&mut |s, _| normal(s))),
        ("laplace", make(&mut |s, _| (uniform(s) - 0.5).signum() * -(uniform(s) + 1e-12).ln())),
        (
            "student t3",
            make(&mut |s, _| {
                let chi = (0..3).map(|_| normal(s).powi(2)).sum::<f64>();
                normal(s) / (chi / 3.0).sqrt().max(1e-6)
            }),
        ),
        ("mostly zero", make(&mut |s, _| if uniform(s) < 0.05 { normal(s) } else { 0.0 })),
        ("one outlier", make(&mut |s, i| if i == len / 2 { 1e4 } else { normal(s) })),
        ("uniform", make(&mut |s, _| uniform(s) * 2.0 - 1.0)),
        ("zeros", vec![0.0; len]),
        ("constant", vec![-0.5; len]),
        ("two levels", make(&mut |s, _| if uniform(s) < 0.5 { 1.0 } else { -2.0 })),
        ("denormals", make(&mut |s, _| normal(s) * 1e-41)),
        ("huge", make(&mut |s, _| normal(s).clamp(-1.0, 1.0) * 3e38)),
        ("negative mean", make(&mut |s, _| normal(s) * 0.01 - 1.0)),
        ("rising", make(&mut |_, i| i as f64)),
        ("falling", make(&mut |_, i| (len - i) as f64)),
        ("one element", make(&mut |_, i| if i == len / 3 { 1e-30 } else { 0.0 })),
    ]
}

fn published_search() -> ThresholdSearch {
    let mut selector = ThresholdSearch::default();
    selector.as_published = true;
    selector
}

fn selectors() -> Vec<(&'static str, Box<dyn Select>)> {
    let mut small = BySize::new(false);
    (small.exact_up_to, small.trimmed_up_to) = (100, 2_000);
    vec![
        ("exact", Box::new(Exact)),
        ("gaussian-k", Box::new(GaussianK::default())),
        ("trimmed", Box::new(Trimmed::default())),
        ("threshold search", Box::new(ThresholdSearch::default())),
        ("by size", Box::new(BySize::new(false))),
        ("by size, exact and trimmed small", Box::new(small)),
        ("dgc", Box::new(DgcSampling::new(false))),
        ("importance", Box::new(Importance::default())),
        ("mstopk", Box::new(MsTopk::default())),
    ]
}

fn published() -> Vec<(&'static str, Box<dyn Select>)> {
    vec![
        ("gaussian-k", Box::new(GaussianK { as_published: true })),
        ("threshold search", Box::new(published_search())),
        ("dgc", Box::new(DgcSampling::new(true))),
        ("mstopk", Box::new(MsTopk { as_published: true, ..MsTopk::default() })),
    ]
}

/// Runs a selector on the CPU kernels for several steps with residual, checking each step against the
/// contract and against the same selector over the plain survey.
fn check(name: &str, selector: &dyn Select, input: &str, gradient: &[f32], density: f64, hold: bool) {
    let len = gradient.len();
    let context = || format!("{name} on {input}, {len} elements, density {density}");
    let k = selector.quota(len, density);
    let (mut on_cpu, mut by_definition) = (selector.fresh(), selector.fresh());
    let mut cpu = Cpu::new(1);
    let mut guess = Guess::default();
    let mut residual = vec![0.0f32; len];
    let whole = [0..len];
    let (mut positions, mut values) = (Vec::new(), Vec::new());
    // Weights of one: importance is then the magnitude, which the plain survey has.
    let weights = vec![1.0; len];
    for step in 0..if len > 100_000 { 3 } else { 7 } {
        let accumulated: Vec<f32> = residual.iter().zip(gradient).map(|(r, g)| r + g * 0.125).collect();
        let walk = Walk {
            scale: 0.125,
            weights: Some(&weights[..]),
            score: on_cpu.score(0.0),
            ..Walk::new(gradient, &mut residual)
        };
        positions.clear();
        values.clear();
        let mut survey = cpu.survey(walk, &whole, on_cpu.expect(k), &mut guess).unwrap();
        on_cpu.select(&mut survey, k, step);
        on_cpu.commit();
        Cpu::finish(survey, &mut positions, &mut values).unwrap();
        cpu.clear(positions.all(), &mut residual).unwrap();

        assert!(positions.is_sorted_by(|a, b| a < b), "sorted and unique: {}", context());
        assert!(positions.iter().all(|&p| (p as usize) < len), "in range: {}", context());
        let non_zero = accumulated.iter().filter(|&&u| u != 0.0).count();
        if hold {
            assert_eq!(positions.is_empty(), non_zero == 0, "at least one: {}", context());
            let least = (*window(k).start()).min(non_zero);
            let kept = positions.len();
            assert!(kept >= least && kept <= *window(k).end(), "{kept} of {k}, step {step}: {}", context());
        }
        let mut taken = positions.iter().zip(&values).peekable();
        for (i, (&u, &r)) in accumulated.iter().zip(&residual).enumerate() {
            let sent = taken.next_if(|(position, _)| **position == i as u32).map(|(_, value)| *value);
            assert_eq!((sent.unwrap_or(r)).to_bits(), u.to_bits(), "nothing lost: {}", context());
            assert!(sent.is_none() || r == 0.0);
        }
        if ["exact", "trimmed", "mstopk"].contains(&name) {
            assert_eq!(positions.len(), k.min(non_zero), "exactly k: {}", context());
        }
        let mut plain = PlainSurvey::new(&accumulated);
        by_definition.select(&mut plain, k, step);
        by_definition.commit();
        // The plain survey adds in another order, so a threshold may differ in its last bits and let one
        // more or one less element pass; that much, and no more, is allowed.
        // Sums of huge values, and squares of tiny ones, leave the range of f32; there a rule goes another way
        // (and still keeps the contract).
        let tiny = name.starts_with("gaussian") && ["denormals", "one element"].contains(&input);
        if input != "huge" && !tiny {
            let differing = symmetric_difference(&plain.kept, &positions);
            assert!(differing <= 1 + k / 200, "{differing} positions differ, step {step}: {}", context());
        }
        if ["exact", "trimmed"].contains(&name) {
            assert_eq!(plain.kept, positions, "{}", context());
        }
    }
}

fn symmetric_difference(a: &[u32], b: &[u32]) -> usize {
    let (a, b): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
        (a.iter().collect(), b.iter().collect());
    a.symmetric_difference(&b).count()
}

#[test]
fn every_selector_keeps_its_contract_on_hostile_inputs() {
    for len in [1, 2, 3, 10, 31, 100, 1_000, 4_097, 30_011] {
        for (input, gradient) in inputs(len, 11) {
            for (name, selector) in selectors() {
                for density in [0.001, 0.01, 0.2, 1.0] {
                    check(name, &*selector, input, &gradient, density, true);
                }
            }
        }
    }
}

#[test]
fn senseless_settings_still_end() {
    for step in [0.0, -1.0, 1e-300, f64::NAN, f64::INFINITY] {
        Trimmed { step, ..Trimmed::default() }.select(&mut PlainSurvey::new(&[1.0, 2.0, 3.0, 9.0]), 3, 0);
        let mut search = ThresholdSearch::default();
        search.bracket = step;
        search.select(&mut PlainSurvey::new(&[1.0, 1.0, 1.0, 2.0, 2.0]), 3, 0);
    }
}

#[test]
fn quotas_are_what_one_would_say() {
    assert_eq!(Exact.quota(100, 0.29), 29);
    assert_eq!(Exact.quota(1000, 0.0015), 1);
    assert_eq!(Exact.quota(10, 0.001), 1);
    assert_eq!(Exact.quota(7, 1.0), 7);
    assert_eq!(DgcSampling::new(false).quota(100, 0.07), 7);
    assert_eq!(DgcSampling::new(false).quota(1000, 0.0015), 2);
    assert_eq!(ThresholdSearch::default().quota(100, 0.29), 30);
}

#[test]
fn a_million_elements_hold_k_too() {
    for (input, gradient) in inputs(1_000_000, 3).into_iter().step_by(2) {
        for (name, selector) in selectors() {
            check(name, &*selector, input, &gradient, 0.001, true);
        }
    }
}

#[test]
fn published_behaviour_ends_on_every_input() {
    for len in [1, 10, 4_097, 30_011] {
        for (input, gradient) in inputs(len, 5) {
            for (name, selector) in published() {
                check(&format!("{name} as published"), &*selector, input, &gradient, 0.01, false);
            }
        }
    }
}

/// One published selection over the plain definition.
fn count_published(selector: &mut dyn Select, values: &[f32], density: f64) -> usize {
    let mut survey = PlainSurvey::new(values);
    let k = (values.len() as f64 * density) as usize;
    selector.select(&mut survey, k, 0);
    survey.kept()
}

#[test]
fn gaussian_k_as_published_gives_the_counts_known_of_it() {
    // 4 M elements, density 0.001, k = 4000: what the paper's recipe ends with.
    let inputs = inputs(4_000_000, 1);
    let count = |name: &str, density| {
        let values = &inputs.iter().find(|(n, _)| *n == name).unwrap().1;
        count_published(&mut GaussianK { as_published: true }, values, density) as f64
    };
    assert!((count("normal", 0.001) / 4000.0 - 1.0).abs() < 0.05);
    assert!((count("laplace", 0.001) / 3669.0 - 1.0).abs() < 0.05);
    assert!(count("laplace", 0.01) > 6.0 * 40_000.0);
    assert!((count("mostly zero", 0.001) / 19_557.0 - 1.0).abs() < 0.05);
    assert!((80.0..150.0).contains(&count("one outlier", 0.001)));
    assert_eq!(count("uniform", 0.001), 0.0);
    assert_eq!(count("zeros", 0.001), 0.0);
}

#[test]
fn threshold_search_as_published_gives_the_counts_known_of_it() {
    let inputs = inputs(4_000_000, 2);
    let count = |name: &str| {
        let values = &inputs.iter().find(|(n, _)| *n == name).unwrap().1;
        let mut selector = published_search();
        count_published(&mut selector, values, 0.001) as f64 / 4000.0
    };
    assert!((0.5..1.2).contains(&count("normal")));
    assert!(count("uniform") > 20.0);
    // The author's code would assert here; ours keeps the largest element.
    assert!(count("one outlier") <= 2.0 / 4000.0);
    assert_eq!(count("zeros"), 0.0);
}

#[test]
fn a_threshold_is_reused_between_searches_and_follows_the_scale() {
    let values = &inputs(200_000, 4)[0].1;
    let mut selector = ThresholdSearch::default();
    let mut ratios = Vec::new();
    for step in 0..11 {
        let scaled: Vec<f32> = values.iter().map(|x| x * (1.0 + step as f32)).collect();
        selector.select(&mut PlainSurvey::new(&scaled), 200, step);
        selector.commit();
        ratios.push(selector.state()[0].1);
    }
    assert!(ratios.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-6), "{ratios:?}");
}

#[test]
fn alternating_sides_send_one_sign_at_a_time() {
    let mut selector = BySize::new(true);
    for (input, gradient) in inputs(5_000, 8) {
        let mut cpu = Cpu::new(1);
        let mut residual = vec![0.0f32; gradient.len()];
        let (mut positions, mut values) = (Vec::new(), Vec::new());
        for step in 0..4 {
            let side = selector.score(0.0);
            let mut guess = Guess::default();
            let walk = Walk { scale: 0.1, score: side, ..Walk::new(&gradient[..], &mut residual) };
            let whole = [0..5_000];
            positions.clear();
            values.clear();
            let mut survey = cpu.survey(walk, &whole, selector.expect(50), &mut guess).unwrap();
            selector.select(&mut survey, 50, step);
            selector.commit();
            Cpu::finish(survey, &mut positions, &mut values).unwrap();
            cpu.clear(positions.all(), &mut residual).unwrap();
            match side {
                Score::Positive => assert!(values.iter().all(|&v| v > 0.0), "{input}"),
                Score::Negative => assert!(values.iter().all(|&v| v < 0.0), "{input}"),
                _ => unreachable!(),
            }
            assert_ne!(selector.score(0.0), side);
        }
    }
}

#[test]
fn importance_holds_k_while_weights_and_gradients_move() {
    let len = 20_000;
    let mut state = 5;
    let mut weights: Vec<f32> =
        (0..len).map(|i| if i % 10 == 0 { 0.0 } else { normal(&mut state) as f32 }).collect();
    let mut selector = Importance::default();
    let mut cpu = Cpu::new(1);
    let mut guess = Guess::default();
    let mut residual = vec![0.0f32; len];
    let whole = [0..len];
    let k = 312;
    for step in 0..60 {
        let gradient: Vec<f32> = (0..len).map(|_| (normal(&mut state) * 0.97f64.powi(step)) as f32).collect();
        let mean = cpu.statistics(&weights, &whole).unwrap().mean_magnitude();
        let score = selector.score(mean);
        let Score::Relative { guard } = score else { panic!() };
        let accumulated: Vec<f32> = residual.iter().zip(&gradient).map(|(r, g)| r + g).collect();
        let walk = Walk { weights: Some(&weights[..]), score, ..Walk::new(&gradient[..], &mut residual) };
        let (mut positions, mut values) = (Vec::new(), Vec::new());
        let mut survey = cpu.survey(walk, &whole, selector.expect(k), &mut guess).unwrap();
        selector.select(&mut survey, k, step as u64);
        selector.commit();
        Cpu::finish(survey, &mut positions, &mut values).unwrap();
        cpu.clear(positions.all(), &mut residual).unwrap();
        assert!(window(k).contains(&positions.len()), "step {step}: {}", positions.len());
        let importance = |i: usize| accumulated[i].abs() / weights[i].abs().max(guard);
        let lowest = positions.iter().map(|&p| importance(p as usize)).fold(f32::MAX, f32::min);
        let missed =
            (0..len).filter(|&i| importance(i) > lowest && positions.binary_search(&(i as u32)).is_err());
        assert_eq!(missed.count(), 0, "the most important ones go");
        weights.iter_mut().for_each(|w| *w *= 1.01);
    }
}
