//! `dense`: send everything. What the others are compared with, and the right answer on a fast network.

use super::common::{VALUES, values};
use super::{Method, Parameters};
use crate::Result;
use crate::bucket::LayerRules;
use crate::codec::IndexChoice;
use crate::memory::Warmup;
use crate::pipeline::{Exchange, Momentum, Recipe, Scope};
use crate::transform::TransformKind;

pub(super) const METHOD: Method = Method {
    name: "dense",
    summary: "everything, as f32 or at half width",
    paper: "-",
    parameters: &[&[VALUES]],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    Ok(Recipe {
        spec: parameters.to_string(),
        density: 1.0,
        warmup: Warmup::None,
        rules: LayerRules::default(),
        scope: Scope::Bucket,
        fuse_density: 0.0,
        // Nothing is left to feed back but the rounding of the half-width forms, which is not worth a copy of
        // the gradient.
        feedback: false,
        momentum: Momentum::Off,
        masking: true,
        clip: None,
        transform: TransformKind::Identity,
        half_input: false,
        selector: None,
        values: values(parameters)?,
        exception: None,
        index: IndexChoice::Shortest,
        exchange: Exchange::Dense,
        limits: None,
    })
}
