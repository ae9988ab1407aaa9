//! The CPU behind the trait.

use std::convert::Infallible;
use std::ops::Range;

use super::coder::{add_all, scatter_add};
use super::spread::{Task, View};
use super::{Cpu, CpuSpectrum, CpuSurvey, undo};
use crate::Result;
use crate::codec::{FrameWriter, Section, SectionSize, ValueForm};
use crate::kernels::statistics::sum_of_squares;
use crate::kernels::{Ended, Fault, Guess, Kernels, Outgoing, Run, Score, Statistics, Update, Walk};
use crate::pipeline::ValuePlan;
use crate::transform::FftBlock;

impl Kernels for Cpu {
    type Gradient = [f32];
    type Vector = Vec<f32>;
    type Positions = Vec<u32>;
    type Values = Vec<f32>;
    type Spectrum = CpuSpectrum;
    type Survey<'a> = CpuSurvey<'a>;
    type Later = Infallible;

    fn zeros(&mut self, len: usize) -> Result<Vec<f32>> {
        // Written and not only asked for zeroed, so that the system hands out the pages now and not in the
        // first step.
        let mut zeros = Vec::with_capacity(len);
        zeros.resize(len, 0.0);
        Ok(zeros)
    }

    fn positions(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn values(&mut self) -> Vec<f32> {
        Vec::new()
    }

    fn spectrum(&mut self, ranges: &[Range<usize>], block: FftBlock) -> Result<CpuSpectrum> {
        CpuSpectrum::new(ranges, block)
    }

    fn elements(gradient: &[f32]) -> usize {
        gradient.len()
    }

    fn workspace_bytes(&self) -> usize {
        let lists: usize = self.parts.iter().map(|part| part.candidates.bytes()).sum();
        lists
            + self.tiles.capacity() * size_of::<Range<usize>>()
            + self.statistics.capacity() * size_of::<Statistics>()
            + 4 * self.sample.capacity()
            + self.coder.bytes()
    }

    fn survey<'a>(
        &'a mut self,
        walk: Walk<'a, [f32], Vec<f32>>,
        ranges: &'a [Range<usize>],
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<CpuSurvey<'a>, Fault> {
        Ok(CpuSurvey::new(self, slices(walk), ranges, expect, guess)?)
    }

    fn finish(
        survey: CpuSurvey<'_>,
        positions: &mut Vec<u32>,
        values: &mut Vec<f32>,
    ) -> Result<Statistics, Fault> {
        Ok(survey.finish(positions, values))
    }

    fn finish_all(
        &mut self,
        later: Vec<Infallible>,
        _positions: &mut Vec<u32>,
        _values: &mut Vec<f32>,
    ) -> Result<Vec<Ended>, Fault> {
        Ok(later.into_iter().map(|never| match never {}).collect())
    }

    fn accumulate(
        &mut self,
        walk: Walk<'_, [f32], Vec<f32>>,
        ranges: &[Range<usize>],
    ) -> Result<Statistics, Fault> {
        let mut walk = slices(walk);
        let task = Task::Update(walk.update, walk.scale);
        Ok(self.walk_all(task, Score::Magnitude, View::whole(&mut walk), ranges, 0, f32::MAX)?)
    }

    fn withdraw(&mut self, walk: Walk<'_, [f32], Vec<f32>>, ranges: &[Range<usize>]) -> Result<()> {
        let mut walk = slices(walk);
        let (update, scale) = (walk.update, walk.scale);
        let mut view = View::whole(&mut walk);
        for range in ranges {
            undo::undo_range(&mut view, update, scale, range.clone());
        }
        Ok(())
    }

    fn statistics(&mut self, gradient: &[f32], ranges: &[Range<usize>]) -> Result<Statistics, Fault> {
        let view = View::of(gradient, &[]);
        Ok(self.walk_all(Task::Read, Score::Magnitude, view, ranges, 0, f32::MAX)?)
    }

    fn norm_of_huge(&mut self, gradient: &[f32]) -> Result<f64> {
        Ok(sum_of_squares(gradient).sqrt())
    }

    fn append(&mut self, vector: &Vec<f32>, ranges: &[Range<usize>], values: &mut Vec<f32>) -> Result<()> {
        ranges.iter().for_each(|range| values.extend_from_slice(&vector[range.clone()]));
        Ok(())
    }

    fn append_scaled(
        &mut self,
        gradient: &[f32],
        scale: f32,
        range: Range<usize>,
        values: &mut Vec<f32>,
    ) -> Result<()> {
        values.extend(gradient[range].iter().map(|g| g * scale));
        Ok(())
    }

    fn adopt(
        &mut self,
        named: &[u32],
        vector: &Vec<f32>,
        positions: &mut Vec<u32>,
        values: &mut Vec<f32>,
    ) -> Result<()> {
        positions.extend_from_slice(named);
        values.extend(named.iter().map(|&position| vector[position as usize]));
        Ok(())
    }

    fn energy(&mut self, values: Run<'_, Vec<f32>>) -> Result<f64> {
        Ok(sum_of_squares(values.as_slice()))
    }

    fn on_host<'a>(&'a mut self, values: &'a mut Vec<f32>) -> Result<&'a [f32]> {
        Ok(values)
    }

    fn subtract(&mut self, what: &[f32], values: &mut Vec<f32>) -> Result<()> {
        values.iter_mut().zip(what).for_each(|(value, what)| *value -= what);
        Ok(())
    }

    fn form(&mut self, plan: &ValuePlan, values: Run<'_, Vec<f32>>) -> Result<ValueForm> {
        plan.form(values.as_slice())
    }

    fn write_section(
        &mut self,
        section: Outgoing<'_, Vec<u32>, Vec<f32>>,
        writer: &mut FrameWriter<'_>,
    ) -> Result<SectionSize> {
        self.coder.write(&section, writer)
    }

    fn keep_loss(&mut self, form: &ValueForm, range: Range<usize>, values: &mut Vec<f32>) -> Result<()> {
        self.coder.keep_loss(form, &mut values[range])
    }

    fn clear(&mut self, positions: Run<'_, Vec<u32>>, vector: &mut Vec<f32>) -> Result<()> {
        for &position in positions.as_slice() {
            vector[position as usize] = 0.0;
        }
        Ok(())
    }

    fn scatter_add(
        &mut self,
        positions: Run<'_, Vec<u32>>,
        values: Run<'_, Vec<f32>>,
        vector: &mut Vec<f32>,
    ) -> Result<()> {
        scatter_add(positions.as_slice(), values.as_slice(), vector);
        Ok(())
    }

    fn clear_ranges(&mut self, ranges: &[Range<usize>], vector: &mut Vec<f32>) -> Result<()> {
        ranges.iter().for_each(|range| vector[range.clone()].fill(0.0));
        Ok(())
    }

    fn replace(&mut self, values: Run<'_, Vec<f32>>, start: usize, vector: &mut Vec<f32>) -> Result<()> {
        vector[start..start + values.range.len()].copy_from_slice(values.as_slice());
        Ok(())
    }

    fn begin_mean(&mut self, mean: &mut [f32]) -> Result<()> {
        mean.fill(0.0);
        Ok(())
    }

    fn add_section(&mut self, section: &Section<'_>, factor: f32, mean: &mut [f32]) -> Result<()> {
        self.coder.add_section(section, factor, mean)
    }

    fn add_entries(
        &mut self,
        positions: Run<'_, Vec<u32>>,
        values: Run<'_, Vec<f32>>,
        factor: f32,
        mean: &mut [f32],
    ) -> Result<()> {
        for (&position, value) in positions.as_slice().iter().zip(values.as_slice()) {
            mean[position as usize] += value * factor;
        }
        Ok(())
    }

    fn add_ranges(
        &mut self,
        ranges: &[Range<usize>],
        values: Run<'_, Vec<f32>>,
        factor: f32,
        mean: &mut [f32],
    ) -> Result<()> {
        let mut values = values.as_slice();
        for range in ranges {
            let (mine, rest) = values.split_at(range.len());
            add_all(mine.iter().map(|value| value * factor), &mut mean[range.clone()]);
            values = rest;
        }
        Ok(())
    }

    fn put(&mut self, sums: &[f32], start: usize, mean: &mut [f32]) -> Result<()> {
        mean[start..start + sums.len()].copy_from_slice(sums);
        Ok(())
    }

    fn scatter(&mut self, positions: Run<'_, Vec<u32>>, sums: &[f32], mean: &mut [f32]) -> Result<()> {
        scatter_add(positions.as_slice(), sums, mean);
        Ok(())
    }

    fn end_mean(&mut self, _mean: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn store(&mut self, values: &[f32], gradient: &mut [f32]) -> Result<()> {
        gradient.copy_from_slice(values);
        Ok(())
    }

    fn stage<'a>(&'a mut self, factor: f32, gradient: &'a mut [f32]) -> Result<&'a mut [f32]> {
        if factor != 1.0 {
            gradient.iter_mut().for_each(|x| *x *= factor);
        }
        Ok(gradient)
    }

    fn unstage(&mut self, _gradient: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn stage_with<'a>(
        &'a mut self,
        gradient: &'a [f32],
        vector: &'a mut Vec<f32>,
    ) -> Result<(&'a [f32], &'a mut [f32])> {
        Ok((gradient, vector))
    }

    fn unstage_vector(&mut self, _vector: &mut Vec<f32>) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, gradient: &[f32], reader: &mut dyn FnMut(&[u8])) -> Result<()> {
        reader(bytemuck::cast_slice(gradient));
        Ok(())
    }

    fn transform(&mut self, vector: &Vec<f32>, half_input: bool, spectrum: &mut CpuSpectrum) -> Result<()> {
        spectrum.forward(vector, half_input);
        Ok(())
    }

    fn survey_bins<'a>(
        &'a mut self,
        spectrum: &'a mut CpuSpectrum,
        score: Score,
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<CpuSurvey<'a>, Fault> {
        let (magnitudes, bins, parts) = spectrum.measured();
        let walk = Walk { update: Update::Keep, score, ..Walk::new(&[][..], magnitudes) };
        Ok(CpuSurvey::new(self, walk, bins, expect, guess)?.with_parts(parts))
    }

    fn forget_bins(
        &mut self,
        spectrum: &mut CpuSpectrum,
        bins: Run<'_, Vec<u32>>,
        left: Option<Run<'_, Vec<f32>>>,
        residual: &mut Vec<f32>,
    ) -> Result<()> {
        // What was sent, in the time domain, is what the spectrum was less what is left of it.
        spectrum.keep_only(bins.as_slice(), left.as_ref().map(Run::as_slice));
        spectrum.inverse(residual, |residual, sent| *residual -= sent);
        Ok(())
    }

    fn clear_spectrum(&mut self, spectrum: &mut CpuSpectrum) -> Result<()> {
        spectrum.zero();
        Ok(())
    }

    fn add_bins(&mut self, section: &Section<'_>, factor: f32, spectrum: &mut CpuSpectrum) -> Result<()> {
        self.coder.add_bins(section, factor, spectrum)
    }

    fn add_spectrum(&mut self, spectrum: &mut CpuSpectrum, mean: &mut [f32]) -> Result<()> {
        spectrum.inverse(mean, |mean, value| *mean += value);
        Ok(())
    }
}

/// The walk over borrowed slices, which is all the CPU needs.
fn slices<'a>(walk: Walk<'a, [f32], Vec<f32>>) -> Walk<'a, [f32], [f32]> {
    let Walk { gradient, residual, momentum, weights, update, scale, score } = walk;
    let momentum = momentum.map(|momentum| &mut momentum[..]);
    Walk { gradient, residual: &mut residual[..], momentum, weights, update, scale, score }
}
