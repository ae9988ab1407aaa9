//! The loads of the collectives themselves, from AR-Topk's table I but for [`rabenseifner`].
//!
//! N is the number of ranks, L the rounds, M the bytes. Where a formula has L, the paper has log₂ N; with
//! [`Ranks::new`] it is log₂ N rounded up. These are the collectives of the papers: thinwire's own take other
//! numbers of hops in places, see `docs/collectives.md`.

use super::{Load, Ranks};

/// Every rank sends its gradient to one that sums and answers: 2 hops, 2(N-1)·M bytes, all over the server's link.
///
/// The paper's formula has the two hops also for a single rank; here a rank alone sends nothing.
pub fn parameter_server(ranks: Ranks, bytes: f64) -> Load {
    let hops = if ranks.count() == 1 { 0.0 } else { 2.0 };
    Load { hops, bytes: 2.0 * ranks.others() * bytes }
}

/// Ring all-reduce: 2(N-1) hops, 2(N-1)/N·M bytes. As in the paper for every N.
pub fn ring_all_reduce(ranks: Ranks, bytes: f64) -> Load {
    Load { hops: 2.0 * ranks.others(), bytes: 2.0 * ranks.moved() * bytes }
}

/// Tree all-reduce, up a binomial tree and down again: 2L hops, 2L·M bytes.
///
/// L is rounded up where the paper has log₂ N: with 6 ranks the tree is three rounds deep. The bytes suppose that a
/// rank passes a message on only when it has all of it.
pub fn tree_all_reduce(ranks: Ranks, bytes: f64) -> Load {
    broadcast(ranks, bytes) * 2.0
}

/// Rabenseifner's all-reduce, halving and doubling: 2L hops, 2(N-1)/N·M bytes.
///
/// RedSync's dense step, from memory of that paper. L is rounded up where the paper has log₂ N; that is right for
/// the hops, as ranks beyond a power of two are folded in by one more each way, but the bytes of this folding are
/// not in the formula.
pub fn rabenseifner(ranks: Ranks, bytes: f64) -> Load {
    Load { hops: 2.0 * ranks.rounds(), bytes: 2.0 * ranks.moved() * bytes }
}

/// Broadcast down a binomial tree: L hops, L·M bytes.
///
/// L is rounded up where the paper has log₂ N.
pub fn broadcast(ranks: Ranks, bytes: f64) -> Load {
    Load { hops: ranks.rounds(), bytes: ranks.rounds() * bytes }
}

/// All-gather of M bytes from each rank: L hops, (N-1)·M bytes.
///
/// L is rounded up where the paper has log₂ N; recursive doubling needs a power of two, but Bruck's algorithm takes
/// this many rounds for every N. `bytes` is what one rank gives, not what it gets.
pub fn all_gather(ranks: Ranks, bytes: f64) -> Load {
    Load { hops: ranks.rounds(), bytes: ranks.others() * bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hops and bytes by hand, for 8 ranks, for 6 with whole rounds, and for 6 as in the papers.
    #[test]
    fn loads_by_hand() {
        let log = 6f64.log2();
        for (name, cost, eight, six, paper) in [
            (
                "parameter server",
                parameter_server as fn(Ranks, f64) -> Load,
                (2.0, 1680.0),
                (2.0, 1200.0),
                (2.0, 1200.0),
            ),
            ("ring", ring_all_reduce, (14.0, 210.0), (10.0, 200.0), (10.0, 200.0)),
            ("tree", tree_all_reduce, (6.0, 720.0), (6.0, 720.0), (2.0 * log, 240.0 * log)),
            ("rabenseifner", rabenseifner, (6.0, 210.0), (6.0, 200.0), (2.0 * log, 200.0)),
            ("broadcast", broadcast, (3.0, 360.0), (3.0, 360.0), (log, 120.0 * log)),
            ("all-gather", all_gather, (3.0, 840.0), (3.0, 600.0), (log, 600.0)),
        ] {
            for (ranks, (hops, bytes)) in
                [(Ranks::new(8), eight), (Ranks::new(6), six), (Ranks::continuous(6), paper)]
            {
                let load = cost(ranks, 120.0);
                assert!((load.hops - hops).abs() < 1e-9, "{name} {ranks:?} {load:?}");
                assert!((load.bytes - bytes).abs() < 1e-9, "{name} {ranks:?} {load:?}");
            }
        }
    }
}
