//! `sgd`: stochastic gradient descent with momentum, in PyTorch's conventions.
//!
//! Decay is added to the gradient; `buffer = momentum * buffer + gradient`, from a buffer of zeros, so that the
//! first step has the plain gradient; the step is `lr * buffer`, or with Nesterov `lr * (gradient + momentum *
//! buffer)`.
//!
//! Where the method has applied the momentum already (momentum correction of DGC, arXiv 1712.01887, and RedSync,
//! arXiv 1808.04357), the mean is not given a second one. The decay is not part of what the method saw, so it gets
//! a momentum of its own, as in DGC's released code. If everything is sent, this is the same as above.

use thinwire::method::{Kind, Parameter, Parameters};

use super::pieces::Pieces;
use super::{Build, Layout, Optimizer, no_such_state, replace};
use crate::catalog::Choice;
use crate::{Error, Result};

pub(super) const CHOICE: Choice<Build> = Choice {
    name: "sgd",
    summary: "stochastic gradient descent with momentum",
    parameters: &[
        Parameter { name: "momentum", kind: Kind::Fraction, default: "0.9", help: "momentum; 0 for none" },
        Parameter {
            name: "nesterov",
            kind: Kind::Flag,
            default: "false",
            help: "Nesterov's form of the momentum",
        },
        Parameter {
            name: "decay",
            kind: Kind::Number { min: 0.0, max: f64::INFINITY },
            default: "0",
            help: "weight decay, added to the gradient; biases and norms are exempt",
        },
    ],
    build,
};

/// What is given a momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moving {
    Nothing,
    /// Gradient and decay.
    Gradient,
    /// Decay alone.
    Decay,
}

struct Sgd {
    pieces: Vec<Pieces>,
    moving: Moving,
    momentum: f32,
    nesterov: bool,
    /// One for each bucket; none if nothing has a momentum.
    buffers: Vec<Vec<f32>>,
    steps: u64,
}

fn build(parameters: &Parameters, layout: Layout<'_>) -> Result<Box<dyn Optimizer>> {
    let (momentum, nesterov) = (parameters.number("momentum"), parameters.flag("nesterov"));
    if nesterov && momentum == 0.0 {
        return Err(Error::BadSetting {
            name: "optimiser".into(),
            found: parameters.to_string(),
            expected: "nesterov=true needs a momentum above 0".into(),
        });
    }
    let decay = parameters.number("decay");
    let moving = match layout.momentum_in_memory {
        _ if momentum == 0.0 => Moving::Nothing,
        false => Moving::Gradient,
        true if decay > 0.0 => Moving::Decay,
        true => Moving::Nothing,
    };
    let buffers = match moving {
        Moving::Nothing => Vec::new(),
        _ => layout.lengths.iter().map(|&length| vec![0.0; length]).collect(),
    };
    let pieces = Pieces::of(layout, decay)?;
    Ok(Box::new(Sgd { pieces, moving, momentum: momentum as f32, nesterov, buffers, steps: 0 }))
}

impl Sgd {
    fn name(&self) -> Option<&'static str> {
        match self.moving {
            Moving::Nothing => None,
            Moving::Gradient => Some("momentum"),
            Moving::Decay => Some("decay_momentum"),
        }
    }
}

impl Optimizer for Sgd {
    fn step(&mut self, lr: f64, _: f64, weights: &mut [Vec<f32>], means: &[Vec<f32>]) {
        Pieces::check(&self.pieces, weights, means);
        let (lr, momentum) = (lr as f32, self.momentum);
        for (bucket, pieces) in self.pieces.iter().enumerate() {
            for (range, decay) in &pieces.all {
                let weights = &mut weights[bucket][range.clone()];
                let means = &means[bucket][range.clone()];
                if self.moving == Moving::Nothing || self.moving == Moving::Decay && *decay == 0.0 {
                    plain(lr, *decay, weights, means);
                    continue;
                }
                let buffer = &mut self.buffers[bucket][range.clone()];
                match (self.moving == Moving::Decay, self.nesterov) {
                    (false, false) => heavy_ball(lr, *decay, momentum, weights, means, buffer),
                    (false, true) => nesterov(lr, *decay, momentum, weights, means, buffer),
                    (true, false) => heavy_decay(lr, *decay, momentum, weights, means, buffer),
                    (true, true) => nesterov_decay(lr, *decay, momentum, weights, means, buffer),
                }
            }
        }
        self.steps += 1;
    }

    fn state(&self) -> Vec<(&'static str, &[Vec<f32>])> {
        self.name().map(|name| (name, self.buffers.as_slice())).into_iter().collect()
    }

    fn restore(&mut self, name: &str, values: Vec<Vec<f32>>) -> Result<()> {
        if self.name() != Some(name) {
            return Err(no_such_state("sgd", name, self.name().unwrap_or("nothing")));
        }
        replace(name, &mut self.buffers, values)
    }

    fn step_count(&self) -> u64 {
        self.steps
    }

    fn set_step_count(&mut self, steps: u64) {
        self.steps = steps;
    }
}

fn plain(lr: f32, decay: f32, weights: &mut [f32], means: &[f32]) {
    for (weight, mean) in weights.iter_mut().zip(means) {
        *weight -= lr * (mean + decay * *weight);
    }
}

fn heavy_ball(lr: f32, decay: f32, momentum: f32, weights: &mut [f32], means: &[f32], buffer: &mut [f32]) {
    for ((weight, mean), moving) in weights.iter_mut().zip(means).zip(buffer) {
        *moving = momentum * *moving + (mean + decay * *weight);
        *weight -= lr * *moving;
    }
}

fn nesterov(lr: f32, decay: f32, momentum: f32, weights: &mut [f32], means: &[f32], buffer: &mut [f32]) {
    for ((weight, mean), moving) in weights.iter_mut().zip(means).zip(buffer) {
        let gradient = mean + decay * *weight;
        *moving = momentum * *moving + gradient;
        *weight -= lr * (gradient + momentum * *moving);
    }
}

fn heavy_decay(lr: f32, decay: f32, momentum: f32, weights: &mut [f32], means: &[f32], buffer: &mut [f32]) {
    for ((weight, mean), moving) in weights.iter_mut().zip(means).zip(buffer) {
        *moving = momentum * *moving + decay * *weight;
        *weight -= lr * (mean + *moving);
    }
}

fn nesterov_decay(
    lr: f32,
    decay: f32,
    momentum: f32,
    weights: &mut [f32],
    means: &[f32],
    buffer: &mut [f32],
) {
    for ((weight, mean), moving) in weights.iter_mut().zip(means).zip(buffer) {
        let pull = decay * *weight;
        *moving = momentum * *moving + pull;
        *weight -= lr * (mean + (pull + momentum * *moving));
    }
}
