//! The methods and their parameters.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use thinwire::memory::{Length, Warmup};
use thinwire::method::{self, METHODS, parse};
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

/// `auto` with sparse candidates, unless it names its candidates; other methods as they are.
#[pyfunction]
pub fn for_sgd(spec: &str) -> PyResult<String> {
    method::for_sgd(spec).or_exception()
}

/// What a method given as text comes to: its shortest text (`spec`), whether it looks at the weights (`needs_weights`), its
/// `momentum`, whether it sends, or may come to send, a part of the gradient only (`sparse`), and by what its `warmup` is
/// counted: `epochs`, `steps`, the `run`, or nothing.
#[pyfunction]
pub fn describe<'py>(py: Python<'py>, spec: &str) -> PyResult<Bound<'py, PyDict>> {
    let recipe = parse(spec).or_exception()?;
    let momentum = match recipe.momentum {
        Momentum::Off => 0.0,
        Momentum::HeavyBall(momentum) | Momentum::Nesterov(momentum) => momentum,
    };
    let sparse = match &recipe.limits {
        Some(limits) => limits.selects().or_exception()?,
        None => recipe.selector.is_some() && recipe.density < 1.0,
    };
    let warmup = match recipe.warmup.length() {
        Some(Length::Steps(_)) => Some("steps"),
        Some(Length::Part(_)) => Some("run"),
        _ => Some("epochs").filter(|_| recipe.warmup != Warmup::None),
    };
    let description = PyDict::new(py);
    description.set_item("spec", &recipe.spec)?;
    description.set_item("needs_weights", recipe.needs_weights())?;
    description.set_item("momentum", momentum)?;
    description.set_item("warmup", warmup)?;
    description.set_item("sparse", sparse)?;
    Ok(description)
}
