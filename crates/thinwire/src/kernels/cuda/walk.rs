//! The walk over memory, and what it leaves: statistics, and the marked elements as a list of candidates.

use std::ops::Range;
use std::sync::Arc;

use super::choose::Chosen;
use super::compile::Program;
use super::device::{Device, launch};
use super::job::Job;
use super::memory::{Buffer, Pinned};
use super::unit::{DeviceTables, PIECE, Unit};
use crate::Result;
use crate::kernels::{NonFinite, Statistics};

const THREADS: usize = 256;
/// Warps in a block of so many threads.
const WARPS: usize = THREADS / 32;

/// The smallest score a candidate can have: zeros carry nothing and are never sent.
pub(super) const LEAST: f32 = f32::from_bits(1);

/// The words of the head that a survey writes and the host reads, as in `source/common.cu`; behind them those of a
/// choice.
const FOUND: usize = 4;
const NON_FINITE: usize = 5;
pub(super) const CHOICE: usize = 6;
pub(super) const HEAD: usize = 9;

/// Where units that are walked together have the unit of each piece, and what is wanted of each unit. By addresses; 0 for
/// a unit by itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Together {
    pub units: u64,
    pub selections: u64,
}

/// What the kernels of a walk work in; kept for the next unit.
#[derive(Debug)]
pub(super) struct Workspace {
    device: Arc<Device>,
    survey: Program,
    masks: Buffer<u32>,
    hits: Buffer<u32>,
    offsets: Buffer<u32>,
    sums: Buffer<f64>,
    extremes: Buffer<f32>,
    tile_hits: Buffer<u32>,
    tile_offsets: Buffer<u32>,
    tile_sums: Buffer<f64>,
    tile_extremes: Buffer<f32>,
    /// Where the walk notes what is not finite: all ones if nothing.
    non_finite: Buffer<u64>,
    ticket: Buffer<u32>,
    head: Buffer<u64>,
    seen: Pinned<u64>,
    pub positions: Buffer<u32>,
    pub values: Buffer<f32>,
    pub scores: Buffer<f32>,
}

/// What the head of a survey says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Head {
    pub statistics: Statistics,
    pub found: usize,
    pub non_finite: Option<NonFinite>,
}

impl Head {
    /// From the words that the device has written.
    pub fn of(seen: &[u64], elements: usize) -> Head {
        let non_finite = Some(seen[NON_FINITE]).filter(|&key| key != u64::MAX);
        Head {
            statistics: Statistics {
                count: elements,
                sum: f64::from_bits(seen[0]),
                sum_magnitude: f64::from_bits(seen[1]),
                sum_squares: f64::from_bits(seen[2]),
                max: f32::from_bits(seen[3] as u32),
                min: f32::from_bits((seen[3] >> 32) as u32),
            },
            found: seen[FOUND] as usize,
            non_finite: non_finite
                .map(|key| NonFinite { position: (key >> 32) as usize, value: f32::from_bits(key as u32) }),
        }
    }
}

impl Workspace {
    pub fn new(device: &Arc<Device>) -> Result<Workspace> {
        Ok(Workspace {
            device: device.clone(),
            survey: Program::new("survey"),
            masks: Buffer::empty(device),
            hits: Buffer::empty(device),
            offsets: Buffer::empty(device),
            sums: Buffer::empty(device),
            extremes: Buffer::empty(device),
            tile_hits: Buffer::empty(device),
            tile_offsets: Buffer::empty(device),
            tile_sums: Buffer::empty(device),
            tile_extremes: Buffer::empty(device),
            non_finite: Buffer::of(device, &[u64::MAX])?,
            ticket: Buffer::zeros(device, 1)?,
            head: Buffer::zeros(device, HEAD)?,
            seen: Pinned::new(device, HEAD)?,
            positions: Buffer::empty(device),
            values: Buffer::empty(device),
            scores: Buffer::empty(device),
        })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let lists = 12 * self.positions.len();
        let pieces = 4 * (self.masks.len() + self.hits.len() + self.offsets.len() + self.extremes.len())
            + 8 * self.sums.len();
        lists
            + pieces
            + 4 * (self.tile_hits.len() + self.tile_offsets.len() + self.tile_extremes.len())
            + 8 * self.tile_sums.len()
    }

    /// Makes room for so many candidates. What was collected is lost.
    pub fn reserve_candidates(&mut self, capacity: usize) -> Result<()> {
        self.positions.reserve(capacity, 0)?;
        self.values.reserve(capacity, 0)?;
        self.scores.reserve(capacity, 0)
    }

    /// How many candidates there is room for.
    pub fn capacity(&self) -> u32 {
        // The kernels count in 32 bits, with room for a row more.
        let room = self.positions.len().min(self.values.len()).min(self.scores.len());
        room.min(i32::MAX as usize) as u32
    }

    /// The address of the number of candidates that were found.
    pub fn found(&self) -> u64 {
        self.head.at(FOUND)
    }

    /// Walks, measures and, unless the floor is infinite, collects from `floor` on. Nothing is waited for.
    pub fn walk(&mut self, job: &Job, unit: &Unit, floor: f32) -> Result<()> {
        let tables = &unit.tables;
        self.walk_pieces(job, tables, floor, Together::default())?;
        launch!(
            self.device,
            &self.survey,
            "tiles",
            (tables.tiles as usize).div_ceil(WARPS).max(1),
            THREADS,
            tables.tile_starts.address(),
            tables.tiles,
            self.hits.address(),
            self.sums.address(),
            self.extremes.address(),
            self.offsets.address(),
            self.tile_hits.address(),
            self.tile_sums.address(),
            self.tile_extremes.address(),
            self.tile_offsets.address(),
            self.non_finite.address(),
            self.ticket.address(),
            self.head.address(),
        )?;
        if floor == f32::INFINITY { Ok(()) } else { self.collect(job, tables, Together::default()) }
    }

    /// The same for several units, each from a floor of its own and with a head of its own.
    pub fn walk_units(
        &mut self,
        job: &Job,
        tables: &DeviceTables,
        together: Together,
        (unit_tiles, units): (u64, usize),
        heads: u64,
    ) -> Result<()> {
        self.walk_pieces(job, tables, 0.0, together)?;
        launch!(
            self.device,
            &self.survey,
            "tiles_of_units",
            (tables.tiles as usize).div_ceil(WARPS),
            THREADS,
            tables.tile_starts.address(),
            tables.tiles,
            self.hits.address(),
            self.sums.address(),
            self.extremes.address(),
            self.offsets.address(),
            self.tile_hits.address(),
            self.tile_sums.address(),
            self.tile_extremes.address(),
        )?;
        launch!(
            self.device,
            &self.survey,
            "totals_of_units",
            units,
            THREADS,
            unit_tiles,
            self.tile_hits.address(),
            self.tile_sums.address(),
            self.tile_extremes.address(),
            self.tile_offsets.address(),
            self.non_finite.address(),
            heads,
        )?;
        self.collect(job, tables, together)
    }

    fn walk_pieces(
        &mut self,
        job: &Job,
        tables: &DeviceTables,
        floor: f32,
        together: Together,
    ) -> Result<()> {
        let (count, tiles) = (tables.count as usize, tables.tiles as usize);
        self.masks.reserve(PIECE / 32 * count, 0)?;
        self.hits.reserve(count, 0)?;
        self.offsets.reserve(count, 0)?;
        self.sums.reserve(3 * count, 0)?;
        self.extremes.reserve(2 * count, 0)?;
        self.tile_hits.reserve(tiles, 0)?;
        self.tile_offsets.reserve(tiles, 0)?;
        self.tile_sums.reserve(3 * tiles, 0)?;
        self.tile_extremes.reserve(2 * tiles, 0)?;
        let (guard, weights) = job.relative();
        let (program, coefficient) = job.program();
        launch!(
            self.device,
            &program,
            "walk",
            count.div_ceil(WARPS),
            THREADS,
            job.gradient,
            job.residual,
            job.momentum,
            weights,
            tables.pieces.address(),
            tables.count,
            job.scale,
            coefficient,
            guard,
            job.side(),
            floor.max(LEAST),
            self.masks.address(),
            self.hits.address(),
            self.sums.address(),
            self.extremes.address(),
            self.non_finite.address(),
            together.units,
            together.selections,
        )
    }

    /// Makes the list, or lists, of candidates.
    fn collect(&mut self, job: &Job, tables: &DeviceTables, together: Together) -> Result<()> {
        let ((guard, weights), capacity) = (job.relative(), self.capacity());
        launch!(
            self.device,
            &self.survey,
            "collect",
            (tables.count as usize).div_ceil(WARPS),
            THREADS,
            tables.pieces.address(),
            tables.count,
            tables.piece_tiles.address(),
            self.tile_offsets.address(),
            self.offsets.address(),
            self.hits.address(),
            self.masks.address(),
            job.residual,
            weights,
            guard,
            capacity,
            self.positions.address(),
            self.values.address(),
            self.scores.address(),
            together.units,
            together.selections,
            self.non_finite.address(),
        )
    }

    /// The address of the head of a choice.
    pub fn choice(&self) -> u64 {
        self.head.at(CHOICE)
    }

    /// What was chosen, as the head said when it was last fetched and waited for.
    pub fn choice_made(&self) -> Chosen {
        Chosen::of(&self.seen.slice()[CHOICE..])
    }

    /// Begins to bring the heads to the host.
    pub fn fetch_head(&mut self) -> Result<()> {
        self.seen.fetch(0..HEAD, self.head.address())
    }

    /// What the head said when it was last fetched and waited for.
    pub fn head(&self, unit: &Unit) -> Head {
        Head::of(self.seen.slice(), unit.elements)
    }

    /// Takes the gradient of a walk back out of the memory.
    pub fn undo(&self, job: &Job, ranges: &[Range<usize>]) -> Result<()> {
        let Some((program, coefficient)) = job.undo_program() else { return Ok(()) };
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let (start, count) = (range.start as u64, range.len() as u64);
            let grid = range.len().div_ceil(4 * THREADS).min(1 << 16);
            launch!(
                self.device,
                &program,
                "undo",
                grid,
                THREADS,
                job.gradient,
                job.residual,
                job.momentum,
                start,
                count,
                job.scale,
                coefficient,
            )?;
        }
        Ok(())
    }
}
