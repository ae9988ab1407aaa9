//! From a batch to gradients: one pass forward, one backward, segment by segment.

use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};

use super::loss::{correct, cross_entropy};
use super::{Flow, Segment};
use crate::data::{Batch, Kind};

/// A batch as tensors: what the first segment takes, and the targets.
///
/// # Panics
/// When the batch is not of this kind.
pub fn input(batch: &Batch, kind: Kind, device: &Device) -> (Flow, Tensor<1, Int>) {
    let samples = batch.samples;
    let flow = match kind {
        Kind::Images { channels, height, width, .. } => {
            let data = TensorData::new(batch.pixels.clone(), [samples, channels, height, width]);
            Flow::Images(Tensor::from_data(data, device))
        }
        Kind::Text { length, .. } => {
            let data = TensorData::new(batch.tokens.clone(), [samples, length]);
            Flow::Tokens(Tensor::from_data(data, device))
        }
    };
    let targets = TensorData::new(batch.targets.clone(), [batch.targets.len()]);
    (flow, Tensor::from_data(targets, device))
}

/// One forward and backward pass, segment by segment; gives the mean loss.
///
/// The flow is cut at every border between segments. `forward_done` is called when the loss is known. Then come the
/// backward passes, from the last segment to the first; `ready` is called after each with the number of the segment
/// and its gradients, which [`Segment::gradients`] takes out.
///
/// # Panics
/// When the model does not end in one row of logits for each target.
pub fn forward_backward(
    segments: &[Box<dyn Segment>],
    input: Flow,
    targets: Tensor<1, Int>,
    forward_done: impl FnOnce(),
    mut ready: impl FnMut(usize, &mut Gradients),
) -> f32 {
    // Where each segment's graph begins and ends. The first begins with the data, whose gradient nobody needs.
    let mut graphs: Vec<(Flow, Flow)> = Vec::with_capacity(segments.len());
    for segment in segments {
        let begin = match graphs.last() {
            Some((_, end)) => end.clone().cut(),
            None => input.clone(),
        };
        let end = segment.forward(begin.clone());
        graphs.push((begin, end));
    }
    let (begin, logits) = graphs.pop().expect("a model has at least one segment");
    let loss = cross_entropy(logits.features(), targets);
    let value = loss.clone().into_scalar::<f32>();
    forward_done();

    let mut number = segments.len() - 1;
    let mut gradients = loss.backward();
    let mut upstream = begin.gradient(&gradients);
    ready(number, &mut gradients);
    while let Some((begin, end)) = graphs.pop() {
        number -= 1;
        let incoming = upstream.take().expect("each segment but the first begins with a cut");
        gradients = end.backward(incoming);
        upstream = begin.gradient(&gradients);
        ready(number, &mut gradients);
    }
    value
}

/// The sum of the losses of all rows, and how many were told right. The segments are those of
/// [`Segment::measuring`].
///
/// # Panics
/// When the model does not end in one row of logits for each target.
pub fn evaluate(segments: &[Box<dyn Segment>], input: Flow, targets: Tensor<1, Int>) -> (f64, usize) {
    // Segments for measuring live on the device below the one that keeps graphs.
    let (input, targets) = (without_graph(input), below(targets));
    let logits = segments.iter().fold(input, |flow, segment| segment.forward(flow)).features();
    let rows = targets.dims()[0];
    let hits = correct(&logits, &targets);
    (f64::from(cross_entropy(logits, targets).into_scalar::<f32>()) * rows as f64, hits)
}

fn without_graph(flow: Flow) -> Flow {
    match flow {
        Flow::Images(images) if images.is_autodiff() => Flow::Images(images.inner()),
        Flow::Features(features) if features.is_autodiff() => Flow::Features(features.inner()),
        Flow::Sequence(sequence) if sequence.is_autodiff() => Flow::Sequence(sequence.inner()),
        Flow::Tokens(tokens) => Flow::Tokens(below(tokens)),
        flow => flow,
    }
}

fn below<const D: usize>(tensor: Tensor<D, Int>) -> Tensor<D, Int> {
    if tensor.is_autodiff() { tensor.inner() } else { tensor }
}
