//! Bits in bytes, lowest bit first: bit `p` of a string is bit `p % 8` of byte `p / 8`.

use crate::{Error, Result};

/// Packs fixed-width or mixed-width fields onto the end of a byte vector.
///
/// The bits that remain of the last byte are zero after [`BitWriter::finish`].
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    waiting: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    /// A writer that appends to `out`.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, waiting: 0, filled: 0 }
    }

    /// Appends the low `width` bits of `value`; the bits above must be zero, `width` at most 32.
    #[inline]
    pub(super) fn put(&mut self, value: u32, width: u32) {
        debug_assert!(width <= 32 && u64::from(value) < 1 << width);
        // Fewer than 32 bits wait here, so 32 more always fit into 64.
        self.waiting |= u64::from(value) << self.filled;
        self.filled += width;
        if self.filled >= 32 {
            self.out.extend_from_slice(&(self.waiting as u32).to_le_bytes());
            self.waiting >>= 32;
            self.filled -= 32;
        }
    }

    /// Writes the bits still waiting, with zeros up to the end of the last byte.
    pub(super) fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.waiting.to_le_bytes()[..bytes]);
    }
}

/// The `width` bits that begin at bit `position`; `width` at most 32. Bits beyond the end read as zero.
#[inline]
pub(super) fn read(bytes: &[u8], position: u64, width: u32) -> u32 {
    debug_assert!(width <= 32);
    // 7 bits of misalignment and 32 of payload fit into one unaligned 64-bit load.
    let rest = bytes.get((position / 8) as usize..).unwrap_or(&[]);
    let word = match rest.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => short_word(rest),
    };
    ((word >> (position % 8)) & ((1 << width) - 1)) as u32
}

/// The bytes as 64-bit words, the last one filled up with zeros.
#[inline]
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks::<8>();
    let last = (!rest.is_empty()).then(|| short_word(rest));
    whole.iter().map(|chunk| u64::from_le_bytes(*chunk)).chain(last)
}

/// Fewer than eight bytes as a word.
#[cold]
fn short_word(rest: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(padded)
}

/// Fails unless `bytes` is exactly as long as `bits` bits need, and the spare bits of its last byte are zero.
pub(super) fn check_extent(field: &'static str, bytes: &[u8], bits: u64) -> Result<()> {
    check_length(field, bytes, bits.div_ceil(8))?;
    let used = bits % 8;
    match bytes.last() {
        Some(last) if used != 0 && last >> used != 0 => Err(Error::BadField {
            field,
            found: format!("{last:#010b} in its last byte"),
            expected: format!("zeros above bit {}", used - 1),
        }),
        _ => Ok(()),
    }
}

/// Fails unless `bytes` is exactly `expected` bytes long.
pub(super) fn check_length(field: &'static str, bytes: &[u8], expected: u64) -> Result<()> {
    let left = bytes.len() as u64;
    if left < expected {
        return Err(Error::Truncated { field, needed: expected, left });
    }
    if left > expected {
        return Err(Error::BadField {
            field,
            found: format!("{left} bytes long"),
            expected: format!("{expected} bytes"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lowest_bit_first() {
        let mut out = vec![0xee];
        let mut writer = BitWriter::new(&mut out);
        writer.put(0b1, 1);
        writer.put(0b011, 3);
        writer.put(0b1_0000_0001, 9);
        writer.finish();
        assert_eq!(out, [0xee, 0b0001_0111, 0b0001_0000]);
        assert_eq!(read(&out[1..], 4, 9), 0b1_0000_0001);
    }

    #[test]
    fn zero_width_writes_nothing() {
        let mut out = Vec::new();
        let mut writer = BitWriter::new(&mut out);
        (0..100).for_each(|_| writer.put(0, 0));
        writer.finish();
        assert!(out.is_empty());
        assert_eq!(read(&out, 0, 0), 0);
    }

    #[test]
    fn words_fill_up_with_zeros() {
        let bytes: Vec<u8> = (1..=11).collect();
        assert_eq!(words(&bytes).collect::<Vec<_>>(), [0x0807_0605_0403_0201, 0x000b_0a09]);
        assert_eq!(words(&[]).count(), 0);
    }

    #[test]
    fn extent_is_exact() {
        assert!(check_extent("x", &[0xff, 0x01], 9).is_ok());
        assert!(matches!(check_extent("x", &[0xff], 9), Err(Error::Truncated { needed: 2, left: 1, .. })));
        assert!(matches!(check_extent("x", &[0xff, 0x01, 0], 9), Err(Error::BadField { .. })));
        assert!(matches!(check_extent("x", &[0xff, 0x02], 9), Err(Error::BadField { .. })));
        assert!(check_extent("x", &[], 0).is_ok());
    }

    proptest! {
        #[test]
        fn reads_what_was_written(fields in prop::collection::vec((any::<u32>(), 0u32..=32), 0..200)) {
            let masked = |(value, width): (u32, u32)| (u64::from(value) & ((1u64 << width) - 1)) as u32;
            let mut out = Vec::new();
            let mut writer = BitWriter::new(&mut out);
            fields.iter().for_each(|&field| writer.put(masked(field), field.1));
            writer.finish();
            let mut position = 0;
            for &field in &fields {
                prop_assert_eq!(read(&out, position, field.1), masked(field));
                position += u64::from(field.1);
            }
            prop_assert!(check_extent("fields", &out, position).is_ok());
        }
    }
}
