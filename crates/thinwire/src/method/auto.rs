//! `auto`: whatever is fastest for what it loses, chosen for each bucket while the training runs.
//!
//! Paper 2, Tyagi, Swany: Flexible Communication for Optimal Distributed Learning over Unpredictable Networks (IEEE
//! BigData 2023, arXiv 2312.02493) chooses between all-gather, ring and tree, and searches for the density as network
//! and gradients change. This does that and more: sending everything, also in fewer bits, is one of the choices; the
//! network is measured, where the authors' code reads it from a table; every method of `methods` is a candidate. What
//! was not sent goes with the bucket from one method to the next. See [`adapt`](crate::adapt) for how it decides, and
//! `docs/methods/auto.md` for what it does with which settings.
//!
//! The compression warm-up of the authors' code is `warmup=linear/5`. Momentum correction is not used: the momentum
//! stays with the optimiser, as in the paper.

use super::{Kind, Method, Parameter, Parameters, parse, split_spec};
use crate::Result;
use crate::adapt::{Limits, Pick, Solver};
use crate::pipeline::{Exchange, Recipe};

/// The candidates unless others are named. All of them send every element, so that they go with any optimiser.
const FULL: &str = "dense|dense:values=bf16|quantized:bits=8|quantized";
/// More of them for optimisers that do not look at squares of the gradient, such as SGD.
const SPARSE: &str = "topk|ar-topk";

const OWN: &[Parameter] = &[
    Parameter {
        name: "methods",
        kind: Kind::Text,
        default: FULL,
        help: "what may be chosen: methods separated by |, a ; in place of each comma in their parameters",
    },
    Parameter { name: "min_density", kind: Kind::Density, default: "0.001", help: "the least density" },
    Parameter {
        name: "max_density",
        kind: Kind::Density,
        default: "0.1",
        help: "the largest density of a method that does not send everything",
    },
    Parameter {
        name: "target_gain",
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: "0",
        help: "the least share of the gradient's energy to send in a step; 0: no bound",
    },
    Parameter {
        name: "time_weight",
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: "0.6",
        help: "what time counts against gain",
    },
    Parameter {
        name: "pick",
        kind: Kind::Choice(&["asf", "knee"]),
        default: "asf",
        help: "how a density is picked from the Pareto front: by weights, or at its knee",
    },
    Parameter {
        name: "solver",
        kind: Kind::Choice(&["nsga2", "grid"]),
        default: "nsga2",
        help: "what finds the Pareto front",
    },
    Parameter {
        name: "warmup",
        kind: Kind::Warmup,
        default: "none",
        help: "how the density falls over the first epochs before the search begins",
    },
];

pub(super) const METHOD: Method = Method {
    name: "auto",
    summary: "the fastest of several methods for what it loses, chosen anew as network and gradients change",
    paper: "2: Tyagi, Swany 2023, arXiv 2312.02493",
    parameters: &[OWN],
    build,
};

/// `auto` as text, with `topk` and `ar-topk` among its candidates: for SGD. Candidates that are named stay as they are,
/// and so do other methods.
///
/// ```
/// use thinwire::method::for_sgd;
///
/// assert!(for_sgd("auto:min_density=0.01")?.ends_with("|quantized|topk|ar-topk,min_density=0.01"));
/// assert_eq!(for_sgd("auto:methods=dense|fft")?, "auto:methods=dense|fft");
/// # Ok::<(), thinwire::Error>(())
/// ```
pub fn for_sgd(spec: &str) -> Result<String> {
    let (name, parameters) = split_spec(spec);
    let names_them =
        parameters.split(',').any(|pair| pair.split('=').next().map(str::trim) == Some("methods"));
    if name != METHOD.name || names_them {
        return Ok(parse(spec)?.spec);
    }
    let comma = if parameters.is_empty() { "" } else { "," };
    Ok(parse(&format!("{name}:{parameters}{comma}methods={FULL}|{SPARSE}"))?.spec)
}

fn build(parameters: &Parameters) -> Result<Recipe> {
    let limits = Limits {
        methods: parameters
            .text("methods")
            .split('|')
            .map(|method| method.trim().replace(';', ","))
            .collect(),
        min_density: parameters.number("min_density"),
        max_density: parameters.number("max_density"),
        target_gain: parameters.number("target_gain"),
        time_weight: parameters.number("time_weight"),
        pick: if parameters.choice("pick") == "knee" { Pick::Knee } else { Pick::Asf },
        solver: if parameters.choice("solver") == "grid" { Solver::Grid } else { Solver::Nsga2 },
    };
    let spec = parameters.to_string();
    limits.check(&spec)?;
    let mut recipe = parse("topk")?;
    recipe.spec = spec;
    recipe.density = if limits.selects()? { limits.max_density } else { 1.0 };
    recipe.warmup = parameters.warmup("warmup");
    recipe.exchange = Exchange::Automatic;
    recipe.limits = Some(limits);
    Ok(recipe)
}
