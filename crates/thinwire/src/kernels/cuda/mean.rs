//! The mean that takes the gradient's place: summed in 32 bits, and rounded once at the end where the gradient has
//! fewer.

use std::sync::Arc;

use super::device::Device;
use super::memory::{Buffer, Element, Gradient, copy};
use super::{Cuda, THREADS, launch};
use crate::Result;

/// Where the sums are made: in the gradient itself, or beside it.
#[derive(Debug)]
pub(super) struct Mean {
    beside: Buffer<f32>,
}

impl Mean {
    pub fn new(device: &Arc<Device>) -> Mean {
        Mean { beside: Buffer::empty(device) }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * self.beside.len()
    }

    /// The address of the sums of a mean that was begun.
    pub fn address(&self, mean: &Gradient) -> u64 {
        if mean.element() == Element::F32 { mean.address() } else { self.beside.address() }
    }
}

impl Cuda {
    pub(super) fn zero_mean(&mut self, mean: &Gradient) -> Result<()> {
        if mean.element() != Element::F32 {
            self.mean.beside.reserve(mean.len(), 0)?;
        }
        self.device.clear_at(self.mean.address(mean), 4 * mean.len())
    }

    /// A dense section, by addresses.
    pub(super) fn add_all(&self, what: u64, count: usize, factor: f32, to: u64) -> Result<()> {
        launch!(
            self.device,
            &self.vector,
            "add_all",
            self.grid(count),
            THREADS,
            what,
            count as u64,
            factor,
            to,
        )
    }

    /// Dense sections, at positions that differ, by addresses.
    pub(super) fn scatter_all(
        &self,
        positions: u64,
        what: u64,
        count: usize,
        factor: f32,
        to: u64,
    ) -> Result<()> {
        launch!(
            self.device,
            &self.vector,
            "scatter_all",
            self.grid(count),
            THREADS,
            positions,
            what,
            count as u64,
            factor,
            to,
        )
    }

    /// Rounds the sums into the gradient, where they were not made there.
    pub(super) fn round_mean(&mut self, mean: &Gradient) -> Result<()> {
        if mean.element() == Element::F32 {
            return Ok(());
        }
        self.narrow(self.mean.beside.address(), mean)
    }

    /// `gradient = values`, rounded to its numbers.
    pub(super) fn narrow(&self, values: u64, gradient: &Gradient) -> Result<()> {
        if gradient.element() == Element::F32 {
            return copy(&self.device, values, gradient.address(), 4 * gradient.len());
        }
        launch!(
            self.device,
            &self.vector,
            "narrow",
            self.grid(gradient.len()),
            THREADS,
            values,
            gradient.len() as u64,
            gradient.element().number(),
            gradient.address(),
        )
    }
}
