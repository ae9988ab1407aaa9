//! Ranks as processes started by `mpirun`, and the collectives MPI has.

mod adder;
mod calls;
mod keeper;
mod notes;
mod pieces;
mod wait;

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use super::compressed::{CompressedSum, ShardMessages, total_len};
use super::envelope::{ENVELOPE_BYTES, Envelope, Operation};
use super::{Algorithm, Gathered, Group, Mark, Sum, Traffic};
use crate::{Error, Result};
use adder::Adder;
use calls::{Communicator, Staging};
use keeper::{Handles, Keeper};
use notes::Notes;
use wait::{Pace, Trouble};

/// A group over MPI, for clusters that have one: feature `mpi`.
///
/// Every process that `mpirun` starts joins once:
///
/// ```no_run
/// use thinwire::group::{Algorithm, DEADLINE, Group, Mpi, Sum};
///
/// let mut group = Mpi::join(DEADLINE)?;
/// let mut values = [group.rank() as f32, 1.0];
/// group.all_reduce(Sum::F32(&mut values), Algorithm::Ring)?;
/// # Ok::<(), thinwire::Error>(())
/// ```
///
/// The bytes are moved and the sums are made by MPI. Around that the group keeps the promises of every other:
///
/// - **The same bits everywhere.** A ring sum is a reduce-scatter and an all-gather, a tree sum a reduction to
///   rank 0 and a broadcast: each element is summed on one rank, whatever algorithm MPI chooses. (MPI's own
///   all-reduce only advises its makers to do so.) The order of the additions is MPI's.
/// - **No disagreement goes unnoticed.** Every collective begins with an all-gather of what each rank is about
///   to do.
/// - **Every wait has a deadline.** Long vectors and messages travel in pieces of 4 MiB; each call into MPI for
///   one piece has to end within the deadline. When it does not, the ranks that wait call each other, and the
///   first that does not answer is named: up to a quarter of the deadline later, but at least half a second.
///
/// The ranks have to drop their groups within the deadline of each other; that ends MPI. After a failure MPI is
/// not ended, because MPI would wait for the ranks that are missing: a process that then exits is reported by
/// `mpirun`, which ends all others.
#[derive(Debug)]
pub struct Mpi {
    /// Gone when the group was given up.
    keeper: Option<Keeper>,
    data: Communicator,
    adders: [Adder; 3],
    notes: Notes,
    deadline: Duration,
    mark: Mark,
    sequence: u64,
    /// The first error, after which nothing works any more.
    lost: Option<Error>,
    /// Handed to MPI and back; kept for its memory.
    staging: Staging,
    /// What the ranks have announced for the collective that is under way.
    lengths: Vec<u64>,
    traffic: Traffic,
}

impl Mpi {
    /// Starts MPI in this process and joins all processes of the same `mpirun`. A rank is given up when a piece
    /// of a collective is not through within `deadline`.
    ///
    /// MPI can be started once in the life of a process, so there can be one such group. It may be moved to
    /// another thread.
    pub fn join(deadline: Duration) -> Result<Mpi> {
        let (keeper, Handles { data, notes, adders }) = Keeper::start(deadline)?;
        Ok(Mpi {
            keeper: Some(keeper),
            notes: Notes::over(notes),
            adders,
            deadline,
            mark: Mark::default(),
            sequence: 0,
            lost: None,
            staging: Staging::default(),
            lengths: vec![0; data.size],
            traffic: Traffic::default(),
            data,
        })
    }

    /// How long a piece of a collective may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sets how long a piece of a collective may take.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    fn check_lost(&self) -> Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(lost @ Error::GroupLost { .. }) => Err(lost.clone()),
            Some(lost) => Err(Error::GroupLost { reason: lost.to_string() }),
        }
    }

    /// Runs one collective: first all ranks agree on what it is, then `work` does it. After an error the group
    /// is given up, as MPI's collectives can't be taken back.
    fn collective(
        &mut self,
        operation: Operation,
        length: usize,
        work: impl FnOnce(&mut Mpi, Envelope) -> Result<(), Trouble>,
    ) -> Result<()> {
        self.check_lost()?;
        self.sequence += 1;
        let envelope =
            Envelope { operation, sequence: self.sequence, mark: self.mark, length: length as u64 };
        let result = self.agree(envelope).and_then(|()| work(self, envelope));
        result.map_err(|trouble| {
            let (culprit, error) = self.explain(trouble, operation);
            self.give_up(culprit, error.clone());
            error
        })
    }

    /// Shows everybody this rank's envelope and checks those of the others.
    fn agree(&mut self, envelope: Envelope) -> Result<(), Trouble> {
        let mut staging = std::mem::take(&mut self.staging);
        staging.outgoing.room(ENVELOPE_BYTES).copy_from_slice(&envelope.to_bytes());
        let mut staging = self.complete(self.data.gather_equal(staging, ENVELOPE_BYTES), Pace::Meeting)?;
        let all = staging.incoming.room(ENVELOPE_BYTES * self.data.size);
        let (all, _) = all.as_chunks::<ENVELOPE_BYTES>();
        let checked = all.iter().enumerate().try_for_each(|(rank, bytes)| {
            self.lengths[rank] = envelope.check(bytes, rank)?;
            Ok(())
        });
        self.staging = staging;
        let others = ((self.data.size - 1) * ENVELOPE_BYTES) as u64;
        self.count(others, others);
        checked.map_err(Trouble::Error)
    }

    /// What each of these ranks has announced must be allowed; a rank's own message is its own business.
    fn check_lengths(
        &self,
        envelope: Envelope,
        mut ranks: Range<usize>,
        allowed: RangeInclusive<usize>,
    ) -> Result<(), Trouble> {
        let good = |length: u64| (*allowed.start() as u64..=*allowed.end() as u64).contains(&length);
        let Some(rank) = ranks.find(|&rank| rank != self.data.rank && !good(self.lengths[rank])) else {
            return Ok(());
        };
        let expected = match allowed.into_inner() {
            (least, most) if least == most => least.to_string(),
            (_, most) => format!("at most {most}"),
        };
        Err(Trouble::Error(Error::Disagreement {
            rank,
            step: envelope.mark.step,
            field: "the number of bytes",
            found: self.lengths[rank].to_string(),
            expected,
        }))
    }

    fn count(&mut self, sent: u64, received: u64) {
        self.traffic.sent += sent;
        self.traffic.received += received;
    }
}

impl Group for Mpi {
    fn rank(&self) -> usize {
        self.data.rank
    }

    fn size(&self) -> usize {
        self.data.size
    }

    fn mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    fn marked(&self) -> Mark {
        self.mark
    }

    fn all_reduce(&mut self, values: Sum<'_>, how: Algorithm) -> Result<()> {
        let (size, precision) = (self.size(), values.precision());
        if size == 1 {
            return self.check_lost();
        }
        let bytes = values.into_bytes();
        self.collective(Operation::sum(how, precision), bytes.len(), |group, envelope| {
            group.check_lengths(envelope, 0..size, bytes.len()..=bytes.len())?;
            group.sum(bytes, precision, how)
        })
    }

    fn all_gather(
        &mut self,
        mine: &[u8],
        limit: usize,
        how: Algorithm,
        gathered: &mut Gathered,
    ) -> Result<()> {
        let size = self.size();
        let messages = gathered.begin(size);
        // MPI chooses the way; but the ranks must agree on what they asked for.
        self.collective(Operation::gather(how), mine.len(), |group, envelope| {
            group.check_lengths(envelope, 0..size, 0..=limit)?;
            group.gather(mine, messages)
        })
    }

    fn broadcast(&mut self, root: usize, message: &mut Vec<u8>, limit: usize, how: Algorithm) -> Result<()> {
        let operation = Operation::cast(how, root, self.size())?;
        let length = if self.rank() == root { message.len() } else { 0 };
        self.collective(operation, length, |group, envelope| {
            group.check_lengths(envelope, root..root + 1, 0..=limit)?;
            group.cast(root, message, how)
        })
    }

    fn compressed_sum(&mut self, sum: &mut dyn CompressedSum, messages: &mut ShardMessages) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        messages.begin(sum, rank, size);
        let total = total_len(sum, size) as usize;
        self.collective(Operation::CompressedSum, total, |group, envelope| {
            group.check_lengths(envelope, 0..size, total..=total)?;
            group.sum_compressed(sum, messages)
        })
    }

    fn barrier(&mut self) -> Result<()> {
        self.collective(Operation::Barrier, 0, |_, _| Ok(()))
    }

    /// Computed, as MPI does not tell: what the ring, the tree or a direct exchange would send, whatever MPI
    /// does. `pieces.rs` has the formulas.
    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn abandon(&mut self, reason: &str) {
        if self.lost.is_none() {
            self.give_up(self.data.rank, Error::GroupLost { reason: reason.to_owned() });
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon("this rank panicked");
        }
        // Ending MPI waits for all ranks without a deadline, so they first make sure that all are there.
        if self.lost.is_none()
            && let Err(error) = self.collective(Operation::Leave, 0, |_, _| Ok(()))
        {
            tracing::warn!("MPI is not ended: {error}");
        }
        if let (None, Some(keeper)) = (&self.lost, self.keeper.take()) {
            keeper.finish(self.deadline);
        }
    }
}
