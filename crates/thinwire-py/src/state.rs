//! A state as a dictionary: tensors as bytes by layer, the rest as plain values.

use std::collections::BTreeMap;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use thinwire::Error;
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
    Ok(State {
        method: entry(dictionary, "method", "a text")?,
        step: entry(dictionary, "step", "a number of steps")?,
        epoch: entry(dictionary, "epoch", "a number of epochs")?,
        rank: entry(dictionary, "rank", "a rank")?,
        ranks: entry(dictionary, "ranks", "a number of ranks")?,
        selectors: entry(dictionary, "selectors", "numbers by name, by unit")?,
        residual: read_layers(entry(dictionary, "residual", "arrays by layer")?)?,
        momentum: read_layers(entry(dictionary, "momentum", "arrays by layer")?)?,
    })
}

/// An entry; of another type than it must be, or not there, it is named.
fn entry<'py, T: FromPyObjectOwned<'py>>(
    dictionary: &Bound<'py, PyDict>,
    name: &str,
    expected: &str,
) -> PyResult<T> {
    let found = dictionary.get_item(name)?;
    if let Some(value) = found.as_ref().and_then(|found| found.extract().ok()) {
        return Ok(value);
    }
    Err(Error::BadState {
        path: "(in memory)".into(),
        field: name.into(),
        found: found.map_or(Ok("missing".into()), |found| found.repr().map(|text| text.to_string()))?,
        expected: expected.into(),
    })
    .or_exception()
}

fn read_layers(handed: BTreeMap<String, Handed>) -> PyResult<Layers> {
    let read = |(name, values): (String, Handed)| {
        // SAFETY: `python/thinwire` hands over tensors and arrays as `Memory` wants them.
        let memory = unsafe { Memory::new(values) }.or_exception()?;
        Ok((name, memory.as_ref().to_vec()))
    };
    handed.into_iter().map(read).collect()
}
