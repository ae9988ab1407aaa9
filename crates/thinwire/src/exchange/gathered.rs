//! Every rank sends its own coordinates to all, and sums up everybody's in the order of the ranks.

use super::lane::{Lane, Route, Situation, Way};
use crate::codec::{Frame, Header};
use crate::kernels::Cpu;
use crate::pipeline::Input;
use crate::{Error, Result};

impl Lane {
    /// A rank that can't take part sends an empty message, which no frame is.
    pub(super) fn travel_gathered(&mut self, route: &mut Route<'_>, input: &Input<'_>) -> Result<bool> {
        self.frame.clear();
        match self.compressor.begin(route.cpu, input, true) {
            Ok(report) => {
                (self.report, self.way) = (report, Way::Gathered);
                if let Err(error) = self.compressor.encode(input, &mut self.frame, &mut self.report) {
                    self.refusal = Some(error);
                }
            }
            Err(error) => self.refusal = Some(error),
        }
        let limit = self.message_limit();
        // About six bytes a coordinate; every rank must choose the same, so nobody goes by its own frame.
        let how = route.algorithm_for(self.compressor.values_without_proposal(input.progress) * 6);
        self.timed(|lane| route.group.all_gather(&lane.frame, limit, how, &mut lane.gathered))?;
        self.absent = self.gathered.iter().position(<[u8]>::is_empty);
        if self.absent.is_some() {
            return Ok(false);
        }
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
        cpu: &mut Cpu,
        situation: &Situation,
        factor: f32,
        output: &mut [f32],
    ) -> Result<()> {
        let (step, plan) = (situation.progress.step, situation.plan);
        let bucket = self.compressor.bucket();
        let expected = Header { step, plan, bucket: bucket.id(), elements: bucket.len() as u32 };
        if let Some(aggregator) = &mut self.aggregator {
            let summed = aggregator.sum(cpu, self.gathered.iter(), Some(&expected), factor, output);
            summed.map_err(|error| Error::BadMessage {
                rank: aggregator.reading(),
                step,
                reason: error.to_string(),
            })?;
        }
        self.compressor.commit(cpu);
        Ok(())
    }
}

/// Fails for a frame that is damaged or belongs elsewhere.
fn check(frame: &[u8], expected: &Header) -> Result<()> {
    Frame::parse(frame)?.header().expect(expected)
}
