//! The kernels on the CPU: SIMD chosen at run time, and threads.

mod candidates;
mod coder;
mod kernels;
mod lanes;
mod spectrum;
mod spread;
mod survey;
mod undo;
mod walk;

use std::ops::Range;

use super::{NonFinite, Score, Statistics};
use coder::Coder;
pub use spectrum::CpuSpectrum;
use spread::{Part, Task, View, Work, first_stop, spread, tile};
pub use survey::CpuSurvey;

/// Units shorter than this are walked by the calling thread alone: waking others would take longer.
const WORTH_SHARING: usize = 1 << 16;

/// Shares handed out per thread, so that a thread that starts late does not hold up the rest.
const SHARES: usize = 2;

/// Which instructions the walks use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionSet {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl InstructionSet {
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return InstructionSet::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return InstructionSet::Avx2;
            }
        }
        InstructionSet::Portable
    }
}

/// The CPU, with its work space. One `Cpu` serves any number of buckets, one after another.
///
/// The results do not depend on the number of threads or on the instruction set, bit for bit.
#[derive(Debug)]
pub struct Cpu {
    set: InstructionSet,
    pool: Option<rayon::ThreadPool>,
    parts: Vec<Part>,
    tiles: Vec<Range<usize>>,
    statistics: Vec<Statistics>,
    sample: Vec<f32>,
    coder: Coder,
}

impl Cpu {
    /// Kernels that use up to `threads` threads (at least one; the calling one is not counted apart).
    ///
    /// # Panics
    /// When the operating system refuses to start the threads.
    pub fn new(threads: usize) -> Cpu {
        let pool = (threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|number| format!("thinwire-{number}"))
                .build()
                .expect("the operating system starts threads")
        });
        Cpu {
            set: InstructionSet::detect(),
            pool,
            parts: Vec::new(),
            tiles: Vec::new(),
            statistics: Vec::new(),
            sample: Vec::new(),
            coder: Coder::default(),
        }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// The name of the instruction set in use.
    pub fn instructions(&self) -> &'static str {
        match self.set {
            InstructionSet::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => "AVX-512",
        }
    }

    /// `residual += gradient`, nothing else: the least any compressor with memory must do, and what the
    /// benchmarks compare with.
    pub fn accumulate_only(&mut self, gradient: &[f32], residual: &mut [f32]) {
        fn add(gradient: &[f32], residual: &mut [f32]) {
            residual.iter_mut().zip(gradient).for_each(|(r, g)| *r += g);
        }
        fn share(gradient: &[f32], residual: &mut [f32], threads: usize) {
            if threads < 2 {
                return add(gradient, residual);
            }
            let half = gradient.len() / 2;
            let (gradients, residuals) = (gradient.split_at(half), residual.split_at_mut(half));
            rayon::join(
                || share(gradients.0, residuals.0, threads / 2),
                || share(gradients.1, residuals.1, threads - threads / 2),
            );
        }
        match &self.pool {
            None => add(gradient, residual),
            Some(pool) => pool.install(|| share(gradient, residual, pool.current_num_threads())),
        }
    }

    /// Walks `ranges` and leaves the candidates, merged, in the first part.
    fn walk_all(
        &mut self,
        task: Task,
        score: Score,
        mut view: View<'_>,
        ranges: &[Range<usize>],
        keep: usize,
        floor: f32,
    ) -> Result<Statistics, NonFinite> {
        let elements: usize = ranges.iter().map(Range::len).sum();
        let pool = self.pool.as_ref().filter(|_| elements >= WORTH_SHARING);
        let parts = pool.map_or(1, |pool| pool.current_num_threads() * SHARES);
        if self.parts.len() < parts {
            self.parts.resize_with(parts, Part::default);
        }
        for (number, part) in self.parts[..parts].iter_mut().enumerate() {
            // The first part will hold what all of them found. What is large often stands close together, so
            // the others get room for several times their share.
            let expected = keep + keep / 2;
            let room = if number == 0 { expected } else { expected.min(4 * keep / parts) };
            part.candidates.begin(keep, room, floor);
        }
        tile(ranges, &mut self.tiles);
        self.statistics.clear();
        self.statistics.resize(self.tiles.len(), Statistics::default());
        let work = Work { set: self.set, task, score };
        let (tiles, statistics, shares) =
            (&self.tiles[..], &mut self.statistics[..], &mut self.parts[..parts]);
        let whole = view.reborrow();
        match pool {
            None => spread(work, whole, tiles, 0, statistics, shares),
            Some(pool) => pool.install(|| spread(work, whole, tiles, 0, statistics, shares)),
        }
        if let Some(found) = first_stop(&self.parts[..parts]) {
            if let Task::Update(update, scale) = task {
                undo::undo(view, update, scale, &self.tiles, &self.parts[..parts]);
            }
            return Err(found);
        }
        let (first, later) = self.parts[..parts].split_first_mut().expect("at least one part");
        for part in later {
            first.candidates.append(&part.candidates);
        }
        let mut total = Statistics::default();
        self.statistics.iter().for_each(|tile| total.merge(tile));
        Ok(total)
    }
}

#[cfg(test)]
mod tests;
