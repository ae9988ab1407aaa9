//! First half of a step: accumulate and select. Nothing is sent or forgotten yet.

use std::ops::Range;

use super::{Compressor, Input, non_finite};
use crate::kernels::{Cpu, Guess, Kernels, Score, Update, Walk};
use crate::pipeline::report::Report;
use crate::select::Survey;
use crate::{Error, Result};

/// What a step is about to send, until all of it is known to be good. Kept for its memory.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Chosen coordinates of all drafts, in the bucket or in the spectrum.
    pub positions: Vec<u32>,
    /// Their values; dense ones stand here too.
    pub values: Vec<f32>,
    pub drafts: Vec<Draft>,
    /// What leaders have named, for each unit.
    pub agreed: Vec<Vec<u32>>,
    /// Work space of the second half.
    pub relative: Vec<u32>,
    pub bytes: Vec<u8>,
    pub decoded: Vec<f32>,
}

/// One section to be: of a dense range, or of a unit.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// The unit, or `None` for a dense range.
    pub unit: Option<usize>,
    /// The coordinates there are to choose from.
    pub universe: Range<usize>,
    /// Which of `Message::positions` and `Message::values` are its own.
    pub positions: Range<usize>,
    pub values: Range<usize>,
    /// Whether the codec lost something that is kept: `Message::values` then holds that instead of the values.
    pub lossy: bool,
}

impl Message {
    pub fn clear(&mut self) {
        self.positions.clear();
        self.values.clear();
        self.drafts.clear();
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let agreed: usize = self.agreed.iter().map(Vec::capacity).sum();
        let words = self.positions.capacity() + self.relative.capacity() + agreed;
        let floats = self.values.capacity() + self.decoded.capacity();
        4 * (words + floats) + self.bytes.capacity() + self.drafts.capacity() * size_of::<Draft>()
    }

    /// Opens a draft at the end of the message.
    fn open(&mut self, unit: Option<usize>, universe: Range<usize>) {
        let (positions, values) = (self.positions.len(), self.values.len());
        let (positions, values) = (positions..positions, values..values);
        self.drafts.push(Draft { unit, universe, positions, values, lossy: false });
    }

    /// Closes the last draft over what was appended since: returns how many coordinates and which values.
    fn close(&mut self) -> (usize, &[f32]) {
        let draft = self.drafts.last_mut().expect("a draft was opened");
        draft.positions.end = self.positions.len();
        draft.values.end = self.values.len();
        (draft.positions.len(), &self.values[draft.values.clone()])
    }
}

/// What all parts of one step have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'a> {
    pub input: &'a Input<'a>,
    /// The factor on the gradient.
    pub scale: f32,
    /// The density of this step.
    pub density: f64,
    /// Whether this rank selects; otherwise the gradient only enters the memory, and others say what travels.
    pub chooses: bool,
}

impl Compressor {
    /// Accumulates and selects everything. Every draft in the message stands for a gradient that has entered
    /// the memory, also when this ends with an error.
    pub(super) fn draft(&mut self, cpu: &mut Cpu, step: Step<'_>, report: &mut Report) -> Result<()> {
        if self.is_dense_at(step.density) {
            let everything = 0..self.bucket.len();
            return if everything.is_empty() {
                Ok(())
            } else {
                self.draft_dense(cpu, everything, step, report)
            };
        }
        for number in 0..self.dense.len() {
            self.draft_dense(cpu, self.dense[number].clone(), step, report)?;
        }
        for number in 0..self.units.len() {
            if self.spectrum.is_some() {
                self.draft_spectrum(cpu, number, step, report)?;
            } else {
                self.draft_unit(cpu, number, step, report)?;
            }
        }
        Ok(())
    }

    /// Whether everything is sent at this density. A method that warms up densely sends all layers dense; but
    /// a transform asked for full density still transforms: its codec is part of the method.
    pub(super) fn is_dense_at(&self, density: f64) -> bool {
        density >= 1.0 && (self.recipe.density < 1.0 || self.spectrum.is_none())
    }

    fn draft_dense(
        &mut self,
        cpu: &mut Cpu,
        range: Range<usize>,
        step: Step<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let Step { input, scale, .. } = step;
        let Compressor { bucket, memory, message, .. } = self;
        let ranges = std::slice::from_ref(&range);
        let measured = if memory.residual.is_empty() {
            cpu.statistics(input.gradient, ranges)
        } else {
            let walk = memory.walk(input.gradient, None, scale, Score::Magnitude);
            cpu.survey(walk, ranges, 0, &mut Guess::default()).map(|survey| *survey.statistics())
        };
        let statistics = measured.map_err(|found| non_finite(bucket, "gradient", found))?;
        message.open(None, range.clone());
        if memory.residual.is_empty() {
            message.values.extend(input.gradient[range.clone()].iter().map(|g| g * scale));
        } else {
            message.values.extend_from_slice(&memory.residual[range.clone()]);
        }
        message.close();
        report.dense += range.len();
        report.energy += statistics.sum_squares;
        report.energy_sent += statistics.sum_squares;
        Ok(())
    }

    /// The residual of a unit, selected from as it is.
    fn draft_unit(
        &mut self,
        cpu: &mut Cpu,
        number: usize,
        step: Step<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let Step { input, scale, density, chooses } = step;
        let Compressor { recipe, bucket, memory, units, message, .. } = self;
        let unit = &mut units[number];
        let mut mean_weight = 0.0;
        if chooses && unit.selector.needs_weights() {
            let missing = || Error::WeightsMissing { method: recipe.spec.clone() };
            let measured = cpu.statistics(input.weights.ok_or_else(missing)?, &unit.weight_sample);
            mean_weight = measured.map_err(|found| non_finite(bucket, "weights", found))?.mean_magnitude();
        }
        let (asked, universe) = (unit.selector.quota(unit.len, density), unit.universe());
        let score = if chooses { unit.selector.score(mean_weight) } else { Score::Magnitude };
        let expect = if chooses { unit.selector.expect(asked) } else { 0 };
        let mut idle = Guess::default();
        let guess = if chooses { &mut unit.guess } else { &mut idle };
        let walk = memory.walk(input.gradient, input.weights, scale, score);
        let mut survey = cpu
            .survey(walk, &unit.ranges, expect, guess)
            .map_err(|found| non_finite(bucket, "gradient", found))?;
        message.open(Some(number), universe);
        report.energy += survey.statistics().sum_squares;
        if chooses {
            unit.selector.select(&mut survey, asked, input.progress.step);
            survey.finish(&mut message.positions, &mut message.values);
        }
        report.note_unit(asked, message.close());
        Ok(())
    }

    /// The spectrum of a unit's residual.
    fn draft_spectrum(
        &mut self,
        cpu: &mut Cpu,
        number: usize,
        step: Step<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let Step { input, scale, density, .. } = step;
        let Compressor { recipe, bucket, memory, units, spectrum, message, .. } = self;
        let (unit, spectrum) = (&mut units[number], spectrum.as_mut().expect("a method with a transform"));
        let walk = memory.walk(input.gradient, None, scale, Score::Magnitude);
        let measured =
            cpu.survey(walk, &unit.ranges, 0, &mut Guess::default()).map(|survey| *survey.statistics());
        let statistics = measured.map_err(|found| non_finite(bucket, "gradient", found))?;
        message.open(Some(number), 0..spectrum.bins());
        report.energy += statistics.sum_squares;

        spectrum.forward(&memory.residual, recipe.half_input);
        let asked = unit.selector.quota(spectrum.bins(), density);
        let bins = [0..spectrum.bins()];
        let walk = Walk {
            update: Update::Keep,
            score: unit.selector.score(0.0),
            ..Walk::new(&[][..], &mut spectrum.magnitudes[..])
        };
        let surveyed = cpu.survey(walk, &bins, unit.selector.expect(asked), &mut unit.guess);
        let mut survey = surveyed.map_err(|found| Error::NonFinite {
            what: "the spectrum of the gradient",
            layer: unit.name.clone(),
            index: found.position,
            value: found.value,
        })?;
        unit.selector.select(&mut survey, asked, input.progress.step);
        message.decoded.clear();
        survey.finish(&mut message.positions, &mut message.decoded);
        spectrum.gather(&message.positions, &mut message.values);
        report.note_unit(asked, message.close());
        Ok(())
    }
}

impl Report {
    /// Adds what a unit came to.
    pub(super) fn note_unit(&mut self, asked: usize, (kept, values): (usize, &[f32])) {
        self.asked += asked;
        self.kept += kept;
        self.energy_sent += values.iter().map(|&v| v as f64 * v as f64).sum::<f64>();
    }
}
