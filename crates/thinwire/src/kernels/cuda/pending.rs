//! Short sections on their way into a mean: those of a frame travel to the device together.

use super::Cuda;
use super::list::SHORT;
use super::memory::Gradient;
use crate::Result;
use crate::codec::Section;

/// Sections that were read and have yet to be added. No two of them have a coordinate in common, so that no order is
/// needed among them.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Coordinates in the mean.
    positions: Vec<u32>,
    values: Vec<f32>,
    kind: Option<Kind>,
    /// The sections end here; one that begins before may meet them.
    end: u32,
}

/// What sections must have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    /// Whether they have all of their universe: then a value takes the place of a zero.
    whole: bool,
    factor: f32,
    /// Where the mean is.
    to: u64,
}

impl Pending {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * (self.positions.capacity() + self.values.capacity())
    }

    /// Forgets all: the mean is begun anew.
    pub fn clear(&mut self) {
        (self.kind, self.end) = (None, 0);
        self.positions.clear();
        self.values.clear();
    }

    fn has_room(&self, kind: Kind, section: &Section<'_>) -> bool {
        let fits = self.positions.len() + section.count() as usize <= SHORT;
        self.kind.is_none_or(|before| before == kind) && section.start() >= self.end && fits
    }

    /// Takes a section in: its coordinates, `None` for all, and its values.
    fn take(&mut self, kind: Kind, section: &Section<'_>, positions: Option<&[u32]>, values: &[f32]) {
        let start = section.start();
        match positions {
            Some(positions) => self.positions.extend(positions.iter().map(|position| start + position)),
            None => self.positions.extend((start..).take(values.len())),
        }
        self.values.extend_from_slice(values);
        (self.kind, self.end) = (Some(kind), start + section.universe());
    }
}

impl Cuda {
    /// Adds a short section, at the latest with [`add_pending`](Cuda::add_pending).
    pub(super) fn add_short(&mut self, section: &Section<'_>, factor: f32, mean: &Gradient) -> Result<()> {
        section.decode(&mut self.indices, &mut self.decoded)?;
        if self.decoded.is_empty() {
            return Ok(());
        }
        let whole = self.indices.is_empty();
        let kind = Kind { whole, factor, to: self.mean.address(mean) };
        if !self.pending.has_room(kind, section) {
            self.add_pending()?;
        }
        let positions = (!whole).then_some(&self.indices[..]);
        self.pending.take(kind, section, positions, &self.decoded);
        Ok(())
    }

    /// Adds everything that was read and not yet added.
    pub(super) fn add_pending(&mut self) -> Result<()> {
        let Some(Kind { whole, factor, to }) = self.pending.kind else { return Ok(()) };
        let (values, positions) = self.upload.send_both(&self.pending.values, &self.pending.positions)?;
        let count = self.pending.values.len();
        self.pending.clear();
        if !whole {
            return self.scatter_to((positions, values), count, factor, to);
        }
        self.scatter_all(positions, values, count, factor, to)
    }
}
