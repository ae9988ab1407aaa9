//! What holds for all loads.

use proptest::prelude::*;

use super::*;

type Formula = fn(Ranks, f64) -> Load;

/// Every load as a function of ranks and one size.
const LOADS: [(&str, Formula); 12] = [
    ("parameter server", parameter_server),
    ("ring", ring_all_reduce),
    ("tree", tree_all_reduce),
    ("rabenseifner", rabenseifner),
    ("broadcast", broadcast),
    ("all-gather", all_gather),
    ("sparse all-gather", |ranks, bytes| sparse_all_gather(ranks, Message::words(bytes))),
    ("ar-topk ring", |ranks, bytes| ar_topk_ring(ranks, Message::words(bytes))),
    ("ar-topk tree", |ranks, bytes| ar_topk_tree(ranks, Message::words(bytes))),
    ("var surcharge", var_surcharge),
    ("iwp", |ranks, bytes| iwp(ranks, 3, bytes, 2.0 * bytes)),
    ("gtopk", |ranks, bytes| gtopk(ranks, Message::words(bytes))),
];

#[test]
fn one_rank_sends_nothing() {
    for (name, load) in LOADS {
        for ranks in [Ranks::new(0), Ranks::new(1), Ranks::continuous(1)] {
            assert_eq!(load(ranks, 1e9), Load::default(), "{name}");
        }
    }
}

#[test]
fn no_bytes_cost_hops_only() {
    let network = Network { latency: 1e-3, seconds_per_byte: 8e-9 };
    for (name, load) in LOADS {
        for count in 2..50 {
            let (empty, full) = (load(Ranks::new(count), 0.0), load(Ranks::new(count), 1e6));
            assert_eq!((empty.bytes, empty.hops), (0.0, full.hops), "{name}");
            assert_eq!(empty.seconds(network), full.hops * 1e-3, "{name}");
            assert!(empty.hops >= 1.0, "{name}");
        }
    }
}

proptest! {
    #[test]
    fn more_of_anything_costs_more(
        count in 1usize..2000,
        more_ranks in 0usize..100,
        bytes in 0.0..1e9f64,
        more_bytes in 0.0..1e9f64,
        latency in 0.0..0.1f64,
        more_latency in 0.0..0.1f64,
        beta in 0.0..1e-5f64,
        more_beta in 0.0..1e-5f64,
    ) {
        let network = Network { latency, seconds_per_byte: beta };
        let slower = Network { latency: latency + more_latency, seconds_per_byte: beta + more_beta };
        for (name, load) in LOADS {
            for form in [Ranks::new, Ranks::continuous] {
                let (here, more) = (load(form(count), bytes), load(form(count + more_ranks), bytes + more_bytes));
                prop_assert!(here.hops <= more.hops && here.bytes <= more.bytes, "{} {:?} {:?}", name, here, more);
                prop_assert!(here.seconds(network) <= here.seconds(slower), "{}", name);
            }
        }
    }

    /// What an algorithm takes is what the papers say or more, and just that at powers of two.
    #[test]
    fn whole_rounds_never_promise_more(count in 1usize..2000, bytes in 0.0..1e9f64) {
        for (name, load) in LOADS {
            let (whole, paper) = (load(Ranks::new(count), bytes), load(Ranks::continuous(count), bytes));
            prop_assert!(whole.hops >= paper.hops && whole.bytes >= paper.bytes, "{}", name);
            if count.is_power_of_two() {
                prop_assert_eq!(whole, paper, "{}", name);
            }
        }
    }
}
