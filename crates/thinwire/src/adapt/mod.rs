//! What sets method, density and collective to the network and the gradients at hand.
//!
//! | module | what |
//! |---|---|
//! | [`cost`] | the papers' formulas for the papers' collectives |
//! | [`price`] | what a step of thinwire itself takes, by any method |
//! | [`probe`] | what the network and the machines really do, measured |
//! | [`Limits`] | what a user allows |

pub mod cost;
mod limits;
pub mod price;
pub mod probe;

pub use limits::{Limits, Pick, Solver};
