//! The list: each index as four bytes, little endian.

use crate::{Error, Result};

/// Appends the list.
pub(super) fn encode(indices: &[u32], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 4 * indices.len(), 0);
    let (slots, _) = out[start..].as_chunks_mut::<4>();
    for (slot, index) in slots.iter_mut().zip(indices) {
        *slot = index.to_le_bytes();
    }
}

/// Reads the list; the caller has checked that `bytes` is four times `count` long, and that `out` is empty.
pub(super) fn decode(bytes: &[u8], count: usize, universe: u32, out: &mut Vec<u32>) -> Result<()> {
    out.reserve_exact(count);
    out.extend(bytes.as_chunks::<4>().0.iter().map(|chunk| u32::from_le_bytes(*chunk)));
    if let Some(position) = super::first_misplaced(out, universe) {
        return Err(Error::BadField {
            field: "index list",
            found: format!("{} at position {position}", out[position]),
            expected: format!("strictly increasing indices below {universe}"),
        });
    }
    Ok(())
}
