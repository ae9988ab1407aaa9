//! Broadcast: from the root along a chain (ring) or down a binomial tree.
//!
//! Bytes are passed on as they come. Along the chain every link carries the message once, whatever the number of
//! ranks; down the tree it arrives after fewer hops, but the root sends it to all its children.

use super::gather::grow;
use super::{Plan, binomial};
use crate::group::Algorithm;

pub(in crate::group) struct Cast<'a> {
    message: &'a mut Vec<u8>,
    limit: usize,
    sources: Vec<usize>,
    targets: Vec<usize>,
    /// The length, once known.
    length: Option<usize>,
    /// How much of it is here.
    here: usize,
}

impl<'a> Cast<'a> {
    pub fn new(
        message: &'a mut Vec<u8>,
        limit: usize,
        root: usize,
        how: Algorithm,
        rank: usize,
        size: usize,
    ) -> Cast<'a> {
        // Everything is counted from the root.
        let place = (rank + size - root) % size;
        let (before, after) = match how {
            Algorithm::Ring => {
                (place.checked_sub(1), Some(place + 1).filter(|&p| p < size).into_iter().collect())
            }
            Algorithm::Tree => binomial(place, size),
        };
        let rank_of = |place: usize| (place + root) % size;
        let sources: Vec<usize> = before.into_iter().map(rank_of).collect();
        // The farthest child has the most ranks below it, so it is sent to first.
        let targets = after.into_iter().rev().map(rank_of).collect();
        let (length, here) =
            if sources.is_empty() { (Some(message.len()), message.len()) } else { (None, 0) };
        if !sources.is_empty() {
            message.clear();
        }
        Cast { message, limit, sources, targets, length, here }
    }
}

impl Plan for Cast<'_> {
    fn sources(&self) -> &[usize] {
        &self.sources
    }

    fn targets(&self) -> &[usize] {
        &self.targets
    }

    fn announcement(&self) -> Option<u64> {
        self.length.map(|length| length as u64)
    }

    fn announced(&mut self, _source: usize, length: u64) -> Result<u64, String> {
        if length > self.limit as u64 {
            return Err(format!("at most {}", self.limit));
        }
        self.length = Some(length as usize);
        Ok(length)
    }

    fn total(&self, _target: usize) -> u64 {
        self.length.unwrap_or(0) as u64
    }

    fn outgoing(&self, _target: usize, position: u64) -> &[u8] {
        &self.message[position as usize..self.here]
    }

    fn incoming(&mut self, _source: usize, position: u64) -> &mut [u8] {
        grow(self.message, position as usize, self.length.unwrap_or(0))
    }

    fn arrived(&mut self, _source: usize, _position: u64, count: usize) {
        self.here += count;
    }
}
