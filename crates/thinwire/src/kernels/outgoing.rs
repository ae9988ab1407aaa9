//! One section of a frame before it is written.

use super::memory::Run;
use crate::codec::{IndexChoice, ValueForm};

/// What goes into one section, wherever it lies; [`SectionInput`](crate::codec::SectionInput) is the same in host
/// memory.
#[derive(Debug)]
pub struct Outgoing<'a, P, V> {
    /// Where the universe begins in the bucket.
    pub start: u32,
    /// How many coordinates there are to choose from.
    pub universe: u32,
    /// Values for each coordinate: 1, or 2 for the bins of a spectrum.
    pub width: u8,
    /// The coordinates, counted from the beginning of the bucket (or of the spectrum) and not from `start`; `None` for
    /// all of the universe.
    pub positions: Option<Run<'a, P>>,
    /// The values, `width` for each coordinate side by side; none for [`ValueForm::Absent`].
    pub values: Run<'a, V>,
    /// Who picks the index form.
    pub index: IndexChoice,
    /// How the values are written.
    pub form: &'a ValueForm,
}
