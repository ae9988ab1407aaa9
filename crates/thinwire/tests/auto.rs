//! The method `auto`: whatever it chooses and whenever it changes, all ranks do it together and nothing is lost.

mod support;

use std::sync::Mutex;

use support::{noise, over_link};
use thinwire::adapt::decision::{Decision, Reason};
use thinwire::group::{Group, Local, Schedule, SharedGroup};
use thinwire::synchronizer::{Layout, NO_WEIGHTS, Options};
use thinwire::{Error, Synchronizer};

fn layout(elements: usize) -> Layout {
    let layers = [
        ("b.weight", vec![elements - elements / 4]),
        ("a.weight", vec![elements / 4 - 10]),
        ("a.bias", vec![10]),
    ];
    Layout::by_size(layers, 2 * elements).unwrap()
}

/// Gradients of a step: large in a few places, as those of real models are.
fn gradients(layout: &Layout, rank: usize, step: u64) -> Vec<Vec<f32>> {
    let of = |length: usize, seed: u64| noise(length, seed).into_iter().map(|x| x * x * x).collect();
    layout.buckets().iter().map(|b| of(b.len(), 1000 * step + 10 * rank as u64 + u64::from(b.id()))).collect()
}

/// Gradients without any large elements, which are the same in each step: a small density leaves nearly all of them.
fn flat(layout: &Layout, _rank: usize, _step: u64) -> Vec<Vec<f32>> {
    layout.buckets().iter().map(|b| (0..b.len()).map(|i| 1.0 + i as f32 * 1e-6).collect()).collect()
}

/// Takes steps and checks that replicas are equal in each, and that at the end everything that went in has come out or
/// is kept, as near as sums are. Gives what rank 0 decided.
fn run(group: SharedGroup, method: &str, elements: usize, steps: u64, near: f64) -> Vec<Decision> {
    run_with(gradients, group, method, elements, steps, near)
}

/// The same with other gradients.
fn run_with(
    gradients: fn(&Layout, usize, u64) -> Vec<Vec<f32>>,
    group: SharedGroup,
    method: &str,
    elements: usize,
    steps: u64,
    near: f64,
) -> Vec<Decision> {
    let layout = layout(elements);
    let options = Options { check_replicas_every: 1, ..Options::default() };
    let mut synchronizer =
        Synchronizer::with_options(group.clone(), method, layout.clone(), options).unwrap();
    let mut left: Vec<Vec<f64>> = layout.buckets().iter().map(|b| vec![0.0; b.len()]).collect();
    let mut decisions = Vec::new();
    for step in 0..steps {
        let mut means = gradients(&layout, group.rank(), step);
        // What goes in, the mean over all ranks; every rank can compute it.
        for rank in 0..group.size() {
            for (left, gradient) in left.iter_mut().zip(gradients(&layout, rank, step)) {
                left.iter_mut()
                    .zip(gradient)
                    .for_each(|(left, g)| *left += f64::from(g) / group.size() as f64);
            }
        }
        synchronizer.step(&mut means, NO_WEIGHTS).unwrap();
        for (left, mean) in left.iter_mut().zip(&means) {
            left.iter_mut().zip(mean).for_each(|(left, mean)| *left -= f64::from(*mean));
        }
        decisions.extend(synchronizer.decisions());
    }
    let state = synchronizer.save().unwrap();
    drop(synchronizer);
    // What is left must be the mean of what the ranks have kept.
    let mut kept: Vec<f32> = layout
        .buckets()
        .iter()
        .flat_map(|b| b.layers())
        .flat_map(|layer| state.residual[layer.name()].clone())
        .collect();
    let mut group = group;
    group.all_reduce(thinwire::group::Sum::F32(&mut kept), thinwire::group::Algorithm::Ring).unwrap();
    for (place, (left, kept)) in left.iter().flatten().zip(&kept).enumerate() {
        let kept = f64::from(*kept) / group.size() as f64;
        assert!((left - kept).abs() < near * (1.0 + kept.abs()), "{place}: {left} is left, {kept} was kept");
    }
    decisions
}

#[test]
fn on_a_fast_group_compressing_has_to_pay() {
    for ranks in [1, 2, 3] {
        // In each step sums in bf16 may round three values below 1 by 2^-9 each.
        let decisions = Local::run(ranks, |group| run(SharedGroup::new(group), "auto", 20_000, 40, 0.24));
        let last = decisions[0].last().unwrap();
        assert_eq!(decisions[0][0].reason, Reason::Start);
        assert!(last.is_dense() || last.saves().unwrap() > 0.05, "{last}");
        assert!(decisions[1..].iter().all(Vec::is_empty));
    }
}

#[test]
fn only_what_sends_everything_is_chosen_unless_others_are_named() {
    let links = "10gbit,100us\nat step 20: 100mbit,5ms";
    let told = Mutex::new(Vec::new());
    over_link(2, None, Some(Schedule::parse(links, "test").unwrap()), |group| {
        let decisions = run(SharedGroup::new(group), "auto", 50_000, 50, 0.3);
        told.lock().unwrap().extend(decisions);
    });
    let local = Local::run(3, |group| run(SharedGroup::new(group), "auto", 20_000, 40, 0.24));
    for decision in told.into_inner().unwrap().iter().chain(&local[0]) {
        let safe = |(way, _): &(String, usize)| way.starts_with("dense") || way.starts_with("quantized");
        assert!(decision.ways.iter().all(safe) && decision.density == 1.0, "{decision}");
        assert!(decision.reason != Reason::Gain && decision.gains.is_none(), "{decision}");
    }
}

#[test]
fn a_residual_that_runs_away_ends_sparse_methods() {
    let told = Mutex::new(Vec::new());
    // So slow that a part of the gradient is chosen to begin with, whatever else the machine does.
    let link = Schedule::parse("10mbit,1ms", "test").unwrap();
    over_link(2, None, Some(link), |group| {
        let method = "auto:methods=quantized|topk|ar-topk,min_density=0.001,max_density=0.001";
        let decisions = run_with(flat, SharedGroup::new(group), method, 100_000, 50, 1e-3);
        told.lock().unwrap().extend(decisions);
    });
    let decisions = told.into_inner().unwrap();
    assert!(!decisions[0].is_dense(), "{}", decisions[0]);
    let place = decisions.iter().position(|decision| decision.reason == Reason::Residual);
    let (before, after) = decisions.split_at(place.unwrap_or_else(|| panic!("{decisions:#?}")));
    let found = after[0].residual.unwrap();
    assert!(after[0].changes && found.sent < found.least, "{}", after[0]);
    assert!(after[0].to_string().contains("the residual runs away"), "{}", after[0]);
    assert!(before.iter().all(|decision| !decision.is_dense()) && after.iter().all(Decision::is_dense));
}

#[test]
fn a_link_that_changes_is_noticed_and_nothing_is_lost() {
    // A rank that waits for a core may be taken for a slow link, but hardly at the wrong time again and again.
    let wrong: Vec<String> = (0..4).map_while(|_| notices_a_link_that_changes().err()).collect();
    assert!(wrong.len() < 4, "{wrong:#?}");
}

/// Whether the changes are noticed in time; otherwise what was decided.
fn notices_a_link_that_changes() -> Result<(), String> {
    let links = "10gbit,100us\nat step 40: 100mbit,20ms\nat step 90: 10gbit,100us";
    let schedule = Schedule::parse(links, "test").unwrap();
    let told = Mutex::new(Vec::new());
    over_link(3, None, Some(schedule), |group| {
        // All of them add in f32, so that what is lost to rounding does not depend on what is chosen.
        let method = "auto:methods=dense|topk|ar-topk";
        let decisions = run(SharedGroup::new(group), method, 400_000, 130, 1e-3);
        told.lock().unwrap().extend(decisions);
    });
    let decisions = told.into_inner().unwrap();
    let far = |decision: &&Decision| decision.network.latency > 0.01;
    let first = decisions.iter().find(far);
    let back = first.and_then(|first| {
        let near = |decision: &&Decision| decision.step > first.step && decision.network.latency < 0.01;
        decisions.iter().find(near)
    });
    let noticed = first.is_some_and(|d| d.reason == Reason::Network && (40..=60).contains(&d.step))
        && decisions.iter().any(|decision| decision.step >= 40 && !decision.is_dense())
        && back.is_some_and(|decision| (90..=110).contains(&decision.step));
    let told = decisions.iter().map(|decision| format!("{} {decision}\n", decision.step));
    if noticed { Ok(()) } else { Err(told.collect()) }
}

#[test]
fn sums_in_halves_carry_orders_too() {
    for method in
        ["auto:methods=ar-topk:values=bf16", "auto:methods=dense|ar-topk:values=f16|topk:values=f16"]
    {
        let decisions = Local::run(3, |group| run(SharedGroup::new(group), method, 20_000, 30, 0.3));
        assert!(decisions[0].len() > 1, "{method}: {:?}", decisions[0]);
    }
}

#[test]
fn quantised_steps_carry_orders_and_hand_their_residual_over() {
    for method in [
        "auto:methods=quantized",
        "auto:methods=dense|quantized|topk",
        "auto:methods=quantized:bits=8|ar-topk",
    ] {
        let decisions = Local::run(3, |group| run(SharedGroup::new(group), method, 20_000, 30, 1e-3));
        assert!(!decisions[0].is_empty(), "{method}");
    }
}

#[test]
fn a_first_step_that_is_skipped_loses_no_order() {
    for relayouts in [false, true] {
        Local::run(2, |group| {
            let (rank, options) = (group.rank(), Options { check_first: true, ..Options::default() });
            let mut layout = layout(20_000);
            let mut synchronizer =
                Synchronizer::with_options(group, "auto:methods=topk", layout.clone(), options).unwrap();
            let mut overflown = gradients(&layout, rank, 0);
            if rank == 1 {
                overflown[0][7] = f32::INFINITY;
            }
            let error = synchronizer.step(&mut overflown, NO_WEIGHTS).unwrap_err();
            assert!(matches!(error, Error::Skipped { rank: 1, .. }), "{error}");
            if relayouts {
                let layers = [("b.weight", vec![15_000]), ("a.weight", vec![4_990]), ("a.bias", vec![10])];
                layout = Layout::by_size(layers, 1).unwrap();
                synchronizer.relayout(layout.clone()).unwrap();
            }
            for step in 1..12 {
                let report = synchronizer.step(&mut gradients(&layout, rank, step), NO_WEIGHTS).unwrap();
                assert!(
                    (1_900..2_100).contains(&report.compression.kept),
                    "{step}: {:?}",
                    report.compression
                );
            }
            for decision in synchronizer.decisions().iter().filter(|decision| decision.step > 0) {
                let chosen: usize = decision.ways.iter().map(|(_, buckets)| buckets).sum();
                assert_eq!(chosen, layout.buckets().len(), "{decision}");
            }
        });
    }
}

#[test]
fn a_warm_up_ends_at_a_density_that_is_allowed() {
    let told = Local::run(2, |group| {
        let (rank, layout) = (group.rank(), layout(20_000));
        let method = "auto:methods=dense|topk,max_density=0.05,warmup=linear/2";
        let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
        let mut kept = 0;
        for step in 0..120 {
            synchronizer.set_epoch(step as f64 / 40.0);
            let report = synchronizer.step(&mut gradients(&layout, rank, step), NO_WEIGHTS).unwrap();
            kept = if report.compression.dense > 0 { 0 } else { report.compression.kept };
        }
        assert!(kept <= 1_100, "{kept}");
        synchronizer.decisions()
    });
    for decision in &told[0] {
        assert!(decision.is_dense() || decision.density <= 0.0501, "{decision}");
        assert!(decision.reason != Reason::Gain || decision.step >= 80, "{decision}");
    }
}
