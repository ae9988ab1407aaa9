//! What one step came to.

use std::time::Duration;

use crate::group::Traffic;
use crate::pipeline::Report;

/// The figures of one step on one rank, over all buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct StepReport {
    /// The step.
    pub step: u64,
    /// How many ranks took part.
    pub ranks: usize,
    /// The least density of a bucket, the same on all ranks. At 1 every element was sent, as in a warm-up: then no value
    /// of the mean is late, but for what a step before this one has kept.
    pub density: f64,
    /// What was selected and encoded, summed over the buckets.
    pub compression: Report,
    /// The rank that named the coordinates of the first bucket for which one did; the first, if several did.
    pub leader: Option<usize>,
    /// Bytes this rank sent and received.
    pub traffic: Traffic,
    /// Where the time went.
    pub times: StageTimes,
}

/// Where the time of a step went. Selection and encoding are in [`Report`].
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct StageTimes {
    /// Bytes under way, waiting for other ranks included.
    pub exchange: Duration,
    /// Decoding, summing, forgetting what was sent.
    pub settle: Duration,
    /// Comparing checksums of the replicas, in the steps that do.
    pub check: Duration,
    /// Probing, measuring gains and deciding, with an automatic method.
    pub adapt: Duration,
    /// From the first bucket to the last result.
    pub total: Duration,
}

impl StepReport {
    /// Coordinates sent from compressed layers: the achieved k.
    pub fn kept(&self) -> usize {
        self.compression.kept
    }

    /// The share of the accumulated gradient's energy that was sent.
    pub fn gain(&self) -> f64 {
        self.compression.gain()
    }

    /// Dense bytes over the bytes of the values alone.
    pub fn value_ratio(&self) -> f64 {
        self.compression.value_ratio()
    }

    /// What a dense ring all-reduce sends, `2 (N-1)/N` times the gradient, over what this rank sent. On one rank,
    /// where nothing travels, dense bytes over the bytes of the frame.
    pub fn wire_ratio(&self) -> f64 {
        if self.ranks < 2 {
            return self.compression.wire_ratio();
        }
        let ranks = self.ranks as f64;
        let dense = 2.0 * (ranks - 1.0) / ranks * 4.0 * self.compression.elements as f64;
        dense / self.traffic.sent.max(1) as f64
    }
}
