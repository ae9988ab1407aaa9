//! Which of the candidates are kept.

use std::sync::Arc;

use super::compile::Program;
use super::device::{Device, launch, launch_together};
use super::job::Job;
use super::memory::{Buffer, Pinned};
use super::unit::Unit;
use super::walk::Workspace;
use crate::Result;

const THREADS: usize = 256;
const BINS: usize = 2048;
const PASSES: usize = 3;
/// Blocks of a choice that run at once on a multiprocessor: the kernel is built for as many (`__launch_bounds__`), and the
/// oldest cards have threads for no more.
const MOST_BLOCKS: usize = 4;
/// Words that the blocks of a choice meet by.
const MEETING: usize = 2;

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

/// What is to be kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    /// The best so many; all, if there are fewer.
    Top(u32),
    /// By score.
    Cut(Cut),
}

/// What was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chosen {
    /// The score of the last one of an exact choice; 0 if there were not more than asked for.
    pub lowest: f32,
    pub kept: usize,
}

impl Chosen {
    /// From the words of the head.
    pub fn of(seen: &[u64]) -> Chosen {
        Chosen { lowest: f32::from_bits(seen[0] as u32), kept: seen[2] as usize }
    }
}

/// The kernels that choose, and what they work in.
#[derive(Debug)]
pub(super) struct Chooser {
    device: Arc<Device>,
    program: Program,
    /// The bins of each pass, and behind them what the blocks meet by. All zero between two choices.
    bins: Buffer<u32>,
    of_blocks: Buffer<[u32; 2]>,
    counted: Buffer<u32>,
    count: Pinned<u32>,
}

impl Chooser {
    pub fn new(device: &Arc<Device>) -> Result<Chooser> {
        let blocks = MOST_BLOCKS * device.processors() as usize;
        Ok(Chooser {
            device: device.clone(),
            program: Program::new("choose"),
            bins: Buffer::zeros(device, PASSES * BINS + MEETING)?,
            of_blocks: Buffer::new(device, blocks)?,
            counted: Buffer::zeros(device, 1)?,
            count: Pinned::new(device, 1)?,
        })
    }

    /// Blocks for a list of about so many: each has something to do, and all of them run at once. As long as one for each
    /// multiprocessor will do, more would only wait longer for each other.
    fn grid(&self, candidates: usize) -> usize {
        let processors = self.device.processors() as usize;
        let few = candidates.div_ceil(512).clamp(1, processors);
        candidates.div_ceil(8192).clamp(few, MOST_BLOCKS * processors)
    }

    /// Finds the `k`-th best score of a whole unit.
    pub fn find_in_all(&mut self, work: &Workspace, job: &Job, unit: &Unit, k: u32) -> Result<()> {
        let (guard, weights) = job.relative();
        let grid = (unit.tables.count as usize).clamp(1, 8 * self.device.processors() as usize);
        for pass in 0..PASSES {
            launch!(
                self.device,
                &self.program,
                "digits_of_all",
                grid,
                THREADS,
                job.residual,
                weights,
                guard,
                job.side(),
                unit.tables.pieces.address(),
                unit.tables.count,
                self.bins.address(),
                self.bins.at(PASSES * BINS),
                work.choice(),
                pass as u32,
                k,
            )?;
        }
        Ok(())
    }

    /// Chooses among about `expected` candidates, and writes what is kept to the given addresses, at most `room` of it.
    pub fn choose(
        &mut self,
        work: &Workspace,
        expected: usize,
        rule: Rule,
        room: u32,
        (positions, values): (u64, u64),
    ) -> Result<()> {
        let capacity = work.capacity();
        let (cut, exact, k) = match rule {
            Rule::Top(k) => (Cut::above(0.0), 1u32, k),
            Rule::Cut(cut) => (cut, 0u32, 0),
        };
        launch_together!(
            self.device,
            &self.program,
            "choose",
            self.grid(expected),
            THREADS,
            work.positions.address(),
            work.values.address(),
            work.scores.address(),
            work.found(),
            capacity,
            cut,
            exact,
            k,
            self.bins.address(),
            self.bins.at(PASSES * BINS),
            self.of_blocks.address(),
            work.choice(),
            room,
            positions,
            values,
        )
    }

    /// Chooses the best of each of several units that were walked together, by their heads.
    pub fn choose_each(
        &mut self,
        work: &Workspace,
        (selections, units): (u64, usize),
        heads: u64,
        (positions, values): (u64, u64),
    ) -> Result<()> {
        launch!(
            self.device,
            &self.program,
            "choose_each",
            units,
            THREADS,
            work.positions.address(),
            work.values.address(),
            work.scores.address(),
            selections,
            heads,
            positions,
            values,
        )
    }

    /// How many candidates have a score above `threshold`; waits.
    pub fn count_above(&mut self, work: &Workspace, threshold: f32) -> Result<usize> {
        self.counted.clear()?;
        let capacity = work.capacity();
        launch!(
            self.device,
            &self.program,
            "count_above",
            self.grid(capacity as usize),
            THREADS,
            work.scores.address(),
            work.found(),
            capacity,
            threshold,
            self.counted.address(),
        )?;
        self.count.fetch(0..1, self.counted.address())?;
        self.device.wait()?;
        Ok(self.count.slice()[0] as usize)
    }
}
