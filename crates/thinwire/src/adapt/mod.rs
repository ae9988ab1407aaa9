//! What sets method, density and collective to the network and the gradients at hand.
//!
//! So far these are the parts that everything else will stand on: [`cost`], what a step takes on a given network,
//! by formula, and [`search`], which finds the densities worth having and picks one.

pub mod cost;
pub mod search;
