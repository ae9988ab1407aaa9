//! Which elements of a bucket weight decay applies to.

use std::ops::Range;

use super::Layout;
use crate::{Error, Result};

/// The ranges of a bucket that are subject to weight decay, given its layers in order: weights with two or more
/// dimensions. Biases and the scales and shifts of norms are exempt, as is usual.
pub fn decay_ranges(layers: &[(String, Vec<usize>)]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for (_, shape) in layers {
        let end = start + shape.iter().product::<usize>();
        if shape.len() >= 2 && end > start {
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        start = end;
    }
    ranges
}

/// A bucket cut where decay begins and ends: every element is in one piece.
#[derive(Debug)]
pub(super) struct Pieces {
    /// The length of the bucket.
    pub length: usize,
    /// Ranges in order with the decay that applies there.
    pub all: Vec<(Range<usize>, f32)>,
}

impl Pieces {
    /// The pieces of all buckets. Without decay each bucket is one piece.
    pub fn of(layout: Layout<'_>, decay: f64) -> Result<Vec<Pieces>> {
        let bad = |found: String, expected: String| Error::BadSetting {
            name: "ranges of weight decay".into(),
            found,
            expected,
        };
        if layout.decays.len() != layout.lengths.len() {
            let expected = format!("there are {} buckets", layout.lengths.len());
            return Err(bad(format!("for {} buckets", layout.decays.len()), expected));
        }
        let mut buckets = Vec::new();
        for (&length, decays) in layout.lengths.iter().zip(layout.decays) {
            let (mut all, mut done) = (Vec::new(), 0);
            for range in decays {
                if range.start < done || range.end < range.start || range.end > length {
                    let expected =
                        format!("ascending ranges within {done}..{length}, the rest of the bucket");
                    return Err(bad(format!("{range:?}"), expected));
                }
                if decay > 0.0 {
                    all.extend([(done..range.start, 0.0), (range.clone(), decay as f32)]);
                    done = range.end;
                }
            }
            all.push((done..length, 0.0));
            all.retain(|(range, _)| !range.is_empty());
            buckets.push(Pieces { length, all });
        }
        Ok(buckets)
    }

    /// Refuses runs of other lengths: a shorter one would silently end the walk.
    pub fn check(buckets: &[Pieces], weights: &[Vec<f32>], means: &[Vec<f32>]) {
        assert_eq!(
            (weights.len(), means.len()),
            (buckets.len(), buckets.len()),
            "buckets of weights and means"
        );
        for (number, pieces) in buckets.iter().enumerate() {
            let found = (weights[number].len(), means[number].len());
            assert_eq!(
                found,
                (pieces.length, pieces.length),
                "lengths of weights and means of bucket {number}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(shape: &[usize]) -> (String, Vec<usize>) {
        (String::new(), shape.to_vec())
    }

    #[test]
    fn weights_of_two_dimensions_decay_and_neighbours_are_one_range() {
        let layers =
            [layer(&[4]), layer(&[2, 3]), layer(&[1, 1, 2]), layer(&[5]), layer(&[0, 3]), layer(&[2, 2])];
        assert_eq!(decay_ranges(&layers), [4..12, 17..21]);
        assert!(decay_ranges(&[layer(&[3]), layer(&[])]).is_empty());
    }

    #[test]
    fn pieces_cover_every_element_once() {
        let decays = [vec![2..4, 4..5, 7..9], vec![], vec![0..3]];
        let layout = Layout { lengths: &[9, 2, 3], decays: &decays, momentum_in_memory: false };
        let pieces = Pieces::of(layout, 0.5).unwrap();
        assert_eq!(pieces[0].all, [(0..2, 0.0), (2..4, 0.5), (4..5, 0.5), (5..7, 0.0), (7..9, 0.5)]);
        assert_eq!(pieces[1].all, [(0..2, 0.0)]);
        assert_eq!(pieces[2].all, [(0..3, 0.5)]);
        assert_eq!(Pieces::of(layout, 0.0).unwrap()[0].all, [(0..9, 0.0)]);
    }

    #[test]
    fn ranges_outside_their_bucket_are_refused() {
        #[expect(clippy::reversed_empty_ranges)]
        for range in [8..11, 3..2] {
            let decays = [vec![range]];
            let layout = Layout { lengths: &[10], decays: &decays, momentum_in_memory: false };
            let error = Pieces::of(layout, 0.1).unwrap_err().to_string();
            assert!(error.contains("within 0..10"), "{error}");
        }
        let layout = Layout { lengths: &[10, 1], decays: &[vec![]], momentum_in_memory: false };
        let error = Pieces::of(layout, 0.1).unwrap_err().to_string();
        assert_eq!(error, "ranges of weight decay for 1 buckets: there are 2 buckets");
    }
}
