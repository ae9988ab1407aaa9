//! The kernels of NVIDIA GPUs.

#![allow(dead_code, reason = "the implementation of the kernels' trait that uses them stands elsewhere")]

mod codec;
mod compile;
mod device;
mod fft;
mod memory;
mod spectrum;

pub use compile::Program;
pub use device::{Device, Event};
pub use memory::{Buffer, Element, Gradient, Pinned};
