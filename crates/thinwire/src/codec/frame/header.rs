//! The fixed part in front of every frame.

use crate::{Error, Result};

/// What every frame begins with.
const MAGIC: [u8; 4] = *b"thwr";
/// The version this code writes and reads.
const VERSION: u8 = 1;
/// Bytes before the first section.
pub(super) const HEADER_BYTES: usize = 37;
/// Bytes after the last section.
pub(super) const CHECKSUM_BYTES: usize = 4;

const VERSION_AT: usize = 4;
const LENGTH_AT: usize = 5;
const STEP_AT: usize = 13;
const PLAN_AT: usize = 21;
const BUCKET_AT: usize = 25;
const ELEMENTS_AT: usize = 29;
const SECTIONS_AT: usize = 33;

/// Where a frame belongs: ranks that disagree here must not add up each other's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The training step.
    pub step: u64,
    /// The plan the ranks agreed on: method, density, collective.
    pub plan: u32,
    /// The bucket's number.
    pub bucket: u32,
    /// The bucket's length.
    pub elements: u32,
}

impl Header {
    /// Checks that a received header is the one this rank is waiting for.
    ///
    /// ```
    /// use thinwire::{codec::Header, Error};
    /// let mine = Header { step: 7, plan: 1, bucket: 0, elements: 10 };
    /// let late = Header { step: 6, ..mine };
    /// assert_eq!(late.expect(&mine), Err(Error::OutOfStep { field: "step", found: 6, expected: 7 }));
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfStep`] with the first field that differs and both values.
    pub fn expect(&self, expected: &Header) -> Result<()> {
        let fields = [
            ("step", self.step, expected.step),
            ("plan", self.plan.into(), expected.plan.into()),
            ("bucket", self.bucket.into(), expected.bucket.into()),
            ("elements", self.elements.into(), expected.elements.into()),
        ];
        match fields.into_iter().find(|(_, found, expected)| found != expected) {
            Some((field, found, expected)) => Err(Error::OutOfStep { field, found, expected }),
            None => Ok(()),
        }
    }

    /// Appends the fixed part; length and number of sections are still to be filled in.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&self.step.to_le_bytes());
        out.extend_from_slice(&self.plan.to_le_bytes());
        out.extend_from_slice(&self.bucket.to_le_bytes());
        out.extend_from_slice(&self.elements.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
    }
}

/// Fills in what is known only at the end.
pub(super) fn fill_in(frame: &mut [u8], length: u64, sections: u32) {
    frame[LENGTH_AT..STEP_AT].copy_from_slice(&length.to_le_bytes());
    frame[SECTIONS_AT..HEADER_BYTES].copy_from_slice(&sections.to_le_bytes());
}

/// The length of the frame that begins with `prefix`, or nothing if the prefix ends before it.
pub(super) fn read_length(prefix: &[u8]) -> Result<Option<u64>> {
    let magic = &prefix[..prefix.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        return Err(Error::BadField {
            field: "magic",
            found: format!("{magic:02x?}"),
            expected: format!("{MAGIC:02x?}"),
        });
    }
    if let Some(&version) = prefix.get(VERSION_AT).filter(|&&version| version != VERSION) {
        return Err(Error::BadField {
            field: "version",
            found: version.to_string(),
            expected: VERSION.to_string(),
        });
    }
    if prefix.len() < STEP_AT {
        return Ok(None);
    }
    let length = u64_at(prefix, LENGTH_AT);
    let least = (HEADER_BYTES + CHECKSUM_BYTES) as u64;
    if length < least {
        return Err(Error::BadField {
            field: "length",
            found: length.to_string(),
            expected: format!("at least {least}"),
        });
    }
    Ok(Some(length))
}

/// The fields and the number of sections of a frame that is long enough to have them.
pub(super) fn read_fields(frame: &[u8]) -> (Header, u32) {
    let header = Header {
        step: u64_at(frame, STEP_AT),
        plan: u32_at(frame, PLAN_AT),
        bucket: u32_at(frame, BUCKET_AT),
        elements: u32_at(frame, ELEMENTS_AT),
    };
    (header, u32_at(frame, SECTIONS_AT))
}

/// The number at `position`, which the caller has checked to be there.
pub(super) fn u32_at(bytes: &[u8], position: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[position..position + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], position: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[position..position + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_compared() {
        let mine = Header { step: 1 << 40, plan: 2, bucket: 3, elements: 4 };
        assert_eq!(mine.expect(&mine), Ok(()));
        let named = |other: Header, field, found| match other.expect(&mine) {
            Err(Error::OutOfStep { field: f, found: g, .. }) => assert_eq!((f, g), (field, found)),
            other => panic!("{other:?}"),
        };
        named(Header { step: 0, ..mine }, "step", 0);
        named(Header { plan: 9, ..mine }, "plan", 9);
        named(Header { bucket: 9, ..mine }, "bucket", 9);
        named(Header { elements: 9, ..mine }, "elements", 9);
        named(Header { step: 5, plan: 9, bucket: 9, elements: 9 }, "step", 5);
    }

    #[test]
    fn length_is_found_as_early_as_possible() {
        let mut bytes = Vec::new();
        Header { step: 1, plan: 2, bucket: 3, elements: 4 }.write(&mut bytes);
        assert_eq!(bytes.len(), HEADER_BYTES);
        fill_in(&mut bytes, 41, 0);
        for end in 0..STEP_AT {
            assert_eq!(read_length(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(read_length(&bytes[..STEP_AT]), Ok(Some(41)));
        assert!(read_length(b"x").is_err());
        assert!(read_length(b"thw_").is_err());
        assert!(read_length(b"thwr\x02").is_err());
        fill_in(&mut bytes, 40, 0);
        assert!(read_length(&bytes).is_err());
    }
}
