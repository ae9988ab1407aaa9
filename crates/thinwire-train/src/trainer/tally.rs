//! What the steps of a run add up to.

use serde::{Deserialize, Serialize};
use thinwire::pipeline::Exchange;

use crate::event::{End, Evaluation, Measure, Run, Step, Times};

/// Sums over steps. A checkpoint holds them, so that a resumed run ends with the figures of the whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Steps taken.
    pub steps: u64,
    /// Steps skipped.
    pub skipped: u64,
    /// Bytes this worker sent.
    pub sent: u64,
    /// Bytes the other workers had sent when a checkpoint was written, in all steps and in those after the warm-up; in
    /// worker 0's tally of a run that goes on from there.
    pub others: [u64; 2],
    /// Bytes a dense ring would have sent.
    pub dense_bytes: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Sums of the times of all steps.
    pub times: Times,
    /// The best measurement so far.
    pub best: Option<f64>,
    /// The steps after the warm-up of the density.
    pub settled: Settled,
}

/// Sums over the steps after the warm-up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    steps: u64,
    sent: u64,
    dense_bytes: u64,
    elements: u64,
    dense_elements: u64,
    asked: u64,
    kept: u64,
    message_bytes: u64,
    value_bytes: u64,
    #[serde(default)]
    dense_layer_bytes: u64,
    #[serde(default)]
    reduced_bytes: u64,
}

impl Tally {
    /// Adds a step; `settled` once the warm-up of the density is over.
    pub fn add(&mut self, step: &mut Step, settled: bool) {
        self.steps += 1;
        self.skipped += step.skipped as u64;
        self.sent += step.sent;
        self.dense_bytes += if step.skipped { 0 } else { step.dense_bytes };
        self.seconds += step.times.total;
        step.elapsed = self.seconds;
        self.times.add(&step.times);
        if settled && !step.skipped {
            let sums = &mut self.settled;
            sums.steps += 1;
            sums.sent += step.sent;
            sums.dense_bytes += step.dense_bytes;
            sums.elements += step.elements as u64;
            sums.dense_elements += step.dense_elements as u64;
            sums.asked += step.asked as u64;
            sums.kept += step.kept as u64;
            sums.message_bytes += step.message_bytes as u64;
            sums.value_bytes += step.value_bytes as u64;
            sums.dense_layer_bytes += step.dense_layer_bytes as u64;
            sums.reduced_bytes += step.reduced_bytes as u64;
        }
    }

    /// The bytes sent, in all steps and in those after the warm-up: what workers send differs, because collectives give
    /// them different parts, and only their mean says what a method costs.
    pub fn sent(&self) -> [u64; 2] {
        [self.sent + self.others[0], self.settled.sent + self.others[1]]
    }

    /// The tally of worker 0 for a checkpoint, when all workers together have sent these bytes.
    pub fn with_others(&self, [sent, settled]: [u64; 2]) -> Tally {
        Tally { others: [sent - self.sent, settled - self.settled.sent], ..self.clone() }
    }

    /// The tally of another worker that goes on from there: what it sent until then is in worker 0's.
    pub fn of_other(&self) -> Tally {
        Tally { others: [0; 2], ..self.with_sent([0; 2]) }
    }

    /// The same tally, as if this worker had sent these bytes.
    pub fn with_sent(&self, [sent, settled]: [u64; 2]) -> Tally {
        let settled = Settled { sent: settled, ..self.settled.clone() };
        Tally { sent, settled, ..self.clone() }
    }

    /// Notes a measurement.
    pub fn measured(&mut self, measure: Measure, value: f64) {
        let better = |best: f64| match measure {
            Measure::Accuracy => value.max(best),
            Measure::Perplexity => value.min(best),
        };
        self.best = Some(self.best.map_or(value, better));
    }

    /// The figures of the run.
    pub fn end(&self, run: &Run, last: &Evaluation, exchange: Exchange, wall: f64, weights: u32) -> End {
        let mean = self.times.over(self.steps.max(1) as f64);
        let settled = &self.settled;
        let compressed = 4.0 * (settled.elements - settled.dense_elements) as f64;
        let workers = run.workers as f64;
        // What the dense layers cost on the wire, inside gathered messages and in sums; the mean over the workers is
        // the same for a ring and a tree.
        let in_sum = 2.0 * (workers - 1.0) / workers;
        let in_message = match exchange {
            Exchange::Gathered => workers - 1.0,
            Exchange::Dense | Exchange::Quantized(_) | Exchange::Agreed(_) | Exchange::Automatic => in_sum,
        };
        let (dense_layers, reduced) = (settled.dense_layer_bytes as f64, settled.reduced_bytes as f64);
        let dense_on_wire = in_message * (dense_layers - reduced) + in_sum * reduced;
        End {
            name: run.name.clone(),
            method: run.method.clone(),
            seed: run.seed,
            measure: run.measure,
            value: last.value,
            best: self.best.unwrap_or(last.value),
            loss: last.loss,
            steps: self.steps,
            skipped: self.skipped,
            sent: self.sent,
            dense_bytes: self.dense_bytes,
            wire_ratio: ratio(self.dense_bytes as f64, self.sent as f64).unwrap_or(1.0),
            wire_ratio_settled: ratio(settled.dense_bytes as f64, settled.sent as f64),
            message_ratio_compressed: ratio(compressed, settled.message_bytes as f64 - dense_layers),
            wire_ratio_compressed: ratio(
                compressed * 2.0 * (workers - 1.0) / workers,
                settled.sent as f64 - dense_on_wire,
            ),
            value_ratio: ratio(compressed, settled.value_bytes as f64 - dense_layers),
            kept_over_asked: ratio(settled.kept as f64, settled.asked as f64),
            times: mean,
            hidden: mean.hidden().unwrap_or(0.0),
            overhead: mean.overhead().unwrap_or(0.0),
            seconds: self.seconds,
            wall,
            weights,
        }
    }
}

fn ratio(above: f64, below: f64) -> Option<f64> {
    (above > 0.0 && below > 0.0).then_some(above / below)
}
