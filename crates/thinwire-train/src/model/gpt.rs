//! A transformer for text.

use burn::module::{Initializer, Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{Device, Tensor, TensorData};
use thinwire::method::{Kind as Of, Parameter, Parameters};

use super::{Build, Flow, Forward, Part, Segment, size, text};
use crate::catalog::Choice;
use crate::data::Kind;
use crate::{Error, Result};

/// `gpt`: a decoder of the form of GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners",
/// 2019), without dropout.
///
/// Embeddings of tokens and of positions, then blocks of causal attention and of a linear layer to four times the
/// width, GELU and one back, each behind a LayerNorm and beside a shortcut; then a LayerNorm and a linear layer of
/// its own, without bias, to the vocabulary. Weights are drawn with deviation 0.02, those that lead into a shortcut
/// with 0.02 / sqrt(2 * layers); biases begin at 0.
///
/// Parameters: `layers`, the number of blocks (4); `width`, the features of a token (128); `heads`, which must divide
/// the width (4). With the defaults it has 793,344 weights and 256 more for each token of the vocabulary and 128 for
/// each position: with 65 tokens and samples of 64, 818,176.
///
/// Segments: `embedding`; one for each block, `block1` and so on; `head`.
pub(super) const MODEL: Choice<Build> = Choice {
    name: "gpt",
    summary: "transformer of the form of GPT-2, for text",
    parameters: &[
        Parameter {
            name: "layers",
            kind: Of::Count { min: 1, max: 96 },
            default: "4",
            help: "number of blocks",
        },
        Parameter {
            name: "width",
            kind: Of::Count { min: 1, max: 16384 },
            default: "128",
            help: "features of a token",
        },
        Parameter {
            name: "heads",
            kind: Of::Count { min: 1, max: 256 },
            default: "4",
            help: "heads of attention, which divide the width",
        },
    ],
    build,
};

const DEVIATION: f64 = 0.02;

#[derive(Module, Debug)]
struct Embedding {
    tokens: Param<Tensor<2>>,
    positions: Param<Tensor<2>>,
}

impl Forward for Embedding {
    fn forward(&self, input: Flow) -> Flow {
        let tokens = burn::tensor::module::embedding(self.tokens.val(), input.tokens());
        Flow::Sequence(tokens.add(self.positions.val().unsqueeze()))
    }
}

#[derive(Module, Debug)]
struct Block {
    norm_attention: LayerNorm,
    attention: Attention,
    norm_expansion: LayerNorm,
    expand: Linear,
    contract: Linear,
}

impl Forward for Block {
    fn forward(&self, input: Flow) -> Flow {
        let input = input.sequence();
        let attended = input.clone().add(self.attention.forward(self.norm_attention.forward(input)));
        let expanded = gelu(self.expand.forward(self.norm_expansion.forward(attended.clone())));
        Flow::Sequence(attended.add(self.contract.forward(expanded)))
    }
}

/// Each token looks at itself and at those before it.
#[derive(Module, Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
}

impl Attention {
    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let [samples, length, width] = input.dims();
        let split = |features: Tensor<3>| {
            features.reshape([samples, length, self.heads, width / self.heads]).swap_dims(1, 2)
        };
        let query = split(self.query.forward(input.clone()));
        let key = split(self.key.forward(input.clone()));
        let value = split(self.value.forward(input));
        let scale = ((width / self.heads) as f64).sqrt().recip();
        // Scaling the queries is less work than scaling the scores.
        let scores = query.mul_scalar(scale).matmul(key.swap_dims(2, 3));
        let mask = causal(length, &scores.device()).unsqueeze::<4>();
        let mixed = softmax(scores.add(mask), 3).matmul(value);
        self.output.forward(mixed.swap_dims(1, 2).reshape([samples, length, width]))
    }
}

/// What is added to scores so that no token looks ahead: 0 at and before it, minus infinity after it.
fn causal(length: usize, device: &Device) -> Tensor<2> {
    let mut mask = vec![0.0f32; length * length];
    for (token, row) in mask.chunks_mut(length.max(1)).enumerate() {
        row[token + 1..].fill(f32::NEG_INFINITY);
    }
    Tensor::from_data(TensorData::new(mask, [length, length]), device)
}

#[derive(Module, Debug)]
struct Head {
    norm: LayerNorm,
    output: Linear,
}

impl Forward for Head {
    fn forward(&self, input: Flow) -> Flow {
        let features = self.norm.forward(input.sequence()).flatten::<2>(0, 1);
        Flow::Features(self.output.forward(features))
    }
}

fn normal<const D: usize>(shape: [usize; D], deviation: f64, device: &Device) -> Param<Tensor<D>> {
    Initializer::Normal { mean: 0.0, std: deviation }.init(shape, device)
}

fn linear(from: usize, to: usize, deviation: f64, device: &Device) -> Linear {
    Linear {
        weight: normal([from, to], deviation, device),
        bias: Some(Initializer::Zeros.init([to], device)),
    }
}

fn build(parameters: &Parameters, kind: Kind, device: &Device) -> Result<Vec<Box<dyn Segment>>> {
    let (vocabulary, length) = text(parameters, kind)?;
    let (layers, width, heads) =
        (size(parameters, "layers"), size(parameters, "width"), size(parameters, "heads"));
    if width % heads != 0 {
        return Err(Error::BadSetting {
            name: "model".into(),
            found: format!("{parameters} with width {width} and {heads} heads"),
            expected: "the number of heads must divide the width".into(),
        });
    }
    let embedding = Embedding {
        tokens: normal([vocabulary, width], DEVIATION, device),
        positions: normal([length, width], DEVIATION, device),
    };
    let mut segments = vec![Part::boxed("embedding", embedding)];
    let into_shortcut = DEVIATION / (2.0 * layers as f64).sqrt();
    let norm = || LayerNormConfig::new(width).init(device);
    for block in 1..=layers {
        let attention = Attention {
            query: linear(width, width, DEVIATION, device),
            key: linear(width, width, DEVIATION, device),
            value: linear(width, width, DEVIATION, device),
            output: linear(width, width, into_shortcut, device),
            heads,
        };
        let module = Block {
            norm_attention: norm(),
            attention,
            norm_expansion: norm(),
            expand: linear(width, 4 * width, DEVIATION, device),
            contract: linear(4 * width, width, into_shortcut, device),
        };
        segments.push(Part::boxed(format!("block{block}"), module));
    }
    let output = Linear { weight: normal([width, vocabulary], DEVIATION, device), bias: None };
    segments.push(Part::boxed("head", Head { norm: norm(), output }));
    Ok(segments)
}
