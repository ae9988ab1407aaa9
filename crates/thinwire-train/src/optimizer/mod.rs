//! Optimisers on flat runs of numbers, one run for each bucket, and what goes with them: the schedule of the
//! learning rate, clipping, and the schedule of the part that is dropped.
//!
//! The conventions are those of PyTorch, so that published settings mean the same here. All workers hold the same
//! weights and get the same mean gradient; the arithmetic has a fixed order, so they keep the same bits.

mod adam;
mod clip;
mod pieces;
mod schedule;
mod sgd;
mod theta;

use std::fmt;
use std::ops::Range;

use thinwire::method::Parameters;

use crate::catalog::{self, Choice};
use crate::{Error, Result};

pub use clip::clip_norm;
pub use pieces::decay_ranges;
pub use schedule::{LearningRate, Schedule, WARMUP_FROM};
pub use theta::ThetaSchedule;

/// What turns mean gradients into new weights.
pub trait Optimizer: Send {
    /// One step of all buckets with the learning rate `lr`. With a `density` below 1 the means hold sums of several steps
    /// at that part of the elements, and nothing at others.
    ///
    /// # Panics
    /// When buckets or their lengths are not those it was built for.
    fn step(&mut self, lr: f64, density: f64, weights: &mut [Vec<f32>], means: &[Vec<f32>]);

    /// What it remembers, by name, one run for each bucket.
    fn state(&self) -> Vec<(&'static str, &[Vec<f32>])>;

    /// Puts back one of the runs that [`state`](Optimizer::state) gave.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for a name it does not have, and for other lengths.
    fn restore(&mut self, name: &str, values: Vec<Vec<f32>>) -> Result<()>;

    /// Steps done.
    fn step_count(&self) -> u64;

    /// Says how many steps were done before, for a run that goes on.
    fn set_step_count(&mut self, steps: u64);
}

/// What an optimiser is built for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    /// Elements of each bucket.
    pub lengths: &'a [usize],
    /// The ranges of each bucket that are subject to weight decay, ascending; see [`decay_ranges`].
    pub decays: &'a [Vec<Range<usize>>],
    /// Whether the mean gradient carries the momentum already, but for full steps with Adam: momentum correction (DGC,
    /// RedSync), or a local momentum.
    pub momentum_in_memory: bool,
}

/// What builds an optimiser.
pub type Build = fn(&Parameters, Layout<'_>) -> Result<Box<dyn Optimizer>>;

/// All optimisers.
pub const OPTIMIZERS: &[Choice<Build>] = &[sgd::CHOICE, adam::ADAM, adam::ADAMW];

/// An optimiser by name and parameters, such as `sgd:momentum=0.9,nesterov=true`.
///
/// [`Display`](fmt::Display) gives the name with the parameters that differ from their defaults.
#[derive(Debug, Clone)]
pub struct Spec {
    choice: &'static Choice<Build>,
    parameters: Parameters,
}

/// A momentum that a method could apply in place of the optimiser.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Momentum {
    /// Its coefficient, above 0.
    pub coefficient: f64,
    /// Whether it is of Nesterov's form.
    pub nesterov: bool,
}

impl fmt::Display for Momentum {
    /// As parameters of a method: `momentum=0.9,nesterov=true`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "momentum={},nesterov={}", self.coefficient, self.nesterov)
    }
}

impl Spec {
    /// Reads `text`.
    pub fn parse(text: &str) -> Result<Spec> {
        let (choice, parameters) = catalog::find("optimiser", OPTIMIZERS, text)?;
        Ok(Spec { choice, parameters })
    }

    /// The momentum that a method with momentum correction takes over; `None` if there is none, or if it is not of
    /// a kind that can be moved, as with Adam.
    pub fn momentum(&self) -> Option<Momentum> {
        if !self.parameters.has("momentum") || self.parameters.number("momentum") == 0.0 {
            return None;
        }
        let (coefficient, nesterov) = (self.parameters.number("momentum"), self.parameters.flag("nesterov"));
        Some(Momentum { coefficient, nesterov })
    }

    /// The first beta of Adam, which a sparse method takes over as a local momentum; `None` for other optimisers.
    pub fn beta1(&self) -> Option<f64> {
        self.parameters.has("beta1").then(|| self.parameters.number("beta1"))
    }

    /// Builds the optimiser.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for parameters that do not go together, and for ranges outside their buckets.
    pub fn build(&self, layout: Layout<'_>) -> Result<Box<dyn Optimizer>> {
        (self.choice.build)(&self.parameters, layout)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.parameters)
    }
}

/// Builds an optimiser by name and parameters.
pub fn build(spec: &str, layout: Layout<'_>) -> Result<Box<dyn Optimizer>> {
    Spec::parse(spec)?.build(layout)
}

/// Puts `values` in the place of `old` if buckets and lengths are the same.
fn replace(name: &str, old: &mut Vec<Vec<f32>>, values: Vec<Vec<f32>>) -> Result<()> {
    let lengths = |runs: &[Vec<f32>]| runs.iter().map(Vec::len).collect::<Vec<_>>();
    let (expected, found) = (lengths(old), lengths(&values));
    if expected != found {
        return Err(Error::BadSetting {
            name: format!("the optimiser's {name}"),
            found: format!("buckets of {found:?} elements"),
            expected: format!("the optimiser has buckets of {expected:?} elements"),
        });
    }
    *old = values;
    Ok(())
}

/// The error for a state that the optimiser does not have.
fn no_such_state(optimizer: &str, name: &str, known: &str) -> Error {
    Error::BadSetting {
        name: "the optimiser's state".into(),
        found: name.into(),
        expected: format!("{optimizer} as it is set remembers: {known}"),
    }
}

#[cfg(test)]
mod tests;
