//! What may be set beside the method.

use crate::group::Algorithm;

/// How a [`Synchronizer`](super::Synchronizer) works, beyond the method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Threads for the arithmetic of this rank, where it runs on the CPU. Default: 1.
    pub threads: usize,
    /// The algorithm of all collectives; `None`, the default, chooses by size.
    pub algorithm: Option<Algorithm>,
    /// Compare a checksum of the replicas every so many steps; 0: never. Default: 100.
    pub check_replicas_every: u64,
    /// Which mean. Default: of the ranks.
    pub mean: Mean,
    /// Ask all ranks whether their gradients are finite before anything enters a memory, so that a skipped step
    /// leaves every bit of it as it was. For trainings where infinities are expected, as with a loss scale. Costs a
    /// reading walk and a small all-gather a step, and the buckets wait for the last of them. Default: false.
    pub check_first: bool,
    /// Leave zeros in the gradients of a background step that ends with an error. For callers who let a device use
    /// the gradients before anybody knows of it ([`on_step_end`](super::Synchronizer::on_step_end)). Default: false.
    pub zeros_after_error: bool,
    /// Steps of the whole run, for warm-ups that are a part of it (`warmup=quantized/15%`). Default: not known.
    pub total_steps: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: 1,
            algorithm: None,
            check_replicas_every: 100,
            mean: Mean::OfRanks,
            check_first: false,
            zeros_after_error: false,
            total_steps: None,
        }
    }
}

impl Options {
    /// What must be the same on all ranks.
    pub(super) fn shared(&self) -> String {
        let algorithm = self.algorithm.map_or("any", |algorithm| algorithm.name());
        let Options { check_replicas_every, mean, check_first, total_steps, .. } = self;
        let total_steps = total_steps.map_or("an unknown number of".into(), |steps| steps.to_string());
        format!(
            "{algorithm}, checksum every {check_replicas_every}, mean {mean:?}, check first {check_first}, {total_steps} \
             steps"
        )
    }
}

/// Which mean a step gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mean {
    /// Every rank counts the same.
    OfRanks,
    /// Ranks count by their samples ([`set_samples`](super::Synchronizer::set_samples)); this costs one small all-gather a step.
    OfSamples,
}
