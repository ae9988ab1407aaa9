//! All-gather along the ring: every rank passes on what comes from its left.
//!
//! Each link carries every message once and each rank is sent to by one other only, so that no link overflows where
//! many would send to one. The lengths are known beforehand.

use super::Plan;
use super::gather::grow;

pub(in crate::group) struct RingGather<'a> {
    messages: &'a mut [Vec<u8>],
    lengths: &'a [usize],
    rank: usize,
    left: [usize; 1],
    right: [usize; 1],
    /// What has come: whole messages, and bytes of the one that is under way.
    done: (usize, usize),
}

impl<'a> RingGather<'a> {
    /// `messages` has an empty message for each rank; `lengths` says how long they will be.
    pub fn new(
        mine: &[u8],
        lengths: &'a [usize],
        messages: &'a mut [Vec<u8>],
        rank: usize,
    ) -> RingGather<'a> {
        let size = messages.len();
        messages[rank].extend_from_slice(mine);
        let (left, right) = ([(rank + size - 1) % size], [(rank + 1) % size]);
        let mut plan = RingGather { messages, lengths, rank, left, right, done: (0, 0) };
        plan.skip_empty_messages();
        plan
    }

    /// Whose message is number `number` of the stream that `rank` sends: its own first.
    fn owner(&self, rank: usize, number: usize) -> usize {
        (rank + self.lengths.len() - number) % self.lengths.len()
    }

    fn stream(&self, rank: usize) -> u64 {
        (0..self.lengths.len() - 1).map(|number| self.lengths[self.owner(rank, number)] as u64).sum()
    }

    fn skip_empty_messages(&mut self) {
        let last = self.lengths.len() - 1;
        while self.done.0 < last && self.done.1 == self.lengths[self.owner(self.left[0], self.done.0)] {
            self.done = (self.done.0 + 1, 0);
        }
    }
}

impl Plan for RingGather<'_> {
    fn sources(&self) -> &[usize] {
        &self.left
    }

    fn targets(&self) -> &[usize] {
        &self.right
    }

    fn announcement(&self) -> Option<u64> {
        Some(self.lengths.iter().map(|&length| length as u64).sum())
    }

    fn announced(&mut self, _source: usize, length: u64) -> Result<u64, String> {
        let expected: u64 = self.lengths.iter().map(|&length| length as u64).sum();
        if length == expected { Ok(self.stream(self.left[0])) } else { Err(expected.to_string()) }
    }

    fn total(&self, _target: usize) -> u64 {
        self.stream(self.rank)
    }

    fn outgoing(&self, _target: usize, position: u64) -> &[u8] {
        let mut from = position as usize;
        for number in 0..self.lengths.len() - 1 {
            let owner = self.owner(self.rank, number);
            if from < self.lengths[owner] {
                // The message after this rank's own is the first that comes from the left.
                let here = match number {
                    0 => self.lengths[owner],
                    number if number <= self.done.0 => self.lengths[owner],
                    number if number == self.done.0 + 1 => self.done.1,
                    _ => 0,
                };
                return &self.messages[owner][from..here.max(from)];
            }
            from -= self.lengths[owner];
        }
        &[]
    }

    fn incoming(&mut self, _source: usize, _position: u64) -> &mut [u8] {
        let (number, at) = self.done;
        if number == self.lengths.len() - 1 {
            return &mut [];
        }
        let owner = self.owner(self.left[0], number);
        grow(&mut self.messages[owner], at, self.lengths[owner])
    }

    fn arrived(&mut self, _source: usize, _position: u64, count: usize) {
        self.done.1 += count;
        self.skip_empty_messages();
    }
}
