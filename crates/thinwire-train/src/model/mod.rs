//! Models, cut into segments so that gradients can leave before the backward pass is over.

mod cnn;
mod gpt;
pub mod loss;
mod lstm;
mod mlp;
pub mod pass;
mod resnet;
mod segment;
#[cfg(test)]
mod tests;

use burn::tensor::Device;
use thinwire::method::Parameters;

use crate::catalog::{self, Choice};
use crate::data::Kind;
use crate::{Error, Result};

pub use segment::{Flow, Forward, Part, Segment};

/// What builds a model for samples of this kind: its segments in the order of the forward pass. The last gives
/// [`Flow::Features`] with one row of logits for each target.
pub type Build = fn(&Parameters, Kind, &Device) -> Result<Vec<Box<dyn Segment>>>;

/// All models.
pub const MODELS: &[Choice<Build>] =
    &[mlp::MODEL, cnn::MODEL, resnet::MODEL, resnet::MODEL_20, lstm::MODEL, gpt::MODEL];

/// Lets one thread at a time draw random numbers: the framework has one generator for the whole process.
fn draw_alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Builds a model by name and parameters, such as `cnn` or `gpt:layers=4`. For the same `seed` it has the same
/// weights.
pub fn build(spec: &str, kind: Kind, seed: u64, device: &Device) -> Result<(String, Vec<Box<dyn Segment>>)> {
    let (choice, parameters) = catalog::find("model", MODELS, spec)?;
    let _alone = draw_alone();
    device.seed(seed);
    let segments = (choice.build)(&parameters, kind, device)?;
    // Weights are drawn when they are first read.
    segments.iter().for_each(|segment| segment.read(&mut Vec::new()));
    Ok((parameters.to_string(), segments))
}

/// What images are like.
struct Images {
    channels: usize,
    height: usize,
    width: usize,
    classes: usize,
}

/// The images that a model for images is built for.
fn images(parameters: &Parameters, kind: Kind) -> Result<Images> {
    match kind {
        Kind::Images { channels, height, width, classes } => Ok(Images { channels, height, width, classes }),
        Kind::Text { .. } => Err(wrong_kind(parameters, "text", "images, such as digits")),
    }
}

/// The size of the vocabulary and the length of the samples that a model for text is built for.
fn text(parameters: &Parameters, kind: Kind) -> Result<(usize, usize)> {
    match kind {
        Kind::Text { vocabulary, length } => Ok((vocabulary, length)),
        Kind::Images { .. } => Err(wrong_kind(parameters, "images", "text")),
    }
}

fn wrong_kind(parameters: &Parameters, found: &str, right: &str) -> Error {
    let method = parameters.method();
    Error::BadSetting {
        name: "model".into(),
        found: format!("{method} on {found}"),
        expected: format!("{method} is for {right}"),
    }
}

/// A parameter that is a number of things.
fn size(parameters: &Parameters, name: &str) -> usize {
    usize::try_from(parameters.count(name)).expect("the models bound their parameters")
}
