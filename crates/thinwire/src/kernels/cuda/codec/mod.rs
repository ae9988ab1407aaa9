//! Messages, encoded and decoded in the memory of the GPU.
//!
//! The bytes are those of [`codec`](crate::codec), bit for bit, with one exception: the mean of same-sign values may
//! differ in its last bit, because its sum is made in another (fixed) order. Bytes are the sender's alone, so replicas
//! stay equal. What is decoded is accepted exactly if the host's decoder accepts it; what the kernels refuse is decoded
//! once more by the host, to say in the same words what is wrong with it.
//!
//! Encoding a section waits for the GPU twice: once for what decides about forms ([`Codec::measure`]), once at the end.
//! Decoding waits once.

mod indices;
mod notes;
mod run;
#[cfg(test)]
mod tests;
mod upload;
mod values;

use std::sync::Arc;

pub(super) use run::Run;

use notes::{Note, Notes};
use upload::Upload;

use super::device::Device;
use super::memory::Buffer;
use crate::codec::{IndexChoice, IndexForm, RangeFloat, Rounding, Section, ValueForm, value};
use crate::{Error, Result};

/// Room for messages and what it takes to make and read them. One message at a time: what [`encode`](Codec::encode) and
/// [`decode`](Codec::decode) give stays until the next call of either.
#[derive(Debug)]
pub(super) struct Codec {
    device: Arc<Device>,
    notes: Notes,
    upload: Upload,
    /// The bytes of coordinates and of values, made here or received.
    index_words: Buffer<u32>,
    value_words: Buffer<u32>,
    /// What was decoded, unless the bytes are it already.
    indices: Buffer<u32>,
    values: Buffer<f32>,
    /// Sums of tiles (see `scan_sums`), and of pieces (see `fold`).
    tiles: Buffer<u64>,
    more_tiles: Buffer<u64>,
    pieces: Buffer<f64>,
}

/// What is to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    /// Where the universe begins in the bucket.
    pub start: u32,
    /// How many coordinates there are to choose from.
    pub universe: u32,
    /// Values for each coordinate: 1, or 2 for complex ones.
    pub width: u8,
    /// Chosen positions in the bucket, strictly increasing; `None`: the whole universe.
    pub positions: Option<Run<u32>>,
    /// The values, `width` for each coordinate; empty for [`ValueForm::Absent`].
    pub values: Run<f32>,
    /// Who picks the index form.
    pub index: IndexChoice,
    /// How the values are written.
    pub form: &'a ValueForm,
}

/// What was found out about coordinates and values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// The largest magnitude; infinite or NaN if one of the values is.
    pub largest: f32,
    /// Sum of the values.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
    signs: u64,
    misplaced: bool,
    last: u32,
    gap_bits: [u64; 32],
}

/// A message in the memory of the GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoded {
    pub index_form: IndexForm,
    pub index_bytes: Run<u8>,
    pub value_bytes: Run<u8>,
    /// Values beyond the range of the form, which were clipped to it.
    pub clipped: usize,
}

/// A message that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoded {
    /// The coordinates, counted from the section's start; `None`: all of the universe.
    pub indices: Option<Run<u32>>,
    /// The values; none for [`ValueForm::Absent`].
    pub values: Run<f32>,
}

impl Measured {
    /// The range that covers the values, as [`RangeFloat::covering`] measures it.
    pub fn covering(&self, bits: u8, mantissa: u8, rounding: Rounding) -> Result<RangeFloat> {
        if !self.largest.is_finite() {
            return Err(Error::BadValues {
                form: "range",
                found: "a NaN or an infinity".into(),
                expected: "finite values".into(),
            });
        }
        RangeFloat::tuned(bits, mantissa, self.largest, rounding)
    }
}

impl Codec {
    pub fn new(device: &Arc<Device>) -> Result<Codec> {
        Ok(Codec {
            device: device.clone(),
            notes: Notes::new(device)?,
            upload: Upload::new(device)?,
            index_words: Buffer::new(device, 0)?,
            value_words: Buffer::new(device, 0)?,
            indices: Buffer::new(device, 0)?,
            values: Buffer::new(device, 0)?,
            tiles: Buffer::new(device, 0)?,
            more_tiles: Buffer::new(device, 0)?,
            pieces: Buffer::new(device, 0)?,
        })
    }

    /// Bytes held in the memory of the GPU.
    pub fn bytes(&self) -> usize {
        let words = self.index_words.len() + self.value_words.len() + self.indices.len() + self.values.len();
        4 * words + 8 * (self.tiles.len() + self.more_tiles.len() + self.pieces.len())
    }

    /// Looks once at the coordinates (in the universe that begins at `start`) and the values, and waits.
    pub fn measure(
        &mut self,
        (start, universe): (u32, u32),
        positions: Option<Run<u32>>,
        values: Run<f32>,
    ) -> Result<Measured> {
        self.notes.clear()?;
        if let Some(positions) = positions {
            self.survey_gaps(positions, start, universe)?;
        }
        self.measure_values(values)?;
        self.notes.wait()?;
        Ok(Measured {
            largest: f32::from_bits(self.notes.get(Note::Largest) as u32),
            sum: self.notes.float(Note::Sum),
            squares: self.notes.float(Note::Squares),
            signs: self.notes.get(Note::Signs),
            misplaced: self.notes.get(Note::Misplaced) != 0,
            last: self.notes.get(Note::Last) as u32,
            gap_bits: self.notes.gap_bits(),
        })
    }

    /// The sum of squares of some values, in an order that no card changes. Waits.
    pub fn sum_of_squares(&mut self, values: Run<f32>) -> Result<f64> {
        Ok(self.measure((0, 0), None, values)?.squares)
    }

    /// Makes the bytes of a section, of which `measured` tells, and waits.
    ///
    /// # Errors
    /// Those of [`FrameWriter::section`](crate::codec::FrameWriter::section) about coordinates and values.
    pub fn encode(&mut self, outgoing: &Outgoing<'_>, measured: &Measured) -> Result<Encoded> {
        let &Outgoing { start, universe, width, positions, values, form, .. } = outgoing;
        let count = positions.map_or(universe as usize, |positions| positions.len);
        let expected = if *form == ValueForm::Absent { 0 } else { count * width as usize };
        if values.len != expected {
            return Err(Error::BadValues {
                form: form.name(),
                found: format!("{} values", values.len),
                expected: format!("{expected}: {width} for each of {count} coordinates"),
            });
        }
        if measured.misplaced || count > universe as usize {
            return Err(self.misplaced(positions, start, universe)?);
        }
        let mixed = *form == ValueForm::SameSign && measured.signs == 3;
        if !measured.largest.is_finite() || mixed {
            return Err(self.unfit(values, form)?);
        }
        self.notes.clear()?;
        let (index_form, index_bytes) = self.encode_indices(outgoing, measured)?;
        let value_bytes = self.encode_values(values, form, measured)?;
        self.notes.wait()?;
        Ok(Encoded { index_form, index_bytes, value_bytes, clipped: self.notes.get(Note::Clipped) as usize })
    }

    /// Reads a section, and waits.
    ///
    /// # Errors
    /// As [`Section::decode`].
    pub fn decode(&mut self, section: &Section<'_>) -> Result<Decoded> {
        self.bring(section)?;
        self.read(section)
    }

    /// Begins to bring the bytes of a section to the device.
    pub fn bring(&mut self, section: &Section<'_>) -> Result<()> {
        let (indices, values) = (section.index_bytes(), section.value_bytes());
        self.upload.begin(indices.len(), values.len())?;
        // The first byte of deltas is their parameter; what follows begins with a word.
        let shift = if section.index_form() == IndexForm::Delta { 3 } else { 0 };
        self.upload.send(indices, shift, &mut self.index_words)?;
        // One mean for all needs no bytes there.
        if *section.value_form() == ValueForm::SameSign {
            return Ok(());
        }
        self.upload.send(values, 0, &mut self.value_words)
    }

    /// Reads a section whose bytes are on the device, and waits.
    pub fn read(&mut self, section: &Section<'_>) -> Result<Decoded> {
        let decoded = self.decode_on_device(section);
        // Whatever came of it: the next message may overwrite what is still being uploaded.
        let waited = self.notes.wait();
        let decoded = decoded?;
        waited?;
        let valid = self.indices_are_valid(section)
            && self.notes.get(Note::Wrong) == 0
            && f32::from_bits(self.notes.get(Note::Largest) as u32).is_finite();
        if valid { Ok(decoded) } else { Err(refusal(section)) }
    }

    fn decode_on_device(&mut self, section: &Section<'_>) -> Result<Decoded> {
        let count = section.count() as usize;
        self.notes.clear()?;
        let indices = self.decode_indices(section)?;
        let values = match section.value_form() {
            ValueForm::Absent => 0,
            _ => count * section.width() as usize,
        };
        value::check_outline(section.value_form(), section.value_bytes(), values)?;
        let values = self.decode_values(section.value_form(), section.value_bytes(), values)?;
        Ok(Decoded { indices, values })
    }
}

/// The words of the host's decoder for what a kernel has refused.
fn refusal(section: &Section<'_>) -> Error {
    match section.decode(&mut Vec::new(), &mut Vec::new()) {
        Err(error) => error,
        Ok(()) => disagreement("decode a message", "the host's decoder accepts"),
    }
}

/// Host and GPU do not agree, which can't be.
fn disagreement(action: &str, host: &str) -> Error {
    Error::Device {
        action: format!("{action} on the GPU"),
        reason: format!("its kernels refuse what {host}"),
    }
}

/// The blocks of `each` that `count` fill.
fn blocks(count: usize, each: usize) -> u32 {
    count.div_ceil(each) as u32
}
