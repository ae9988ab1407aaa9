//! Second half of a step: encode what was drafted, then forget it.

use std::time::Instant;

use super::draft::Message;
use super::{Compressor, Input};
use crate::Result;
use crate::codec::{FrameWriter, Header, IndexChoice, SectionInput, ValueForm, value};
use crate::kernels::{Cpu, Kernels};
use crate::pipeline::report::Report;

impl Compressor {
    /// Second part of a step: appends the frame. What a lossy value form loses is left in the message, in place
    /// of the values. After an error the frame is as it was.
    pub(crate) fn encode(
        &mut self,
        input: &Input<'_>,
        frame: &mut Vec<u8>,
        report: &mut Report,
    ) -> Result<()> {
        let (begun, before) = (Instant::now(), frame.len());
        let header = self.header(input);
        let mut writer = FrameWriter::new(frame, header);
        for number in 0..self.message.drafts.len() {
            let draft = self.message.drafts[number].clone();
            let plan = draft.unit.map_or(&self.recipe.values, |unit| &self.units[unit].values);
            let values = &self.message.values[draft.values.clone()];
            let form = if draft.unit.is_none() { plan.dense_form() } else { plan.form(values)? };
            let Message { positions, values, relative, .. } = &mut self.message;
            relative.clear();
            let start = draft.universe.start as u32;
            relative.extend(positions[draft.positions.clone()].iter().map(|position| position - start));
            let size = writer.section(&SectionInput {
                start,
                universe: draft.universe.len() as u32,
                width: if draft.unit.is_some() && self.spectrum.is_some() { 2 } else { 1 },
                indices: draft.unit.is_some().then_some(&relative[..]),
                values: &values[draft.values.clone()],
                index: if draft.unit.is_some() { self.recipe.index } else { IndexChoice::Shortest },
                form: &form,
            })?;
            report.index_bytes += size.index_bytes;
            report.value_bytes += size.value_bytes;
            report.clipped += size.clipped;
            let keeps_loss = draft.unit.is_none() || plan.keeps_loss();
            if self.recipe.feedback && keeps_loss && form != ValueForm::F32 {
                self.message.keep_loss(number, &form)?;
            }
        }
        report.values = self.message.values.len();
        writer.finish()?;
        report.encode_time = begun.elapsed();
        report.frame_bytes = frame.len() - before;
        Ok(())
    }

    /// Where this step's frames belong.
    pub(crate) fn header(&self, input: &Input<'_>) -> Header {
        Header {
            step: input.progress.step,
            plan: input.plan,
            bucket: self.bucket.id(),
            elements: self.bucket.len() as u32,
        }
    }

    /// Last part of a step: what was drafted has been sent. The memory forgets it, and keeps what the codec
    /// lost.
    pub(crate) fn commit(&mut self, cpu: &mut Cpu) {
        let Compressor { recipe, memory, units, spectrum, message, chose, .. } = self;
        for number in message.drafts.iter().filter_map(|draft| draft.unit).filter(|_| *chose) {
            units[number].selector.commit();
        }
        if !recipe.feedback {
            return;
        }
        for draft in &message.drafts {
            let positions = &message.positions[draft.positions.clone()];
            let left = Some(&message.values[draft.values.clone()]).filter(|_| draft.lossy);
            match (draft.unit, &mut *spectrum) {
                (None, _) => match left {
                    Some(left) => memory.residual[draft.universe.clone()].copy_from_slice(left),
                    None => memory.residual[draft.universe.clone()].fill(0.0),
                },
                (Some(_), None) => {
                    memory.forget(cpu, positions);
                    cpu.scatter_add(positions, left.unwrap_or(&[]), &mut memory.residual);
                }
                (Some(_), Some(spectrum)) => {
                    // What was sent, in the time domain, is what the spectrum was less what is left of it.
                    spectrum.keep_only(positions, left);
                    spectrum.inverse(&mut memory.residual, |residual, sent| *residual -= sent);
                }
            }
        }
    }
}

impl Message {
    /// Puts into the place of a draft's values what stays behind: the difference to what receivers will read.
    fn keep_loss(&mut self, number: usize, form: &ValueForm) -> Result<()> {
        let draft = &mut self.drafts[number];
        let values = &mut self.values[draft.values.clone()];
        self.bytes.clear();
        value::encode(form, values, &mut self.bytes)?;
        value::decode(form, &self.bytes, values.len(), &mut self.decoded)?;
        values.iter_mut().zip(&self.decoded).for_each(|(value, decoded)| *value -= decoded);
        draft.lossy = true;
        Ok(())
    }
}
