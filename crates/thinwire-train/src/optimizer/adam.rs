//! `adam` (Kingma and Ba, arXiv 1412.6980) and `adamw` (Loshchilov and Hutter, arXiv 1711.05101), in PyTorch's
//! conventions, with bias correction.
//!
//! They differ in the decay: `adam` adds it to the gradient, `adamw` takes `lr * decay` of the weights.
//!
//! **Under a sparse method** the means hold sums of several steps at some elements and nothing at others; their squares
//! would ruin the second moment. So it is taken from full steps alone (the warm-up) and stays as it is then (1-bit Adam,
//! arXiv 2102.02888), and the momentum is in the method's memory: the means of sparse steps are sums of it. A sparse
//! step is `weight -= lr * (1 - beta1) * mean / denominator`, where the denominator is the root of the second moment
//! plus a thousandth of its mean over the bucket. It takes the memory of the first moment. No element moves by more than
//! `lr / density`, about as far as Adam takes it in the steps from one arrival to the next: the second moment of one that
//! had few gradients in the warm-up says nothing. `thinwire.torch.AdamW` does the same for PyTorch.

use thinwire::method::{Kind, Parameter, Parameters};

use super::pieces::Pieces;
use super::{Build, Layout, Optimizer, no_such_state, replace};
use crate::Result;
use crate::catalog::Choice;

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
    /// Whether the means of sparse steps are sums of momentum.
    local_momentum: bool,
    /// The first moment; or after a sparse step, if `frozen`, the denominators.
    first: Vec<Vec<f32>>,
    second: Vec<Vec<f32>>,
    frozen: bool,
    /// Full steps.
    steps: u64,
}

/// Of the mean of a bucket's denominators, what is added to each.
const FLOOR: f64 = 1e-3;

fn build(parameters: &Parameters, layout: Layout<'_>, decoupled: bool) -> Result<Box<dyn Optimizer>> {
    let zeros = || layout.lengths.iter().map(|&length| vec![0.0; length]).collect();
    Ok(Box::new(Adam {
        name: parameters.method(),
        pieces: Pieces::of(layout, parameters.number("decay"))?,
        beta1: parameters.number("beta1"),
        beta2: parameters.number("beta2"),
        epsilon: parameters.number("epsilon") as f32,
        decoupled,
        local_momentum: layout.momentum_in_memory,
        first: zeros(),
        second: zeros(),
        frozen: false,
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
    fn step(&mut self, lr: f64, density: f64, weights: &mut [Vec<f32>], means: &[Vec<f32>]) {
        Pieces::check(&self.pieces, weights, means);
        // Without a full step before there is nothing to go by but the means.
        if self.local_momentum && density < 1.0 && self.steps > 0 {
            return self.sparse_step(lr, density, weights, means);
        }
        if std::mem::take(&mut self.frozen) {
            self.first.iter_mut().for_each(|moment| moment.fill(0.0));
        }
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
        vec![(self.first_name(), self.first.as_slice()), ("second_moment", self.second.as_slice())]
    }

    fn restore(&mut self, name: &str, values: Vec<Vec<f32>>) -> Result<()> {
        match name {
            "first_moment" | "denominator" => {
                self.frozen = name == "denominator";
                replace(name, &mut self.first, values)
            }
            "second_moment" => replace(name, &mut self.second, values),
            _ => Err(no_such_state(self.name, name, "first_moment or denominator, second_moment")),
        }
    }

    fn step_count(&self) -> u64 {
        self.steps
    }

    fn set_step_count(&mut self, steps: u64) {
        self.steps = steps;
    }
}

impl Adam {
    /// What `first` holds.
    fn first_name(&self) -> &'static str {
        if self.frozen { "denominator" } else { "first_moment" }
    }

    /// A step whose means are sums of momentum.
    fn sparse_step(&mut self, lr: f64, density: f64, weights: &mut [Vec<f32>], means: &[Vec<f32>]) {
        if !std::mem::replace(&mut self.frozen, true) {
            self.make_denominators();
        }
        let (size, most) = ((lr * (1.0 - self.beta1)) as f32, (lr / density) as f32);
        for (bucket, pieces) in self.pieces.iter().enumerate() {
            for (range, decay) in &pieces.all {
                let taken = (lr * f64::from(*decay)) as f32;
                let both = means[bucket][range.clone()].iter().zip(&self.first[bucket][range.clone()]);
                for (weight, (mean, denominator)) in weights[bucket][range.clone()].iter_mut().zip(both) {
                    let decayed =
                        if self.decoupled { taken * *weight } else { taken * *weight / denominator };
                    *weight -= decayed + (size * (mean / denominator)).clamp(-most, most);
                }
            }
        }
    }

    fn make_denominators(&mut self) {
        let power = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let per_root = (1.0 / (1.0 - self.beta2.powi(power)).sqrt()) as f32;
        for (denominators, squares) in self.first.iter_mut().zip(&self.second) {
            let roots = squares.iter().map(|square| square.sqrt() * per_root);
            denominators.iter_mut().zip(roots).for_each(|(denominator, root)| *denominator = root);
            let total: f64 = denominators.iter().map(|&root| f64::from(root)).sum();
            let floor = (FLOOR * total / denominators.len().max(1) as f64) as f32 + self.epsilon;
            denominators.iter_mut().for_each(|denominator| *denominator += floor);
        }
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
