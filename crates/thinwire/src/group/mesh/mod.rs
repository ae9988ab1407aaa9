//! The collectives over byte streams between all ranks.

mod drive;
mod watch;

use std::time::Duration;

use super::collective::Scratch;
use super::collective::cast::Cast;
use super::collective::compressed::Compressed;
use super::collective::gather::Gather;
use super::collective::ring::RingSum;
use super::collective::ring_gather::RingGather;
use super::collective::tree::TreeSum;
use super::envelope::{Envelope, Operation};
use super::wire::{Interest, Note, Wire};
use super::{Algorithm, CompressedSum, Gathered, Group, Mark, ShardMessages, Sum, Traffic};
use crate::{Error, Result};
use drive::{Incoming, Outgoing};

/// A group whose ranks are all connected to each other by a wire: threads ([`Local`](super::Local)) or sockets
/// ([`Tcp`](super::Tcp)). The algorithms are the same on both.
#[derive(Debug)]
pub struct Mesh<W> {
    wire: W,
    deadline: Duration,
    mark: Mark,
    sequence: u64,
    /// The collective that was finished last.
    before: Option<Envelope>,
    /// The first error, after which nothing works any more.
    lost: Option<Error>,
    scratch: Scratch,
    /// Streams of the collective that is under way, and whom it waits for; kept for their memory.
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    interest: Interest,
    small: Gathered,
}

impl<W: Wire> Mesh<W> {
    /// A group over `wire`, in which a rank is given up when it makes no progress for `deadline`.
    pub(super) fn over(wire: W, deadline: Duration) -> Mesh<W> {
        Mesh {
            wire,
            deadline,
            mark: Mark::default(),
            sequence: 0,
            before: None,
            lost: None,
            scratch: Scratch::default(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            interest: Interest::default(),
            small: Gathered::default(),
        }
    }

    /// How long a rank is waited for without progress.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sets how long a rank is waited for without progress.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }
}

impl<W: Wire> Group for Mesh<W> {
    fn rank(&self) -> usize {
        self.wire.rank()
    }

    fn size(&self) -> usize {
        self.wire.size()
    }

    fn mark(&mut self, mark: Mark) {
        if mark.step != self.mark.step {
            self.wire.begin_step(mark.step);
        }
        self.mark = mark;
    }

    fn marked(&self) -> Mark {
        self.mark
    }

    fn all_reduce(&mut self, values: Sum<'_>, how: Algorithm) -> Result<()> {
        let (rank, size, precision) = (self.rank(), self.size(), values.precision());
        if size == 1 {
            return self.check_lost();
        }
        let bytes = values.into_bytes();
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = match how {
            Algorithm::Ring => self.collective(
                Operation::RingSum(precision),
                &mut RingSum::new(bytes, precision, &mut scratch, rank, size),
            ),
            Algorithm::Tree => self.collective(
                Operation::TreeSum(precision),
                &mut TreeSum::new(bytes, precision, &mut scratch, rank, size),
            ),
        };
        self.scratch = scratch;
        result
    }

    fn all_gather(
        &mut self,
        mine: &[u8],
        limit: usize,
        how: Algorithm,
        gathered: &mut Gathered,
    ) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let messages = gathered.begin(size);
        match how {
            _ if size == 1 => {
                messages[0].extend_from_slice(mine);
                self.check_lost()
            }
            Algorithm::Ring if size > 2 => {
                let lengths = self.lengths(mine.len(), limit)?;
                let mut plan = RingGather::new(mine, &lengths, messages, rank);
                self.collective(Operation::RingGather, &mut plan)
            }
            // Between two, the ring is the straight way too.
            Algorithm::Ring | Algorithm::Tree => {
                self.collective(Operation::DirectGather, &mut Gather::new(mine, limit, messages, rank))
            }
        }
    }

    fn broadcast(&mut self, root: usize, message: &mut Vec<u8>, limit: usize, how: Algorithm) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let operation = Operation::cast(how, root, size)?;
        self.collective(operation, &mut Cast::new(message, limit, root, how, rank, size))
    }

    fn compressed_sum(&mut self, sum: &mut dyn CompressedSum, messages: &mut ShardMessages) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        self.collective(Operation::CompressedSum, &mut Compressed::new(sum, messages, rank, size))
    }

    fn barrier(&mut self) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let mut none = std::mem::take(&mut self.small);
        let result = self.collective(Operation::Barrier, &mut Gather::new(&[], 0, none.begin(size), rank));
        self.small = none;
        result
    }

    fn traffic(&self) -> Traffic {
        self.wire.traffic()
    }

    fn encrypted(&self) -> bool {
        self.wire.encrypted()
    }

    fn abandon(&mut self, reason: &str) {
        if self.lost.is_none() {
            let culprit = self.rank();
            self.give_up(culprit, Error::GroupLost { reason: reason.to_owned() });
        }
    }
}

impl<W: Wire> Mesh<W> {
    /// How long everybody's message is, none longer than `limit`.
    fn lengths(&mut self, mine: usize, limit: usize) -> Result<Vec<usize>> {
        let mut told = std::mem::take(&mut self.small);
        let (rank, size) = (self.rank(), self.size());
        let mine = (mine as u64).to_le_bytes();
        let result = self
            .collective(Operation::DirectGather, &mut Gather::new(&mine, mine.len(), told.begin(size), rank));
        let lengths = told.iter().enumerate().map(|(rank, length)| self.length_of(rank, length, limit));
        let lengths = result.and_then(|()| lengths.collect::<Result<Vec<usize>>>());
        self.small = told;
        lengths.inspect_err(|error| {
            if let (Error::Disagreement { rank, .. }, None) = (error, &self.lost) {
                self.give_up(*rank, error.clone());
            }
        })
    }

    fn length_of(&self, rank: usize, told: &[u8], limit: usize) -> Result<usize> {
        let length = told.try_into().map_or(u64::MAX, u64::from_le_bytes);
        if length <= limit as u64 {
            return Ok(length as usize);
        }
        Err(Error::Disagreement {
            rank,
            step: self.mark.step,
            field: "the number of bytes",
            found: length.to_string(),
            expected: format!("at most {limit}"),
        })
    }

    fn check_lost(&self) -> Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(lost @ Error::GroupLost { .. }) => Err(lost.clone()),
            Some(lost) => Err(Error::GroupLost { reason: lost.to_string() }),
        }
    }

    /// Tells everybody whose fault it was and closes all streams.
    fn give_up(&mut self, culprit: usize, error: Error) {
        let reason = match &error {
            Error::GroupLost { reason } => reason.clone(),
            // Passed on as the one who noticed it said it, not wrapped once more by everybody.
            Error::PeerGaveUp { reason, .. } => reason.clone(),
            // Which of the two is at fault is not for one of them to say.
            error @ Error::Disagreement { .. } => format!("{error}, says rank {}", self.rank()),
            error => error.to_string(),
        };
        let note = Note::GaveUp { culprit: culprit as u32, reason };
        tell_all(&mut self.wire, &note);
        self.wire.close();
        self.lost = Some(error);
    }
}

fn tell_all(wire: &mut impl Wire, note: &Note) {
    let rank = wire.rank();
    for peer in (0..wire.size()).filter(|&peer| peer != rank) {
        wire.tell(peer, note);
    }
}
