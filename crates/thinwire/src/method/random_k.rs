//! `random-k`: coordinates at random, the baseline every method must beat.
//!
//! All ranks draw the same coordinates from the seed and the step, so nothing needs to be agreed; with
//! `feedback=false` it is the plain, unscaled random-k of the literature.

use super::common::{
    INDEX, LAYERS_AND_MEMORY, VALUES, dense_one_dimensional, dense_up_to, density, scope, seed, sparse,
};
use super::{Method, Parameters};
use crate::Result;
use crate::exchange::Leaders;
use crate::pipeline::{Exchange, Recipe};
use crate::select::RandomK;

pub(super) const METHOD: Method = Method {
    name: "random-k",
    summary: "k coordinates at random, the same on every rank",
    paper: "-",
    parameters: &[
        &[
            density("0.01"),
            seed(),
            scope("bucket"),
            dense_up_to("0"),
            dense_one_dimensional("false"),
            VALUES,
            INDEX,
        ],
        LAYERS_AND_MEMORY,
    ],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    sparse(parameters, Box::new(RandomK::new(parameters.count("seed"))), Exchange::Agreed(Leaders::Nobody))
}
