//! The methods and their parameters.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use thinwire::memory::Warmup;
use thinwire::method::{METHODS, parse};
use thinwire::pipeline::Momentum;

use crate::error::OrException;

/// Every method: name, summary, paper, and parameters with default and help.
#[pyfunction]
pub fn methods(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for method in METHODS {
        let parameters = PyDict::new(py);
        for parameter in method.parameters.iter().flat_map(|group| group.iter()) {
            parameters.set_item(parameter.name, (parameter.default, parameter.help))?;
        }
        list.append((method.name, method.summary, method.paper, parameters))?;
    }
    Ok(list)
}

/// What a method given as text comes to: its shortest text, whether it looks at the weights, its momentum, whether its
/// density changes with the epochs, and whether it sends, or may come to send, a part of the gradient only.
#[pyfunction]
pub fn describe(spec: &str) -> PyResult<(String, bool, f32, bool, bool)> {
    let recipe = parse(spec).or_exception()?;
    let momentum = match recipe.momentum {
        Momentum::Off => 0.0,
        Momentum::HeavyBall(momentum) | Momentum::Nesterov(momentum) => momentum,
    };
    let sparse = recipe.limits.is_some() || recipe.selector.is_some() && recipe.density < 1.0;
    Ok((recipe.spec.clone(), recipe.needs_weights(), momentum, recipe.warmup != Warmup::None, sparse))
}
