//! The engine of thinwire.
pub mod bucket;
pub mod codec;
mod error;
pub mod kernels;
pub mod memory;
pub mod method;
pub mod pipeline;
pub mod select;
pub mod transform;

pub use bucket::Bucket;
pub use error::{Error, Result};
