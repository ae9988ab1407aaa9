//! The loads of exchanges that send a part of the gradient, put together from those of the collectives.
//!
//! The papers write M·c for the bytes of the values and, since an index is as wide as a value, for those of the
//! indices too. Here [`Message`] keeps them apart; [`Message::words`] gives the papers' formulas.

use super::{Load, Message, Ranks, all_gather, broadcast, ring_all_reduce, tree_all_reduce};

/// Everybody gathers what everybody chose: L hops, (N-1)·(values + indices) bytes.
///
/// With four bytes for each this is AR-Topk's L·alpha + 2(N-1)·M·c·beta; with [`Message::indices_only`], RedSync's
/// quantised exchange; with [`Message::bitmap`], the FFT pipeline's. L is rounded up where the papers have log₂ N.
pub fn sparse_all_gather(ranks: Ranks, message: Message) -> Load {
    all_gather(ranks, message.bytes())
}

/// AR-Topk over a ring, equation 4a: one leader broadcasts its indices, the values there are summed by a ring.
/// 2(N-1) + L hops; L·indices + 2(N-1)/N·values bytes.
///
/// L, of the broadcast, is rounded up where the paper has log₂ N.
///
/// ```
/// use thinwire::adapt::cost::{Message, Network, Ranks, ar_topk_ring};
///
/// // ResNet-18, 10 % kept: 34.8 ms by the formula, 35 ms in the paper's table.
/// let load = ar_topk_ring(Ranks::new(8), Message::words(0.1 * 11_689_512.0));
/// let ms = 1e3 * load.seconds("10gbit,1ms".parse::<Network>()?);
/// assert!((ms - 34.8).abs() < 0.05);
/// # Ok::<(), thinwire::Error>(())
/// ```
pub fn ar_topk_ring(ranks: Ranks, message: Message) -> Load {
    broadcast(ranks, message.indices) + ring_all_reduce(ranks, message.values)
}

/// AR-Topk over a tree, equation 4b: the same, summed by a tree. 3L hops, L·indices + 2L·values bytes.
///
/// L is rounded up where the paper has log₂ N.
pub fn ar_topk_tree(ranks: Ranks, message: Message) -> Load {
    broadcast(ranks, message.indices) + tree_all_reduce(ranks, message.values)
}

/// What AR-Topk's variant VAR adds, in which the rank with the largest norm leads: an all-gather of one score from
/// each, L hops and (N-1)·`score_bytes` bytes.
///
/// Four bytes in the paper, eight in thinwire's exchange. L is rounded up where the paper has log₂ N.
pub fn var_surcharge(ranks: Ranks, score_bytes: f64) -> Load {
    all_gather(ranks, score_bytes)
}

/// IWP: so many leaders broadcast their masks one after the other, the values at the union are summed by a ring.
/// r·L + 2(N-1) hops; r·L·`mask_bytes` + 2(N-1)/N·`union_bytes` bytes.
///
/// Reconstructed from the protocol: of the paper only the abstract was at hand, and that gives no cost. With one
/// leader and a list of k indices it is [`ar_topk_ring`]. `union_bytes` are the values at the union of the masks,
/// which is larger than one mask: its size is for the caller to measure or guess. L is log₂ N rounded up.
pub fn iwp(ranks: Ranks, leaders: usize, mask_bytes: f64, union_bytes: f64) -> Load {
    broadcast(ranks, mask_bytes) * leaders as f64 + ring_all_reduce(ranks, union_bytes)
}

/// gTop-k: pairs of ranks merge their messages and keep the k largest of the sum, round after round.
/// L hops, L·(values + indices) bytes.
///
/// As its authors' README has it, which counts the way up the tree only; where the result then has to be broadcast,
/// add [`broadcast`] of the message. Theirs needs a power of two; with L rounded up a rank without a partner waits
/// for the next round.
pub fn gtopk(ranks: Ranks, message: Message) -> Load {
    broadcast(ranks, message.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: f64 = 1e5;
    /// The papers' M·c for it.
    const PART: f64 = 4.0 * KEPT;

    fn close(a: Load, hops: f64, bytes: f64) -> bool {
        (a.hops - hops).abs() < 1e-9 && (a.bytes - bytes).abs() < 1e-3
    }

    /// Each formula as the papers write it, with alpha's factor and beta's.
    #[test]
    fn words_give_the_papers_formulas() {
        let message = Message::words(KEPT);
        for count in [1, 2, 3, 5, 8, 13, 64] {
            for ranks in [Ranks::new(count), Ranks::continuous(count)] {
                let (n, l) = (count as f64, ranks.rounds());
                assert!(close(sparse_all_gather(ranks, message), l, 2.0 * (n - 1.0) * PART));
                assert!(close(
                    ar_topk_ring(ranks, message),
                    2.0 * (n - 1.0) + l,
                    (2.0 * (n - 1.0) / n + l) * PART
                ));
                assert!(close(ar_topk_tree(ranks, message), 3.0 * l, 3.0 * l * PART));
                assert!(close(var_surcharge(ranks, 4.0), l, (n - 1.0) * 4.0));
                assert!(close(gtopk(ranks, message), l, 2.0 * KEPT * l * 4.0));
                let quantised = sparse_all_gather(ranks, Message::indices_only(KEPT));
                assert!(close(quantised, l, (n - 1.0) * PART));
            }
        }
    }

    #[test]
    fn iwp_with_one_leader_is_ar_topk() {
        for count in 1..20 {
            let ranks = Ranks::new(count);
            assert_eq!(iwp(ranks, 1, PART, PART), ar_topk_ring(ranks, Message::words(KEPT)));
        }
        let (two, three) = (iwp(Ranks::new(8), 2, 10.0, 80.0), iwp(Ranks::new(8), 3, 10.0, 80.0));
        assert!(close(two, 20.0, 200.0) && close(three, 23.0, 230.0), "{two:?} {three:?}");
    }
}
