//! Methods by name.
mod parameters;
pub use parameters::{Kind, Parameter, Parameters, split_spec};
