//! Runs steps: on the calling thread, or bucket by bucket in the background.

use super::engine::{Begun, Engine, Vectors};
use super::report::StepReport;
use super::{Ready, Shared};
use crate::kernels::Kernels;
use crate::{Error, Result};

/// One step whose buckets are all at hand.
pub(super) fn run<K: Kernels>(engine: &mut Engine<K>, buckets: &mut [Vectors<'_, K>]) -> Result<StepReport> {
    let measured = look_first(engine, buckets);
    let norm = measured.inspect_err(|error| lose_unless_skipped(engine, error))?;
    let mut begun = engine.begin(norm).inspect_err(|error| lose_unless_skipped(engine, error))?;
    for bucket in 0..buckets.len() {
        let (gradient, weights) = &mut buckets[bucket];
        let travelled = engine.travel(&mut begun, bucket, (gradient, *weights));
        travelled.inspect_err(|error| engine.give_up(&begun, error, buckets))?;
    }
    finish(engine, begun, buckets)
}

/// What must be known of all buckets before the first may travel: the norm, if the method needs it.
fn look_first<K: Kernels>(engine: &mut Engine<K>, buckets: &[Vectors<'_, K>]) -> Result<Option<f64>> {
    if !engine.needs_all() {
        return Ok(None);
    }
    buckets.iter().try_for_each(|bucket| engine.arrive(bucket))?;
    engine.check_first(buckets.iter().map(|(gradient, _)| &**gradient))?;
    match engine.needs_norm() {
        true => engine.norm(buckets.iter().map(|(gradient, _)| &**gradient)),
        false => Ok(None),
    }
}

/// Ends a step; the group is lost unless all ranks have skipped it together, or only found their replicas to
/// differ.
fn finish<K: Kernels>(
    engine: &mut Engine<K>,
    begun: Begun,
    buckets: &mut [Vectors<'_, K>],
) -> Result<StepReport> {
    let finished = engine.finish(begun, buckets);
    finished.inspect_err(|error| lose_unless_skipped(engine, error))
}

fn lose_unless_skipped<K: Kernels>(engine: &mut Engine<K>, error: &Error) {
    if !matches!(error, Error::Skipped { .. } | Error::ReplicasDiffer { .. }) {
        engine.group.abandon(&error.to_string());
    }
}

/// The background thread: takes buckets in order and exchanges them, step after step.
pub(super) fn work<Buffer, K>(shared: &Shared<Buffer, K>)
where
    Buffer: AsRef<K::Gradient> + AsMut<K::Gradient>,
    K: Kernels,
{
    /// However the thread ends, nobody waits for it any longer.
    struct CloseOnDrop<'a, Buffer, K: Kernels>(&'a Shared<Buffer, K>);
    impl<Buffer, K: Kernels> Drop for CloseOnDrop<'_, Buffer, K> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.engine().group.abandon("the thread that exchanges the buckets panicked");
            }
            self.0.queue.close();
        }
    }
    /// However a step ends, whoever waits for that is told.
    struct TellOnDrop<'a, Buffer, K: Kernels>(&'a Shared<Buffer, K>);
    impl<Buffer, K: Kernels> Drop for TellOnDrop<'_, Buffer, K> {
        fn drop(&mut self) {
            let tell = self.0.on_step_end().clone();
            if let Some(tell) = tell {
                tell();
            }
        }
    }
    let _close = CloseOnDrop(shared);
    let count = shared.engine().buckets();
    while let Some(first) = shared.queue.take() {
        let _tell = TellOnDrop(shared);
        let mut ready = vec![first];
        let outcome = work_step(shared, &mut ready, count);
        let Some(outcome) = outcome else { return };
        shared.queue.finish((ready, outcome));
    }
}

/// One step of the background thread; `None` when the queue is closed in the midst of it.
fn work_step<Buffer, K>(
    shared: &Shared<Buffer, K>,
    ready: &mut Vec<Ready<Buffer>>,
    count: usize,
) -> Option<Result<StepReport>>
where
    Buffer: AsRef<K::Gradient> + AsMut<K::Gradient>,
    K: Kernels,
{
    let mut begun = None;
    let mut failed = None;
    // The engine is not held while the next bucket is waited for: the caller may need it before it submits one.
    let mut engine = shared.engine();
    if !engine.needs_all() {
        match engine.begin(None) {
            Ok(step) => begun = Some(step),
            Err(error) => {
                lose_unless_skipped(&mut engine, &error);
                failed = Some(error);
            }
        }
    }
    drop(engine);
    for bucket in 0..count {
        if bucket >= ready.len() {
            let Some(next) = shared.queue.take() else {
                withdraw(shared, begun.as_ref(), ready);
                return None;
            };
            ready.push(next);
        }
        // After an error the other buckets are only collected, so that they can be given back.
        if let (Some(begun), None) = (&mut begun, &failed) {
            failed = shared.engine().travel(begun, bucket, vectors(&mut ready[bucket])).err();
        }
    }
    let mut engine = shared.engine();
    let mut all: Vec<Vectors<'_, K>> = ready.iter_mut().map(vectors).collect();
    let outcome = match (begun, failed) {
        (None, Some(error)) => Err(error),
        (Some(begun), Some(error)) => {
            engine.give_up(&begun, &error, &all);
            Err(error)
        }
        (Some(begun), None) => finish(&mut engine, begun, &mut all),
        (None, None) => run(&mut engine, &mut all),
    };
    if outcome.is_err() {
        // The error of the step is the one to report, whatever comes of this.
        let _ = engine.clear_after_error(&mut all);
    }
    Some(outcome)
}

/// Takes a step back that ends before all its buckets have come, so that the memory can still be saved.
fn withdraw<Buffer, K>(shared: &Shared<Buffer, K>, begun: Option<&Begun>, ready: &mut [Ready<Buffer>])
where
    Buffer: AsRef<K::Gradient> + AsMut<K::Gradient>,
    K: Kernels,
{
    let Some(begun) = begun else { return };
    let all: Vec<Vectors<'_, K>> = ready.iter_mut().map(vectors).collect();
    // Nobody is left to be told of an error.
    let _ = shared.engine().withdraw(begun, &all);
}

fn vectors<Buffer, G>(ready: &mut Ready<Buffer>) -> (&mut G, Option<&G>)
where
    Buffer: AsRef<G> + AsMut<G>,
    G: ?Sized,
{
    (ready.gradient.as_mut(), ready.weights.as_ref().map(AsRef::as_ref))
}
