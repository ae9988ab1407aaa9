//! Who chooses the coordinates, and how the sums travel: one bucket's way through the ranks.
//!
//! | exchange | coordinates | what travels | methods |
//! |---|---|---|---|
//! | dense | all | all-reduce of the gradient | `dense`, and every method while it warms up densely |
//! | gathered | each rank its own | ragged all-gather of frames, summed by everybody in the order of the ranks; layers sent dense by an all-reduce beside it where that pays | `topk`, `gaussian-k`, `redsync`, `fft`, `dgc`, `mstopk` |
//! | quantized | all | every value in a few bits to the owner of its shard, and the sum from there to all | `quantized` |
//! | agreed | those of the [`Leaders`] | their coordinates are broadcast, the values there all-reduced | `ar-topk`, `iwp`, `random-k` |
//!
//! A step has two halves. In the first a bucket *travels*: its gradient enters the memory, something is
//! selected, and bytes are exchanged. In the second it *settles*: the memory forgets what was sent, and the mean
//! takes the place of the gradient. Between the two nothing has been forgotten yet; so a step in which some rank
//! could not take part (a NaN in its gradient, say) is taken back by all ranks, and the group works on.

mod agreed;
mod assigned;
mod dense;
mod dense_layers;
mod gathered;
mod lane;
mod leaders;
mod notes;
mod quantized;
mod sums;
mod verdict;

pub(crate) use dense_layers::{DenseLayers, reduction_pays};
pub(crate) use lane::{Algorithms, Lane, LaneTimes, Route, Situation};
pub use leaders::Leaders;
pub(crate) use verdict::verdict;
