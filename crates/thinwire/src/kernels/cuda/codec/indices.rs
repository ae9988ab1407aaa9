//! Coordinates: which kernels make the bytes of which form, and read them.

use super::notes::Note;
use super::{Codec, Measured, Outgoing, Run, blocks, disagreement};
use crate::codec::index::{self, IndexForm, Outline, Plan};
use crate::codec::{Section, ValueForm};
use crate::kernels::cuda::compile::Program;
use crate::kernels::cuda::device::launch;
use crate::{Error, Result};

/// Coordinates of a tile, as in the sources.
const TILE: usize = 2048;
/// Words of a tile, as in the sources.
const WORDS: usize = 1024;

fn writer() -> Program {
    Program::new("index_write")
}

fn reader() -> Program {
    Program::new("index_read")
}

impl Codec {
    /// Checks order and bounds, and measures the gaps, into the notes.
    pub(super) fn survey_gaps(&mut self, positions: Run<u32>, start: u32, universe: u32) -> Result<()> {
        let count = positions.len as u32;
        // Whole waves of the card; each warp goes round until nothing is left.
        let grid = blocks(positions.len, 256).min(8 * self.device.processors());
        let [misplaced, last, bits] =
            [Note::Misplaced, Note::Last, Note::GapBits].map(|note| self.notes.at(note));
        launch!(
            self.device,
            &writer(),
            "survey_gaps",
            grid,
            256,
            positions.address,
            start,
            universe,
            count,
            misplaced,
            last,
            bits
        )
    }

    /// The error that the host has for coordinates in disorder.
    pub(super) fn misplaced(&self, positions: Option<Run<u32>>, start: u32, universe: u32) -> Result<Error> {
        let positions = positions.map_or(Ok(Vec::new()), |positions| positions.read(&self.device))?;
        let relative: Vec<u32> = positions.iter().map(|position| position.wrapping_sub(start)).collect();
        let refused = index::encode(IndexForm::List, &relative, universe, &mut Vec::new());
        Ok(refused.err().unwrap_or_else(|| disagreement("encode coordinates", "the host's encoder accepts")))
    }

    /// Makes the bytes of the coordinates, which were measured and are in order.
    pub(super) fn encode_indices(
        &mut self,
        outgoing: &Outgoing<'_>,
        measured: &Measured,
    ) -> Result<(IndexForm, Run<u8>)> {
        let Some(positions) = outgoing.positions else { return Ok((IndexForm::All, Run::new(0, 0))) };
        let &Outgoing { start, universe, .. } = outgoing;
        let count = positions.len as u32;
        // Values without bytes of their own need written indices.
        let may_be_all = !matches!(outgoing.form, ValueForm::SameSign | ValueForm::Absent);
        let plan = Plan::for_gaps(
            outgoing.index,
            (positions.len, measured.last),
            &measured.gap_bits,
            universe,
            may_be_all,
        )?;
        let len = plan.bytes() as usize;
        let grid = blocks(positions.len, 256);
        let bytes = match plan {
            Plan::All => Run::new(0, 0),
            Plan::List(_) if start == 0 => Run::new(positions.address, len),
            Plan::List(_) => {
                self.index_words.reserve(positions.len, 0)?;
                let out = self.index_words.address();
                launch!(
                    self.device,
                    &writer(),
                    "write_list",
                    grid,
                    256,
                    positions.address,
                    start,
                    count,
                    out
                )?;
                Run::new(out, len)
            }
            Plan::Bitmap(_) => {
                let words = len.div_ceil(4);
                self.index_words.reserve(words, 0)?;
                self.index_words.clear_range(0..words)?;
                let out = self.index_words.address();
                launch!(
                    self.device,
                    &writer(),
                    "write_bitmap",
                    grid,
                    256,
                    positions.address,
                    start,
                    count,
                    out
                )?;
                Run::new(out, len)
            }
            Plan::Delta(_) if count == 0 => Run::new(0, 0),
            Plan::Delta(plan) => {
                self.write_deltas(positions, start, (plan.parameter, plan.unary_bits), len)?;
                // The parameter is the last byte of the first word.
                Run::new(self.index_words.address() + 3, len)
            }
        };
        Ok((plan.form(), bytes))
    }

    /// Rice-coded gaps into `index_words`, from byte 3 on, so that the quotients begin with a word.
    fn write_deltas(
        &mut self,
        positions: Run<u32>,
        start: u32,
        (parameter, unary_bits): (u32, u64),
        len: usize,
    ) -> Result<()> {
        let (count, tiles) = (positions.len as u32, blocks(positions.len, TILE));
        let unary_end = 4 + unary_bits.div_ceil(8) as usize;
        self.index_words.reserve((3 + len).div_ceil(4), 0)?;
        self.index_words.clear_range(0..unary_end.div_ceil(4))?;
        self.tiles.reserve(tiles as usize, 0)?;
        let (from, out, sums) = (positions.address, self.index_words.address(), self.tiles.address());
        launch!(self.device, &writer(), "sum_quotients", tiles, 256, from, start, count, parameter, sums)?;
        self.scan(sums, tiles, Note::Total)?;
        launch!(
            self.device,
            &writer(),
            "write_quotients",
            tiles,
            256,
            from,
            start,
            count,
            parameter,
            sums,
            out
        )?;
        let begin = 8 * unary_end as u64;
        let words = (begin % 32 + u64::from(count) * u64::from(parameter)).div_ceil(32) as usize;
        let grid = if parameter == 0 { 0 } else { blocks(words, 256) };
        launch!(
            self.device,
            &writer(),
            "write_low_bits",
            grid,
            256,
            from,
            start,
            count,
            parameter,
            begin,
            out
        )
    }

    /// Each sum becomes that of all before it; the sum of all is noted.
    fn scan(&self, sums: u64, count: u32, note: Note) -> Result<()> {
        let total = self.notes.at(note);
        launch!(self.device, &writer(), "scan_sums", 1, 1024, sums, count, total)
    }

    /// Begins to read the coordinates of a section whose bytes are on their way; their lengths are checked here.
    pub(super) fn decode_indices(&mut self, section: &Section<'_>) -> Result<Option<Run<u32>>> {
        let (bytes, count, universe) = (section.index_bytes(), section.count() as usize, section.universe());
        Ok(match index::outline(section.index_form(), bytes, count, universe)? {
            Outline::All => None,
            // Where there are none, nothing is to be read: a bitmap has its ones counted all the same.
            Outline::List | Outline::Delta { .. } if count == 0 => Some(Run::new(0, 0)),
            Outline::List => {
                let list = Run::of(&self.index_words, 0..count);
                self.survey_gaps(list, 0, universe)?;
                Some(list)
            }
            Outline::Bitmap => {
                self.find_ones(self.index_words.address(), u64::from(universe), count, false)?;
                Some(Run::of(&self.indices, 0..count))
            }
            Outline::Delta { parameter, unary_bytes } => {
                self.find_ones(self.index_words.at(1), 8 * unary_bytes as u64, count, true)?;
                self.join_deltas(8 * (4 + unary_bytes as u64), parameter, count)?;
                Some(Run::of(&self.indices, 0..count))
            }
        })
    }

    /// The places of the first `count` ones, or the zeros before each, into `indices`; how many ones there are is noted.
    fn find_ones(&mut self, words: u64, bits: u64, count: usize, zeros: bool) -> Result<()> {
        let tiles = blocks(bits.div_ceil(32) as usize, WORDS);
        self.indices.reserve(count, 0)?;
        self.tiles.reserve(tiles as usize, 0)?;
        let (sums, out, last) = (self.tiles.address(), self.indices.address(), self.notes.at(Note::Last));
        launch!(self.device, &reader(), "count_ones", tiles, 256, words, bits, sums)?;
        self.scan(sums, tiles, Note::Ones)?;
        let (count, zeros) = (count as u32, u32::from(zeros));
        launch!(self.device, &reader(), "find_ones", tiles, 256, words, bits, sums, count, zeros, out, last)
    }

    /// Adds the low bits, which begin at bit `begin`, to the quotients in `indices`.
    fn join_deltas(&mut self, begin: u64, parameter: u32, count: usize) -> Result<()> {
        let tiles = blocks(count, TILE);
        self.more_tiles.reserve(tiles as usize, 0)?;
        let (words, sums, out) =
            (self.index_words.address(), self.more_tiles.address(), self.indices.address());
        let count = count as u32;
        launch!(self.device, &reader(), "sum_low_bits", tiles, 256, words, begin, parameter, count, sums)?;
        self.scan(sums, tiles, Note::Total)?;
        launch!(self.device, &reader(), "join_deltas", tiles, 256, words, begin, parameter, count, sums, out)
    }

    /// Whether the coordinates that were read are `count`, in order and in their universe; after waiting.
    pub(super) fn indices_are_valid(&self, section: &Section<'_>) -> bool {
        let (count, universe) = (u64::from(section.count()), u64::from(section.universe()));
        match section.index_form() {
            IndexForm::All => true,
            IndexForm::List => self.notes.get(Note::Misplaced) == 0,
            IndexForm::Bitmap => self.notes.get(Note::Ones) == count,
            IndexForm::Delta if count == 0 => true,
            IndexForm::Delta => {
                let parameter = u32::from(section.index_bytes()[0]);
                // The last is the largest, and in 64 bits it can't have wrapped: the outline bounds the zeros.
                let last =
                    || (self.notes.get(Note::Last) << parameter) + self.notes.get(Note::Total) + count - 1;
                self.notes.get(Note::Ones) == count && last() < universe
            }
        }
    }
}
