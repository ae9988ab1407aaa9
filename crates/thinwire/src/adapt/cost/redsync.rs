//! RedSync's two sides: a sparse step that gathers and adds, a dense step that reduces.
//!
//! Reconstructed: the formulas are from memory of the paper, and fit its authors' code; the paper's own tables were
//! not at hand. A layer is compressed only if its sparse step [pays](Step::pays) against [`dense`].

use super::{Message, Network, Ranks, Step, rabenseifner, sparse_all_gather};

/// The time of computing around the wire, to be measured on the machine at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Compute {
    /// Seconds to select what is sent.
    pub select: f64,
    /// Seconds to add one rank's message to the sum: the paper's gamma1.
    pub add_message: f64,
    /// Seconds to add one byte in a dense all-reduce: the paper's gamma2.
    pub reduce_byte: f64,
}

/// A sparse step: selection, all-gather, and one message to add for each of the N ranks, the own one too.
/// L·alpha + (N-1)·message·beta on the wire, N·gamma1 after it.
///
/// [`Message::words`] gives the plain form, [`Message::indices_only`] the quantised one. L is log₂ N rounded up where
/// the paper has log₂ N.
pub fn sparse(network: Network, ranks: Ranks, message: Message, compute: Compute) -> Step {
    Step {
        sync: sparse_all_gather(ranks, message).seconds(network),
        compress: compute.select,
        decompress: ranks.count() as f64 * compute.add_message,
    }
}

/// Seconds of a dense step of so many bytes: Rabenseifner's all-reduce, and (N-1)/N·M·gamma2 to add.
///
/// What [`rabenseifner`] says of ranks that are no power of two holds here.
pub fn dense(network: Network, ranks: Ranks, bytes: f64, compute: Compute) -> f64 {
    rabenseifner(ranks, bytes).seconds(network) + ranks.moved() * bytes * compute.reduce_byte
}

/// Bytes on the wire of a sparse step for each byte of a dense one: N·message / (2·dense).
///
/// With four bytes for value and index each that is N times the density, half of it quantised; so it grows with
/// the ranks, and from 1/density ranks on nothing is saved.
///
/// ```
/// use thinwire::adapt::cost::{Message, Ranks, redsync};
///
/// // A density of 0.1 % on 128 ranks.
/// let ratio = redsync::byte_ratio(Ranks::new(128), Message::words(1e3), 4e6);
/// assert!((ratio - 0.128).abs() < 1e-12);
/// ```
pub fn byte_ratio(ranks: Ranks, message: Message, dense_bytes: f64) -> f64 {
    ranks.count() as f64 * message.bytes() / (2.0 * dense_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network = Network { latency: 1e-3, seconds_per_byte: 1e-9 };
    const COMPUTE: Compute = Compute { select: 2e-3, add_message: 1e-4, reduce_byte: 1e-10 };

    #[test]
    fn terms_by_hand() {
        let step = sparse(NETWORK, Ranks::new(8), Message::words(1e5), COMPUTE);
        assert!((step.sync - (3e-3 + 7.0 * 8e5 * 1e-9)).abs() < 1e-12);
        assert_eq!((step.compress, step.decompress), (2e-3, 8.0 * 1e-4));
        let seconds = dense(NETWORK, Ranks::new(8), 4e7, COMPUTE);
        assert!((seconds - (6e-3 + 1.75 * 4e7 * 1e-9 + 0.875 * 4e7 * 1e-10)).abs() < 1e-12);
        assert!(step.pays(seconds));
        assert_eq!(dense(NETWORK, Ranks::new(1), 4e7, COMPUTE), 0.0);
    }

    #[test]
    fn the_ratio_is_that_of_the_loads() {
        for count in 2..200 {
            let ranks = Ranks::new(count);
            let loads = sparse_all_gather(ranks, Message::words(1e4)).bytes / rabenseifner(ranks, 4e6).bytes;
            let found = byte_ratio(ranks, Message::words(1e4), 4e6);
            assert!((found - loads).abs() < 1e-9 * loads && (found - 0.01 * count as f64).abs() < 1e-9);
            assert_eq!(byte_ratio(ranks, Message::indices_only(1e4), 4e6), found / 2.0);
        }
    }

    /// Adding the messages of all ranks grows with their number and ends by being most of the step.
    #[test]
    fn more_ranks_make_adding_the_bottleneck() {
        let fast = Network { latency: 1e-6, seconds_per_byte: 1e-11 };
        let share = |count| {
            let step = sparse(fast, Ranks::new(count), Message::words(1e5), COMPUTE);
            step.decompress / step.seconds()
        };
        assert!(share(2) < 0.1 && share(8) < share(32) && share(128) > 0.8);
    }
}
