//! A walk by addresses, and the programs for it.

use super::Cuda;
use super::compile::Program;
use super::memory::{Buffer, Element, Gradient};
use crate::kernels::{Score, Update, Walk};
use crate::{Error, Result};

/// What a walk reads and writes: addresses on the device, 0 where there is nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Job {
    pub gradient: u64,
    pub element: Element,
    pub residual: u64,
    pub momentum: u64,
    pub weights: u64,
    pub update: Update,
    pub scale: f32,
    pub score: Score,
}

impl Job {
    /// Looks at a vector of 32-bit floats, without changing anything.
    pub fn look(values: u64, weights: u64, score: Score) -> Job {
        Job {
            gradient: values,
            element: Element::F32,
            residual: values,
            momentum: 0,
            weights,
            update: Update::Keep,
            scale: 1.0,
            score,
        }
    }

    /// The same vectors once more, after the walk.
    pub fn again(&self) -> Job {
        Job::look(self.residual, self.weights, self.score)
    }

    /// The program of the walk, and its coefficient.
    pub fn program(&self) -> (Program, f32) {
        let (update, coefficient) = number_of(self.update);
        (program(self.element, update, self.relative().1 != 0), coefficient)
    }

    /// The same for the way back, if there is one.
    pub fn undo_program(&self) -> Option<(Program, f32)> {
        let (update, coefficient) = number_of(self.update);
        (update != 0).then(|| (undo_program(self.element, update), coefficient))
    }

    pub fn side(&self) -> u32 {
        match self.score {
            Score::Magnitude | Score::Relative { .. } => 0,
            Score::Positive => 1,
            Score::Negative => 2,
        }
    }

    /// The guard, and the address of the weights where they count.
    pub fn relative(&self) -> (f32, u64) {
        match self.score {
            Score::Relative { guard } => (guard, self.weights),
            _ => (1.0, 0),
        }
    }
}

pub(super) type WalkHere<'a> = Walk<'a, Gradient, Buffer<f32>>;

impl Cuda {
    /// The walk by addresses.
    pub(super) fn job(walk: &mut WalkHere<'_>, end: usize) -> Result<Job> {
        let Walk { gradient, residual, momentum, weights, update, scale, score } = walk;
        Cuda::check(gradient, end)?;
        let mut weights_at = 0;
        if let (Score::Relative { .. }, Some(weights)) = (*score, weights) {
            Cuda::check(weights, end)?;
            if weights.element() != Element::F32 {
                return Err(Error::Device {
                    action: "rank by weights on the GPU".into(),
                    reason: format!("they are {}; expected f32", weights.element().name()),
                });
            }
            weights_at = weights.address();
        }
        Ok(Job {
            gradient: gradient.address(),
            element: gradient.element(),
            residual: residual.address(),
            momentum: momentum.as_ref().map_or(0, |momentum| momentum.address()),
            weights: weights_at,
            update: *update,
            scale: *scale,
            score: *score,
        })
    }
}

/// Every walk the engine asks for.
pub(super) fn variants() -> Vec<Program> {
    let mut all = Vec::new();
    for element in [Element::F32, Element::F16, Element::Bf16] {
        for update in 0..5 {
            // Weights go with gradients, and with a residual that is looked at once more.
            let ratios = if update != 0 || element == Element::F32 { 2 } else { 1 };
            all.extend((0..ratios).map(|relative| program(element, update, relative == 1)));
            if update != 0 {
                all.push(undo_program(element, update));
            }
        }
    }
    all
}

fn program(element: Element, update: u32, relative: bool) -> Program {
    Program::new("walk")
        .with("GRADIENT", element.number())
        .with("UPDATE", update)
        .with("RELATIVE", relative as u32)
}

fn undo_program(element: Element, update: u32) -> Program {
    Program::new("undo").with("GRADIENT", element.number()).with("UPDATE", update)
}

/// The number of the kernels' switch, and the coefficient.
fn number_of(update: Update) -> (u32, f32) {
    match update {
        Update::Keep => (0, 0.0),
        Update::Add => (1, 0.0),
        Update::Replace => (2, 0.0),
        Update::HeavyBall(coefficient) => (3, coefficient),
        Update::Nesterov(coefficient) => (4, coefficient),
    }
}
