//! First half of a step: accumulate and select. Nothing is sent or forgotten yet.

use std::ops::Range;

use super::{Compressor, InputOn, fault_in};
use crate::kernels::{Ended, Fault, Finished, Kernels, List, Score, Spectrum, Vector};
use crate::pipeline::report::Report;
use crate::select::{Claim, divide_shares};
use crate::{Error, Result};

/// What a step is about to send, until all of it is known to be good. Kept for its memory.
#[derive(Debug)]
pub(super) struct Message<K: Kernels> {
    /// Chosen coordinates of all drafts, in the bucket or in the spectrum.
    pub positions: K::Positions,
    /// Their values; dense ones stand here too.
    pub values: K::Values,
    pub drafts: Vec<Draft>,
    /// Selections that are not at their end, with the numbers of their drafts.
    pub later: Vec<(usize, K::Later)>,
    /// What leaders have named, for each unit.
    pub agreed: Vec<Vec<u32>>,
    /// Work space for reading it.
    pub named: Vec<u32>,
    pub nothing: Vec<f32>,
    /// Work space for ranges that were sent dense.
    pub ranges: Vec<Range<usize>>,
    /// Whether a frame was made of all of it.
    pub encoded: bool,
    /// Whether layers that are sent dense are left out of the frame: their values are summed in another way.
    pub dense_apart: bool,
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
    /// The energy of its values, before the codec; not measured for a dense range.
    pub energy: f64,
    /// Whether the codec lost something that is kept: `Message::values` then holds that instead of the values.
    pub lossy: bool,
    /// Whether receivers read the very values of this draft.
    pub exact: bool,
}

impl<K: Kernels> Message<K> {
    pub fn new(kernels: &mut K) -> Message<K> {
        Message {
            positions: kernels.positions(),
            values: kernels.values(),
            drafts: Vec::new(),
            later: Vec::new(),
            agreed: Vec::new(),
            named: Vec::new(),
            nothing: Vec::new(),
            ranges: Vec::new(),
            encoded: false,
            dense_apart: false,
        }
    }

    pub fn clear(&mut self) {
        self.positions.truncate(0);
        self.values.truncate(0);
        self.drafts.clear();
        self.later.clear();
        (self.encoded, self.dense_apart) = (false, false);
    }

    /// How many values are those of dense ranges, which come first.
    pub fn dense_values(&self) -> usize {
        self.drafts.iter().take_while(|draft| draft.unit.is_none()).last().map_or(0, |draft| draft.values.end)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let agreed: usize = self.agreed.iter().map(List::bytes).sum();
        let lists = self.positions.bytes() + self.values.bytes() + self.named.bytes();
        lists + self.drafts.bytes() + agreed + self.ranges.bytes()
    }

    /// Where the next draft begins in positions and values.
    fn end(&self) -> (usize, usize) {
        (self.positions.len(), self.values.len())
    }

    /// Opens a draft that begins at an earlier end: its gradient has entered the memory, or is put off.
    fn open(&mut self, unit: Option<usize>, universe: Range<usize>, (positions, values): (usize, usize)) {
        let (positions, values) = (positions..positions, values..values);
        let (energy, lossy, exact) = (0.0, false, false);
        self.drafts.push(Draft { unit, universe, positions, values, energy, lossy, exact });
    }

    /// Closes the last draft over what was appended since, and gives its number.
    fn close(&mut self) -> usize {
        let (positions, values) = self.end();
        let draft = self.drafts.last_mut().expect("a draft was opened");
        (draft.positions.end, draft.values.end) = (positions, values);
        self.drafts.len() - 1
    }

    /// Moves the drafts up, where selections that were put off have kept fewer elements than they had room for.
    fn move_up(&mut self, ended: &[(usize, Ended)]) {
        let (mut gone, mut ended) = (0, ended.iter().peekable());
        for (number, draft) in self.drafts.iter_mut().enumerate() {
            let moved = |range: &Range<usize>| range.start - gone..range.end - gone;
            // Dense ones come first, and have no positions.
            if draft.unit.is_some() {
                (draft.positions, draft.values) = (moved(&draft.positions), moved(&draft.values));
            }
            if let Some((_, ended)) = ended.next_if(|(of, _)| *of == number) {
                gone += draft.positions.len() - ended.kept;
                draft.positions.end = draft.positions.start + ended.kept;
                draft.values.end = draft.values.start + ended.kept;
            }
        }
    }

    /// Notes in the report what a draft sends of its unit.
    pub fn note(&mut self, kernels: &mut K, number: usize, report: &mut Report) -> Result<()> {
        let draft = &mut self.drafts[number];
        draft.energy = kernels.energy(self.values.run(draft.values.clone()))?;
        report.kept += draft.positions.len();
        report.energy_sent += draft.energy;
        Ok(())
    }
}

/// What all parts of one step have in common.
#[derive(Debug)]
pub(super) struct Step<'a, K: Kernels> {
    pub input: &'a InputOn<'a, K>,
    /// The factor on the gradient.
    pub scale: f32,
    /// The density of this step.
    pub density: f64,
    /// Whether this rank selects; otherwise the gradient only enters the memory, and others say what travels.
    pub chooses: bool,
}

impl<K: Kernels> Compressor<K> {
    /// Accumulates and selects everything. Every draft in the message stands for a gradient that has entered the memory or,
    /// where this ends with an error, was put off ([`Message::later`]).
    pub(super) fn draft(&mut self, kernels: &mut K, step: Step<'_, K>, report: &mut Report) -> Result<()> {
        if self.is_dense_at(step.density) {
            let everything = 0..self.bucket.len();
            return if everything.is_empty() {
                Ok(())
            } else {
                self.draft_dense(kernels, &[everything], &step, report)
            };
        }
        if !self.dense.is_empty() {
            let ranges = std::mem::take(&mut self.dense);
            let drafted = self.draft_dense(kernels, &ranges, &step, report);
            self.dense = ranges;
            drafted?;
            if self.units.is_empty() {
                kernels.complete_list(&mut self.message.values)?;
            }
        }
        self.divide(&step);
        for number in 0..self.units.len() {
            if self.spectrum.is_some() {
                self.draft_spectrum(kernels, number, &step, report)?;
            } else {
                self.draft_unit(kernels, number, &step, report)?;
            }
        }
        self.end_selections(kernels, report)
    }

    /// Whether everything is sent at this density. A method that warms up densely sends all layers dense; but
    /// a transform asked for full density still transforms: its codec is part of the method.
    pub(super) fn is_dense_at(&self, density: f64) -> bool {
        density >= 1.0 && (self.recipe.density < 1.0 || self.spectrum.is_none())
    }

    /// Divides the elements of the bucket among its units. Ranks that do not select take the quotas.
    fn divide(&mut self, step: &Step<'_, K>) {
        let &Step { density, chooses, .. } = step;
        let Compressor { units, by_name, shares, .. } = self;
        shares.clear();
        let total = divide_shares(
            by_name.iter().map(|&number| &units[number]).map(|unit| {
                let quota = unit.quota(density);
                let wanted = unit.selector.wanted().filter(|_| chooses).unwrap_or(quota);
                Claim { quota, wanted, len: unit.len }
            }),
            shares,
        );
        units.iter_mut().filter(|_| chooses).for_each(|unit| unit.selector.steer(total.asked, total.wanted));
    }

    /// Ranges that are sent as they are: one walk for all of them.
    fn draft_dense(
        &mut self,
        kernels: &mut K,
        ranges: &[Range<usize>],
        step: &Step<'_, K>,
        report: &mut Report,
    ) -> Result<()> {
        let &Step { input, scale, .. } = step;
        let Compressor { bucket, memory, message, .. } = self;
        let remembers = !memory.residual.is_empty();
        let measured = if remembers {
            kernels.accumulate(memory.walk(input.gradient, None, scale, Score::Magnitude), ranges)
        } else {
            kernels.statistics(input.gradient, ranges)
        };
        let statistics = measured.map_err(|fault| fault_in(bucket, "gradient", fault))?;
        let mut begin = message.values.len();
        for range in ranges {
            message.open(None, range.clone(), (message.positions.len(), begin));
            let draft = message.drafts.last_mut().expect("a draft was opened");
            begin += range.len();
            draft.values.end = begin;
            report.dense += range.len();
        }
        if remembers {
            kernels.append(&memory.residual, ranges, &mut message.values)?;
        } else {
            for range in ranges {
                kernels.append_scaled(input.gradient, scale, range.clone(), &mut message.values)?;
            }
        }
        // What was remembered has been measured with the factor on the gradient, a gradient alone without.
        let factor = if remembers { 1.0 } else { f64::from(scale).powi(2) };
        report.energy += statistics.sum_squares * factor;
        report.energy_sent += statistics.sum_squares * factor;
        Ok(())
    }

    /// The residual of a unit, selected from as it is.
    fn draft_unit(
        &mut self,
        kernels: &mut K,
        number: usize,
        step: &Step<'_, K>,
        report: &mut Report,
    ) -> Result<()> {
        let asked = self.shares[self.places[number]];
        let begin = self.message.end();
        let selected = if step.chooses {
            self.select_unit(kernels, number, step, asked)?
        } else {
            let walk = self.memory.walk(step.input.gradient, None, step.scale, Score::Magnitude);
            let measured = kernels.accumulate(walk, &self.units[number].ranges);
            Finished::Now(measured.map_err(|fault| fault_in(&self.bucket, "gradient", fault))?)
        };
        self.message.open(Some(number), self.units[number].universe(), begin);
        let draft = self.message.close();
        report.asked += asked;
        match selected {
            Finished::Now(statistics) => {
                report.energy += statistics.sum_squares;
                self.message.note(kernels, draft, report)
            }
            Finished::Later(later) => {
                self.message.later.push((draft, later));
                Ok(())
            }
        }
    }

    /// Ends the selections that were put off.
    fn end_selections(&mut self, kernels: &mut K, report: &mut Report) -> Result<()> {
        let Compressor { bucket, units, message, .. } = self;
        if message.later.is_empty() {
            return Ok(());
        }
        let (numbers, later): (Vec<_>, Vec<_>) = message.later.drain(..).unzip();
        let ended = kernels.finish_all(later, &mut message.positions, &mut message.values);
        let ended = ended.map_err(|fault| fault_in(bucket, "gradient", fault))?;
        let ended: Vec<_> = numbers.into_iter().zip(ended).collect();
        message.move_up(&ended);
        for (number, Ended { statistics, guess, .. }) in ended {
            if let Some(unit) = message.drafts[number].unit {
                units[unit].guess = guess;
            }
            report.energy += statistics.sum_squares;
            message.note(kernels, number, report)?;
        }
        Ok(())
    }

    /// The walk over a unit, and the choice of about `asked` elements.
    fn select_unit(
        &mut self,
        kernels: &mut K,
        number: usize,
        step: &Step<'_, K>,
        asked: usize,
    ) -> Result<Finished<K::Later>> {
        let &Step { input, scale, .. } = step;
        let Compressor { recipe, bucket, memory, units, message, .. } = self;
        // Where there is only one, it waits for nobody.
        let finish = if units.len() > 1 { K::finish_later } else { finish_now::<K> };
        let unit = &mut units[number];
        let mut mean_weight = 0.0;
        if unit.selector.needs_weights() {
            let missing = || Error::WeightsMissing { method: recipe.spec.clone() };
            let measured = kernels.statistics(input.weights.ok_or_else(missing)?, &unit.weight_sample);
            mean_weight = measured.map_err(|fault| fault_in(bucket, "weights", fault))?.mean_magnitude();
        }
        let (score, expect) = (unit.selector.score(mean_weight), unit.selector.expect(asked));
        let walk = memory.walk(input.gradient, input.weights, scale, score);
        let surveyed = kernels.survey(walk, &unit.ranges, expect, &mut unit.guess);
        let selected = surveyed.and_then(|mut survey| {
            unit.selector.select(&mut survey, asked, input.progress.step);
            finish(survey, &mut message.positions, &mut message.values)
        });
        selected.map_err(|fault| fault_in(bucket, "gradient", fault))
    }

    /// The spectrum of a unit's residual.
    fn draft_spectrum(
        &mut self,
        kernels: &mut K,
        number: usize,
        step: &Step<'_, K>,
        report: &mut Report,
    ) -> Result<()> {
        let &Step { input, scale, density, .. } = step;
        let Compressor { recipe, bucket, memory, units, spectrum, message, .. } = self;
        let (unit, spectrum) = (&mut units[number], spectrum.as_mut().expect("a method with a transform"));
        let walk = memory.walk(input.gradient, None, scale, Score::Magnitude);
        let measured = kernels.accumulate(walk, &unit.ranges);
        let statistics = measured.map_err(|fault| fault_in(bucket, "gradient", fault))?;
        message.open(Some(number), 0..spectrum.bins(), message.end());
        report.energy += statistics.sum_squares;

        kernels.transform(&memory.residual, recipe.half_input, spectrum)?;
        let asked = unit.selector.quota(spectrum.bins(), density);
        let (score, expect) = (unit.selector.score(0.0), unit.selector.expect(asked));
        let surveyed = kernels.survey_bins(spectrum, score, expect, &mut unit.guess);
        let selected = surveyed.and_then(|mut survey| {
            unit.selector.select(&mut survey, asked, input.progress.step);
            K::finish(survey, &mut message.positions, &mut message.values)
        });
        selected.map_err(|fault| match fault {
            Fault::Failed(error) => error,
            Fault::NonFinite(found) => Error::NonFinite {
                what: "the spectrum of the gradient",
                layer: unit.name.clone(),
                index: found.position,
                value: found.value,
            },
        })?;
        let draft = message.close();
        report.asked += asked;
        message.note(kernels, draft, report)
    }
}

fn finish_now<K: Kernels>(
    survey: K::Survey<'_>,
    positions: &mut K::Positions,
    values: &mut K::Values,
) -> Result<Finished<K::Later>, Fault> {
    K::finish(survey, positions, values).map(Finished::Now)
}
