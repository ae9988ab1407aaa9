//! The walk over memory, and what it leaves: statistics, and the marked elements as a list of candidates.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::choose::Chosen;
use super::compile::Program;
use super::device::{Device, launch};
use super::memory::{Buffer, Element, Pinned};
use crate::Result;
use crate::kernels::{NonFinite, Score, Statistics, Update};

/// Elements that a warp walks: as many as the CPU before it adds up its lanes, so that sums are made in the same order.
const PIECE: usize = 4096;
/// Elements whose sums are made before those of the next are begun: as the CPU's.
const TILE: usize = 1 << 18;
const LANES: usize = 16;
const THREADS: usize = 256;
/// Warps in a block of so many threads.
const WARPS: usize = THREADS / 32;

/// The smallest score a candidate can have: zeros carry nothing and are never sent.
pub(super) const LEAST: f32 = f32::from_bits(1);

/// The words of the head that a survey writes and the host reads, in the order of `source/survey.cu`; behind them those
/// of a choice.
const FOUND: usize = 4;
const NON_FINITE: usize = 5;
const CHOICE: usize = 6;
const HEAD: usize = 9;
/// Heads that may wait for the host to read them.
const SLOTS: usize = 256;

/// Every walk the engine asks for.
pub(super) fn variants() -> Vec<Program> {
    let mut all = Vec::new();
    for element in [Element::F32, Element::F16, Element::Bf16] {
        for update in 0..5 {
            // Weights go with gradients, and with a residual that is looked at once more.
            let ratios = if update != 0 || element == Element::F32 { 2 } else { 1 };
            all.extend((0..ratios).map(|relative| program(element, update, relative == 1)));
            if update != 0 {
                all.push(undo_program(element, update));
            }
        }
    }
    all
}

fn program(element: Element, update: u32, relative: bool) -> Program {
    Program::new("walk")
        .with("GRADIENT", element.number())
        .with("UPDATE", update)
        .with("RELATIVE", relative as u32)
}

fn undo_program(element: Element, update: u32) -> Program {
    Program::new("undo").with("GRADIENT", element.number()).with("UPDATE", update)
}

/// The number of the kernels' switch, and the coefficient.
fn number_of(update: Update) -> (u32, f32) {
    match update {
        Update::Keep => (0, 0.0),
        Update::Add => (1, 0.0),
        Update::Replace => (2, 0.0),
        Update::HeavyBall(coefficient) => (3, coefficient),
        Update::Nesterov(coefficient) => (4, coefficient),
    }
}

/// A unit cut into pieces, with the tables the kernels go by.
#[derive(Debug)]
pub(super) struct Unit {
    pub elements: usize,
    pieces: Buffer<u32>,
    pub count: u32,
    piece_tiles: Buffer<u32>,
    tile_starts: Buffer<u32>,
    tiles: u32,
    /// The positions of all its elements, where somebody has asked for them.
    positions: OnceLock<Buffer<u32>>,
}

impl Unit {
    pub fn new(device: &Arc<Device>, ranges: &[Range<usize>]) -> Result<Unit> {
        let (mut pieces, mut piece_tiles, mut tile_starts) = (Vec::new(), Vec::new(), vec![0u32]);
        for range in ranges {
            for tile in range.clone().step_by(TILE) {
                let end = range.end.min(tile + TILE);
                // Whole rows; the last few elements are a piece of their own, as on the CPU.
                let whole = tile + (end - tile) / LANES * LANES;
                let number = tile_starts.len() as u32 - 1;
                let starts = (tile..whole).step_by(PIECE).map(|start| start..whole.min(start + PIECE));
                for piece in starts.chain([whole..end]).filter(|piece| !piece.is_empty()) {
                    pieces.extend([piece.start as u32, piece.len() as u32]);
                    piece_tiles.push(number);
                }
                tile_starts.push(piece_tiles.len() as u32);
            }
        }
        let (count, tiles) = (piece_tiles.len() as u32, tile_starts.len() as u32 - 1);
        Ok(Unit {
            elements: ranges.iter().map(Range::len).sum(),
            pieces: Buffer::of(device, &pieces)?,
            count,
            piece_tiles: Buffer::of(device, &piece_tiles)?,
            tile_starts: Buffer::of(device, &tile_starts)?,
            tiles,
            positions: OnceLock::new(),
        })
    }

    /// The address of the positions of all elements.
    pub fn positions(&self, device: &Arc<Device>, ranges: &[Range<usize>]) -> Result<u64> {
        if let Some(positions) = self.positions.get() {
            return Ok(positions.address());
        }
        let all: Vec<u32> = ranges.iter().flat_map(|range| range.start as u32..range.end as u32).collect();
        let made = Buffer::of(device, &all)?;
        Ok(self.positions.get_or_init(|| made).address())
    }

    pub fn pieces(&self) -> u64 {
        self.pieces.address()
    }
}

/// What a walk reads and writes: addresses on the device, 0 where there is nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub gradient: u64,
    pub element: Element,
    pub residual: u64,
    pub momentum: u64,
    pub weights: u64,
    pub update: Update,
    pub scale: f32,
    pub score: Score,
}

impl Job {
    /// Looks at a vector of 32-bit floats, without changing anything.
    pub fn look(values: u64, weights: u64, score: Score) -> Job {
        Job {
            gradient: values,
            element: Element::F32,
            residual: values,
            momentum: 0,
            weights,
            update: Update::Keep,
            scale: 1.0,
            score,
        }
    }

    /// The same vectors once more, after the walk.
    pub fn again(&self) -> Job {
        Job::look(self.residual, self.weights, self.score)
    }

    pub fn side(&self) -> u32 {
        match self.score {
            Score::Magnitude | Score::Relative { .. } => 0,
            Score::Positive => 1,
            Score::Negative => 2,
        }
    }

    /// The guard, and the address of the weights where they count.
    pub fn relative(&self) -> (f32, u64) {
        match self.score {
            Score::Relative { guard } => (guard, self.weights),
            _ => (1.0, 0),
        }
    }
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
    /// As many heads as there are slots: a survey whose head is read later leaves it to the host, and the next survey
    /// takes the next.
    heads: Buffer<u64>,
    slot: usize,
    /// The head of the last survey, in host memory; and all of them.
    seen: Pinned<u64>,
    all_seen: Pinned<u64>,
    /// Held by every slot that was given out.
    taken: Arc<()>,
    pub positions: Buffer<u32>,
    pub values: Buffer<f32>,
    pub scores: Buffer<f32>,
}

/// A head that is kept for the host to read. Those that are held are the last that were given out.
#[derive(Debug)]
pub(super) struct Slot {
    number: usize,
    _taken: Arc<()>,
}

/// What the head of a survey says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Head {
    pub statistics: Statistics,
    pub found: usize,
    pub non_finite: Option<NonFinite>,
}

impl Head {
    fn of(seen: &[u64], unit: &Unit) -> Head {
        let non_finite = Some(seen[NON_FINITE]).filter(|&key| key != u64::MAX);
        Head {
            statistics: Statistics {
                count: unit.elements,
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
            heads: Buffer::zeros(device, HEAD * SLOTS)?,
            slot: 0,
            seen: Pinned::new(device, HEAD)?,
            all_seen: Pinned::new(device, HEAD * SLOTS)?,
            taken: Arc::new(()),
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
        self.head_at(FOUND)
    }

    /// Walks, measures and, unless the floor is infinite, collects from `floor` on. Nothing is waited for.
    pub fn walk(&mut self, job: &Job, unit: &Unit, floor: f32) -> Result<()> {
        let (count, tiles) = (unit.count as usize, unit.tiles as usize);
        self.masks.reserve(PIECE / 32 * count, 0)?;
        self.hits.reserve(count, 0)?;
        self.offsets.reserve(count, 0)?;
        self.sums.reserve(3 * count, 0)?;
        self.extremes.reserve(2 * count, 0)?;
        self.tile_hits.reserve(tiles, 0)?;
        self.tile_offsets.reserve(tiles, 0)?;
        self.tile_sums.reserve(3 * tiles, 0)?;
        self.tile_extremes.reserve(2 * tiles, 0)?;
        let (update, coefficient) = number_of(job.update);
        let (guard, weights) = job.relative();
        let program = program(job.element, update, weights != 0);
        let (capacity, Workspace { device, survey, .. }) = (self.capacity(), &*self);
        launch!(
            device,
            &program,
            "walk",
            count.div_ceil(WARPS),
            THREADS,
            job.gradient,
            job.residual,
            job.momentum,
            weights,
            unit.pieces(),
            unit.count,
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
        )?;
        launch!(
            device,
            survey,
            "tiles",
            tiles.div_ceil(WARPS).max(1),
            THREADS,
            unit.tile_starts.address(),
            unit.tiles,
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
            self.head_at(0),
        )?;
        if floor == f32::INFINITY {
            return Ok(());
        }
        launch!(
            device,
            survey,
            "collect",
            count.div_ceil(WARPS),
            THREADS,
            unit.pieces(),
            unit.count,
            unit.piece_tiles.address(),
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
        )
    }

    /// The address of the head of a choice.
    pub fn choice(&self) -> u64 {
        self.head_at(CHOICE)
    }

    /// What was chosen, as the head said when it was last fetched and waited for.
    pub fn choice_made(&self) -> Chosen {
        Chosen::of(&self.seen.slice()[CHOICE..])
    }

    /// Begins to bring the heads to the host.
    pub fn fetch_head(&mut self) -> Result<()> {
        self.seen.fetch(0..HEAD, self.head_at(0))
    }

    /// What the head said when it was last fetched and waited for.
    pub fn head(&self, unit: &Unit) -> Head {
        Head::of(self.seen.slice(), unit)
    }

    /// Whether a head may be read later: the next survey needs one too.
    pub fn has_slot(&self) -> bool {
        Arc::strong_count(&self.taken) < SLOTS
    }

    /// The address of a word of the head of the last survey, or of the next.
    fn head_at(&self, word: usize) -> u64 {
        self.heads.at(HEAD * self.slot + word)
    }

    /// Keeps the head of the last survey and its choice, to be read later.
    pub fn keep_head(&mut self) -> Slot {
        let number = self.slot;
        self.slot = (self.slot + 1) % SLOTS;
        Slot { number, _taken: self.taken.clone() }
    }

    /// Begins to bring all heads to the host.
    pub fn fetch_kept(&mut self) -> Result<()> {
        self.all_seen.fetch(0..HEAD * SLOTS, self.heads.address())
    }

    /// What a head said that was kept, fetched and waited for.
    pub fn head_in(&self, slot: &Slot, unit: &Unit) -> (Head, Chosen) {
        let seen = &self.all_seen.slice()[HEAD * slot.number..HEAD * (slot.number + 1)];
        (Head::of(seen, unit), Chosen::of(&seen[CHOICE..]))
    }

    /// Takes the gradient of a walk back out of the memory.
    pub fn undo(&self, job: &Job, ranges: &[Range<usize>]) -> Result<()> {
        let (update, coefficient) = number_of(job.update);
        if update == 0 {
            return Ok(());
        }
        let program = undo_program(job.element, update);
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
