//! Tree all-reduce: sums run up a binomial tree to rank 0, and the result runs down again.
//!
//! A rank adds its children's vectors to its own, nearest child first: a child may only be added as far as the
//! one before it, so that the order of additions does not depend on who is faster. Whatever has been summed goes
//! on at once; both directions are streams.

use super::{Plan, Scratch, binomial};
use crate::group::numbers::{Precision, add};

pub(in crate::group) struct TreeSum<'a> {
    values: &'a mut [u8],
    precision: Precision,
    scratch: &'a mut Scratch,
    /// The children, then the parent.
    sources: Vec<usize>,
    /// The children, then the parent.
    targets: Vec<usize>,
    has_parent: bool,
    /// How far each child has been added, and at the end how far the result has come down.
    done: Vec<usize>,
    /// The first bytes of each child's next element, where it is not whole yet.
    torn: Vec<[u8; 4]>,
}

impl<'a> TreeSum<'a> {
    pub fn new(
        values: &'a mut [u8],
        precision: Precision,
        scratch: &'a mut Scratch,
        rank: usize,
        size: usize,
    ) -> TreeSum<'a> {
        let (parent, children) = binomial(rank, size);
        let sources: Vec<usize> = children.into_iter().chain(parent).collect();
        let (done, torn) = (vec![0; sources.len()], vec![[0; 4]; sources.len()]);
        let targets = sources.clone();
        TreeSum { values, precision, scratch, sources, targets, has_parent: parent.is_some(), done, torn }
    }

    fn children(&self) -> usize {
        self.sources.len() - self.has_parent as usize
    }

    /// How far the sum of this rank and all below it has come.
    fn summed(&self) -> usize {
        match self.children() {
            0 => self.values.len(),
            children => self.done[children - 1],
        }
    }
}

impl Plan for TreeSum<'_> {
    fn sources(&self) -> &[usize] {
        &self.sources
    }

    fn targets(&self) -> &[usize] {
        &self.targets
    }

    fn announcement(&self) -> Option<u64> {
        Some(self.values.len() as u64)
    }

    fn announced(&mut self, _source: usize, length: u64) -> Result<u64, String> {
        if length == self.values.len() as u64 { Ok(length) } else { Err(self.values.len().to_string()) }
    }

    fn total(&self, _target: usize) -> u64 {
        self.values.len() as u64
    }

    fn outgoing(&self, target: usize, position: u64) -> &[u8] {
        let up = target == self.children();
        let ready = match self.has_parent {
            true if !up => self.done[self.children()],
            _ => self.summed(),
        };
        &self.values[position as usize..ready.max(position as usize)]
    }

    fn incoming(&mut self, source: usize, position: u64) -> &mut [u8] {
        let position = position as usize;
        if source == self.children() {
            // The result can't come back before this rank's part of it has gone up.
            return &mut self.values[position..];
        }
        let allowed = if source == 0 { self.values.len() } else { self.done[source - 1] };
        let torn = position - self.done[source];
        let length = (allowed - self.done[source]).min(Scratch::BYTES);
        if length <= torn {
            return &mut [];
        }
        let scratch = self.scratch.bytes();
        scratch[..torn].copy_from_slice(&self.torn[source][..torn]);
        &mut scratch[torn..length]
    }

    fn arrived(&mut self, source: usize, position: u64, count: usize) {
        if source == self.children() {
            self.done[source] += count;
            return;
        }
        let done = self.done[source];
        let held = position as usize + count - done;
        let whole = held / self.precision.width() * self.precision.width();
        let scratch = self.scratch.bytes();
        add(self.precision, &mut self.values[done..done + whole], &scratch[..whole]);
        self.torn[source][..held - whole].copy_from_slice(&scratch[whole..held]);
        self.done[source] += whole;
    }
}
