//! The end of a selection: what is kept goes behind the lists, and the guess learns.

use super::{CudaSurvey, Keep};
use crate::kernels::cuda::choose::{Cut, Rule};
use crate::kernels::cuda::codec::Run;
use crate::kernels::cuda::list::DeviceList;
use crate::kernels::{Fault, List, Statistics};

impl CudaSurvey<'_> {
    /// Ends the selection; see [`Kernels::finish`](crate::kernels::Kernels::finish).
    pub(in crate::kernels::cuda) fn finish(
        mut self,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<Statistics, Fault> {
        self.begin()?;
        let ended = match std::mem::replace(&mut self.keep, Keep::Nothing) {
            Keep::Nothing => self.head().map(|_| ()),
            Keep::Top(k) => self.finish_top(k, positions, values),
            Keep::Cut(cut, kept) => self.finish_cut(cut, kept, positions, values),
            Keep::Positions(named) => self.finish_positions(&named, positions, values),
        };
        if let Err(fault) = ended {
            // What has entered the memory is taken out again; a device that fails has nothing left to undo.
            let _ = self.cuda.work.undo(&self.job, &self.ranges);
            return Err(fault);
        }
        let found = (self.found_so_far().found, self.floor);
        if self.expect > 0 {
            self.guess.learn(self.needed, self.known, found, self.missed);
        }
        Ok(self.statistics)
    }

    /// The best `k`. As long as nothing was asked, the guess is taken for good and looked at afterwards.
    fn finish_top(
        &mut self,
        k: usize,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<(), Fault> {
        if !self.is_unseen() {
            self.head()?;
            if !self.has(k) {
                self.look_deeper(k)?;
            }
        }
        loop {
            let room = k.min(self.unit.elements);
            let fetched = self.write(Rule::Top(k as u32), room, positions, values)?;
            self.cuda.work.fetch_head()?;
            self.cuda.device.wait()?;
            if self.head.is_none() {
                self.take_head()?;
                if !self.has(k) {
                    self.look_deeper(k)?;
                    continue;
                }
            }
            let chosen = self.cuda.work.choice_made();
            // With fewer than asked for, all are kept: the tail is known down to the floor.
            let lowest = if chosen.lowest > 0.0 { chosen.lowest } else { self.floor };
            self.note_known(chosen.kept, lowest);
            self.grow(chosen.kept, fetched, positions, values);
            return Ok(());
        }
    }

    fn finish_cut(
        &mut self,
        cut: Cut,
        kept: usize,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<(), Fault> {
        self.head()?;
        let fetched = self.write(Rule::Cut(cut), kept, positions, values)?;
        self.cuda.device.wait()?;
        self.grow(kept, fetched, positions, values);
        Ok(())
    }

    fn finish_positions(
        &mut self,
        named: &[u32],
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<(), Fault> {
        self.head()?;
        let mut ranges = self.ranges.iter();
        let (mut start, mut before, mut end) = (0, 0, 0);
        let in_bucket: Vec<u32> = named
            .iter()
            .map(|&position| {
                while position as usize >= end {
                    let range = ranges.next().expect("a position inside the unit");
                    (start, before) = (range.start, end);
                    end += range.len();
                }
                (start + position as usize - before) as u32
            })
            .collect();
        let first = positions.len();
        positions.append(&in_bucket)?;
        let room = values.room(in_bucket.len())?;
        match self.spectrum {
            None => self.cuda.gather(positions.at(first), in_bucket.len(), self.job.residual, room)?,
            Some(spectrum) => {
                let room = values.room(2 * in_bucket.len())?;
                let (bins, parts) =
                    (Run::new(positions.at(first), named.len()), Run::new(room, 2 * named.len()));
                spectrum.gather(bins, parts)?;
            }
        }
        let more = in_bucket.len() * if self.spectrum.is_some() { 2 } else { 1 };
        let fetched = values.fetch_ahead(more)?;
        self.cuda.device.wait()?;
        values.grow(more, fetched);
        Ok(())
    }

    /// Lets the device write what is kept, at most `room` of it, behind the lists; says whether it is on its way to
    /// the host too.
    fn write(
        &mut self,
        rule: Rule,
        room: usize,
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<(bool, bool), Fault> {
        let to = positions.room(room)?;
        let expected = self.head.map_or(2 * self.expect, |head| head.found);
        match self.spectrum {
            None => {
                let values_to = values.room(room)?;
                self.cuda.chooser.choose(&self.cuda.work, expected, rule, room as u32, (to, values_to))?;
                if self.cuda.timed {
                    self.cuda.chosen = Some(self.cuda.device.stamp()?);
                }
                Ok((positions.fetch_ahead(room)?, values.fetch_ahead(room)?))
            }
            Some(spectrum) => {
                // The magnitudes are not wanted; they go where both parts of the bins go afterwards.
                let values_to = values.room(2 * room)?;
                self.cuda.chooser.choose(&self.cuda.work, expected, rule, room as u32, (to, values_to))?;
                // Fewer than `room` may be kept: bins beyond are whatever was there, and must not be looked up.
                self.cuda.work.fetch_head()?;
                self.cuda.device.wait()?;
                let kept = self.cuda.work.choice_made().kept.min(room);
                spectrum.gather(Run::new(to, kept), Run::new(values_to, 2 * kept))?;
                Ok((positions.fetch_ahead(room)?, values.fetch_ahead(2 * room)?))
            }
        }
    }

    fn grow(
        &self,
        kept: usize,
        fetched: (bool, bool),
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) {
        positions.grow(kept, fetched.0);
        values.grow(kept * if self.spectrum.is_some() { 2 } else { 1 }, fetched.1);
    }
}
