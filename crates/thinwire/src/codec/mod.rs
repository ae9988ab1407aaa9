//! Coordinates and values to bytes and back.
//!
//! A message between ranks is one [`Frame`]: a header that says which step, plan and bucket it belongs to,
//! any number of sections, and a checksum. A section holds some coordinates of the bucket in one of four
//! [index forms](IndexForm) and their values in one of five [value forms](ValueForm); of the index forms the
//! shortest wins unless the caller wants another. `docs/wire.md` gives the format byte by byte.
//!
//! ```
//! use thinwire::codec::{Frame, FrameWriter, Header, IndexChoice, SectionInput, ValueForm};
//!
//! let header = Header { step: 7, plan: 1, bucket: 0, elements: 1000 };
//! let mut bytes = Vec::new();
//! let mut writer = FrameWriter::new(&mut bytes, header);
//! writer.section(&SectionInput {
//!     start: 0,
//!     universe: 1000,
//!     width: 1,
//!     indices: Some(&[3, 14, 159]),
//!     values: &[0.5, -0.25, 8.0],
//!     index: IndexChoice::Shortest,
//!     form: &ValueForm::F16,
//! })?;
//! writer.finish()?;
//!
//! let frame = Frame::parse(&bytes)?;
//! frame.header().expect(&header)?;
//! let (mut indices, mut values) = (Vec::new(), Vec::new());
//! for section in frame.sections() {
//!     section.decode(&mut indices, &mut values)?;
//!     assert_eq!(indices, [3, 14, 159]);
//!     assert_eq!(values, [0.5, -0.25, 8.0]);
//! }
//! # Ok::<(), thinwire::Error>(())
//! ```
//!
//! # What the decoder promises
//! Any byte string gives a value or an error: no panic, no overflow. Coordinates come out strictly increasing
//! and inside their universe, values finite. Counts are checked against the bytes that are present before
//! memory is taken, so decoding a section takes at most [`MEMORY_FACTOR`] times the bytes of its frame.

mod bits;
pub mod frame;
pub mod index;
pub mod quantize;
pub mod value;
mod varint;

pub use frame::{EncodedSection, Frame, FrameWriter, Header, Section, SectionInput, SectionSize, Sections};
pub use index::{IndexChoice, IndexForm};
pub use quantize::{QuantizeSums, Quantizer};
pub use value::{RangeFloat, Rounding, ValueForm};

/// The most memory, in bytes taken per byte of input, that [`Section::decode`] reserves in its two outputs
/// together.
///
/// The worst case is a section of same-sign values whose coordinates cost one bit each (a full bitmap): that
/// bit becomes a 4-byte index and a 4-byte value.
pub const MEMORY_FACTOR: usize = 64;
