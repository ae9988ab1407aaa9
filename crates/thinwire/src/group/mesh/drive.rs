//! Moves the bytes of a plan, in both directions at once, until all have arrived.

use std::time::Instant;

use super::Mesh;
use super::watch::{Trouble, Watch};
use crate::group::collective::Plan;
use crate::group::envelope::{ENVELOPE_BYTES, Envelope, Operation};
use crate::group::wire::Wire;
use crate::{Error, Result};

/// A stream to one rank.
#[derive(Debug)]
pub(super) struct Outgoing {
    peer: usize,
    envelope: [u8; ENVELOPE_BYTES],
    /// Bytes gone, envelope included.
    gone: u64,
    finished: bool,
}

/// A stream from one rank.
#[derive(Debug)]
pub(super) struct Incoming {
    peer: usize,
    envelope: [u8; ENVELOPE_BYTES],
    /// Bytes of the envelope that are here.
    opened: usize,
    /// Bytes here after the envelope, and how many there will be.
    here: u64,
    total: u64,
}

impl Incoming {
    fn is_open(&self) -> bool {
        self.opened == ENVELOPE_BYTES
    }

    fn is_finished(&self) -> bool {
        self.is_open() && self.here == self.total
    }
}

impl<W: Wire> Mesh<W> {
    /// Runs one collective. After an error the group is given up: who knows what the others have seen?
    pub(super) fn collective(&mut self, operation: Operation, plan: &mut impl Plan) -> Result<()> {
        self.check_lost()?;
        self.sequence += 1;
        let length = plan.announcement().unwrap_or(0);
        let envelope = Envelope { operation, sequence: self.sequence, mark: self.mark, length };
        self.outgoing.clear();
        self.outgoing.extend(plan.targets().iter().map(|&peer| Outgoing {
            peer,
            envelope: envelope.to_bytes(),
            gone: 0,
            finished: false,
        }));
        self.incoming.clear();
        self.incoming.extend(plan.sources().iter().map(|&peer| Incoming {
            peer,
            envelope: [0; ENVELOPE_BYTES],
            opened: 0,
            here: 0,
            total: 0,
        }));
        self.drive(envelope, plan).map_err(|trouble| {
            let (culprit, error) = self.explain(trouble, operation);
            self.give_up(culprit, error.clone());
            error
        })
    }

    fn drive(&mut self, envelope: Envelope, plan: &mut impl Plan) -> Result<(), Trouble> {
        let mut watch = Watch::begin(self.deadline, Some(envelope), self.before);
        let mut traffic = self.wire.traffic();
        loop {
            // The deadline is over when nothing is there after it, however late this process was to look.
            let looked = Instant::now();
            let moved = self.push(envelope, plan)? + self.pull(envelope, plan)?;
            if self.incoming.iter().all(Incoming::is_finished) && self.outgoing.iter().all(|o| o.finished) {
                self.before = Some(envelope);
                return Ok(());
            }
            if moved > 0 {
                watch.progress();
            }
            // Arithmetic goes on between the bytes, so that it hides behind them.
            if plan.advance() || moved > 0 {
                continue;
            }
            // Bytes also move that the plan does not see: those of an encrypted record that is not whole.
            let now = self.wire.traffic();
            if now != traffic {
                traffic = now;
                watch.progress();
            }
            self.interest.read.clear();
            self.interest.read.extend(self.incoming.iter().filter(|i| !i.is_finished()).map(|i| i.peer));
            watch.listen(&mut self.wire, &self.interest)?;
            watch.check(&mut self.wire, &self.interest, looked)?;
            self.wire.wait(&self.interest, watch.until())?;
        }
    }

    /// Sends what can be sent; notes the peers that would take no more.
    fn push(&mut self, mut envelope: Envelope, plan: &mut impl Plan) -> Result<usize, Trouble> {
        self.interest.write.clear();
        let Some(length) = plan.announcement() else { return Ok(0) };
        envelope.length = length;
        let mut moved = 0;
        for (number, stream) in self.outgoing.iter_mut().enumerate().filter(|(_, stream)| !stream.finished) {
            let total = ENVELOPE_BYTES as u64 + plan.total(number);
            if stream.gone == 0 {
                stream.envelope = envelope.to_bytes();
            }
            let head = &stream.envelope[(stream.gone as usize).min(ENVELOPE_BYTES)..];
            let body = plan.outgoing(number, stream.gone.saturating_sub(ENVELOPE_BYTES as u64));
            if !(head.is_empty() && body.is_empty()) {
                let taken = self.wire.write(stream.peer, head, body)?;
                stream.gone += taken as u64;
                moved += taken;
                if taken < head.len() + body.len() {
                    self.interest.write.push(stream.peer);
                }
            }
            if stream.gone == total {
                stream.finished = self.wire.flush(stream.peer)?;
                if !stream.finished {
                    self.interest.write.push(stream.peer);
                }
            }
        }
        Ok(moved)
    }

    /// Takes in what has come.
    fn pull(&mut self, envelope: Envelope, plan: &mut impl Plan) -> Result<usize, Trouble> {
        let mut moved = 0;
        for (number, stream) in self.incoming.iter_mut().enumerate() {
            if !stream.is_open() {
                let count = self.wire.read(stream.peer, &mut stream.envelope[stream.opened..])?;
                stream.opened += count;
                moved += count;
                if !stream.is_open() {
                    continue;
                }
                let length = envelope.check(&stream.envelope, stream.peer).map_err(Trouble::Error)?;
                stream.total = plan.announced(number, length).map_err(|expected| {
                    Trouble::Error(Error::Disagreement {
                        rank: stream.peer,
                        step: envelope.mark.step,
                        field: "the number of bytes",
                        found: length.to_string(),
                        expected,
                    })
                })?;
            }
            if stream.here < stream.total {
                let room = plan.incoming(number, stream.here);
                if !room.is_empty() {
                    let count = self.wire.read(stream.peer, room)?;
                    plan.arrived(number, stream.here, count);
                    stream.here += count as u64;
                    moved += count;
                }
            }
        }
        Ok(moved)
    }
}
