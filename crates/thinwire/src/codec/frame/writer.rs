//! Writing a frame, section by section.

use super::header::{self, Header};
use super::section;
use crate::codec::index::{IndexChoice, IndexForm, Plan};
use crate::codec::value::{self, ValueForm};
use crate::{Error, Result};

/// What goes into one section.
#[derive(Debug, Clone, Copy)]
pub struct SectionInput<'a> {
    /// Where the universe begins in the bucket.
    pub start: u32,
    /// How many coordinates there are to choose from. Where the ranks agreed on coordinates beforehand, how
    /// many they agreed on.
    pub universe: u32,
    /// Values for each coordinate: 1, or 2 for complex ones.
    pub width: u8,
    /// The coordinates, counted from `start`, strictly increasing; `None` for all of the universe, in which
    /// case nothing is written for them, whatever `index` says.
    pub indices: Option<&'a [u32]>,
    /// The values, `width` for each coordinate side by side.
    pub values: &'a [f32],
    /// Who picks the index form.
    pub index: IndexChoice,
    /// How the values are written.
    pub form: &'a ValueForm,
}

/// What a section came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionSize {
    /// The form its indices got.
    pub index_form: IndexForm,
    /// Bytes of indices.
    pub index_bytes: usize,
    /// Bytes of values.
    pub value_bytes: usize,
    /// Bytes of the section's header.
    pub header_bytes: usize,
    /// Values that were beyond the range of the form and were clipped to it.
    pub clipped: usize,
}

/// Writes one frame onto the end of a byte vector.
///
/// A section that fails leaves no trace, and a writer that is dropped before [`finish`](FrameWriter::finish)
/// takes the whole frame back: with `?` after every call, the vector holds the whole frame or what it held
/// before.
///
/// ```
/// use thinwire::codec::{FrameWriter, Header, IndexChoice, IndexForm, SectionInput, ValueForm};
/// let mut bytes = Vec::new();
/// let mut writer = FrameWriter::new(&mut bytes, Header { step: 0, plan: 0, bucket: 0, elements: 3 });
/// let size = writer.section(&SectionInput {
///     start: 0,
///     universe: 3,
///     width: 1,
///     indices: None,
///     values: &[1.0, 2.0, 3.0],
///     index: IndexChoice::Shortest,
///     form: &ValueForm::F32,
/// })?;
/// assert_eq!((size.index_form, size.index_bytes, size.value_bytes), (IndexForm::All, 0, 12));
/// assert_eq!(writer.finish()?, bytes.len());
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug)]
pub struct FrameWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Where the frame begins in `out`.
    begin: usize,
    header: Header,
    sections: u64,
    finished: bool,
}

impl<'a> FrameWriter<'a> {
    /// Begins a frame at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, header: Header) -> Self {
        let begin = out.len();
        header.write(out);
        Self { out, begin, header, sections: 0, finished: false }
    }

    /// Appends a section and says what it came to.
    ///
    /// # Errors
    /// [`Error::BadField`] if the section does not lie inside the bucket, its width is not 1 or 2, or
    /// same-sign values come without indices or as complex ones; [`Error::BadValues`] for unsorted indices, a
    /// number of values that does not fit, or values the form can't carry. The section is not written then.
    pub fn section(&mut self, input: &SectionInput<'_>) -> Result<SectionSize> {
        let before = self.out.len();
        let result = self.append(input);
        match result {
            Ok(_) => self.sections += 1,
            Err(_) => self.out.truncate(before),
        }
        result
    }

    fn append(&mut self, input: &SectionInput<'_>) -> Result<SectionSize> {
        let &SectionInput { start, universe, width, values, form, .. } = input;
        check_width(width)?;
        section::check_place(&self.header, start, universe, width)?;
        let plan = match input.indices {
            // Values without bytes of their own need written indices (see `check_forms`), even if those are
            // all there are.
            Some(indices) => {
                let may_be_all = !matches!(form, ValueForm::SameSign | ValueForm::Absent);
                Plan::new(input.index, indices, universe, may_be_all)?
            }
            None => Plan::All,
        };
        section::check_forms(plan.form(), form, width)?;
        // As many as the universe at most, which the plan has checked.
        let count = input.indices.map_or(universe, |indices| indices.len() as u32);
        let expected = if *form == ValueForm::Absent { 0 } else { section::value_count(count, width)? };
        if values.len() != expected {
            return Err(Error::BadValues {
                form: form.name(),
                found: format!("{} values", values.len()),
                expected: format!("{expected}: {width} for each of {count} coordinates"),
            });
        }
        let begin = self.out.len();
        let place = (start, universe, width);
        section::write_header(place, (count, plan.form(), plan.bytes()), form, self.out);
        let indices_begin = self.out.len();
        plan.encode(input.indices.unwrap_or(&[]), universe, self.out);
        let values_begin = self.out.len();
        let clipped = value::encode(form, values, self.out)?;
        Ok(SectionSize {
            index_form: plan.form(),
            index_bytes: values_begin - indices_begin,
            value_bytes: self.out.len() - values_begin,
            header_bytes: indices_begin - begin,
            clipped,
        })
    }

    /// The last bytes written: after a section those of its values.
    pub(crate) fn last(&self, bytes: usize) -> &[u8] {
        &self.out[self.out.len() - bytes..]
    }

    /// What the frame's header says.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Counts one more section, whose checked bytes the caller appends.
    pub(super) fn begin_section(&mut self) -> &mut Vec<u8> {
        self.sections += 1;
        self.out
    }

    /// Closes the frame and gives its length.
    ///
    /// # Errors
    /// [`Error::BadField`] if it has more than `u32::MAX` sections; the frame is taken back then.
    pub fn finish(mut self) -> Result<usize> {
        let sections = u32::try_from(self.sections).map_err(|_| Error::BadField {
            field: "number of sections",
            found: self.sections.to_string(),
            expected: format!("at most {}", u32::MAX),
        })?;
        let frame = &mut self.out[self.begin..];
        let length = frame.len() + header::CHECKSUM_BYTES;
        header::fill_in(frame, length as u64, sections);
        let checksum = crc32fast::hash(frame);
        self.out.extend_from_slice(&checksum.to_le_bytes());
        self.finished = true;
        Ok(length)
    }
}

/// Fails unless coordinates are real or complex.
pub(super) fn check_width(width: u8) -> Result<()> {
    if (1..=2).contains(&width) {
        return Ok(());
    }
    Err(Error::BadField { field: "section width", found: width.to_string(), expected: "1 or 2".into() })
}

impl Drop for FrameWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.begin);
        }
    }
}
