//! What sets method, density and collective to the network and the gradients at hand.
//!
//! So far this is the part that everything else will stand on: [`cost`], what a step takes on a given network,
//! by formula.

pub mod cost;
