//! Everything a worker is, in memory, to come back to.
//!
//! The order of the samples and their augmentation follow from the seed and the number of the step, so that going back
//! to a step brings the same batches.

use thinwire::memory::State;

use super::resume::{read_statistics, write_statistics};
use super::worker::Worker;
use crate::Result;
use crate::checkpoint::Statistic;

/// A worker at one step: weights, running statistics, optimiser, and what the method has kept.
pub(super) struct Snapshot {
    weights: Vec<Vec<f32>>,
    statistics: Vec<Statistic>,
    optimizer: Vec<(&'static str, Vec<Vec<f32>>)>,
    steps: u64,
    kept: State,
}

impl Snapshot {
    /// The worker as it is.
    pub fn of(worker: &Worker<'_>) -> Result<Snapshot> {
        let state = worker.optimizer.state();
        Ok(Snapshot {
            weights: worker.weights.clone(),
            statistics: read_statistics(worker),
            optimizer: state.into_iter().map(|(name, runs)| (name, runs.to_vec())).collect(),
            steps: worker.optimizer.step_count(),
            kept: worker.synchronizer.save()?,
        })
    }

    /// Makes the worker what it was, but for the synchronizer: that may have become another.
    pub fn put_back(&self, worker: &mut Worker<'_>) -> Result<()> {
        worker.weights.clone_from(&self.weights);
        worker.buckets.write(&worker.weights, &mut worker.segments);
        write_statistics(worker, &self.statistics, "(in memory)")?;
        for (name, runs) in &self.optimizer {
            worker.optimizer.restore(name, runs.clone())?;
        }
        worker.optimizer.set_step_count(self.steps);
        Ok(())
    }

    /// What the method had kept.
    pub fn kept(&self) -> &State {
        &self.kept
    }
}
