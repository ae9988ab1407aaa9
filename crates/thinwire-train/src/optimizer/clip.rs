//! Clipping the mean gradient by its norm.

/// Scales the mean gradient of all buckets together so that its norm is at most `limit`, and gives the norm it had.
///
/// The squares are summed in `f64` in an order that depends on the lengths alone, so all ranks, which hold the same
/// means, get the same bits. A norm that is not finite changes nothing: the caller sees it.
///
/// This clips the mean, after the exchange. DGC and RedSync clip each worker's gradient before it; see
/// [`thinwire::memory::clip_factor`].
pub fn clip_norm(means: &mut [Vec<f32>], limit: f64) -> f64 {
    let norm = means.iter().map(|run| sum_of_squares(run)).sum::<f64>().sqrt();
    if norm.is_finite() && norm > limit {
        let factor = (limit / norm) as f32;
        means.iter_mut().flatten().for_each(|x| *x *= factor);
    }
    norm
}

/// Eight sums side by side: additions of one sum would have to wait for each other.
fn sum_of_squares(run: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (eights, rest) = run.as_chunks::<8>();
    for eight in eights {
        for (sum, &x) in sums.iter_mut().zip(eight) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum += f64::from(x) * f64::from(x);
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_gradient_is_brought_to_the_limit() {
        let mut means = vec![vec![3.0f32; 9], vec![], vec![-4.0; 9]];
        assert_eq!(clip_norm(&mut means, 5.0), 15.0);
        assert_eq!(means, [vec![1.0; 9], vec![], vec![-4.0 / 3.0; 9]]);
        assert!((clip_norm(&mut means, 5.0) - 5.0).abs() < 1e-6);
    }

    #[test]
    fn a_small_one_keeps_its_bits() {
        let mut means = vec![vec![0.1f32, -0.2, f32::MIN_POSITIVE]];
        let before = means.clone();
        let norm = clip_norm(&mut means, 0.3);
        assert!((norm - 0.05f64.sqrt()).abs() < 1e-8);
        assert_eq!(means, before);
    }

    #[test]
    fn the_norm_is_that_of_the_plain_sum() {
        let mut means: Vec<Vec<f32>> = (0..5)
            .map(|bucket| (0..1000 + bucket).map(|i| ((i * 37 + bucket) % 101) as f32 - 50.0).collect())
            .collect();
        let plain: f64 = means.iter().flatten().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        assert_eq!(clip_norm(&mut means, f64::INFINITY), plain, "whole numbers are summed without rounding");
    }

    #[test]
    fn what_is_not_finite_is_left_to_be_seen() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut means = vec![vec![1.0, bad, 2.0]];
            assert!(!clip_norm(&mut means, 1.0).is_finite());
            assert_eq!((means[0][0], means[0][2]), (1.0, 2.0));
        }
        // Squares beyond the range of f32 are fine.
        assert!(clip_norm(&mut [vec![f32::MAX, f32::MAX]], 1.0).is_finite());
    }
}
