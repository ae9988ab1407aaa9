//! Sections of frames on the CPU: lists to bytes, and bytes to sums, with the work space for both.

use super::CpuSpectrum;
use crate::Result;
use crate::codec::{FrameWriter, Section, SectionInput, SectionSize, ValueForm, value};
use crate::kernels::Outgoing;

/// Work space, kept for its memory.
#[derive(Debug, Default)]
pub(super) struct Coder {
    indices: Vec<u32>,
    values: Vec<f32>,
    bytes: Vec<u8>,
}

impl Coder {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * (self.indices.capacity() + self.values.capacity()) + self.bytes.capacity()
    }

    pub fn write(
        &mut self,
        section: &Outgoing<'_, Vec<u32>, Vec<f32>>,
        writer: &mut FrameWriter<'_>,
    ) -> Result<SectionSize> {
        let start = section.start;
        let positions = section.positions.as_ref().map_or(&[][..], |positions| positions.as_slice());
        self.indices.clear();
        self.indices.extend(positions.iter().map(|position| position - start));
        writer.section(&SectionInput {
            start,
            universe: section.universe,
            width: section.width,
            indices: section.positions.as_ref().map(|_| &self.indices[..]),
            values: section.values.as_slice(),
            index: section.index,
            form: section.form,
        })
    }

    /// Takes from `values` what receivers will read.
    pub fn keep_loss(&mut self, form: &ValueForm, values: &mut [f32]) -> Result<()> {
        self.bytes.clear();
        value::encode(form, values, &mut self.bytes)?;
        value::decode(form, &self.bytes, values.len(), &mut self.values)?;
        values.iter_mut().zip(&self.values).for_each(|(value, decoded)| *value -= decoded);
        Ok(())
    }

    pub fn add_section(&mut self, section: &Section<'_>, factor: f32, mean: &mut [f32]) -> Result<()> {
        self.decode(section, factor)?;
        let start = section.start() as usize;
        let universe = &mut mean[start..start + section.universe() as usize];
        if self.indices.is_empty() {
            add_all(self.values.iter().copied(), universe);
        } else {
            scatter_add(&self.indices, &self.values, universe);
        }
        Ok(())
    }

    pub fn add_bins(&mut self, section: &Section<'_>, factor: f32, spectrum: &mut CpuSpectrum) -> Result<()> {
        self.decode(section, factor)?;
        let all = self.indices.is_empty();
        spectrum.add((!all).then_some(&self.indices[..]), &self.values);
        Ok(())
    }

    fn decode(&mut self, section: &Section<'_>, factor: f32) -> Result<()> {
        section.decode(&mut self.indices, &mut self.values)?;
        // Now, while they are few: later every element of the output would have to be walked.
        if factor != 1.0 {
            self.values.iter_mut().for_each(|value| *value *= factor);
        }
        Ok(())
    }
}

/// Values of a whole universe. Not added to a zero, so that a zero keeps its sign and one dense message comes back bit for
/// bit.
pub(super) fn add_all(what: impl Iterator<Item = f32>, values: &mut [f32]) {
    let add = |(sum, value): (&mut f32, f32)| *sum = if *sum == 0.0 { value } else { *sum + value };
    values.iter_mut().zip(what).for_each(add);
}

/// `values[positions[i]] += what[i]`, in order.
pub(super) fn scatter_add(positions: &[u32], what: &[f32], values: &mut [f32]) {
    for (&position, &value) in positions.iter().zip(what) {
        values[position as usize] += value;
    }
}
