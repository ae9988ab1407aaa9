//! Sections of frames: short ones are coded by the host, from the mirrors of their lists, long ones on the device.

use std::ops::Range;

use super::Cuda;
use super::codec::{self, Run as Place};
use super::list::{DeviceList, SHORT};
use super::memory::Gradient;
use super::spectrum::CudaSpectrum;
use crate::Result;
use crate::codec::{EncodedSection, FrameWriter, Section, SectionInput, SectionSize, ValueForm, value};
use crate::kernels::{Outgoing, Run};
use crate::pipeline::ValuePlan;

type Sent<'a> = Outgoing<'a, DeviceList<u32>, DeviceList<f32>>;

/// Where the entries of a list are on the device.
fn place<T: bytemuck::Pod>(run: &Run<'_, DeviceList<T>>) -> Place<T> {
    Place::new(run.list.at(run.range.start), run.range.len())
}

/// Whether long lists of this form are coded on the device; the host codes all others.
fn on_device(form: &ValueForm) -> bool {
    !matches!(form, ValueForm::Quantized(_))
}

impl Cuda {
    pub(super) fn form_of(
        &mut self,
        plan: &ValuePlan,
        values: Run<'_, DeviceList<f32>>,
    ) -> Result<ValueForm> {
        match *plan {
            ValuePlan::Covering { bits, mantissa, rounding } if values.range.len() > SHORT => {
                let measured = self.codec.measure((0, 0), None, place(&values))?;
                Ok(ValueForm::Range(measured.covering(bits, mantissa, rounding)?))
            }
            ValuePlan::Covering { .. } => plan.form(values.list.host(values.range, &mut self.decoded)?),
            _ => plan.form(&[]),
        }
    }

    pub(super) fn write(&mut self, section: Sent<'_>, writer: &mut FrameWriter<'_>) -> Result<SectionSize> {
        let positions = section.positions.as_ref().map_or(0, |positions| positions.range.len());
        self.encoded = None;
        if positions.max(section.values.range.len()) > SHORT && on_device(section.form) {
            return self.write_long(&section, writer);
        }
        let Outgoing { start, universe, width, positions, values, index, form } = section;
        let absent = *form == ValueForm::Absent;
        let values = if absent { &[][..] } else { values.list.host(values.range, &mut self.decoded)? };
        let mut spare = Vec::new();
        self.indices.clear();
        if let Some(Run { list, range }) = &positions {
            self.indices
                .extend(list.host(range.clone(), &mut spare)?.iter().map(|position| position - start));
        }
        let indices = positions.map(|_| &self.indices[..]);
        writer.section(&SectionInput { start, universe, width, indices, values, index, form })
    }

    fn write_long(&mut self, section: &Sent<'_>, writer: &mut FrameWriter<'_>) -> Result<SectionSize> {
        let encoded = self.encode(section)?;
        let count =
            section.positions.as_ref().map_or(section.universe as usize, |positions| positions.range.len());
        let (index, value) = (encoded.index_bytes, encoded.value_bytes);
        self.message.reserve(index.len + value.len)?;
        self.message.fetch(0..index.len, index.address)?;
        self.message.fetch(index.len..index.len + value.len, value.address)?;
        self.device.wait()?;
        let (index_bytes, rest) = self.message.slice().split_at(index.len);
        writer.encoded_section(&EncodedSection {
            start: section.start,
            universe: section.universe,
            width: section.width,
            count: count as u32,
            index_form: encoded.index_form,
            index_bytes,
            form: section.form,
            value_bytes: &rest[..value.len],
            clipped: encoded.clipped,
        })
    }

    /// Makes the bytes of a section, in the device's memory.
    pub(super) fn encode(&mut self, section: &Sent<'_>) -> Result<codec::Encoded> {
        let &Outgoing { start, universe, width, index, form, .. } = section;
        let positions = section.positions.as_ref().map(place);
        let values = match form {
            ValueForm::Absent => Place::new(0, 0),
            _ => place(&section.values),
        };
        let measured = self.codec.measure((start, universe), positions, values)?;
        let outgoing = codec::Outgoing { start, universe, width, positions, values, index, form };
        let encoded = self.codec.encode(&outgoing, &measured)?;
        self.encoded = Some(encoded.value_bytes);
        Ok(encoded)
    }

    /// Puts what receivers will not see in place of values that were just written.
    pub(super) fn lose(
        &mut self,
        form: &ValueForm,
        range: Range<usize>,
        values: &mut DeviceList<f32>,
    ) -> Result<()> {
        if let (true, Some(bytes)) = (range.len() > SHORT, self.encoded.take()) {
            values.outdated(range.start);
            return self.codec.lose(Place::new(values.at(range.start), range.len()), form, bytes);
        }
        let Cuda { bytes, decoded, .. } = self;
        values.change(range, |values| {
            bytes.clear();
            value::encode(form, values, bytes)?;
            value::decode(form, bytes, values.len(), decoded)?;
            values.iter_mut().zip(&*decoded).for_each(|(value, decoded)| *value -= decoded);
            Ok(())
        })
    }

    /// The coordinates of a section, `None` for all, and its values: on the device, with all they can say checked.
    fn decode(&mut self, section: &Section<'_>) -> Result<codec::Decoded> {
        if section.count() as usize > SHORT && on_device(section.value_form()) {
            self.encoded = None;
            return self.codec.decode(section);
        }
        section.decode(&mut self.indices, &mut self.decoded)?;
        let (values, indices) = self.upload.send_both(&self.decoded, &self.indices)?;
        let indices = (!self.indices.is_empty()).then(|| Place::new(indices, self.indices.len()));
        Ok(codec::Decoded { indices, values: Place::new(values, self.decoded.len()) })
    }

    pub(super) fn add(&mut self, section: &Section<'_>, factor: f32, mean: &Gradient) -> Result<()> {
        let start = section.start() as usize;
        Cuda::check(mean, start + section.universe() as usize)?;
        if section.count() as usize <= SHORT {
            return self.add_short(section, factor, mean);
        }
        self.add_pending()?;
        let codec::Decoded { indices, values } = self.decode(section)?;
        let to = self.mean.address(mean) + 4 * start as u64;
        match indices {
            None => self.add_all(values.address, values.len, factor, to),
            Some(indices) => self.scatter_to((indices.address, values.address), values.len, factor, to),
        }
    }

    pub(super) fn add_to_spectrum(
        &mut self,
        section: &Section<'_>,
        factor: f32,
        spectrum: &mut CudaSpectrum,
    ) -> Result<()> {
        let codec::Decoded { indices, values } = self.decode(section)?;
        // A section without coordinates has none because all are meant, or because there are none.
        if indices.is_none() && values.len == 0 {
            return Ok(());
        }
        spectrum.add(indices, values, factor)
    }
}
