//! Which layers of a bucket travel dense.

use std::ops::Range;

use wildmatch::WildMatch;

use super::{Bucket, Layer};

/// Which layers are sent whole instead of compressed.
///
/// A layer is sent dense when any of these holds:
/// - it has at most `dense_up_to` elements and is not a small matrix that is fused,
/// - it has fewer than two dimensions and `dense_one_dimensional` is set,
/// - `include` names patterns and none of them matches its name,
/// - a pattern of `exclude` matches its name.
///
/// A small matrix (two or more dimensions, at most `fuse_up_to` elements) is compressed, but not by itself: all small
/// matrices of a bucket are one region, because a region of few elements costs a section header and keeps at least one
/// element.
///
/// The default compresses everything. The papers differ: RedSync (arXiv 1808.04357) sends small
/// layers dense, up to 1,024, 8,192, 10,240 or 102,400 elements in the versions of its code, and
/// keeps the output layer exact when it quantises; DGC (arXiv 1712.01887) compresses only tensors
/// of more than one dimension; Gaussian-k and AR-Topk compress one fused vector of all layers.
/// Patterns are an addition of ours, for layers a user knows to be delicate.
///
/// Patterns match the whole name: `*` stands for any run of characters, dots included, and `?`
/// for exactly one.
///
/// ```
/// use thinwire::Bucket;
/// use thinwire::bucket::LayerRules;
///
/// let bucket = Bucket::new(
///     0,
///     [("embed.weight", vec![100, 8]), ("block.weight", vec![8, 8]), ("block.bias", vec![8])],
/// )?;
/// let rules = LayerRules {
///     dense_one_dimensional: true,
///     exclude: vec!["embed.*".into()],
///     ..LayerRules::default()
/// };
/// let split = rules.split(&bucket);
/// assert_eq!(split.dense, [0..800, 864..872]);
/// assert_eq!(split.compressed, [1]);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerRules {
    /// Layers of up to this many elements are sent dense. Default 0: none.
    pub dense_up_to: usize,
    /// Matrices (two or more dimensions) of up to this many elements are selected together, also where `dense_up_to`
    /// would send them dense. Default 0: none.
    pub fuse_up_to: usize,
    /// Whether biases, norms and scalars (fewer than two dimensions) are sent dense. Default: no.
    pub dense_one_dimensional: bool,
    /// When not empty, only layers whose name matches one of these are compressed. Default: empty.
    pub include: Vec<String>,
    /// Layers whose name matches one of these are sent dense, whatever `include` says. Default: empty.
    pub exclude: Vec<String>,
}

/// A bucket cut into what is sent dense and what is compressed, by [`LayerRules::split`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The elements sent dense, rising; neighbouring layers share one range.
    pub dense: Vec<Range<usize>>,
    /// The numbers of the compressed layers in [`Bucket::layers`], rising.
    pub compressed: Vec<usize>,
    /// Those of them that are small matrices, rising: one region where layers are selected one by one.
    pub fused: Vec<usize>,
}

impl LayerRules {
    /// Whether the layer is sent dense.
    pub fn is_dense(&self, layer: &Layer) -> bool {
        (layer.len() <= self.dense_up_to && !self.is_small_matrix(layer))
            || (self.dense_one_dimensional && layer.dimensions() < 2)
            || (!self.include.is_empty() && !matches_any(&self.include, layer.name()))
            || matches_any(&self.exclude, layer.name())
    }

    /// Whether the layer is selected together with the other small matrices, unless another rule sends it dense.
    fn is_small_matrix(&self, layer: &Layer) -> bool {
        layer.dimensions() >= 2 && layer.len() <= self.fuse_up_to
    }

    /// Cuts a bucket by the rules. Empty layers have nothing to send and are in neither part.
    pub fn split(&self, bucket: &Bucket) -> Split {
        let mut split = Split::default();
        for (number, layer) in bucket.layers().iter().enumerate() {
            if layer.is_empty() {
                continue;
            }
            if !self.is_dense(layer) {
                split.compressed.push(number);
                if self.is_small_matrix(layer) {
                    split.fused.push(number);
                }
                continue;
            }
            let range = layer.range();
            match split.dense.last_mut() {
                Some(before) if before.end == range.start => before.end = range.end,
                _ => split.dense.push(range),
            }
        }
        split
    }
}

pub(crate) fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| WildMatch::new(pattern).matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Bucket {
        let layers = [
            ("conv1.weight", vec![8, 1, 3, 3]),
            ("conv1.bias", vec![8]),
            ("none", vec![0, 4]),
            ("norm.scale", vec![]),
            ("fc.weight", vec![10, 20]),
            ("fc.bias", vec![10]),
        ];
        Bucket::new(0, layers).unwrap()
    }

    #[test]
    fn by_default_all_layers_are_compressed() {
        let split = LayerRules::default().split(&model());
        assert_eq!(split, Split { compressed: vec![0, 1, 3, 4, 5], ..Split::default() });
    }

    #[test]
    fn small_layers_are_dense_and_neighbours_merge_past_empty_ones() {
        let split = LayerRules { dense_up_to: 10, ..Default::default() }.split(&model());
        let small = Split { dense: vec![72..81, 281..291], compressed: vec![0, 4], ..Split::default() };
        assert_eq!(split, small);
        let all = LayerRules { dense_up_to: 200, ..Default::default() }.split(&model());
        assert_eq!(all, Split { dense: vec![0..291; 1], ..Split::default() });
    }

    #[test]
    fn small_matrices_are_fused_and_vectors_stay_dense() {
        let rules = LayerRules { dense_up_to: 100, fuse_up_to: 100, ..Default::default() };
        let split = |rules: &LayerRules| rules.split(&model());
        let vectors = vec![72..81, 281..291];
        assert_eq!(split(&rules), Split { dense: vectors.clone(), compressed: vec![0, 4], fused: vec![0] });
        let wider = LayerRules { fuse_up_to: 200, ..rules.clone() };
        assert_eq!(split(&wider).fused, [0, 4]);
        let excluded = LayerRules { exclude: vec!["conv1.*".into()], ..rules };
        assert_eq!(
            split(&excluded),
            Split { dense: vec![0..81, 281..291], compressed: vec![4], fused: vec![] }
        );
    }

    #[test]
    fn the_size_limit_is_inclusive() {
        let bucket = Bucket::new(0, [("w", vec![4, 4])]).unwrap();
        let dense =
            |limit| LayerRules { dense_up_to: limit, ..Default::default() }.is_dense(&bucket.layers()[0]);
        assert!(!dense(15) && dense(16));
    }

    #[test]
    fn fewer_than_two_dimensions_counts_scalars() {
        let split = LayerRules { dense_one_dimensional: true, ..Default::default() }.split(&model());
        let vectors = Split { dense: vec![72..81, 281..291], compressed: vec![0, 4], ..Split::default() };
        assert_eq!(split, vectors);
    }

    #[test]
    fn exclude_wins_over_include() {
        let rules = LayerRules {
            include: vec!["*.weight".into(), "norm.?cale".into()],
            exclude: vec!["fc.*".into()],
            ..Default::default()
        };
        let expected = Split { dense: vec![72..80, 81..291], compressed: vec![0, 3], ..Split::default() };
        assert_eq!(rules.split(&model()), expected);
    }

    #[test]
    fn patterns_match_whole_names() {
        let rules = |pattern: &str| LayerRules { exclude: vec![pattern.into()], ..Default::default() };
        let bucket = model();
        let bias = &bucket.layers()[1];
        assert!(rules("conv?.bias").is_dense(bias) && rules("*").is_dense(bias));
        assert!(!rules("conv").is_dense(bias) && !rules("bias").is_dense(bias) && !rules("").is_dense(bias));
    }

    #[test]
    fn every_element_is_in_exactly_one_part() {
        let bucket = model();
        for limit in 0..=200 {
            let split = LayerRules { dense_up_to: limit, ..Default::default() }.split(&bucket);
            let compressed = split.compressed.iter().map(|&number| bucket.layers()[number].range());
            let mut covered: Vec<_> = split.dense.iter().cloned().chain(compressed).flatten().collect();
            covered.sort_unstable();
            assert!(covered.into_iter().eq(0..bucket.len()));
        }
    }
}
