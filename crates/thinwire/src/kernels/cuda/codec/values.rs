//! Values: which kernels make the bytes of which form, and read them.

use super::notes::Note;
use super::{Codec, Measured, Run, blocks, disagreement};
use crate::codec::{RangeFloat, Rounding, ValueForm, value};
use crate::kernels::cuda::compile::Program;
use crate::kernels::cuda::device::launch;
use crate::{Error, Result};

/// Values of a piece, as in the source.
const PIECE: usize = 8192;

fn program() -> Program {
    Program::new("value")
}

/// A range-based float as the kernels have it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Range {
    bits: u32,
    shift: u32,
    half: u32,
    eps: u32,
    most_positive: u32,
    most_negative: u32,
    base: u32,
    positive: u32,
    negative: u32,
}

impl From<&RangeFloat> for Range {
    fn from(range: &RangeFloat) -> Range {
        let shift = 23 - u32::from(range.mantissa());
        Range {
            bits: range.bits().into(),
            shift,
            half: if range.rounding() == Rounding::Nearest { 1 << (shift - 1) } else { 0 },
            eps: range.eps().to_bits(),
            most_positive: range.max().to_bits(),
            most_negative: (-range.min()).to_bits(),
            base: range.eps().to_bits() >> shift,
            positive: range.positive_codes(),
            negative: range.negative_codes(),
        }
    }
}

/// The form's number in the kernels, which is that on the wire.
fn number(form: &ValueForm) -> u32 {
    match form {
        ValueForm::F32 => 0,
        ValueForm::F16 => 1,
        ValueForm::Bf16 => 2,
        ValueForm::Range(_) => 3,
        ValueForm::SameSign => 4,
        ValueForm::Absent => 5,
        // Never: the host codes these.
        ValueForm::Quantized(_) => 6,
    }
}

impl Codec {
    /// Largest magnitude, signs, sum and sum of squares, into the notes.
    pub(super) fn measure_values(&mut self, values: Run<f32>) -> Result<()> {
        let pieces = blocks(values.len, PIECE);
        if pieces == 0 {
            return Ok(());
        }
        self.pieces.reserve(2 * pieces as usize, 0)?;
        let (sums, count) = (self.pieces.address(), values.len as u64);
        let [largest, signs, sum, squares] =
            [Note::Largest, Note::Signs, Note::Sum, Note::Squares].map(|note| self.notes.at(note));
        launch!(
            self.device,
            &program(),
            "measure",
            pieces,
            256,
            values.address,
            count,
            sums,
            largest,
            signs
        )?;
        launch!(self.device, &program(), "fold", 1, 1024, sums, pieces, sum, squares)
    }

    /// The error that the host has for values the form can't carry.
    pub(super) fn unfit(&self, values: Run<f32>, form: &ValueForm) -> Result<Error> {
        let refused = value::encode(form, &values.read(&self.device)?, &mut Vec::new());
        Ok(refused.err().unwrap_or_else(|| disagreement("encode values", "the host's encoder accepts")))
    }

    /// Makes the bytes of values, which were measured and can be carried.
    pub(super) fn encode_values(
        &mut self,
        values: Run<f32>,
        form: &ValueForm,
        measured: &Measured,
    ) -> Result<Run<u8>> {
        let len = value::encoded_len(form, values.len);
        let (words, count) = (len.div_ceil(4), values.len as u64);
        if matches!(form, ValueForm::F32 | ValueForm::Absent) || len == 0 {
            // The bytes of whole floats are the floats.
            return Ok(Run::new(values.address, len));
        }
        self.value_words.reserve(words, 0)?;
        let (out, clipped, there) = (self.value_words.address(), self.notes.at(Note::Clipped), words as u64);
        let grid = blocks(words, 256);
        match form {
            ValueForm::Range(range) => {
                let range = Range::from(range);
                launch!(
                    self.device,
                    &program(),
                    "write_codes",
                    grid,
                    256,
                    values.address,
                    count,
                    range,
                    there,
                    out,
                    clipped
                )?;
            }
            ValueForm::SameSign => {
                let mean = (measured.sum / values.len as f64) as f32;
                launch!(self.device, &program(), "write_mean", 1, 1, mean, out)?;
            }
            _ => {
                let form = number(form);
                launch!(
                    self.device,
                    &program(),
                    "write_halves",
                    grid,
                    256,
                    values.address,
                    count,
                    form,
                    out,
                    clipped
                )?;
            }
        }
        Ok(Run::new(out, len))
    }

    /// Values become their differences to what receivers will read in `bytes`.
    pub fn lose(&mut self, values: Run<f32>, form: &ValueForm, bytes: Run<u8>) -> Result<()> {
        if *form == ValueForm::Absent {
            return Ok(());
        }
        if *form == ValueForm::F32 {
            return Err(Error::BadValues {
                form: "f32",
                found: "a wish for what it loses".into(),
                expected: "none: it loses nothing, and its bytes are the values".into(),
            });
        }
        let range = match form {
            ValueForm::Range(range) => Range::from(range),
            _ => Range::default(),
        };
        let (count, form, grid) = (values.len as u64, number(form), blocks(values.len, 1024));
        launch!(
            self.device,
            &program(),
            "keep_loss",
            grid,
            256,
            values.address,
            count,
            form,
            range,
            bytes.address
        )
    }

    /// Begins to read values, whose length was checked.
    pub(super) fn decode_values(&mut self, form: &ValueForm, bytes: &[u8], len: usize) -> Result<Run<f32>> {
        if len == 0 || *form == ValueForm::Absent {
            return Ok(Run::new(0, 0));
        }
        let (count, wrong, grid) = (len as u64, self.notes.at(Note::Wrong), blocks(len, 256));
        let words = self.value_words.address();
        if *form == ValueForm::F32 {
            let values = Run::new(words, len);
            self.measure_values(values)?;
            return Ok(values);
        }
        self.values.reserve(len, 0)?;
        let out = self.values.address();
        match form {
            ValueForm::Range(range) => {
                let range = Range::from(range);
                launch!(self.device, &program(), "read_codes", grid, 256, words, count, range, out, wrong)?;
            }
            ValueForm::SameSign => {
                let mut mean = Vec::new();
                value::decode(form, bytes, 1, &mut mean)?;
                launch!(self.device, &program(), "read_mean", grid, 256, mean[0], count, out)?;
            }
            _ => {
                let form = number(form);
                launch!(self.device, &program(), "read_halves", grid, 256, words, count, form, out, wrong)?;
            }
        }
        Ok(Run::new(out, len))
    }
}
