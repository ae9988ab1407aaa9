//! Measuring the test set, every worker a part of it.

use thinwire::group::{Algorithm, Gathered, Group, SharedGroup, Sum};

use super::worker::Worker;
use crate::Result;
use crate::data::shard::test_share;
use crate::data::{Batch, Kind};
use crate::event::Measure;
use crate::model::{Segment, pass};

/// Samples of one pass; the result does not depend on it.
const BATCH: usize = 100;

/// What a test set came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    /// Mean loss over the targets.
    pub loss: f64,
    /// Accuracy or perplexity.
    pub value: f64,
}

/// What the samples of this kind are measured by.
pub(super) fn measure_of(kind: Kind) -> Measure {
    match kind {
        Kind::Images { .. } => Measure::Accuracy,
        Kind::Text { .. } => Measure::Perplexity,
    }
}

/// Measures the test set; the same on all workers, bit for bit.
pub(super) fn evaluate(worker: &mut Worker<'_>) -> Result<Measured> {
    let Worker { group, segments, device, data, rank, workers, .. } = worker;
    let measuring = segments
        .iter_mut()
        .map(|segment| with_mean_statistics(group, segment.as_mut()))
        .collect::<Result<Vec<_>>>()?;
    let share: Vec<usize> = test_share(*rank, *workers, data.test.len()).collect();
    let (mut loss, mut right, mut targets) = (0.0, 0, 0);
    let mut batch = Batch::default();
    for samples in share.chunks(BATCH) {
        data.test.batch(samples, None, &mut batch);
        let (input, wanted) = pass::input(&batch, data.kind, device);
        let (batch_loss, batch_right) = pass::evaluate(&measuring, input, wanted);
        loss += batch_loss;
        right += batch_right;
        targets += batch.targets.len();
    }
    let mine: Vec<u8> = [loss, right as f64, targets as f64].iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut gathered = Gathered::default();
    group.all_gather(&mine, mine.len(), Algorithm::Tree, &mut gathered)?;
    let mut sums = [0.0; 3];
    for theirs in gathered.iter() {
        let (numbers, _) = theirs.as_chunks();
        sums.iter_mut().zip(numbers).for_each(|(sum, bytes)| *sum += f64::from_le_bytes(*bytes));
    }
    let [loss, right, targets] = sums;
    let loss = loss / targets;
    let value = match measure_of(data.kind) {
        Measure::Accuracy => right / targets,
        Measure::Perplexity => loss.exp(),
    };
    Ok(Measured { loss, value })
}

/// A segment for measuring. Running statistics are measured by each worker on its own samples; what is measured with
/// is their mean, and the worker's own stay as they are.
fn with_mean_statistics(group: &mut SharedGroup, segment: &mut dyn Segment) -> Result<Box<dyn Segment>> {
    let mut own = Vec::new();
    segment.read_statistics(&mut own);
    if own.is_empty() {
        return Ok(segment.measuring());
    }
    let mut mean = own.clone();
    let how = Algorithm::for_size(4 * mean.len(), group.size());
    group.all_reduce(Sum::F32(&mut mean), how)?;
    let factor = 1.0 / group.size() as f32;
    mean.iter_mut().for_each(|sum| *sum *= factor);
    segment.write_statistics(&mean);
    let measuring = segment.measuring();
    segment.write_statistics(&own);
    Ok(measuring)
}
