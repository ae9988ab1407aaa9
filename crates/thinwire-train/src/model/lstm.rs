//! A recurrent network for text.

use burn::module::{Initializer, Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Device, Tensor};
use thinwire::method::{Kind as Of, Parameter, Parameters};

use super::{Build, Flow, Forward, Part, Segment, size, text};
use crate::Result;
use crate::catalog::Choice;
use crate::data::Kind;

/// `lstm`: layers of long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al.
/// 2000) between an embedding and a linear layer to the vocabulary. Each sample begins with a state of zeros.
///
/// Parameters: `width`, the features of a token (128); `layers` (1); `hidden`, the features of the state (256). With
/// the defaults it has 394,240 weights and 385 more for each token of the vocabulary: with 65 tokens, 419,265.
/// Weights of a layer are drawn evenly from -1/sqrt(hidden) to 1/sqrt(hidden); biases begin at 0, those of the forget
/// gate at 1, so that a state lasts (Jozefowicz et al. 2015).
///
/// Segments: `embedding`; one for each layer, `layer1` and so on; `head`.
pub(super) const MODEL: Choice<Build> = Choice {
    name: "lstm",
    summary: "layers of long short-term memory, for text",
    parameters: &[
        Parameter {
            name: "width",
            kind: Of::Count { min: 1, max: 16384 },
            default: "128",
            help: "features of a token",
        },
        Parameter {
            name: "layers",
            kind: Of::Count { min: 1, max: 16 },
            default: "1",
            help: "number of recurrent layers",
        },
        Parameter {
            name: "hidden",
            kind: Of::Count { min: 1, max: 16384 },
            default: "256",
            help: "features of the state",
        },
    ],
    build,
};

#[derive(Module, Debug)]
struct Embedding {
    tokens: Param<Tensor<2>>,
}

impl Forward for Embedding {
    fn forward(&self, input: Flow) -> Flow {
        Flow::Sequence(burn::tensor::module::embedding(self.tokens.val(), input.tokens()))
    }
}

/// A recurrent layer.
///
/// Each gate has matrices of its own. One wide matrix for all four is slower on a CPU, because the backward pass
/// needs its transpose at each token: with 8 samples of 64 tokens and 256 features one core takes 92 ms for a step
/// with the wide matrix, 67 ms with the layer of the framework, which also cuts its input token by token, and 54 ms
/// with this.
#[derive(Module, Debug)]
struct Layer {
    entering: Gate,
    forgetting: Gate,
    leaving: Gate,
    candidate: Gate,
}

#[derive(Module, Debug)]
struct Gate {
    /// From the input, with the bias.
    input: Linear,
    /// From the output before.
    recurrent: Param<Tensor<2>>,
}

impl Gate {
    fn new(width: usize, hidden: usize, bias: f64, device: &Device) -> Gate {
        let bound = (hidden as f64).sqrt().recip();
        let even = Initializer::Uniform { min: -bound, max: bound };
        let bias = Initializer::Constant { value: bias }.init([hidden], device);
        let input = Linear { weight: even.init([width, hidden], device), bias: Some(bias) };
        Gate { input, recurrent: even.init([hidden, hidden], device) }
    }

    /// What the gate computes at each token, from the output at the one before.
    fn opened(&self, inputs: Tensor<2>, length: usize) -> impl FnMut(Option<&Tensor<2>>) -> Tensor<2> {
        // The part that depends on the input alone, for all tokens in one multiplication.
        let mut by_token = pieces(self.input.forward(inputs), length).into_iter();
        let recurrent = self.recurrent.val();
        move |output| {
            let own = by_token.next().expect("one piece for each token");
            match output {
                Some(output) => own.add(output.clone().matmul(recurrent.clone())),
                None => own,
            }
        }
    }
}

impl Layer {
    fn new(width: usize, hidden: usize, device: &Device) -> Layer {
        let gate = |bias| Gate::new(width, hidden, bias, device);
        Layer { entering: gate(0.0), forgetting: gate(1.0), leaving: gate(0.0), candidate: gate(0.0) }
    }
}

impl Forward for Layer {
    fn forward(&self, input: Flow) -> Flow {
        let input = input.sequence();
        let [samples, length, width] = input.dims();
        let inputs = input.swap_dims(0, 1).reshape([length * samples, width]);
        let mut entering = self.entering.opened(inputs.clone(), length);
        let mut forgetting = self.forgetting.opened(inputs.clone(), length);
        let mut leaving = self.leaving.opened(inputs.clone(), length);
        let mut candidate = self.candidate.opened(inputs, length);

        // The memory and the output at the token before; at first there are zeros.
        let mut state: Option<(Tensor<2>, Tensor<2>)> = None;
        let mut outputs = Vec::with_capacity(length);
        for _ in 0..length {
            let before = state.as_ref().map(|(_, output)| output);
            let new = sigmoid(entering(before)).mul(candidate(before).tanh());
            let (kept, leaving) = (sigmoid(forgetting(before)), sigmoid(leaving(before)));
            let memory = match state {
                Some((memory, _)) => kept.mul(memory).add(new),
                None => new,
            };
            let output = leaving.mul(memory.clone().tanh());
            outputs.push(output.clone());
            state = Some((memory, output));
        }
        Flow::Sequence(Tensor::stack(outputs, 1))
    }
}

/// The rows cut into `count` pieces of the same height.
///
/// The gradient of a cut is as large as what was cut. So pieces are cut off in halves of halves: the work is then
/// that of the logarithm of `count` and not of `count` times the whole.
fn pieces(rows: Tensor<2>, count: usize) -> Vec<Tensor<2>> {
    if count < 2 {
        return vec![rows];
    }
    let (height, half) = (rows.dims()[0] / count, count / 2);
    let mut pieces_before = pieces(rows.clone().narrow(0, 0, half * height), half);
    pieces_before.extend(pieces(rows.narrow(0, half * height, (count - half) * height), count - half));
    pieces_before
}

#[derive(Module, Debug)]
struct Head {
    output: Linear,
}

impl Forward for Head {
    fn forward(&self, input: Flow) -> Flow {
        Flow::Features(self.output.forward(input.sequence().flatten::<2>(0, 1)))
    }
}

fn build(parameters: &Parameters, kind: Kind, device: &Device) -> Result<Vec<Box<dyn Segment>>> {
    let (vocabulary, _) = text(parameters, kind)?;
    let (mut width, layers, hidden) =
        (size(parameters, "width"), size(parameters, "layers"), size(parameters, "hidden"));
    let tokens = Initializer::Normal { mean: 0.0, std: 1.0 }.init([vocabulary, width], device);
    let mut segments = vec![Part::boxed("embedding", Embedding { tokens })];
    for layer in 1..=layers {
        segments.push(Part::boxed(format!("layer{layer}"), Layer::new(width, hidden, device)));
        width = hidden;
    }
    let output = LinearConfig::new(width, vocabulary).init(device);
    segments.push(Part::boxed("head", Head { output }));
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use burn::nn::{GateController, LstmConfig};
    use burn::tensor::Distribution;

    use super::*;

    /// The framework's gate with the weights of ours.
    fn gate(gate: &Gate, device: &Device) -> GateController {
        let hidden = gate.recurrent.dims()[0];
        let zeros = Initializer::Zeros.init([hidden], device);
        GateController {
            input_transform: gate.input.clone(),
            hidden_transform: Linear { weight: gate.recurrent.clone(), bias: Some(zeros) },
        }
    }

    #[test]
    fn a_layer_computes_what_the_layer_of_the_framework_does() {
        let _alone = crate::model::draw_alone();
        let device = Device::flex();
        let layer = Layer::new(5, 7, &device);
        let mut expected = LstmConfig::new(5, 7, true).init(&device);
        expected.input_gate = gate(&layer.entering, &device);
        expected.forget_gate = Some(gate(&layer.forgetting, &device));
        expected.output_gate = gate(&layer.leaving, &device);
        expected.cell_gate = gate(&layer.candidate, &device);
        let input = Tensor::<3>::random([3, 11, 5], Distribution::Normal(0.0, 1.0), &device);
        let found = layer.forward(Flow::Sequence(input.clone())).sequence();
        let difference = found.sub(expected.forward(input, None).0).abs().max().into_scalar::<f32>();
        assert!(difference < 1e-6, "{difference}");
    }

    #[test]
    fn pieces_are_in_order_and_complete() {
        let device = Device::flex();
        let rows = Tensor::<1, burn::tensor::Int>::arange(0..26, &device).float().reshape([13, 2]);
        for (count, height) in [(13, 1), (1, 13)] {
            let pieces = pieces(rows.clone(), count);
            assert!(pieces.iter().all(|piece| piece.dims() == [height, 2]));
            assert_eq!(pieces.len(), count);
            Tensor::cat(pieces, 0).into_data().assert_eq(&rows.to_data(), true);
        }
    }
}
