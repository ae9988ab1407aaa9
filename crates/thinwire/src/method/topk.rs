//! `topk`: the exact top-k with residual, each rank its own coordinates.

use super::common::{
    GATHERED_VALUES, INDEX, LAYERS_AND_MEMORY, WHO_LEADS, dense_one_dimensional, dense_up_to, density,
    exchange, scope, sparse,
};
use super::{Method, Parameters};
use crate::Result;
use crate::pipeline::Recipe;
use crate::select::Exact;

pub(super) const METHOD: Method = Method {
    name: "topk",
    summary: "the k largest of gradient plus residual, exactly, in one walk over memory",
    paper: "- (with scope=layer: LWTopk, the layer-wise baseline of AR-Topk)",
    parameters: &[
        &[
            density("0.01"),
            scope("bucket"),
            dense_up_to("0"),
            dense_one_dimensional("false"),
            GATHERED_VALUES,
            INDEX,
        ],
        WHO_LEADS,
        LAYERS_AND_MEMORY,
    ],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    sparse(parameters, Box::new(Exact), exchange(parameters)?)
}
