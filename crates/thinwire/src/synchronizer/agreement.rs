//! Whether all ranks were told the same, asked before the first step.

use super::Options;
use super::layout::Layout;
use crate::group::{Algorithm, Gathered, Group, peer_text};
use crate::{Error, Result};

/// What must be the same on all ranks.
pub(super) fn told(spec: &str, layout: &Layout, options: &Options) -> [(&'static str, String); 3] {
    [
        ("the method", spec.to_owned()),
        ("the layout of buckets and layers", format!("{:08x}", layout.digest())),
        ("the options", options.shared()),
    ]
}

/// Compares what the ranks were told; gives a number for it, to be carried by every message.
pub(super) fn agree_on(group: &mut dyn Group, told: &[(&'static str, String)]) -> Result<u32> {
    const MOST: usize = 65_536;
    let mine: Vec<&str> = told.iter().map(|(_, value)| value.as_str()).collect();
    let mine = mine.join("\n");
    let mut gathered = Gathered::default();
    group.all_gather(mine.as_bytes(), MOST, Algorithm::Tree, &mut gathered)?;
    for (rank, theirs) in gathered.iter().enumerate() {
        let mut lines = theirs.split(|&byte| byte == b'\n');
        for (field, expected) in told {
            let found = lines.next().unwrap_or_default();
            if found != expected.as_bytes() {
                return Err(Error::Disagreement {
                    rank,
                    step: 0,
                    field,
                    found: peer_text(found),
                    expected: expected.clone(),
                });
            }
        }
    }
    Ok(crc32fast::hash(mine.as_bytes()))
}
