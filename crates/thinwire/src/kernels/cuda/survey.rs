//! A unit and its walk, on the GPU. Nothing is begun until a selector asks something. Where it only wants the best `k`,
//! the choice follows the walk on the device, and the host waits once, for the message itself.

mod finish;
mod later;

pub use later::CudaLater;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::Cuda;
use super::choose::{Cut, Rule};
use super::job::Job;
use super::spectrum::CudaSpectrum;
use super::unit::Unit;
use super::walk::{Head, LEAST};
use crate::Error;
use crate::kernels::{Fault, Guess, Statistics};
use crate::select::Survey;

/// Up to so many scores are counted by the host: a wait for the device takes as long.
const FEW: usize = 1 << 16;

/// The answer to [`Kernels::survey`](crate::kernels::Kernels::survey) on the GPU.
#[derive(Debug)]
pub struct CudaSurvey<'a> {
    cuda: &'a mut Cuda,
    job: Job,
    unit: Arc<Unit>,
    ranges: Vec<Range<usize>>,
    guess: &'a mut Guess,
    /// The best this many are to be among the candidates.
    expect: usize,
    /// The spectrum whose bins are surveyed: both parts of a bin are its value.
    spectrum: Option<&'a CudaSpectrum>,
    /// Whether the walk is under way. It begins when something is asked, or at the end.
    begun: bool,
    /// Once the host has waited: what the walk found.
    head: Option<Head>,
    statistics: Statistics,
    /// The list is complete from this score on.
    floor: f32,
    /// The scores, once the host has them.
    scores: Option<Vec<f32>>,
    keep: Keep,
    /// For the guess, as on the CPU.
    missed: bool,
    needed: usize,
    known: (usize, f32),
    failed: Option<Fault>,
    /// The memory the walk changes is borrowed as long as the survey lives.
    memory: PhantomData<&'a mut f32>,
}

/// Room for the best `expect` and for all that a wide guess lets through.
fn room_for(expect: usize, elements: usize) -> usize {
    (3 * expect + 4096).min(elements)
}

/// What a selector has decided.
#[derive(Debug, Clone, PartialEq)]
enum Keep {
    Nothing,
    Top(usize),
    Cut(Cut, usize),
    Positions(Vec<u32>),
}

impl<'a> CudaSurvey<'a> {
    pub(super) fn new(
        cuda: &'a mut Cuda,
        job: Job,
        ranges: &[Range<usize>],
        expect: usize,
        guess: &'a mut Guess,
        spectrum: Option<&'a CudaSpectrum>,
    ) -> crate::Result<CudaSurvey<'a>> {
        let unit = cuda.unit(ranges)?;
        // Nothing known, or nothing wanted: only measured.
        let floor = if guess.floor > 0.0 && expect > 0 { guess.floor } else { f32::INFINITY };
        Ok(CudaSurvey {
            cuda,
            job,
            unit,
            ranges: ranges.to_vec(),
            guess,
            expect,
            spectrum,
            begun: false,
            head: None,
            statistics: Statistics::default(),
            floor,
            scores: None,
            keep: Keep::Nothing,
            missed: false,
            needed: 0,
            known: (0, 0.0),
            failed: None,
            memory: PhantomData,
        })
    }

    /// Begins the walk.
    fn begin(&mut self) -> crate::Result<()> {
        if !self.begun {
            if self.floor < f32::INFINITY {
                self.cuda.work.reserve_candidates(room_for(self.expect, self.unit.elements))?;
            }
            self.cuda.work.walk(&self.job, &self.unit, self.floor)?;
            self.begun = true;
        }
        Ok(())
    }

    /// Whether nothing was asked yet, and the walk collects candidates.
    fn is_unseen(&self) -> bool {
        self.head.is_none() && self.failed.is_none() && self.floor < f32::INFINITY
    }

    /// What the walk came to; waits the first time.
    fn head(&mut self) -> Result<Head, Fault> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        if let Some(head) = self.head {
            return Ok(head);
        }
        self.begin()?;
        self.cuda.work.fetch_head()?;
        self.cuda.device.wait()?;
        self.take_head()?;
        if self.expect > 0 && !self.has(self.expect) {
            self.look_deeper(self.expect)?;
        }
        Ok(self.found_so_far())
    }

    /// The head that was waited for.
    fn found_so_far(&self) -> Head {
        self.head.unwrap_or(Head { statistics: self.statistics, found: 0, non_finite: None })
    }

    /// Takes the head that was waited for.
    fn take_head(&mut self) -> Result<(), Fault> {
        let head = self.cuda.work.head(&self.unit);
        if let Some(found) = head.non_finite {
            return Err(Fault::NonFinite(found));
        }
        if self.head.is_none() {
            self.statistics = head.statistics;
        }
        (self.head, self.scores) = (Some(head), None);
        Ok(())
    }

    /// Whether the best `k` are surely in the list.
    fn has(&self, k: usize) -> bool {
        let found = self.found_so_far().found;
        let whole = found <= self.cuda.work.capacity() as usize;
        self.floor < f32::INFINITY && whole && (found >= k.min(self.unit.elements) || self.floor <= LEAST)
    }

    /// Looks at the accumulated values again and collects from `floor` on, however many there are.
    fn look_again(&mut self, floor: f32) -> Result<(), Fault> {
        let job = self.job.again();
        for _ in 0..2 {
            self.cuda.work.walk(&job, &self.unit, floor)?;
            self.cuda.work.fetch_head()?;
            self.cuda.device.wait()?;
            self.take_head()?;
            let found = self.found_so_far().found;
            if found <= self.cuda.work.capacity() as usize {
                break;
            }
            if found > i32::MAX as usize {
                return Err(Fault::Failed(Error::Device {
                    action: "select".into(),
                    reason: format!("{found} elements are candidates; expected at most {}", i32::MAX),
                }));
            }
            self.cuda.work.reserve_candidates(found)?;
        }
        self.floor = floor;
        Ok(())
    }

    /// Makes the list hold the best `k`: finds the `k`-th best score of the whole unit first.
    fn look_deeper(&mut self, k: usize) -> Result<(), Fault> {
        // Without a guess, or with one that let too many through, nothing was missed.
        self.missed |= self.floor < f32::INFINITY && self.found_so_far().found < k;
        let job = self.job.again();
        let Cuda { work, chooser, device, .. } = &mut *self.cuda;
        chooser.find_in_all(work, &job, &self.unit, k.min(self.unit.elements) as u32)?;
        work.fetch_head()?;
        device.wait()?;
        let floor = work.choice_made().lowest.max(LEAST);
        self.cuda.work.reserve_candidates(room_for(k, self.unit.elements))?;
        self.look_again(floor)
    }

    /// How many of the list have a score above `threshold`.
    fn count(&mut self, threshold: f32) -> Result<usize, Fault> {
        let found = self.found_so_far().found;
        if found > FEW {
            return Ok(self.cuda.chooser.count_above(&self.cuda.work, threshold)?);
        }
        if self.scores.is_none() {
            self.scores = Some(self.cuda.work.scores.read(0..found)?);
        }
        let scores = self.scores.as_deref().unwrap_or(&[]);
        Ok(scores.iter().filter(|&&score| score > threshold).count())
    }

    /// Makes the list complete above `threshold`, or says that more than `enough` are there; gives the count above.
    fn reach(&mut self, threshold: f32, enough: usize) -> Result<usize, Fault> {
        self.head()?;
        let floor = if threshold < 0.0 { LEAST } else { threshold.next_up() };
        let known = if self.floor < f32::INFINITY { self.count(threshold)? } else { 0 };
        if known > enough || floor >= self.floor {
            return Ok(known);
        }
        (self.missed, self.expect) =
            (true, self.expect.max(enough.min(self.unit.elements).saturating_add(1)));
        self.look_again(floor)?;
        Ok(self.found_so_far().found)
    }

    /// Notes that `count` elements lie from `score` on.
    fn note_known(&mut self, count: usize, score: f32) {
        self.needed = self.needed.max(count);
        if count > self.known.0 {
            self.known = (count, score);
        }
    }

    /// An answer, or what there is to say after something failed: a vector of zeros.
    fn answer<T: Default>(&mut self, answer: Result<T, Fault>) -> T {
        answer.unwrap_or_else(|fault| {
            self.failed.get_or_insert(fault);
            T::default()
        })
    }

    fn counted(&mut self, threshold: f32, enough: usize) -> Result<usize, Fault> {
        let count = self.reach(threshold, enough)?;
        if count <= enough {
            self.note_known(count, threshold);
        } else {
            // To know that there are too many, one more than enough had to be at hand.
            self.needed = self.needed.max(enough + 1);
        }
        Ok(count)
    }

    fn banded(&mut self, upper: f32, lower: f32, k: usize, start: f64) -> Result<(), Fault> {
        let above_lower = self.reach(lower, usize::MAX)?;
        self.note_known(above_lower, lower);
        let above = self.count(upper)?;
        let band = above_lower - above;
        let room = k.saturating_sub(above).min(band);
        let first = ((band - room) as f64 * start).round() as usize;
        let cut = Cut { upper, lower, first: first as u32, room: room as u32 };
        self.keep = Keep::Cut(cut, above + room);
        Ok(())
    }

    /// The lowest score of the best `k`.
    fn lowest_of(&mut self, k: usize) -> Result<f32, Fault> {
        self.head()?;
        if !self.has(k) {
            self.look_deeper(k)?;
        }
        let found = self.found_so_far().found;
        if found <= k {
            self.count(0.0)?;
            let scores = match self.scores.take() {
                Some(scores) => scores,
                None => self.cuda.work.scores.read(0..found)?,
            };
            return Ok(scores.iter().copied().min_by(f32::total_cmp).unwrap_or(0.0));
        }
        let Cuda { work, chooser, device, .. } = &mut *self.cuda;
        chooser.choose(work, found, Rule::Top(k as u32), 0, (0, 0))?;
        work.fetch_head()?;
        device.wait()?;
        Ok(work.choice_made().lowest)
    }
}

impl Survey for CudaSurvey<'_> {
    fn len(&self) -> usize {
        self.unit.elements
    }

    fn start(&self) -> usize {
        self.ranges.first().map_or(0, |range| range.start)
    }

    fn statistics(&mut self) -> Statistics {
        let head = self.head().map(|_| ());
        self.answer(head);
        let zeros = Statistics { count: self.unit.elements, ..Statistics::default() };
        if self.failed.is_some() { zeros } else { self.statistics }
    }

    fn count_above(&mut self, threshold: f32, enough: usize) -> usize {
        let counted = self.counted(threshold, enough);
        self.answer(counted)
    }

    fn brings_best(&self, k: usize) -> bool {
        self.is_unseen() && k <= self.expect
    }

    fn sample(&mut self, start: usize, stride: usize, scores: &mut Vec<f32>) {
        let sampled =
            self.head().and_then(|_| Ok(self.cuda.sample(&self.job, &self.ranges, start, stride)?));
        let sampled = self.answer(sampled);
        let elements = self.unit.elements.saturating_sub(start).div_ceil(stride);
        scores.extend(sampled.iter().copied().chain(std::iter::repeat(0.0)).take(elements));
    }

    fn keep_above(&mut self, threshold: f32) {
        let count = self.reach(threshold, usize::MAX);
        let count = self.answer(count);
        self.note_known(count, threshold);
        self.keep = Keep::Cut(Cut::above(threshold.max(0.0)), count);
    }

    fn keep_top(&mut self, k: usize) {
        self.keep = Keep::Top(k.min(self.unit.elements));
    }

    fn lowest_kept(&mut self) -> f32 {
        let Keep::Top(k) = self.keep else { return 0.0 };
        let lowest = self.lowest_of(k);
        self.answer(lowest)
    }

    fn keep_band(&mut self, upper: f32, lower: f32, k: usize, start: f64) {
        let banded = self.banded(upper, lower, k, start);
        self.answer(banded);
    }

    fn keep_positions(&mut self, positions: &[u32]) {
        self.keep = Keep::Positions(positions.to_vec());
    }

    fn kept(&mut self) -> usize {
        match &self.keep {
            Keep::Nothing => 0,
            Keep::Cut(_, kept) => *kept,
            Keep::Positions(positions) => positions.len(),
            &Keep::Top(k) => {
                let found = self.head().map(|head| head.found);
                self.answer(found).min(k)
            }
        }
    }
}
