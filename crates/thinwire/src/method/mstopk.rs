//! `mstopk`: the fused baseline of paper 2, Shi et al.: Towards Scalable Distributed Training of Deep Learning
//! on Public Cloud Clusters (MLSys 2021).
//!
//! Departure: the exact top-k where the two thresholds stay far apart (see [`MsTopk`]).

use super::common::{
    GATHERED_VALUES, INDEX, LAYERS_AND_MEMORY, WHO_LEADS, as_published, dense_one_dimensional, dense_up_to,
    density, exchange, scope, seed, sparse,
};
use super::{Kind, Method, Parameter, Parameters};
use crate::Result;
use crate::pipeline::Recipe;
use crate::select::MsTopk;

const OWN: &[Parameter] = &[
    density("0.01"),
    Parameter {
        name: "rounds",
        kind: Kind::Count { min: 1, max: 60 },
        default: "25",
        help: "bisections of the threshold",
    },
    seed(),
    as_published(),
    scope("bucket"),
    dense_up_to("0"),
    dense_one_dimensional("false"),
    GATHERED_VALUES,
    INDEX,
];

pub(super) const METHOD: Method = Method {
    name: "mstopk",
    summary: "exactly k, by bisecting a threshold and filling up from the band between",
    paper: "MSTopk: Shi et al. 2021",
    parameters: &[OWN, WHO_LEADS, LAYERS_AND_MEMORY],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    let (rounds, seed) = (parameters.count("rounds") as usize, parameters.count("seed"));
    let as_published = parameters.flag("as_published");
    sparse(parameters, Box::new(MsTopk { rounds, seed, as_published }), exchange(parameters)?)
}
