//! The parts of a step in which others say what travels: a leader proposes its coordinates, everybody adopts
//! them, and the values there are summed on the way.

use std::time::Instant;

use super::draft::{Draft, Message};
use super::{Compressor, InputOn};
use crate::codec::{Frame, FrameWriter, Header, ValueForm};
use crate::kernels::{Kernels, List, Outgoing};
use crate::memory::Progress;
use crate::pipeline::report::Report;
use crate::{Error, Result};

impl<K: Kernels> Compressor<K> {
    /// Appends a frame with the coordinates this rank has selected, and no values.
    pub(crate) fn propose(
        &mut self,
        kernels: &mut K,
        input: &InputOn<'_, K>,
        frame: &mut Vec<u8>,
        report: &mut Report,
    ) -> Result<()> {
        let begun = Instant::now();
        let mut writer = FrameWriter::new(frame, self.header(input));
        for draft in self.message.drafts.iter().filter(|draft| draft.unit.is_some()) {
            let section = Outgoing {
                start: draft.universe.start as u32,
                universe: draft.universe.len() as u32,
                width: 1,
                positions: Some(self.message.positions.run(draft.positions.clone())),
                values: self.message.values.run(0..0),
                index: self.recipe.index,
                form: &ValueForm::Absent,
            };
            kernels.write_section(section, &mut writer)?;
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
        Ok(self.dense_len() + self.message.agreed.iter().map(Vec::len).sum::<usize>())
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
            section.decode(&mut message.named, &mut message.nothing)?;
            let start = section.start();
            agreed.extend(message.named.iter().map(|position| start + position));
            if !is_first {
                agreed.sort_unstable();
                agreed.dedup();
            }
            check_inside(agreed, &unit.ranges)?;
        }
        Ok(())
    }

    /// Replaces what was selected by the agreed coordinates, and takes this rank's values there.
    pub(crate) fn adopt(&mut self, kernels: &mut K, report: &mut Report) -> Result<()> {
        let Compressor { memory, message, .. } = self;
        (report.kept, report.energy_sent) = (0, 0.0);
        message.positions.truncate(0);
        message.values.truncate(message.dense_values());
        report.energy_sent += kernels.energy(message.values.all())?;
        for number in 0..message.drafts.len() {
            let Message { positions, values, drafts, agreed, .. } = &mut *message;
            let draft = &mut drafts[number];
            let Some(unit) = draft.unit else { continue };
            (draft.positions.start, draft.values.start) = (positions.len(), values.len());
            kernels.adopt(&agreed[unit], &memory.residual, positions, values)?;
            (draft.positions.end, draft.values.end) = (positions.len(), values.len());
            message.note(kernels, number, report)?;
        }
        Ok(())
    }

    /// How many values travel where nobody needs to propose: every rank knows it, also one that has nothing to
    /// give.
    pub(crate) fn values_without_proposal(&self, progress: Progress) -> usize {
        if self.is_dense(progress) {
            return self.bucket.len();
        }
        let density = self.density(progress);
        self.dense_len() + self.units.iter().map(|unit| unit.quota(density)).sum::<usize>()
    }

    /// This rank's values of the step.
    pub(crate) fn values<'a>(&'a mut self, kernels: &'a mut K) -> Result<&'a [f32]> {
        kernels.on_host(&mut self.message.values)
    }

    /// The others read `sent` for this step's values: the rest is kept for later, and stands in their place.
    pub(crate) fn keep_rest(&mut self, kernels: &mut K, sent: &[f32]) -> Result<()> {
        if self.recipe.feedback {
            kernels.subtract(sent, &mut self.message.values)?;
            self.message.drafts.iter_mut().for_each(|draft| draft.lossy = true);
        }
        Ok(())
    }

    /// How many elements are in layers that are sent dense.
    pub(crate) fn dense_len(&self) -> usize {
        self.dense.iter().map(|range| range.len()).sum()
    }

    /// Leaves the layers that are sent dense out of this step's frame, and gives their values.
    pub(crate) fn set_dense_apart<'a>(&'a mut self, kernels: &'a mut K) -> Result<&'a [f32]> {
        self.message.dense_apart = true;
        let dense = self.message.dense_values();
        Ok(&kernels.on_host(&mut self.message.values)?[..dense])
    }

    /// The others read `sent` for the values of layers that are sent dense: the rest is kept.
    pub(crate) fn keep_dense_rest(&mut self, kernels: &mut K, sent: &[f32]) -> Result<()> {
        if self.recipe.feedback {
            kernels.subtract(sent, &mut self.message.values)?;
            let dense = self.message.drafts.iter_mut().filter(|draft| draft.unit.is_none());
            dense.for_each(|draft| draft.lossy = true);
        }
        Ok(())
    }

    /// The squared norm of what was selected; layers that are sent dense do not count.
    pub(crate) fn selected_energy(&self, kernels: &mut K) -> Result<f64> {
        // Those come first, so that the rest is one run.
        let first = self.message.drafts.iter().find(|draft| draft.unit.is_some());
        let end = self.message.values.len();
        kernels.energy(self.message.values.run(first.map_or(end, |draft| draft.values.start)..end))
    }

    /// Puts the sums to their coordinates; everything else becomes zero.
    pub(crate) fn deliver(&self, kernels: &mut K, sums: &[f32], output: &mut K::Gradient) -> Result<()> {
        let everything = |draft: &Draft| draft.unit.is_none() && draft.universe.len() == self.bucket.len();
        if self.message.drafts.iter().any(everything) {
            return kernels.store(sums, output);
        }
        kernels.begin_mean(output)?;
        for draft in &self.message.drafts {
            let sums = &sums[draft.values.clone()];
            match draft.unit {
                None => kernels.put(sums, draft.universe.start, output)?,
                Some(_) => {
                    let positions = self.message.positions.run(draft.positions.clone());
                    kernels.scatter(positions, sums, output)?;
                }
            }
        }
        kernels.end_mean(output)
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
