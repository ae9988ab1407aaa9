//! The trainer of thinwire: models, data sets, the training loop over a group of workers, and the report.

pub mod catalog;
pub mod checkpoint;
pub mod data;
mod error;
pub mod event;
pub mod model;
pub mod optimizer;
pub mod report;
pub mod trainer;

pub use error::{Error, Result};
