//! How a model's gradient is cut into buckets.

use std::collections::HashSet;

use crate::bucket::Layer;
use crate::{Bucket, Error, Result};

/// The buckets of a model, the same on every rank, in the order in which they travel. Put those first whose
/// gradients are ready first: in most trainings the last layers'.
///
/// ```
/// use thinwire::synchronizer::Layout;
/// let layers = [("fc2", vec![10, 100]), ("fc1", vec![100, 784]), ("conv", vec![32, 9])];
/// let layout = Layout::by_size(layers, 100_000)?;
/// assert_eq!(layout.buckets().len(), 3);      // fc1 is larger than that by itself
/// assert_eq!(Layout::by_size([("a", vec![10]), ("b", vec![10])], 80)?.buckets().len(), 1);
/// # Ok::<(), thinwire::Error>(())
/// ```
///
/// No layer is an output layer unless it is marked: buckets are in the order in which gradients become ready, in which
/// the output layer may be anywhere. RedSync leaves it exact when it quantises (`redsync:quantize=true`), so mark it
/// where its parameters are known ([`with_output`](Layout::with_output)), or by the order of the model's parameters
/// ([`with_output_of`](Layout::with_output_of)).
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    buckets: Vec<Bucket>,
}

type NamedShape = (String, Vec<usize>);

impl Layout {
    /// These buckets. Their numbers must be their places, and no layer may be in two of them.
    pub fn new(buckets: Vec<Bucket>) -> Result<Layout> {
        let mut names = HashSet::new();
        for (place, bucket) in buckets.iter().enumerate() {
            if bucket.id() as usize != place {
                return Err(Error::BadSetting {
                    name: format!("the number of the bucket at place {place}"),
                    found: bucket.id().to_string(),
                    expected: place.to_string(),
                });
            }
            if let Some(layer) = bucket.layers().iter().find(|layer| !names.insert(layer.name())) {
                return Err(Error::DuplicateLayer { name: layer.name().to_owned() });
            }
        }
        if buckets.is_empty() {
            return Err(Error::BadSetting {
                name: "layout".into(),
                found: "no buckets".into(),
                expected: "at least one".into(),
            });
        }
        Ok(Layout { buckets })
    }

    /// Layers in the order given, as many in a bucket as fit into `bytes` of `f32`, and at least one.
    pub fn by_size<N: Into<String>>(
        layers: impl IntoIterator<Item = (N, Vec<usize>)>,
        bytes: usize,
    ) -> Result<Layout> {
        let mut groups: Vec<(usize, Vec<NamedShape>)> = Vec::new();
        for (name, shape) in layers {
            let size = shape.iter().product::<usize>().saturating_mul(4);
            match groups.last_mut() {
                Some((held, group)) if held.saturating_add(size) <= bytes => {
                    *held += size;
                    group.push((name.into(), shape));
                }
                _ => groups.push((size, vec![(name.into(), shape)])),
            }
        }
        let buckets = groups.into_iter().enumerate();
        Layout::new(
            buckets
                .map(|(id, (_, layers))| Bucket::new(id as u32, layers))
                .collect::<Result<Vec<Bucket>>>()?,
        )
    }

    /// The same with these layers marked as the model's output layer, and no others.
    ///
    /// ```
    /// use thinwire::synchronizer::Layout;
    /// let layers = [("head.bias", vec![10]), ("head.weight", vec![10, 64]), ("body", vec![64, 64])];
    /// let layout = Layout::by_size(layers, 1000)?.with_output(&["head.weight", "head.bias"])?;
    /// assert!(layout.buckets()[0].layers()[0].is_output());
    /// assert!(layout.clone().with_output(&["haed.weight"]).is_err());
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadSetting`] for a name that no layer has.
    pub fn with_output<N: AsRef<str>>(mut self, names: &[N]) -> Result<Layout> {
        let known: HashSet<&str> =
            self.buckets.iter().flat_map(Bucket::layers).map(|layer| layer.name()).collect();
        if let Some(name) = names.iter().map(AsRef::as_ref).find(|name| !known.contains(name)) {
            return Err(Error::BadSetting {
                name: "the output layer".into(),
                found: name.to_owned(),
                expected: "the name of a layer of a bucket".into(),
            });
        }
        self.buckets = self.buckets.into_iter().map(|bucket| bucket.with_output(names)).collect();
        Ok(self)
    }

    /// The same with the output layer marked by a rule that holds for nearly all models: it is the last of the model's
    /// parameters with two or more dimensions, and what comes behind that (its bias).
    ///
    /// `parameters` are the names and dimensions of all parameters in the order of the model, the input's first. Those
    /// that are in no bucket are passed over, so nothing is marked where the output layer is not trained.
    ///
    /// ```
    /// use thinwire::synchronizer::Layout;
    /// let ready_first = [("fc2.bias", vec![10]), ("fc2", vec![10, 64]), ("fc1", vec![64, 9])];
    /// let layout = Layout::by_size(ready_first, 1000)?.with_output_of([("fc1", 2), ("fc2", 2), ("fc2.bias", 1)]);
    /// assert_eq!(layout.output().map(|layer| layer.name()).collect::<Vec<_>>(), ["fc2.bias", "fc2"]);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn with_output_of<N: AsRef<str>>(
        mut self,
        parameters: impl IntoIterator<Item = (N, usize)>,
    ) -> Layout {
        let mut output = Vec::new();
        for (name, dimensions) in parameters {
            if dimensions >= 2 {
                output = vec![name];
            } else if !output.is_empty() {
                output.push(name);
            }
        }
        self.buckets = self.buckets.into_iter().map(|bucket| bucket.with_output(&output)).collect();
        self
    }

    /// The layers that are marked as the model's output layer.
    pub fn output(&self) -> impl Iterator<Item = &Layer> {
        self.buckets.iter().flat_map(Bucket::layers).filter(|layer| layer.is_output())
    }

    /// The buckets.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Elements in all.
    pub fn len(&self) -> usize {
        self.buckets.iter().map(Bucket::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number that differs, as good as always, between layouts that differ.
    pub(super) fn digest(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for bucket in &self.buckets {
            hasher.update(&bucket.id().to_le_bytes());
            for layer in bucket.layers() {
                hasher.update(layer.name().as_bytes());
                hasher.update(&[0]);
                layer.shape().iter().for_each(|&length| hasher.update(&(length as u64).to_le_bytes()));
                hasher.update(&[1 + layer.is_output() as u8]);
            }
        }
        hasher.finalize()
    }
}

impl From<Bucket> for Layout {
    /// One bucket for everything, whatever its number.
    fn from(bucket: Bucket) -> Layout {
        Layout { buckets: vec![bucket] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let bucket = |id, name| Bucket::new(id, [(name, vec![3])]).unwrap();
        assert!(Layout::new(vec![bucket(0, "a"), bucket(1, "b")]).is_ok());
        let error = Layout::new(vec![bucket(0, "a"), bucket(1, "a")]).unwrap_err();
        assert!(error.to_string().contains("\"a\""), "{error}");
        let error = Layout::new(vec![bucket(1, "a")]).unwrap_err();
        assert!(error.to_string().contains("place 0"), "{error}");
        assert!(Layout::new(vec![]).is_err());
    }

    #[test]
    fn layouts_that_differ_have_other_digests() {
        let of = |layers: &[(&str, Vec<usize>)], bytes| {
            Layout::by_size(layers.iter().cloned(), bytes).unwrap().digest()
        };
        let one = of(&[("a", vec![2, 3]), ("b", vec![4])], 1000);
        assert_eq!(one, of(&[("a", vec![2, 3]), ("b", vec![4])], 1000));
        assert_ne!(one, of(&[("a", vec![2, 3]), ("b", vec![4])], 1));
        assert_ne!(one, of(&[("a", vec![3, 2]), ("b", vec![4])], 1000));
        assert_ne!(one, of(&[("b", vec![4]), ("a", vec![2, 3])], 1000));
        let layout = Layout::by_size([("a", vec![2, 3]), ("b", vec![4])], 1000).unwrap();
        assert_ne!(one, layout.clone().with_output(&["a"]).unwrap().digest());
        assert_eq!(one, layout.with_output::<&str>(&[]).unwrap().digest());
    }

    #[test]
    fn the_output_layer_is_the_last_of_the_model_in_any_order_of_the_buckets() {
        let parameters = [("embed", 2), ("norm", 1), ("head", 2), ("head.bias", 1)];
        let shapes = |(name, dimensions): (&'static str, usize)| (name, vec![3; dimensions]);
        let outputs =
            |layout: Layout| layout.output().map(|layer| layer.name().to_owned()).collect::<Vec<_>>();
        for bytes in [1, 40, 1000] {
            let layout = Layout::by_size(parameters.map(shapes), bytes).unwrap().with_output_of(parameters);
            assert_eq!(outputs(layout), ["head", "head.bias"]);
            let backward = Layout::by_size(parameters.map(shapes).into_iter().rev(), bytes).unwrap();
            assert_eq!(outputs(backward.with_output_of(parameters)), ["head.bias", "head"]);
        }
        // Tied weights: the parameter's first place is the embedding's, its last one the output's.
        let tied = [("embed", 2), ("norm", 1), ("head", 2), ("norm2", 1), ("embed", 2)];
        let layout = Layout::by_size(parameters.map(shapes), 1).unwrap();
        assert_eq!(outputs(layout.clone().with_output_of(tied)), ["embed"]);
        assert_eq!(outputs(layout.clone().with_output_of([("embed", 2), ("frozen", 2)])), [""; 0]);
        assert_eq!(outputs(layout.with_output_of([("norm", 1)])), [""; 0]);
    }
}
