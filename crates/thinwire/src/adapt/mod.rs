//! What sets method, density and collective to the network and the gradients at hand.
//!
//! | module | what |
//! |---|---|
//! | [`cost`] | the papers' formulas for the papers' collectives |
//! | [`price`] | what a step of thinwire itself takes, by any method |
//! | [`probe`] | what the network and the machines really do, measured |
//! | [`search`] | NSGA-II, a grid, and how one point is picked from a front |
//! | [`gain`] | what a density sends of the gradient, measured beside the training |
//! | [`estimate`] | the network, as the traffic itself shows it |
//! | [`solve`] | which way and which density, for what is known |
//! | [`controller`] | when to measure, when to decide |
//! | [`decision`] | what was decided, and why |
//! | [`simulate`] | a training that does not happen: workers, links and the real controller in simulated time |
//! | [`Limits`] | what a user allows |

pub mod controller;
pub mod cost;
pub mod decision;
pub mod estimate;
pub mod gain;
mod limits;
pub mod price;
pub mod probe;
pub mod search;
pub mod simulate;
pub mod solve;

pub use limits::{Limits, Pick, Solver};
