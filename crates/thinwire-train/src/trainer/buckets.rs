//! Which segments of a model travel together.

use std::ops::Range;

use thinwire::Bucket;
use thinwire::synchronizer::Layout;

use crate::Result;
use crate::model::Segment;

/// How the weights of a model lie in buckets: from the last segment to the first, because that is the order in
/// which their gradients become ready.
#[derive(Debug)]
pub(super) struct Buckets {
    /// For each segment, in the order of the forward pass: its bucket, and where it lies in there.
    places: Vec<(usize, Range<usize>)>,
    /// For each bucket: names and shapes of its layers.
    layers: Vec<Vec<(String, Vec<usize>)>>,
    lengths: Vec<usize>,
    /// Names and dimensions of all layers, in the order of the forward pass.
    order: Vec<(String, usize)>,
}

impl Buckets {
    /// Segments are put together until there are at least `bytes` in a bucket. What is left at the end may be less:
    /// it is better off alone than holding up those before it, which have the whole backward pass to travel in.
    pub fn new(segments: &[Box<dyn Segment>], bytes: usize) -> Buckets {
        let weights = segments.iter().flat_map(|segment| segment.weights());
        let order = weights.map(|(name, shape)| (name, shape.len())).collect();
        let mut buckets = Buckets { places: Vec::new(), layers: Vec::new(), lengths: Vec::new(), order };
        let mut full = true;
        for segment in segments.iter().rev() {
            let layers = segment.weights();
            let length: usize = layers.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
            if full {
                buckets.layers.push(Vec::new());
                buckets.lengths.push(0);
            }
            let bucket = buckets.layers.len() - 1;
            let held = &mut buckets.lengths[bucket];
            buckets.places.push((bucket, *held..*held + length));
            *held += length;
            buckets.layers[bucket].extend(layers);
            full = 4 * *held >= bytes;
        }
        buckets.places.reverse();
        buckets
    }

    /// The bucket of a segment, and where in it the segment lies.
    pub fn place(&self, segment: usize) -> (usize, Range<usize>) {
        self.places[segment].clone()
    }

    /// Whether a bucket is complete with the gradients of this segment.
    pub fn completes(&self, segment: usize) -> bool {
        let (bucket, range) = &self.places[segment];
        range.end == self.lengths[*bucket]
    }

    /// Names and shapes of the layers of each bucket.
    pub fn layers(&self) -> &[Vec<(String, Vec<usize>)>] {
        &self.layers
    }

    /// Elements of each bucket.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// For the synchronizer, with the output layer marked.
    pub fn layout(&self) -> Result<Layout> {
        let buckets = self.layers.iter().enumerate();
        let buckets = buckets.map(|(id, layers)| Bucket::new(id as u32, layers.iter().cloned()));
        let layout = Layout::new(buckets.collect::<thinwire::Result<_>>()?)?;
        Ok(layout.with_output_of(self.order.iter().map(|(name, dimensions)| (name, *dimensions))))
    }

    /// The weights of all segments.
    pub fn read(&self, segments: &[Box<dyn Segment>]) -> Vec<Vec<f32>> {
        let mut flat: Vec<Vec<f32>> = self.lengths.iter().map(|length| Vec::with_capacity(*length)).collect();
        for (number, segment) in segments.iter().enumerate().rev() {
            segment.read(&mut flat[self.places[number].0]);
        }
        flat
    }

    /// Sets the weights of all segments.
    pub fn write(&self, flat: &[Vec<f32>], segments: &mut [Box<dyn Segment>]) {
        for (segment, (bucket, range)) in segments.iter_mut().zip(&self.places) {
            segment.write(&flat[*bucket][range.clone()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::data::Kind;
    use crate::model;

    fn segments() -> Vec<Box<dyn Segment>> {
        let kind = Kind::Images { channels: 1, height: 8, width: 8, classes: 10 };
        model::build("mlp:hidden=16,layers=3", kind, 1, &Device::flex().autodiff()).unwrap().1
    }

    #[test]
    fn buckets_hold_every_weight_once_from_last_to_first() {
        let segments = segments();
        let all: usize = Buckets::new(&segments, usize::MAX).lengths().iter().sum();
        for bytes in [0, 1, 700, 1200, 5000, usize::MAX] {
            let buckets = Buckets::new(&segments, bytes);
            assert_eq!(buckets.lengths().iter().sum::<usize>(), all);
            assert!(
                buckets.lengths().iter().all(|length| 4 * length >= bytes) || buckets.lengths().len() == 1
            );
            let order: Vec<usize> = (0..segments.len()).rev().map(|s| buckets.place(s).0).collect();
            assert!(order.is_sorted() && order[0] == 0);
            let complete = (0..segments.len()).filter(|segment| buckets.completes(*segment)).count();
            assert_eq!(complete, buckets.lengths().len());
            assert_eq!(buckets.layout().unwrap().len(), all);
        }
        assert_eq!(Buckets::new(&segments, 0).lengths().len(), segments.len());
    }

    #[test]
    fn the_output_layer_of_every_model_is_marked() {
        let images = Kind::Images { channels: 1, height: 16, width: 16, classes: 10 };
        let text = Kind::Text { vocabulary: 65, length: 16 };
        for (spec, kind) in [
            ("mlp", images),
            ("cnn", images),
            ("resnet:depth=8", images),
            ("lstm:hidden=16", text),
            ("gpt:layers=1", text),
        ] {
            let segments = model::build(spec, kind, 1, &Device::flex().autodiff()).unwrap().1;
            for bytes in [0, 5000, usize::MAX] {
                let layout = Buckets::new(&segments, bytes).layout().unwrap();
                let marked: Vec<&str> = layout.output().map(|layer| layer.name()).collect();
                let output = if spec == "mlp" { "linear" } else { "output" };
                let mut expected = vec![format!("head.{output}.weight")];
                // A GPT's output has no bias.
                expected.extend(Some(format!("head.{output}.bias")).filter(|_| !spec.starts_with("gpt")));
                assert_eq!(marked, expected, "{spec}");
            }
        }
    }

    #[test]
    fn weights_come_back_from_where_they_were_put() {
        let mut segments = segments();
        for bytes in [0, 1200, usize::MAX] {
            let buckets = Buckets::new(&segments, bytes);
            let mut flat = buckets.read(&segments);
            flat.iter_mut().flatten().enumerate().for_each(|(place, weight)| *weight = place as f32);
            buckets.write(&flat, &mut segments);
            assert_eq!(buckets.read(&segments), flat);
        }
    }
}
