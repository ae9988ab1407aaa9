//! Two costs from a few measurements.

/// A measurement: how many of each of two things were paid for, and the seconds for both.
pub(super) type Paid = ([f64; 2], f64);

/// What one of each costs, neither below zero: the least squares of the relative differences, so that a small
/// measurement counts as much as a large one.
pub(super) fn two_costs(measured: &[Paid]) -> [f64; 2] {
    let (mut aa, mut ab, mut bb, mut at, mut bt) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &([a, b], seconds) in measured.iter().filter(|paid| paid.1 > 0.0) {
        let (a, b) = (a / seconds, b / seconds);
        (aa, ab, bb, at, bt) = (aa + a * a, ab + a * b, bb + b * b, at + a, bt + b);
    }
    let alone = |squares: f64, sum: f64| if squares > 0.0 { sum / squares } else { 0.0 };
    let determinant = aa * bb - ab * ab;
    // Measurements of the same mixture can't tell the two apart.
    if determinant <= 1e-9 * aa * bb {
        return if bb > 0.0 { [0.0, alone(bb, bt)] } else { [alone(aa, at), 0.0] };
    }
    let (first, second) = ((bb * at - ab * bt) / determinant, (aa * bt - ab * at) / determinant);
    match (first < 0.0, second < 0.0) {
        (true, _) => [0.0, alone(bb, bt)],
        (_, true) => [alone(aa, at), 0.0],
        _ => [first, second],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_explain_everything_are_found() {
        let paid = |a: f64, b: f64| ([a, b], 3.0 * a + 0.5 * b);
        let [first, second] = two_costs(&[paid(1.0, 0.0), paid(1.0, 10.0), paid(1.0, 1000.0)]);
        assert!((first - 3.0).abs() < 1e-9 && (second - 0.5).abs() < 1e-12, "{first} {second}");
    }

    #[test]
    fn none_is_below_zero() {
        // More of the second takes less time: it costs nothing, and the first all of it.
        let [first, second] = two_costs(&[([1.0, 1.0], 2.0), ([1.0, 5.0], 1.9)]);
        assert!(second == 0.0 && (first - 1.95).abs() < 0.01, "{first} {second}");
        let [first, second] = two_costs(&[([1.0, 1.0], 1.0), ([1.0, 5.0], 6.0)]);
        assert!(first == 0.0 && (1.0..1.2).contains(&second), "{first} {second}");
    }

    #[test]
    fn what_can_not_be_told_apart_is_the_seconds() {
        assert_eq!(two_costs(&[([1.0, 2.0], 4.0)]), [0.0, 2.0]);
        assert_eq!(two_costs(&[([2.0, 0.0], 4.0)]), [2.0, 0.0]);
        assert_eq!(two_costs(&[]), [0.0, 0.0]);
    }
}
