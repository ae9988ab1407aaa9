//! A state as a dictionary: tensors as bytes by layer, the rest as plain values.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use thinwire::memory::State;

use crate::error::OrException;
use crate::memory::{Handed, Memory};

type Layers = BTreeMap<String, Vec<f32>>;

/// The dictionary for a state.
pub fn to_dictionary<'py>(py: Python<'py>, state: &State) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    dictionary.set_item("method", &state.method)?;
    dictionary.set_item("step", state.step)?;
    dictionary.set_item("epoch", state.epoch)?;
    dictionary.set_item("rank", state.rank)?;
    dictionary.set_item("ranks", state.ranks)?;
    dictionary.set_item("selectors", state.selectors.clone())?;
    dictionary.set_item("residual", layers(py, &state.residual)?)?;
    dictionary.set_item("momentum", layers(py, &state.momentum)?)?;
    Ok(dictionary)
}

fn layers<'py>(py: Python<'py>, layers: &Layers) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    for (name, values) in layers {
        let bytes = PyBytes::new_with(py, 4 * values.len(), |bytes| {
            let places = bytes.as_chunks_mut::<4>().0;
            places.iter_mut().zip(values).for_each(|(place, value)| *place = value.to_ne_bytes());
            Ok(())
        })?;
        dictionary.set_item(name, bytes)?;
    }
    Ok(dictionary)
}

/// The state of a dictionary in which every layer is an owner with the address and number of its values.
pub fn from_dictionary(dictionary: &Bound<'_, PyDict>) -> PyResult<State> {
    let item = |name: &str| {
        dictionary.get_item(name)?.ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(name.to_owned()))
    };
    Ok(State {
        method: item("method")?.extract()?,
        step: item("step")?.extract()?,
        epoch: item("epoch")?.extract()?,
        rank: item("rank")?.extract()?,
        ranks: item("ranks")?.extract()?,
        selectors: item("selectors")?.extract()?,
        residual: read_layers(item("residual")?)?,
        momentum: read_layers(item("momentum")?)?,
    })
}

fn read_layers(handed: Bound<'_, PyAny>) -> PyResult<Layers> {
    let handed: BTreeMap<String, Handed> = handed.extract()?;
    let read = |(name, values): (String, Handed)| {
        // SAFETY: `python/thinwire` hands over tensors and arrays as `Memory` wants them.
        let memory = unsafe { Memory::new(values) }.or_exception()?;
        Ok((name, memory.as_ref().to_vec()))
    };
    handed.into_iter().map(read).collect()
}
