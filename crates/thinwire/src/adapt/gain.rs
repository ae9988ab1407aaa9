//! What a density sends of the gradient: the compression gain, at every density of the ladder.
//!
//! The gain is the share of the accumulated gradient's energy that a step sends (AR-Topk, after GraVAC). AR-Topk finds
//! it by training ten steps at each density from a copy of the model, and putting the copy back. But a gain depends on
//! the gradients and on what was kept, not on where the weights go in ten steps. So it is found on the side
//! ([`Shadow`]): the gradients that the training makes anyway enter, for each density, a residual of its own, from
//! which that density's share is taken away step by step. No step of the training is changed or thrown away, and a
//! sample of the elements is enough.
//!
//! As in the paper the residuals begin at zero and ten steps are looked at. `docs/methods/auto.md` has both ways side by side.

use std::ops::Range;

/// The densities that are tried: a third less each time, as in the paper.
pub const LADDER: [f64; 5] = [0.1, 0.033, 0.011, 0.004, 0.001];

/// Steps that an exploration looks at, as in the paper.
pub const STEPS: usize = 10;

/// Elements that are looked at, at most: enough for 65 of them to be the thousandth that is sent.
const SAMPLE: usize = 65_536;

/// Elements of one run of the sample: they are copied from a device in runs.
const RUN: usize = 1024;

/// A mean that forgets: the last values, the newer the heavier.
///
/// `value = sum (1-a)^(w-j+1) x_j / sum (1-a)^(w-j+1)` over the last `window` values, as in AR-Topk's code, with its
/// defaults of 5 and 0.01. There is no value before the window is full.
#[derive(Debug, Clone)]
pub struct Ewma {
    window: usize,
    factor: f64,
    values: Vec<f64>,
}

impl Default for Ewma {
    fn default() -> Ewma {
        Ewma { window: 5, factor: 0.01, values: Vec::new() }
    }
}

impl Ewma {
    /// Takes a value in.
    pub fn push(&mut self, value: f64) {
        if self.values.len() == self.window {
            self.values.remove(0);
        }
        self.values.push(value);
    }

    /// The mean, once the window is full.
    pub fn value(&self) -> Option<f64> {
        (self.values.len() == self.window).then(|| {
            let weight = |age: usize| (1.0 - self.factor).powi(age as i32 + 1);
            let newest_first = || self.values.iter().rev().enumerate();
            let sum: f64 = newest_first().map(|(age, value)| weight(age) * value).sum();
            sum / newest_first().map(|(age, _)| weight(age)).sum::<f64>()
        })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.values.clear();
    }
}

/// The gain at any density: measured at those of the ladder, in between along straight lines of the logarithms.
///
/// The authors fit a quotient of exponentials with gain(0) = 0 and gain(1) = 1; this passes through every measured
/// point, has the second of these ends, and can't leave the interval from 0 to 1.
///
/// ```
/// use thinwire::adapt::gain::Curve;
///
/// let curve = Curve::new([0.8, 0.6, 0.4, 0.25, 0.1]);
/// assert!((curve.at(0.1) - 0.8).abs() < 1e-9 && (curve.at(0.001) - 0.1).abs() < 1e-9 && curve.at(1.0) == 1.0);
/// assert!(curve.at(0.02) > 0.4 && curve.at(0.02) < 0.6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Curve {
    gains: [f64; LADDER.len()],
}

impl Default for Curve {
    /// A gain for before anything was measured: what is kept of a gradient whose largest elements matter most.
    fn default() -> Curve {
        Curve::new(LADDER.map(|density| density.powf(0.3)))
    }
}

impl Curve {
    /// From the gains at the densities of the [`LADDER`]. Made to fall with the density, whatever was measured.
    pub fn new(gains: [f64; LADDER.len()]) -> Curve {
        let mut most = 1.0;
        let gains = gains.map(|gain: f64| {
            let sane = if gain.is_finite() { gain } else { most };
            most = sane.clamp(1e-6, most);
            most
        });
        Curve { gains }
    }

    /// The gain at a density.
    pub fn at(&self, density: f64) -> f64 {
        let points = std::iter::once((1.0, 1.0)).chain(LADDER.into_iter().zip(self.gains));
        let points: Vec<(f64, f64)> =
            points.map(|(density, gain): (f64, f64)| (density.ln(), gain.ln())).collect();
        let x = density.clamp(1e-9, 1.0).ln();
        if let Some((_, gain)) = points.iter().find(|(point, _)| *point == x) {
            return gain.exp();
        }
        let right = points.iter().rposition(|(point, _)| *point > x).unwrap_or(0).min(points.len() - 2);
        let ((x0, y0), (x1, y1)) = (points[right], points[right + 1]);
        (y0 + (y1 - y0) * (x - x0) / (x1 - x0)).min(0.0).exp()
    }

    /// The gains at the densities of the [`LADDER`].
    pub fn gains(&self) -> [f64; LADDER.len()] {
        self.gains
    }
}

/// Measures the gain at all densities of the ladder beside the training. See the [module](self).
///
/// ```
/// use thinwire::adapt::gain::{STEPS, Shadow};
///
/// let mut shadow = Shadow::new(&[1000]);
/// let gradient: Vec<f32> = (0..1000).map(|i| 1.0 / (1.0 + i as f32)).collect();
/// let curve = (0..STEPS).find_map(|_| shadow.see(&gradient)).unwrap();
/// assert!(curve.at(0.1) > curve.at(0.01) && curve.at(0.01) > curve.at(0.001));
/// ```
#[derive(Debug, Clone)]
pub struct Shadow {
    runs: Vec<Vec<Range<usize>>>,
    residuals: Vec<Vec<f32>>,
    gains: [f64; LADDER.len()],
    steps: usize,
    order: Vec<u32>,
}

impl Shadow {
    /// For buckets of these lengths.
    pub fn new(lengths: &[usize]) -> Shadow {
        let total: usize = lengths.iter().sum();
        let share = (SAMPLE as f64 / total.max(1) as f64).min(1.0);
        let runs: Vec<Vec<Range<usize>>> = lengths.iter().map(|length| runs(*length, share)).collect();
        let sample = runs.iter().flatten().map(Range::len).sum();
        let residuals = vec![vec![0.0; sample]; LADDER.len()];
        Shadow { runs, residuals, gains: [0.0; LADDER.len()], steps: 0, order: Vec::new() }
    }

    /// The elements of a bucket that are looked at.
    pub fn runs(&self, bucket: usize) -> &[Range<usize>] {
        &self.runs[bucket]
    }

    /// Takes in the sample of one step's gradient, all buckets one after the other; after the last step of an
    /// exploration, the gains.
    pub fn see(&mut self, sample: &[f32]) -> Option<Curve> {
        let finite = sample.iter().all(|element| element.is_finite());
        if sample.len() != self.order_len() || !finite {
            return None;
        }
        for ((residual, density), gain) in self.residuals.iter_mut().zip(LADDER).zip(&mut self.gains) {
            *gain += send(residual, sample, density, &mut self.order) / STEPS as f64;
        }
        self.steps += 1;
        (self.steps == STEPS).then(|| Curve::new(self.gains))
    }

    fn order_len(&self) -> usize {
        self.residuals[0].len()
    }
}

/// Adds a sample, takes the largest elements away, and gives their share of the energy.
fn send(residual: &mut [f32], sample: &[f32], density: f64, order: &mut Vec<u32>) -> f64 {
    // The bits of magnitudes are in the order of the magnitudes, and are compared faster.
    let magnitude = |element: f32| element.abs().to_bits();
    let mut energy = 0.0;
    order.clear();
    order.extend(residual.iter_mut().zip(sample).map(|(kept, element)| {
        *kept += element;
        energy += f64::from(*kept) * f64::from(*kept);
        magnitude(*kept)
    }));
    if energy == 0.0 {
        return 1.0;
    }
    let k = ((residual.len() as f64 * density).round() as usize).clamp(1, residual.len());
    let place = order.len() - k;
    let least = *order.select_nth_unstable(place).1;
    let mut sent = 0.0;
    for element in residual.iter_mut().filter(|element| magnitude(**element) >= least) {
        sent += f64::from(*element) * f64::from(*element);
        *element = 0.0;
    }
    sent / energy
}

/// Runs of elements spread evenly over a bucket, about this share of it.
fn runs(length: usize, share: f64) -> Vec<Range<usize>> {
    if share >= 1.0 || length <= RUN {
        return if length == 0 { Vec::new() } else { vec![0..length] };
    }
    let count = ((length as f64 * share / RUN as f64).round() as usize).clamp(1, length / RUN);
    (0..count)
        .map(|number| {
            let begin = number * (length - RUN) / count.max(2).saturating_sub(1);
            begin..begin + RUN
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::mix;

    #[test]
    fn the_mean_forgets_and_waits_for_its_window() {
        let mut mean = Ewma::default();
        (0..4).for_each(|_| mean.push(1.0));
        assert_eq!(mean.value(), None);
        mean.push(1.0);
        assert!((mean.value().unwrap() - 1.0).abs() < 1e-12);
        (0..5).for_each(|x| mean.push(f64::from(x)));
        // By hand: the newest has the weight 0.99, the oldest 0.99^5.
        let by_hand = (0..5).map(|x| 0.99f64.powi(5 - x) * f64::from(x)).sum::<f64>()
            / (1..=5).map(|x| 0.99f64.powi(x)).sum::<f64>();
        assert!((mean.value().unwrap() - by_hand).abs() < 1e-12);
        mean.clear();
        assert_eq!(mean.value(), None);
    }

    #[test]
    fn a_curve_rises_with_the_density_and_passes_through_its_points() {
        for gains in [[0.9, 0.7, 0.5, 0.3, 0.1], [0.5, 0.6, 0.4, f64::NAN, 0.2], [1.0; 5], [0.0; 5]] {
            let curve = Curve::new(gains);
            let mut last = 0.0;
            for place in 0..=400 {
                let gain = curve.at(10f64.powf(-4.0 + place as f64 / 100.0));
                assert!(gain >= last && gain <= 1.0, "{gains:?}");
                last = gain;
            }
        }
        let curve = Curve::new([0.9, 0.7, 0.5, 0.3, 0.1]);
        for (density, gain) in LADDER.into_iter().zip([0.9, 0.7, 0.5, 0.3, 0.1]) {
            assert!((curve.at(density) - gain).abs() < 1e-9);
        }
    }

    #[test]
    fn runs_lie_inside_and_apart() {
        for (length, share) in
            [(10, 1.0), (5000, 0.5), (1_000_000, 0.06), (100_000_000, 0.0006), (2000, 0.01)]
        {
            let runs = runs(length, share);
            assert!(runs.iter().all(|run| run.end <= length && run.start < run.end), "{length}: {runs:?}");
            assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start), "{length}: {runs:?}");
        }
        let shadow = Shadow::new(&[1_000_000, 20, 3_000_000]);
        let looked_at: usize = (0..3).flat_map(|bucket| shadow.runs(bucket)).map(Range::len).sum();
        assert!(looked_at <= SAMPLE + 3 * RUN && looked_at > SAMPLE / 2);
    }

    /// A sample says what the whole would have said.
    #[test]
    fn a_sample_is_enough() {
        let length = 2_000_000;
        let element = |step: u64, i: usize| {
            let uniform = (mix(step << 32 | i as u64) >> 11) as f32 / (1u64 << 53) as f32;
            // Heavy tails, and layers of different sizes.
            (uniform - 0.5) / (0.02 + uniform) * if i % 7 < 3 { 1.0 } else { 0.2 }
        };
        let mut shadow = Shadow::new(&[length]);
        let mut whole = Shadow { residuals: vec![vec![0.0; length]; LADDER.len()], ..shadow.clone() };
        let (mut sampled, mut all) = (None, None);
        for step in 0..STEPS as u64 {
            let gradient: Vec<f32> = (0..length).map(|i| element(step, i)).collect();
            let sample: Vec<f32> =
                shadow.runs(0).iter().flat_map(|run| gradient[run.clone()].to_vec()).collect();
            (sampled, all) = (shadow.see(&sample), whole.see(&gradient));
        }
        let (sampled, all): (Curve, Curve) = (sampled.unwrap(), all.unwrap());
        for (a, b) in sampled.gains().into_iter().zip(all.gains()) {
            assert!((a / b - 1.0).abs() < 0.1, "{sampled:?} {all:?}");
        }
    }

    #[test]
    fn a_gradient_that_is_no_number_is_passed_over() {
        let mut shadow = Shadow::new(&[10]);
        assert_eq!(shadow.see(&[f32::NAN; 10]), None);
        assert_eq!(shadow.see(&[1.0; 3]), None);
        assert!((0..STEPS).filter_map(|_| shadow.see(&[0.0; 10])).next().is_some());
    }
}
