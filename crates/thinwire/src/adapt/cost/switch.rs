//! AR-Topk's switch conditions: which of two collectives is faster, without pricing both.
//!
//! With x = (alpha/beta) / (M·c), the bytes that pass in the time of one hop for each byte of values, the paper has
//!
//! | condition | holds if |
//! |---|---|
//! | 5a, the ring beats the tree | x < (L - (N-1)/N) / (N-1-L) |
//! | 5b, the ring beats the all-gather | x < 1 - 1/N - L / (2(N-1)) |
//! | 5c, the tree beats the all-gather | x < (N-1)/L - 3/2 |
//!
//! where L is log₂ N, or that rounded up with [`Ranks::new`]. Here they are multiplied out, so that one or two ranks,
//! no bytes and a network without latency divide by nothing. A tie goes to the ring, then to the tree, as in the
//! authors' code. That also decides 5a where ring and tree have as many hops, where the paper's form divides by zero.
//!
//! `values` is M·c, the bytes of the values one rank sends. In 5b and 5c an index is as wide as a value, as in the
//! paper; for other messages ask [`Collective::best`](super::Collective::best).

use super::{Network, Ranks};

/// Condition 5a: a ring sums these values at least as fast as a tree.
///
/// The broadcast of the indices is the same on both sides, so this holds for every width of index and for plain
/// all-reduces too.
///
/// ```
/// use thinwire::adapt::cost::{Network, Ranks, ring_beats_tree};
///
/// let network: Network = "1gbit,1ms".parse()?; // 125 kB in the time of a hop
/// assert!(ring_beats_tree(network, Ranks::new(8), 1e6));
/// assert!(!ring_beats_tree(network, Ranks::new(8), 1e5));
/// # Ok::<(), thinwire::Error>(())
/// ```
pub fn ring_beats_tree(network: Network, ranks: Ranks, values: f64) -> bool {
    let saved_hops = ranks.others() - ranks.rounds();
    let saved_bytes = (ranks.rounds() - ranks.moved()) * values;
    network.latency * saved_hops <= network.seconds_per_byte * saved_bytes
}

/// Condition 5b: AR-Topk over a ring is at least as fast as gathering values and indices.
pub fn ring_beats_all_gather(network: Network, ranks: Ranks, values: f64) -> bool {
    let more_hops = 2.0 * ranks.others();
    let saved_bytes = (2.0 * ranks.others() - 2.0 * ranks.moved() - ranks.rounds()) * values;
    network.latency * more_hops <= network.seconds_per_byte * saved_bytes
}

/// Condition 5c: AR-Topk over a tree is at least as fast as gathering values and indices.
pub fn tree_beats_all_gather(network: Network, ranks: Ranks, values: f64) -> bool {
    let more_hops = 2.0 * ranks.rounds();
    let saved_bytes = (2.0 * ranks.others() - 3.0 * ranks.rounds()) * values;
    network.latency * more_hops <= network.seconds_per_byte * saved_bytes
}

#[cfg(test)]
mod tests {
    use super::super::Message;
    use super::super::{ar_topk_ring, ar_topk_tree, sparse_all_gather};
    use super::*;

    /// The conditions are no more than the costs compared. Near-ties are left out: there rounding decides.
    #[test]
    fn conditions_agree_with_the_costs() {
        let mut compared = 0;
        for count in 1..=130 {
            for ranks in [Ranks::new(count), Ranks::continuous(count)] {
                for latency in [0.0, 1e-6, 1e-4, 1e-3, 0.05] {
                    for exponent in -4..=36 {
                        let values = 10f64.powf(f64::from(exponent) / 4.0);
                        let network = Network { latency, seconds_per_byte: 8e-9 };
                        let message = Message::words(values / 4.0);
                        let ring = ar_topk_ring(ranks, message).seconds(network);
                        let tree = ar_topk_tree(ranks, message).seconds(network);
                        let gather = sparse_all_gather(ranks, message).seconds(network);
                        for (holds, a, b) in [
                            (ring_beats_tree(network, ranks, values), ring, tree),
                            (ring_beats_all_gather(network, ranks, values), ring, gather),
                            (tree_beats_all_gather(network, ranks, values), tree, gather),
                        ] {
                            if (a - b).abs() > 1e-12 * a.max(b) {
                                assert_eq!(holds, a < b, "{ranks:?} {network:?} {values}: {a} {b}");
                                compared += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(compared > 150_000, "{compared}");
    }

    /// Where the paper's x switches, computed from its conditions; a negative one never holds. `None`: always.
    #[test]
    fn the_papers_switch_points() {
        for (count, ring_tree, ring_gather, tree_gather) in [
            (2, None, 0.0, -0.5),
            (3, Some(2.21), 0.270, -0.24),
            (4, Some(1.25), 0.417, 0.0),
            (8, Some(0.531), 0.661, 0.833),
            (16, Some(0.278), 0.804, 2.25),
            (32, Some(0.155), 0.888, 4.70),
            (64, Some(0.088), 0.937, 9.00),
            (128, Some(0.050), 0.965, 16.6),
        ] {
            let ranks = Ranks::continuous(count);
            // One byte of values in a second: the latency is x.
            let at = |x: f64| Network { latency: x, seconds_per_byte: 1.0 };
            for (condition, point) in [
                (ring_beats_tree as fn(Network, Ranks, f64) -> bool, ring_tree.unwrap_or(f64::INFINITY)),
                (ring_beats_all_gather, ring_gather),
                (tree_beats_all_gather, tree_gather),
            ] {
                for x in
                    [1e-3, 0.97 * point, 1.03 * point, 1e3].into_iter().filter(|x| (1e-3..=1e3).contains(x))
                {
                    assert_eq!(condition(at(x), ranks, 1.0), x < point, "{count} ranks, {x} against {point}");
                }
            }
        }
    }

    #[test]
    fn ties_go_to_the_ring_and_nothing_divides_by_zero() {
        let network = Network { latency: 1e-3, seconds_per_byte: 8e-9 };
        for ranks in [Ranks::new(1), Ranks::continuous(1)] {
            assert!(ring_beats_tree(network, ranks, 1e6) && ring_beats_all_gather(network, ranks, 1e6));
            assert!(tree_beats_all_gather(network, ranks, 1e6));
        }
        assert!(ring_beats_tree(network, Ranks::new(2), 0.0));
        assert!(!ring_beats_tree(network, Ranks::new(4), 0.0));
        // With whole rounds ring and tree have the same hops on three ranks, and the ring fewer bytes.
        assert!(ring_beats_tree(Network { latency: 1e9, ..network }, Ranks::new(3), 1.0));
    }
}
