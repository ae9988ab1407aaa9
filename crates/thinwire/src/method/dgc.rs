//! `dgc`: the baseline of papers 1, 4 and 5, Lin, Han, Mao, Wang, Dally: Deep Gradient Compression (ICLR 2018,
//! arXiv 1712.01887).
//!
//! Layer by layer, tensors of at least two dimensions, a threshold from a sample of 1 %. The paper's training
//! set-up is `momentum=0.9,warmup=dgc`, and `clip` for recurrent networks. Departure: `k` is held where the
//! sampled threshold misses it.

use super::common::{
    GATHERED_VALUES, INDEX, LAYERS_AND_MEMORY, WHO_LEADS, as_published, dense_one_dimensional, dense_up_to,
    density, exchange, scope, sparse,
};
use super::{Method, Parameters};
use crate::Result;
use crate::pipeline::Recipe;
use crate::select::DgcSampling;

pub(super) const METHOD: Method = Method {
    name: "dgc",
    summary: "layer by layer, a threshold from a sample",
    paper: "DGC: Lin et al. 2018, arXiv 1712.01887",
    parameters: &[
        &[
            density("0.001"),
            scope("layer"),
            dense_up_to("0"),
            dense_one_dimensional("true"),
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
    let selector = DgcSampling::new(parameters.flag("as_published"));
    sparse(parameters, Box::new(selector), exchange(parameters)?)
}
