//! Parameters that many methods share, and a recipe that has them filled in.

use super::{Kind, Parameter, Parameters};
use crate::bucket::LayerRules;
use crate::codec::{IndexChoice, IndexForm, Quantizer, ValueForm};
use crate::exchange::Leaders;
use crate::pipeline::{Exchange, Momentum, Recipe, Scope, ValuePlan};
use crate::select::Select;
use crate::transform::TransformKind;
use crate::{Error, Result};

pub(super) const fn density(default: &'static str) -> Parameter {
    Parameter { name: "density", kind: Kind::Density, default, help: "the part of the elements to send" }
}

pub(super) const fn dense_up_to(default: &'static str) -> Parameter {
    let kind = Kind::Count { min: 0, max: u32::MAX as u64 };
    Parameter {
        name: "dense_up_to",
        kind,
        default,
        help: "layers of up to this many elements are sent dense",
    }
}

pub(super) const fn dense_one_dimensional(default: &'static str) -> Parameter {
    let help = "layers of fewer than two dimensions (biases, norms) are sent dense";
    Parameter { name: "dense_one_dimensional", kind: Kind::Flag, default, help }
}

pub(super) const fn scope(default: &'static str) -> Parameter {
    let kind = Kind::Choice(&["bucket", "layer"]);
    Parameter {
        name: "scope",
        kind,
        default,
        help: "select from all layers of a bucket together, or layer by layer",
    }
}

/// Who decides which coordinates travel.
pub(super) const EXCHANGE: Parameter = Parameter {
    name: "exchange",
    kind: Kind::Choice(&["gathered", "agreed"]),
    default: "gathered",
    help: "every rank sends its own coordinates to all, or leaders name them and all ranks reduce there",
};

pub(super) const fn leader(default: &'static str) -> Parameter {
    let help = "who leads where coordinates are agreed: each rank in turn (star), the one with the largest \
                selection (var), or random ranks";
    Parameter { name: "leader", kind: Kind::Choice(&["star", "var", "random"]), default, help }
}

pub(super) const LEADERS: Parameter = Parameter {
    name: "leaders",
    kind: Kind::Count { min: 1, max: 65_536 },
    default: "1",
    help: "how many random leaders there are; the union of their coordinates travels",
};

/// For methods made for a gather that can also follow a leader.
pub(super) const WHO_LEADS: &[Parameter] = &[EXCHANGE, leader("star"), LEADERS];

/// The exchange that the parameters ask for, agreed if the method has no choice.
pub(super) fn exchange(parameters: &Parameters) -> Result<Exchange> {
    if parameters.has("exchange") && parameters.choice("exchange") == "gathered" {
        return Ok(Exchange::Gathered);
    }
    let seed = if parameters.has("seed") { parameters.count("seed") } else { 0 };
    let count = parameters.count("leaders") as usize;
    let leaders = match parameters.choice("leader") {
        "star" => Leaders::RoundRobin,
        "var" => Leaders::LargestNorm,
        _ => Leaders::Random { count, seed },
    };
    if count > 1 && !matches!(leaders, Leaders::Random { .. }) {
        return Err(Error::BadParameter {
            method: parameters.to_string(),
            name: "leaders".into(),
            value: count.to_string(),
            expected: "1, or leader=random".into(),
        });
    }
    Ok(Exchange::Agreed(leaders))
}

pub(super) const fn as_published() -> Parameter {
    let help = "the paper's own selection, also where it misses k; for study";
    Parameter { name: "as_published", kind: Kind::Flag, default: "false", help }
}

pub(super) const fn seed() -> Parameter {
    let kind = Kind::Count { min: 0, max: u32::MAX as u64 };
    Parameter { name: "seed", kind, default: "0", help: "seed of the random choice, the same on all ranks" }
}

/// Layers by name, and the memory.
pub(super) const LAYERS_AND_MEMORY: &[Parameter] = &[
    Parameter {
        name: "include",
        kind: Kind::Patterns,
        default: "",
        help: "compress only layers whose name matches, such as *.weight|fc?",
    },
    Parameter {
        name: "exclude",
        kind: Kind::Patterns,
        default: "",
        help: "send layers whose name matches dense",
    },
    Parameter {
        name: "feedback",
        kind: Kind::Flag,
        default: "true",
        help: "keep what was not sent for later",
    },
    Parameter {
        name: "momentum",
        kind: Kind::Number { min: 0.0, max: 0.9999 },
        default: "0",
        help: "momentum correction; switch the optimiser's own momentum off then",
    },
    Parameter {
        name: "nesterov",
        kind: Kind::Flag,
        default: "false",
        help: "Nesterov's form of the momentum",
    },
    Parameter {
        name: "masking",
        kind: Kind::Flag,
        default: "true",
        help: "clear the momentum where something was sent; false: for an optimiser that takes the momentum over, \
               such as thinwire.torch.AdamW",
    },
    Parameter {
        name: "clip",
        kind: Kind::Number { min: 0.0, max: 1e6 },
        default: "0",
        help: "clip the local gradient's norm to this times the root of the workers; 0: do not clip",
    },
    Parameter {
        name: "warmup",
        kind: Kind::Warmup,
        default: "none",
        help: "how the density gets to its value over the first epochs",
    },
];

/// How values are written where they are summed on the way.
pub(super) const VALUES: Parameter = Parameter {
    name: "values",
    kind: Kind::Choice(&["f32", "f16", "bf16"]),
    default: "f32",
    help: "how values are written",
};

/// How values are written where every rank sends its own coordinates. What integers lose stays in the residual.
pub(super) const GATHERED_VALUES: Parameter = Parameter {
    name: "values",
    kind: Kind::Choice(&["f32", "f16", "bf16", "int8", "int4", "int3", "int2"]),
    default: "f32",
    help: "how values are written; int4: as integers of 4 bits with a scale for each 64 (not with exchange=agreed)",
};

pub(super) const INDEX: Parameter = Parameter {
    name: "index",
    kind: Kind::Choice(&["shortest", "list", "delta", "bitmap"]),
    default: "shortest",
    help: "how coordinates are written",
};

pub(super) fn values(parameters: &Parameters) -> Result<ValuePlan> {
    let integers = |bits| Quantizer::new(bits).map(ValueForm::Quantized);
    Ok(ValuePlan::Fixed(match parameters.choice("values") {
        "f16" => ValueForm::F16,
        "bf16" => ValueForm::Bf16,
        "int8" => integers(8)?,
        "int4" => integers(4)?,
        "int3" => integers(3)?,
        "int2" => integers(2)?,
        _ => ValueForm::F32,
    }))
}

pub(super) fn index(parameters: &Parameters) -> IndexChoice {
    match parameters.choice("index") {
        "list" => IndexChoice::Fixed(IndexForm::List),
        "delta" => IndexChoice::Fixed(IndexForm::Delta),
        "bitmap" => IndexChoice::Fixed(IndexForm::Bitmap),
        _ => IndexChoice::Shortest,
    }
}

/// A recipe with the shared parameters filled in, sending the selector's choice as `f32`.
///
/// Parameters that a method does not have (`density`, `dense_up_to`, `scope`, …) keep the neutral value.
pub(super) fn sparse(
    parameters: &Parameters,
    selector: Box<dyn Select>,
    exchange: Exchange,
) -> Result<Recipe> {
    let has = |name| parameters.has(name);
    let coefficient = parameters.number("momentum") as f32;
    Ok(Recipe {
        spec: parameters.to_string(),
        density: if has("density") { parameters.number("density") } else { 1.0 },
        warmup: parameters.warmup("warmup"),
        rules: LayerRules {
            dense_up_to: if has("dense_up_to") { parameters.count("dense_up_to") as usize } else { 0 },
            fuse_up_to: if has("fuse_up_to") { parameters.count("fuse_up_to") as usize } else { 0 },
            dense_one_dimensional: has("dense_one_dimensional") && parameters.flag("dense_one_dimensional"),
            include: parameters.patterns("include"),
            exclude: parameters.patterns("exclude"),
        },
        scope: if has("scope") && parameters.choice("scope") == "layer" {
            Scope::Layer
        } else {
            Scope::Bucket
        },
        fuse_density: if has("fuse_density") { parameters.number("fuse_density") } else { 0.0 },
        feedback: parameters.flag("feedback"),
        momentum: match (coefficient, parameters.flag("nesterov")) {
            (0.0, _) => Momentum::Off,
            (coefficient, true) => Momentum::Nesterov(coefficient),
            (coefficient, false) => Momentum::HeavyBall(coefficient),
        },
        masking: parameters.flag("masking"),
        clip: Some(parameters.number("clip")).filter(|&limit| limit > 0.0),
        transform: TransformKind::Identity,
        half_input: false,
        selector: Some(selector),
        values: if has("values") { values(parameters)? } else { ValuePlan::Fixed(ValueForm::F32) },
        exception: None,
        index: if has("index") { index(parameters) } else { IndexChoice::Shortest },
        exchange,
        limits: None,
    })
}
