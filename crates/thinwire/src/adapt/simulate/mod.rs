//! A training that does not happen: workers, links and the real controller, in simulated time.
//!
//! The controller is the very object that runs in a training, told what it would be told there, as late as it would be
//! told. What a step takes is not read off the formulas of [`price`](super::price) but played through rank by rank:
//! everybody computes for a time of its own, arrives, exchanges, and goes on when its part of the exchange is over. On
//! ranks that are all alike both give the same.
//!
//! | file | what |
//! |---|---|
//! | `timetable.rs` | [`Timetable`]: which network holds when; the papers' C1 and C2 |
//! | `cluster.rs` | [`Cluster`]: workers, how fast each is, how even their links; noise |
//! | `collective.rs` | [`Wires`]: when each rank is through with a collective that ranks come to at unlike times |
//! | `gains.rs` | [`Gains`]: what a density sends of a made-up gradient |
//! | `clock.rs` | [`Clock`]: one step of all ranks, and one probe |
//! | `auto.rs` | the controller at work, with the delays of a training |
//! | `oracle.rs` | what somebody would choose who knows everything beforehand |
//! | `run.rs` | [`run`]: all steps of one driver |
//! | `compare.rs` | [`compare`]: a controller, the oracle and fixed choices side by side |
//!
//! Everything random is a function of the seed, the step and the rank: two runs give the same bits, and all drivers
//! meet the same weather. What progress a training makes is *not* simulated: a step that sends less is a step here.
//! `docs/simulate.md` says more.
//!
//! ```
//! use thinwire::adapt::simulate::{Cluster, Driver, Gains, Scene, Timetable, run};
//!
//! let scene = Scene {
//!     cluster: Cluster { workers: 8, compute: 0.1, ..Cluster::default() },
//!     timetable: Timetable::c1(),
//!     buckets: vec![25_557_032],
//!     gains: Gains::default(),
//!     steps: 200,
//! };
//! let auto = run(&scene, &Driver::parse("auto", &scene)?, &mut |_| ())?;
//! let dense = run(&scene, &Driver::parse("dense", &scene)?, &mut |_| ())?;
//! assert!(auto.seconds() < 0.5 * dense.seconds());
//! # Ok::<(), thinwire::Error>(())
//! ```

mod auto;
mod clock;
mod cluster;
mod collective;
mod compare;
mod gains;
mod oracle;
mod run;
#[cfg(test)]
mod tests;
mod timetable;

pub use clock::Clock;
pub use cluster::{Cluster, Slow};
pub use collective::Wires;
pub use compare::{Comparison, Regret, compare, regret};
pub use gains::Gains;
pub use run::{Driver, Run, Step, run};
pub use timetable::Timetable;

/// The most workers of a simulation.
pub const MOST_WORKERS: usize = 4096;

/// What is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// The workers.
    pub cluster: Cluster,
    /// Which network holds when.
    pub timetable: Timetable,
    /// Elements of each bucket of the gradient.
    pub buckets: Vec<usize>,
    /// What a density sends of it.
    pub gains: Gains,
    /// Steps of the run.
    pub steps: usize,
}
