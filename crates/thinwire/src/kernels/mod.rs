//! The first seam: where the arithmetic runs.
//!
//! Everything that walks a whole vector stands behind the trait [`Kernels`]; selectors, codecs and methods
//! above it never touch an element of a gradient themselves. [`Cpu`] is the implementation with SIMD and
//! threads; another device is another implementation of the same trait.
//!
//! The heart is [`Kernels::survey`]: one walk over memory that adds the gradient to what was kept, measures
//! the result, and collects the few elements large enough to be worth sending. Every selector is then
//! answered from those few elements (see [`Survey`]).

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;

use std::ops::Range;

pub use cpu::Cpu;

use crate::select::Survey;

/// How an element of the accumulated vector `u` is ranked. A score is never negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Score {
    /// `|u|`.
    Magnitude,
    /// `u` where it is positive; other elements can't be chosen (RedSync's top side).
    Positive,
    /// `-u` where it is negative; other elements can't be chosen (RedSync's bottom side).
    Negative,
    /// `|u| / max(|w|, guard)`, the importance of IWP.
    Relative {
        /// Below this a weight counts as this: keeps zero weights from winning every step.
        guard: f32,
    },
}

/// How the gradient `g` (times `scale`) enters the memory: residual `r`, momentum `m`.
///
/// Products and sums are rounded one by one, never fused, so that every device gives the same bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Update {
    /// `u = r`: nothing enters; the residual is only looked at, and the gradient may be empty.
    Keep,
    /// `u = r + g`: error feedback.
    Add,
    /// `u = g`: no feedback; the residual only serves as a work space.
    Replace,
    /// `m = c·m + g; u = r + m`: momentum correction, heavy ball.
    HeavyBall(f32),
    /// `m = c·(m + g); u = r + (m + g)`: momentum correction, Nesterov.
    Nesterov(f32),
}

/// The vectors of one bucket that a walk touches, and what it does with them.
#[derive(Debug)]
pub struct Walk<'a, V: ?Sized> {
    /// The local gradient of this step.
    pub gradient: &'a V,
    /// What was not sent before; holds the accumulated vector `u` afterwards.
    pub residual: &'a mut V,
    /// The momentum, for the updates that have one.
    pub momentum: Option<&'a mut V>,
    /// The weights, for [`Score::Relative`].
    pub weights: Option<&'a V>,
    /// How the gradient enters.
    pub update: Update,
    /// A factor on the gradient: clipping, or the share of this rank in a weighted mean.
    pub scale: f32,
    /// How elements are ranked.
    pub score: Score,
}

impl<'a, V: ?Sized> Walk<'a, V> {
    /// Plain error feedback: `u = r + g`, ranked by magnitude.
    pub fn new(gradient: &'a V, residual: &'a mut V) -> Walk<'a, V> {
        Walk {
            gradient,
            residual,
            momentum: None,
            weights: None,
            update: Update::Add,
            scale: 1.0,
            score: Score::Magnitude,
        }
    }
}

/// What one walk measures, in the same order of additions whatever the instruction set or thread count.
///
/// Sums are made in `f32` over a few hundred elements a lane and in `f64` beyond: values near the end of the
/// range of `f32` make a sum infinite, and squares of magnitudes below 1e-23 count as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Statistics {
    /// Number of elements.
    pub count: usize,
    /// Sum of the elements.
    pub sum: f64,
    /// Sum of their magnitudes.
    pub sum_magnitude: f64,
    /// Sum of their squares.
    pub sum_squares: f64,
    /// The largest element, or 0 when none is positive.
    pub max: f32,
    /// The lowest element, or 0 when none is negative.
    pub min: f32,
}

impl Statistics {
    /// The mean of the elements; 0 for none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The mean of the magnitudes; 0 for none.
    pub fn mean_magnitude(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_magnitude / self.count as f64 }
    }

    /// The largest magnitude.
    pub fn max_magnitude(&self) -> f32 {
        self.max.max(-self.min)
    }

    /// The sample deviation (divisor `count - 1`); 0 for fewer than two elements.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let spread = self.sum_squares - self.sum * self.sum / self.count as f64;
        (spread.max(0.0) / (self.count - 1) as f64).sqrt()
    }

    /// These elements and `later` ones together.
    pub fn merge(&mut self, later: &Statistics) {
        self.count += later.count;
        self.sum += later.sum;
        self.sum_magnitude += later.sum_magnitude;
        self.sum_squares += later.sum_squares;
        self.max = self.max.max(later.max);
        self.min = self.min.min(later.min);
    }
}

/// A non-finite value and where it stands in the bucket. The bucket's layer names make an
/// [`Error::NonFinite`](crate::Error::NonFinite) of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFinite {
    /// Position in the bucket.
    pub position: usize,
    /// The value found.
    pub value: f32,
}

/// Where the arithmetic runs. See the [module](self) for the idea.
///
/// ```
/// use thinwire::kernels::{Cpu, Guess, Kernels, Walk};
/// use thinwire::select::Survey;
///
/// let gradient = [0.1, -3.0, 0.2, 2.0];
/// let mut residual = vec![0.0; 4];
/// let mut cpu = Cpu::new(1);
/// let mut guess = Guess::default();
/// let (mut positions, mut values) = (Vec::new(), Vec::new());
/// let whole = [0..4];
/// let walk = Walk::new(&gradient[..], &mut residual[..]);
/// let mut survey = cpu.survey(walk, &whole, 2, &mut guess).unwrap();
/// survey.keep_top(2);
/// survey.finish(&mut positions, &mut values);
/// assert_eq!((&positions[..], &values[..]), (&[1, 3][..], &[-3.0, 2.0][..]));
/// cpu.clear(&positions, &mut residual);
/// assert_eq!(residual, [0.1, 0.0, 0.2, 0.0]);
/// ```
pub trait Kernels {
    /// A borrowed run of `f32` in this device's memory; `[f32]` on the CPU.
    type Vector: ?Sized;
    /// The answer to [`survey`](Kernels::survey).
    type Survey<'a>: Survey
    where
        Self: 'a;

    /// One walk over `ranges` of the bucket: accumulate, measure, and collect at least the `expect` best
    /// elements (fewer if fewer are non-zero). `guess` remembers from step to step where to cut.
    ///
    /// The vectors reach at least to the end of the last range, and are there if the update or the score
    /// needs them; anything else is a mistake of the caller, and panics.
    ///
    /// A NaN or infinity stops the walk before it is stored; the elements before it are then taken back
    /// out of the memory, exactly but for rounding: that of the addition and of the subtraction that undoes it,
    /// and, with momentum, of a multiplication and a division by the coefficient.
    fn survey<'a>(
        &'a mut self,
        walk: Walk<'a, Self::Vector>,
        ranges: &'a [Range<usize>],
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<Self::Survey<'a>, NonFinite>;

    /// Takes the gradient of a walk that went well back out of the memory, exactly but for rounding.
    fn withdraw(&mut self, walk: Walk<'_, Self::Vector>, ranges: &[Range<usize>]);

    /// Measures `ranges` of a vector, or finds its first non-finite element.
    fn statistics(&mut self, values: &Self::Vector, ranges: &[Range<usize>])
    -> Result<Statistics, NonFinite>;

    /// `values[positions[i]] = 0`.
    fn clear(&mut self, positions: &[u32], values: &mut Self::Vector);

    /// `values[positions[i]] += what[i]`, in order. Positions are in range (the decoder has checked them).
    fn scatter_add(&mut self, positions: &[u32], what: &[f32], values: &mut Self::Vector);
}

/// What is remembered from one step to the next about where the `expect` best elements of a unit begin.
/// It saves time only: the result never depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// Collect from this score on; 0 when nothing is known.
    pub floor: f32,
    /// Local steepness of the tail: `count above t` falls like `t^-steepness`.
    pub steepness: f32,
    /// Aim at this many times the elements needed.
    pub margin: f32,
}

impl Default for Guess {
    fn default() -> Self {
        Guess { floor: 0.0, steepness: 4.0, margin: Guess::MARGIN }
    }
}

impl Guess {
    const MARGIN: f32 = 1.25;
    const MOST_MARGIN: f32 = 3.0;

    /// Learns from a step in which `needed` elements had to be at hand, `count` of them from `score` on, while
    /// `found` had been collected from `floor` on. `missed` says that the guess had been too high.
    ///
    /// Through the two known points the tail is taken as a straight line in log-log, which a local piece of
    /// any smooth tail is; its slope is remembered for steps in which the points are too close.
    pub fn learn(
        &mut self,
        needed: usize,
        (count, score): (usize, f32),
        (found, floor): (usize, f32),
        missed: bool,
    ) {
        if count == 0 || score <= 0.0 || !score.is_finite() {
            *self = Guess::default();
            return;
        }
        self.margin = if missed {
            (self.margin * 1.5).min(Guess::MOST_MARGIN)
        } else {
            Guess::MARGIN + (self.margin - Guess::MARGIN) * 0.9
        };
        let more = (found as f32 / count as f32).ln();
        let lower = (score / floor.max(f32::MIN_POSITIVE)).ln();
        if more > 0.05 && lower > 1e-4 {
            self.steepness = (more / lower).clamp(0.5, 64.0);
        }
        // A few dozen elements more, so that small units do not miss by chance.
        let aim = (self.margin * needed.max(count) as f32 + 48.0) / count as f32;
        self.floor = score * aim.powf(-1.0 / self.steepness);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_follows_a_power_law_tail() {
        // count above t = 1000 t^-3, so 1250 elements begin at 0.8^(1/3).
        let mut guess = Guess::default();
        guess.learn(1000, (1000, 1.0), (2000, 2f32.powf(-1.0 / 3.0)), false);
        assert!((guess.steepness - 3.0).abs() < 1e-3);
        let count = 1000.0 * guess.floor.powf(-3.0);
        assert!((1250.0..1320.0).contains(&count), "{count}");
    }

    #[test]
    fn a_miss_widens_the_margin_and_time_narrows_it() {
        let mut guess = Guess::default();
        guess.learn(1000, (1000, 1.0), (1200, 0.9), true);
        assert!(guess.margin > 1.8);
        for _ in 0..50 {
            guess.learn(1000, (1000, 1.0), (1200, 0.9), false);
        }
        assert!(guess.margin < 1.26);
    }

    #[test]
    fn deviation_is_the_sample_deviation() {
        let s = Statistics { count: 4, sum: 10.0, sum_squares: 30.0, ..Statistics::default() };
        assert!((s.deviation() - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
