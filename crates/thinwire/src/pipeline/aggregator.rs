//! From the frames of all ranks to the mean gradient.

use std::ops::Range;

use super::compressor::Compressor;
use super::recipe::Recipe;
use super::unit::divide;
use crate::codec::{Frame, Header, Section, ValueForm};
use crate::kernels::{Cpu, Kernels, Spectrum};
use crate::transform::TransformKind;
use crate::{Bucket, Error, Result};

/// Decodes frames and adds them up, in the order given: the same order on every rank gives the same bits.
/// See the [module](super) for an example.
#[derive(Debug)]
pub struct Aggregator<K: Kernels = Cpu> {
    bucket: Bucket,
    /// The ranges that are sent dense.
    dense: Vec<Range<usize>>,
    spectrum: Option<K::Spectrum>,
    /// The frame that is being added.
    reading: usize,
}

impl Aggregator {
    /// An aggregator for frames made by `recipe` of `bucket`, on the CPU.
    pub fn new(recipe: &Recipe, bucket: Bucket) -> Result<Aggregator> {
        Aggregator::on(&mut Cpu::new(1), recipe, bucket)
    }
}

impl<K: Kernels> Aggregator<K> {
    /// The same on any device.
    pub fn on(kernels: &mut K, recipe: &Recipe, bucket: Bucket) -> Result<Aggregator<K>> {
        let (dense, units) = divide(recipe, &bucket);
        let spectrum = match (recipe.transform, units.first()) {
            (TransformKind::Fft { block }, Some(unit)) => Some(kernels.spectrum(&unit.ranges, block)?),
            _ => None,
        };
        Ok(Aggregator { bucket, dense, spectrum, reading: 0 })
    }

    /// Bytes held, beyond the work space of the kernels.
    pub fn workspace_bytes(&self) -> usize {
        self.spectrum.as_ref().map_or(0, Spectrum::bytes)
    }

    /// Which of the frames was read last: after an error, the one it is about.
    pub fn reading(&self) -> usize {
        self.reading
    }

    /// Sums the frames, each times `factor` (one over the number of ranks, for their mean). With
    /// `expected`, a frame of another step, plan or bucket is an error. Frequencies are summed as such, and
    /// transformed back once.
    ///
    /// On an error `output` is zero, unless the device has failed.
    pub fn sum<'f>(
        &mut self,
        kernels: &mut K,
        frames: impl IntoIterator<Item = &'f [u8]>,
        expected: Option<&Header>,
        factor: f32,
        output: &mut K::Gradient,
    ) -> Result<()> {
        self.sum_beside(kernels, frames, None, &[], expected, factor, output)
    }

    /// The same on a rank whose own frame is one of them, in the place given: what was sent in it need not be read if it
    /// is still there. `dense_means` are those of the layers sent dense, where the frames leave them out.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn sum_beside<'f>(
        &mut self,
        kernels: &mut K,
        frames: impl IntoIterator<Item = &'f [u8]>,
        own: Option<(usize, &mut Compressor<K>)>,
        dense_means: &[f32],
        expected: Option<&Header>,
        factor: f32,
        output: &mut K::Gradient,
    ) -> Result<()> {
        self.bucket.check_len("output", K::elements(output))?;
        kernels.begin_mean(output)?;
        let own = own.filter(|(_, compressor)| compressor.has_sent_exactly());
        let summed = self
            .add_all(kernels, frames, own, expected, factor, output)
            .and_then(|()| self.put_dense(kernels, dense_means, output));
        if summed.is_err() {
            kernels.begin_mean(output)?;
        }
        kernels.end_mean(output)?;
        summed
    }

    /// Puts the means of the layers sent dense in their places, if there are any.
    fn put_dense(&self, kernels: &mut K, means: &[f32], output: &mut K::Gradient) -> Result<()> {
        let mut left = means;
        for range in self.dense.iter().filter(|_| !means.is_empty()) {
            let (mine, rest) = left.split_at(range.len());
            kernels.put(mine, range.start, output)?;
            left = rest;
        }
        Ok(())
    }

    fn add_all<'f>(
        &mut self,
        kernels: &mut K,
        frames: impl IntoIterator<Item = &'f [u8]>,
        mut own: Option<(usize, &mut Compressor<K>)>,
        expected: Option<&Header>,
        factor: f32,
        output: &mut K::Gradient,
    ) -> Result<()> {
        if let Some(spectrum) = &mut self.spectrum {
            kernels.clear_spectrum(spectrum)?;
        }
        let mut frequencies = false;
        for (number, bytes) in frames.into_iter().enumerate() {
            self.reading = number;
            if let Some((_, compressor)) = own.as_mut().filter(|(own, _)| *own == number) {
                compressor.add_sent(kernels, factor, output)?;
                continue;
            }
            let frame = Frame::parse(bytes)?;
            if let Some(expected) = expected {
                frame.header().expect(expected)?;
            }
            let found = frame.header().elements as usize;
            self.bucket.check_len("frame", found)?;
            for section in frame.sections() {
                if *section.value_form() == ValueForm::Absent {
                    return Err(Error::BadField {
                        field: "section's value form",
                        found: "absent".into(),
                        expected: "values to add up".into(),
                    });
                }
                if section.width() == 1 {
                    kernels.add_section(&section, factor, output)?;
                } else {
                    kernels.add_bins(&section, factor, self.spectrum_for(&section)?)?;
                    frequencies = true;
                }
            }
        }
        match &mut self.spectrum {
            Some(spectrum) if frequencies => kernels.add_spectrum(spectrum, output),
            _ => Ok(()),
        }
    }

    /// The spectrum that a section of frequencies is added to.
    fn spectrum_for(&mut self, section: &Section<'_>) -> Result<&mut K::Spectrum> {
        let bins = self.spectrum.as_ref().map(Spectrum::bins);
        let fits = |spectrum: &&mut K::Spectrum| spectrum.bins() == section.universe() as usize;
        self.spectrum.as_mut().filter(fits).ok_or_else(|| Error::BadField {
            field: "section of frequencies",
            found: format!("{} bins", section.universe()),
            expected: bins.map_or("none by this method".into(), |bins| bins.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method;
    use crate::pipeline::InputOn;

    /// A rank that adds its own list must get the bits of those who read its frame.
    #[test]
    fn what_was_sent_is_added_as_it_would_be_read() {
        let layers = [("wide", vec![40, 75]), ("bias", vec![10]), ("narrow", vec![500])];
        let bucket = Bucket::new(7, layers).unwrap();
        // The smallest numbers there are become zeros with a sign when they are halved.
        let gradient = |rank: usize, step: usize| -> Vec<f32> {
            let value = |i: usize| ((i * (rank + 2) + 31 * step) as f32 * 0.37).sin();
            (0..bucket.len()).map(|i| value(i) * if i % 3 == 0 { 1e-45 } else { 1.0 }).collect()
        };
        for (spec, exact) in [
            ("topk:density=0.05", true),
            ("topk:density=0.4,scope=layer,momentum=0.9", true),
            ("redsync:density=0.1,dense_up_to=100", true),
            ("topk:density=0.05,values=f16", false),
            ("redsync:density=0.1,dense_up_to=100,quantize=true", false),
            ("fft", false),
        ] {
            let recipe = || method::parse(spec).unwrap();
            let mut cpu = Cpu::new(1);
            let mut ranks = [0, 1].map(|_| Compressor::new(recipe(), bucket.clone()).unwrap());
            let mut aggregator = Aggregator::new(&recipe(), bucket.clone()).unwrap();
            for step in 0..3 {
                let mut frames = [Vec::new(), Vec::new()];
                for (rank, frame) in frames.iter_mut().enumerate() {
                    let gradient = gradient(rank, step);
                    let (input, compressor) = (InputOn::new(&gradient[..]), &mut ranks[rank]);
                    let mut report = compressor.begin(&mut cpu, &input, true).unwrap();
                    compressor.encode(&mut cpu, &input, frame, &mut report).unwrap();
                    assert_eq!(compressor.has_sent_exactly(), exact, "{spec}");
                }
                let mut sum = |own: Option<(usize, &mut Compressor)>| -> Vec<u32> {
                    let (mut mean, frames) = (vec![0.0; bucket.len()], frames.iter().map(|frame| &frame[..]));
                    aggregator.sum_beside(&mut cpu, frames, own, &[], None, 0.5, &mut mean).unwrap();
                    mean.into_iter().map(f32::to_bits).collect()
                };
                let read = sum(None);
                for (rank, compressor) in ranks.iter_mut().enumerate() {
                    assert!(sum(Some((rank, compressor))) == read, "{spec}, step {step}, rank {rank}");
                }
                ranks.iter_mut().for_each(|compressor| compressor.commit(&mut cpu).unwrap());
            }
        }
    }

    /// Coordinates that are all there are get the form of a dense section, whose values are added otherwise.
    #[test]
    fn all_coordinates_are_read() {
        let recipe = method::parse("topk:density=0.5").unwrap();
        let mut compressor = Compressor::new(recipe, Bucket::new(0, [("one", vec![1])]).unwrap()).unwrap();
        let (mut cpu, mut frame) = (Cpu::new(1), Vec::new());
        assert!(!compressor.has_sent_exactly());
        let input = InputOn::new(&[1.0][..]);
        let mut report = compressor.begin(&mut cpu, &input, true).unwrap();
        compressor.encode(&mut cpu, &input, &mut frame, &mut report).unwrap();
        assert_eq!(report.kept, 1);
        assert!(!compressor.has_sent_exactly());
    }
}
