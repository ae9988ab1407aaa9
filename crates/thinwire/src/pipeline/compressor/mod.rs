//! From a gradient to a frame, by a recipe.

mod agree;
mod draft;
mod encode;

use std::ops::Range;
use std::time::Instant;

use super::recipe::Recipe;
use super::report::Report;
use super::spectrum::Spectrum;
use super::unit::{Unit, divide};
use crate::kernels::{Cpu, Guess, Kernels, NonFinite, Score};
use crate::memory::{Memory, Progress, State, clip_factor};
use crate::transform::TransformKind;
use crate::{Bucket, Error, Result};
use draft::{Message, Step};

/// What one step brings.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The local gradient of the bucket.
    pub gradient: &'a [f32],
    /// The weights, for methods that look at them.
    pub weights: Option<&'a [f32]>,
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

impl<'a> Input<'a> {
    /// A gradient after warm-up, on one worker, with nothing else to say.
    pub fn new(gradient: &'a [f32]) -> Input<'a> {
        let progress = Progress { epoch: f64::INFINITY, ..Progress::default() };
        Input { gradient, weights: None, progress, plan: 0, workers: 1, norm: None, scale: 1.0 }
    }
}

/// Compresses one bucket step after step, keeping what was not sent. See the [module](super) for an example.
///
/// After the first steps it allocates nothing. A step that fails sends nothing, takes the gradient back out of
/// the memory, and leaves what selectors remember as it was.
#[derive(Debug)]
pub struct Compressor {
    recipe: Recipe,
    bucket: Bucket,
    memory: Memory,
    dense: Vec<Range<usize>>,
    units: Vec<Unit>,
    spectrum: Option<Spectrum>,
    message: Message,
    /// Of the step that is under way: the factor on the gradient, and whether this rank selected.
    scale: f32,
    chose: bool,
}

impl Compressor {
    /// A compressor for `bucket`, with an empty memory.
    pub fn new(recipe: Recipe, bucket: Bucket) -> Result<Compressor> {
        recipe.check()?;
        let (dense, units) = divide(&recipe, &bucket);
        let spectrum = match (recipe.transform, units.first()) {
            (TransformKind::Fft { block }, Some(unit)) => Some(Spectrum::new(&unit.ranges, block)?),
            _ => None,
        };
        // A method that sends everything has nothing to remember.
        let remembered = if recipe.selector.is_some() { bucket.len() } else { 0 };
        let memory = Memory::new(remembered, recipe.update());
        let message = Message::default();
        Ok(Compressor { recipe, bucket, memory, dense, units, spectrum, message, scale: 1.0, chose: false })
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
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Bytes held beyond gradient, residual and momentum, and beyond the work space of the kernels.
    pub fn workspace_bytes(&self) -> usize {
        self.message.bytes() + self.spectrum.as_ref().map_or(0, Spectrum::bytes)
    }

    /// Compresses one gradient: appends a frame to `frame`. One `cpu` serves any number of compressors.
    pub fn compress(&mut self, cpu: &mut Cpu, input: &Input<'_>, frame: &mut Vec<u8>) -> Result<Report> {
        let mut report = self.begin(cpu, input, true)?;
        if let Err(error) = self.encode(input, frame, &mut report) {
            self.cancel(cpu, input);
            return Err(error);
        }
        self.commit(cpu);
        Ok(report)
    }

    /// First part of a step: the gradient enters the memory and, if this rank `chooses`, what to send is
    /// selected. A step that was begun is ended by [`commit`](Compressor::commit) or
    /// [`cancel`](Compressor::cancel); after an error nothing was begun.
    pub(crate) fn begin(&mut self, cpu: &mut Cpu, input: &Input<'_>, chooses: bool) -> Result<Report> {
        self.bucket.check_len("gradient", input.gradient.len())?;
        if let Some(weights) = input.weights {
            self.bucket.check_len("weights", weights.len())?;
        }
        let begun = Instant::now();
        let mut report = Report { elements: self.bucket.len(), ..Report::default() };
        (self.scale, self.chose) = (self.scale_of(cpu, input)?, chooses);
        let density = self.density(input.progress);
        self.message.clear();
        let step = Step { input, scale: self.scale, density, chooses };
        if let Err(error) = self.draft(cpu, step, &mut report) {
            self.cancel(cpu, input);
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
    pub fn save(&self) -> State {
        let mut state = self.save_selectors();
        self.memory.save(&self.bucket, &mut state);
        state
    }

    /// The same, for the end of the compressor: what was kept is never there twice.
    pub(crate) fn into_state(self) -> State {
        let mut state = self.save_selectors();
        self.memory.move_to(&self.bucket, &mut state);
        state
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
    fn scale_of(&self, cpu: &mut Cpu, input: &Input<'_>) -> Result<f32> {
        let Some(limit) = self.recipe.clip else { return Ok(input.scale) };
        let norm = match input.norm {
            Some(norm) => norm,
            None => {
                let measured = cpu.statistics(input.gradient, &[0..self.bucket.len()]);
                let squares =
                    measured.map_err(|found| non_finite(&self.bucket, "gradient", found))?.sum_squares;
                if squares.is_finite() { squares.sqrt() } else { norm_of_huge(input.gradient) }
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
        Ok(input.scale * clip_factor(norm, limit, input.workers) as f32)
    }

    /// Ends a step that did not happen: takes the gradient back out of everything it had entered.
    pub(crate) fn cancel(&mut self, cpu: &mut Cpu, input: &Input<'_>) {
        let remembers = !self.memory.residual.is_empty();
        for draft in self.message.drafts.iter().filter(|_| remembers) {
            let walk = self.memory.walk(input.gradient, None, self.scale, Score::Magnitude);
            match draft.unit {
                Some(number) => cpu.withdraw(walk, &self.units[number].ranges),
                None => cpu.withdraw(walk, std::slice::from_ref(&draft.universe)),
            }
        }
        self.message.clear();
    }
}

/// The norm of a gradient whose squares are beyond the range of `f32`.
pub(crate) fn norm_of_huge(gradient: &[f32]) -> f64 {
    gradient.iter().map(|&g| g as f64 * g as f64).sum::<f64>().sqrt()
}

pub(crate) fn non_finite(bucket: &Bucket, what: &'static str, found: NonFinite) -> Error {
    let (layer, index) = bucket.layer_at(found.position);
    Error::NonFinite { what, layer: layer.name().to_owned(), index, value: found.value }
}
