//! A compressed all-reduce, as the caller and the group see it.
//!
//! The vector is cut into one shard for each rank, its owner. Every rank sends each owner its *contribution* to that
//! shard; the owner adds them up and sends the *sum* to all. So every rank sends `2 (N - 1) / N` of the compressed vector,
//! as a ring would, and each value is compressed twice, however many ranks there are: a ring would compress it anew at
//! every hop.
//!
//! The arithmetic is the caller's ([`CompressedSum`]); the group moves bytes. The caller does its work in small parts, and
//! a group whose bytes move by themselves (sockets) asks for the next part whenever it would otherwise wait: so the
//! arithmetic hides behind the wire, without a thread of its own.

use crate::{Error, Result};

/// The arithmetic of a compressed all-reduce.
pub trait CompressedSum {
    /// Bytes of a rank's contribution to the shard of `owner`; the same on all ranks.
    fn contribution_len(&self, owner: usize) -> usize;

    /// Bytes of the sum of the shard of `owner`; the same on all ranks.
    fn sum_len(&self, owner: usize) -> usize;

    /// Appends a part of this rank's contributions or, from what has arrived, of its sum. False if there is nothing to do
    /// until more arrives.
    fn advance(&mut self, messages: &mut ShardMessages) -> bool;
}

/// The messages of one rank in a compressed all-reduce. Kept for its memory.
#[derive(Debug, Default)]
pub struct ShardMessages {
    rank: usize,
    /// This rank's contribution to each shard, as far as it is made; none to its own.
    contributions: Vec<Vec<u8>>,
    /// The sum of this rank's shard, as far as it is made.
    sum: Vec<u8>,
    /// What each rank contributes to this rank's shard.
    received: Vec<Arriving>,
    /// The sums of the shards of all others.
    sums: Vec<Arriving>,
}

/// A message of known length, and how much of it is here.
#[derive(Debug, Default)]
struct Arriving {
    bytes: Vec<u8>,
    here: usize,
}

impl Arriving {
    fn expect(&mut self, length: usize) {
        // Not cleared: what is not here yet is never looked at.
        self.bytes.resize(length, 0);
        self.here = 0;
    }
}

impl ShardMessages {
    /// Room for the messages of a new all-reduce, all of them empty.
    pub(super) fn begin(&mut self, sum: &dyn CompressedSum, rank: usize, ranks: usize) {
        self.rank = rank;
        self.contributions.resize_with(ranks, Vec::new);
        self.contributions.iter_mut().for_each(Vec::clear);
        self.sum.clear();
        self.received.resize_with(ranks, Arriving::default);
        self.sums.resize_with(ranks, Arriving::default);
        for other in 0..ranks {
            let lengths = (sum.contribution_len(rank), sum.sum_len(other));
            let (contribution, sum) = if other == rank { (0, 0) } else { lengths };
            self.received[other].expect(contribution);
            self.sums[other].expect(sum);
        }
    }

    /// This rank's contribution to the shard of `owner`: appended to by [`CompressedSum::advance`].
    pub fn contribution(&mut self, owner: usize) -> &mut Vec<u8> {
        &mut self.contributions[owner]
    }

    /// The sum of this rank's shard: appended to by [`CompressedSum::advance`].
    pub fn own_sum(&mut self) -> &mut Vec<u8> {
        &mut self.sum
    }

    /// This rank's contribution to the shard of `owner`, as far as it is made.
    pub fn contributed(&self, owner: usize) -> &[u8] {
        &self.contributions[owner]
    }

    /// What `rank` contributes to this rank's shard, as far as it has arrived.
    pub fn received(&self, rank: usize) -> &[u8] {
        let message = &self.received[rank];
        &message.bytes[..message.here]
    }

    /// The sum of the shard of `owner`, as far as it is here.
    pub fn sum(&self, owner: usize) -> &[u8] {
        let message = &self.sums[owner];
        if owner == self.rank { &self.sum } else { &message.bytes[..message.here] }
    }

    /// The rank whose messages these are.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let arriving = self.received.iter().chain(&self.sums).map(|message| message.bytes.capacity());
        self.contributions.iter().map(Vec::capacity).chain(arriving).sum::<usize>() + self.sum.capacity()
    }

    /// Where bytes from `rank` go: `position` counts over its contribution and then its sum.
    pub(super) fn room(&mut self, rank: usize, position: usize) -> &mut [u8] {
        let first = self.received[rank].bytes.len();
        match position.checked_sub(first) {
            None => &mut self.received[rank].bytes[position..],
            Some(position) => &mut self.sums[rank].bytes[position..],
        }
    }

    /// So many more bytes from `rank` are here, in the room that was given.
    pub(super) fn arrived(&mut self, rank: usize, position: usize, count: usize) {
        let contribution = position < self.received[rank].bytes.len();
        let message = if contribution { &mut self.received[rank] } else { &mut self.sums[rank] };
        message.here += count;
    }

    /// The contribution of `rank`, whole.
    pub(super) fn receive(&mut self, rank: usize, bytes: &[u8]) {
        let message = &mut self.received[rank];
        message.bytes.copy_from_slice(bytes);
        message.here = bytes.len();
    }

    /// The sum of `owner`, whole.
    pub(super) fn receive_sum(&mut self, owner: usize, bytes: &[u8]) {
        let message = &mut self.sums[owner];
        message.bytes.copy_from_slice(bytes);
        message.here = bytes.len();
    }
}

/// Bytes of all messages: what ranks compare to find out that they sum alike.
pub(super) fn total_len(sum: &dyn CompressedSum, ranks: usize) -> u64 {
    (0..ranks).map(|owner| (sum.contribution_len(owner) + sum.sum_len(owner)) as u64).sum()
}

/// Ranks whose messages have other lengths sum something else.
pub(super) fn check_total(found: u64, expected: u64, rank: usize, step: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Disagreement {
        rank,
        step,
        field: "the number of bytes",
        found: found.to_string(),
        expected: expected.to_string(),
    })
}

/// The longest message to and from an owner: what groups of equal sizes exchange.
pub(super) fn longest(sum: &dyn CompressedSum, ranks: usize) -> (usize, usize) {
    let contributions = (0..ranks).map(|owner| sum.contribution_len(owner));
    let sums = (0..ranks).map(|owner| sum.sum_len(owner));
    (contributions.max().unwrap_or(0), sums.max().unwrap_or(0))
}
