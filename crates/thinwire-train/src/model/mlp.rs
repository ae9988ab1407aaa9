//! A multilayer perceptron for images.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use burn::tensor::activation::relu;
use thinwire::method::{Kind as Of, Parameter, Parameters};

use super::{Build, Flow, Forward, Part, Segment, images, size};
use crate::Result;
use crate::catalog::Choice;
use crate::data::Kind;

/// `mlp`: linear layers with ReLU between them.
///
/// Parameters: `hidden`, the width of the hidden layers (256); `layers`, the number of hidden layers (2). With the
/// defaults it has 269,322 weights on 28x28 images of 10 classes and 85,002 on 8x8.
///
/// Each layer is a segment: `layer1` and so on, then `head`.
pub(super) const MODEL: Choice<Build> = Choice {
    name: "mlp",
    summary: "linear layers with ReLU, for images",
    parameters: &[
        Parameter {
            name: "hidden",
            kind: Of::Count { min: 1, max: 65536 },
            default: "256",
            help: "width of the hidden layers",
        },
        Parameter {
            name: "layers",
            kind: Of::Count { min: 1, max: 64 },
            default: "2",
            help: "number of hidden layers",
        },
    ],
    build,
};

#[derive(Module, Debug)]
struct Layer {
    linear: Linear,
    last: bool,
}

impl Forward for Layer {
    fn forward(&self, input: Flow) -> Flow {
        let features = match input {
            Flow::Images(images) => images.flatten(1, 3),
            other => other.features(),
        };
        let output = self.linear.forward(features);
        Flow::Features(if self.last { output } else { relu(output) })
    }
}

fn build(parameters: &Parameters, kind: Kind, device: &Device) -> Result<Vec<Box<dyn Segment>>> {
    let image = images(parameters, kind)?;
    let (hidden, layers) = (size(parameters, "hidden"), size(parameters, "layers"));
    let mut width = image.channels * image.height * image.width;
    let mut segments = Vec::new();
    for layer in 1..=layers {
        let linear = LinearConfig::new(width, hidden).init(device);
        segments.push(Part::boxed(format!("layer{layer}"), Layer { linear, last: false }));
        width = hidden;
    }
    let linear = LinearConfig::new(width, image.classes).init(device);
    segments.push(Part::boxed("head", Layer { linear, last: true }));
    Ok(segments)
}
