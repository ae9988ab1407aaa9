//! What was not sent: residual and momentum, clipping before they grow, warm-up of the density, and the state
//! file that keeps them.
//!
//! The arithmetic (residual accumulation, momentum correction and masking) is part of the one walk over memory
//! and stands in [`kernels`](crate::kernels); here is what surrounds it.

mod clip;
mod length;
mod state;
mod store;
mod warmup;

pub use clip::clip_factor;
pub use length::Length;
pub use state::State;
pub use store::Memory;
pub use warmup::{Progress, Warmup};
