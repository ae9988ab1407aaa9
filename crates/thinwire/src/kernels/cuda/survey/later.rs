//! Units whose best `k` are wanted and nothing else: they wait for the other units of the bucket, to be walked and chosen
//! from [together](crate::kernels::cuda::batch).

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::{CudaSurvey, Keep, room_for};
use crate::kernels::cuda::Cuda;
use crate::kernels::cuda::choose::{Chosen, Rule};
use crate::kernels::cuda::job::Job;
use crate::kernels::cuda::list::DeviceList;
use crate::kernels::cuda::unit::Unit;
use crate::kernels::cuda::walk::{Head, LEAST};
use crate::kernels::{Ended, Fault, Finished, Guess, List};

/// Up to so many are chosen by one block of the device.
const MOST: usize = 1 << 15;

/// The best `k` of a unit, to be chosen.
#[derive(Debug)]
pub struct CudaLater {
    job: Job,
    unit: Arc<Unit>,
    ranges: Vec<Range<usize>>,
    k: usize,
    expect: usize,
    /// Candidates are collected from this score on.
    floor: f32,
    guess: Guess,
    /// Its first entries in the lists.
    positions: usize,
    values: usize,
}

/// The best of a unit, in the lists.
struct Best {
    chosen: Chosen,
    found: usize,
    floor: f32,
    missed: bool,
}

impl CudaSurvey<'_> {
    /// See [`Kernels::finish_later`](crate::kernels::Kernels::finish_later).
    pub(in crate::kernels::cuda) fn finish_later(
        self,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Finished<CudaLater>, Fault> {
        let Some(k) = self.may_end_later(positions, values) else {
            return self.finish(positions, values).map(Finished::Now);
        };
        let first = (positions.len(), values.len());
        positions.room(k)?;
        values.room(k)?;
        positions.grow(k, false);
        values.grow(k, false);
        Ok(Finished::Later(CudaLater {
            job: self.job,
            unit: self.unit,
            ranges: self.ranges,
            k,
            expect: self.expect,
            floor: self.floor,
            guess: *self.guess,
            positions: first.0,
            values: first.1,
        }))
    }

    /// The number of elements to keep, if that is all there is to know, and they are few enough for it.
    fn may_end_later(&self, positions: &DeviceList<u32>, values: &DeviceList<f32>) -> Option<usize> {
        let Keep::Top(k) = self.keep else { return None };
        let fits = k <= MOST && positions.stays_short(k) && values.stays_short(k);
        let plain = self.spectrum.is_none() && self.job.relative().1 == 0;
        (self.is_unseen() && !self.begun && plain && fits).then_some(k)
    }
}

impl CudaLater {
    pub(in crate::kernels::cuda) fn job(&self) -> Job {
        self.job
    }

    pub(in crate::kernels::cuda) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    pub(in crate::kernels::cuda) fn k(&self) -> usize {
        self.k
    }

    pub(in crate::kernels::cuda) fn floor(&self) -> f32 {
        self.floor
    }

    /// How many candidates there is room for.
    pub(in crate::kernels::cuda) fn capacity(&self) -> usize {
        room_for(self.expect, self.unit.elements)
    }

    /// Its first entries in the lists of positions and of values.
    pub(in crate::kernels::cuda) fn places(&self) -> (usize, usize) {
        (self.positions, self.values)
    }

    /// Takes in what was chosen; `number` is its place among those that were walked together.
    fn end(
        &self,
        number: usize,
        cuda: &mut Cuda,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Ended, Fault> {
        let (head, chosen) = cuda.heads.read(number, self.unit.elements);
        if let Some(found) = head.non_finite {
            return Err(Fault::NonFinite(found));
        }
        let (found, floor) = (head.found, self.floor);
        let best = if found <= self.capacity() && (found >= self.k || floor <= LEAST) {
            Best { chosen, found, floor, missed: false }
        } else {
            self.choose_again(cuda, head, positions, values)?
        };
        let Best { chosen, found, floor, missed } = best;
        let (kept, mut guess) = (chosen.kept, self.guess);
        // With fewer than asked for, all are kept: the tail is known down to the floor.
        let lowest = if chosen.lowest > 0.0 { chosen.lowest } else { floor };
        guess.learn(kept, (kept, lowest), (found, floor), missed);
        Ok(Ended { kept, statistics: head.statistics, guess })
    }

    /// The guess was too high, or far too low: finds the `k`-th best score first, and puts the best in the place that was
    /// left for them.
    fn choose_again(
        &self,
        cuda: &mut Cuda,
        head: Head,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Best, Fault> {
        let mut guess = self.guess;
        let mut survey = CudaSurvey {
            cuda,
            // What is accumulated is looked at.
            job: self.job.again(),
            unit: self.unit.clone(),
            ranges: Vec::new(),
            guess: &mut guess,
            expect: self.expect,
            spectrum: None,
            begun: true,
            head: Some(head),
            statistics: head.statistics,
            floor: self.floor,
            scores: None,
            keep: Keep::Top(self.k),
            missed: false,
            needed: 0,
            known: (0, 0.0),
            failed: None,
            memory: PhantomData,
        };
        survey.look_deeper(self.k)?;
        let (found, floor, missed) = (survey.found_so_far().found, survey.floor, survey.missed);
        let to = (positions.at(self.positions), values.at(self.values));
        let Cuda { chooser, work, device, .. } = cuda;
        chooser.choose(work, found, Rule::Top(self.k as u32), self.k as u32, to)?;
        positions.fetch_again(self.positions..self.positions + self.k)?;
        values.fetch_again(self.values..self.values + self.k)?;
        work.fetch_head()?;
        device.wait()?;
        Ok(Best { chosen: work.choice_made(), found, floor, missed })
    }
}

impl Cuda {
    /// See [`Kernels::finish_all`](crate::kernels::Kernels::finish_all).
    pub(in crate::kernels::cuda) fn end_all(
        &mut self,
        later: &[CudaLater],
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Vec<Ended>, Fault> {
        self.choose_together(later, positions, values)?;
        let each = later.iter().enumerate().map(|(number, one)| one.end(number, self, positions, values));
        let ended = each.collect::<Result<Vec<Ended>, Fault>>()?;
        let unused = |first: fn(&CudaLater) -> usize| -> Vec<Range<usize>> {
            let room = later.iter().zip(&ended);
            room.map(|(one, ended)| first(one) + ended.kept..first(one) + one.k).collect()
        };
        positions.remove(&unused(|one| one.positions))?;
        values.remove(&unused(|one| one.values))?;
        Ok(ended)
    }
}
