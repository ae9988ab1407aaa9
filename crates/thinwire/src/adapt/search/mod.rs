//! Finding the density by what it does to several things at once.
//!
//! AR-Topk wants a density with little time to communicate and much compression gain. No density is best in both,
//! so it searches for all that are worth having, those for which nothing else is better in one objective and no
//! worse in the other (the front), and picks one of them.
//!
//! | file | what it does | paper |
//! |---|---|---|
//! | [`nsga2`] | [`nsga2::search`]: the front, by a population | AR-Topk by way of pymoo; Deb et al. 2002 |
//! | `grid.rs` | [`grid()`]: the front, by trying values side by side | ours; what the other is measured against |
//! | [`pick`] | [`pick::asf`], [`pick::knee`]: one point of a front | AR-Topk's code, AR-Topk's text |
//! | `pareto.rs` | [`Point::dominates`], [`front()`], the sort and the crowding distance of NSGA-II | Deb et al. 2002 |
//! | `interval.rs` | [`Interval`] to search in, [`Scale`] | |
//!
//! One real variable, any number of objectives, all to be made small. Nothing here knows what they mean.
//!
//! A time that rises with the density and a 1/gain that falls make every density worth having. Then the front is
//! the whole interval and the weights of the pick alone decide; NSGA-II is there to do what the paper does, and the
//! grid does it with half the evaluations and in a twentieth of the time.
//!
//! ```
//! use thinwire::adapt::search::{Interval, Scale, grid, nsga2, pick};
//!
//! // 1 ms and 2 s for a density of 1; a gain of c to the power of 0.3.
//! let objectives = |c: f64| [1e-3 + 2.0 * c, c.powf(-0.3)];
//! let densities = Interval::new(0.001, 0.1, Scale::Logarithmic)?;
//! let oracle = pick::asf(&grid(densities, grid::POINTS, objectives), pick::PAPER_WEIGHTS).unwrap();
//! assert!((oracle.x - 0.0167).abs() < 2e-4);
//!
//! // The paper's settings: 40 points of the front, of which the best lies near.
//! let front = nsga2::search(Interval::default(), nsga2::Settings::default(), objectives);
//! let found = pick::asf(&front, pick::PAPER_WEIGHTS).unwrap();
//! assert!((found.x / oracle.x).ln().abs() < 0.1);
//!
//! // The front of all points that were tried on the way.
//! let settings = nsga2::Settings { archive: true, ..Default::default() };
//! let front = nsga2::search(Interval::default(), settings, objectives);
//! let found = pick::asf(&front, pick::PAPER_WEIGHTS).unwrap();
//! assert!((found.x / oracle.x).ln().abs() < 0.05);
//! # Ok::<(), thinwire::Error>(())
//! ```

pub mod grid;
mod interval;
pub mod nsga2;
mod pareto;
pub mod pick;

pub use grid::grid;
pub use interval::{Interval, Scale};
pub use pareto::{Point, front};

#[cfg(test)]
mod tests;
