//! The three ways AR-Topk chooses among.

use super::{Load, Message, Network, Ranks, ar_topk_ring, ar_topk_tree, sparse_all_gather};

/// How a compressed gradient travels, as AR-Topk's controller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collective {
    /// One leader's indices are broadcast, the values there summed by a ring. For much to send and short hops.
    Ring,
    /// The same, summed by a tree. Lies in between, and takes about eight ranks to win.
    Tree,
    /// Everybody gathers everybody's own choice. For little to send and long hops.
    AllGather,
}

impl Collective {
    /// All of them; on a tie the first wins, as in the authors' code.
    pub const ALL: [Collective; 3] = [Collective::Ring, Collective::Tree, Collective::AllGather];

    /// What it lays on the network when every rank has such a message.
    pub fn load(self, ranks: Ranks, message: Message) -> Load {
        match self {
            Collective::Ring => ar_topk_ring(ranks, message),
            Collective::Tree => ar_topk_tree(ranks, message),
            Collective::AllGather => sparse_all_gather(ranks, message),
        }
    }

    /// The fastest one, and the seconds it takes.
    ///
    /// ```
    /// use thinwire::adapt::cost::{Collective, Message, Network, Ranks};
    ///
    /// let network: Network = "10gbit,1ms".parse()?;
    /// let best = |kept| Collective::best(network, Ranks::new(8), Message::words(kept)).0;
    /// assert_eq!(best(1e6), Collective::Ring);
    /// assert_eq!(best(4.5e5), Collective::Tree);
    /// assert_eq!(best(1e5), Collective::AllGather);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn best(network: Network, ranks: Ranks, message: Message) -> (Collective, f64) {
        let price = |collective: Collective| (collective, collective.load(ranks, message).seconds(network));
        let [ring, tree, gather] = Collective::ALL.map(price);
        let agreed = if tree.1 < ring.1 { tree } else { ring };
        if gather.1 < agreed.1 { gather } else { agreed }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Collective::Ring => "ring",
            Collective::Tree => "tree",
            Collective::AllGather => "all-gather",
        }
    }
}

impl std::fmt::Display for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_best_is_no_slower_than_any(
            count in 1usize..300,
            latency in 0.0..0.1f64,
            seconds_per_byte in 0.0..1e-5f64,
            values in 0.0..1e9f64,
            indices in 0.0..1e9f64,
        ) {
            let network = Network { latency, seconds_per_byte };
            let (ranks, message) = (Ranks::new(count), Message { values, indices });
            let (best, seconds) = Collective::best(network, ranks, message);
            prop_assert_eq!(best.load(ranks, message).seconds(network), seconds);
            for other in Collective::ALL {
                prop_assert!(seconds <= other.load(ranks, message).seconds(network), "{} {}", best, other);
            }
        }
    }

    #[test]
    fn ties_go_to_the_first() {
        let still = Network { latency: 0.0, seconds_per_byte: 0.0 };
        let message = Message::words(1e6);
        assert_eq!(Collective::best(still, Ranks::new(8), message), (Collective::Ring, 0.0));
        let network = Network { latency: 1.0, seconds_per_byte: 1.0 };
        assert_eq!(Collective::best(network, Ranks::new(1), message), (Collective::Ring, 0.0));
        // Two ranks: the paper says that the all-gather always wins, for it has fewer hops and no more bytes.
        assert_eq!(Collective::best(network, Ranks::new(2), message).0, Collective::AllGather);
    }
}
