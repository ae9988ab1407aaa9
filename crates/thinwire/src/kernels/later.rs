//! Selections whose end is put off, so that a device is waited for once and not for each unit.

use super::{Guess, Statistics};

/// What [`Kernels::finish_later`](super::Kernels::finish_later) has come to.
#[derive(Debug)]
pub enum Finished<L> {
    /// The selection is at its end, as after [`Kernels::finish`](super::Kernels::finish).
    Now(Statistics),
    /// It is ended by [`Kernels::finish_all`](super::Kernels::finish_all).
    Later(L),
}

/// The end of a selection that was put off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// How many elements are kept: at most as many as the lists had grown by.
    pub kept: usize,
    /// The statistics of the unit.
    pub statistics: Statistics,
    /// What was learnt, in place of the guess that the survey was given.
    pub guess: Guess,
}
