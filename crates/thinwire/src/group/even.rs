//! A group over an engine that only knows collectives of equal sizes, such as torch.distributed.
//!
//! Messages of unlike lengths travel in slots: each carries an envelope, as in every group, and as much of the
//! message as fits. How much that is follows from the lengths of the same bucket's last messages, which all ranks
//! know; so the slots are equal and, in the steady state, one round is enough. What does not fit follows in a second
//! one.

use std::collections::HashMap;

use super::collective::binomial;
use super::compressed::{CompressedSum, ShardMessages, check_total, longest, total_len};
use super::envelope::{ENVELOPE_BYTES, Envelope, Operation};
use super::{Algorithm, Gathered, Group, Mark, Sum, Traffic};
use crate::{Error, Result};

/// What such an engine can do. Every rank calls the same, in the same order, with equal sizes; after an error the
/// engine is not used any more, but may go on using the memory of the call that failed.
pub trait Even: Send {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Sums the vectors of all ranks, element by element, into each of them: the same bits on every rank.
    fn all_reduce(&mut self, values: Sum<'_>) -> Result<()>;

    /// Writes `mine` of every rank, in the order of the ranks, into `all`, which is as long as all together.
    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()>;

    /// Cuts `mine` into as many equal parts as there are ranks and sends each rank its part; what all have sent to this
    /// one is written into `all`, in the order of the ranks.
    fn all_to_all(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()>;

    /// Writes the message of `root` into everybody's.
    fn broadcast(&mut self, root: usize, message: &mut [u8]) -> Result<()>;

    /// Tells the others, if that can be done, that this rank has given up, and why.
    fn abandon(&mut self, reason: &str);
}

/// The group over such an engine. Traffic is computed: a ring for sums and gathers, a binomial tree for broadcasts.
///
/// ```
/// use thinwire::group::{Algorithm, Even, EvenGroup, Gathered, Group, Sum};
/// use thinwire::Result;
///
/// /// One rank by itself.
/// struct Alone;
/// impl Even for Alone {
///     fn rank(&self) -> usize { 0 }
///     fn size(&self) -> usize { 1 }
///     fn all_reduce(&mut self, _: Sum<'_>) -> Result<()> { Ok(()) }
///     fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()> { Ok(all.copy_from_slice(mine)) }
///     fn all_to_all(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()> { Ok(all.copy_from_slice(mine)) }
///     fn broadcast(&mut self, _: usize, _: &mut [u8]) -> Result<()> { Ok(()) }
///     fn abandon(&mut self, _: &str) {}
/// }
///
/// let mut messages = Gathered::default();
/// EvenGroup::new(Alone).all_gather(b"any length", 100, Algorithm::Ring, &mut messages)?;
/// assert_eq!(messages.of(0), b"any length");
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug)]
pub struct EvenGroup<Engine> {
    engine: Engine,
    mark: Mark,
    sequence: u64,
    traffic: Traffic,
    lost: Option<String>,
    /// Bytes of a message that travel with its envelope, by bucket and collective.
    slots: HashMap<(u32, u8), usize>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// Bytes that travel with an envelope as long as nothing is known, and in messages that belong to no bucket.
const FIRST_SLOT: usize = 256 - ENVELOPE_BYTES;

/// Which slots are kept apart.
const GATHER: u8 = 0;
const CAST: u8 = 1;

impl<Engine: Even> EvenGroup<Engine> {
    /// The group over `engine`.
    pub fn new(engine: Engine) -> EvenGroup<Engine> {
        EvenGroup {
            engine,
            mark: Mark::default(),
            sequence: 0,
            traffic: Traffic::default(),
            lost: None,
            slots: HashMap::new(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
        }
    }

    /// Runs a collective; after an error the group is lost.
    fn collective<T>(
        &mut self,
        operation: Operation,
        length: usize,
        work: impl FnOnce(&mut Self, Envelope) -> Result<T>,
    ) -> Result<T> {
        if let Some(reason) = &self.lost {
            return Err(Error::GroupLost { reason: reason.clone() });
        }
        let envelope =
            Envelope { operation, sequence: self.sequence, mark: self.mark, length: length as u64 };
        self.sequence += 1;
        work(self, envelope).inspect_err(|error| self.abandon(&error.to_string()))
    }

    fn slot(&self, kind: u8) -> usize {
        self.slots.get(&(self.mark.bucket, kind)).copied().unwrap_or(FIRST_SLOT)
    }

    /// Remembers how long the longest message was, and a little more, since most lengths vary a little.
    fn learn(&mut self, kind: u8, longest: usize) {
        if self.mark.bucket != u32::MAX && longest > 0 {
            self.slots.insert((self.mark.bucket, kind), longest + longest / 64 + 32);
        }
    }

    /// Fills `outgoing` with the envelope and the first `slot` bytes of the message.
    fn pack(&mut self, envelope: Envelope, message: &[u8], slot: usize) {
        self.outgoing.clear();
        self.outgoing.extend_from_slice(&envelope.to_bytes());
        self.outgoing.extend_from_slice(&message[..message.len().min(slot)]);
        self.outgoing.resize(ENVELOPE_BYTES + slot, 0);
    }

    /// One round of an all-gather: `outgoing` of every rank into `incoming`.
    fn gather_round(&mut self) -> Result<()> {
        let others = self.engine.size() - 1;
        self.incoming.resize(self.outgoing.len() * (others + 1), 0);
        self.engine.all_gather(&self.outgoing, &mut self.incoming)?;
        self.count(others * self.outgoing.len(), others * self.outgoing.len());
        Ok(())
    }

    /// One round of a broadcast of `outgoing`.
    fn cast_round(&mut self, root: usize) -> Result<()> {
        self.engine.broadcast(root, &mut self.outgoing)?;
        let (rank, size, bytes) = (self.engine.rank(), self.engine.size(), self.outgoing.len());
        let onward = binomial((rank + size - root) % size, size).1.len();
        self.count(onward * bytes, if rank == root { 0 } else { bytes });
        Ok(())
    }

    fn gather(
        &mut self,
        envelope: Envelope,
        mine: &[u8],
        limit: usize,
        messages: &mut [Vec<u8>],
    ) -> Result<()> {
        let slot = self.slot(GATHER);
        self.pack(envelope, mine, slot);
        self.gather_round()?;
        let mut longest = 0;
        let places = self.incoming.chunks_exact(ENVELOPE_BYTES + slot);
        for (rank, (place, message)) in places.zip(messages.iter_mut()).enumerate() {
            let length = announced(envelope, place, rank, limit)?;
            message.extend_from_slice(&place[ENVELOPE_BYTES..][..length.min(slot)]);
            message.resize(length, 0);
            longest = longest.max(length);
        }
        if longest > slot {
            let rest = longest - slot;
            self.outgoing.clear();
            self.outgoing.extend_from_slice(mine.get(slot..).unwrap_or_default());
            self.outgoing.resize(rest, 0);
            self.gather_round()?;
            for (place, message) in self.incoming.chunks_exact(rest).zip(messages) {
                let missing = message.get_mut(slot..).unwrap_or_default();
                missing.copy_from_slice(&place[..missing.len()]);
            }
        }
        self.learn(GATHER, longest);
        Ok(())
    }

    fn cast(&mut self, envelope: Envelope, root: usize, message: &mut Vec<u8>, limit: usize) -> Result<()> {
        let (slot, is_root) = (self.slot(CAST), self.engine.rank() == root);
        self.pack(envelope, message, slot);
        self.cast_round(root)?;
        let length = announced(envelope, &self.outgoing, root, limit)?;
        if !is_root {
            message.clear();
            message.extend_from_slice(&self.outgoing[ENVELOPE_BYTES..][..length.min(slot)]);
        }
        if length > slot {
            self.outgoing.clear();
            self.outgoing.extend_from_slice(message.get(slot..).unwrap_or_default());
            self.outgoing.resize(length - slot, 0);
            self.cast_round(root)?;
            message.truncate(slot);
            message.extend_from_slice(&self.outgoing);
        }
        self.learn(CAST, length);
        Ok(())
    }

    /// Everybody's contribution to this rank's shard, then everybody's sum, each in slots as long as the longest.
    fn sum_compressed(
        &mut self,
        envelope: Envelope,
        sum: &mut dyn CompressedSum,
        messages: &mut ShardMessages,
    ) -> Result<()> {
        let (rank, size) = (self.engine.rank(), self.engine.size());
        let (contribution, whole_sum) = longest(sum, size);
        while sum.advance(messages) {}
        self.outgoing.clear();
        for owner in 0..size {
            let end = self.outgoing.len() + ENVELOPE_BYTES + contribution;
            self.outgoing.extend_from_slice(&envelope.to_bytes());
            self.outgoing.extend_from_slice(messages.contributed(owner));
            self.outgoing.resize(end, 0);
        }
        self.incoming.resize(self.outgoing.len(), 0);
        self.engine.all_to_all(&self.outgoing, &mut self.incoming)?;
        let moved = (size - 1) * (ENVELOPE_BYTES + contribution);
        self.count(moved, moved);
        for (from, place) in self.incoming.chunks_exact(ENVELOPE_BYTES + contribution).enumerate() {
            let head = place.first_chunk().expect("a slot begins with an envelope");
            check_total(envelope.check(head, from)?, envelope.length, from, envelope.mark.step)?;
            if from != rank {
                messages.receive(from, &place[ENVELOPE_BYTES..][..sum.contribution_len(rank)]);
            }
        }
        while sum.advance(messages) {}
        self.pack(envelope, messages.sum(rank), whole_sum);
        self.gather_round()?;
        for (owner, place) in self.incoming.chunks_exact(ENVELOPE_BYTES + whole_sum).enumerate() {
            let head = place.first_chunk().expect("a slot begins with an envelope");
            check_total(envelope.check(head, owner)?, envelope.length, owner, envelope.mark.step)?;
            if owner != rank {
                messages.receive_sum(owner, &place[ENVELOPE_BYTES..][..sum.sum_len(owner)]);
            }
        }
        Ok(())
    }

    fn count(&mut self, sent: usize, received: usize) {
        self.traffic.sent += sent as u64;
        self.traffic.received += received as u64;
    }
}

/// The length that the envelope at the start of `place` announces, if it is one for this collective.
fn announced(envelope: Envelope, place: &[u8], rank: usize, limit: usize) -> Result<usize> {
    let head = place.first_chunk().expect("a slot begins with an envelope");
    let length = envelope.check(head, rank)?;
    usize::try_from(length).ok().filter(|&length| length <= limit).ok_or_else(|| Error::Disagreement {
        rank,
        step: envelope.mark.step,
        field: "the number of bytes",
        found: length.to_string(),
        expected: format!("at most {limit}"),
    })
}

impl<Engine: Even> Group for EvenGroup<Engine> {
    fn rank(&self) -> usize {
        self.engine.rank()
    }

    fn size(&self) -> usize {
        self.engine.size()
    }

    fn mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    fn marked(&self) -> Mark {
        self.mark
    }

    /// The engine chooses the way. Sums carry no envelope: what they belong to is checked by the messages before and
    /// after them.
    fn all_reduce(&mut self, values: Sum<'_>, how: Algorithm) -> Result<()> {
        let operation = Operation::sum(how, values.precision());
        let (size, bytes) = (self.size(), values.len() * values.precision().width());
        self.collective(operation, bytes, |group, _| {
            if size > 1 && bytes > 0 {
                group.engine.all_reduce(values)?;
                let moved = 2 * (size - 1) * bytes / size;
                group.count(moved, moved);
            }
            Ok(())
        })
    }

    fn all_gather(
        &mut self,
        mine: &[u8],
        limit: usize,
        how: Algorithm,
        gathered: &mut Gathered,
    ) -> Result<()> {
        let messages = gathered.begin(self.size());
        // The engine chooses the way; but the ranks must agree on what they asked for.
        self.collective(Operation::gather(how), mine.len(), |group, envelope| {
            if let [only] = messages {
                only.extend_from_slice(mine);
                return Ok(());
            }
            group.gather(envelope, mine, limit, messages)
        })
    }

    fn broadcast(&mut self, root: usize, message: &mut Vec<u8>, limit: usize, how: Algorithm) -> Result<()> {
        let operation = Operation::cast(how, root, self.size())?;
        let alone = self.size() == 1;
        self.collective(operation, message.len(), |group, envelope| {
            if alone { Ok(()) } else { group.cast(envelope, root, message, limit) }
        })
    }

    fn compressed_sum(&mut self, sum: &mut dyn CompressedSum, messages: &mut ShardMessages) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        messages.begin(sum, rank, size);
        let total = total_len(sum, size) as usize;
        self.collective(Operation::CompressedSum, total, |group, envelope| {
            if size == 1 {
                while sum.advance(messages) {}
                return Ok(());
            }
            group.sum_compressed(envelope, sum, messages)
        })
    }

    fn barrier(&mut self) -> Result<()> {
        let mut nothing = vec![Vec::new(); self.size()];
        let alone = self.size() == 1;
        self.collective(Operation::Barrier, 0, |group, envelope| {
            if alone { Ok(()) } else { group.gather(envelope, &[], 0, &mut nothing) }
        })
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn abandon(&mut self, reason: &str) {
        if self.lost.is_none() {
            self.engine.abandon(reason);
            self.lost = Some(reason.to_owned());
            // The engine may still write into them: a collective that failed has not always ended.
            std::mem::forget(std::mem::take(&mut self.outgoing));
            std::mem::forget(std::mem::take(&mut self.incoming));
        }
    }
}
