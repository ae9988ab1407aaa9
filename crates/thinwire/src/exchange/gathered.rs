//! Every rank sends its own coordinates to all, and sums up everybody's in the order of the ranks.

use super::lane::{Lane, Route, Situation, Way};
use super::notes;
use crate::codec::{Frame, Header};
use crate::kernels::Kernels;
use crate::pipeline::InputOn;
use crate::{Error, Result};

impl<K: Kernels> Lane<K> {
    /// A rank that can't take part sends an empty message, which no frame is. With `dense_apart` the frames leave out
    /// the layers that are sent dense: they are summed once all buckets are here.
    pub(super) fn travel_gathered(
        &mut self,
        route: &mut Route<'_, K>,
        input: &InputOn<'_, K>,
        dense_apart: bool,
    ) -> Result<bool> {
        self.frame.clear();
        self.means.clear();
        self.rank = route.group.rank();
        match self.compressor.begin(route.kernels, input, true) {
            Ok(report) => {
                (self.report, self.way) = (report, Way::Gathered);
                if dense_apart {
                    self.set_dense_apart(route.kernels)?;
                }
                let written = self.compressor.encode(route.kernels, input, &mut self.frame, &mut self.report);
                written.or_else(|error| self.refuse(error))?;
                self.count_dense_apart();
            }
            Err(error) => self.refuse(error)?,
        }
        if !self.frame.is_empty() {
            notes::append(&self.note, &mut self.frame);
        }
        let limit = self.message_limit() + 4 * self.note.len();
        // About six bytes a coordinate; every rank must choose the same, so nobody goes by its own frame.
        let apart = if dense_apart { self.compressor.dense_len() } else { 0 };
        let values = self.compressor.values_without_proposal(input.progress) - apart;
        let how = route.spread_algorithm(values * 6);
        self.timed_spread(|lane| route.group.all_gather(&lane.frame, limit, how, &mut lane.gathered))?;
        self.absent = self.gathered.iter().position(<[u8]>::is_empty);
        if self.absent.is_some() {
            return Ok(false);
        }
        self.gathered.take_ends(self.note.len(), &mut self.notes).map_err(|(rank, found)| {
            let reason = format!("it has {found} bytes, fewer than the note behind it");
            Error::BadMessage { rank, step: input.progress.step, reason }
        })?;
        let expected = self.compressor.header(input);
        for (rank, frame) in self.gathered.iter().enumerate() {
            check(frame, &expected).map_err(|error| Error::BadMessage {
                rank,
                step: input.progress.step,
                reason: error.to_string(),
            })?;
        }
        Ok(true)
    }

    pub(super) fn settle_gathered(
        &mut self,
        kernels: &mut K,
        situation: &Situation,
        factor: f32,
        output: &mut K::Gradient,
    ) -> Result<()> {
        let (step, plan) = (situation.progress.step, situation.plan);
        let bucket = self.compressor.bucket();
        let expected = Header { step, plan, bucket: bucket.id(), elements: bucket.len() as u32 };
        if let Some(aggregator) = &mut self.aggregator {
            let (frames, own) = (self.gathered.iter(), Some((self.rank, &mut self.compressor)));
            let summed =
                aggregator.sum_beside(kernels, frames, own, &self.means, Some(&expected), factor, output);
            summed.map_err(|error| match error {
                Error::Device { .. } => error,
                _ => Error::BadMessage { rank: aggregator.reading(), step, reason: error.to_string() },
            })?;
        }
        self.compressor.commit(kernels)
    }
}

/// Fails for a frame that is damaged or belongs elsewhere.
fn check(frame: &[u8], expected: &Header) -> Result<()> {
    Frame::parse(frame)?.header().expect(expected)
}
