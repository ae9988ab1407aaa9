//! The training loop: several workers, each on its own part of the data, one model.

mod buckets;
mod evaluate;
mod explore;
mod probe;
mod resume;
mod saving;
mod settings;
mod snapshot;
mod tally;
mod worker;

use std::time::Instant;

use burn::tensor::Device;
use thinwire::group::{Algorithm, Gathered, Group, SharedGroup};
use thinwire::memory::Progress;

pub use explore::{Explored, explore};
pub use settings::Settings;
pub use tally::{Settled, Tally};

use crate::data::shard::Epochs;
use crate::event::{End, Evaluation, Event, Run};
use crate::{Error, Result, checkpoint, data, model, optimizer};
use evaluate::{evaluate, measure_of};
use probe::Probe;
use saving::Saving;
use worker::Worker;

/// After so many skipped steps in a row a training is given up.
const MOST_SKIPPED: u64 = 20;

/// Trains as one of the workers of `group`, and gives the figures of the run as this worker saw them. `observe` is
/// told what happens, as it happens; what the gradients look like is told on worker 0 only. An error of `observe` ends the
/// training.
///
/// # Errors
/// [`Error::NotSaved`] on all workers, after the event [`End`](Event::End), if the last checkpoint could not be written;
/// one that can't be written before is a [`Note`](Event::Note), and the training goes on.
///
/// ```
/// use thinwire::group::{Local, SharedGroup};
/// use thinwire_train::trainer::{Settings, train};
///
/// let settings = Settings { model: "mlp:hidden=32".into(), epochs: 2.0, ..Settings::default() };
/// let ends = Local::run(2, |group| {
///     train(SharedGroup::new(group), &settings, &mut |_event| Ok(())).unwrap()
/// });
/// assert_eq!(ends[0].weights, ends[1].weights); // the same bits on both
/// assert!(ends[0].value > 0.5 && ends[0].wire_ratio > 10.0);
/// ```
pub fn train(
    group: SharedGroup,
    settings: &Settings,
    observe: &mut (dyn FnMut(&Event) -> Result<()> + Send),
) -> Result<End> {
    settings.check()?;
    // A pool of its own, so that workers that are threads of one process do not share one.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build().map_err(|error| {
        Error::BadSetting {
            name: "--threads".into(),
            found: settings.threads.to_string(),
            expected: format!("the system refused to start them: {error}"),
        }
    })?;
    let mut tell_others = group.clone();
    let outcome = pool.install(|| run(group, settings, observe));
    match &outcome {
        // Known to all workers, of whom some may still be in the last collective.
        Ok(_) | Err(Error::NotSaved { .. }) => {}
        Err(error) => tell_others.abandon(&error.to_string()),
    }
    outcome
}

/// Whether so many workers could train with these settings, as far as one can tell without training: names,
/// parameters, the data set, the checkpoint.
pub fn check(settings: &Settings, workers: usize) -> Result<()> {
    settings.check()?;
    let data = data::open(&settings.data)?;
    let epochs = Epochs::new(data.train.len(), workers, settings.batch, settings.seed)?;
    model::build(&settings.model, data.kind, settings.seed, &Device::flex().autodiff())?;
    settings.with_momentum_moved()?;
    optimizer::build(&settings.optimizer, optimizer::Layout::default())?;
    if let Some(dir) = &settings.resume {
        let checkpoint = checkpoint::read(dir)?;
        checkpoint.check_settings(&settings.identity(workers))?;
        check_length(settings, checkpoint.position().step, settings.steps(&epochs))?;
    }
    Ok(())
}

/// A run can't be made shorter than it is.
fn check_length(settings: &Settings, done: u64, steps: u64) -> Result<()> {
    if done <= steps {
        return Ok(());
    }
    Err(Error::BadSetting {
        name: "--epochs".into(),
        found: format!("{} ({steps} steps)", settings.epochs),
        expected: format!("the checkpoint is of step {done}; give at least as many epochs"),
    })
}

fn run(
    group: SharedGroup,
    settings: &Settings,
    observe: &mut (dyn FnMut(&Event) -> Result<()> + Send),
) -> Result<End> {
    let begun = Instant::now();
    let mut saving = Saving::start(settings, group.rank())?;
    let mut worker = Worker::new(settings, group)?;
    let mut speak = |event: Event| observe(&event);
    let per_epoch = worker.epochs.steps_per_epoch();
    let steps = settings.steps(&worker.epochs);
    let (mut tally, first) = resume::resume(&mut worker)?;
    check_length(settings, first, steps)?;
    let about = about(&worker, steps, first);
    speak(Event::Run(Box::new(about.clone())))?;
    if worker.momentum_moved {
        let text = format!(
            "momentum correction: the momentum lives in the memory of {}, and the optimiser ({}) has none",
            worker.recipe.spec, settings.optimizer
        );
        speak(Event::Note { step: first, text })?;
    }

    let mut probe = Probe::new(&worker.recipe);
    let mut skipped_in_a_row = 0;
    let mut last = None;
    for step in first..steps {
        let looks = is_probed(step, steps, settings.probes).then_some(&mut probe);
        let (mut record, events) = worker.step(step, looks)?;
        let progress = Progress { step, epoch: record.epoch, density: None, total_steps: Some(steps) };
        let warm = worker.recipe.warmup.density(worker.recipe.density, progress);
        tally.add(&mut record, warm <= worker.recipe.density);
        events.into_iter().try_for_each(&mut speak)?;
        speak(Event::Step(record))?;
        skipped_in_a_row = if record.skipped { skipped_in_a_row + 1 } else { 0 };
        if skipped_in_a_row == MOST_SKIPPED {
            return Err(Error::Diverged { rank: worker.rank, step, loss: record.loss });
        }
        let done = step + 1;
        last = None;
        if is_due(done, steps, settings.evaluate_every, per_epoch) {
            let measured = evaluate(&mut worker)?;
            tally.measured(about.measure, measured.value);
            let evaluation = Evaluation {
                step: done,
                epoch: worker.epoch(done),
                loss: measured.loss,
                value: measured.value,
                elapsed: tally.seconds,
                sent: tally.sent,
            };
            speak(Event::Evaluation(evaluation))?;
            last = Some(evaluation);
        }
        if let Some(saving) = &mut saving
            && is_due(done, steps, settings.save_every, per_epoch)
            && let Some(text) = saving.save(&mut worker, done, &tally)?
        {
            speak(Event::Note { step: done, text })?;
        }
    }
    let last = match last {
        Some(evaluation) => evaluation,
        // The checkpoint was one of a run that had ended.
        None => {
            let measured = evaluate(&mut worker)?;
            Evaluation { step: steps, loss: measured.loss, value: measured.value, ..Evaluation::default() }
        }
    };
    if !last.loss.is_finite() {
        return Err(Error::Diverged { rank: worker.rank, step: steps, loss: last.loss });
    }
    let weights = compare_replicas(&mut worker)?;
    let sent = sum_over_workers(&mut worker, tally.sent())?.map(|sum| sum / worker.workers as u64);
    let end = tally.with_sent(sent).end(
        &about,
        &last,
        worker.recipe.exchange,
        begun.elapsed().as_secs_f64(),
        weights,
    );
    speak(Event::End(Box::new(end.clone())))?;
    saving.map_or(Ok(()), Saving::end)?;
    Ok(end)
}

/// Whether something that happens every so many epochs is due after `done` of `steps` steps; at the end it is.
fn is_due(done: u64, steps: u64, every: f64, per_epoch: u64) -> bool {
    let interval = ((every * per_epoch as f64).round() as u64).max(1);
    done == steps || done.is_multiple_of(interval)
}

/// Whether the gradients of a step are looked at: `probes` times, evenly from the first step to the last.
fn is_probed(step: u64, steps: u64, probes: usize) -> bool {
    match probes.min(steps as usize) as u64 {
        0 => false,
        1 => step + 1 == steps,
        probes => {
            // The first probe that does not lie before this step.
            let number = (step * (probes - 1)).div_ceil(steps - 1);
            number * (steps - 1) / (probes - 1) == step
        }
    }
}

fn about(worker: &Worker<'_>, steps: u64, resumed_at: u64) -> Run {
    let settings = worker.settings;
    let name = if settings.name.is_empty() { &settings.method } else { &settings.name };
    Run {
        version: env!("CARGO_PKG_VERSION").into(),
        name: name.clone(),
        method: worker.recipe.spec.clone(),
        model: settings.model.clone(),
        data: worker.data.spec.clone(),
        optimizer: settings.optimizer.clone(),
        schedule: settings.lr.schedule.to_string(),
        lr: settings.lr.base,
        workers: worker.workers,
        batch: settings.batch,
        epochs: settings.epochs,
        steps_per_epoch: worker.epochs.steps_per_epoch(),
        steps,
        seed: settings.seed,
        group: settings.group.clone(),
        link: settings.link.clone(),
        threads: settings.threads,
        samples: (worker.data.train.len(), worker.data.test.len()),
        measure: measure_of(worker.data.kind),
        buckets: worker.buckets.layers().to_vec(),
        parameters: worker.buckets.lengths().iter().sum(),
        resumed_at,
        density: worker.recipe.density,
        settings: settings.kind(worker.workers),
    }
}

/// The sums of these numbers over all workers.
fn sum_over_workers(worker: &mut Worker<'_>, mine: [u64; 2]) -> Result<[u64; 2]> {
    let bytes: Vec<u8> = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut gathered = Gathered::default();
    worker.group.all_gather(&bytes, bytes.len(), Algorithm::Tree, &mut gathered)?;
    let mut sums = [0; 2];
    for theirs in gathered.iter() {
        let (numbers, _) = theirs.as_chunks();
        sums.iter_mut().zip(numbers).for_each(|(sum, bytes)| *sum += u64::from_le_bytes(*bytes));
    }
    Ok(sums)
}

/// The checksum of the weights; an error if some worker has another.
fn compare_replicas(worker: &mut Worker<'_>) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    for weight in worker.weights.iter().flatten() {
        hasher.update(&weight.to_le_bytes());
    }
    let mine = hasher.finalize();
    let mut gathered = Gathered::default();
    worker.group.all_gather(&mine.to_le_bytes(), 4, Algorithm::Tree, &mut gathered)?;
    match gathered.iter().position(|theirs| theirs != mine.to_le_bytes()) {
        None => Ok(mine),
        Some(other) => Err(Error::ReplicasDiffer { rank: worker.rank, other }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_spread_over_the_run() {
        let probed =
            |steps, probes| (0..steps).filter(|step| is_probed(*step, steps, probes)).collect::<Vec<_>>();
        assert!(probed(10, 0).is_empty());
        assert_eq!(probed(10, 1), [9]);
        assert_eq!(probed(10, 4), [0, 3, 6, 9]);
        assert_eq!(probed(2, 4), [0, 1]);
        assert_eq!(probed(1, 4), [0]);
        assert_eq!(probed(5, usize::MAX), [0, 1, 2, 3, 4]);
        assert_eq!(probed(1000, 7).len(), 7);
    }

    #[test]
    fn what_is_due_is_due_at_the_end_too() {
        let due = |every| (1..=25).filter(|done| is_due(*done, 25, every, 10)).collect::<Vec<u64>>();
        assert_eq!(due(1.0), [10, 20, 25]);
        assert_eq!(due(0.5), [5, 10, 15, 20, 25]);
        assert_eq!(due(100.0), [25]);
        assert_eq!(due(1e-9).len(), 25);
    }
}
