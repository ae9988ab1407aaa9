//! One message: header, sections, checksum.

mod encoded;
mod header;
mod section;
mod writer;

pub use encoded::EncodedSection;
pub use header::Header;
pub use section::{Section, Sections};
pub use writer::{FrameWriter, SectionInput, SectionSize};

use crate::codec::bits;
use crate::{Error, Result};
use header::{CHECKSUM_BYTES, HEADER_BYTES};

/// A frame whose checksum and section headers have been checked; its sections are decoded one by one.
///
/// It borrows the bytes and copies nothing.
///
/// ```
/// use thinwire::codec::{Frame, FrameWriter, Header};
/// let mut bytes = Vec::new();
/// FrameWriter::new(&mut bytes, Header { step: 1, plan: 0, bucket: 2, elements: 10 }).finish()?;
/// assert_eq!(Frame::length(&bytes[..20])?, Some(bytes.len()));
/// assert_eq!(Frame::parse(&bytes)?.sections().count(), 0);
/// bytes[9] ^= 1;
/// assert!(Frame::parse(&bytes).is_err());
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    header: Header,
    section_count: u32,
    /// The sections one after another, without the header and the checksum.
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks that `bytes` are one whole frame: magic, version, length, checksum, then every section's
    /// header. What the sections contain is checked when they are decoded. Takes no memory.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::BadField`] or [`Error::Checksum`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let left = bytes.len() as u64;
        let Some(length) = header::read_length(bytes)? else {
            return Err(Error::Truncated { field: "header", needed: HEADER_BYTES as u64, left });
        };
        bits::check_length("frame", bytes, length)?;
        let (covered, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        let (stored, computed) = (header::u32_at(stored, 0), crc32fast::hash(covered));
        if stored != computed {
            return Err(Error::Checksum { stored, computed });
        }
        let (header, section_count) = header::read_fields(covered);
        let frame = Self { header, section_count, body: &covered[HEADER_BYTES..] };
        let mut rest = frame.body;
        for _ in 0..section_count {
            Section::read(&header, &mut rest)?;
        }
        bits::check_length("rest after the last section", rest, 0)?;
        Ok(frame)
    }

    /// The length of the frame that begins with `prefix`, for a reader that cuts frames out of a stream;
    /// nothing if more bytes are needed to tell. A wrong magic or version is found at its first byte.
    ///
    /// The length is the sender's word: a reader should have a limit for it before taking memory.
    ///
    /// # Errors
    /// [`Error::BadField`] if this is not the beginning of a frame.
    pub fn length(prefix: &[u8]) -> Result<Option<usize>> {
        let Some(length) = header::read_length(prefix)? else { return Ok(None) };
        let too_long = |_| Error::BadField {
            field: "length",
            found: length.to_string(),
            expected: format!("at most {}, what this machine can address", usize::MAX),
        };
        usize::try_from(length).map(Some).map_err(too_long)
    }

    /// Which step, plan and bucket it belongs to.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its sections, in the order in which they were written.
    pub fn sections(&self) -> Sections<'a> {
        Sections::new(self.header, self.section_count, self.body)
    }
}

#[cfg(test)]
mod tests;
