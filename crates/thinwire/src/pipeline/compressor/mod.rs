//! From a gradient to a frame, by a recipe.

mod agree;
mod draft;
mod encode;

use std::ops::Range;
use std::time::Instant;

use super::recipe::Recipe;
use super::report::Report;
use super::unit::{Unit, divide};
use crate::kernels::{Cpu, Fault, Guess, Kernels, Score, Spectrum, Vector};
use crate::memory::{Memory, Progress, State, clip_factor};
use crate::transform::TransformKind;
use crate::{Bucket, Error, Result};
use draft::{Message, Step};

/// What one step brings, on the CPU.
pub type Input<'a> = InputOn<'a, Cpu>;

/// What one step brings, with gradients in the memory of any device.
#[derive(Debug)]
pub struct InputOn<'a, K: Kernels> {
    /// The local gradient of the bucket.
    pub gradient: &'a K::Gradient,
    /// The weights, for methods that look at them.
    pub weights: Option<&'a K::Gradient>,
    /// Where the training is: sets the density while it warms up.
    pub progress: Progress,
    /// The number of the agreed plan, carried in the frame.
    pub plan: u32,
    /// How many workers there are, for local clipping.
    pub workers: usize,
    /// The norm of the whole local gradient, where this bucket is only a part of it; local clipping is by that.
    /// `None`: the bucket's own.
    pub norm: Option<f64>,
    /// A factor on the gradient, such as this rank's share in a weighted mean.
    pub scale: f32,
}

impl<'a, K: Kernels> InputOn<'a, K> {
    /// A gradient after warm-up, on one worker, with nothing else to say.
    pub fn new(gradient: &'a K::Gradient) -> InputOn<'a, K> {
        let progress = Progress { epoch: f64::INFINITY, ..Progress::default() };
        InputOn { gradient, weights: None, progress, plan: 0, workers: 1, norm: None, scale: 1.0 }
    }
}

impl<K: Kernels> Clone for InputOn<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kernels> Copy for InputOn<'_, K> {}

/// Compresses one bucket step after step, keeping what was not sent. See the [module](super) for an example.
///
/// After the first steps it allocates nothing. A step that fails sends nothing, takes the gradient back out of
/// the memory, and leaves what selectors remember as it was.
#[derive(Debug)]
pub struct Compressor<K: Kernels = Cpu> {
    recipe: Recipe,
    bucket: Bucket,
    memory: Memory<K::Vector>,
    dense: Vec<Range<usize>>,
    units: Vec<Unit>,
    /// The units in the order of their names, and the place of each there. Shares are rounded in this order, because
    /// the order in the bucket may be another one in a resumed run.
    by_name: Vec<usize>,
    places: Vec<usize>,
    /// How many elements each unit is asked for in the step that is under way, in the order of their names.
    shares: Vec<usize>,
    spectrum: Option<K::Spectrum>,
    message: Message<K>,
    /// Of the step that is under way: the factor on the gradient, and whether this rank selected.
    scale: f32,
    chose: bool,
}

impl Compressor {
    /// A compressor for `bucket` on the CPU, with an empty memory.
    pub fn new(recipe: Recipe, bucket: Bucket) -> Result<Compressor> {
        Compressor::on(&mut Cpu::new(1), recipe, bucket)
    }
}

impl<K: Kernels> Compressor<K> {
    /// The same on any device.
    pub fn on(kernels: &mut K, recipe: Recipe, bucket: Bucket) -> Result<Compressor<K>> {
        // A method that sends everything has nothing to remember.
        let remembered = if recipe.remembers() { bucket.len() } else { 0 };
        let memory = Memory::new(kernels, remembered, recipe.update())?;
        Compressor::with_memory(kernels, recipe, bucket, memory)
    }

    fn with_memory(
        kernels: &mut K,
        recipe: Recipe,
        bucket: Bucket,
        memory: Memory<K::Vector>,
    ) -> Result<Compressor<K>> {
        recipe.check()?;
        recipe.check_fixed()?;
        let (dense, units) = divide(&recipe, &bucket);
        let spectrum = match (recipe.transform, units.first()) {
            (TransformKind::Fft { block }, Some(unit)) => Some(kernels.spectrum(&unit.ranges, block)?),
            _ => None,
        };
        let message = Message::new(kernels);
        let shares = Vec::with_capacity(units.len());
        let mut by_name: Vec<usize> = (0..units.len()).collect();
        by_name.sort_by(|&a, &b| units[a].name.cmp(&units[b].name));
        let mut places = vec![0; units.len()];
        by_name.iter().enumerate().for_each(|(place, &unit)| places[unit] = place);
        let (scale, chose) = (1.0, false);
        Ok(Compressor {
            recipe,
            bucket,
            memory,
            dense,
            units,
            by_name,
            places,
            shares,
            spectrum,
            message,
            scale,
            chose,
        })
    }

    /// Goes on by another recipe, with what was kept; what selectors remember begins anew. A recipe that keeps nothing
    /// leaves the memory as it is. A recipe that keeps something can only follow another one that did.
    pub(crate) fn change(&mut self, kernels: &mut K, recipe: Recipe) -> Result<()> {
        let nothing = Memory::new(kernels, 0, self.memory.update)?;
        let memory = std::mem::replace(&mut self.memory, nothing);
        *self = Compressor::with_memory(kernels, recipe, self.bucket.clone(), memory)?;
        Ok(())
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// What is kept for later.
    pub fn memory(&self) -> &Memory<K::Vector> {
        &self.memory
    }

    /// The same, for an exchange that works on it by itself.
    pub(crate) fn memory_mut(&mut self) -> &mut Memory<K::Vector> {
        &mut self.memory
    }

    /// Bytes held beyond gradient, residual and momentum, and beyond the work space of the kernels.
    pub fn workspace_bytes(&self) -> usize {
        self.message.bytes() + self.spectrum.as_ref().map_or(0, Spectrum::bytes)
    }

    /// Compresses one gradient: appends a frame to `frame`. The same kernels serve any number of compressors.
    pub fn compress(
        &mut self,
        kernels: &mut K,
        input: &InputOn<'_, K>,
        frame: &mut Vec<u8>,
    ) -> Result<Report> {
        let mut report = self.begin(kernels, input, true)?;
        if let Err(error) = self.encode(kernels, input, frame, &mut report) {
            self.cancel(kernels, input)?;
            return Err(error);
        }
        self.commit(kernels)?;
        Ok(report)
    }

    /// First part of a step: the gradient enters the memory and, if this rank `chooses`, what to send is
    /// selected. A step that was begun is ended by [`commit`](Compressor::commit) or
    /// [`cancel`](Compressor::cancel); after an error nothing was begun.
    pub(crate) fn begin(&mut self, kernels: &mut K, input: &InputOn<'_, K>, chooses: bool) -> Result<Report> {
        self.bucket.check_len("gradient", K::elements(input.gradient))?;
        if let Some(weights) = input.weights {
            self.bucket.check_len("weights", K::elements(weights))?;
        }
        let begun = Instant::now();
        let mut report = Report { elements: self.bucket.len(), ..Report::default() };
        (self.scale, self.chose) = (self.scale_of(kernels, input)?, chooses);
        let density = self.density(input.progress);
        self.memory.update = self.recipe.update_in(self.is_dense_at(density));
        self.message.clear();
        let step = Step { input, scale: self.scale, density, chooses };
        if let Err(error) = self.draft(kernels, step, &mut report) {
            self.cancel(kernels, input)?;
            return Err(error);
        }
        report.select_time = begun.elapsed();
        Ok(report)
    }

    /// The density at this point of the training.
    pub(crate) fn density(&self, progress: Progress) -> f64 {
        self.recipe.warmup.density(self.recipe.density, progress)
    }

    /// Whether everything is sent at this point of the training.
    pub(crate) fn is_dense(&self, progress: Progress) -> bool {
        self.is_dense_at(self.density(progress))
    }

    /// Everything that must be saved for a run to go on with the same bits.
    pub fn save(&self) -> Result<State> {
        let mut state = self.save_selectors();
        self.memory.save(&self.bucket, &mut state)?;
        Ok(state)
    }

    /// The same, for the end of the compressor: what was kept is never there twice.
    pub(crate) fn into_state(self) -> Result<State> {
        let mut state = self.save_selectors();
        self.memory.move_to(&self.bucket, &mut state)?;
        Ok(state)
    }

    /// The part of it without residual and momentum.
    fn save_selectors(&self) -> State {
        let mut state = State { method: self.recipe.spec.clone(), ..State::default() };
        for unit in &self.units {
            let remembered = unit.selector.state().into_iter().map(|(name, value)| (name.to_owned(), value));
            state.selectors.insert(unit.name.clone(), remembered.collect());
        }
        state
    }

    /// Takes this bucket's part of a saved state; the rest of it may belong to other buckets.
    ///
    /// The residual and momentum of every layer must be there. What selectors remember is taken where it
    /// fits: after a change of method they begin anew.
    pub fn restore(&mut self, state: &State) -> Result<()> {
        self.memory.restore(&self.bucket, state)?;
        for unit in &mut self.units {
            (unit.selector, unit.guess) = (unit.selector.fresh(), Guess::default());
            for (name, &value) in state.selectors.get(&unit.name).into_iter().flatten() {
                unit.selector.restore(name, value);
            }
        }
        Ok(())
    }

    /// The factor on this step's gradient: the caller's, and local clipping.
    fn scale_of(&self, kernels: &mut K, input: &InputOn<'_, K>) -> Result<f32> {
        let Some(limit) = self.recipe.clip else { return Ok(input.scale) };
        let norm = match input.norm {
            Some(norm) => norm,
            None => {
                let measured = kernels.statistics(input.gradient, &[0..self.bucket.len()]);
                let squares =
                    measured.map_err(|fault| fault_in(&self.bucket, "gradient", fault))?.sum_squares;
                if squares.is_finite() { squares.sqrt() } else { kernels.norm_of_huge(input.gradient)? }
            }
        };
        if !norm.is_finite() {
            return Err(Error::BadParameter {
                method: self.recipe.spec.clone(),
                name: "norm".into(),
                value: norm.to_string(),
                expected: "the finite norm of the whole gradient".into(),
            });
        }
        // The papers clip what enters the sum. A rank with a larger share of the samples enters with more.
        let entering = norm * f64::from(input.scale.abs());
        Ok(input.scale * clip_factor(entering, limit, input.workers) as f32)
    }

    /// Ends a step that did not happen: takes the gradient back out of everything it had entered.
    pub(crate) fn cancel(&mut self, kernels: &mut K, input: &InputOn<'_, K>) -> Result<()> {
        if !self.message.later.is_empty() {
            // Their walks may have yet to begin. What comes of them does not matter any more.
            let later = self.message.later.drain(..).map(|(_, later)| later).collect();
            let _ = kernels.finish_all(later, &mut self.message.positions, &mut self.message.values);
        }
        let remembers = !self.memory.residual.is_empty();
        for draft in self.message.drafts.iter().filter(|_| remembers) {
            let walk = self.memory.walk(input.gradient, None, self.scale, Score::Magnitude);
            match draft.unit {
                Some(number) => kernels.withdraw(walk, &self.units[number].ranges)?,
                None => kernels.withdraw(walk, std::slice::from_ref(&draft.universe))?,
            }
        }
        self.message.clear();
        Ok(())
    }
}

/// A fault as an error that names the layer.
pub(crate) fn fault_in(bucket: &Bucket, what: &'static str, fault: Fault) -> Error {
    match fault {
        Fault::Failed(error) => error,
        Fault::NonFinite(found) => {
            let (layer, index) = bucket.layer_at(found.position);
            Error::NonFinite { what, layer: layer.name().to_owned(), index, value: found.value }
        }
    }
}
