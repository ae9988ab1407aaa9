//! The plain way: try values side by side.

use super::{Interval, Point, front};

/// How many values the grid has unless told otherwise: 200.
///
/// Over two decades of density, by equal ratios, neighbours are 2.3 % apart.
pub const POINTS: usize = 200;

/// Tries so many values over the whole interval, both ends among them, and gives those that no other dominates, by
/// rising `x`.
///
/// This is not the paper's. With one variable it finds what NSGA-II finds, by fewer evaluations and without chance,
/// so it is what [`nsga2::search`](super::nsga2::search) is measured against. A grid of one value has the lower
/// bound.
///
/// ```
/// use thinwire::adapt::search::{Interval, Scale, grid};
///
/// let valley = Interval::new(-1.0, 3.0, Scale::Linear)?;
/// let front = grid(valley, 5, |x| [x * x, (x - 2.0) * (x - 2.0)]);
/// assert_eq!(front.iter().map(|point| point.x).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
/// # Ok::<(), thinwire::Error>(())
/// ```
pub fn grid<const M: usize>(
    interval: Interval,
    points: usize,
    mut objectives: impl FnMut(f64) -> [f64; M],
) -> Vec<Point<M>> {
    let last = points.saturating_sub(1).max(1) as f64;
    let tried: Vec<_> = (0..points)
        .map(|i| interval.at(i as f64 / last))
        .map(|x| Point { x, objectives: objectives(x) })
        .collect();
    front(&tried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapt::search::Scale;

    #[test]
    fn values_lie_side_by_side() {
        let interval = Interval::new(0.001, 1.0, Scale::Logarithmic).unwrap();
        let front = grid(interval, 4, |x| [x, -x]);
        for (point, expected) in front.iter().zip([0.001, 0.01, 0.1, 1.0]) {
            assert!((point.x / expected - 1.0).abs() < 1e-12, "{point:?}");
        }
        assert_eq!(front.len(), 4);
        assert_eq!(grid(interval, 1, |x| [x, -x])[0].x, 0.001);
        assert_eq!(grid(interval, 0, |x| [x, -x]), []);
    }
}
