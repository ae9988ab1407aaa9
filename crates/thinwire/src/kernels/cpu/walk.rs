//! The one walk over memory: accumulate, measure, collect.
//!
//! Sixteen lanes at a time: read gradient and memory, make the accumulated value, test its score against
//! the floor, write it back. Four registers are tested together, because almost always none of them passes.
//! The test is "not below", so a NaN or infinity passes it too and is found in the rare branch, before
//! anything is written; looking for them costs nothing.

use super::candidates::Candidates;
use super::lanes::{Lanes, WIDTH};
use crate::kernels::{NonFinite, Score, Statistics};

/// Elements between two look-backs: sums pass from `f32` lanes to `f64`, the list makes room.
pub(super) const BLOCK: usize = 4096;
const GROUP: usize = 4;

type Sixteen = [f32; WIDTH];

/// How the accumulated value is made from gradient, residual and momentum. The flags say which of them
/// are read and written, so that each walk touches only the memory it needs.
pub(super) trait Accumulate: Copy {
    const RESIDUAL: bool = true;
    const MOMENTUM: bool = false;
    const WRITES: bool = true;
    /// `(accumulated value, new momentum)`.
    fn make<L: Lanes>(self, gradient: L, residual: L, momentum: L) -> (L, L);
}

#[derive(Clone, Copy)]
pub(super) struct Add {
    pub scale: f32,
}

impl Accumulate for Add {
    #[inline(always)]
    fn make<L: Lanes>(self, gradient: L, residual: L, momentum: L) -> (L, L) {
        (residual.add(gradient.mul(L::splat(self.scale))), momentum)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Replace {
    pub scale: f32,
}

impl Accumulate for Replace {
    const RESIDUAL: bool = false;
    #[inline(always)]
    fn make<L: Lanes>(self, gradient: L, _: L, momentum: L) -> (L, L) {
        (gradient.mul(L::splat(self.scale)), momentum)
    }
}

#[derive(Clone, Copy)]
pub(super) struct HeavyBall {
    pub scale: f32,
    pub coefficient: f32,
}

impl Accumulate for HeavyBall {
    const MOMENTUM: bool = true;
    #[inline(always)]
    fn make<L: Lanes>(self, gradient: L, residual: L, momentum: L) -> (L, L) {
        let gradient = gradient.mul(L::splat(self.scale));
        let momentum = momentum.mul(L::splat(self.coefficient)).add(gradient);
        (residual.add(momentum), momentum)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Nesterov {
    pub scale: f32,
    pub coefficient: f32,
}

impl Accumulate for Nesterov {
    const MOMENTUM: bool = true;
    #[inline(always)]
    fn make<L: Lanes>(self, gradient: L, residual: L, momentum: L) -> (L, L) {
        let gradient = gradient.mul(L::splat(self.scale));
        let momentum = momentum.add(gradient).mul(L::splat(self.coefficient));
        (residual.add(momentum.add(gradient)), momentum)
    }
}

/// Looks at a vector, handed in as the gradient, without changing anything.
#[derive(Clone, Copy)]
pub(super) struct Read;

impl Accumulate for Read {
    const RESIDUAL: bool = false;
    const WRITES: bool = false;
    #[inline(always)]
    fn make<L: Lanes>(self, gradient: L, _: L, momentum: L) -> (L, L) {
        (gradient, momentum)
    }
}

/// A contiguous piece of a bucket. Vectors that the walk does not touch are empty.
pub(super) struct Strip<'a> {
    pub first: usize,
    pub gradient: &'a [f32],
    pub residual: &'a mut [f32],
    pub momentum: &'a mut [f32],
    pub weights: &'a [f32],
}

/// The first non-finite value, and how many elements of the strip had been written before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stop {
    pub found: NonFinite,
    pub written: usize,
}

#[derive(Clone, Copy)]
struct Sums<L> {
    sum: L,
    magnitude: L,
    squares: L,
    max: L,
    min: L,
}

impl<L: Lanes> Sums<L> {
    #[inline(always)]
    fn zero() -> Self {
        let zero = L::splat(0.0);
        Sums { sum: zero, magnitude: zero, squares: zero, max: zero, min: zero }
    }

    #[inline(always)]
    fn add(&mut self, value: L, magnitude: L) {
        self.sum = self.sum.add(value);
        self.magnitude = self.magnitude.add(magnitude);
        self.squares = self.squares.add(value.mul(value));
        self.max = self.max.max(value);
        self.min = self.min.min(value);
    }

    #[inline(always)]
    fn flush(&mut self, into: &mut Statistics) {
        let lanes = |x: L| {
            let mut out = [0.0; WIDTH];
            x.store(&mut out);
            out
        };
        into.sum += lanes(self.sum).iter().map(|&x| x as f64).sum::<f64>();
        into.sum_magnitude += lanes(self.magnitude).iter().map(|&x| x as f64).sum::<f64>();
        into.sum_squares += lanes(self.squares).iter().map(|&x| x as f64).sum::<f64>();
        into.max = lanes(self.max).iter().fold(into.max, |a, &b| a.max(b));
        into.min = lanes(self.min).iter().fold(into.min, |a, &b| a.min(b));
        *self = Sums::zero();
    }
}

/// The same few registers of each vector.
struct Group<'a> {
    first: usize,
    gradient: &'a [Sixteen],
    residual: &'a mut [Sixteen],
    momentum: &'a mut [Sixteen],
    weights: &'a [Sixteen],
}

/// Makes, measures and tests one group; nothing is stored unless all of it is finite.
#[inline(always)]
fn group<L: Lanes, R: Accumulate, const RELATIVE: bool, const COUNT: usize>(
    how: R,
    score: Score,
    at: Group<'_>,
    sums: &mut Sums<L>,
    candidates: &mut Candidates,
) -> Result<(), NonFinite> {
    let zero = L::splat(0.0);
    let floor = L::splat(candidates.floor());
    // A ratio is tested by multiplying, which is cheaper than dividing: a little below the floor, so that no
    // rounding hides an element that belongs; the division decides among those that pass.
    let nearly = L::splat(candidates.floor() * (1.0 - 1e-6));
    let (mut values, mut moments) = ([zero; COUNT], [zero; COUNT]);
    let (mut masks, mut any) = ([0u16; COUNT], 0);
    for j in 0..COUNT {
        let residual = if R::RESIDUAL { L::load(&at.residual[j]) } else { zero };
        let momentum = if R::MOMENTUM { L::load(&at.momentum[j]) } else { zero };
        (values[j], moments[j]) = how.make(L::load(&at.gradient[j]), residual, momentum);
        let magnitude = values[j].abs();
        sums.add(values[j], magnitude);
        let threshold = match score {
            Score::Relative { guard } if RELATIVE => {
                let weight = L::load(&at.weights[j]).abs().max(L::splat(guard));
                weight.mul(nearly).add(L::splat(-1e-37))
            }
            _ => floor,
        };
        masks[j] = magnitude.not_below(threshold);
        any |= masks[j];
    }
    if any != 0 {
        for (j, value) in values.iter().enumerate() {
            let bad = value.abs().not_below(L::splat(f32::INFINITY));
            if bad != 0 {
                let lane = bad.trailing_zeros() as usize;
                let mut sum = [0.0; WIDTH];
                value.store(&mut sum);
                let gradient = at.gradient[j][lane];
                let value = if gradient.is_finite() { sum[lane] } else { gradient };
                return Err(NonFinite { position: at.first + j * WIDTH + lane, value });
            }
        }
        for j in 0..COUNT {
            let mut scores = values[j].abs();
            let mask = match score {
                Score::Magnitude => masks[j],
                Score::Positive => masks[j] & !values[j].signs(),
                Score::Negative => masks[j] & values[j].signs(),
                Score::Relative { guard } => {
                    scores = scores.div(L::load(&at.weights[j]).abs().max(L::splat(guard)));
                    masks[j] & scores.not_below(floor)
                }
            };
            if mask != 0 {
                candidates.push(values[j], scores, mask, (at.first + j * WIDTH) as u32);
            }
        }
    }
    for j in 0..COUNT {
        if R::WRITES {
            values[j].store(&mut at.residual[j]);
        }
        if R::MOMENTUM {
            moments[j].store(&mut at.momentum[j]);
        }
    }
    Ok(())
}

/// Walks one strip. See the [module](self).
#[inline(always)]
pub(super) fn walk<L: Lanes, R: Accumulate, const RELATIVE: bool>(
    how: R,
    score: Score,
    strip: Strip<'_>,
    candidates: &mut Candidates,
) -> Result<Statistics, Stop> {
    let Strip { first, gradient, residual, momentum, weights } = strip;
    let len = gradient.len();
    let mut statistics = Statistics { count: len, ..Statistics::default() };
    let mut sums = Sums::<L>::zero();
    let whole = len / WIDTH * WIDTH;
    let mut done = 0;
    while done < whole {
        candidates.make_room(BLOCK);
        let end = whole.min(done + BLOCK);
        while done < end {
            // Whole groups, then register by register what is left of the strip's last block.
            let registers = if end - done >= GROUP * WIDTH { GROUP } else { 1 };
            let piece = done..done + registers * WIDTH;
            let at = Group {
                first: first + done,
                gradient: gradient[piece.clone()].as_chunks().0,
                residual: if R::WRITES { residual[piece.clone()].as_chunks_mut().0 } else { &mut [] },
                momentum: if R::MOMENTUM { momentum[piece.clone()].as_chunks_mut().0 } else { &mut [] },
                weights: if RELATIVE { weights[piece.clone()].as_chunks().0 } else { &[] },
            };
            let outcome = if registers == GROUP {
                group::<L, R, RELATIVE, GROUP>(how, score, at, &mut sums, candidates)
            } else {
                group::<L, R, RELATIVE, 1>(how, score, at, &mut sums, candidates)
            };
            outcome.map_err(|found| Stop { found, written: done })?;
            done = piece.end;
        }
        sums.flush(&mut statistics);
    }
    if whole < len {
        // The last few elements, padded by zeros, which count for nothing anywhere.
        let tail = whole..len;
        let pad = |from: &[f32], with: f32| {
            let mut lanes = [[with; WIDTH]];
            lanes[0][..from.len()].copy_from_slice(from);
            lanes
        };
        let mut kept = pad(if R::WRITES { &residual[tail.clone()] } else { &[] }, 0.0);
        let mut moments = pad(if R::MOMENTUM { &momentum[tail.clone()] } else { &[] }, 0.0);
        candidates.make_room(WIDTH);
        let at = Group {
            first: first + whole,
            gradient: &pad(&gradient[tail.clone()], 0.0),
            residual: &mut kept,
            momentum: &mut moments,
            weights: &pad(if RELATIVE { &weights[tail.clone()] } else { &[] }, 1.0),
        };
        group::<L, R, RELATIVE, 1>(how, score, at, &mut sums, candidates)
            .map_err(|found| Stop { found, written: whole })?;
        if R::WRITES {
            residual[tail.clone()].copy_from_slice(&kept[0][..len - whole]);
        }
        if R::MOMENTUM {
            momentum[tail].copy_from_slice(&moments[0][..len - whole]);
        }
        sums.flush(&mut statistics);
    }
    Ok(statistics)
}
