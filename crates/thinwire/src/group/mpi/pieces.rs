//! Long vectors and messages, a piece at a time.
//!
//! Pieces keep MPI's 32-bit counts far away and the memory for MPI small, and they make the deadline one for a
//! piece: a long vector on a slow network may take longer than a rank is waited for.

use std::mem::{swap, take};
use std::ops::Range;

use super::Mpi;
use super::wait::{Pace, Trouble};
use crate::group::collective::binomial;
use crate::group::compressed::{CompressedSum, ShardMessages, longest};
use crate::group::{Algorithm, Precision};

/// Bytes that all ranks work on in one call.
const PIECE: usize = 4 << 20;

impl Mpi {
    /// Sums `values` over all ranks.
    ///
    /// Counted as traffic, with `mine` for the bytes this rank sums: ring, all but `mine` and then `mine` to
    /// everybody, which for `N` equal shares is `2 (N - 1) / N` of the vector; tree, the vector once up and once
    /// down each link this rank has in a binomial tree.
    pub(super) fn sum(
        &mut self,
        values: &mut [u8],
        precision: Precision,
        how: Algorithm,
    ) -> Result<(), Trouble> {
        for piece in values.chunks_mut(PIECE) {
            match how {
                Algorithm::Ring => self.ring_sum(piece, precision)?,
                Algorithm::Tree => self.tree_sum(piece, precision)?,
            }
        }
        Ok(())
    }

    fn ring_sum(&mut self, values: &mut [u8], precision: Precision) -> Result<(), Trouble> {
        let (rank, size, width) = (self.data.rank, self.data.size, precision.width());
        let shares = (0..size).map(|rank| share(values.len() / width, rank, size).len());
        let mut staging = take(&mut self.staging);
        staging.outgoing.room(values.len()).copy_from_slice(values);
        let adder = &self.adders[precision as usize];
        let mut staging =
            self.complete(self.data.sum_scatter(staging, adder, shares.clone()), Pace::Moving)?;
        swap(&mut staging.outgoing, &mut staging.incoming);
        let lengths = shares.map(|elements| elements * width);
        let mut staging = self.complete(self.data.gather_ragged(staging, lengths), Pace::Moving)?;
        values.copy_from_slice(staging.incoming.room(values.len()));
        self.staging = staging;
        let mine = (share(values.len() / width, rank, size).len() * width) as u64;
        let moved = values.len() as u64 - mine + (size as u64 - 1) * mine;
        self.count(moved, moved);
        Ok(())
    }

    fn tree_sum(&mut self, values: &mut [u8], precision: Precision) -> Result<(), Trouble> {
        let mut staging = take(&mut self.staging);
        staging.outgoing.room(values.len()).copy_from_slice(values);
        let adder = &self.adders[precision as usize];
        let elements = values.len() / precision.width();
        let mut staging = self.complete(self.data.sum_to_first(staging, adder, elements), Pace::Moving)?;
        swap(&mut staging.outgoing, &mut staging.incoming);
        let mut staging = self.complete(self.data.cast(staging, 0, values.len()), Pace::Moving)?;
        values.copy_from_slice(staging.outgoing.room(values.len()));
        self.staging = staging;
        let (parent, children) = binomial(self.data.rank, self.data.size);
        let moved = ((parent.iter().count() + children.len()) * values.len()) as u64;
        self.count(moved, moved);
        Ok(())
    }

    /// Hands everybody the messages of all, whose lengths have been announced.
    ///
    /// Counted as traffic: this rank's message to each of the others, and theirs to this one.
    pub(super) fn gather(&mut self, mine: &[u8], messages: &mut [Vec<u8>]) -> Result<(), Trouble> {
        let (rank, size) = (self.data.rank, self.data.size);
        let longest = self.lengths.iter().copied().max().unwrap_or(0) as usize;
        let each = (PIECE / size).max(1);
        for start in (0..longest).step_by(each) {
            let part = |length: usize| start.min(length)..(start + each).min(length);
            let lengths = self.lengths.iter().map(|&length| part(length as usize).len());
            let mut staging = take(&mut self.staging);
            let outgoing = &mine[part(mine.len())];
            staging.outgoing.room(outgoing.len()).copy_from_slice(outgoing);
            let mut staging =
                self.complete(self.data.gather_ragged(staging, lengths.clone()), Pace::Moving)?;
            let mut at = 0;
            for (message, &length) in messages.iter_mut().zip(&self.lengths) {
                let count = part(length as usize).len();
                message.extend_from_slice(&staging.incoming.room(at + count)[at..]);
                at += count;
            }
            self.staging = staging;
        }
        let all: u64 = self.lengths.iter().sum();
        let mine = mine.len() as u64;
        debug_assert_eq!(self.lengths[rank], mine);
        self.count((size as u64 - 1) * mine, all - mine);
        Ok(())
    }

    /// A compressed all-reduce: all contributions are made and exchanged, then all sums.
    ///
    /// Counted as traffic: this rank's contributions and its sum to each of the others, and theirs to this one.
    pub(super) fn sum_compressed(
        &mut self,
        sum: &mut dyn CompressedSum,
        messages: &mut ShardMessages,
    ) -> Result<(), Trouble> {
        let (rank, size) = (self.data.rank, self.data.size);
        while sum.advance(messages) {}
        let mut received = vec![Vec::new(); size];
        self.scatter(longest(sum, size).0, messages, &mut received)?;
        let (mut sent, mine) = (0, sum.contribution_len(rank));
        for (other, message) in received.iter().enumerate().filter(|(other, _)| *other != rank) {
            messages.receive(other, &message[..mine]);
            sent += sum.contribution_len(other) as u64;
        }
        self.count(sent, (size as u64 - 1) * mine as u64);
        while sum.advance(messages) {}
        (0..size).for_each(|owner| self.lengths[owner] = sum.sum_len(owner) as u64);
        received.iter_mut().for_each(Vec::clear);
        self.gather(messages.sum(rank), &mut received)?;
        for (owner, message) in received.iter().enumerate().filter(|(owner, _)| *owner != rank) {
            messages.receive_sum(owner, message);
        }
        Ok(())
    }

    /// Sends each rank its contribution, filled up to `length` bytes.
    fn scatter(
        &mut self,
        length: usize,
        messages: &ShardMessages,
        received: &mut [Vec<u8>],
    ) -> Result<(), Trouble> {
        let size = self.data.size;
        let each = (PIECE / size).max(1);
        for start in (0..length).step_by(each) {
            let count = each.min(length - start);
            let mut staging = take(&mut self.staging);
            let outgoing = staging.outgoing.room(count * size);
            for (owner, place) in outgoing.chunks_exact_mut(count).enumerate() {
                let message = messages.contributed(owner);
                let part = &message[start.min(message.len())..(start + count).min(message.len())];
                place[..part.len()].copy_from_slice(part);
            }
            let mut staging = self.complete(self.data.all_to_all(staging, count), Pace::Moving)?;
            let incoming = staging.incoming.room(count * size);
            for (message, place) in received.iter_mut().zip(incoming.chunks_exact(count)) {
                message.extend_from_slice(place);
            }
            self.staging = staging;
        }
        Ok(())
    }

    /// Hands everybody the message of `root`, whose length has been announced. MPI has one broadcast, and picks
    /// the way itself.
    ///
    /// Counted as traffic: the message from whom this rank would have it along the chain or the binomial tree,
    /// and to whom this rank would pass it on.
    pub(super) fn cast(&mut self, root: usize, message: &mut Vec<u8>, how: Algorithm) -> Result<(), Trouble> {
        let (rank, size) = (self.data.rank, self.data.size);
        let length = self.lengths[root] as usize;
        if rank != root {
            message.clear();
        }
        for start in (0..length).step_by(PIECE) {
            let part = start..(start + PIECE).min(length);
            let mut staging = take(&mut self.staging);
            if rank == root {
                staging.outgoing.room(part.len()).copy_from_slice(&message[part.clone()]);
            }
            let mut staging = self.complete(self.data.cast(staging, root, part.len()), Pace::Moving)?;
            if rank != root {
                message.extend_from_slice(staging.outgoing.room(part.len()));
            }
            self.staging = staging;
        }
        let place = (rank + size - root) % size;
        let onward = match how {
            Algorithm::Ring => usize::from(place + 1 < size),
            Algorithm::Tree => binomial(place, size).1.len(),
        };
        let received = if rank == root { 0 } else { length };
        self.count((onward * length) as u64, received as u64);
        Ok(())
    }
}

/// The elements that `rank` sums.
fn share(elements: usize, rank: usize, size: usize) -> Range<usize> {
    // A piece is short and ranks are few: the product fits.
    rank * elements / size..(rank + 1) * elements / size
}
