//! A section that was encoded elsewhere, on a GPU say, and only has to be put into its frame.

use super::section;
use super::writer::{FrameWriter, SectionSize, check_width};
use crate::Result;
use crate::codec::index::{self, IndexForm};
use crate::codec::{ValueForm, bits, value};

/// The bytes of one section, and what its header says of them.
#[derive(Debug, Clone, Copy)]
pub struct EncodedSection<'a> {
    /// Where the universe begins in the bucket.
    pub start: u32,
    /// How many coordinates there are to choose from.
    pub universe: u32,
    /// Values for each coordinate: 1, or 2 for complex ones.
    pub width: u8,
    /// How many coordinates it has; all of the universe for [`IndexForm::All`].
    pub count: u32,
    /// How the coordinates are written.
    pub index_form: IndexForm,
    /// The coordinates in that form, counted from `start`.
    pub index_bytes: &'a [u8],
    /// How the values are written.
    pub form: &'a ValueForm,
    /// The values in that form.
    pub value_bytes: &'a [u8],
    /// Values that were beyond the range of the form and were clipped to it.
    pub clipped: usize,
}

impl FrameWriter<'_> {
    /// Appends a section from bytes that are already in their forms. The header is checked as by
    /// [`section`](FrameWriter::section), and the lengths against it; what the bytes say is the caller's word.
    ///
    /// # Errors
    /// [`Error::BadField`](crate::Error::BadField) or [`Error::Truncated`](crate::Error::Truncated) if place, width, forms and lengths do not go together. The section
    /// is not written then.
    pub fn encoded_section(&mut self, input: &EncodedSection<'_>) -> Result<SectionSize> {
        let &EncodedSection { start, universe, width, count, index_form, index_bytes, .. } = input;
        let &EncodedSection { form, value_bytes, clipped, .. } = input;
        check_width(width)?;
        section::check_place(self.header(), start, universe, width)?;
        section::check_forms(index_form, form, width)?;
        index::check_lengths(index_form, index_bytes, count as usize, universe)?;
        let values = section::value_count(count, width)?;
        bits::check_length("values", value_bytes, value::encoded_len(form, values) as u64)?;
        let out = self.begin_section();
        let before = out.len();
        let coordinates = (count, index_form, index_bytes.len() as u64);
        section::write_header((start, universe, width), coordinates, form, out);
        let header_bytes = out.len() - before;
        out.extend_from_slice(index_bytes);
        out.extend_from_slice(value_bytes);
        let (index_bytes, value_bytes) = (index_bytes.len(), value_bytes.len());
        Ok(SectionSize { index_form, index_bytes, value_bytes, header_bytes, clipped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::codec::{Frame, Header, IndexChoice, SectionInput};

    const HEADER: Header = Header { step: 1, plan: 2, bucket: 3, elements: 100 };

    fn encoded<'a>(index_bytes: &'a [u8], value_bytes: &'a [u8]) -> EncodedSection<'a> {
        EncodedSection {
            start: 10,
            universe: 50,
            width: 1,
            count: 3,
            index_form: IndexForm::List,
            index_bytes,
            form: &ValueForm::F32,
            value_bytes,
            clipped: 0,
        }
    }

    #[test]
    fn the_frame_is_the_one_the_writer_makes_by_itself() {
        for index in [IndexForm::List, IndexForm::Delta, IndexForm::Bitmap] {
            for form in [ValueForm::F32, ValueForm::Bf16, ValueForm::SameSign] {
                let (indices, values) = ([4, 7, 49], [1.0, 2.5, 3.0]);
                let mut expected = Vec::new();
                let mut writer = FrameWriter::new(&mut expected, HEADER);
                let section = SectionInput {
                    start: 10,
                    universe: 50,
                    width: 1,
                    indices: Some(&indices),
                    values: &values,
                    index: IndexChoice::Fixed(index),
                    form: &form,
                };
                let size = writer.section(&section).unwrap();
                writer.finish().unwrap();
                let (mut index_bytes, mut value_bytes) = (Vec::new(), Vec::new());
                index::encode(index, &indices, 50, &mut index_bytes).unwrap();
                value::encode(&form, &values, &mut value_bytes).unwrap();
                let mut found = Vec::new();
                let mut writer = FrameWriter::new(&mut found, HEADER);
                let input =
                    EncodedSection { index_form: index, form: &form, ..encoded(&index_bytes, &value_bytes) };
                assert_eq!(writer.encoded_section(&input).unwrap(), size);
                writer.finish().unwrap();
                assert_eq!(found, expected, "{index} {form}");
            }
        }
    }

    #[test]
    fn a_header_that_does_not_fit_is_refused_and_leaves_no_trace() {
        let (index_bytes, value_bytes) = ([0; 12], [0; 12]);
        let right = encoded(&index_bytes, &value_bytes);
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes, HEADER);
        for wrong in [
            EncodedSection { start: 51, ..right },
            EncodedSection { width: 3, ..right },
            EncodedSection { width: 2, ..right },
            EncodedSection { count: 2, ..right },
            EncodedSection { universe: 2, ..right },
            EncodedSection { index_form: IndexForm::All, ..right },
            EncodedSection { index_bytes: &[0; 11], ..right },
            EncodedSection { value_bytes: &[0; 13], ..right },
            EncodedSection { form: &ValueForm::F16, ..right },
            EncodedSection {
                index_form: IndexForm::All,
                index_bytes: &[],
                form: &ValueForm::Absent,
                ..right
            },
        ] {
            let error = writer.encoded_section(&wrong).unwrap_err();
            assert!(matches!(error, Error::BadField { .. } | Error::Truncated { .. }), "{error}");
        }
        writer.finish().unwrap();
        assert_eq!(Frame::parse(&bytes).unwrap().sections().count(), 0);
    }
}
