//! Quantised exchange with error feedback: everything is sent, in a few bits.
//!
//! 1. Every rank adds its gradient to its residual, quantises each other rank's shard of that and sends it there. What
//!    rounding loses stays in the residual.
//! 2. The owner of a shard adds what it got to its own accumulated gradient, which needs no rounding, quantises the sum
//!    and sends it to all. What this rounding loses stays in the owner's residual.
//! 3. Everybody reads all sums: the same bytes on every rank, so the same mean.
//!
//! Feedback of the second rounding usually takes a vector of its own. Here it is part of the owner's residual: that part is
//! never quantised on its way into the sum, so adding to it is adding to the next sum. Nothing more has to be saved, and
//! a state fits any number of ranks.
//!
//! Invariant: over all ranks, sent (the mean times the ranks) plus kept equals given plus kept before, element by element,
//! within one rounding.
//!
//! A rank that can't take part (a NaN in its gradient) sends zeros from there on and says so behind its sum, with a byte
//! that is not 0. Then all ranks skip the step, and each takes back what it added: its messages tell how far it came.

use super::lane::{Lane, Route, Situation, Way};
use super::notes;
use crate::codec::quantize::BLOCK;
use crate::codec::{QuantizeSums, Quantizer};
use crate::group::{CompressedSum, ShardMessages};
use crate::kernels::{Fault, Kernels, NonFinite};
use crate::pipeline::{Report, fault_in};
use crate::{Error, Result};

/// Elements of a shard that are worked on in one go: they fit the second-level cache, and take about ten microseconds.
const PIECE: usize = 64 * BLOCK;

/// What a lane keeps for this exchange.
#[derive(Debug, Default)]
pub(super) struct Quantized {
    messages: ShardMessages,
    work: Vec<f32>,
    /// How far the residual has changed in this step.
    passed: Passed,
    /// How this step is quantised, and its factor on the gradient.
    quantizer: Option<Quantizer>,
    scale: f32,
}

/// How far a step has come, in elements of each shard. The own shard is summed, the others are contributed to.
#[derive(Debug, Default)]
struct Passed {
    /// Bytes of these are made.
    made: Vec<usize>,
    /// These have entered the residual, and what is sent of them has left it.
    entered: Vec<usize>,
}

impl Passed {
    fn begin(&mut self, ranks: usize) {
        for counts in [&mut self.made, &mut self.entered] {
            counts.clear();
            counts.resize(ranks, 0);
        }
    }
}

impl Quantized {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.messages.bytes() + 4 * self.work.capacity()
    }
}

/// Why a rank can't take part.
enum Trouble {
    /// The gradient is not one of this bucket.
    Input(Error),
    /// An element of the accumulated gradient.
    Gradient(usize, f32),
    /// An element of the sum over all ranks.
    Sum(usize, f32),
    /// What a rank sent.
    Message(usize, Error),
}

/// The arithmetic of one step on one rank.
struct Step<'a> {
    contribution: Quantizer,
    sum: Quantizer,
    elements: usize,
    gradient: &'a [f32],
    residual: &'a mut [f32],
    scale: f32,
    rank: usize,
    ranks: usize,
    note: &'a [f32],
    work: &'a mut Vec<f32>,
    passed: &'a mut Passed,
    /// The shard to contribute to next.
    next: usize,
    trouble: Option<Trouble>,
    sums: QuantizeSums,
    ended: bool,
}

impl Step<'_> {
    fn shard(&self, owner: usize) -> std::ops::Range<usize> {
        Quantizer::shard(self.elements, owner, self.ranks)
    }

    /// Makes the next piece of a contribution, one shard after the other; false when all are made.
    fn contribute(&mut self, messages: &mut ShardMessages) -> bool {
        for _ in 0..self.ranks {
            let owner = self.next;
            self.next = (self.next + 1) % self.ranks;
            let (shard, made) = (self.shard(owner), self.passed.made[owner]);
            if owner == self.rank || made == shard.len() {
                continue;
            }
            let piece = shard.start + made..(shard.start + made + PIECE).min(shard.end);
            self.passed.made[owner] += piece.len();
            let message = messages.contribution(owner);
            let begin = message.len();
            if self.trouble.is_none() {
                let gradient = Some((&self.gradient[piece.clone()], self.scale));
                let residual = &mut self.residual[piece.clone()];
                let done = self.contribution.accumulate(gradient, residual, piece.start, message);
                let entered = match done {
                    Ok(sums) => {
                        self.sums.merge(sums);
                        piece.len()
                    }
                    Err(position) => {
                        let place = piece.start + position;
                        let value = self.residual[place] + self.scale * self.gradient[place];
                        self.trouble = Some(Trouble::Gradient(place, value));
                        position / BLOCK * BLOCK
                    }
                };
                self.passed.entered[owner] += entered;
            }
            message.resize(begin + self.contribution.encoded_len(piece.len()), 0);
            return true;
        }
        false
    }

    /// Makes the next piece of this rank's sum; false if some contribution to it is not here, or all is made.
    fn reduce(&mut self, messages: &mut ShardMessages) -> bool {
        let (shard, made) = (self.shard(self.rank), self.passed.made[self.rank]);
        let piece = shard.start + made..(shard.start + made + PIECE).min(shard.end);
        let begin = self.contribution.encoded_len(made);
        let bytes = begin..begin + self.contribution.encoded_len(piece.len());
        let others = || (0..self.ranks).filter(|&other| other != self.rank);
        if piece.is_empty() || others().any(|other| messages.received(other).len() < bytes.end) {
            return false;
        }
        self.passed.made[self.rank] += piece.len();
        if self.trouble.is_none() {
            self.work.clear();
            let both = self.residual[piece.clone()].iter().zip(&self.gradient[piece.clone()]);
            self.work.extend(both.map(|(kept, gradient)| kept + self.scale * gradient));
            for other in others() {
                let added = self.contribution.add(&messages.received(other)[bytes.clone()], self.work);
                if let Err(error) = added {
                    self.trouble.get_or_insert(Trouble::Message(other, error));
                }
            }
        }
        let message = messages.own_sum();
        let made = message.len();
        if self.trouble.is_none() {
            let summed = match self.sum.quantize(self.work, piece.start, message) {
                Ok(_) => piece.len(),
                Err(position) => {
                    self.trouble = Some(self.blame(piece.start + position, self.work[position]));
                    position / BLOCK * BLOCK
                }
            };
            self.residual[piece.start..][..summed].copy_from_slice(&self.work[..summed]);
            self.passed.entered[self.rank] += summed;
        }
        message.resize(made + self.sum.encoded_len(piece.len()), 0);
        true
    }

    /// Whose element it is that is too large or no number: this rank's own, or that of the sum.
    fn blame(&self, place: usize, value: f32) -> Trouble {
        let own = self.residual[place] + self.scale * self.gradient[place];
        if own.is_finite() { Trouble::Sum(place, value) } else { Trouble::Gradient(place, own) }
    }
}

impl CompressedSum for Step<'_> {
    fn contribution_len(&self, owner: usize) -> usize {
        self.contribution.encoded_len(self.shard(owner).len())
    }

    fn sum_len(&self, owner: usize) -> usize {
        self.sum.encoded_len(self.shard(owner).len()) + 1 + 4 * self.note.len()
    }

    fn advance(&mut self, messages: &mut ShardMessages) -> bool {
        if self.contribute(messages) || self.reduce(messages) {
            return true;
        }
        if self.ended || self.passed.made[self.rank] < self.shard(self.rank).len() {
            return false;
        }
        self.ended = true;
        let message = messages.own_sum();
        message.push(self.trouble.is_some() as u8);
        notes::append(self.note, message);
        true
    }
}

impl<K: Kernels> Lane<K> {
    /// False if some rank could not take part; its messages tell which.
    pub(super) fn travel_quantized(
        &mut self,
        route: &mut Route<'_, K>,
        situation: &Situation,
        quantizer: Quantizer,
        gradient: &K::Gradient,
    ) -> Result<bool> {
        let (rank, ranks, step) = (route.group.rank(), route.group.size(), situation.progress.step);
        let bucket = self.compressor.bucket();
        let (id, elements) = (bucket.id(), bucket.len());
        let fits = bucket.check_len("gradient", K::elements(gradient));
        self.way = Way::Quantized;
        (self.quantized.quantizer, self.quantized.scale) = (Some(quantizer), situation.share);
        let Quantized { messages, work, passed, .. } = &mut self.quantized;
        passed.begin(ranks);
        let memory = self.compressor.memory_mut();
        let (gradient, residual) = route.kernels.stage_with(gradient, &mut memory.residual)?;
        let key = |phase: u32| mix(quantizer.key().unwrap_or(0), step, id, 2 * rank as u32 + phase);
        let mut arithmetic = Step {
            contribution: quantizer.with_key(key(0)),
            sum: quantizer.with_key(key(1)),
            elements,
            gradient,
            residual,
            scale: situation.share,
            rank,
            ranks,
            note: &self.note,
            work,
            passed,
            next: (rank + 1) % ranks,
            trouble: fits.err().map(Trouble::Input),
            sums: QuantizeSums::default(),
            ended: false,
        };
        let begun = std::time::Instant::now();
        let exchanged = route.group.compressed_sum(&mut arithmetic, messages);
        self.times.sum += begun.elapsed();
        let Step { trouble, sums, .. } = arithmetic;
        route.kernels.unstage_vector(&mut self.compressor.memory_mut().residual)?;
        exchanged?;
        let bytes = quantizer.encoded_len(elements);
        let sent = sums.energy - sums.lost;
        self.report = Report {
            elements,
            values: elements,
            value_bytes: bytes,
            frame_bytes: bytes,
            energy: sums.energy,
            energy_sent: sent.max(0.0),
            ..Report::default()
        };
        if let Some(trouble) = trouble {
            let bucket = self.compressor.bucket();
            let non_finite = |what, position, value| {
                fault_in(bucket, what, Fault::NonFinite(NonFinite { position, value }))
            };
            self.refusal = Some(match trouble {
                Trouble::Input(error) => error,
                Trouble::Gradient(place, value) => non_finite("gradient", place, value),
                Trouble::Sum(place, value) => non_finite("the sum over all ranks", place, value),
                Trouble::Message(rank, error) => Error::BadMessage { rank, step, reason: error.to_string() },
            });
        }
        self.read_ends(quantizer, ranks, step)
    }

    /// Reads what stands behind the sums: whether each rank took part, and its note.
    fn read_ends(&mut self, quantizer: Quantizer, ranks: usize, step: u64) -> Result<bool> {
        let elements = self.compressor.bucket().len();
        self.notes.clear();
        for rank in 0..ranks {
            let values = Quantizer::shard(elements, rank, ranks).len();
            let (sum, end) = self.quantized.messages.sum(rank).split_at(quantizer.encoded_len(values));
            let bad = |error: Error| Error::BadMessage { rank, step, reason: error.to_string() };
            quantizer.check(sum, values).map_err(bad)?;
            if end[0] != 0 {
                self.absent.get_or_insert(rank);
            }
            self.notes.extend(end[1..].as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)));
        }
        Ok(self.absent.is_none())
    }

    pub(super) fn settle_quantized(
        &mut self,
        kernels: &mut K,
        ranks: usize,
        output: &mut K::Gradient,
    ) -> Result<()> {
        let Some(quantizer) = self.quantized.quantizer else { return Ok(()) };
        let elements = self.compressor.bucket().len();
        let mean = kernels.stage(1.0, output)?;
        for owner in 0..ranks {
            let shard = Quantizer::shard(elements, owner, ranks);
            let sum = &self.quantized.messages.sum(owner)[..quantizer.encoded_len(shard.len())];
            quantizer.decode(sum, 1.0 / ranks as f32, &mut mean[shard])?;
        }
        kernels.unstage(output)
    }

    /// Takes the gradient back out of the residual, and puts back what was sent: exactly but for rounding.
    pub(super) fn cancel_quantized(&mut self, kernels: &mut K, gradient: &K::Gradient) -> Result<()> {
        let elements = self.compressor.bucket().len();
        let Quantized { messages, work, passed, quantizer, scale } = &mut self.quantized;
        let (Some(quantizer), ranks) = (quantizer.take(), passed.entered.len()) else { return Ok(()) };
        let memory = self.compressor.memory_mut();
        let (gradient, residual) = kernels.stage_with(gradient, &mut memory.residual)?;
        for (owner, &count) in passed.entered.iter().enumerate().filter(|(_, count)| **count > 0) {
            let start = Quantizer::shard(elements, owner, ranks).start;
            let (place, bytes) = (start..start + count, quantizer.encoded_len(count));
            let residual = &mut residual[place.clone()];
            let own = owner == messages.rank();
            let sent = if own { messages.sum(owner) } else { messages.contributed(owner) };
            quantizer.add(&sent[..bytes], residual)?;
            work.resize(count, 0.0);
            for other in (0..ranks).filter(|&other| own && other != owner) {
                quantizer.decode(&messages.received(other)[..bytes], 1.0, work)?;
                residual.iter_mut().zip(&*work).for_each(|(kept, other)| *kept -= other);
            }
            let withdrawn = gradient[place].iter().map(|gradient| *scale * gradient);
            residual.iter_mut().zip(withdrawn).for_each(|(kept, gradient)| *kept -= gradient);
        }
        kernels.unstage_vector(&mut self.compressor.memory_mut().residual)
    }
}

/// The rounding key of a step, bucket, rank and phase: a hash by the finalizer of SplitMix64.
fn mix(seed: u32, step: u64, bucket: u32, part: u32) -> u32 {
    let mut word = u64::from(seed) << 32 ^ u64::from(bucket) << 16 ^ u64::from(part);
    word = word.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31) as u32
}
