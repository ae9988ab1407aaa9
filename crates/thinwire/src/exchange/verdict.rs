//! Whether a step counts: one rank that can't take part is enough for all to skip it.

use super::notes;
use crate::group::{Algorithm, Gathered, Group, peer_text};
use crate::{Error, Result};

/// Reasons are cut to this many bytes.
const MOST: usize = 2000;

/// Tells everybody why this rank could not take part, if it could not; gives the step's error if anybody could
/// not, the same on all ranks. Words of a `note` ride with it, as many on every rank; everybody's come back in `notes`.
pub(crate) fn verdict(
    group: &mut dyn Group,
    refusal: Option<&Error>,
    note: &[f32],
    notes: &mut Vec<f32>,
) -> Result<Option<Error>> {
    let mine = refusal.map(|error| error.to_string()).unwrap_or_default();
    let mut end = mine.len().min(MOST);
    while !mine.is_char_boundary(end) {
        end -= 1;
    }
    let mut message = mine.as_bytes()[..end].to_vec();
    notes::append(note, &mut message);
    let mut gathered = Gathered::default();
    group.all_gather(&message, MOST + 4 * note.len(), Algorithm::Tree, &mut gathered)?;
    gathered.take_ends(note.len(), notes).map_err(|(rank, found)| {
        let reason = format!("its verdict has {found} bytes, fewer than the note behind it");
        Error::BadMessage { rank, step: group.marked().step, reason }
    })?;
    let refused = gathered.iter().enumerate().find(|(_, reason)| !reason.is_empty());
    Ok(refused.map(|(rank, reason)| Error::Skipped {
        rank,
        step: group.marked().step,
        reason: peer_text(reason),
    }))
}
