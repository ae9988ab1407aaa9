//! A flat run of gradient elements, with the names and bounds of the layers in it.
//!
//! All five papers compress either one layer or one fused vector of many layers. A [`Bucket`] is
//! both: one layer is a bucket of one. What is decided by layer (which ones travel dense, where a
//! NaN was found, under which name a residual is saved) is decided from the [`Layer`]s in it;
//! everything else sees one vector.

mod rules;

use std::collections::HashSet;
use std::ops::Range;

pub(crate) use rules::matches_any;
pub use rules::{LayerRules, Split};

use crate::{Error, Result};

/// The most elements a bucket can hold: selected coordinates travel as 32-bit indices.
const LIMIT: u64 = u32::MAX as u64;

/// One named tensor of a [`Bucket`]: its shape, and where in the bucket it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    name: String,
    shape: Vec<usize>,
    start: usize,
    len: usize,
    output: bool,
}

impl Layer {
    /// The name, unique in the bucket; state is saved and restored under it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape as given; `[]` is a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements of the bucket that are this layer's.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the layer has no elements, which a shape with a zero in it gives.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it is marked as (a part of) the model's output layer, which some methods send exactly. See
    /// [`Layout::with_output`](crate::synchronizer::Layout::with_output).
    pub fn is_output(&self) -> bool {
        self.output
    }

    /// The number of dimensions: 0 for a scalar, 1 for a bias, 2 and more for weights.
    pub fn dimensions(&self) -> usize {
        self.shape.len()
    }
}

/// A flat run of gradient elements, made of the layers that lie in it one after another.
///
/// Every rank must build the same buckets: same id, same layers, same order.
///
/// ```
/// use thinwire::Bucket;
///
/// let bucket = Bucket::new(0, [("conv.weight", vec![8, 3, 3, 3]), ("conv.bias", vec![8])])?;
/// assert_eq!(bucket.len(), 224);
/// assert_eq!(bucket.layers()[1].range(), 216..224);
///
/// let (layer, offset) = bucket.layer_at(220);
/// assert_eq!((layer.name(), offset), ("conv.bias", 4));
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    id: u32,
    len: usize,
    layers: Vec<Layer>,
}

impl Bucket {
    /// A bucket of the given layers, in the given order. The shape `[]` is a scalar, one element.
    ///
    /// # Errors
    /// [`Error::DuplicateLayer`] when two layers share a name, [`Error::BucketTooLong`] when there
    /// are more elements than a 32-bit index can name.
    pub fn new<N: Into<String>>(
        id: u32,
        layers: impl IntoIterator<Item = (N, Vec<usize>)>,
    ) -> Result<Bucket> {
        let mut placed = Vec::new();
        let mut names = HashSet::new();
        let mut end = 0u64;
        for (name, shape) in layers {
            let name = name.into();
            if !names.insert(name.clone()) {
                return Err(Error::DuplicateLayer { name });
            }
            let start = end;
            end = end.saturating_add(elements(&shape));
            if end > LIMIT {
                return Err(Error::BucketTooLong { elements: end, limit: LIMIT });
            }
            let (start, len) = (start as usize, (end - start) as usize);
            placed.push(Layer { name, shape, start, len, output: false });
        }
        Ok(Bucket { id, len: end as usize, layers: placed })
    }

    /// A bucket of one flat layer with id 0: what a caller with a plain vector needs.
    ///
    /// ```
    /// # use thinwire::Bucket;
    /// let bucket = Bucket::single("gradient", 1_000)?;
    /// assert_eq!(bucket.layers()[0].shape(), [1_000]);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BucketTooLong`], as in [`Bucket::new`].
    pub fn single(name: impl Into<String>, len: usize) -> Result<Bucket> {
        Bucket::new(0, [(name, vec![len])])
    }

    /// The same with these layers marked as the model's output layer, as far as they are in this bucket, and no others.
    pub fn with_output<N: AsRef<str>>(mut self, names: &[N]) -> Bucket {
        for layer in &mut self.layers {
            layer.output = names.iter().any(|name| name.as_ref() == layer.name);
        }
        self
    }

    /// The number that names this bucket in every frame, the same on all ranks.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The number of elements, at most `u32::MAX`.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements: no layers, or only empty ones.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The layers, in the order of their elements.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The layer that element `index` of the bucket is in, and its offset inside that layer.
    ///
    /// # Panics
    /// When `index` is not below [`Bucket::len`].
    pub fn layer_at(&self, index: usize) -> (&Layer, usize) {
        assert!(index < self.len, "element {index} of a bucket of {} elements", self.len);
        // Ends never fall, and an empty layer ends where the one before it does, so the first layer
        // that ends past `index` is never an empty one.
        let number = self.layers.partition_point(|layer| layer.range().end <= index);
        let layer = &self.layers[number];
        (layer, index - layer.start)
    }

    /// Checks that a vector called `what` has the bucket's length.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] with both lengths.
    pub fn check_len(&self, what: &'static str, found: usize) -> Result<()> {
        if found == self.len {
            Ok(())
        } else {
            Err(Error::LengthMismatch { what, found, expected: self.len })
        }
    }
}

/// The number of elements of a shape, `u64::MAX` when it overflows: too long in either case.
fn elements(shape: &[usize]) -> u64 {
    // A zero anywhere makes the layer empty, also beside factors that overflow on the way to it.
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().try_fold(1u64, |product, &side| product.checked_mul(side as u64)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_lie_one_after_another() {
        let bucket = Bucket::new(7, [("w", vec![2, 3]), ("scale", vec![]), ("b", vec![4])]).unwrap();
        assert_eq!((bucket.id(), bucket.len(), bucket.is_empty()), (7, 11, false));
        let ranges: Vec<_> = bucket.layers().iter().map(Layer::range).collect();
        assert_eq!(ranges, [0..6, 6..7, 7..11]);
        let dimensions: Vec<_> = bucket.layers().iter().map(Layer::dimensions).collect();
        assert_eq!(dimensions, [2, 0, 1]);
        assert_eq!(bucket.layers()[0].shape(), [2, 3]);
    }

    #[test]
    fn every_element_finds_its_layer_past_empty_ones() {
        let shapes: [&[usize]; 8] = [&[0], &[3], &[2, 0], &[0, 5], &[1], &[], &[4, 2], &[0]];
        let named = shapes.iter().enumerate().map(|(number, shape)| (number.to_string(), shape.to_vec()));
        let bucket = Bucket::new(0, named).unwrap();
        assert_eq!(bucket.len(), 13);
        let mut visited = 0;
        for layer in bucket.layers() {
            assert_eq!(layer.is_empty(), layer.range().is_empty());
            for (offset, index) in layer.range().enumerate() {
                assert_eq!(bucket.layer_at(index), (layer, offset));
                visited += 1;
            }
        }
        assert_eq!(visited, bucket.len());
    }

    #[test]
    #[should_panic(expected = "element 3 of a bucket of 3 elements")]
    fn an_element_past_the_end_panics() {
        Bucket::single("g", 3).unwrap().layer_at(3);
    }

    #[test]
    fn a_bucket_may_be_empty() {
        let none = Bucket::new(0, Vec::<(String, Vec<usize>)>::new()).unwrap();
        assert!(none.is_empty() && none.layers().is_empty());
        let zero = Bucket::single("g", 0).unwrap();
        assert!(zero.is_empty() && zero.layers()[0].is_empty());
    }

    #[test]
    fn a_name_may_appear_once() {
        let twice = Bucket::new(0, [("w", vec![2]), ("b", vec![2]), ("w", vec![0])]);
        assert_eq!(twice, Err(Error::DuplicateLayer { name: "w".into() }));
    }

    #[test]
    fn indices_fit_in_32_bits() {
        let limit = u32::MAX as usize;
        assert_eq!(Bucket::single("g", limit).unwrap().len(), limit);
        let above = Error::BucketTooLong { elements: LIMIT + 1, limit: LIMIT };
        assert_eq!(Bucket::single("g", limit + 1), Err(above.clone()));
        assert_eq!(Bucket::new(0, [("a", vec![limit]), ("b", vec![])]), Err(above));
    }

    #[test]
    fn overflowing_shapes_are_too_long_or_empty() {
        let side = 1usize << 40;
        let overflow = Bucket::new(0, [("g", vec![side, side])]);
        assert_eq!(overflow, Err(Error::BucketTooLong { elements: u64::MAX, limit: LIMIT }));
        let sum = Bucket::new(0, [("a", vec![3]), ("g", vec![side, side])]);
        assert!(matches!(sum, Err(Error::BucketTooLong { .. })));
        assert!(Bucket::new(0, [("g", vec![side, side, 0])]).unwrap().is_empty());
    }

    #[test]
    fn a_wrong_length_says_both() {
        let bucket = Bucket::single("g", 5).unwrap();
        assert_eq!(bucket.check_len("gradient", 5), Ok(()));
        let error = bucket.check_len("weights", 4).unwrap_err();
        assert_eq!(error.to_string(), "weights has 4 elements, but the bucket has 5");
    }
}
