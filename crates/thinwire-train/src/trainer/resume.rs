//! Going on from a checkpoint.

use thinwire::group::{Algorithm, Gathered, Group};

use super::tally::Tally;
use super::worker::Worker;
use crate::checkpoint::{self, Position, Statistic};
use crate::{Error, Result};

/// Puts the worker where the checkpoint of the settings says, if there is one: what was added up until then, and the
/// step that comes next.
pub(super) fn resume(worker: &mut Worker<'_>) -> Result<(Tally, u64)> {
    let Some(dir) = &worker.settings.resume else { return Ok((Tally::default(), 0)) };
    let checkpoint = checkpoint::read(dir)?;
    checkpoint.check_settings(&worker.settings.identity(worker.workers))?;
    if checkpoint.buckets() != worker.buckets.layers() {
        return Err(Error::BadFile {
            path: checkpoint.folder().display().to_string(),
            place: "buckets".into(),
            found: "other layers than the model has".into(),
            expected: "a checkpoint of this version of the program".into(),
        });
    }
    let (state, statistics) = checkpoint.worker(worker.rank)?;
    let Position { step, tally } = checkpoint.position().clone();
    let first = agree_on_step(worker, step)?;
    worker.synchronizer.restore(&state)?;
    worker.weights.clone_from(&checkpoint.weights);
    worker.buckets.write(&worker.weights, &mut worker.segments);
    checkpoint.restore(worker.optimizer.as_mut())?;
    write_statistics(worker, &statistics, &checkpoint.folder().display().to_string())?;
    Ok((if worker.rank == 0 { tally } else { tally.of_other() }, first))
}

/// All workers go on from the same step, or none does.
fn agree_on_step(worker: &mut Worker<'_>, step: u64) -> Result<u64> {
    let mut gathered = Gathered::default();
    worker.group.all_gather(&step.to_le_bytes(), 8, Algorithm::Tree, &mut gathered)?;
    let steps = gathered.iter().map(|bytes| bytes.try_into().map_or(u64::MAX, u64::from_le_bytes));
    match steps.enumerate().find(|(_, other)| *other != step) {
        None => Ok(step),
        Some((rank, other)) => Err(Error::BadSetting {
            name: "--resume".into(),
            found: format!("the checkpoint of step {step}"),
            expected: format!(
                "worker {rank} found the one of step {other}; give all workers the same folder"
            ),
        }),
    }
}

pub(super) fn write_statistics(worker: &mut Worker<'_>, saved: &[Statistic], path: &str) -> Result<()> {
    let mut saved = saved.iter();
    for segment in &mut worker.segments {
        let mut flat = Vec::new();
        for (name, shape) in segment.statistics() {
            let found = saved.next().filter(|one| one.name == name && one.shape == shape);
            let found = found.ok_or_else(|| Error::BadFile {
                path: path.to_owned(),
                place: name.clone(),
                found: "no such running statistic".into(),
                expected: format!("one of shape {shape:?}"),
            })?;
            flat.extend_from_slice(&found.values);
        }
        if !flat.is_empty() {
            segment.write_statistics(&flat);
        }
    }
    Ok(())
}

pub(super) fn read_statistics(worker: &Worker<'_>) -> Vec<Statistic> {
    let mut all = Vec::new();
    for segment in &worker.segments {
        let mut flat = Vec::new();
        segment.read_statistics(&mut flat);
        let mut rest = flat.as_slice();
        for (name, shape) in segment.statistics() {
            let (values, after) = rest.split_at(shape.iter().product());
            all.push(Statistic { name, shape, values: values.to_vec() });
            rest = after;
        }
    }
    all
}
