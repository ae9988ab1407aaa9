//! What an exchange costs on a given network, before it is tried.
//!
//! The papers price a collective with two numbers of the network: a latency (their alpha) for every message that
//! must wait for another one, and a time for every byte (their beta). So every formula here gives a [`Load`], the
//! number of hops and bytes that follow each other, which [`Load::seconds`] turns into time on one [`Network`].
//! A load does not know the network: when the network changes, the same loads are priced again, and measured times
//! of known loads are what a network can be fitted to.
//!
//! | file | formulas | paper |
//! |---|---|---|
//! | `dense.rs` | [`parameter_server`], [`ring_all_reduce`], [`tree_all_reduce`], [`rabenseifner`], [`broadcast`], [`all_gather`] | AR-Topk, table I |
//! | `sparse.rs` | [`sparse_all_gather`], [`ar_topk_ring`], [`ar_topk_tree`], [`var_surcharge`], [`iwp`], [`gtopk`] | AR-Topk 4a and 4b, IWP, gTop-k |
//! | `switch.rs` | [`ring_beats_tree`], [`ring_beats_all_gather`], [`tree_beats_all_gather`] | AR-Topk 5a to 5c |
//! | `collective.rs` | [`Collective::best`]: the fastest of the three | AR-Topk |
//! | `step.rs` | [`Step::pays`]: is compressing worth it at all? | AR-Topk |
//! | [`fft`] | time of the FFT pipeline, the least ratio that pays | FFT sparsification |
//! | [`redsync`] | time of a sparse and a dense step, with computing | RedSync |
//!
//! Seconds, bytes and seconds per byte throughout. Bytes are real numbers, because a controller moves the density
//! without steps. `docs/cost.md` has the formulas side by side and says what to make of the numbers.
//!
//! ```
//! use thinwire::adapt::cost::{Collective, Message, Network, Ranks, Step, ring_all_reduce};
//!
//! // ResNet-50 at a density of 1 % on 8 ranks. AR-Topk's authors give 58.8 ms, the ring being fastest.
//! let network: Network = "1gbit,1ms".parse()?;
//! let ranks = Ranks::new(8);
//! let elements = 25_557_032.0;
//! let (collective, sync) = Collective::best(network, ranks, Message::words(0.01 * elements));
//! assert_eq!(collective, Collective::Ring);
//! assert!((sync - 0.0558).abs() < 1e-4);
//!
//! // A dense step takes 1.45 s, so there is time to compress.
//! let dense = ring_all_reduce(ranks, 4.0 * elements).seconds(network);
//! assert!(Step { sync, compress: 0.03, decompress: 0.01 }.pays(dense));
//! # Ok::<(), thinwire::Error>(())
//! ```

mod collective;
mod dense;
pub mod fft;
mod load;
mod message;
mod network;
mod ranks;
pub mod redsync;
mod sparse;
mod step;
mod switch;

pub use collective::Collective;
pub use dense::{all_gather, broadcast, parameter_server, rabenseifner, ring_all_reduce, tree_all_reduce};
pub use load::Load;
pub use message::Message;
pub use network::Network;
pub use ranks::Ranks;
pub use sparse::{ar_topk_ring, ar_topk_tree, gtopk, iwp, sparse_all_gather, var_surcharge};
pub use step::Step;
pub use switch::{ring_beats_all_gather, ring_beats_tree, tree_beats_all_gather};

#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
