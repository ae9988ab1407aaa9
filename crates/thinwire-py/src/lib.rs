//! The native part of the Python package `thinwire`.
//!
//! | file | what it gives to Python |
//! |---|---|
//! | [`memory`] | nothing: memory that belongs to Python, as the engine sees it |
//! | [`group`] | how many calls into Python are under way; torch.distributed as a group of the engine |
//! | [`process`] | nothing: which process made an object, for those that were forked from it |
//! | [`engine`] | nothing: the engine on the CPU or on a GPU |
//! | [`ahead`] | nothing: streams that wait for the engine |
//! | [`synchronizer`] | `Synchronizer`: a step of all ranks |
//! | [`compressor`] | `Compressor`: gradients to frames and back, without other ranks |
//! | [`state`] | states as dictionaries |
//! | [`methods`] | the methods and their parameters |
//! | [`cost`] | what an exchange costs on a network |
//! | [`error`] | the engine's errors as exceptions |
//!
//! Protocols and methods are the engine's; nothing of them is written here. Addresses that Python hands over are those
//! of tensors and arrays whose owner is handed over with them, by `python/thinwire` alone: the module's name begins
//! with an underscore.

mod ahead;
mod compressor;
mod cost;
mod engine;
mod error;
mod group;
mod memory;
mod methods;
mod process;
mod state;
mod synchronizer;

use pyo3::prelude::*;

/// What `python/thinwire` is built on.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<synchronizer::Synchronizer>()?;
    module.add_class::<compressor::Compressor>()?;
    module.add_function(wrap_pyfunction!(group::calls_under_way, module)?)?;
    module.add_function(wrap_pyfunction!(group::forget_calls, module)?)?;
    module.add_function(wrap_pyfunction!(synchronizer::cuda_unusable, module)?)?;
    module.add_function(wrap_pyfunction!(methods::methods, module)?)?;
    module.add_function(wrap_pyfunction!(methods::for_sgd, module)?)?;
    module.add_function(wrap_pyfunction!(methods::describe, module)?)?;
    module.add_function(wrap_pyfunction!(cost::network_from_text, module)?)?;
    module.add_function(wrap_pyfunction!(cost::network_from_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(cost::dense_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(cost::compressed_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(cost::best_collective, module)?)?;
    module.add_function(wrap_pyfunction!(cost::pays, module)?)
}
