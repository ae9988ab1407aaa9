//! Residual networks for small images.

use burn::module::{Initializer, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, s};
use thinwire::method::{Kind as Of, Parameter, Parameters};

use super::{Build, Flow, Forward, Images, Part, Segment, images, size};
use crate::catalog::Choice;
use crate::data::Kind;
use crate::{Error, Result};

/// `resnet`: the residual network for CIFAR-10 of He et al., "Deep Residual Learning for Image Recognition", 2015,
/// section 4.2.
///
/// A 3x3 convolution to 16 channels, then three stages of `(depth - 2) / 6` blocks each with 16, 32 and 64 channels,
/// then the mean of each channel and a linear layer. A block is two 3x3 convolutions with batch normalisation, and a
/// shortcut without weights (option A of the paper): where a stage halves rows and columns, the shortcut takes every
/// second pixel and adds channels of zeros.
///
/// Parameters: `depth`, the number of layers with weights (20), which is 6n + 2. With 10 classes and 3 channels,
/// `depth` 20 has 269,722 weights, 32 has 464,154, 44 has 658,586, 56 has 853,018 and 110 has 1,727,962. The running
/// statistics are not counted; they move by a tenth of the way at each step.
///
/// Segments: `stem`; one for each block, such as `stage1.block1`; `head`.
pub(super) const MODEL: Choice<Build> = Choice {
    name: "resnet",
    summary: "residual network with batch normalisation, for images",
    parameters: &[Parameter {
        name: "depth",
        kind: Of::Count { min: 8, max: 1202 },
        default: "20",
        help: "layers with weights: 20, 32, 44, 56, 110 or another 6n + 2",
    }],
    build,
};

/// `resnet20`: the same as `resnet:depth=20`.
pub(super) const MODEL_20: Choice<Build> = Choice {
    name: "resnet20",
    summary: "residual network of 20 layers, the same as resnet:depth=20",
    parameters: &[],
    build: |parameters, kind, device| Ok(layers(20, &images(parameters, kind)?, device)),
};

/// A convolution with batch normalisation.
#[derive(Module, Debug)]
struct Layer {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Layer {
    fn new(channels: [usize; 2], stride: usize, device: &Device) -> Layer {
        let conv = Conv2dConfig::new(channels, [3, 3])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_bias(false)
            .with_initializer(Initializer::KaimingNormal { gain: 2f64.sqrt(), fan_out_only: false })
            .init(device);
        Layer { conv, norm: BatchNormConfig::new(channels[1]).init(device) }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let output = self.norm.forward(self.conv.forward(images));
        // The framework holds an update of the statistics back for the thread that made it and would take the mean
        // with those of other threads; this makes it count now, whichever thread takes the next step.
        let _ = (self.norm.running_mean.valid(), self.norm.running_var.valid());
        output
    }
}

#[derive(Module, Debug)]
struct Stem {
    layer: Layer,
}

impl Forward for Stem {
    fn forward(&self, input: Flow) -> Flow {
        Flow::Images(relu(self.layer.forward(input.images())))
    }
}

#[derive(Module, Debug)]
struct Block {
    first: Layer,
    second: Layer,
    /// 1, or 2 at the beginning of a stage.
    stride: usize,
}

impl Forward for Block {
    fn forward(&self, input: Flow) -> Flow {
        let input = input.images();
        let residual = self.second.forward(relu(self.first.forward(input.clone())));
        let shortcut = if self.stride == 1 { input } else { narrowed(input, residual.dims()) };
        Flow::Images(relu(residual.add(shortcut)))
    }
}

/// Every second pixel, and channels of zeros on both sides up to the shape `to`.
fn narrowed(images: Tensor<4>, to: [usize; 4]) -> Tensor<4> {
    let [samples, channels, rows, columns] = to;
    let more = channels - images.dims()[1];
    let pixels = images.slice(s![.., .., ..;2, ..;2]);
    let zeros = |channels| Tensor::zeros([samples, channels, rows, columns], &pixels.device());
    Tensor::cat(vec![zeros(more / 2), pixels.clone(), zeros(more - more / 2)], 1)
}

#[derive(Module, Debug)]
struct Head {
    output: Linear,
}

impl Forward for Head {
    fn forward(&self, input: Flow) -> Flow {
        let means = input.images().flatten::<3>(2, 3).mean_dim(2).squeeze_dim::<2>(2);
        Flow::Features(self.output.forward(means))
    }
}

fn build(parameters: &Parameters, kind: Kind, device: &Device) -> Result<Vec<Box<dyn Segment>>> {
    let image = images(parameters, kind)?;
    let depth = size(parameters, "depth");
    if depth % 6 != 2 {
        let below = (depth - 2) / 6 * 6 + 2;
        return Err(Error::BadSetting {
            name: "model".into(),
            found: parameters.to_string(),
            expected: format!(
                "the depth of a residual network is 6n + 2; the nearest are {below} and {}",
                below + 6
            ),
        });
    }
    Ok(layers(depth, &image, device))
}

fn layers(depth: usize, image: &Images, device: &Device) -> Vec<Box<dyn Segment>> {
    let stem = Stem { layer: Layer::new([image.channels, 16], 1, device) };
    let mut segments = vec![Part::boxed("stem", stem)];
    let mut channels = 16;
    for (stage, width) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..(depth - 2) / 6 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let module = Block {
                first: Layer::new([channels, width], stride, device),
                second: Layer::new([width, width], 1, device),
                stride,
            };
            segments.push(Part::boxed(format!("stage{}.block{}", stage + 1, block + 1), module));
            channels = width;
        }
    }
    let output = LinearConfig::new(channels, image.classes).init(device);
    segments.push(Part::boxed("head", Head { output }));
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortcut_takes_every_second_pixel_and_adds_zeros_on_both_sides() {
        let device = Device::flex();
        let images = Tensor::<1, burn::tensor::Int>::arange(0..30, &device).float().reshape([1, 2, 3, 5]);
        let found = narrowed(images, [1, 4, 2, 3]);
        let expected = [
            [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
            [[0.0, 2.0, 4.0], [10.0, 12.0, 14.0]],
            [[15.0, 17.0, 19.0], [25.0, 27.0, 29.0]],
            [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        ];
        found.into_data().assert_eq(&burn::tensor::TensorData::from([expected]), false);
    }
}
