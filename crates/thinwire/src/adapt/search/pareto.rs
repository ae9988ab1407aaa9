//! Which points are worth having: dominance, fronts, and how crowded a front is at each of its points.

use std::cmp::Ordering;

/// A value that was tried, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<const M: usize> {
    /// The value of the variable.
    pub x: f64,
    /// The objectives there; less is better.
    pub objectives: [f64; M],
}

impl<const M: usize> Point<M> {
    /// Is this one no worse in any objective and better in one?
    ///
    /// A point with an objective that is not finite, -∞ too, is worse than every point without.
    pub fn dominates(&self, other: &Point<M>) -> bool {
        let mut pairs = self.objectives.iter().zip(&other.objectives);
        self.is_finite()
            && (!other.is_finite()
                || pairs.clone().all(|(mine, other)| mine <= other)
                    && pairs.any(|(mine, other)| mine < other))
    }

    /// Are all objectives finite?
    pub fn is_finite(&self) -> bool {
        self.objectives.iter().all(|objective| objective.is_finite())
    }

    /// By the first objective, then the second and so on, points that are not finite last: a point that dominates
    /// another comes before it.
    fn lexicographic(&self, other: &Point<M>) -> Ordering {
        match (self.is_finite(), other.is_finite()) {
            (true, true) => self.objectives.partial_cmp(&other.objectives).unwrap_or(Ordering::Equal),
            (mine, other) => other.cmp(&mine),
        }
    }
}

/// The points that no other dominates, by rising `x`. Those that are not finite are never among them.
///
/// ```
/// use thinwire::adapt::search::{Point, front};
///
/// let points = [(3.0, [1.0, 5.0]), (1.0, [5.0, 1.0]), (2.0, [6.0, 2.0]), (4.0, [0.0, f64::NAN])];
/// let front = front(&points.map(|(x, objectives)| Point { x, objectives }));
/// assert_eq!(front.iter().map(|point| point.x).collect::<Vec<_>>(), [1.0, 3.0]);
/// ```
pub fn front<const M: usize>(points: &[Point<M>]) -> Vec<Point<M>> {
    let best = fronts(points).into_iter().next().unwrap_or_default();
    let mut front: Vec<_> = best.into_iter().map(|i| points[i]).filter(Point::is_finite).collect();
    front.sort_by(|a, b| a.x.total_cmp(&b.x));
    front
}

/// Non-dominated sort: the indices of the points that nothing dominates, of those that only these dominate, and so
/// on.
///
/// The fronts are those of NSGA-II's fast non-dominated sort. They are found by taking the points in lexicographic
/// order and putting each into the first front in which nothing dominates it (Zhang et al. 2015), which needs no
/// lists of who dominates whom: at most n²/2 comparisons. With two objectives the last of a front has the least
/// second one, so that none but the last need be asked.
pub(super) fn fronts<const M: usize>(points: &[Point<M>]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| points[a].lexicographic(&points[b]));
    let mut fronts: Vec<Vec<usize>> = Vec::new();
    for i in order {
        let free = |front: &&mut Vec<usize>| {
            let asked = if M == 2 { 1 } else { front.len() };
            !front.iter().rev().take(asked).any(|&j| points[j].dominates(&points[i]))
        };
        match fronts.iter_mut().find(free) {
            Some(front) => front.push(i),
            None => fronts.push(vec![i]),
        }
    }
    fronts
}

/// NSGA-II's crowding distance of each point of a front: for each objective, how far its two neighbours lie apart
/// in parts of the front's extent, summed. Infinite for the points at the ends.
///
/// As in Deb et al. 2002. Points that are not finite are crowded without end: 0.
pub(super) fn crowding<const M: usize>(points: &[Point<M>], front: &[usize]) -> Vec<f64> {
    let mut distance = vec![0.0; front.len()];
    let mut order: Vec<usize> = (0..front.len()).filter(|&i| points[front[i]].is_finite()).collect();
    for objective in 0..M {
        let value = |i: usize| points[front[i]].objectives[objective];
        order.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
        let (Some(&first), Some(&last)) = (order.first(), order.last()) else { break };
        let part = |i: usize| part(value(i), value(first), value(last));
        for neighbours in order.windows(3) {
            distance[neighbours[1]] += part(neighbours[2]) - part(neighbours[0]);
        }
        distance[first] = f64::INFINITY;
        distance[last] = f64::INFINITY;
    }
    distance
}

/// Where a value lies between two others: 0 at `low`, 1 at `high`; 0 if these are equal. Halved before they are
/// subtracted, so that nothing overflows.
pub(super) fn part(value: f64, low: f64, high: f64) -> f64 {
    let extent = 0.5 * high - 0.5 * low;
    if extent > 0.0 { (0.5 * value - 0.5 * low) / extent } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use optimizer::Direction;
    use proptest::prelude::*;

    use super::*;

    fn points<const M: usize>(objectives: &[[f64; M]]) -> Vec<Point<M>> {
        objectives.iter().enumerate().map(|(i, &objectives)| Point { x: i as f64, objectives }).collect()
    }

    fn sorted(mut fronts: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        fronts.iter_mut().for_each(|front| front.sort_unstable());
        fronts
    }

    /// ```text
    ///  5 | a
    ///  4 |     e
    ///    |         f       Nothing dominates a, b, c and its twin g.
    ///  3 |   b   d         b dominates d and e, c and g dominate d.
    ///  2 |                 b, c, d and g dominate f.
    ///  1 |       c
    ///      1 2 3 4 5
    /// ```
    #[test]
    fn fronts_by_hand() {
        let found = fronts(&points(&[
            [1.0, 5.0],
            [2.0, 3.0],
            [4.0, 1.0],
            [4.0, 3.0],
            [3.0, 4.0],
            [5.0, 3.5],
            [4.0, 1.0],
        ]));
        assert_eq!(sorted(found), [vec![0, 1, 2, 6], vec![3, 4], vec![5]]);
    }

    #[test]
    fn crowding_by_hand() {
        let front = points(&[[0.0, 10.0], [4.0, 0.0], [1.0, 6.0], [2.0, 5.0]]);
        let found = crowding(&front, &[0, 1, 2, 3]);
        // The third: (2 - 0) / 4 + (10 - 5) / 10. The fourth: (4 - 1) / 4 + (6 - 0) / 10.
        assert_eq!(found[..2], [f64::INFINITY; 2]);
        assert!((found[2] - 1.0).abs() < 1e-12 && (found[3] - 1.35).abs() < 1e-12, "{found:?}");
        // Of a part of the points, in the part's order.
        assert_eq!(crowding(&front, &[3, 1, 0]), [2.0, f64::INFINITY, f64::INFINITY]);
        assert!(crowding(&front, &[]).is_empty());
    }

    #[test]
    fn what_is_not_finite_comes_last() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let points =
            points(&[[nan, 0.0], [1.0, 2.0], [-inf, -inf], [0.0, inf], [2.0, 3.0], [f64::MAX, f64::MIN]]);
        assert_eq!(sorted(fronts(&points)), [vec![1, 5], vec![4], vec![0, 2, 3]]);
        assert_eq!(crowding(&points, &[0, 2, 3]), [0.0; 3]);
        assert_eq!(front(&points).len(), 2);
        assert_eq!(front(&[points[0], points[2]]), []);
        let wide = [Point { x: 0.0, objectives: [f64::MIN, f64::MAX] }, points[1], points[5]];
        assert_eq!(crowding(&wide, &[0, 1, 2]), [inf, 2.0, inf]);
    }

    /// Few values make many ties.
    fn few() -> impl Strategy<Value = f64> {
        prop_oneof![(-3i8..4).prop_map(f64::from), Just(-0.0), Just(0.5)]
    }

    fn agrees<const M: usize>(objectives: &[[f64; M]]) -> std::result::Result<(), TestCaseError> {
        let other: Vec<Vec<f64>> = objectives.iter().map(|objectives| objectives.to_vec()).collect();
        let expected = optimizer::pareto::non_dominated_sort(&other, &[Direction::Minimize; M]);
        let expected: Vec<_> = expected.into_iter().filter(|front| !front.is_empty()).collect();
        prop_assert_eq!(sorted(fronts(&points(objectives))), sorted(expected));
        Ok(())
    }

    proptest! {
        #[test]
        fn fronts_are_those_of_another_program(
            two in prop::collection::vec([few(), few()], 0..60),
            three in prop::collection::vec([few(), few(), few()], 0..60),
        ) {
            agrees(&two)?;
            agrees(&three)?;
        }

        /// Ties are left out: which of two equal points is an end is a matter of order.
        #[test]
        fn crowding_is_that_of_another_program(
            points in prop::collection::vec([-1e3..1e3f64, -1e3..1e3, -1e3..1e3], 3..60),
        ) {
            let other: Vec<Vec<f64>> = points.iter().map(|objectives| objectives.to_vec()).collect();
            let expected = optimizer::pareto::crowding_distance(&other, &[Direction::Minimize; 3]);
            let all: Vec<usize> = (0..points.len()).collect();
            for (found, expected) in crowding(&self::points(&points), &all).into_iter().zip(expected) {
                prop_assert!(found == expected || (found - expected).abs() < 1e-9, "{} {}", found, expected);
            }
        }
    }
}
