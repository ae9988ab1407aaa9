//! Probes over links whose numbers are known.

use std::time::Duration;

use super::*;
use crate::adapt::price::Collective;
use crate::group::{Link, Local, Tcp, TcpSettings};
use crate::port::free_port;

/// Runs `work` on every rank over an imitated link.
fn over<T: Send>(link: &str, size: usize, work: impl Fn(SharedGroup) -> T + Sync) -> Vec<T> {
    let link: Link = link.parse().unwrap();
    let port = free_port();
    std::thread::scope(|scope| {
        let start = |rank| {
            let work = &work;
            scope.spawn(move || {
                let settings = TcpSettings {
                    rank,
                    size,
                    port,
                    deadline: Duration::from_secs(20),
                    link: Some(link.into()),
                    ..TcpSettings::default()
                };
                work(SharedGroup::new(Tcp::join(&settings).unwrap()))
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn is_near(found: Network, link: &str) -> bool {
    let named: Network = link.parse().unwrap();
    // Headers are charged for, and ranks have to wake up.
    let bytes = found.seconds_per_byte / (named.seconds_per_byte * 1514.0 / 1448.0);
    let latency = found.latency / named.latency;
    (0.85..1.15).contains(&bytes) && (0.85..1.3).contains(&latency)
}

/// What a quick look finds, and how long it takes.
fn look(mut group: SharedGroup) -> (Network, Duration) {
    let begun = std::time::Instant::now();
    let network = quick(&mut group, Budget::default()).unwrap();
    (network, begun.elapsed())
}

#[test]
fn a_quick_look_finds_the_link_and_all_ranks_the_same() {
    for (link, ranks) in [("100mbit,5ms", 2), ("50mbit,2ms", 3), ("100mbit,50ms", 2)] {
        // Other tests run beside this one, and a rank that has to wait for a core is no slow link.
        let mut looks = Vec::new();
        let near = (0..20).any(|_| {
            let found = over(link, ranks, look);
            assert!(found.iter().all(|look| look.0 == found[0].0), "{found:?}");
            let in_time = found.iter().all(|look| look.1 < Duration::from_millis(1500));
            looks.push(found[0]);
            is_near(found[0].0, link) && in_time
        });
        assert!(near, "{link}: {looks:?}");
    }
}

#[test]
fn every_collective_finds_the_link_and_all_ranks_the_same() {
    let link = "100mbit,5ms";
    let effort = Effort {
        methods: vec!["dense".into(), "topk".into(), "ar-topk".into()],
        elements: 100_000,
        ..Effort::default()
    };
    let named: Network = link.parse().unwrap();
    let is_near = |probe: &Probe, collective: Collective| {
        let network = probe.wire.network(collective);
        let bytes = network.seconds_per_byte / (named.seconds_per_byte * 1514.0 / 1448.0);
        (0.85..1.15).contains(&bytes)
    };
    // Other tests run beside this one, and a rank that has to wait for a core is no slow link.
    let mut wrong = Vec::new();
    for _ in 0..10 {
        let found = over(link, 3, |group| full(&group, &effort, &mut |_| ()).unwrap());
        assert!(found.iter().all(|probe| *probe == found[0]));
        let labour = found[0].workshop.labour("topk");
        let far = Collective::ALL.into_iter().filter(|&collective| !is_near(&found[0], collective));
        wrong = far.map(|collective| format!("{collective:?}")).collect();
        if !(labour.element > 0.0 && labour.element < 1e-6) {
            wrong.push(format!("{labour:?}"));
        }
        if wrong.is_empty() {
            break;
        }
    }
    assert!(wrong.is_empty(), "{link} was not found: {wrong:?}");
}

#[test]
fn threads_have_a_network_too_and_a_rank_alone_none() {
    for ranks in [1, 4] {
        let effort = Effort { methods: vec!["topk".into()], elements: 20_000, ..Effort::default() };
        let found = Local::run(ranks, |group| {
            let group = SharedGroup::new(group);
            (
                quick(&mut group.clone(), Budget::default()).unwrap(),
                full(&group, &effort, &mut |_| ()).unwrap(),
            )
        });
        let probe = &found[0].1;
        assert!(found.iter().all(|both| both.1 == *probe && both.0.seconds_per_byte > 0.0));
        assert_eq!(probe.ranks, ranks);
        let price = probe.model().price(&Way::all("topk").unwrap()[0], 1e5, 0.01);
        assert!(price.work > 0.0 && (price.sync() > 0.0) == (ranks > 1), "{price:?}");
    }
}

#[test]
fn a_probe_is_read_back_as_it_was_written() {
    let network = "1gbit,1ms".parse().unwrap();
    let probe = Probe::uniform(4, network);
    let text = serde_json::to_string(&probe).unwrap();
    assert_eq!(serde_json::from_str::<Probe>(&text).unwrap(), probe);
}

#[test]
fn a_method_that_can_not_be_read_is_named_before_anything_is_measured() {
    let effort = Effort { methods: vec!["topq".into()], ..Effort::default() };
    let group = SharedGroup::new(Local::connect(1).remove(0));
    let error = full(&group, &effort, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("topq"), "{error}");
}
