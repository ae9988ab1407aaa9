//! Which coordinates: strictly increasing indices below a universe, in the form that is shortest.

mod bitmap;
mod delta;
mod list;

use crate::codec::bits;
use crate::{Error, Result};

/// How the coordinates of a section are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IndexForm {
    /// Nothing is written: every coordinate of the universe. Where the ranks have agreed on coordinates
    /// beforehand, the universe is the agreed list and this form says "all of them, in order".
    All = 0,
    /// Four bytes an index.
    List = 1,
    /// Rice-coded gaps: about 11.5 bits an index at a density of 0.1 %, 8.1 at 1 %.
    Delta = 2,
    /// One bit for each coordinate of the universe.
    Bitmap = 3,
}

impl IndexForm {
    /// The form with this number, if there is one.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::All, Self::List, Self::Delta, Self::Bitmap].into_iter().find(|&form| form as u8 == number)
    }

    /// Its name: all, list, delta or bitmap.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::List => "list",
            Self::Delta => "delta",
            Self::Bitmap => "bitmap",
        }
    }
}

impl std::fmt::Display for IndexForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Who picks the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IndexChoice {
    /// Whichever is shortest for these indices.
    #[default]
    Shortest,
    /// This one, for comparison with a paper that uses it.
    Fixed(IndexForm),
}

/// A form with what was worked out about it, so that it is worked out once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plan {
    All,
    List(u64),
    Delta(delta::Plan),
    Bitmap(u64),
}

impl Plan {
    /// Checks `indices` and works out how `choice` writes them. `all_allowed` says whether [`IndexForm::All`]
    /// may be picked as the shortest.
    pub(super) fn new(
        choice: IndexChoice,
        indices: &[u32],
        universe: u32,
        all_allowed: bool,
    ) -> Result<Self> {
        let bad = |found, expected| Error::BadValues { form: "index", found, expected };
        if let Some(position) = first_misplaced(indices, universe) {
            return Err(bad(
                format!("index {} at position {position}", indices[position]),
                format!("strictly increasing indices below {universe}"),
            ));
        }
        Self::choose(choice, indices.len(), universe, all_allowed, || delta::plan(indices))
    }

    /// The same for `count` indices that are somewhere else and were checked there. `bits` says in how many of their
    /// gaps each bit is set, `last` is the last index.
    pub(crate) fn for_gaps(
        choice: IndexChoice,
        (count, last): (usize, u32),
        bits: &[u64; 32],
        universe: u32,
        all_allowed: bool,
    ) -> Result<Self> {
        // The quotients are the gaps without their low bits.
        let sum = |parameter: usize| (parameter..32).map(|bit| bits[bit] << (bit - parameter)).sum();
        let around = |middle: u32| [0, 1, 2].map(|i| sum(middle as usize - 1 + i));
        let delta = || delta::plan_by(count as u64, (count > 0).then_some(last), around);
        Self::choose(choice, count, universe, all_allowed, delta)
    }

    fn choose(
        choice: IndexChoice,
        count: usize,
        universe: u32,
        all_allowed: bool,
        delta: impl FnOnce() -> delta::Plan,
    ) -> Result<Self> {
        let complete = count as u64 == u64::from(universe);
        let list = Self::List(4 * count as u64);
        let bitmap = Self::Bitmap(bitmap::encoded_len(universe));
        Ok(match choice {
            // An empty list is as short as nothing at all, and says that nothing is meant.
            IndexChoice::Shortest if count == 0 => list,
            IndexChoice::Shortest if complete && all_allowed => Self::All,
            IndexChoice::Shortest => {
                let delta = Self::Delta(delta());
                let shorter = if delta.bytes() < list.bytes() { delta } else { list };
                if bitmap.bytes() < shorter.bytes() { bitmap } else { shorter }
            }
            IndexChoice::Fixed(IndexForm::All) if complete => Self::All,
            IndexChoice::Fixed(IndexForm::All) => {
                return Err(Error::BadValues {
                    form: "index",
                    found: format!("{count} indices"),
                    expected: format!("all {universe}, for form all"),
                });
            }
            IndexChoice::Fixed(IndexForm::List) => list,
            IndexChoice::Fixed(IndexForm::Delta) => Self::Delta(delta()),
            IndexChoice::Fixed(IndexForm::Bitmap) => bitmap,
        })
    }

    /// The form.
    pub(crate) fn form(&self) -> IndexForm {
        match self {
            Self::All => IndexForm::All,
            Self::List(_) => IndexForm::List,
            Self::Delta(_) => IndexForm::Delta,
            Self::Bitmap(_) => IndexForm::Bitmap,
        }
    }

    /// The length it will have.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::All => 0,
            Self::List(bytes) | Self::Bitmap(bytes) => *bytes,
            Self::Delta(plan) => plan.bytes,
        }
    }

    /// Appends the indices it was made for.
    pub(super) fn encode(&self, indices: &[u32], universe: u32, out: &mut Vec<u8>) {
        match self {
            Self::All => {}
            Self::List(_) => list::encode(indices, out),
            Self::Delta(plan) => delta::encode(indices, plan, out),
            Self::Bitmap(_) => bitmap::encode(indices, universe, out),
        }
    }
}

/// The position of the first index that is not above the one before it, or not below `universe`.
fn first_misplaced(indices: &[u32], universe: u32) -> Option<usize> {
    // Without early exits, so that it runs at the speed of memory; the position is looked for only once it is
    // known that there is one. Increasing indices are all in range if the last one is.
    let misplaced = indices.windows(2).fold(false, |found, pair| found | (pair[0] >= pair[1]));
    let last_in_range = indices.last().is_none_or(|&last| last < universe);
    if !misplaced && last_in_range {
        return None;
    }
    (0..indices.len()).find(|&i| indices[i] >= universe || (i > 0 && indices[i - 1] >= indices[i]))
}

/// The shortest form for these indices, and its length in bytes.
///
/// ```
/// use thinwire::codec::{index, IndexForm};
/// assert_eq!(index::shortest(&[5, 70_000], 1_000_000)?, (IndexForm::Delta, 6));
/// assert_eq!(index::shortest(&[0, 1, 2], 3)?, (IndexForm::All, 0));
/// # Ok::<(), thinwire::Error>(())
/// ```
///
/// # Errors
/// [`Error::BadValues`] if the indices are not strictly increasing and below `universe`.
pub fn shortest(indices: &[u32], universe: u32) -> Result<(IndexForm, usize)> {
    let plan = Plan::new(IndexChoice::Shortest, indices, universe, true)?;
    Ok((plan.form(), plan.bytes() as usize))
}

/// Appends `indices` to `out` in the given form.
///
/// ```
/// use thinwire::codec::{index, IndexForm};
/// let (mut bytes, mut back) = (Vec::new(), Vec::new());
/// index::encode(IndexForm::Bitmap, &[0, 2, 9], 10, &mut bytes)?;
/// assert_eq!(bytes, [0b0000_0101, 0b0000_0010]);
/// index::decode(IndexForm::Bitmap, &bytes, 3, 10, &mut back)?;
/// assert_eq!(back, [0, 2, 9]);
/// # Ok::<(), thinwire::Error>(())
/// ```
///
/// # Errors
/// [`Error::BadValues`] if the indices are not strictly increasing and below `universe`, or if the form is
/// [`IndexForm::All`] and they are not all there are. Nothing is appended then.
pub fn encode(form: IndexForm, indices: &[u32], universe: u32, out: &mut Vec<u8>) -> Result<()> {
    Plan::new(IndexChoice::Fixed(form), indices, universe, true)?.encode(indices, universe, out);
    Ok(())
}

/// Reads `count` indices below `universe` into `out`, which is emptied first and left empty by
/// [`IndexForm::All`].
///
/// `out` takes at most 32 times the memory of `bytes`.
///
/// # Errors
/// [`Error::Truncated`] or [`Error::BadField`] if the bytes are not exactly `count` strictly increasing
/// indices below `universe` in this form, with every spare bit zero. `out` is empty then.
pub fn decode(form: IndexForm, bytes: &[u8], count: usize, universe: u32, out: &mut Vec<u32>) -> Result<()> {
    out.clear();
    check_lengths(form, bytes, count, universe)?;
    let result = match form {
        IndexForm::All => Ok(()),
        IndexForm::List => list::decode(bytes, count, universe, out),
        IndexForm::Delta => delta::decode(bytes, count, universe, out),
        IndexForm::Bitmap => bitmap::decode(bytes, count, universe, out),
    };
    result.inspect_err(|_| out.clear())
}

/// Fails if `bytes` can't be `count` indices below `universe` in this form, by their lengths alone.
pub(super) fn check_lengths(form: IndexForm, bytes: &[u8], count: usize, universe: u32) -> Result<()> {
    let wide = count as u64;
    let complete = form == IndexForm::All;
    if wide > u64::from(universe) || (complete && wide != u64::from(universe)) {
        return Err(Error::BadField {
            field: "number of coordinates",
            found: count.to_string(),
            expected: if complete { format!("{universe}") } else { format!("at most {universe}") },
        });
    }
    match form {
        IndexForm::All => bits::check_length("indices", bytes, 0),
        IndexForm::List => bits::check_length("index list", bytes, 4 * wide),
        IndexForm::Bitmap => bits::check_length("index bitmap", bytes, bitmap::encoded_len(universe)),
        IndexForm::Delta if count == 0 => bits::check_length("delta indices", bytes, 0),
        // A quotient takes a bit at least; the parameter, which says how much more is needed, is read by the
        // decoder.
        IndexForm::Delta => {
            let (needed, left) = (1 + wide.div_ceil(8), bytes.len() as u64);
            if left < needed {
                return Err(Error::Truncated { field: "delta indices", needed, left });
            }
            Ok(())
        }
    }
}

/// Where the streams of an index form lie in its bytes, for a decoder that walks them somewhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outline {
    All,
    List,
    /// The parameter in the first byte, then so many bytes of quotients, then the low bits.
    Delta {
        parameter: u32,
        unary_bytes: usize,
    },
    Bitmap,
}

/// Checks everything that can be told without walking the indices: lengths, the parameter and the spare bits. What is
/// left are their order, their number and their bounds.
pub(crate) fn outline(form: IndexForm, bytes: &[u8], count: usize, universe: u32) -> Result<Outline> {
    check_lengths(form, bytes, count, universe)?;
    Ok(match form {
        IndexForm::All => Outline::All,
        IndexForm::List => Outline::List,
        IndexForm::Delta if count == 0 => Outline::Delta { parameter: 0, unary_bytes: 0 },
        IndexForm::Delta => {
            let (parameter, unary, _) = delta::split(bytes, count, universe)?;
            Outline::Delta { parameter, unary_bytes: unary.len() }
        }
        IndexForm::Bitmap => {
            bits::check_extent("index bitmap", bytes, u64::from(universe))?;
            Outline::Bitmap
        }
    })
}

#[cfg(test)]
mod tests;
