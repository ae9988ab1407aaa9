//! Which of the candidates are kept.

use std::sync::Arc;

use super::compile::Program;
use super::device::{Device, launch};
use super::memory::{Buffer, Pinned};
use super::walk::{Job, Unit, Workspace};
use crate::Result;

const THREADS: usize = 256;
const BINS: usize = 2048;
const PASSES: usize = 3;
const CHUNK: usize = 2048;
/// The words of the head: the score of the last one kept, how many of that score are kept, how many in all.
const HEAD: usize = 3;

/// What is kept: scores above `upper`; and of those above `lower`, in order of position, the `room` from `first` on.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Cut {
    pub upper: f32,
    pub lower: f32,
    pub first: u32,
    pub room: u32,
}

impl Cut {
    /// Everything above a score.
    pub fn above(threshold: f32) -> Cut {
        Cut { upper: threshold, lower: threshold, first: 0, room: 0 }
    }
}

/// What was chosen, as the head says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chosen {
    /// The score of the last one of an exact choice; 0 if there were not more than asked for.
    pub lowest: f32,
    pub kept: usize,
}

/// The kernels that choose, and what they work in.
#[derive(Debug)]
pub(super) struct Chooser {
    device: Arc<Device>,
    program: Program,
    /// The bins of each pass, and behind them the tickets of each kernel.
    bins: Buffer<u32>,
    chunks_above: Buffer<u32>,
    chunks_band: Buffer<u32>,
    head: Buffer<u64>,
    seen: Pinned<u64>,
    counted: Buffer<u32>,
    count: Pinned<u32>,
}

impl Chooser {
    pub fn new(device: &Arc<Device>) -> Result<Chooser> {
        Ok(Chooser {
            device: device.clone(),
            program: Program::new("choose"),
            bins: Buffer::zeros(device, PASSES * BINS + PASSES + 1)?,
            chunks_above: Buffer::empty(device),
            chunks_band: Buffer::empty(device),
            head: Buffer::zeros(device, HEAD)?,
            seen: Pinned::new(device, HEAD)?,
            counted: Buffer::zeros(device, 1)?,
            count: Pinned::new(device, 1)?,
        })
    }

    /// Blocks for a list of up to `capacity`: a few for each multiprocessor, each with something to do.
    fn grid(&self, capacity: u32) -> usize {
        (capacity as usize).div_ceil(CHUNK).clamp(1, 4 * self.device.processors() as usize)
    }

    fn ticket(&self, number: usize) -> u64 {
        self.bins.at(PASSES * BINS + number)
    }

    /// Finds the `k`-th best score among the candidates.
    pub fn find(&mut self, work: &Workspace, k: u32) -> Result<()> {
        self.bins.clear()?;
        let capacity = work.capacity();
        for pass in 0..PASSES {
            launch!(
                self.device, &self.program, "digits", self.grid(capacity), THREADS,
                work.scores.address(), work.found(), capacity, self.bins.at(pass * BINS), self.ticket(pass),
                self.head.address(), pass as u32, k,
            )?;
        }
        Ok(())
    }

    /// Finds the `k`-th best score of a whole unit.
    pub fn find_in_all(&mut self, job: &Job, unit: &Unit, k: u32) -> Result<()> {
        self.bins.clear()?;
        let (guard, weights) = job.relative();
        let grid = (unit.count as usize).clamp(1, 8 * self.device.processors() as usize);
        for pass in 0..PASSES {
            launch!(
                self.device, &self.program, "digits_of_all", grid, THREADS,
                job.residual, weights, guard, job.side(), unit.pieces(), unit.count, self.bins.at(pass * BINS),
                self.ticket(pass), self.head.address(), pass as u32, k,
            )?;
        }
        Ok(())
    }

    /// Writes what is kept to the given addresses, at most `room` of it: by a cut, or (`None`) what was
    /// [found](Chooser::find).
    pub fn keep(&mut self, work: &Workspace, cut: Option<Cut>, room: u32, (positions, values): (u64, u64)) -> Result<()> {
        let capacity = work.capacity();
        let chunks = (capacity as usize).div_ceil(CHUNK);
        self.chunks_above.reserve(chunks, 0)?;
        self.chunks_band.reserve(chunks, 0)?;
        if cut.is_some() {
            self.bins.clear_range(PASSES * BINS..PASSES * BINS + PASSES + 1)?;
        }
        let exact = cut.is_none() as u32;
        let cut = cut.unwrap_or(Cut::above(0.0));
        let grid = self.grid(capacity);
        launch!(
            self.device, &self.program, "count", grid, THREADS,
            work.scores.address(), work.found(), capacity, cut, exact, self.chunks_above.address(),
            self.chunks_band.address(), self.ticket(PASSES), self.head.address(),
        )?;
        launch!(
            self.device, &self.program, "keep", grid, THREADS,
            work.positions.address(), work.values.address(), work.scores.address(), work.found(), capacity, cut, exact,
            self.chunks_above.address(), self.chunks_band.address(), self.head.address(), room, positions, values,
        )
    }

    /// Begins to bring the head to the host.
    pub fn fetch_head(&mut self) -> Result<()> {
        self.seen.fetch(0..HEAD, self.head.address())
    }

    /// What the head said when it was last fetched and waited for.
    pub fn chosen(&self) -> Chosen {
        let seen = self.seen.slice();
        Chosen { lowest: f32::from_bits(seen[0] as u32), kept: seen[2] as usize }
    }

    /// How many candidates have a score above `threshold`; waits.
    pub fn count_above(&mut self, work: &Workspace, threshold: f32) -> Result<usize> {
        self.counted.clear()?;
        let capacity = work.capacity();
        launch!(
            self.device, &self.program, "count_above", self.grid(capacity), THREADS,
            work.scores.address(), work.found(), capacity, threshold, self.counted.address(),
        )?;
        self.count.fetch(0..1, self.counted.address())?;
        self.device.wait()?;
        Ok(self.count.slice()[0] as usize)
    }
}
