//! One bucket of one rank: its compressor, and what is under way.

use std::time::{Duration, Instant};

use super::assigned::Assigned;
use super::quantized::Quantized;
use super::sums::Halves;
use crate::codec::Quantizer;
use crate::group::{Algorithm, Gathered, Group, Mark};
use crate::kernels::Kernels;
use crate::memory::Progress;
use crate::pipeline::{Aggregator, Compressor, Exchange, InputOn, Recipe, Report};
use crate::{Bucket, Error, Result};

/// What a bucket travels by.
pub(crate) struct Route<'a, K> {
    pub group: &'a mut dyn Group,
    pub kernels: &'a mut K,
    /// The algorithms of sums and of broadcasts and gathers; `None` chooses by size.
    pub algorithms: Option<Algorithms>,
}

/// The algorithms of a bucket's collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Algorithms {
    pub sum: Algorithm,
    pub spread: Algorithm,
}

impl<K> Route<'_, K> {
    /// The algorithm to sum a vector of so many bytes.
    pub fn sum_algorithm(&self, bytes: usize) -> Algorithm {
        self.algorithms.map_or_else(|| Algorithm::for_size(bytes, self.group.size()), |chosen| chosen.sum)
    }

    /// The algorithm to gather or broadcast messages of about so many bytes.
    pub fn spread_algorithm(&self, bytes: usize) -> Algorithm {
        self.algorithms.map_or_else(|| Algorithm::for_size(bytes, self.group.size()), |chosen| chosen.spread)
    }
}

/// What all buckets of a step have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation {
    pub progress: Progress,
    pub plan: u32,
    /// The norm of the whole local gradient, where local clipping needs it.
    pub norm: Option<f64>,
    /// This rank's share in the sum: 1, or more for a rank with more samples than the average.
    pub share: f32,
    /// Whether layers that are sent dense are left out of gathered frames, and summed by [`DenseLayers`].
    ///
    /// [`DenseLayers`]: super::DenseLayers
    pub reduces_dense: bool,
}

/// A bucket on its way.
#[derive(Debug)]
pub(crate) struct Lane<K: Kernels> {
    pub(super) compressor: Compressor<K>,
    /// For exchanges in which everybody sums what all have sent.
    pub(super) aggregator: Option<Aggregator<K>>,
    pub(super) report: Report,
    /// Why this rank could not take part.
    pub(super) refusal: Option<Error>,
    /// The rank whose message said that it does not take part, where it can be told from a message.
    pub(super) absent: Option<usize>,
    /// This rank, once the bucket has travelled.
    pub(super) rank: usize,
    /// The first of the ranks that named the coordinates.
    pub(super) leader: Option<usize>,
    pub(super) way: Way,
    pub(super) times: LaneTimes,
    /// What a controller wants of this bucket; nothing where the method is fixed.
    pub(super) assigned: Assigned,
    /// Words that ride with this bucket to all ranks, and everybody's, rank by rank.
    pub note: Vec<f32>,
    pub notes: Vec<f32>,
    /// What travels; kept for its memory.
    pub(super) frame: Vec<u8>,
    pub(super) gathered: Gathered,
    pub(super) proposals: Vec<Vec<u8>>,
    pub(super) halves: Halves,
    pub(super) means: Vec<f32>,
    pub(super) quantized: Quantized,
}

/// Where the time of a bucket went, until it had travelled.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaneTimes {
    /// Sums under way, waiting for other ranks included.
    pub sum: Duration,
    /// Gathers and broadcasts under way.
    pub spread: Duration,
    /// Everything else: selecting, encoding, checking.
    pub work: Duration,
}

/// What is to be settled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    Nothing,
    /// The mean stands where the gradient stood.
    Dense,
    /// Everybody's frames are here.
    Gathered,
    /// The means of the agreed values are here.
    Agreed,
    /// The quantised sums of all shards are here.
    Quantized,
}

impl<K: Kernels> Lane<K> {
    pub fn new(kernels: &mut K, recipe: Recipe, bucket: Bucket) -> Result<Lane<K>> {
        let aggregator = Self::aggregator_for(kernels, &recipe, &bucket)?;
        Ok(Lane {
            compressor: Compressor::on(kernels, recipe, bucket)?,
            aggregator,
            report: Report::default(),
            refusal: None,
            absent: None,
            rank: 0,
            leader: None,
            way: Way::Nothing,
            times: LaneTimes::default(),
            assigned: Assigned::default(),
            note: Vec::new(),
            notes: Vec::new(),
            frame: Vec::new(),
            gathered: Gathered::default(),
            proposals: Vec::new(),
            halves: Halves::default(),
            means: Vec::new(),
            quantized: Quantized::default(),
        })
    }

    /// What sums up everybody's frames, where the method gathers.
    pub(super) fn aggregator_for(
        kernels: &mut K,
        recipe: &Recipe,
        bucket: &Bucket,
    ) -> Result<Option<Aggregator<K>>> {
        let gathers = recipe.exchange == Exchange::Gathered;
        gathers.then(|| Aggregator::on(kernels, recipe, bucket.clone())).transpose()
    }

    pub fn compressor(&self) -> &Compressor<K> {
        &self.compressor
    }

    pub fn compressor_mut(&mut self) -> &mut Compressor<K> {
        &mut self.compressor
    }

    pub fn into_compressor(self) -> Compressor<K> {
        self.compressor
    }

    /// What the step came to, and where its time went.
    pub fn report(&self) -> (&Report, LaneTimes) {
        (&self.report, self.times)
    }

    /// Why this rank could not take part in the step.
    pub fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    /// The rank that said, by its message, that it does not take part.
    pub fn absent(&self) -> Option<usize> {
        self.absent
    }

    /// The rank that named the coordinates; the first, if several did.
    pub fn leader(&self) -> Option<usize> {
        self.leader
    }

    /// Whether only a [`verdict`](super::verdict) tells that some rank could not take part.
    pub fn needs_verdict(&self) -> bool {
        self.compressor.recipe().exchange == Exchange::Dense
    }

    /// Bytes held beyond gradient, residual and momentum, and beyond the work space of the kernels.
    pub fn workspace_bytes(&self) -> usize {
        let proposals: usize = self.proposals.iter().map(Vec::capacity).sum();
        self.compressor.workspace_bytes()
            + self.aggregator.as_ref().map_or(0, Aggregator::workspace_bytes)
            + self.frame.capacity()
            + self.gathered.bytes()
            + proposals
            + self.halves.bytes()
            + 4 * self.means.capacity()
            + self.quantized.bytes()
    }

    /// A new step begins: nothing of the one before counts any longer, also in buckets that will not travel.
    pub fn begin(&mut self) {
        (self.report, self.refusal, self.absent, self.leader) = (Report::default(), None, None, None);
        (self.way, self.times) = (Way::Nothing, LaneTimes::default());
        self.note.clear();
        self.notes.clear();
    }

    /// First half of a step. False: some rank could not take part, and all of them know; the step has to be
    /// cancelled. An error means that the group is lost.
    pub fn travel(
        &mut self,
        route: &mut Route<'_, K>,
        situation: &Situation,
        gradient: &mut K::Gradient,
        weights: Option<&K::Gradient>,
    ) -> Result<bool> {
        let begun = Instant::now();
        let going = self.travel_timed(route, situation, gradient, weights);
        self.times.work = begun.elapsed().saturating_sub(self.times.sum + self.times.spread);
        going
    }

    fn travel_timed(
        &mut self,
        route: &mut Route<'_, K>,
        situation: &Situation,
        gradient: &mut K::Gradient,
        weights: Option<&K::Gradient>,
    ) -> Result<bool> {
        let &Situation { plan, .. } = situation;
        let progress = self.assigned.progress(situation.progress);
        route.algorithms = self.assigned.algorithms.or(route.algorithms);
        let bucket = self.compressor.bucket().id();
        route.group.mark(Mark { step: progress.step, plan, bucket });
        let exchange = self.compressor.recipe().exchange;
        if exchange == Exchange::Dense {
            return self.travel_dense(route, situation, gradient);
        }
        let ranks = route.group.size();
        // A single rank sends nothing, so nothing is rounded.
        if let (Some(quantizer), 2..) = (self.quantizer(progress)?, ranks) {
            return self.travel_quantized(route, situation, quantizer, gradient);
        }
        let input = InputOn {
            gradient,
            weights,
            progress,
            plan,
            workers: ranks,
            norm: situation.norm,
            scale: situation.share,
        };
        match exchange {
            // Where everything is sent, there are no coordinates to gather or to agree on.
            _ if self.compressor.is_dense(progress) => self.travel_agreed(route, &input, None),
            Exchange::Agreed(leaders) => self.travel_agreed(route, &input, Some(leaders)),
            Exchange::Gathered | Exchange::Dense | Exchange::Quantized(_) | Exchange::Automatic => {
                self.travel_gathered(route, &input, situation.reduces_dense)
            }
        }
    }

    /// The part of the elements that travel at this point of the training: 1 for all of them.
    pub fn density(&self, progress: Progress) -> f64 {
        match self.compressor.recipe().exchange {
            Exchange::Dense | Exchange::Quantized(_) => 1.0,
            _ => self.compressor.density(self.assigned.progress(progress)),
        }
    }

    /// How everything is sent in a few bits at this point of the training, if it is.
    pub(super) fn quantizer(&self, progress: Progress) -> Result<Option<Quantizer>> {
        let recipe = self.compressor.recipe();
        match recipe.exchange {
            // Who asks for all of it wants values as they are, and the residual emptied.
            Exchange::Quantized(quantizer) => Ok(Some(quantizer).filter(|_| progress.density != Some(1.0))),
            _ => recipe.warmup.bits(progress).map(Quantizer::new).transpose(),
        }
    }

    /// Second half: the memory forgets what was sent, and the mean over all ranks takes the gradient's place.
    pub fn settle(
        &mut self,
        kernels: &mut K,
        situation: &Situation,
        size: usize,
        gradient: &mut K::Gradient,
    ) -> Result<()> {
        match std::mem::replace(&mut self.way, Way::Nothing) {
            Way::Nothing | Way::Dense => {}
            Way::Gathered => self.settle_gathered(kernels, situation, 1.0 / size as f32, gradient)?,
            Way::Agreed => self.settle_agreed(kernels, gradient)?,
            Way::Quantized => self.settle_quantized(kernels, size, gradient)?,
        }
        self.end_flush(kernels)
    }

    /// Takes a step back that did not happen. What stands in `gradient` of a dense exchange is not restored.
    pub fn cancel(&mut self, kernels: &mut K, situation: &Situation, gradient: &K::Gradient) -> Result<()> {
        let way = std::mem::replace(&mut self.way, Way::Nothing);
        let began = matches!(way, Way::Gathered | Way::Agreed);
        if way == Way::Quantized {
            return self.cancel_quantized(kernels, gradient);
        }
        if began && K::elements(gradient) == self.compressor.bucket().len() {
            let input =
                InputOn { progress: situation.progress, scale: situation.share, ..InputOn::new(gradient) };
            self.compressor.cancel(kernels, &input)?;
        }
        Ok(())
    }

    /// This rank can't take part in the step, and the others are told why. But a device that has failed holds nothing
    /// to go on with: then the group is lost.
    pub(super) fn refuse(&mut self, error: Error) -> Result<()> {
        if matches!(error, Error::Device { .. }) {
            return Err(error);
        }
        self.refusal.get_or_insert(error);
        Ok(())
    }

    /// Runs a sum, and counts its time.
    pub(super) fn timed_sum<T>(&mut self, work: impl FnOnce(&mut Lane<K>) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let result = work(self);
        self.times.sum += begun.elapsed();
        result
    }

    /// Runs a gather or a broadcast, and counts its time.
    pub(super) fn timed_spread<T>(&mut self, work: impl FnOnce(&mut Lane<K>) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let result = work(self);
        self.times.spread += begun.elapsed();
        result
    }

    /// Bytes no message of this bucket can exceed: an index and a value of four bytes for each element, twice
    /// that for the bins of a transform, and a header for each section.
    pub(super) fn message_limit(&self) -> usize {
        let bucket = self.compressor.bucket();
        4096 + 64 * bucket.layers().len() + 16 * bucket.len()
    }
}
