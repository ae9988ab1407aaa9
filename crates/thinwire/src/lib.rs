//! Gradient compression for data-parallel training over slow networks.
//!
//! Each worker sends about 1 % of its gradient, keeps the rest for later, and the model reaches the accuracy it
//! would have reached by sending everything. This crate is the engine: it turns the gradient of one bucket of
//! layers into few bytes and back. It knows no machine-learning framework.
//!
//! One step of one bucket, every stage a module of its name:
//!
//! ```text
//!  gradient ─▶ memory ─▶ transform ─▶ select ─▶ codec ─▶ … ─▶ codec ─▶ transform⁻¹ ─▶ mean gradient
//!                ▲  residual, momentum     │
//!                └──── what was not sent ◀─┘
//! ```
//!
//! A [`method`] is a named recipe of these parts; [`pipeline`] runs one; [`kernels`] is where the arithmetic
//! happens.
//!
//! ```
//! use thinwire::Bucket;
//! use thinwire::kernels::Cpu;
//! use thinwire::pipeline::{Aggregator, Compressor, Input};
//!
//! let bucket = Bucket::new(0, [("fc.weight", vec![100, 100]), ("fc.bias", vec![100])])?;
//! let recipe = thinwire::method::parse("redsync:density=0.01,dense_up_to=100")?;
//! let mut cpu = Cpu::new(2); // threads
//! let mut compressor = Compressor::new(recipe, bucket.clone())?;
//!
//! let gradient: Vec<f32> = (0..10_100).map(|i| (i as f32 * 0.37).sin()).collect();
//! let mut frame = Vec::new();
//! let report = compressor.compress(&mut cpu, &Input::new(&gradient), &mut frame)?;
//! assert_eq!((report.kept, report.dense), (101, 100));
//! assert!(report.wire_ratio() > 30.0);
//!
//! // Every rank adds up the frames of all ranks, in the same order.
//! let mut mean = vec![0.0; 10_100];
//! Aggregator::new(compressor.recipe(), bucket)?.sum(&mut cpu, [&frame[..]], None, 1.0, &mut mean)?;
//! # Ok::<(), thinwire::Error>(())
//! ```

pub mod adapt;
pub mod bucket;
pub mod codec;
mod error;
pub mod exchange;
pub mod files;
pub mod group;
pub mod kernels;
pub mod memory;
pub mod method;
pub mod pipeline;
#[cfg(test)]
#[path = "../tests/support/port.rs"]
mod port;
pub mod select;
pub mod synchronizer;
#[cfg(test)]
mod test_log;
pub mod transform;

pub use bucket::Bucket;
pub use error::{Error, Result};
pub use synchronizer::Synchronizer;

/// The README's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
