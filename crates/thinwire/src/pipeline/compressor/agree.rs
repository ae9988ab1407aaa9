//! The parts of a step in which others say what travels: a leader proposes its coordinates, everybody adopts
//! them, and the values there are summed on the way.

use std::time::Instant;

use super::draft::Draft;
use super::{Compressor, Input};
use crate::codec::{Frame, FrameWriter, Header, SectionInput, ValueForm};
use crate::kernels::{Cpu, Kernels};
use crate::memory::Progress;
use crate::pipeline::report::Report;
use crate::{Error, Result};

impl Compressor {
    /// Appends a frame with the coordinates this rank has selected, and no values.
    pub(crate) fn propose(
        &mut self,
        input: &Input<'_>,
        frame: &mut Vec<u8>,
        report: &mut Report,
    ) -> Result<()> {
        let begun = Instant::now();
        let mut writer = FrameWriter::new(frame, self.header(input));
        for draft in self.message.drafts.iter().filter(|draft| draft.unit.is_some()) {
            let start = draft.universe.start as u32;
            let positions = &self.message.positions[draft.positions.clone()];
            self.message.relative.clear();
            self.message.relative.extend(positions.iter().map(|position| position - start));
            writer.section(&SectionInput {
                start,
                universe: draft.universe.len() as u32,
                width: 1,
                indices: Some(&self.message.relative),
                values: &[],
                index: self.recipe.index,
                form: &ValueForm::Absent,
            })?;
        }
        writer.finish()?;
        report.encode_time += begun.elapsed();
        Ok(())
    }

    /// Reads the proposals, each with its leader: the agreed coordinates are the union of theirs. Says how many
    /// values will travel, those of dense layers included.
    pub(crate) fn agree<'f>(
        &mut self,
        proposals: impl Iterator<Item = (usize, &'f [u8])>,
        expected: &Header,
    ) -> Result<usize> {
        self.message.agreed.iter_mut().for_each(Vec::clear);
        self.message.agreed.resize_with(self.units.len(), Vec::new);
        for (number, (leader, bytes)) in proposals.enumerate() {
            self.hear(bytes, expected, number == 0).map_err(|error| Error::BadMessage {
                rank: leader,
                step: expected.step,
                reason: error.to_string(),
            })?;
        }
        Ok(self.dense.iter().map(|range| range.len()).sum::<usize>()
            + self.message.agreed.iter().map(Vec::len).sum::<usize>())
    }

    /// Adds the coordinates of one proposal to those agreed on.
    fn hear(&mut self, bytes: &[u8], expected: &Header, is_first: bool) -> Result<()> {
        let Compressor { units, message, .. } = self;
        let frame = Frame::parse(bytes)?;
        frame.header().expect(expected)?;
        if frame.sections().len() != units.len() {
            return Err(Error::BadField {
                field: "number of proposals",
                found: frame.sections().len().to_string(),
                expected: format!("{}, one for each vector that is selected from", units.len()),
            });
        }
        for ((section, unit), agreed) in frame.sections().zip(units.iter()).zip(&mut message.agreed) {
            let (place, whole) = ((section.start(), section.universe()), unit.universe());
            if place != (whole.start as u32, whole.len() as u32) || *section.value_form() != ValueForm::Absent
            {
                return Err(Error::BadField {
                    field: "proposal",
                    found: format!("{} values from {} on of {}", section.value_form(), place.0, place.1),
                    expected: format!("absent values from {} on of {}", whole.start, whole.len()),
                });
            }
            section.decode(&mut message.relative, &mut message.decoded)?;
            let start = section.start();
            agreed.extend(message.relative.iter().map(|position| start + position));
            if !is_first {
                agreed.sort_unstable();
                agreed.dedup();
            }
            check_inside(agreed, &unit.ranges)?;
        }
        Ok(())
    }

    /// Replaces what was selected by the agreed coordinates, and takes this rank's values there.
    pub(crate) fn adopt(&mut self, report: &mut Report) {
        let Compressor { memory, message, .. } = self;
        (report.kept, report.energy_sent) = (0, 0.0);
        message.positions.clear();
        let dense_values = message.drafts.iter().take_while(|draft| draft.unit.is_none()).last();
        message.values.truncate(dense_values.map_or(0, |draft| draft.values.end));
        report.energy_sent += message.values.iter().map(|&v| v as f64 * v as f64).sum::<f64>();
        for draft in message.drafts.iter_mut().filter(|draft| draft.unit.is_some()) {
            let agreed = &message.agreed[draft.unit.unwrap_or(0)];
            draft.positions = message.positions.len()..message.positions.len() + agreed.len();
            draft.values = message.values.len()..message.values.len() + agreed.len();
            message.positions.extend_from_slice(agreed);
            message.values.extend(agreed.iter().map(|&position| memory.residual[position as usize]));
            report.note_unit(0, (agreed.len(), &message.values[draft.values.clone()]));
        }
    }

    /// How many values travel where nobody needs to propose: every rank knows it, also one that has nothing to
    /// give.
    pub(crate) fn values_without_proposal(&self, progress: Progress) -> usize {
        if self.is_dense(progress) {
            return self.bucket.len();
        }
        let density = self.density(progress);
        let dense: usize = self.dense.iter().map(|range| range.len()).sum();
        dense + self.units.iter().map(|unit| unit.selector.quota(unit.len, density)).sum::<usize>()
    }

    /// This rank's values of the step.
    pub(crate) fn values(&self) -> &[f32] {
        &self.message.values
    }

    /// The others read `sent` for this step's values: the rest is kept for later, and stands in their place.
    pub(crate) fn keep_rest(&mut self, sent: &[f32]) {
        if self.recipe.feedback {
            self.message.values.iter_mut().zip(sent).for_each(|(value, sent)| *value -= sent);
            self.message.drafts.iter_mut().for_each(|draft| draft.lossy = true);
        }
    }

    /// The squared norm of what was selected; layers that are sent dense do not count.
    pub(crate) fn selected_energy(&self) -> f64 {
        let selected = self.message.drafts.iter().filter(|draft| draft.unit.is_some());
        let values = selected.flat_map(|draft| &self.message.values[draft.values.clone()]);
        values.map(|&value| value as f64 * value as f64).sum()
    }

    /// Puts the sums to their coordinates; everything else becomes zero.
    pub(crate) fn deliver(&self, cpu: &mut Cpu, sums: &[f32], output: &mut [f32]) {
        let everything = |draft: &Draft| draft.unit.is_none() && draft.universe.len() == output.len();
        if !self.message.drafts.iter().any(everything) {
            output.fill(0.0);
        }
        for draft in &self.message.drafts {
            let sums = &sums[draft.values.clone()];
            match draft.unit {
                None => output[draft.universe.clone()].copy_from_slice(sums),
                Some(_) => {
                    cpu.scatter_add(&self.message.positions[draft.positions.clone()], sums, output);
                }
            }
        }
    }
}

/// A unit may have gaps where layers are sent dense; a leader has no business there.
fn check_inside(positions: &[u32], ranges: &[std::ops::Range<usize>]) -> Result<()> {
    let mut ranges = ranges.iter().peekable();
    for &position in positions {
        while ranges.next_if(|range| range.end <= position as usize).is_some() {}
        if ranges.peek().is_none_or(|range| position < range.start as u32) {
            return Err(Error::BadField {
                field: "proposed coordinate",
                found: position.to_string(),
                expected: "one of a layer that is compressed".into(),
            });
        }
    }
    Ok(())
}
