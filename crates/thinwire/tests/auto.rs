//! The method `auto`: whatever it chooses and whenever it changes, all ranks do it together and nothing is lost.

mod support;

use std::sync::Mutex;

use support::{noise, over_link};
use thinwire::Synchronizer;
use thinwire::adapt::decision::{Decision, Reason};
use thinwire::group::{Group, Local, Schedule, SharedGroup};
use thinwire::synchronizer::{Layout, NO_WEIGHTS, Options};

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

/// Takes steps and checks that replicas are equal in each, and that at the end everything that went in has come out or
/// is kept. Gives what rank 0 decided.
fn run(group: SharedGroup, method: &str, elements: usize, steps: u64) -> Vec<Decision> {
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
        assert!((left - kept).abs() < 0.02 * (1.0 + kept.abs()), "{place}: {left} is left, {kept} was kept");
    }
    decisions
}

#[test]
fn on_a_fast_group_everything_is_sent() {
    for ranks in [1, 2, 3] {
        let decisions = Local::run(ranks, |group| run(SharedGroup::new(group), "auto", 20_000, 40));
        let last = decisions[0].last().unwrap();
        assert_eq!(decisions[0][0].reason, Reason::Start);
        assert!(last.seconds <= last.dense_seconds, "{last}");
        assert!(decisions[1..].iter().all(Vec::is_empty));
    }
}

#[test]
fn a_link_that_changes_is_noticed_and_nothing_is_lost() {
    let links = "10gbit,100us\nat step 40: 100mbit,20ms\nat step 90: 10gbit,100us";
    let schedule = Schedule::parse(links, "test").unwrap();
    let told = Mutex::new(Vec::new());
    over_link(3, None, Some(schedule), |group| {
        let decisions = run(SharedGroup::new(group), "auto", 400_000, 130);
        told.lock().unwrap().extend(decisions);
    });
    let decisions = told.into_inner().unwrap();
    let told: Vec<String> =
        decisions.iter().map(|decision| format!("{} {decision}", decision.step)).collect();
    let far = |decision: &&Decision| decision.network.latency > 0.01;
    let first = decisions.iter().find(far).unwrap_or_else(|| panic!("{told:#?}"));
    assert!(first.reason == Reason::Network && (40..=60).contains(&first.step), "{told:#?}");
    assert!(decisions.iter().any(|decision| decision.step >= 40 && !decision.is_dense()), "{told:#?}");
    let near = |decision: &&Decision| decision.step > first.step && decision.network.latency < 0.01;
    let back = decisions.iter().find(near).unwrap_or_else(|| panic!("{told:#?}"));
    assert!((90..=110).contains(&back.step), "{told:#?}");
}
