//! Local gradient clipping (DGC; RedSync for recurrent networks).

/// The factor that brings a gradient of this norm down to `limit / sqrt(workers)`, or 1 if it is there already.
///
/// Each worker clips its own gradient before it enters the memory. Gradients of `workers` workers that point
/// anywhere add up to a norm about `sqrt(workers)` times larger, hence the root. RedSync uses a limit of 0.25.
///
/// ```
/// use thinwire::memory::clip_factor;
/// assert_eq!(clip_factor(2.0, 0.25, 4), 0.0625);
/// assert_eq!(clip_factor(0.1, 0.25, 4), 1.0);
/// ```
pub fn clip_factor(norm: f64, limit: f64, workers: usize) -> f64 {
    let local = limit / (workers.max(1) as f64).sqrt();
    if norm > local { local / norm } else { 1.0 }
}
