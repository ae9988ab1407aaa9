//! What was not sent.
mod warmup;
pub use warmup::{Progress, Warmup};
