//! What happens in a run, as a stream of typed events: one JSON object a line in `metrics.jsonl`.
//!
//! The progress bar, the summary and the report all read this stream; nothing else is kept of a run. Times are in
//! seconds, sizes in bytes. Everything is seen from worker 0 unless it says otherwise.

mod file;

use serde::{Deserialize, Serialize};

use thinwire::adapt::decision::Decision;

pub(crate) use file::read_record;
pub use file::{EventWriter, read, set_aside};

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// What is trained, and how: the first line.
    Run(Box<Run>),
    /// One step.
    Step(Step),
    /// The test set was measured.
    Evaluation(Evaluation),
    /// The distribution of the gradient at some step.
    Distribution(Distribution),
    /// How full a sparse ring without agreed coordinates would have become at some step.
    FillIn(FillIn),
    /// How well each method would have reproduced the gradient of some step.
    Reconstruction(Reconstruction),
    /// An automatic method decided how gradients travel from now on.
    Decision(Box<Decision>),
    /// Something the user should know: a setting that was changed, a step that was skipped.
    Note {
        /// The step it belongs to.
        step: u64,
        /// A sentence.
        text: String,
    },
    /// What the run came to: the last line of a run that ended well.
    End(Box<End>),
}

/// What is trained, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of the program.
    pub version: String,
    /// A short name for tables and legends; the method, unless the user gave another.
    pub name: String,
    /// The method with the parameters that differ from their defaults.
    pub method: String,
    /// The model, in the same way.
    pub model: String,
    /// The data set.
    pub data: String,
    /// The optimiser.
    pub optimizer: String,
    /// The learning-rate schedule.
    pub schedule: String,
    /// The learning rate.
    pub lr: f64,
    /// How many workers.
    pub workers: usize,
    /// Samples in the batch of one worker.
    pub batch: usize,
    /// Epochs.
    pub epochs: f64,
    /// Steps of one epoch.
    pub steps_per_epoch: u64,
    /// Steps in all.
    pub steps: u64,
    /// The seed.
    pub seed: u64,
    /// What connects the workers: `tcp`, `local` or `mpi`.
    pub group: String,
    /// The link that was imitated, such as `100mbit,1ms`.
    pub link: Option<String>,
    /// Threads of one worker.
    pub threads: usize,
    /// Training and test samples.
    pub samples: (usize, usize),
    /// What the model is measured by.
    pub measure: Measure,
    /// The buckets in the order in which they travel: names and sizes of their layers.
    pub buckets: Vec<Vec<(String, Vec<usize>)>>,
    /// Weights in all.
    pub parameters: usize,
    /// The step it was resumed at; 0 for a new run.
    pub resumed_at: u64,
    /// The part of each gradient the method is asked to send once its warm-up is over; 1 for dense.
    pub density: f64,
    /// Everything but the seed that a run must have in common with another to end with the same bits, by the names of
    /// the options.
    #[serde(default)]
    pub settings: std::collections::BTreeMap<String, String>,
}

/// What a model is measured by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The part of the test samples it gets right; more is better.
    #[default]
    Accuracy,
    /// `exp` of the mean loss over a token; less is better.
    Perplexity,
}

/// One step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its number, from 0.
    pub step: u64,
    /// Epochs done before it.
    pub epoch: f64,
    /// Loss of worker 0 on its batch.
    #[serde(deserialize_with = "number::one")]
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Elements of the gradient.
    pub elements: usize,
    /// Of these, in layers the method sends dense.
    pub dense_elements: usize,
    /// Coordinates the method was asked to send from the other layers.
    pub asked: usize,
    /// Coordinates that were sent: the achieved k.
    pub kept: usize,
    /// Bytes of worker 0's own message: the frame with what is reduced beside it, or the agreed values with the
    /// coordinates.
    pub message_bytes: usize,
    /// Of these, the values of compressed layers and of dense ones.
    pub value_bytes: usize,
    /// Of these, the values of dense layers.
    #[serde(default)]
    pub dense_layer_bytes: usize,
    /// Of these, the bytes that an all-reduce sums beside the message.
    #[serde(default)]
    pub reduced_bytes: usize,
    /// Bytes worker 0 sent, everything counted, for this step.
    pub sent: u64,
    /// Bytes it received.
    pub received: u64,
    /// Bytes a dense ring all-reduce would have sent.
    pub dense_bytes: u64,
    /// Share of the accumulated gradient's energy that was sent.
    #[serde(deserialize_with = "number::one")]
    pub gain: f64,
    /// The rank that named the coordinates; the first, if there were several.
    pub leader: Option<usize>,
    /// Where the time went.
    pub times: Times,
    /// Seconds of training so far, this step included; evaluations, probes and checkpoints are not.
    pub elapsed: f64,
    /// Whether the step was skipped because some worker could not take part.
    pub skipped: bool,
}

/// Where the time of a step went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The whole step.
    pub total: f64,
    /// Making the batch.
    pub data: f64,
    /// Forward pass and loss.
    pub forward: f64,
    /// Backward pass.
    pub backward: f64,
    /// Copying gradients out of the model and weights into it.
    pub copy: f64,
    /// Handing gradients over, and waiting after the backward pass for the exchange to end: the part that was not
    /// hidden.
    pub wait: f64,
    /// The optimiser.
    pub optimizer: f64,
    /// Accumulating and selecting; runs beside the backward pass.
    pub select: f64,
    /// Encoding; runs beside the backward pass.
    pub encode: f64,
    /// Bytes under way, other workers' lateness included; runs beside the backward pass.
    pub exchange: f64,
    /// Decoding and summing; runs beside the backward pass or after it.
    pub settle: f64,
    /// Probing, measuring gains and deciding, with an automatic method.
    pub adapt: f64,
    /// The synchronizer's time from its first bucket to its last result.
    pub synchronizer: f64,
}

impl Times {
    /// Adds the times of another step, but for what is not a number.
    pub(crate) fn add(&mut self, other: &Times) {
        self.each(other, |own, other| *own += if other.is_finite() { other } else { 0.0 });
    }

    /// The mean of `count` steps whose sum this is.
    pub(crate) fn over(&self, count: f64) -> Times {
        let mut mean = Times::default();
        mean.each(self, |mean, sum| *mean = sum / count);
        mean
    }

    fn each(&mut self, other: &Times, change: impl Fn(&mut f64, f64)) {
        change(&mut self.total, other.total);
        change(&mut self.data, other.data);
        change(&mut self.forward, other.forward);
        change(&mut self.backward, other.backward);
        change(&mut self.copy, other.copy);
        change(&mut self.wait, other.wait);
        change(&mut self.optimizer, other.optimizer);
        change(&mut self.select, other.select);
        change(&mut self.encode, other.encode);
        change(&mut self.exchange, other.exchange);
        change(&mut self.settle, other.settle);
        change(&mut self.adapt, other.adapt);
        change(&mut self.synchronizer, other.synchronizer);
    }

    /// The part of the exchange, with selecting, encoding and summing, that lay beside the backward pass, from 0 to 1;
    /// `None` where there was none.
    pub fn hidden(&self) -> Option<f64> {
        let all = self.select + self.encode + self.exchange + self.settle;
        (all > 0.0).then(|| (1.0 - self.wait / all).clamp(0.0, 1.0))
    }

    /// The part of the step that is neither forward, backward, optimiser nor bytes under way: making batches, copying,
    /// selecting, encoding and summing that was not hidden, and what threads need to wake each other.
    pub fn overhead(&self) -> Option<f64> {
        let work = self.forward + self.backward + self.optimizer + self.wait.min(self.exchange);
        (self.total > 0.0).then(|| 1.0 - work / self.total)
    }
}

/// The test set was measured, by all workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: f64,
    /// Mean loss over the test samples.
    #[serde(deserialize_with = "number::one")]
    pub loss: f64,
    /// Accuracy from 0 to 1, or perplexity.
    #[serde(deserialize_with = "number::one")]
    pub value: f64,
    /// Seconds of training so far; evaluations, probes and checkpoints are not in it.
    pub elapsed: f64,
    /// Bytes worker 0 has sent in the steps so far.
    pub sent: u64,
}

/// The distribution of worker 0's accumulated gradient (gradient plus residual), all layers together (paper 4).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The step.
    pub step: u64,
    /// Mean.
    #[serde(deserialize_with = "number::one")]
    pub mean: f64,
    /// Standard deviation.
    #[serde(deserialize_with = "number::one")]
    pub deviation: f64,
    /// Lower edge of the first bin and upper edge of the last, in standard deviations from the mean; what lies
    /// beyond is counted in the outermost bins.
    pub range: (f64, f64),
    /// Elements in each bin.
    pub counts: Vec<u64>,
    /// The bound of paper 4, `(1 - k/d)^2`, and what the top-k of this gradient leaves of its energy.
    #[serde(deserialize_with = "number::one")]
    pub bound: f64,
    /// What the exact top-k leaves.
    #[serde(deserialize_with = "number::one")]
    pub left: f64,
}

/// The density of a partial sum on its way around a ring, if every worker added its own coordinates (paper 1).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FillIn {
    /// The step.
    pub step: u64,
    /// The density after 1, 2, … workers have added theirs.
    pub unagreed: Vec<f64>,
    /// The same if the workers' choices were independent: `1 - (1 - density)^workers`.
    pub independent: Vec<f64>,
    /// The density that did travel with the method of the run.
    pub sent: f64,
}

/// How well each method reproduces one gradient, without memory (paper 3).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reconstruction {
    /// The step.
    pub step: u64,
    /// For each method.
    pub methods: Vec<Reconstructed>,
}

/// What one method made of the gradient.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reconstructed {
    /// The method with its parameters.
    pub method: String,
    /// `|g - g'| / |g|`.
    #[serde(deserialize_with = "number::one")]
    pub error: f64,
    /// Dense bytes over the bytes of its message.
    #[serde(deserialize_with = "number::one")]
    pub ratio: f64,
    /// Of the absolute errors of single elements, relative to the root mean square of the gradient: the values
    /// below which 1 %, 10 %, 25 %, 50 %, 75 %, 90 % and 99 % lie.
    #[serde(deserialize_with = "number::many")]
    pub quantiles: Vec<f64>,
}

/// The percentages of [`Reconstructed::quantiles`].
pub const QUANTILES: [f64; 7] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0];

/// What a run came to. Also written to `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The short name of the run.
    pub name: String,
    /// The method.
    pub method: String,
    /// The seed.
    pub seed: u64,
    /// What `value` is.
    pub measure: Measure,
    /// Accuracy or perplexity at the end.
    #[serde(deserialize_with = "number::one")]
    pub value: f64,
    /// The best seen.
    #[serde(deserialize_with = "number::one")]
    pub best: f64,
    /// Test loss at the end.
    #[serde(deserialize_with = "number::one")]
    pub loss: f64,
    /// Steps done.
    pub steps: u64,
    /// Steps skipped.
    pub skipped: u64,
    /// Bytes a worker sent in all steps: the mean over the workers.
    pub sent: u64,
    /// Bytes a dense ring would have sent.
    pub dense_bytes: u64,
    /// `dense_bytes / sent`: every byte on the wire counts.
    #[serde(deserialize_with = "number::one")]
    pub wire_ratio: f64,
    /// The same for the steps after the warm-up of the density; `None` if there were none.
    pub wire_ratio_settled: Option<f64>,
    /// Dense bytes of the compressed layers over the bytes of the messages for them, after the warm-up: each
    /// worker's own message, before a collective passes it on.
    pub message_ratio_compressed: Option<f64>,
    /// The same, counting what a dense ring and this method send for these layers.
    pub wire_ratio_compressed: Option<f64>,
    /// Dense bytes over the bytes of values alone, after the warm-up.
    pub value_ratio: Option<f64>,
    /// Mean of the achieved over the asked k, after the warm-up; `None` where nothing was asked.
    pub kept_over_asked: Option<f64>,
    /// Mean times of a step.
    pub times: Times,
    /// [`Times::hidden`] of the mean step.
    #[serde(deserialize_with = "number::one")]
    pub hidden: f64,
    /// [`Times::overhead`] of the mean step.
    #[serde(deserialize_with = "number::one")]
    pub overhead: f64,
    /// Seconds of training; evaluations, probes and checkpoints are not in it.
    pub seconds: f64,
    /// Seconds from start to end.
    pub wall: f64,
    /// CRC-32 of the weights at the end, the same on all workers.
    pub weights: u32,
}

/// JSON has no way to write NaN or infinity: they become `null`, and are read as NaN.
mod number {
    use serde::{Deserialize, Deserializer};

    pub(super) fn one<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
    }

    pub(super) fn many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let numbers: Vec<Option<f64>> = Vec::deserialize(from)?;
        Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
    }
}
