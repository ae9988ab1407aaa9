//! `adam` (Kingma and Ba, arXiv 1412.6980) and `adamw` (Loshchilov and Hutter, arXiv 1711.05101), in PyTorch's
//! conventions, with bias correction.
//!
//! They differ in the decay: `adam` adds it to the gradient, `adamw` takes `lr * decay` of the weights.

use thinwire::method::{Kind, Parameter, Parameters};

use super::pieces::Pieces;
use super::{Build, Layout, Optimizer, no_such_state, replace};
use crate::catalog::Choice;
use crate::{Error, Result};

const BETA1: Parameter = Parameter {
    name: "beta1",
    kind: Kind::Fraction,
    default: "0.9",
    help: "how much of the mean gradient is kept from step to step",
};
const BETA2: Parameter = Parameter {
    name: "beta2",
    kind: Kind::Fraction,
    default: "0.999",
    help: "how much of the mean square is kept from step to step",
};
const EPSILON: Parameter = Parameter {
    name: "epsilon",
    // With 0 an element whose gradient was always 0 would become 0/0.
    kind: Kind::Number { min: 1e-12, max: 1.0 },
    default: "1e-8",
    help: "added to the root of the mean square",
};

pub(super) const ADAM: Choice<Build> = Choice {
    name: "adam",
    summary: "steps scaled by the root of the mean square gradient",
    parameters: &[
        BETA1,
        BETA2,
        EPSILON,
        Parameter {
            name: "decay",
            kind: Kind::Number { min: 0.0, max: f64::INFINITY },
            default: "0",
            help: "weight decay, added to the gradient; biases and norms are exempt",
        },
    ],
    build: |parameters, layout| build(parameters, layout, false),
};

pub(super) const ADAMW: Choice<Build> = Choice {
    name: "adamw",
    summary: "adam with a weight decay that is not scaled",
    parameters: &[
        BETA1,
        BETA2,
        EPSILON,
        Parameter {
            name: "decay",
            kind: Kind::Number { min: 0.0, max: f64::INFINITY },
            default: "0.01",
            help: "weight decay, times the learning rate taken of the weights; biases and norms are exempt",
        },
    ],
    build: |parameters, layout| build(parameters, layout, true),
};

struct Adam {
    name: &'static str,
    pieces: Vec<Pieces>,
    beta1: f64,
    beta2: f64,
    epsilon: f32,
    /// Whether the decay goes past the scaling.
    decoupled: bool,
    first: Vec<Vec<f32>>,
    second: Vec<Vec<f32>>,
    steps: u64,
}

fn build(parameters: &Parameters, layout: Layout<'_>, decoupled: bool) -> Result<Box<dyn Optimizer>> {
    if layout.momentum_in_memory {
        return Err(Error::BadSetting {
            name: "optimiser".into(),
            found: parameters.to_string(),
            expected: "a method with momentum correction needs sgd; or give the method momentum=0".into(),
        });
    }
    let zeros = || layout.lengths.iter().map(|&length| vec![0.0; length]).collect();
    Ok(Box::new(Adam {
        name: parameters.method(),
        pieces: Pieces::of(layout, parameters.number("decay"))?,
        beta1: parameters.number("beta1"),
        beta2: parameters.number("beta2"),
        epsilon: parameters.number("epsilon") as f32,
        decoupled,
        first: zeros(),
        second: zeros(),
        steps: 0,
    }))
}

/// The numbers of one step that are the same for all elements.
#[derive(Clone, Copy)]
struct Factors {
    /// Part of the weight that stays; 1 unless the decay is decoupled.
    stay: f32,
    /// Decay added to the gradient.
    decay: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    /// The learning rate over the bias correction of the first moment.
    size: f32,
    /// One over the root of the bias correction of the second: a product takes less time than a quotient.
    per_root: f32,
    epsilon: f32,
}

impl Optimizer for Adam {
    fn step(&mut self, lr: f64, weights: &mut [Vec<f32>], means: &[Vec<f32>]) {
        Pieces::check(&self.pieces, weights, means);
        self.steps += 1;
        // After 2^31 steps both powers have long been 0.
        let power = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let common = Factors {
            stay: 1.0,
            decay: 0.0,
            rest1: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            rest2: (1.0 - self.beta2) as f32,
            size: (lr / (1.0 - self.beta1.powi(power))) as f32,
            per_root: (1.0 / (1.0 - self.beta2.powi(power)).sqrt()) as f32,
            epsilon: self.epsilon,
        };
        for (bucket, pieces) in self.pieces.iter().enumerate() {
            for (range, decay) in &pieces.all {
                let factors = match self.decoupled {
                    true => Factors { stay: (1.0 - lr * f64::from(*decay)) as f32, ..common },
                    false => Factors { decay: *decay, ..common },
                };
                walk(
                    factors,
                    &mut weights[bucket][range.clone()],
                    &means[bucket][range.clone()],
                    &mut self.first[bucket][range.clone()],
                    &mut self.second[bucket][range.clone()],
                );
            }
        }
    }

    fn state(&self) -> Vec<(&'static str, &[Vec<f32>])> {
        vec![("first_moment", self.first.as_slice()), ("second_moment", self.second.as_slice())]
    }

    fn restore(&mut self, name: &str, values: Vec<Vec<f32>>) -> Result<()> {
        match name {
            "first_moment" => replace(name, &mut self.first, values),
            "second_moment" => replace(name, &mut self.second, values),
            _ => Err(no_such_state(self.name, name, "first_moment, second_moment")),
        }
    }

    fn step_count(&self) -> u64 {
        self.steps
    }

    fn set_step_count(&mut self, steps: u64) {
        self.steps = steps;
    }
}

fn walk(f: Factors, weights: &mut [f32], means: &[f32], first: &mut [f32], second: &mut [f32]) {
    for (((weight, mean), m), v) in weights.iter_mut().zip(means).zip(first).zip(second) {
        let gradient = mean + f.decay * *weight;
        *m += f.rest1 * (gradient - *m);
        *v = f.beta2 * *v + f.rest2 * gradient * gradient;
        *weight = f.stay * *weight - f.size * (*m / (v.sqrt() * f.per_root + f.epsilon));
    }
}
