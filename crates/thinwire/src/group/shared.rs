//! One group for several owners, who use it in turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Algorithm, CompressedSum, Gathered, Group, Mark, ShardMessages, Sum, Traffic};
use crate::Result;

/// A group that several parts of a program hold: a [`Synchronizer`](crate::Synchronizer), say, and the code that
/// meets at a barrier between its steps. Whoever calls it has it for that collective; that all ranks call in the
/// same order is up to the program.
///
/// ```
/// use thinwire::group::{Group, Local, SharedGroup};
/// let group = SharedGroup::new(Local::connect(1).remove(0));
/// let mut other = group.clone();
/// other.barrier()?;
/// assert_eq!(group.size(), 1);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedGroup(Arc<Mutex<dyn Group>>);

impl SharedGroup {
    /// Shares `group`.
    pub fn new(group: impl Group + 'static) -> SharedGroup {
        SharedGroup(Arc::new(Mutex::new(group)))
    }

    /// A group whose owner panicked tells by its own errors what it is worth.
    fn lock(&self) -> MutexGuard<'_, dyn Group + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SharedGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedGroup {{ rank: {}, size: {} }}", self.rank(), self.size())
    }
}

impl Group for SharedGroup {
    fn rank(&self) -> usize {
        self.lock().rank()
    }

    fn size(&self) -> usize {
        self.lock().size()
    }

    fn mark(&mut self, mark: Mark) {
        self.lock().mark(mark);
    }

    fn marked(&self) -> Mark {
        self.lock().marked()
    }

    fn all_reduce(&mut self, values: Sum<'_>, how: Algorithm) -> Result<()> {
        self.lock().all_reduce(values, how)
    }

    fn all_gather(
        &mut self,
        mine: &[u8],
        limit: usize,
        how: Algorithm,
        gathered: &mut Gathered,
    ) -> Result<()> {
        self.lock().all_gather(mine, limit, how, gathered)
    }

    fn broadcast(&mut self, root: usize, message: &mut Vec<u8>, limit: usize, how: Algorithm) -> Result<()> {
        self.lock().broadcast(root, message, limit, how)
    }

    fn compressed_sum(&mut self, sum: &mut dyn CompressedSum, messages: &mut ShardMessages) -> Result<()> {
        self.lock().compressed_sum(sum, messages)
    }

    fn barrier(&mut self) -> Result<()> {
        self.lock().barrier()
    }

    fn traffic(&self) -> Traffic {
        self.lock().traffic()
    }

    fn encrypted(&self) -> bool {
        self.lock().encrypted()
    }

    fn abandon(&mut self, reason: &str) {
        self.lock().abandon(reason);
    }
}
