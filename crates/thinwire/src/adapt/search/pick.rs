//! One point out of a front.
//!
//! Both ways look at the objectives in parts of the front's extent, n_i = (f_i - ideal_i) / (nadir_i - ideal_i),
//! where the ideal has the least value of each objective and the nadir the greatest, over the points given. So the
//! units do not matter. An objective that is the same everywhere has n_i = 0 and no say. Points that are not finite
//! are passed over; on a tie the first point wins, in a front from this module the one with the least `x`.

use std::cmp::Ordering;

use super::Point;
use super::pareto::part;

/// The authors' weights: 0.6 for the time, 0.4 for the inverse of the gain.
pub const PAPER_WEIGHTS: [f64; 2] = [0.6, 0.4];

/// The point with the least achievement scalarising function, max_i w_i·n_i; `None` if there is no point.
///
/// AR-Topk's authors let pymoo do it, whose function is max_i n_i / v_i, and pass v = 1/w with
/// w = [`PAPER_WEIGHTS`]: the same. A greater weight asks for more of that objective. The point is about where
/// w_1·n_1 = w_2·n_2, and always on the front, also where this is hollow. An objective with a weight of 0 has no
/// say; weights below 0 count as 0.
///
/// ```
/// use thinwire::adapt::search::{Point, pick};
///
/// // Time and 1/gain; in parts of the extent (0, 1), (0.25, 0.5), (0.5, 0.125) and (1, 0).
/// let front = [(0.001, [2.0, 9.0]), (0.01, [3.0, 5.0]), (0.03, [4.0, 2.0]), (0.1, [6.0, 1.0])];
/// let front = front.map(|(x, objectives)| Point { x, objectives });
/// // 0.4, 0.2, 0.3 and 0.6: the second.
/// assert_eq!(pick::asf(&front, pick::PAPER_WEIGHTS), Some(front[1]));
/// // 0.1, 0.225, 0.45 and 0.9: time is nearly all that counts.
/// assert_eq!(pick::asf(&front, [0.9, 0.1]), Some(front[0]));
/// ```
pub fn asf<const M: usize>(front: &[Point<M>], weights: [f64; M]) -> Option<Point<M>> {
    least(front, |parts| (0..M).map(|i| weights[i] * parts[i]).fold(0.0, f64::max))
}

/// The knee: the point farthest from the line between the two ends of the front, on the side of the ideal; `None`
/// if there is no point.
///
/// What the paper's text asks for, where its authors' code uses [`asf`]. In parts of the extent the ends are (0, 1)
/// and (1, 0), so the distance is (1 - n_1 - n_2) / √2. Points beyond the line count as below zero: a bulge away
/// from the ideal is no knee, and on a front that only bulges, as on a straight one, the first end is taken.
///
/// ```
/// use thinwire::adapt::search::{Point, pick};
///
/// let front = [(1.0, [0.0, 8.0]), (2.0, [1.0, 5.0]), (3.0, [2.0, 1.0]), (4.0, [8.0, 0.0])];
/// let front = front.map(|(x, objectives)| Point { x, objectives });
/// assert_eq!(pick::knee(&front), Some(front[2]));
/// ```
pub fn knee(front: &[Point<2>]) -> Option<Point<2>> {
    least(front, |parts| parts[0] + parts[1])
}

/// The first of the finite points whose objectives, in parts of the extent, have the least score.
fn least<const M: usize>(front: &[Point<M>], score: impl Fn([f64; M]) -> f64) -> Option<Point<M>> {
    let finite = || front.iter().filter(|point| point.is_finite());
    let (mut ideal, mut nadir) = ([f64::INFINITY; M], [f64::NEG_INFINITY; M]);
    for point in finite() {
        for (i, &value) in point.objectives.iter().enumerate() {
            ideal[i] = ideal[i].min(value);
            nadir[i] = nadir[i].max(value);
        }
    }
    let score =
        |point: &Point<M>| score(std::array::from_fn(|i| part(point.objectives[i], ideal[i], nadir[i])));
    // No score is NaN, and 0 and -0 are a tie.
    finite().copied().min_by(|a, b| score(a).partial_cmp(&score(b)).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn front<const M: usize>(objectives: &[[f64; M]]) -> Vec<Point<M>> {
        objectives.iter().enumerate().map(|(i, &objectives)| Point { x: i as f64, objectives }).collect()
    }

    fn picks(objectives: &[[f64; 2]]) -> (Option<f64>, Option<f64>) {
        let front = front(objectives);
        (asf(&front, PAPER_WEIGHTS).map(|point| point.x), knee(&front).map(|point| point.x))
    }

    #[test]
    fn fronts_with_little_to_choose_from() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert_eq!(picks(&[]), (None, None));
        assert_eq!(picks(&[[nan, 1.0], [inf, 1.0], [-inf, 0.0]]), (None, None));
        assert_eq!(picks(&[[3.0, 4.0]]), (Some(0.0), Some(0.0)));
        assert_eq!(picks(&[[3.0, 4.0], [3.0, 4.0]]), (Some(0.0), Some(0.0)));
        assert_eq!(picks(&[[-inf, 4.0], [3.0, 4.0], [nan, nan]]), (Some(1.0), Some(1.0)));
        // One objective is constant: the other decides.
        assert_eq!(picks(&[[3.0, 4.0], [2.0, 4.0], [2.0, 4.0]]), (Some(1.0), Some(1.0)));
        // Two ends: the 0.4 of the first is less. A bulge and a straight line have no knee but their first end.
        assert_eq!(picks(&[[0.0, 1.0], [1.0, 0.0]]), (Some(0.0), Some(0.0)));
        assert_eq!(picks(&[[0.0, 1.0], [0.9, 0.9], [1.0, 0.0]]).1, Some(0.0));
        // As far as numbers go.
        assert_eq!(
            picks(&[[f64::MIN, f64::MAX], [0.0, f64::MIN / 2.0], [f64::MAX, f64::MIN]]),
            (Some(1.0), Some(1.0))
        );
    }

    #[test]
    fn an_objective_without_weight_has_no_say() {
        let front = front(&[[0.0, 2.0, 1.0], [1.0, 1.0, 1.0], [2.0, 0.0, 0.0]]);
        assert_eq!(asf(&front, [1.0, 0.0, 0.0]), Some(front[0]));
        assert_eq!(asf(&front, [0.0, 1.0, 1.0]), Some(front[2]));
        assert_eq!(asf(&front, [1.0, 1.0, 0.0]), Some(front[1]));
        // Nothing counts: the first.
        assert_eq!(asf(&front, [0.0, -1.0, f64::NAN]), Some(front[0]));
    }

    proptest! {
        #[test]
        fn units_do_not_matter(
            objectives in prop::collection::vec([0i32..1000, 0i32..1000], 1..40), power in -20i32..20, shift in 0i32..9,
        ) {
            let plain: Vec<_> = objectives.iter().map(|o| o.map(f64::from)).collect();
            let unit = f64::from(power).exp2();
            let other: Vec<_> = objectives.iter().map(|o| [unit * f64::from(o[0] + shift), f64::from(o[1])]).collect();
            prop_assert_eq!(picks(&plain), picks(&other));
        }
    }
}
