//! Second half of a step: encode what was drafted, then forget it.

use std::ops::Range;
use std::time::Instant;

use super::draft::{Draft, Message};
use super::{Compressor, InputOn};
use crate::Result;
use crate::codec::{FrameWriter, Header, IndexChoice, ValueForm};
use crate::kernels::{Kernels, List, Outgoing};
use crate::pipeline::report::Report;

impl<K: Kernels> Compressor<K> {
    /// Second part of a step: appends the frame. What a lossy value form loses does not count as sent, and is left in the
    /// message in place of the values. After an error the frame is as it was.
    pub(crate) fn encode(
        &mut self,
        kernels: &mut K,
        input: &InputOn<'_, K>,
        frame: &mut Vec<u8>,
        report: &mut Report,
    ) -> Result<()> {
        let (begun, before) = (Instant::now(), frame.len());
        let mut writer = FrameWriter::new(frame, self.header(input));
        let dense_form = self.recipe.dense_form();
        let Compressor { recipe, units, spectrum, message, .. } = self;
        let apart = message.dense_apart;
        for draft in message.drafts.iter_mut().filter(|draft| draft.unit.is_some() || !apart) {
            let plan = draft.unit.map_or(&recipe.values, |unit| &units[unit].values);
            let values = || message.values.run(draft.values.clone());
            let form = if draft.unit.is_none() { dense_form } else { kernels.form(plan, values())? };
            let section = Outgoing {
                start: draft.universe.start as u32,
                universe: draft.universe.len() as u32,
                width: if draft.unit.is_some() && spectrum.is_some() { 2 } else { 1 },
                positions: draft.unit.map(|_| message.positions.run(draft.positions.clone())),
                values: values(),
                index: if draft.unit.is_some() { recipe.index } else { IndexChoice::Shortest },
                form: &form,
            };
            let size = kernels.write_section(section, &mut writer)?;
            report.index_bytes += size.index_bytes;
            report.value_bytes += size.value_bytes;
            report.clipped += size.clipped;
            report.dense_bytes += if draft.unit.is_none() { size.value_bytes } else { 0 };
            draft.exact = form == ValueForm::F32;
            report.energy_sent -= match form {
                ValueForm::F32 => 0.0,
                // The mean of values is the closest to them, so its energy and that of the differences add up to theirs.
                ValueForm::SameSign => {
                    let mean = mean_in(writer.last(size.value_bytes));
                    draft.energy - mean * mean * draft.values.len() as f64
                }
                _ => {
                    kernels.keep_loss(&form, draft.values.clone(), &mut message.values)?;
                    draft.lossy = recipe.feedback && (draft.unit.is_none() || plan.keeps_loss());
                    kernels.energy(message.values.run(draft.values.clone()))?
                }
            };
        }
        // Rounding to a few bits may lose more than there was.
        report.energy_sent = report.energy_sent.max(0.0);
        report.values = message.values.len();
        writer.finish()?;
        message.encoded = true;
        report.encode_time = begun.elapsed();
        report.frame_bytes = frame.len() - before;
        Ok(())
    }

    /// Where this step's frames belong.
    pub(crate) fn header(&self, input: &InputOn<'_, K>) -> Header {
        Header {
            step: input.progress.step,
            plan: input.plan,
            bucket: self.bucket.id(),
            elements: self.bucket.len() as u32,
        }
    }

    /// Last part of a step: what was drafted has been sent. The memory forgets it, and keeps what the codec
    /// lost.
    pub(crate) fn commit(&mut self, kernels: &mut K) -> Result<()> {
        let Compressor { recipe, memory, units, spectrum, message, chose, .. } = self;
        for number in message.drafts.iter().filter_map(|draft| draft.unit).filter(|_| *chose) {
            units[number].selector.commit();
        }
        if !recipe.feedback {
            return Ok(());
        }
        // Those of all units stand in a row.
        if spectrum.is_none() && message.positions.len() > 0 {
            memory.forget(kernels, message.positions.all(), recipe.masking)?;
        }
        let Message { positions, values, drafts, ranges, .. } = message;
        ranges.clear();
        ranges.extend(
            drafts.iter().filter(|d| d.unit.is_none() && !d.lossy).map(|draft| draft.universe.clone()),
        );
        kernels.clear_ranges(ranges, &mut memory.residual)?;
        for draft in drafts {
            let positions = positions.run(draft.positions.clone());
            let left = draft.lossy.then(|| values.run(draft.values.clone()));
            match (draft.unit, &mut *spectrum) {
                (None, _) => {
                    if let Some(left) = left {
                        kernels.replace(left, draft.universe.start, &mut memory.residual)?;
                    }
                }
                (Some(_), None) => {
                    if let Some(left) = left {
                        kernels.scatter_add(positions, left, &mut memory.residual)?;
                    }
                }
                (Some(_), Some(spectrum)) => {
                    kernels.forget_bins(spectrum, positions, left, &mut memory.residual)?;
                }
            }
        }
        Ok(())
    }

    /// Whether all values of the frame that was encoded last are the very ones that receivers read, and this rank still
    /// has them in its lists.
    pub(crate) fn has_sent_exactly(&self) -> bool {
        // Coordinates that are all there are count as those of a dense section.
        let some = |draft: &Draft| draft.unit.is_none() || draft.positions.len() < draft.universe.len();
        let message = &self.message;
        let mut in_frame = message.drafts.iter().filter(|draft| draft.unit.is_some() || !message.dense_apart);
        message.encoded && self.spectrum.is_none() && in_frame.all(|draft| draft.exact && some(draft))
    }

    /// Adds what this rank has sent in its frame to a mean that was begun, as if it were read from the frame.
    pub(crate) fn add_sent(&mut self, kernels: &mut K, factor: f32, mean: &mut K::Gradient) -> Result<()> {
        let Message { positions, values, drafts, ranges, dense_apart, .. } = &mut self.message;
        // Dense ranges come first.
        let dense = drafts.iter().take_while(|draft| draft.unit.is_none());
        ranges.clear();
        ranges.extend(dense.map(|draft| draft.universe.clone()));
        let end = ranges.iter().map(Range::len).sum();
        if end > 0 && !*dense_apart {
            kernels.add_ranges(ranges, values.run(0..end), factor, mean)?;
        }
        if positions.is_empty() {
            return Ok(());
        }
        kernels.add_entries(positions.all(), values.run(end..values.len()), factor, mean)
    }
}

/// The value of a section in which all are one; 0 if it has none.
fn mean_in(bytes: &[u8]) -> f64 {
    bytes.first_chunk().map_or(0.0, |bytes| f64::from(f32::from_le_bytes(*bytes)))
}
