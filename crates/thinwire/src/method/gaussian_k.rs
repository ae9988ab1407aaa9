//! `gaussian-k`: paper 4, Shi, Chu, Cheung, See: Understanding Top-k Sparsification in Distributed Deep
//! Learning (arXiv 1911.08772).
//!
//! All layers fused into one vector, residual added, threshold from a normal fit, up to three corrections;
//! momentum is left to the optimiser. The defaults are those of the authors' code (density 0.001); its density
//! warm-up is `warmup=gaussian-k`. Departures: `k` is held where the paper's rule misses it (see
//! [`GaussianK`]); sums are made in `f64`; indices are 32-bit and each rank's count travels with them, where the
//! authors' decoder drops entries when counts differ.

use super::common::{
    GATHERED_VALUES, INDEX, LAYERS_AND_MEMORY, WHO_LEADS, as_published, dense_one_dimensional, dense_up_to,
    density, exchange, scope, sparse,
};
use super::{Method, Parameters};
use crate::Result;
use crate::pipeline::Recipe;
use crate::select::GaussianK;

pub(super) const METHOD: Method = Method {
    name: "gaussian-k",
    summary: "about k elements above a threshold read off a normal fit",
    paper: "4: Shi et al. 2019, arXiv 1911.08772",
    parameters: &[
        &[
            density("0.001"),
            scope("bucket"),
            dense_up_to("0"),
            dense_one_dimensional("false"),
            as_published(),
            GATHERED_VALUES,
            INDEX,
        ],
        WHO_LEADS,
        LAYERS_AND_MEMORY,
    ],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    let selector = GaussianK { as_published: parameters.flag("as_published") };
    sparse(parameters, Box::new(selector), exchange(parameters)?)
}
