//! `iwp`: paper 1, Cheng, Xu: Bandwidth Reduction using Importance Weighted Pruning on Ring AllReduce
//! (arXiv 1901.01544), after the abstract.
//!
//! The abstract gives: importance is |gradient| / |weight|; selection is by layer and changes with time; random
//! nodes broadcast their indices and a ring all-reduce runs there; 64x on AlexNet, 58.8x on ResNet-50. The
//! rest is reconstructed: importance of the accumulated gradient, the guard under the division, the controlled
//! threshold, and that layers of up to 1,000 elements go dense. `density=1/64` and `density=1/58.8` are the two
//! operating points; they count values only, because a bitmap alone is 1/32 of the gradient.

use super::common::{
    EXCHANGE, GATHERED_VALUES, INDEX, LAYERS_AND_MEMORY, LEADERS, dense_one_dimensional, dense_up_to,
    density, exchange, leader, seed, sparse,
};
use super::{Kind, Method, Parameter, Parameters};
use crate::Result;
use crate::pipeline::{Recipe, Scope};
use crate::select::{Importance, ImportanceRule};

const OWN: &[Parameter] = &[
    density("1/64"),
    Parameter {
        name: "threshold",
        kind: Kind::Number { min: 0.0, max: 1e6 },
        default: "0",
        help: "a fixed importance threshold for all layers; 0: one for each layer, controlled by the density",
    },
    Parameter {
        name: "guard",
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: "0.001",
        help: "weights below this part of their layer's mean magnitude count as that",
    },
    Parameter { default: "agreed", ..EXCHANGE },
    leader("random"),
    LEADERS,
    seed(),
    dense_up_to("1000"),
    dense_one_dimensional("false"),
    GATHERED_VALUES,
    INDEX,
];

pub(super) const METHOD: Method = Method {
    name: "iwp",
    summary: "elements whose gradient is large against their weight, layer by layer",
    paper: "1: Cheng, Xu 2019, arXiv 1901.01544 (after the abstract)",
    parameters: &[OWN, LAYERS_AND_MEMORY],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    let rule = match parameters.number("threshold") as f32 {
        0.0 => ImportanceRule::Controlled,
        threshold => ImportanceRule::Fixed(threshold),
    };
    let selector = Importance::new(parameters.number("guard"), rule);
    let mut recipe = sparse(parameters, Box::new(selector), exchange(parameters)?)?;
    recipe.scope = Scope::Layer;
    Ok(recipe)
}
