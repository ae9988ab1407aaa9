//! The bitmap: one bit for each coordinate of the universe, lowest bit first.

use crate::codec::bits;
use crate::{Error, Result};

/// How long the bitmap is.
pub(super) fn encoded_len(universe: u32) -> u64 {
    u64::from(universe).div_ceil(8)
}

/// Appends the bitmap; the caller has checked that every index is below `universe`.
pub(super) fn encode(indices: &[u32], universe: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + encoded_len(universe) as usize, 0);
    let map = &mut out[start..];
    for &index in indices {
        map[(index / 8) as usize] |= 1 << (index % 8);
    }
}

/// Reads the bitmap into an empty `out`. The caller has checked that `count` is at most `universe`, so the
/// memory taken is bounded by the bytes present.
pub(super) fn decode(bytes: &[u8], count: usize, universe: u32, out: &mut Vec<u32>) -> Result<()> {
    bits::check_extent("index bitmap", bytes, u64::from(universe))?;
    let wrong = |found: &str| Error::BadField {
        field: "index bitmap",
        found: format!("{found} than {count} ones"),
        expected: format!("{count}, the number of coordinates"),
    };
    out.reserve_exact(count);
    out.resize(count, 0);
    let mut slots = out.iter_mut();
    let mut base = 0u32;
    for mut word in bits::words(bytes) {
        while word != 0 {
            *slots.next().ok_or_else(|| wrong("more"))? = base | word.trailing_zeros();
            word &= word - 1;
        }
        // The last word of a universe near u32::MAX is followed by none, so the wrapped base is never used.
        base = base.wrapping_add(64);
    }
    if slots.next().is_some() { Err(wrong("fewer")) } else { Ok(()) }
}
