//! One step of one bucket: memory, transform, selection, codec, and the way back.
//!
//! A [`Recipe`] says which parts a method is made of. A [`Compressor`] turns a gradient into a frame by it and
//! keeps what was not sent; an [`Aggregator`] turns the frames of all ranks into the mean gradient.
//!
//! ```
//! use thinwire::kernels::Cpu;
//! use thinwire::{Bucket, method};
//! use thinwire::pipeline::{Aggregator, Compressor, Input};
//!
//! let bucket = Bucket::new(0, [("conv.weight", vec![4, 2]), ("conv.bias", vec![4])])?;
//! let mut cpu = Cpu::new(1);
//! let mut compressor = Compressor::new(method::parse("topk:density=0.25")?, bucket.clone())?;
//! let gradient: Vec<f32> = (0..12).map(|i| i as f32 - 5.5).collect();
//! let mut frame = Vec::new();
//! let report = compressor.compress(&mut cpu, &Input::new(&gradient), &mut frame)?;
//! assert_eq!(report.kept, 3);
//!
//! let mut aggregator = Aggregator::new(compressor.recipe(), bucket)?;
//! let mut mean = vec![0.0; 12];
//! aggregator.sum(&mut cpu, [&frame[..]], None, 1.0, &mut mean)?;
//! assert_eq!(mean, [-5.5, -4.5, 0., 0., 0., 0., 0., 0., 0., 0., 0., 5.5]);    // a tie goes to the lower index
//! # Ok::<(), thinwire::Error>(())
//! ```

mod aggregator;
mod compressor;
mod recipe;
mod report;
mod unit;

pub use aggregator::Aggregator;
pub(crate) use compressor::fault_in;
pub use compressor::{Compressor, Input, InputOn};
pub use recipe::{Exception, Exchange, Momentum, Recipe, Scope, ValuePlan};
pub use report::Report;

#[cfg(test)]
mod tests;
