//! The second seam: the ranks, and how bytes travel between them.
//!
//! A [`Group`] is this process's end of a set of ranks that work together. It knows five collectives, and every
//! rank calls the same ones in the same order. The exchange protocols are written once over this trait; what is
//! behind it varies:
//!
//! | group | ranks are | for |
//! |---|---|---|
//! | [`Local`] | threads of one process | tests and simulation |
//! | [`Tcp`] | processes, connected by TCP | any network; nothing to install |
#![cfg_attr(
    feature = "mpi",
    doc = "| [`Mpi`] (feature `mpi`) | processes started by `mpirun` | clusters that have an MPI |"
)]
#![cfg_attr(
    not(feature = "mpi"),
    doc = "| `Mpi` (feature `mpi`) | processes started by `mpirun` | clusters that have an MPI |"
)]
//! | [`EvenGroup`] | whatever an [`Even`] engine connects | other engines: torch.distributed |
//!
//! Whatever the group, after a collective every rank holds the same bits, and no wait goes on for ever: a rank
//! that died, stalled, or is at another collective, step or plan becomes an error that names it.
//! `docs/collectives.md` gives the communication steps and the bytes on the wire of each algorithm.
//!
//! ```
//! use thinwire::group::{Algorithm, Group, Local, Sum};
//!
//! let sums = Local::run(3, |mut group| {
//!     let mut values = [group.rank() as f32, 1.0];
//!     group.all_reduce(Sum::F32(&mut values), Algorithm::Ring).unwrap();
//!     values
//! });
//! assert_eq!(sums, [[3.0, 3.0]; 3]);
//! ```

mod collective;
mod compressed;
mod envelope;
mod even;
mod local;
mod mesh;
#[cfg(feature = "mpi")]
mod mpi;
mod numbers;
mod peer_text;
mod shared;
mod tcp;
mod wire;

pub use compressed::{CompressedSum, ShardMessages};
pub use even::{Even, EvenGroup};
pub use local::Local;
pub use mesh::Mesh;
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use numbers::{Precision, Sum};
pub use peer_text::peer_text;
pub use shared::SharedGroup;
pub use tcp::{Link, Schedule, Secret, Tcp, TcpSettings};

use std::time::Duration;

use crate::adapt::cost::{Network, Ranks, ring_beats_tree};
use crate::{Error, Result};

/// How long a rank waits for another without any progress, unless told otherwise.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// One rank's end of a set of ranks. See the [module](self).
pub trait Group: Send {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Says what the collectives that follow are for. Every message carries it: ranks that disagree get an error
    /// with both values, and errors name the step.
    fn mark(&mut self, mark: Mark);

    /// What was marked last.
    fn marked(&self) -> Mark;

    /// Sums the vectors of all ranks, element by element, into each of them.
    fn all_reduce(&mut self, values: Sum<'_>, how: Algorithm) -> Result<()>;

    /// Hands everybody the messages of all ranks, which may differ in length and may be empty. A message longer
    /// than `limit` bytes is refused before memory is taken for it.
    fn all_gather(
        &mut self,
        mine: &[u8],
        limit: usize,
        how: Algorithm,
        gathered: &mut Gathered,
    ) -> Result<()>;

    /// Hands everybody the message of `root`. Only the root's `message` is read; it becomes everybody's. One
    /// longer than `limit` bytes is refused before memory is taken for it.
    fn broadcast(&mut self, root: usize, message: &mut Vec<u8>, limit: usize, how: Algorithm) -> Result<()>;

    /// Sums a vector that travels compressed: see [`CompressedSum`]. Afterwards the sums of all shards are in `messages`.
    fn compressed_sum(&mut self, sum: &mut dyn CompressedSum, messages: &mut ShardMessages) -> Result<()>;

    /// Returns when every rank has called it.
    fn barrier(&mut self) -> Result<()>;

    /// Bytes sent and received so far.
    fn traffic(&self) -> Traffic;

    /// Whether every connection of this rank is encrypted; false where there is none.
    fn encrypted(&self) -> bool {
        false
    }

    /// Gives the group up and tells the others why, so that they need not wait for the deadline. Every later
    /// call is an error.
    fn abandon(&mut self, reason: &str);
}

/// What a collective belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// The training step.
    pub step: u64,
    /// The plan the ranks agreed on.
    pub plan: u32,
    /// The bucket.
    pub bucket: u32,
}

/// The way a collective takes through the ranks. It must be the same on all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Neighbour to neighbour: every link carries little, but the way round is long. For large vectors.
    Ring,
    /// The fewest hops: along a binomial tree, whose root's link carries much; in an all-gather, straight from
    /// each to each. For small vectors and slow answers.
    Tree,
}

impl Algorithm {
    /// The one that is likely faster for `bytes` on `ranks` ranks, when nothing is known of the network but that
    /// about 64 KiB are sent in the time of one hop: AR-Topk's condition 5a.
    ///
    /// ```
    /// use thinwire::group::Algorithm;
    /// assert_eq!(Algorithm::for_size(1_000, 8), Algorithm::Tree);
    /// assert_eq!(Algorithm::for_size(100_000_000, 8), Algorithm::Ring);
    /// ```
    pub fn for_size(bytes: usize, ranks: usize) -> Algorithm {
        const GUESS: Network = Network { latency: 65_536.0, seconds_per_byte: 1.0 };
        if ring_beats_tree(GUESS, Ranks::continuous(ranks), bytes as f64) {
            Algorithm::Ring
        } else {
            Algorithm::Tree
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Algorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Algorithm> {
        [Algorithm::Ring, Algorithm::Tree].into_iter().find(|algorithm| algorithm.name() == name).ok_or_else(
            || Error::BadSetting {
                name: "algorithm".into(),
                found: name.into(),
                expected: "ring or tree".into(),
            },
        )
    }
}

/// The messages of all ranks after an all-gather, in the order of the ranks. Kept for its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gathered {
    messages: Vec<Vec<u8>>,
}

impl Gathered {
    /// The message of one rank.
    pub fn of(&self, rank: usize) -> &[u8] {
        &self.messages[rank]
    }

    /// The messages, in the order of the ranks.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.messages.iter().map(Vec::as_slice)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(Vec::capacity).sum()
    }

    /// Cuts so many words off the end of every message and puts them one behind the other; a message that has fewer
    /// is an error with its rank and its bytes.
    pub(crate) fn take_ends(&mut self, words: usize, ends: &mut Vec<f32>) -> Result<(), (usize, usize)> {
        ends.clear();
        for (rank, message) in self.messages.iter_mut().enumerate() {
            let begin = message.len().checked_sub(4 * words).ok_or((rank, message.len()))?;
            ends.extend(message[begin..].as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)));
            message.truncate(begin);
        }
        Ok(())
    }

    /// Room for the messages of `ranks` ranks, all empty.
    pub(crate) fn begin(&mut self, ranks: usize) -> &mut [Vec<u8>] {
        self.messages.resize_with(ranks, Vec::new);
        self.messages.iter_mut().for_each(Vec::clear);
        &mut self.messages
    }
}

/// Bytes that went over the wire: messages with what was put around them, and encryption.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Bytes this rank sent.
    pub sent: u64,
    /// Bytes this rank received.
    pub received: u64,
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;

    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic { sent: self.sent - earlier.sent, received: self.received - earlier.received }
    }
}

#[cfg(test)]
mod tests;
