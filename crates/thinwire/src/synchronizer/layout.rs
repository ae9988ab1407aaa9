//! How a model's gradient is cut into buckets.

use std::collections::HashSet;

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
                hasher.update(&[1]);
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
    }
}
