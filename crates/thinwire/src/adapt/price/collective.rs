//! The loads of thinwire's own collectives.
//!
//! They are not the papers': a tree passes bytes on as they come, a broadcast may run along a chain, and an all-gather
//! may go straight from each to each in a single hop. `docs/collectives.md` says how each of them runs.

use crate::adapt::cost::{Load, Ranks};
use crate::group::Algorithm;

/// Bytes in front of every message, once for each neighbour and collective.
const ENVELOPE: f64 = 40.0;

/// A collective of thinwire's, with its algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collective {
    /// All-reduce around the ring.
    RingSum,
    /// All-reduce up a binomial tree and down again.
    TreeSum,
    /// All-gather around the ring, lengths first.
    RingGather,
    /// All-gather straight from each to each.
    StraightGather,
    /// Broadcast along a chain.
    ChainCast,
    /// Broadcast down a binomial tree.
    TreeCast,
    /// Compressed all-reduce: shards straight to their owners, their sums straight to all. Not measured by itself: its
    /// messages travel as those of a straight all-gather do.
    StraightSum,
}

impl Collective {
    /// Those that are measured one by one.
    pub const ALL: [Collective; 6] = [
        Collective::RingSum,
        Collective::TreeSum,
        Collective::RingGather,
        Collective::StraightGather,
        Collective::ChainCast,
        Collective::TreeCast,
    ];

    /// The all-reduce of an algorithm.
    pub fn sum(how: Algorithm) -> Collective {
        if how == Algorithm::Ring { Collective::RingSum } else { Collective::TreeSum }
    }

    /// The all-gather of an algorithm.
    pub fn gather(how: Algorithm) -> Collective {
        if how == Algorithm::Ring { Collective::RingGather } else { Collective::StraightGather }
    }

    /// The broadcast of an algorithm.
    pub fn cast(how: Algorithm) -> Collective {
        if how == Algorithm::Ring { Collective::ChainCast } else { Collective::TreeCast }
    }

    /// The place in [`ALL`](Collective::ALL) of what it is measured by.
    pub fn place(self) -> usize {
        if self == Collective::StraightSum { Collective::StraightGather as usize } else { self as usize }
    }

    /// Whether its time counts as that of a sum.
    pub fn is_sum(self) -> bool {
        matches!(self, Collective::RingSum | Collective::TreeSum | Collective::StraightSum)
    }

    /// What it lays on the network for a vector or message of so many bytes; in an all-gather, of each rank.
    ///
    /// ```
    /// use thinwire::adapt::cost::Ranks;
    /// use thinwire::adapt::price::Collective;
    ///
    /// let load = Collective::StraightGather.load(Ranks::new(4), 1e6);
    /// assert_eq!((load.hops, load.bytes), (1.0, 3.0 * (1e6 + 40.0)));
    /// ```
    pub fn load(self, ranks: Ranks, bytes: f64) -> Load {
        let count = ranks.count() as f64;
        let (others, rounds) = (count - 1.0, ranks.rounds());
        if others == 0.0 {
            return Load::default();
        }
        match self {
            Collective::RingSum => {
                Load { hops: 2.0 * others, bytes: 2.0 * others / count * bytes + ENVELOPE }
            }
            Collective::TreeSum => Load { hops: 2.0 * rounds, bytes: rounds * (bytes + ENVELOPE) },
            Collective::RingGather => Load { hops: count, bytes: others * bytes + 2.0 * ENVELOPE },
            Collective::StraightGather => Load { hops: 1.0, bytes: others * (bytes + ENVELOPE) },
            Collective::ChainCast => Load { hops: others, bytes: bytes + ENVELOPE },
            Collective::TreeCast => Load { hops: rounds, bytes: rounds * (bytes + ENVELOPE) },
            Collective::StraightSum => Load { hops: 2.0, bytes: 2.0 * others * (bytes / count + ENVELOPE) },
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Collective::RingSum => "ring all-reduce",
            Collective::TreeSum => "tree all-reduce",
            Collective::RingGather => "ring all-gather",
            Collective::StraightGather => "straight all-gather",
            Collective::ChainCast => "chain broadcast",
            Collective::TreeCast => "tree broadcast",
            Collective::StraightSum => "straight all-reduce",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_alone_sends_nothing() {
        for collective in Collective::ALL {
            assert_eq!(collective.load(Ranks::new(1), 1e6), Load::default());
            assert_eq!(Collective::ALL[collective.place()], collective);
        }
    }

    #[test]
    fn loads_by_hand_for_six_ranks() {
        let load = |collective: Collective| collective.load(Ranks::new(6), 6000.0);
        for (collective, hops, bytes) in [
            (Collective::RingSum, 10.0, 10_040.0),
            (Collective::TreeSum, 6.0, 18_120.0),
            (Collective::RingGather, 6.0, 30_080.0),
            (Collective::StraightGather, 1.0, 30_200.0),
            (Collective::ChainCast, 5.0, 6040.0),
            (Collective::TreeCast, 3.0, 18_120.0),
            (Collective::StraightSum, 2.0, 10_400.0),
        ] {
            assert_eq!(load(collective), Load { hops, bytes }, "{}", collective.name());
        }
    }
}
