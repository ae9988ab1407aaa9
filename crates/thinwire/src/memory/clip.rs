//! Local gradient clipping (DGC; RedSync for recurrent networks).

/// The factor that brings a gradient of this norm down to `limit * sqrt(workers)`, or 1 if it is there already.
///
/// The papers divide the local gradient by `workers`, clip it to `limit / sqrt(workers)` and sum. Here sums are divided
/// after the exchange, so what is clipped is `workers` times as long, and so is the limit. Each worker clips its own
/// gradient before it enters the memory. Means of gradients that point anywhere are `sqrt(workers)` times shorter than
/// the gradients, so the norm of the mean is about `limit` at most. RedSync uses a limit of 0.25.
///
/// ```
/// use thinwire::memory::clip_factor;
/// assert_eq!(clip_factor(2.0, 0.25, 4), 0.25);
/// assert_eq!(clip_factor(0.5, 0.25, 4), 1.0);
/// ```
pub fn clip_factor(norm: f64, limit: f64, workers: usize) -> f64 {
    let local = limit * (workers.max(1) as f64).sqrt();
    if norm > local { local / norm } else { 1.0 }
}
