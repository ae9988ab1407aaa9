//! Compressed all-reduce over byte streams: straight from every rank to every other, contribution first, then sum.
//!
//! Each stream is one contribution and one sum. Bytes of a contribution go as soon as they are made, and a part of a sum is
//! made as soon as everybody's contribution to it is here; since all ranks are sending contributions meanwhile, the wire
//! is never idle between the two. The order of targets is that of [`Gather`](super::gather::Gather).

use super::Plan;
use crate::group::compressed::{CompressedSum, ShardMessages, total_len};

pub(in crate::group) struct Compressed<'a> {
    sum: &'a mut dyn CompressedSum,
    messages: &'a mut ShardMessages,
    rank: usize,
    ranks: usize,
    sources: Vec<usize>,
    targets: Vec<usize>,
}

impl<'a> Compressed<'a> {
    pub fn new(
        sum: &'a mut dyn CompressedSum,
        messages: &'a mut ShardMessages,
        rank: usize,
        ranks: usize,
    ) -> Compressed<'a> {
        messages.begin(sum, rank, ranks);
        let sources = (1..ranks).map(|distance| (rank + ranks - distance) % ranks).collect();
        let targets = (1..ranks).map(|distance| (rank + distance) % ranks).collect();
        Compressed { sum, messages, rank, ranks, sources, targets }
    }
}

impl Plan for Compressed<'_> {
    fn sources(&self) -> &[usize] {
        &self.sources
    }

    fn targets(&self) -> &[usize] {
        &self.targets
    }

    fn announcement(&self) -> Option<u64> {
        Some(total_len(self.sum, self.ranks))
    }

    fn announced(&mut self, source: usize, length: u64) -> Result<u64, String> {
        let expected = total_len(self.sum, self.ranks);
        if length != expected {
            return Err(expected.to_string());
        }
        let owner = self.sources[source];
        Ok((self.sum.contribution_len(self.rank) + self.sum.sum_len(owner)) as u64)
    }

    fn total(&self, target: usize) -> u64 {
        let owner = self.targets[target];
        (self.sum.contribution_len(owner) + self.sum.sum_len(self.rank)) as u64
    }

    fn outgoing(&self, target: usize, position: u64) -> &[u8] {
        let (owner, position) = (self.targets[target], position as usize);
        match position.checked_sub(self.sum.contribution_len(owner)) {
            None => &self.messages.contributed(owner)[position..],
            Some(position) => &self.messages.sum(self.rank)[position..],
        }
    }

    fn incoming(&mut self, source: usize, position: u64) -> &mut [u8] {
        self.messages.room(self.sources[source], position as usize)
    }

    fn arrived(&mut self, source: usize, position: u64, count: usize) {
        self.messages.arrived(self.sources[source], position as usize, count);
    }

    fn advance(&mut self) -> bool {
        self.sum.advance(self.messages)
    }
}
