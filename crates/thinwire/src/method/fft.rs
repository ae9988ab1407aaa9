//! `fft`: paper 3, Wang, Wu, Zhang, Liu, Bosilca, Herlihy, Fonseca: FFT-based Gradient Sparsification for the
//! Distributed Training of Deep Neural Networks (HPDC 2020, arXiv 1811.08596).
//!
//! The gradient is transformed, the `1 - theta` largest frequencies are kept, and their real and imaginary
//! parts travel as range-based floats of `bits` bits. All ranks' frequencies are summed and transformed back
//! once, which is the same as the paper's inverse for each peer.
//!
//! Departures, each with a parameter to go back: blocks of 4,096 instead of the whole vector (`block=0`: whole);
//! what is not sent is kept for later (`feedback=false`: the paper); the shortest index form (`index=bitmap`);
//! rounding to nearest (`rounding=truncate`); the range measured for each message (`range=1`: fixed, with
//! clipping); no rounding of the input to half precision (`half_input=true`). The paper does not say which
//! mantissa it used; 5 is one of the two that make sense for 10 bits. Momentum correction works before the
//! transform and is not masked, because a frequency has no one place in it. Dropping less as the learning rate
//! falls, and sending the parameters again every ten steps, are the trainer's.

use super::common::{INDEX, LAYERS_AND_MEMORY, dense_one_dimensional, dense_up_to, sparse};
use super::{Kind, Method, Parameter, Parameters};
use crate::codec::{RangeFloat, Rounding, ValueForm};
use crate::pipeline::{Exchange, Recipe, ValuePlan};
use crate::select::Exact;
use crate::transform::{FftBlock, TransformKind};
use crate::{Error, Result};

const OWN: &[Parameter] = &[
    Parameter {
        name: "theta",
        kind: Kind::Fraction,
        default: "0.85",
        help: "the part of the frequencies to drop",
    },
    Parameter {
        name: "bits",
        kind: Kind::Count { min: 0, max: 16 },
        default: "10",
        help: "bits of a value, 2 to 16; 0: send f32",
    },
    Parameter {
        name: "mantissa",
        kind: Kind::Count { min: 1, max: 14 },
        default: "5",
        help: "of these, bits of the mantissa",
    },
    Parameter {
        name: "range",
        kind: Kind::Number { min: 0.0, max: 1e6 },
        default: "0",
        help: "largest magnitude a value can have; 0: measured for each message",
    },
    Parameter {
        name: "rounding",
        kind: Kind::Choice(&["nearest", "truncate"]),
        default: "nearest",
        help: "how values are rounded",
    },
    Parameter {
        name: "block",
        kind: Kind::Count { min: 0, max: 1 << 24 },
        default: "4096",
        help: "elements of one transform, an even number; 0: the whole vector",
    },
    Parameter {
        name: "half_input",
        kind: Kind::Flag,
        default: "false",
        help: "round the gradient to half precision before the transform",
    },
    dense_up_to("0"),
    dense_one_dimensional("false"),
    INDEX,
];

pub(super) const METHOD: Method = Method {
    name: "fft",
    summary: "the largest frequencies of the gradient, as range-based floats",
    paper: "3: Wang et al. 2020, arXiv 1811.08596",
    parameters: &[OWN, LAYERS_AND_MEMORY],
    build,
};

fn build(parameters: &Parameters) -> Result<Recipe> {
    let bad = |name: &str, value: String, expected: &str| Error::BadParameter {
        method: "fft".into(),
        name: name.into(),
        value,
        expected: expected.into(),
    };
    let mut recipe = sparse(parameters, Box::new(Exact), Exchange::Gathered)?;
    recipe.density = 1.0 - parameters.number("theta");
    recipe.half_input = parameters.flag("half_input");
    let block = match parameters.count("block") as usize {
        0 => FftBlock::Whole,
        odd if odd % 2 == 1 => {
            return Err(bad("block", odd.to_string(), "an even number, or 0 for the whole vector"));
        }
        block => FftBlock::Elements(block),
    };
    recipe.transform = TransformKind::Fft { block };
    let (bits, mantissa) = (parameters.count("bits") as u8, parameters.count("mantissa") as u8);
    let rounding =
        if parameters.choice("rounding") == "nearest" { Rounding::Nearest } else { Rounding::Truncate };
    let range = parameters.number("range") as f32;
    recipe.values = if bits == 0 {
        ValuePlan::Fixed(ValueForm::F32)
    } else {
        // Tuned now, so that bits and mantissa that do not go together are an error before the first step.
        let tuned = RangeFloat::tuned(bits, mantissa, if range > 0.0 { range } else { 1.0 }, rounding)
            .map_err(|error| bad("bits", format!("{bits} with mantissa={mantissa}"), &error.to_string()))?;
        if range > 0.0 {
            ValuePlan::Fixed(ValueForm::Range(tuned))
        } else {
            ValuePlan::Covering { bits, mantissa, rounding }
        }
    };
    Ok(recipe)
}
