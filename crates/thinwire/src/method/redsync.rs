//! `redsync`: paper 5, Fang, Fu, Yang, Hsieh: RedSync (arXiv 1808.04357).
//!
//! Layer by layer: vectors dense, small matrices as one, then exact, trimmed or threshold-searched top-k by size; with
//! `quantize` the largest positive or lowest negative elements in turns, all sent as their mean, the difference
//! dropped; the model's output layer is left exact. Momentum correction with masking is `momentum=0.9`, local clipping for recurrent networks
//! `clip=0.25`, the dense first epoch `warmup=dense/1`.
//!
//! The sizes are the element counts of the authors' code; the paper is remembered to give them in bytes.
//! Departures: the paper sends small matrices dense too (`fuse_up_to=0`); `k` is held where the search misses it; the trimming loop always ends; a signed step sends one
//! sign only; weight decay is the optimiser's and stays outside. A search is never reused when quantising, as
//! in the authors' code.

use super::common::{INDEX, LAYERS_AND_MEMORY, VALUES, as_published, dense_up_to, density, sparse, values};
use super::{Kind, Method, Parameter, Parameters};
use crate::pipeline::{Exception, Exchange, Recipe, Scope, ValuePlan};
use crate::select::BySize;
use crate::{Error, Result};

const ELEMENTS: Kind = Kind::Count { min: 0, max: u32::MAX as u64 };

const OWN: &[Parameter] = &[
    density("0.001"),
    dense_up_to("8192"),
    Parameter {
        name: "fuse_up_to",
        kind: ELEMENTS,
        default: "8192",
        help: "matrices of up to this many elements are selected together, and not sent dense",
    },
    Parameter {
        name: "fuse_density",
        kind: Kind::Density,
        default: "0.01",
        help: "the part of these matrices to send; density, if that is more",
    },
    Parameter {
        name: "exact_up_to",
        kind: ELEMENTS,
        default: "131072",
        help: "layers of up to this many elements: exact top-k",
    },
    Parameter {
        name: "trimmed_up_to",
        kind: ELEMENTS,
        default: "4194304",
        help: "layers of up to this many elements: trimmed top-k; above: threshold search",
    },
    Parameter {
        name: "interval",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "5",
        help: "steps from one threshold search to the next",
    },
    Parameter {
        name: "quantize",
        kind: Kind::Flag,
        default: "false",
        help: "send one sign at a time, all values as their mean",
    },
    Parameter {
        name: "unquantized",
        kind: Kind::Patterns,
        default: "",
        help: "layers to leave exact when quantising, in place of the model's output layer",
    },
    as_published(),
    VALUES,
    INDEX,
];

pub(super) const METHOD: Method = Method {
    name: "redsync",
    summary: "layer by layer: trimmed top-k or threshold search with reuse; same-sign quantisation",
    paper: "5: Fang et al. 2018, arXiv 1808.04357",
    parameters: &[OWN, LAYERS_AND_MEMORY],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    let quantize = parameters.flag("quantize");
    let selector = |alternate| {
        let mut selector = BySize::new(alternate);
        selector.exact_up_to = parameters.count("exact_up_to") as usize;
        selector.trimmed_up_to = parameters.count("trimmed_up_to") as usize;
        selector.search.interval = parameters.count("interval");
        selector.search.as_published = parameters.flag("as_published");
        Box::new(selector)
    };
    let mut recipe = sparse(parameters, selector(quantize), Exchange::Gathered)?;
    recipe.scope = Scope::Layer;
    if quantize {
        if !recipe.feedback {
            return Err(Error::BadParameter {
                method: "redsync".into(),
                name: "quantize".into(),
                value: "true".into(),
                expected: "false without feedback: one sign is sent at a time, the other must be kept".into(),
            });
        }
        recipe.values = ValuePlan::SameSign;
        recipe.exception = Some(Exception {
            layers: parameters.patterns("unquantized"),
            selector: selector(false),
            values: values(parameters)?,
        });
    }
    Ok(recipe)
}
