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

    /// The density from the next step on, for a method that selects. To one that sends everything in a few bits, a
    /// density of 1 would mean all of their bits.
    pub fn assign_density(&mut self, density: f64) {
        self.assigned.density = self.compressor.recipe().selector.is_some().then_some(density);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Route, Situation};
    use crate::group::{Algorithm, Group, Local};
    use crate::kernels::Cpu;
    use crate::{Bucket, method};

    const ELEMENTS: usize = 1000;
    const RANKS: usize = 3;

    /// Steps by one method after the other: the means, and what is kept at the end.
    fn steps(mut group: Local, methods: &[&str]) -> (Vec<Vec<f32>>, Vec<f32>) {
        let (rank, mut kernels) = (group.rank(), Cpu::new(1));
        let bucket = Bucket::single("x", ELEMENTS).unwrap();
        let mut lane = Lane::new(&mut kernels, method::parse("topk").unwrap(), bucket).unwrap();
        let mut means = Vec::new();
        for (step, name) in methods.iter().enumerate() {
            let algorithms = Algorithms { sum: Algorithm::Ring, spread: Algorithm::Tree };
            lane.assign(&mut kernels, method::parse(name).unwrap(), algorithms).unwrap();
            // A density is for methods that select: in a few bits, 1 would mean all of them.
            lane.assign_density(if *name == "topk" { 0.1 } else { 1.0 });
            lane.begin();
            let progress = Progress { step: step as u64, ..Progress::default() };
            let situation = Situation { progress, plan: 0, norm: None, share: 1.0, reduces_dense: false };
            let mut gradient = gradient(rank, step);
            let mut route = Route { group: &mut group, kernels: &mut kernels, algorithms: None };
            assert!(lane.travel(&mut route, &situation, &mut gradient, None).unwrap());
            lane.settle(&mut kernels, &situation, RANKS, &mut gradient).unwrap();
            means.push(gradient);
        }
        (means, lane.compressor().memory().residual.clone())
    }

    fn gradient(rank: usize, step: usize) -> Vec<f32> {
        let word = |i: usize| crate::select::mix((1_000_000 * step + 10_000 * rank + i) as u64) % 2001;
        (0..ELEMENTS).map(|i| word(i) as f32 / 1000.0 - 1.0).collect()
    }

    /// What went in and has not come out is kept, whichever way the method changes, and `dense` leaves nothing behind.
    #[test]
    fn a_residual_goes_from_quantised_to_dense_and_back() {
        for methods in [
            &["quantized", "quantized", "dense", "dense"][..],
            &["quantized", "dense", "quantized:bits=8", "topk", "topk"],
            &["topk", "quantized:bits=8", "quantized", "topk", "dense:values=bf16", "dense", "quantized"],
        ] {
            let ranks = Local::run(RANKS, |group| steps(group, methods));
            for place in 0..ELEMENTS {
                let given: f32 = (0..methods.len())
                    .flat_map(|step| (0..RANKS).map(move |rank| gradient(rank, step)[place]))
                    .sum();
                let sent: f32 = ranks[0].0.iter().map(|mean| RANKS as f32 * mean[place]).sum();
                let kept: f32 = ranks.iter().map(|(_, residual)| residual[place]).sum();
                assert!((given - sent - kept).abs() < 1e-4, "{methods:?}, {place}: {given} {sent} {kept}");
            }
            assert!(ranks.iter().all(|(means, _)| means == &ranks[0].0), "{methods:?}: replicas differ");
            let empty = ranks.iter().all(|(_, residual)| residual.iter().all(|kept| *kept == 0.0));
            assert_eq!(empty, methods.last() == Some(&"dense"), "{methods:?}");
        }
    }

    #[test]
    fn a_density_of_1_does_not_make_a_few_bits_many() {
        let ranks = Local::run(RANKS, |group| steps(group, &["quantized"]));
        assert!(ranks[0].1.iter().any(|kept| *kept != 0.0), "nothing was rounded");
    }
}
