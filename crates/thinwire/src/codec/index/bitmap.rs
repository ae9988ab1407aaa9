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

/// Reads the bitmap into an empty `out`, once its ones are known to be `count`.
pub(super) fn decode(bytes: &[u8], count: usize, universe: u32, out: &mut Vec<u32>) -> Result<()> {
    bits::check_extent("index bitmap", bytes, u64::from(universe))?;
    let ones: u64 = bits::words(bytes).map(|word| u64::from(word.count_ones())).sum();
    if ones != count as u64 {
        return Err(Error::BadField {
            field: "index bitmap",
            found: format!("{ones} ones"),
            expected: format!("{count}, the number of coordinates"),
        });
    }
    out.reserve_exact(count);
    let mut base = 0u32;
    for mut word in bits::words(bytes) {
        while word != 0 {
            out.push(base | word.trailing_zeros());
            word &= word - 1;
        }
        // The last word of a universe near u32::MAX is followed by none, so the wrapped base is never used.
        base = base.wrapping_add(64);
    }
    Ok(())
}
