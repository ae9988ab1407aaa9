//! From the frames of all ranks to the mean gradient.

use super::recipe::Recipe;
use super::spectrum::Spectrum;
use super::unit::divide;
use crate::codec::{Frame, Header, Section, ValueForm};
use crate::kernels::{Cpu, Kernels};
use crate::transform::TransformKind;
use crate::{Bucket, Error, Result};

/// Decodes frames and adds them up, in the order given: the same order on every rank gives the same bits.
/// See the [module](super) for an example.
#[derive(Debug)]
pub struct Aggregator {
    bucket: Bucket,
    spectrum: Option<Spectrum>,
    indices: Vec<u32>,
    values: Vec<f32>,
    /// The frame that is being added.
    reading: usize,
}

impl Aggregator {
    /// An aggregator for frames made by `recipe` of `bucket`.
    pub fn new(recipe: &Recipe, bucket: Bucket) -> Result<Aggregator> {
        let (_, units) = divide(recipe, &bucket);
        let spectrum = match (recipe.transform, units.first()) {
            (TransformKind::Fft { block }, Some(unit)) => Some(Spectrum::new(&unit.ranges, block)?),
            _ => None,
        };
        Ok(Aggregator { bucket, spectrum, indices: Vec::new(), values: Vec::new(), reading: 0 })
    }

    /// Bytes held.
    pub fn workspace_bytes(&self) -> usize {
        let spectrum = self.spectrum.as_ref().map_or(0, Spectrum::bytes);
        4 * (self.indices.capacity() + self.values.capacity()) + spectrum
    }

    /// Which of the frames was read last: after an error, the one it is about.
    pub fn reading(&self) -> usize {
        self.reading
    }

    /// Sums the frames, each times `factor` (one over the number of ranks, for their mean). With
    /// `expected`, a frame of another step, plan or bucket is an error. Frequencies are summed as such, and
    /// transformed back once.
    ///
    /// On an error `output` is zero.
    pub fn sum<'f>(
        &mut self,
        cpu: &mut Cpu,
        frames: impl IntoIterator<Item = &'f [u8]>,
        expected: Option<&Header>,
        factor: f32,
        output: &mut [f32],
    ) -> Result<()> {
        self.bucket.check_len("output", output.len())?;
        output.fill(0.0);
        let summed = self.add_all(cpu, frames, expected, factor, output);
        match summed {
            Err(_) => output.fill(0.0),
            Ok(frequencies) => {
                if let (true, Some(spectrum)) = (frequencies, &mut self.spectrum) {
                    spectrum.inverse(output, |output, value| *output += value);
                }
            }
        }
        summed.map(|_| ())
    }

    /// Adds all frames; tells whether any of them held frequencies.
    fn add_all<'f>(
        &mut self,
        cpu: &mut Cpu,
        frames: impl IntoIterator<Item = &'f [u8]>,
        expected: Option<&Header>,
        factor: f32,
        output: &mut [f32],
    ) -> Result<bool> {
        if let Some(spectrum) = &mut self.spectrum {
            spectrum.zero();
        }
        let mut frequencies = false;
        for (number, bytes) in frames.into_iter().enumerate() {
            self.reading = number;
            let frame = Frame::parse(bytes)?;
            if let Some(expected) = expected {
                frame.header().expect(expected)?;
            }
            let found = frame.header().elements as usize;
            self.bucket.check_len("frame", found)?;
            for section in frame.sections() {
                section.decode(&mut self.indices, &mut self.values)?;
                if *section.value_form() == ValueForm::Absent {
                    return Err(Error::BadField {
                        field: "section's value form",
                        found: "absent".into(),
                        expected: "values to add up".into(),
                    });
                }
                // Now, while they are few: later every element of the output would have to be walked.
                if factor != 1.0 {
                    self.values.iter_mut().for_each(|value| *value *= factor);
                }
                if section.width() == 1 {
                    self.add_coordinates(cpu, &section, output);
                } else {
                    self.add_frequencies(&section)?;
                    frequencies = true;
                }
            }
        }
        Ok(frequencies)
    }

    fn add_coordinates(&mut self, cpu: &mut Cpu, section: &Section<'_>, output: &mut [f32]) {
        let start = section.start() as usize;
        let universe = &mut output[start..start + section.universe() as usize];
        if self.indices.is_empty() {
            // Not added to a zero, so that a zero keeps its sign and one dense message comes back bit for bit.
            let add = |(sum, &value): (&mut f32, &f32)| *sum = if *sum == 0.0 { value } else { *sum + value };
            universe.iter_mut().zip(&self.values).for_each(add);
        } else {
            cpu.scatter_add(&self.indices, &self.values, universe);
        }
    }

    fn add_frequencies(&mut self, section: &Section<'_>) -> Result<()> {
        let Some(spectrum) = self.spectrum.as_mut().filter(|s| s.bins() == section.universe() as usize)
        else {
            return Err(Error::BadField {
                field: "section of frequencies",
                found: format!("{} bins", section.universe()),
                expected: self
                    .spectrum
                    .as_ref()
                    .map_or("none by this method".into(), |s| format!("{}", s.bins())),
            });
        };
        let all = self.indices.is_empty();
        spectrum.add((!all).then_some(&self.indices[..]), &self.values);
        Ok(())
    }
}
