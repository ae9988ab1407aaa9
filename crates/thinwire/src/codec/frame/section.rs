//! One section of a frame: some coordinates and their values.

use super::header::{Header, u32_at};
use crate::codec::index::{self, IndexForm};
use crate::codec::value::{self, RangeFloat, Rounding, ValueForm};
use crate::codec::{Quantizer, varint};
use crate::{Error, Result};

/// Bits of the forms byte: two for the index form, three for the value form, one for the width.
const VALUE_SHIFT: u32 = 2;
const WIDTH_SHIFT: u32 = 5;
/// Bytes of the parameters of a range float.
const RANGE_BYTES: usize = 14;
/// The bit of the mantissa byte that says "round to nearest".
const NEAREST: u8 = 0x80;

/// A section whose header has been checked and whose contents have not.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a> {
    start: u32,
    universe: u32,
    width: u8,
    count: u32,
    index_form: IndexForm,
    value_form: ValueForm,
    index_bytes: &'a [u8],
    value_bytes: &'a [u8],
}

impl<'a> Section<'a> {
    /// Where its universe begins in the bucket.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// How many coordinates there are to choose from.
    pub fn universe(&self) -> u32 {
        self.universe
    }

    /// Values for each coordinate: 1, or 2 where the coordinates are complex.
    pub fn width(&self) -> u8 {
        self.width
    }

    /// How many coordinates it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How the coordinates are written.
    pub fn index_form(&self) -> IndexForm {
        self.index_form
    }

    /// How the values are written.
    pub fn value_form(&self) -> &ValueForm {
        &self.value_form
    }

    /// The coordinates as they are on the wire.
    pub fn index_bytes(&self) -> &'a [u8] {
        self.index_bytes
    }

    /// The values as they are on the wire.
    pub fn value_bytes(&self) -> &'a [u8] {
        self.value_bytes
    }

    /// Decodes the coordinates, counted from [`start`](Section::start), and the values,
    /// [`width`](Section::width) for each coordinate side by side. Both vectors are emptied first; for
    /// [`IndexForm::All`] no indices are written.
    ///
    /// The two together take at most [`MEMORY_FACTOR`](crate::codec::MEMORY_FACTOR) times the bytes of the
    /// frame.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::BadField`] if the bytes break the contract of their form. Both
    /// vectors are empty then.
    pub fn decode(&self, indices: &mut Vec<u32>, values: &mut Vec<f32>) -> Result<()> {
        values.clear();
        // Indices first: once they are right, the count that the values need is known to be real.
        index::decode(self.index_form, self.index_bytes, self.count as usize, self.universe, indices)?;
        value::decode(&self.value_form, self.value_bytes, self.value_count()?, values)
            .inspect_err(|_| indices.clear())
    }

    fn value_count(&self) -> Result<usize> {
        value_count(self.count, self.width)
    }

    /// Takes a section from the front of `rest`, checking its header and that its bytes are all there.
    pub(super) fn read(frame: &Header, rest: &mut &'a [u8]) -> Result<Self> {
        let start = varint::read_u32("section start", rest)?;
        let universe = varint::read_u32("section universe", rest)?;
        let forms = take(rest, 1, "section forms")?[0];
        let (index_form, value_form, width) = read_forms(forms, rest)?;
        check_place(frame, start, universe, width)?;
        let (count, index_length) = match index_form {
            IndexForm::All => (universe, 0),
            _ => (varint::read_u32("number of coordinates", rest)?, varint::read("index length", rest)?),
        };
        check_forms(index_form, &value_form, width)?;
        let index_bytes = take(rest, index_length, "indices")?;
        index::check_lengths(index_form, index_bytes, count as usize, universe)?;
        let value_length = value::encoded_len(&value_form, value_count(count, width)?);
        let value_bytes = take(rest, value_length as u64, "values")?;
        Ok(Self { start, universe, width, count, index_form, value_form, index_bytes, value_bytes })
    }
}

/// Appends the header of a section whose parts have been checked.
pub(super) fn write_header(
    (start, universe, width): (u32, u32, u8),
    (count, index_form, index_length): (u32, IndexForm, u64),
    value_form: &ValueForm,
    out: &mut Vec<u8>,
) {
    varint::write(start.into(), out);
    varint::write(universe.into(), out);
    let number = match value_form {
        ValueForm::F32 => 0,
        ValueForm::F16 => 1,
        ValueForm::Bf16 => 2,
        ValueForm::Range(_) => 3,
        ValueForm::SameSign => 4,
        ValueForm::Absent => 5,
        ValueForm::Quantized(_) => 6,
    };
    out.push(index_form as u8 | number << VALUE_SHIFT | (width - 1) << WIDTH_SHIFT);
    if let ValueForm::Range(range) = value_form {
        let nearest = if range.rounding() == Rounding::Nearest { NEAREST } else { 0 };
        out.extend_from_slice(&[range.bits(), range.mantissa() | nearest]);
        for bound in [range.eps(), range.min(), range.max()] {
            out.extend_from_slice(&bound.to_le_bytes());
        }
    }
    if let ValueForm::Quantized(quantizer) = value_form {
        out.push(quantizer.bits());
    }
    if index_form != IndexForm::All {
        varint::write(count.into(), out);
        varint::write(index_length, out);
    }
}

/// The forms byte, and the parameters of a range float behind it.
fn read_forms(forms: u8, rest: &mut &[u8]) -> Result<(IndexForm, ValueForm, u8)> {
    let bad = || Error::BadField {
        field: "section forms",
        found: format!("{forms:#010b}"),
        expected: "an index form in bits 0-1, a value form up to 6 in bits 2-4, bits 6-7 zero".into(),
    };
    let index_form = IndexForm::from_number(forms & 3).ok_or_else(bad)?;
    let value_form = match forms >> VALUE_SHIFT & 7 {
        0 => ValueForm::F32,
        1 => ValueForm::F16,
        2 => ValueForm::Bf16,
        3 => ValueForm::Range(read_range(take(rest, RANGE_BYTES as u64, "range float")?)?),
        4 => ValueForm::SameSign,
        5 => ValueForm::Absent,
        6 => ValueForm::Quantized(read_quantizer(take(rest, 1, "bits of quantised values")?[0])?),
        _ => return Err(bad()),
    };
    match forms >> WIDTH_SHIFT {
        beyond @ 0..=1 => Ok((index_form, value_form, 1 + beyond)),
        _ => Err(bad()),
    }
}

/// How the values were rounded does not matter to the reader.
fn read_quantizer(bits: u8) -> Result<Quantizer> {
    Quantizer::new(bits).map_err(|_| Error::BadField {
        field: "bits of quantised values",
        found: bits.to_string(),
        expected: "2, 3, 4 or 8".into(),
    })
}

/// The parameters of a range float, in the one spelling the writer has for them.
fn read_range(bytes: &[u8]) -> Result<RangeFloat> {
    let float = |position| f32::from_bits(u32_at(bytes, position));
    let (bits, mantissa) = (bytes[0], bytes[1] & !NEAREST);
    let (eps, min, max) = (float(2), float(6), float(10));
    let rounding = if bytes[1] & NEAREST != 0 { Rounding::Nearest } else { Rounding::Truncate };
    let bad = |found, expected| Error::BadField { field: "range float", found, expected };
    let range = RangeFloat::new(bits, mantissa, eps, min, max, rounding).map_err(|error| match error {
        Error::BadParameter { name, value, expected, .. } => bad(format!("{name}={value}"), expected),
        other => other,
    })?;
    if range.eps() != eps || range.min() != min {
        let expected = format!("eps={} min={}, values that have a code", range.eps(), range.min());
        return Err(bad(format!("eps={eps} min={min}"), expected));
    }
    Ok(range)
}

/// Fails unless the universe lies inside the bucket. Complex coordinates are those of a transform, whose
/// length is not the bucket's; they only have to be countable.
pub(super) fn check_place(frame: &Header, start: u32, universe: u32, width: u8) -> Result<()> {
    let end = u64::from(start) + u64::from(universe);
    let limit = if width == 1 { frame.elements } else { u32::MAX };
    if end > limit.into() {
        return Err(Error::BadField {
            field: "section end",
            found: end.to_string(),
            expected: format!("at most {limit}"),
        });
    }
    Ok(())
}

/// Fails for same-sign or absent values that are not backed by written coordinates: nothing would bound their number by
/// the bytes received. Complex values have no common sign.
pub(super) fn check_forms(index_form: IndexForm, value_form: &ValueForm, width: u8) -> Result<()> {
    let without_bytes = matches!(value_form, ValueForm::SameSign | ValueForm::Absent);
    if without_bytes && (index_form == IndexForm::All || width != 1) {
        return Err(Error::BadField {
            field: "section forms",
            found: format!("{} values with index form {index_form} and width {width}", value_form.name()),
            expected: "written indices and width 1".into(),
        });
    }
    Ok(())
}

/// Values of `count` coordinates.
pub(super) fn value_count(count: u32, width: u8) -> Result<usize> {
    let values = u64::from(count) * u64::from(width);
    usize::try_from(values).map_err(|_| Error::BadField {
        field: "number of values",
        found: values.to_string(),
        expected: format!("at most {}, what this machine can address", usize::MAX),
    })
}

/// Takes `length` bytes from the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], length: u64, field: &'static str) -> Result<&'a [u8]> {
    let left = rest.len() as u64;
    if length > left {
        return Err(Error::Truncated { field, needed: length, left });
    }
    let (taken, behind) = rest.split_at(length as usize);
    *rest = behind;
    Ok(taken)
}

/// The sections of a [`Frame`](super::Frame), in order.
#[derive(Debug, Clone)]
pub struct Sections<'a> {
    header: Header,
    left: u32,
    rest: &'a [u8],
}

impl<'a> Sections<'a> {
    pub(super) fn new(header: Header, left: u32, rest: &'a [u8]) -> Self {
        Self { header, left, rest }
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Section<'a>;

    fn next(&mut self) -> Option<Section<'a>> {
        self.left = self.left.checked_sub(1)?;
        // The frame was walked once when it was parsed, so this can't fail.
        Section::read(&self.header, &mut self.rest).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Sections<'_> {}
