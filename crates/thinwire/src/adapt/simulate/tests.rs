//! What the controller must do, on simulated clusters: they are the same to the bit every time.

use super::*;
use crate::adapt::Limits;
use crate::adapt::cost::Network;
use crate::adapt::decision::Reason;

/// With sparse methods among the candidates, so that there is a density to search for.
const SPARSE: &str = "auto:methods=dense|dense:values=bf16|topk|ar-topk";

fn limits(spec: &str) -> Limits {
    crate::method::parse(spec).unwrap().limits.unwrap()
}

/// ResNet-50 on workers whose times vary by a tenth.
fn scene(workers: usize, timetable: Timetable, steps: usize, seed: u64) -> Scene {
    Scene {
        cluster: Cluster { workers, noise: 0.1, seed, ..Cluster::default() },
        timetable,
        buckets: vec![25_557_032],
        gains: Gains::default(),
        steps,
    }
}

fn auto(scene: &Scene) -> Run {
    run(scene, &Driver::Auto(limits(SPARSE)), &mut |_| ()).unwrap()
}

fn oracle(scene: &Scene) -> Run {
    run(scene, &Driver::Oracle(limits(SPARSE)), &mut |_| ()).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let mut varied = scene(13, Timetable::c2(), 300, 7);
    varied.cluster.uneven = 2.0;
    varied.cluster.stragglers = Slow { share: 0.1, factor: 2.0 };
    varied.cluster.hiccups = Slow { share: 0.01, factor: 5.0 };
    varied.buckets = vec![1_000_000, 300, 5_000_000];
    let (one, other) = (auto(&varied), auto(&varied));
    assert_eq!(one, other);
    assert_eq!(one.seconds().to_bits(), other.seconds().to_bits());
    varied.cluster.seed = 8;
    assert_ne!(auto(&varied).seconds(), one.seconds());
}

#[test]
fn a_rank_alone_computes_and_nothing_else() {
    let mut alone = scene(1, Timetable::c1(), 50, 1);
    alone.cluster.noise = 0.0;
    let dense = run(&alone, &Driver::parse("dense", &alone).unwrap(), &mut |_| ()).unwrap();
    let work = 0.28e-9 * 25_557_032.0;
    assert!((dense.seconds() - 50.0 * (0.12 + work)).abs() < 1e-9);
    assert_eq!((dense.bytes(), dense.gain(), dense.changes()), (0.0, 1.0, 0));
    let auto = auto(&alone);
    assert!(auto.steps.iter().all(|step| step.gain == 1.0), "{:#?}", auto.decisions);
}

/// Without noise, on even ranks, a step of one collective takes what the model says; one of several may take less,
/// where ranks that are through early begin the next.
#[test]
fn even_ranks_take_what_the_model_says() {
    use crate::adapt::price::{Model, Way};
    for spec in ["dense", "quantized", "topk", "ar-topk", "random-k", "redsync:quantize=true"] {
        for way in Way::all(spec).unwrap() {
            for workers in [2, 4, 32] {
                let network: Network = "1gbit,5ms".parse().unwrap();
                let mut even = scene(workers, Timetable::constant(network), 4, 1);
                even.cluster.noise = 0.0;
                let driver = Driver::Fixed { ways: vec![way.clone()], density: 0.01 };
                let taken = run(&even, &driver, &mut |_| ()).unwrap();
                let price = Model::new(workers, network).price(&way, 25_557_032.0, 0.01);
                let ratio = taken.steps[3].seconds / (0.12 + price.seconds());
                let alone = way.legs(1e6, 0.01).len() == 1 && !way.is_dense();
                assert!(ratio <= 1.0 + 1e-9 && ratio > 0.7, "{way}, {workers}: {ratio}");
                assert!(!alone || ratio > 1.0 - 1e-9, "{way}, {workers}: {ratio}");
                assert!((taken.steps[3].bytes / price.bytes - 1.0).abs() < 1e-9, "{way}");
            }
        }
    }
}

/// At most 5 % of the oracle's time with 64 workers, and exploring at most 5 % of the run; with the gain beside the time: a run that is fast because it sends little has won nothing.
#[test]
fn regret_is_small_on_the_papers_schedules() {
    for (name, timetable) in [("c1", Timetable::c1()), ("c2", Timetable::c2())] {
        for workers in [8, 64] {
            for seed in 1..=8 {
                let scene = scene(workers, timetable.clone(), 1000, seed);
                let (auto, oracle) = (auto(&scene), oracle(&scene));
                let lost = regret(&auto, &oracle);
                let of = format!("{name}, {workers} workers, seed {seed}: {lost:?}");
                // With eight workers it takes a little more time, and sends more for it.
                let most = if workers == 64 { 0.05 } else { 0.07 };
                assert!(lost.after_exploration <= most, "{of}");
                assert!(lost.exploration <= 0.05, "{of}");
                assert!(auto.gain() >= 0.98 * oracle.gain(), "{of}: gains {} {}", auto.gain(), oracle.gain());
            }
        }
    }
}

/// Latency or bandwidth changes by 2 or more at each of these: all ranks must go by the new network 20 steps later.
#[test]
fn changes_of_the_network_are_answered_within_twenty_steps() {
    for (timetable, changes) in
        [(Timetable::c1(), &[240, 480, 720][..]), (Timetable::c2(), &[240, 400, 560, 720])]
    {
        for workers in [8, 64] {
            for seed in 1..=8 {
                let scene = scene(workers, timetable.clone(), 1000, seed);
                let (auto, oracle) = (auto(&scene), oracle(&scene));
                for &change in changes {
                    let of = format!("{workers} workers, seed {seed}, step {change}");
                    // What is decided after a step is in force two steps later.
                    let in_time = |step: u64| (change..=change + 18).contains(&(step as usize));
                    let answers = auto.decisions.iter().filter(|decision| in_time(decision.step));
                    let answer = answers.into_iter().find(|it| it.reason == Reason::Network);
                    assert!(answer.is_some(), "{of}: {:#?}", auto.decisions);
                    let found = answer.map_or(f64::NAN, |it| it.network.latency);
                    let ratio = found / scene.timetable.at(change, 1000, 0.0).latency;
                    assert!((0.8..1.25).contains(&ratio), "{of}: {ratio}");
                    let mean = |run: &Run| {
                        run.steps[change + 20..change + 60].iter().map(|step| step.seconds).sum::<f64>()
                            / 40.0
                    };
                    assert!(mean(&auto) < 1.15 * mean(&oracle), "{of}: {} {}", mean(&auto), mean(&oracle));
                }
            }
        }
    }
}

#[test]
fn noise_of_a_tenth_changes_no_choice() {
    let links = [
        "25gbit,1ms",
        "10gbit,8ms",
        "1gbit,1ms",
        "1gbit,32ms",
        "1gbit,50ms",
        "25gbit,50ms",
        "100mbit,5ms",
        "100mbit,50us",
    ];
    for link in links {
        for workers in [4, 8, 64] {
            let mut scene = scene(workers, Timetable::constant(link.parse().unwrap()), 2000, 1);
            scene.gains = Gains { exponent: 0.3, drift: 0.0, jumps: Vec::new() };
            let auto = auto(&scene);
            // The first hundred steps are for finding out.
            let settled = &auto.steps[100..];
            let changes = settled.windows(2).filter(|pair| pair[0].choice != pair[1].choice).count();
            assert_eq!(changes, 0, "{link}, {workers}: {:#?}", auto.decisions);
        }
    }
}

/// One worker in ten takes three times as long: everybody waits for it, and that is no slow network.
#[test]
fn stragglers_are_not_taken_for_a_slow_network() {
    let network: Network = "10gbit,1ms".parse().unwrap();
    let mut slow = scene(16, Timetable::constant(network), 400, 3);
    slow.cluster.stragglers = Slow { share: 0.1, factor: 3.0 };
    let (auto, oracle) = (auto(&slow), oracle(&slow));
    let lost = regret(&auto, &oracle);
    assert!(auto.steps.iter().all(|step| step.seconds > 0.3));
    assert!(lost.after_exploration < 0.05, "{lost:?} {:#?}", auto.decisions);
}

#[test]
fn uneven_links_are_as_slow_as_the_slowest() {
    let network: Network = "1gbit,1ms".parse().unwrap();
    let mut even = scene(16, Timetable::constant(network), 20, 3);
    even.cluster.noise = 0.0;
    let mut uneven = even.clone();
    uneven.cluster.uneven = 2.0;
    let dense = |scene: &Scene| {
        run(scene, &Driver::parse("dense", scene).unwrap(), &mut |_| ()).unwrap().seconds() - 20.0 * 0.12
    };
    let ratio = dense(&uneven) / dense(&even);
    assert!((1.9..=2.01).contains(&ratio), "{ratio}");
}

#[test]
fn the_controller_is_better_than_what_was_fixed_beforehand() {
    let scene = scene(64, Timetable::c1(), 500, 1);
    let found = compare(&scene, &limits(SPARSE), &mut |_, _| ()).unwrap();
    let (best, worst) = (found.best_fixed.unwrap(), found.worst_fixed.unwrap());
    assert!(
        found.auto.seconds() < best.1.seconds(),
        "{} s, {} {} s",
        found.auto.seconds(),
        best.0,
        best.1.seconds()
    );
    assert!(found.auto.seconds() < 0.3 * worst.1.seconds(), "{}", worst.0);
}

#[test]
fn what_can_not_be_simulated_is_refused() {
    let scene = scene(4, Timetable::c1(), 10, 1);
    assert!(Driver::parse("auto:warmup=linear/5", &scene).unwrap_err().to_string().contains("no epochs"));
    assert!(Driver::parse("nonsense", &scene).is_err());
    let fixed = Driver::parse("topk:density=0.01", &scene).unwrap();
    for broken in [
        Scene { steps: 0, ..scene.clone() },
        Scene { buckets: Vec::new(), ..scene.clone() },
        Scene { buckets: vec![5, 0], ..scene.clone() },
        Scene { cluster: Cluster { workers: 5000, ..Cluster::default() }, ..scene.clone() },
    ] {
        assert!(run(&broken, &fixed, &mut |_| ()).is_err());
    }
}
