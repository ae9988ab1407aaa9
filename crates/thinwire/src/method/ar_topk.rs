//! `ar-topk`: paper 2, Tyagi, Swany: Flexible Communication for Optimal Distributed Learning over Unpredictable
//! Networks (IEEE BigData 2023, arXiv 2312.02493).
//!
//! One fused vector, exact top-k with error feedback; a leader's coordinates are broadcast and all ranks reduce
//! their values there. The leader is each rank in turn (`leader=star`) or the one whose selection has the largest
//! squared norm (`leader=var`, which costs one small all-gather). The compression warm-up of the authors' code (from
//! everything to a tenth over five epochs) is `warmup=linear/5`. Departure: the residual begins at zero, where
//! the authors' code begins with whatever was in memory.

use super::common::{
    INDEX, LAYERS_AND_MEMORY, LEADERS, VALUES, dense_one_dimensional, dense_up_to, density, exchange, leader,
    seed, sparse,
};
use super::{Method, Parameters};
use crate::Result;
use crate::pipeline::Recipe;
use crate::select::Exact;

pub(super) const METHOD: Method = Method {
    name: "ar-topk",
    summary: "the exact top-k of a leader, reduced by all ranks at its coordinates",
    paper: "2: Tyagi, Swany 2023, arXiv 2312.02493",
    parameters: &[
        &[density("0.01"), leader("star"), LEADERS],
        &[seed(), dense_up_to("0"), dense_one_dimensional("false"), VALUES, INDEX],
        LAYERS_AND_MEMORY,
    ],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    sparse(parameters, Box::new(Exact), exchange(parameters)?)
}
