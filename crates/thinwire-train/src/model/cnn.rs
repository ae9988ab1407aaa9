//! A small convolutional network for images.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::Device;
use burn::tensor::activation::relu;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use thinwire::method::{Kind as Of, Parameter, Parameters};

use super::{Build, Flow, Forward, Part, Segment, images, size};
use crate::catalog::Choice;
use crate::data::Kind;
use crate::{Error, Result};

/// `cnn`: blocks of a 3x3 convolution, max-pooling by 2 and ReLU, then two linear layers with ReLU between them.
///
/// Parameters: `width`, the channels of the first block (16), twice as many in each block after it; `depth`, the
/// number of blocks (2), each of which halves rows and columns; `hidden`, the width of the linear layer (128). With
/// the defaults it has 206,922 weights on 28x28x1 images of 10 classes, 268,650 on 32x32x3 and 22,602 on 8x8x1.
///
/// Each block is a segment, `block1` and so on; both linear layers are the segment `head`.
pub(super) const MODEL: Choice<Build> = Choice {
    name: "cnn",
    summary: "blocks of convolution and pooling, then two linear layers, for images",
    parameters: &[
        Parameter {
            name: "width",
            kind: Of::Count { min: 1, max: 1024 },
            default: "16",
            help: "channels of the first block, twice as many in each after it",
        },
        Parameter {
            name: "depth",
            kind: Of::Count { min: 2, max: 4 },
            default: "2",
            help: "number of blocks, each of which halves rows and columns",
        },
        Parameter {
            name: "hidden",
            kind: Of::Count { min: 1, max: 65536 },
            default: "128",
            help: "width of the linear layer",
        },
    ],
    build,
};

/// Images of fewer rows or columns are refused.
const SMALLEST: usize = 8;

#[derive(Module, Debug)]
struct Block {
    conv: Conv2d,
}

impl Forward for Block {
    fn forward(&self, input: Flow) -> Flow {
        // The largest of four is the same before and after ReLU, which then has only a quarter of the work.
        let pooled = max_pool2d(self.conv.forward(input.images()), MaxPoolOptions::new([2, 2]));
        Flow::Images(relu(pooled))
    }
}

#[derive(Module, Debug)]
struct Head {
    hidden: Linear,
    output: Linear,
}

impl Forward for Head {
    fn forward(&self, input: Flow) -> Flow {
        let features = input.images().flatten(1, 3);
        Flow::Features(self.output.forward(relu(self.hidden.forward(features))))
    }
}

fn build(parameters: &Parameters, kind: Kind, device: &Device) -> Result<Vec<Box<dyn Segment>>> {
    let image = images(parameters, kind)?;
    let (width, depth, hidden) =
        (size(parameters, "width"), size(parameters, "depth"), size(parameters, "hidden"));
    let smallest = SMALLEST.max(1 << depth);
    if image.height < smallest || image.width < smallest {
        return Err(Error::BadSetting {
            name: "model".into(),
            found: format!("{parameters} on {}x{} images", image.height, image.width),
            expected: format!(
                "with depth={depth} images need at least {smallest} rows and {smallest} columns"
            ),
        });
    }
    let mut segments = Vec::new();
    let mut channels = image.channels;
    for block in 0..depth {
        let conv = Conv2dConfig::new([channels, width << block], [3, 3])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .init(device);
        segments.push(Part::boxed(format!("block{}", block + 1), Block { conv }));
        channels = width << block;
    }
    let features = channels * (image.height >> depth) * (image.width >> depth);
    let head = Head {
        hidden: LinearConfig::new(features, hidden).init(device),
        output: LinearConfig::new(hidden, image.classes).init(device),
    };
    segments.push(Part::boxed("head", head));
    Ok(segments)
}
