//! The gain at each density of the ladder, in both ways side by side: as AR-Topk measures it, by training steps from a
//! copy of everything, and as `auto` does, beside the steps of the training.

use thinwire::Synchronizer;
use thinwire::adapt::gain::{LADDER, STEPS, Shadow};
use thinwire::group::SharedGroup;
use thinwire::synchronizer::Options;

use super::Settings;
use super::snapshot::Snapshot;
use super::worker::Worker;
use crate::{Error, Result};

/// The gains at one step of a training.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Explored {
    /// The step.
    pub step: u64,
    /// By ten training steps at each density of the ladder, from the same copy.
    pub by_training: [f64; LADDER.len()],
    /// Beside ten steps of the training.
    pub beside: [f64; LADDER.len()],
}

/// Trains, and at each of these steps measures the gains in both ways. Gives them with the checksum of the weights after
/// the last of `steps`: that is the one of a training in which nothing was measured, for everything is put back.
///
/// ```
/// use thinwire::group::{Local, SharedGroup};
/// use thinwire_train::trainer::{Settings, explore};
///
/// let settings = Settings { model: "mlp:hidden=16".into(), method: "topk".into(), ..Settings::default() };
/// let seen = Local::run(2, |group| explore(SharedGroup::new(group), &settings, &[3], 5).unwrap());
/// assert_eq!(seen[0].1, seen[1].1);
/// assert!(seen[0].0[0].by_training[0] > seen[0].0[0].by_training[4]);
/// ```
pub fn explore(
    group: SharedGroup,
    settings: &Settings,
    at: &[u64],
    steps: u64,
) -> Result<(Vec<Explored>, u32)> {
    settings.check()?;
    let mut worker = Worker::new(settings, group)?;
    if worker.buckets.lengths().len() > 1 {
        return Err(Error::BadSetting {
            name: "--bucket".into(),
            found: format!("{} buckets", worker.buckets.lengths().len()),
            expected: "gains are compared over the whole model; leave it out, with a method such as topk"
                .into(),
        });
    }
    let mut explored = Vec::new();
    for step in 0..steps {
        if at.contains(&step) {
            explored.push(measure(&mut worker, step)?);
        }
        worker.step(step, None)?;
    }
    Ok((explored, super::compare_replicas(&mut worker)?))
}

fn measure(worker: &mut Worker<'_>, step: u64) -> Result<Explored> {
    let snapshot = Snapshot::of(worker)?;
    worker.shadow = Some(Shadow::new(worker.buckets.lengths()));
    take(worker, step, |_| ())?;
    let curve = worker.curve.take().ok_or(Error::Diverged { rank: worker.rank, step, loss: f64::NAN })?;
    worker.shadow = None;
    let mut by_training = [0.0; LADDER.len()];
    for (gain, density) in by_training.iter_mut().zip(LADDER) {
        snapshot.put_back(worker)?;
        // Nothing is kept at first, as in the paper.
        worker.synchronizer = synchronizer(worker, &format!("topk:density={density}"))?;
        take(worker, step, |of_step| *gain += of_step / STEPS as f64)?;
    }
    snapshot.put_back(worker)?;
    worker.synchronizer = synchronizer(worker, &worker.recipe.spec)?;
    worker.synchronizer.restore(snapshot.kept())?;
    Ok(Explored { step, by_training, beside: curve.gains() })
}

/// The steps of an exploration.
fn take(worker: &mut Worker<'_>, first: u64, mut gain: impl FnMut(f64)) -> Result<()> {
    for step in first..first + STEPS as u64 {
        let (record, _) = worker.step(step, None)?;
        gain(record.gain);
    }
    Ok(())
}

fn synchronizer(worker: &Worker<'_>, method: &str) -> Result<Synchronizer> {
    let options = Options { check_replicas_every: worker.settings.check_every, ..Options::default() };
    Ok(Synchronizer::with_options(worker.group.clone(), method, worker.buckets.layout()?, options)?)
}
