//! `quantized`: everything, in a few bits, with error feedback.
//!
//! 64 values share a scale (128 with 3 bits); each value becomes an integer of 2, 3, 4 or 8 bits ([`Quantizer`]). The exchange is
//! a compressed all-reduce: contributions go to the owners of shards, their quantised sums go to all. Both roundings are
//! fed back, so nothing is lost, and every coordinate arrives in every step: an optimiser that looks at squares, such as
//! Adam, sees gradients of their ordinary size. That is why it is the method for any optimiser, and sparse ones are not.
//!
//! Rounding is to the nearest by default: with feedback it needs no randomness to lose nothing, and it has half the
//! variance of stochastic rounding, which Adam's second moment sees.
//!
//! QSGD (Alistarh et al. 2017, arXiv 1610.02132) is `rounding=stochastic`, there without feedback; TernGrad (Wen et al.
//! 2017, arXiv 1705.07878) is `bits=2,rounding=stochastic`, there with the largest magnitude as its scale.

use super::common::seed;
use super::{Kind, Method, Parameter, Parameters};
use crate::Result;
use crate::bucket::LayerRules;
use crate::codec::{IndexChoice, Quantizer, ValueForm};
use crate::memory::Warmup;
use crate::pipeline::{Exchange, Momentum, Recipe, Scope, ValuePlan};
use crate::transform::TransformKind;

const OWN: &[Parameter] = &[
    Parameter {
        name: "bits",
        kind: Kind::Choice(&["2", "3", "4", "8"]),
        default: "4",
        help: "bits of a value",
    },
    Parameter {
        name: "rounding",
        kind: Kind::Choice(&["nearest", "stochastic"]),
        default: "nearest",
        help: "to the nearest integer, or up with the probability of the fraction",
    },
    seed(),
];

pub(super) const METHOD: Method = Method {
    name: "quantized",
    summary: "everything in a few bits, with error feedback; safe with any optimiser",
    paper: "after Alistarh et al. 2017, arXiv 1610.02132",
    parameters: &[OWN],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    let bits = match parameters.choice("bits") {
        "2" => 2,
        "3" => 3,
        "8" => 8,
        _ => 4,
    };
    let mut quantizer = Quantizer::new(bits)?;
    if parameters.choice("rounding") == "stochastic" {
        quantizer = quantizer.stochastic(parameters.count("seed") as u32);
    }
    Ok(Recipe {
        spec: parameters.to_string(),
        density: 1.0,
        warmup: Warmup::None,
        rules: LayerRules::default(),
        scope: Scope::Bucket,
        fuse_density: 0.0,
        feedback: true,
        momentum: Momentum::Off,
        masking: true,
        clip: None,
        transform: TransformKind::Identity,
        half_input: false,
        selector: None,
        values: ValuePlan::Fixed(ValueForm::Quantized(quantizer)),
        exception: None,
        index: IndexChoice::Shortest,
        exchange: Exchange::Quantized(quantizer),
        limits: None,
    })
}
