//! Choices that the device makes while the host goes on to the next unit. The host then waits once, for all of them.

use std::ops::Range;
use std::sync::Arc;

use super::{CudaSurvey, Keep};
use crate::kernels::cuda::Cuda;
use crate::kernels::cuda::choose::{Chosen, Rule};
use crate::kernels::cuda::list::DeviceList;
use crate::kernels::cuda::walk::{Head, Job, LEAST, Slot, Unit};
use crate::kernels::{Ended, Fault, Finished, Guess, List};

/// The best `k` of a unit, on their way into the lists.
#[derive(Debug)]
pub struct CudaLater {
    /// The accumulated values.
    job: Job,
    unit: Arc<Unit>,
    k: usize,
    expect: usize,
    /// The list of candidates is complete from this score on, if it had room for all of them.
    floor: f32,
    capacity: usize,
    guess: Guess,
    /// Where the host finds what the device has found.
    slot: Slot,
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
        mut self,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Finished<CudaLater>, Fault> {
        let Some(k) = self.may_end_later(positions, values) else {
            return self.finish(positions, values).map(Finished::Now);
        };
        let first = (positions.len(), values.len());
        match self.begin_choice(k, positions, values) {
            Ok(slot) => Ok(Finished::Later(CudaLater {
                job: self.job.again(),
                unit: self.unit.clone(),
                k,
                expect: self.expect,
                floor: self.floor,
                capacity: self.cuda.work.capacity() as usize,
                guess: *self.guess,
                slot,
                positions: first.0,
                values: first.1,
            })),
            Err(fault) => {
                let _ = self.cuda.work.undo(&self.job, &self.ranges);
                Err(fault)
            }
        }
    }

    /// The number of elements to keep, if that is all there is to know, and the lists stay short enough to be in host
    /// memory too.
    fn may_end_later(&self, positions: &DeviceList<u32>, values: &DeviceList<f32>) -> Option<usize> {
        let Keep::Top(k) = self.keep else { return None };
        let short = positions.stays_short(k) && values.stays_short(k);
        let may = self.is_unseen() && self.spectrum.is_none() && short && self.cuda.work.has_slot();
        may.then_some(k)
    }

    fn begin_choice(
        &mut self,
        k: usize,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Slot, Fault> {
        let to = (positions.room(k)?, values.room(k)?);
        let Cuda { chooser, work, .. } = &mut *self.cuda;
        chooser.choose(work, 2 * self.expect, Rule::Top(k as u32), k as u32, to)?;
        positions.grow(k, false);
        values.grow(k, false);
        Ok(work.keep_head())
    }
}

impl CudaLater {
    fn end(
        &self,
        cuda: &mut Cuda,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Ended, Fault> {
        let (head, chosen) = cuda.work.head_in(&self.slot, &self.unit);
        if let Some(found) = head.non_finite {
            return Err(Fault::NonFinite(found));
        }
        let (found, floor) = (head.found, self.floor);
        let best = if found <= self.capacity && (found >= self.k || floor <= LEAST) {
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
            job: self.job,
            unit: self.unit.clone(),
            ranges: Vec::new(),
            guess: &mut guess,
            expect: self.expect,
            spectrum: None,
            head: Some(head),
            statistics: head.statistics,
            floor: self.floor,
            scores: None,
            keep: Keep::Top(self.k),
            missed: false,
            needed: 0,
            known: (0, 0.0),
            failed: None,
            memory: std::marker::PhantomData,
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
        // All of it comes to the host at once.
        positions.fetch_ahead(0)?;
        values.fetch_ahead(0)?;
        self.work.fetch_kept()?;
        self.device.wait()?;
        let ended: Result<Vec<Ended>, Fault> =
            later.iter().map(|one| one.end(self, positions, values)).collect();
        let ended = ended?;
        let unused = |first: fn(&CudaLater) -> usize| -> Vec<Range<usize>> {
            let room = later.iter().zip(&ended);
            room.map(|(one, ended)| first(one) + ended.kept..first(one) + one.k).collect()
        };
        positions.remove(&unused(|one| one.positions))?;
        values.remove(&unused(|one| one.values))?;
        Ok(ended)
    }
}
