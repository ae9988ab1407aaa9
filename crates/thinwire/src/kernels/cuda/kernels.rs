//! The GPU behind the trait.

use std::ops::Range;

use super::codec::Run as Place;
use super::job::{Job, WalkHere};
use super::list::{DeviceList, SHORT};
use super::memory::{Buffer, Element, Gradient, copy, read_from};
use super::spectrum::Onto;
use super::{Cuda, CudaLater, CudaSpectrum, CudaSurvey};
use crate::Result;
use crate::codec::{FrameWriter, Section, SectionSize, ValueForm};
use crate::kernels::statistics::sum_of_squares;
use crate::kernels::{
    Ended, Fault, Finished, Guess, Kernels, List, Outgoing, Run, Score, Spectrum, Statistics, Vector,
};
use crate::pipeline::ValuePlan;
use crate::transform::FftBlock;

/// Bytes that [`Kernels::read`] brings to the host at a time.
const PIECE: usize = 4 << 20;

impl Vector for Buffer<f32> {
    fn len(&self) -> usize {
        self.len()
    }

    fn read(&self, range: Range<usize>) -> Result<Vec<f32>> {
        self.read(range)
    }

    fn write(&mut self, start: usize, values: &[f32]) -> Result<()> {
        self.write(start, values)
    }

    fn take_end(&mut self, start: usize) -> Result<Vec<f32>> {
        let end = self.read(start..self.len())?;
        self.truncate(start);
        Ok(end)
    }
}

impl Cuda {
    /// A walk that only measures; waits.
    fn measure(&mut self, job: &Job, ranges: &[Range<usize>]) -> Result<Statistics, Fault> {
        let unit = self.unit(ranges)?;
        self.work.walk(job, &unit, f32::INFINITY)?;
        self.work.fetch_head()?;
        self.device.wait()?;
        let head = self.work.head(&unit);
        match head.non_finite {
            None => Ok(head.statistics),
            Some(found) => {
                self.work.undo(job, ranges)?;
                Err(Fault::NonFinite(found))
            }
        }
    }
}

fn end_of(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(|range| range.end).max().unwrap_or(0)
}

impl Kernels for Cuda {
    type Gradient = Gradient;
    type Vector = Buffer<f32>;
    type Positions = DeviceList<u32>;
    type Values = DeviceList<f32>;
    type Spectrum = CudaSpectrum;
    type Survey<'a> = CudaSurvey<'a>;
    type Later = CudaLater;

    fn zeros(&mut self, len: usize) -> Result<Buffer<f32>> {
        Buffer::zeros(&self.device, len)
    }

    fn positions(&mut self) -> DeviceList<u32> {
        DeviceList::new(&self.device)
    }

    fn values(&mut self) -> DeviceList<f32> {
        DeviceList::new(&self.device)
    }

    fn spectrum(&mut self, ranges: &[Range<usize>], block: FftBlock) -> Result<CudaSpectrum> {
        CudaSpectrum::new(&self.device, ranges, block)
    }

    fn elements(gradient: &Gradient) -> usize {
        gradient.len()
    }

    fn workspace_bytes(&self) -> usize {
        let host = 4
            * (self.indices.capacity()
                + self.decoded.capacity()
                + self.kept.capacity()
                + self.staged.slice().len());
        self.work.bytes()
            + self.upload.bytes()
            + self.mean.bytes()
            + self.pending.bytes()
            + 4 * self.scratch.len()
            + self.codec.bytes()
            + self.heads.bytes()
            + host
            + self.bytes.capacity()
            + self.message.slice().len()
    }

    fn arrive(&mut self, gradient: &Gradient) -> Result<()> {
        gradient.ready().map_or(Ok(()), |event| self.device.wait_for(event))
    }

    fn complete(&mut self) -> Result<()> {
        self.device.wait()?;
        self.upload.reset();
        Ok(())
    }

    fn survey<'a>(
        &'a mut self,
        mut walk: WalkHere<'a>,
        ranges: &'a [Range<usize>],
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<CudaSurvey<'a>, Fault> {
        let job = Cuda::job(&mut walk, end_of(ranges))?;
        Ok(CudaSurvey::new(self, job, ranges, expect, guess, None)?)
    }

    fn finish(
        survey: CudaSurvey<'_>,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Statistics, Fault> {
        survey.finish(positions, values)
    }

    fn finish_later(
        survey: CudaSurvey<'_>,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Finished<CudaLater>, Fault> {
        survey.finish_later(positions, values)
    }

    fn finish_all(
        &mut self,
        later: Vec<CudaLater>,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Vec<Ended>, Fault> {
        self.end_all(&later, positions, values)
    }

    fn accumulate(&mut self, mut walk: WalkHere<'_>, ranges: &[Range<usize>]) -> Result<Statistics, Fault> {
        let job = Cuda::job(&mut walk, end_of(ranges))?;
        self.measure(&Job { score: Score::Magnitude, ..job }, ranges)
    }

    fn withdraw(&mut self, mut walk: WalkHere<'_>, ranges: &[Range<usize>]) -> Result<()> {
        let job = Cuda::job(&mut walk, end_of(ranges))?;
        self.work.undo(&job, ranges)
    }

    fn statistics(&mut self, gradient: &Gradient, ranges: &[Range<usize>]) -> Result<Statistics, Fault> {
        Cuda::check(gradient, end_of(ranges))?;
        let job = Job { element: gradient.element(), ..Job::look(gradient.address(), 0, Score::Magnitude) };
        self.measure(&job, ranges)
    }

    fn norm_of_huge(&mut self, gradient: &Gradient) -> Result<f64> {
        self.scratch.reserve(gradient.len(), 0)?;
        self.widen(gradient.address(), gradient.element(), gradient.len(), 1.0, self.scratch.address())?;
        let values = self.scratch.read(0..gradient.len())?;
        Ok(sum_of_squares(&values).sqrt())
    }

    fn append(
        &mut self,
        vector: &Buffer<f32>,
        ranges: &[Range<usize>],
        values: &mut DeviceList<f32>,
    ) -> Result<()> {
        let count = ranges.iter().map(Range::len).sum();
        let to = values.room(count)?;
        match self.positions_of(ranges)? {
            Some(positions) => self.gather(positions, count, vector.address(), to)?,
            None => {
                let mut to = to;
                for range in ranges {
                    copy(&self.device, vector.at(range.start), to, 4 * range.len())?;
                    to += 4 * range.len() as u64;
                }
            }
        }
        // It comes to the host with what is selected.
        values.grow(count, false);
        Ok(())
    }

    fn append_scaled(
        &mut self,
        gradient: &Gradient,
        scale: f32,
        range: Range<usize>,
        values: &mut DeviceList<f32>,
    ) -> Result<()> {
        Cuda::check(gradient, range.end)?;
        let to = values.room(range.len())?;
        self.widen(gradient.at(range.start), gradient.element(), range.len(), scale, to)?;
        values.grow(range.len(), false);
        Ok(())
    }

    fn adopt(
        &mut self,
        named: &[u32],
        vector: &Buffer<f32>,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<()> {
        let first = positions.len();
        positions.append(named)?;
        let to = values.room(named.len())?;
        self.gather(positions.at(first), named.len(), vector.address(), to)?;
        let fetched = values.fetch_ahead(named.len())?;
        values.grow(named.len(), fetched);
        Ok(())
    }

    fn complete_list(&mut self, values: &mut DeviceList<f32>) -> Result<()> {
        values.fetch_ahead(0).map(drop)
    }

    fn energy(&mut self, values: Run<'_, DeviceList<f32>>) -> Result<f64> {
        if values.range.len() > SHORT {
            let place = Place::new(values.list.at(values.range.start), values.range.len());
            return self.codec.sum_of_squares(place);
        }
        Ok(sum_of_squares(values.list.host(values.range, &mut self.decoded)?))
    }

    fn on_host<'a>(&'a mut self, values: &'a mut DeviceList<f32>) -> Result<&'a [f32]> {
        values.on_host(0..values.len())
    }

    fn subtract(&mut self, what: &[f32], values: &mut DeviceList<f32>) -> Result<()> {
        values.change(0..values.len(), |values| {
            values.iter_mut().zip(what).for_each(|(value, what)| *value -= what);
            Ok(())
        })
    }

    fn form(&mut self, plan: &ValuePlan, values: Run<'_, DeviceList<f32>>) -> Result<ValueForm> {
        self.form_of(plan, values)
    }

    fn write_section(
        &mut self,
        section: Outgoing<'_, DeviceList<u32>, DeviceList<f32>>,
        writer: &mut FrameWriter<'_>,
    ) -> Result<SectionSize> {
        self.write(section, writer)
    }

    fn keep_loss(
        &mut self,
        form: &ValueForm,
        range: Range<usize>,
        values: &mut DeviceList<f32>,
    ) -> Result<()> {
        self.lose(form, range, values)
    }

    fn clear(&mut self, positions: Run<'_, DeviceList<u32>>, vector: &mut Buffer<f32>) -> Result<()> {
        self.clear_at(positions.list.at(positions.range.start), positions.range.len(), vector)
    }

    fn scatter_add(
        &mut self,
        positions: Run<'_, DeviceList<u32>>,
        values: Run<'_, DeviceList<f32>>,
        vector: &mut Buffer<f32>,
    ) -> Result<()> {
        let from = (positions.list.at(positions.range.start), values.list.at(values.range.start));
        self.scatter_to(from, positions.range.len().min(values.range.len()), 1.0, vector.address())
    }

    fn clear_ranges(&mut self, ranges: &[Range<usize>], vector: &mut Buffer<f32>) -> Result<()> {
        match self.positions_of(ranges)? {
            Some(positions) => self.clear_at(positions, ranges.iter().map(Range::len).sum(), vector),
            None => ranges.iter().try_for_each(|range| vector.clear_range(range.clone())),
        }
    }

    fn replace(
        &mut self,
        values: Run<'_, DeviceList<f32>>,
        start: usize,
        vector: &mut Buffer<f32>,
    ) -> Result<()> {
        copy(&self.device, values.list.at(values.range.start), vector.at(start), 4 * values.range.len())
    }

    fn begin_mean(&mut self, mean: &mut Gradient) -> Result<()> {
        self.pending.clear();
        self.zero_mean(mean)
    }

    fn add_section(&mut self, section: &Section<'_>, factor: f32, mean: &mut Gradient) -> Result<()> {
        self.add(section, factor, mean)
    }

    fn add_entries(
        &mut self,
        positions: Run<'_, DeviceList<u32>>,
        values: Run<'_, DeviceList<f32>>,
        factor: f32,
        mean: &mut Gradient,
    ) -> Result<()> {
        self.add_pending()?;
        let from = (positions.list.at(positions.range.start), values.list.at(values.range.start));
        self.scatter_to(from, positions.range.len().min(values.range.len()), factor, self.mean.address(mean))
    }

    fn add_ranges(
        &mut self,
        ranges: &[Range<usize>],
        values: Run<'_, DeviceList<f32>>,
        factor: f32,
        mean: &mut Gradient,
    ) -> Result<()> {
        Cuda::check(mean, end_of(ranges))?;
        self.add_pending()?;
        let (mut from, to) = (values.list.at(values.range.start), self.mean.address(mean));
        if let Some(positions) = self.positions_of(ranges)? {
            return self.scatter_all(positions, from, values.range.len(), factor, to);
        }
        for range in ranges {
            self.add_all(from, range.len(), factor, to + 4 * range.start as u64)?;
            from += 4 * range.len() as u64;
        }
        Ok(())
    }

    fn put(&mut self, sums: &[f32], start: usize, mean: &mut Gradient) -> Result<()> {
        Cuda::check(mean, start + sums.len())?;
        self.add_pending()?;
        let from = self.upload.send(sums)?;
        copy(&self.device, from, self.mean.address(mean) + 4 * start as u64, 4 * sums.len())
    }

    fn scatter(
        &mut self,
        positions: Run<'_, DeviceList<u32>>,
        sums: &[f32],
        mean: &mut Gradient,
    ) -> Result<()> {
        self.add_pending()?;
        let what = self.upload.send(sums)?;
        let count = positions.range.len().min(sums.len());
        let positions = positions.list.at(positions.range.start);
        self.scatter_to((positions, what), count, 1.0, self.mean.address(mean))
    }

    fn end_mean(&mut self, mean: &mut Gradient) -> Result<()> {
        self.add_pending()?;
        self.round_mean(mean)
    }

    fn store(&mut self, values: &[f32], gradient: &mut Gradient) -> Result<()> {
        Cuda::check(gradient, values.len())?;
        let from = self.upload.send(values)?;
        self.narrow(from, gradient)
    }

    fn stage<'a>(&'a mut self, factor: f32, gradient: &'a mut Gradient) -> Result<&'a mut [f32]> {
        self.fetch_gradient(factor, gradient)?;
        Ok(&mut self.staged.slice_mut()[..gradient.len()])
    }

    fn unstage(&mut self, gradient: &mut Gradient) -> Result<()> {
        let len = gradient.len();
        if gradient.element() == Element::F32 {
            return self.staged.send(0..len, gradient.address()).and_then(|()| self.device.wait());
        }
        self.scratch.reserve(len, 0)?;
        self.staged.send(0..len, self.scratch.address())?;
        self.narrow(self.scratch.address(), gradient)?;
        self.device.wait()
    }

    fn stage_with<'a>(
        &'a mut self,
        gradient: &'a Gradient,
        vector: &'a mut Buffer<f32>,
    ) -> Result<(&'a [f32], &'a mut [f32])> {
        self.fetch_gradient(1.0, gradient)?;
        self.kept = vector.read(0..vector.len())?;
        Ok((&self.staged.slice()[..gradient.len()], &mut self.kept))
    }

    fn unstage_vector(&mut self, vector: &mut Buffer<f32>) -> Result<()> {
        vector.write(0, &self.kept)
    }

    fn read(&mut self, gradient: &Gradient, reader: &mut dyn FnMut(&[u8])) -> Result<()> {
        let bytes = gradient.len() * gradient.element().width();
        let mut piece = vec![0u8; PIECE.min(bytes)];
        for start in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(bytes - start)];
            read_from(&self.device, gradient.address() + start as u64, piece)?;
            reader(piece);
        }
        Ok(())
    }

    fn transform(
        &mut self,
        vector: &Buffer<f32>,
        half_input: bool,
        spectrum: &mut CudaSpectrum,
    ) -> Result<()> {
        // SAFETY: the vector is as long as its bucket.
        unsafe { spectrum.forward(vector.address(), half_input) }
    }

    fn survey_bins<'a>(
        &'a mut self,
        spectrum: &'a mut CudaSpectrum,
        score: Score,
        expect: usize,
        guess: &'a mut Guess,
    ) -> Result<CudaSurvey<'a>, Fault> {
        let (magnitudes, bins) = (spectrum.magnitudes().address(), [0..spectrum.bins()]);
        let job = Job::look(magnitudes, 0, score);
        Ok(CudaSurvey::new(self, job, &bins, expect, guess, Some(spectrum))?)
    }

    fn forget_bins(
        &mut self,
        spectrum: &mut CudaSpectrum,
        bins: Run<'_, DeviceList<u32>>,
        left: Option<Run<'_, DeviceList<f32>>>,
        residual: &mut Buffer<f32>,
    ) -> Result<()> {
        let bins = Place::new(bins.list.at(bins.range.start), bins.range.len());
        let left = left.map(|left| Place::new(left.list.at(left.range.start), left.range.len()));
        // What was sent, in the time domain, is what the spectrum was less what is left of it.
        spectrum.keep_only(bins, left)?;
        // SAFETY: the residual is as long as its bucket.
        unsafe { spectrum.inverse(residual.address(), Onto::Subtract) }
    }

    fn clear_spectrum(&mut self, spectrum: &mut CudaSpectrum) -> Result<()> {
        spectrum.zero();
        Ok(())
    }

    fn add_bins(&mut self, section: &Section<'_>, factor: f32, spectrum: &mut CudaSpectrum) -> Result<()> {
        self.add_to_spectrum(section, factor, spectrum)
    }

    fn add_spectrum(&mut self, spectrum: &mut CudaSpectrum, mean: &mut Gradient) -> Result<()> {
        self.add_pending()?;
        // The mean is zero there: frequencies are all that the unit's elements get.
        // SAFETY: the sums are as long as their bucket.
        unsafe { spectrum.inverse(self.mean.address(mean), Onto::Replace) }
    }
}
