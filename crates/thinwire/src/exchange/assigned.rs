//! What a controller wants of a bucket: another method, another density, other algorithms.

use super::lane::{Algorithms, Lane};
use crate::Result;
use crate::kernels::Kernels;
use crate::memory::Progress;
use crate::pipeline::Recipe;

/// What a bucket has been told. With a fixed method: nothing.
#[derive(Debug, Default)]
pub(super) struct Assigned {
    pub algorithms: Option<Algorithms>,
    density: Option<f64>,
    /// A method without a memory, to be taken once the memory is empty: until then everything is sent through it.
    after_flush: Option<Recipe>,
    /// Whether something may be left in the memory.
    keeps: bool,
}

impl Assigned {
    /// The progress with the density of this bucket.
    pub fn progress(&self, progress: Progress) -> Progress {
        let density = if self.after_flush.is_some() { Some(1.0) } else { self.density.or(progress.density) };
        Progress { density, ..progress }
    }
}

impl<K: Kernels> Lane<K> {
    /// From the next step on this bucket travels by another method, with what it has kept. Where that method sends
    /// everything and keeps nothing, one more step of the method before sends what was kept, with all the rest.
    pub fn assign(&mut self, kernels: &mut K, recipe: Recipe, algorithms: Algorithms) -> Result<()> {
        self.assigned.algorithms = Some(algorithms);
        if !recipe.remembers() && self.assigned.keeps {
            self.assigned.after_flush = Some(recipe);
            return Ok(());
        }
        self.assigned.after_flush = None;
        self.take(kernels, recipe)
    }

    /// The density from the next step on.
    pub fn assign_density(&mut self, density: f64) {
        self.assigned.density = Some(density);
    }

    /// Something may be left in the memory, whatever this bucket did before.
    pub fn may_keep(&mut self) {
        self.assigned.keeps = true;
    }

    /// A step of this bucket is over, and counts.
    pub(super) fn end_flush(&mut self, kernels: &mut K) -> Result<()> {
        self.assigned.keeps |= self.compressor.recipe().remembers();
        match self.assigned.after_flush.take() {
            None => Ok(()),
            Some(recipe) => {
                self.assigned.keeps = false;
                self.take(kernels, recipe)
            }
        }
    }

    fn take(&mut self, kernels: &mut K, recipe: Recipe) -> Result<()> {
        if self.compressor.recipe().spec == recipe.spec {
            return Ok(());
        }
        self.aggregator = Self::aggregator_for(kernels, &recipe, self.compressor.bucket())?;
        self.compressor.change(kernels, recipe)
    }
}
