//! From a gradient to a frame, by a recipe.

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
        let progress = Progress { step: 0, epoch: f64::INFINITY };
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
        Ok(Compressor { recipe, bucket, memory, dense, units, spectrum, message: Message::default() })
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
        self.bucket.check_len("gradient", input.gradient.len())?;
        if let Some(weights) = input.weights {
            self.bucket.check_len("weights", weights.len())?;
        }
        let begun = Instant::now();
        let mut report = Report { elements: self.bucket.len(), ..Report::default() };
        let scale = self.scale(cpu, input)?;
        let density = self.recipe.warmup.density(self.recipe.density, input.progress);

        self.message.clear();
        let before = frame.len();
        let drafted = self.draft(cpu, Step { input, scale, density }, &mut report);
        let selected = Instant::now();
        if let Err(error) = drafted.and_then(|()| self.encode(input, frame, &mut report)) {
            frame.truncate(before);
            self.withdraw(cpu, input, scale);
            return Err(error);
        }
        self.commit(cpu);
        report.select_time = selected - begun;
        report.encode_time = selected.elapsed();
        report.frame_bytes = frame.len() - before;
        Ok(report)
    }

    /// Everything that must be saved for a run to go on with the same bits.
    pub fn save(&self) -> State {
        let mut state = State { method: self.recipe.spec.clone(), ..State::default() };
        self.memory.save(&self.bucket, &mut state);
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
    fn scale(&self, cpu: &mut Cpu, input: &Input<'_>) -> Result<f32> {
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

    /// After an error: takes the gradient back out of everything it had entered.
    fn withdraw(&mut self, cpu: &mut Cpu, input: &Input<'_>, scale: f32) {
        if self.memory.residual.is_empty() {
            return;
        }
        for draft in &self.message.drafts {
            let walk = self.memory.walk(input.gradient, None, scale, Score::Magnitude);
            match draft.unit {
                Some(number) => cpu.withdraw(walk, &self.units[number].ranges),
                None => cpu.withdraw(walk, std::slice::from_ref(&draft.universe)),
            }
        }
    }
}

/// The norm of a gradient whose squares are beyond the range of `f32`.
fn norm_of_huge(gradient: &[f32]) -> f64 {
    gradient.iter().map(|&g| g as f64 * g as f64).sum::<f64>().sqrt()
}

fn non_finite(bucket: &Bucket, what: &'static str, found: NonFinite) -> Error {
    let (layer, index) = bucket.layer_at(found.position);
    Error::NonFinite { what, layer: layer.name().to_owned(), index, value: found.value }
}
