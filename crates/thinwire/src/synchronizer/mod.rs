//! A whole step: every rank's gradients in, their mean out.
//!
//! ```
//! use thinwire::Bucket;
//! use thinwire::group::{Group, Local};
//! use thinwire::synchronizer::{NO_WEIGHTS, Synchronizer};
//!
//! let means = Local::run(4, |group| {
//!     let mine = group.rank() as f32 + 1.0;
//!     let layout = Bucket::single("weight", 1000).unwrap();
//!     let mut synchronizer = Synchronizer::new(group, "ar-topk:density=0.01", layout).unwrap();
//!     let mut gradients = [vec![mine; 1000]];
//!     let report = synchronizer.step(&mut gradients, NO_WEIGHTS).unwrap();
//!     assert_eq!(report.kept(), 10);
//!     gradients
//! });
//! assert_eq!(means[0][0][..11], [[2.5; 10].as_slice(), &[0.0]].concat());
//! assert!(means.iter().all(|mean| mean == &means[0]));
//! ```
//!
//! [`step`](Synchronizer::step) does everything on the calling thread. To exchange while the backward pass still
//! runs, [`submit`](Synchronizer::submit) each bucket as it becomes ready and [`wait`](Synchronizer::wait) for
//! them at the end: they travel in the background, in the order of the layout on every rank, whatever the order
//! in which they were submitted.

mod adaptation;
mod agreement;
mod engine;
mod layout;
mod note;
mod options;
mod queue;
mod replicas;
mod report;
mod worker;

/// What the queue is built on.
mod sync {
    pub use std::sync::{Condvar, Mutex, MutexGuard};
}

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use layout::Layout;
pub use options::{Mean, Options};
pub use report::{StageTimes, StepReport};

use crate::adapt::decision::Decision;
use crate::group::{Group, Traffic};
use crate::kernels::{Cpu, Kernels};
use crate::memory::State;
use crate::{Error, Result};
use engine::{Engine, Vectors};
use queue::{Queue, Rejected, Waited};

/// Keeps the gradients of all ranks in step. See the [module](self).
///
/// A step is all or nothing. If a rank can't take part (its gradient holds a NaN, say), all ranks get
/// [`Error::Skipped`], nothing counts as sent, and the next step may follow. The gradients may hold anything by
/// then, and the memory is what it was but for rounding: the gradient was added to it and is taken out again, so
/// that where it was millions of times larger than what was kept, little of that is left. After any other error of
/// a step the group is lost.
pub struct Synchronizer<Buffer = Vec<f32>, K: Kernels = Cpu> {
    shared: Arc<Shared<Buffer, K>>,
    worker: Option<JoinHandle<()>>,
    rank: usize,
    size: usize,
    buckets: usize,
    /// The step that comes next or is under way, while the engine may be busy with it.
    step: u64,
    /// Buffers of a step that failed.
    returned: Vec<Buffer>,
}

struct Shared<Buffer, K: Kernels> {
    engine: Mutex<Engine<K>>,
    queue: Queue<Ready<Buffer>, Done<Buffer>>,
    on_step_end: Mutex<Option<OnStepEnd>>,
}

/// What is called when a background step is over.
pub type OnStepEnd = Arc<dyn Fn() + Send + Sync>;

/// A bucket whose gradient is ready.
#[derive(Debug)]
struct Ready<Buffer> {
    gradient: Buffer,
    weights: Option<Buffer>,
}

type Done<Buffer> = (Vec<Ready<Buffer>>, Result<StepReport>);

impl<Buffer, K: Kernels> Shared<Buffer, K> {
    fn new(engine: Engine<K>) -> Arc<Self> {
        let queue = Queue::new(engine.buckets());
        Arc::new(Shared { engine: Mutex::new(engine), queue, on_step_end: Mutex::new(None) })
    }

    /// Whom to tell that a step is over.
    fn on_step_end(&self) -> MutexGuard<'_, Option<OnStepEnd>> {
        self.on_step_end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic gives the group up (see [`worker`]), and then every call is answered with that.
    fn engine(&self) -> MutexGuard<'_, Engine<K>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For methods that do not look at the weights.
pub const NO_WEIGHTS: &[Vec<f32>] = &[];

impl Synchronizer {
    /// A synchronizer for `method`, such as `topk` or `redsync:density=0.001`, over the buckets of `layout`. All
    /// ranks call it together: one that was told another method or layout is an error here and not later.
    pub fn new(group: impl Group + 'static, method: &str, layout: impl Into<Layout>) -> Result<Self> {
        Synchronizer::with_options(group, method, layout, Options::default())
    }

    /// The same with other options.
    pub fn with_options(
        group: impl Group + 'static,
        method: &str,
        layout: impl Into<Layout>,
        options: Options,
    ) -> Result<Self> {
        Synchronizer::with_buffers(group, method, layout, options)
    }
}

impl<Buffer: AsRef<[f32]> + AsMut<[f32]> + Send + 'static> Synchronizer<Buffer> {
    /// The same for gradients that are submitted in buffers of another kind than `Vec<f32>`: memory that belongs to
    /// a framework, say.
    pub fn with_buffers(
        group: impl Group + 'static,
        method: &str,
        layout: impl Into<Layout>,
        options: Options,
    ) -> Result<Self> {
        Synchronizer::with_kernels(Cpu::new(options.threads), group, method, layout, options)
    }
}

impl<Buffer, K> Synchronizer<Buffer, K>
where
    Buffer: AsRef<K::Gradient> + AsMut<K::Gradient> + Send + 'static,
    K: Kernels,
{
    /// The same for gradients in the memory of any device, on which the arithmetic then runs.
    pub fn with_kernels(
        kernels: K,
        group: impl Group + 'static,
        method: &str,
        layout: impl Into<Layout>,
        options: Options,
    ) -> Result<Self> {
        let (layout, rank, size) = (layout.into(), group.rank(), group.size());
        let engine = Engine::new(kernels, Box::new(group), method, &layout, options)?;
        let buckets = engine.buckets();
        let shared = Shared::new(engine);
        Ok(Synchronizer { shared, worker: None, rank, size, buckets, step: 0, returned: Vec::new() })
    }

    /// Goes on with other buckets of the same layers, with what was kept and all else. All ranks do it together. If the
    /// group is lost in it, what was kept can still be saved.
    pub fn relayout(&mut self, layout: impl Into<Layout>) -> Result<()> {
        self.check_idle()?;
        // Ends the thread, which holds the queue of the buckets there were.
        self.shared.queue.close();
        if self.worker.take().is_some_and(|worker| worker.join().is_err()) {
            return Err(worker_gone());
        }
        let relaid = self.shared.engine().relayout(&layout.into());
        self.buckets = self.shared.engine().buckets();
        let shared = Arc::get_mut(&mut self.shared).ok_or_else(worker_gone)?;
        shared.queue = Queue::new(self.buckets);
        relaid
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The step that comes next.
    pub fn next_step(&self) -> u64 {
        self.shared.engine().progress.step
    }

    /// Says how many epochs are done, for methods that warm up. The same on all ranks.
    pub fn set_epoch(&mut self, epoch: f64) {
        self.shared.engine().progress.epoch = epoch;
    }

    /// Sets another target density from the next step on, or with `None` the method's own again: for schedules and
    /// controllers. The same on all ranks, or the next step is an error that names both plans. A state does not
    /// hold it.
    pub fn set_density(&mut self, density: Option<f64>) -> Result<()> {
        if let Some(density) = density.filter(|density| !(*density > 0.0 && *density <= 1.0)) {
            return Err(Error::BadSetting {
                name: "density".into(),
                found: density.to_string(),
                expected: "a number above 0 and up to 1".into(),
            });
        }
        self.check_idle()?;
        let mut engine = self.shared.engine();
        if let Some(density) = density.filter(|_| engine.chooses()) {
            return Err(Error::BadSetting {
                name: "density".into(),
                found: density.to_string(),
                expected: "none: auto chooses it, between min_density and max_density".into(),
            });
        }
        engine.progress.density = density;
        Ok(())
    }

    /// Says how many samples the next gradients of this rank are the mean of, for [`Mean::OfSamples`].
    pub fn set_samples(&mut self, samples: f64) {
        self.shared.engine().samples = samples;
    }

    /// What an automatic method has decided since this was asked last, with everything it went by. Rank 0 decides for all,
    /// so that the others have nothing to tell.
    pub fn decisions(&mut self) -> Vec<Decision> {
        self.shared.engine().take_decisions()
    }

    /// Bytes sent and received so far.
    pub fn traffic(&self) -> Traffic {
        self.shared.engine().group.traffic()
    }

    /// Bytes of residual and momentum.
    pub fn memory_bytes(&self) -> usize {
        self.shared.engine().memory_bytes()
    }

    /// Bytes held beyond gradient, residual and momentum.
    pub fn workspace_bytes(&self) -> usize {
        self.shared.engine().workspace_bytes()
    }

    /// One step on the calling thread: the gradient of each bucket becomes the mean over all ranks. `weights` are
    /// the weights of each bucket, or [`NO_WEIGHTS`]; methods that look at them need them, and with them the checksum
    /// of the replicas covers them too.
    pub fn step<G, W>(&mut self, gradients: &mut [G], weights: &[W]) -> Result<StepReport>
    where
        G: AsMut<K::Gradient>,
        W: AsRef<K::Gradient>,
    {
        self.check_idle()?;
        let (found, buckets) = (gradients.len(), self.buckets);
        if found != buckets {
            return Err(Error::BucketCount { what: "gradients", found, buckets });
        }
        if !weights.is_empty() && weights.len() != buckets {
            return Err(Error::BucketCount { what: "weights", found: weights.len(), buckets });
        }
        let weights_of = |bucket: usize| weights.get(bucket).map(AsRef::as_ref);
        let mut vectors: Vec<Vectors<'_, K>> = gradients
            .iter_mut()
            .enumerate()
            .map(|(b, gradient)| (gradient.as_mut(), weights_of(b)))
            .collect();
        let mut engine = self.shared.engine();
        let report = worker::run(&mut engine, &mut vectors);
        self.step = engine.progress.step;
        report
    }

    /// Hands over the gradient of a bucket, to travel in the background; [`wait`](Synchronizer::wait) gives the
    /// buffers back. Methods that look at weights need them here.
    pub fn submit(&mut self, bucket: usize, gradient: Buffer, weights: Option<Buffer>) -> Result<()> {
        self.start_worker();
        let step = self.step;
        self.shared.queue.submit(bucket, Ready { gradient, weights }).map_err(
            |(rejected, _)| match rejected {
                Rejected::Unknown => Error::UnknownBucket { found: bucket, last: self.buckets - 1 },
                Rejected::Twice => Error::SubmittedTwice { bucket, step },
                Rejected::Closed => worker_gone(),
            },
        )
    }

    /// From now on `tell` is called by the background thread when it is done with a step: once for each step it has
    /// begun, whatever came of it, also if it ends in the midst of one. By then the gradients are what they will be.
    /// For devices that wait for the means by themselves.
    pub fn on_step_end(&mut self, tell: OnStepEnd) {
        *self.shared.on_step_end() = Some(tell);
    }

    /// Waits until all buckets of the step have been exchanged: the means, in the order of the layout. After an
    /// error [`returned`](Synchronizer::returned) has the buffers.
    pub fn wait(&mut self) -> Result<(Vec<Buffer>, StepReport)> {
        self.check_submitted()?;
        let finished = self.shared.queue.wait().ok_or_else(worker_gone)?;
        self.finished(finished)
    }

    /// The same, but comes back with `None` when the time is up; the step goes on. For callers who have something to
    /// look after while they wait.
    pub fn wait_for(&mut self, time: Duration) -> Result<Option<(Vec<Buffer>, StepReport)>> {
        self.check_submitted()?;
        match self.shared.queue.wait_for(time) {
            Waited::Outcome(finished) => self.finished(finished).map(Some),
            Waited::TimeIsUp => Ok(None),
            Waited::Closed => Err(worker_gone()),
        }
    }

    fn finished(&mut self, (buckets, report): Done<Buffer>) -> Result<(Vec<Buffer>, StepReport)> {
        self.step = self.shared.engine().progress.step;
        let buffers: Vec<Buffer> = buckets.into_iter().map(|ready| ready.gradient).collect();
        match report {
            Ok(report) => Ok((buffers, report)),
            Err(error) => {
                self.returned = buffers;
                Err(error)
            }
        }
    }

    /// The buffers of a step for which [`wait`](Synchronizer::wait) gave an error, in the order of the layout; what
    /// is in them is worth nothing.
    pub fn returned(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.returned)
    }

    /// Everything this rank must keep for the run to go on with the same bits. Every rank saves its own.
    pub fn save(&self) -> Result<State> {
        self.check_idle()?;
        self.shared.engine().save()
    }

    /// The same after the group was lost, also in the midst of a step: what that step has put into the memory is taken
    /// out again (but for rounding), so that this is the state of the last step that was completed. Afterwards nothing
    /// can be exchanged any more. An error if the thread that exchanges the buckets is in a collective for longer than
    /// this.
    pub fn save_after_loss(&mut self, time: Duration) -> Result<State> {
        self.shared.queue.close();
        let until = Instant::now() + time;
        while self.worker.as_ref().is_some_and(|worker| !worker.is_finished()) {
            if Instant::now() > until {
                let reason =
                    format!("a collective has not ended within {time:?}, so the state can't be saved");
                return Err(Error::GroupLost { reason });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.worker.take().is_some_and(|worker| worker.join().is_err()) {
            return Err(worker_gone());
        }
        self.shared.engine().save()
    }

    /// Goes on from a saved state.
    pub fn restore(&mut self, state: &State) -> Result<()> {
        self.check_idle()?;
        self.shared.engine().restore(state)?;
        self.step = state.step;
        Ok(())
    }

    /// Gives the group up and tells the others why, so that they need not wait for the deadline.
    pub fn abandon(&mut self, reason: &str) {
        self.shared.engine().group.abandon(reason);
    }

    fn check_submitted(&self) -> Result<()> {
        let (submitted, buckets) = (self.shared.queue.submitted(), self.buckets);
        if submitted < buckets {
            return Err(Error::StepUnderWay { step: self.step, submitted, buckets });
        }
        Ok(())
    }

    fn check_idle(&self) -> Result<()> {
        match self.shared.queue.submitted() {
            0 => Ok(()),
            submitted => Err(Error::StepUnderWay { step: self.step, submitted, buckets: self.buckets }),
        }
    }

    fn start_worker(&mut self) {
        let shared = &self.shared;
        let start = || {
            let shared = shared.clone();
            std::thread::spawn(move || worker::work(&shared))
        };
        self.worker.get_or_insert_with(start);
    }
}

impl<Buffer, K: Kernels> Drop for Synchronizer<Buffer, K> {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(worker) = self.worker.take() {
            // A panic has been reported by the thread itself.
            let _ = worker.join();
        }
    }
}

impl<Buffer, K: Kernels> std::fmt::Debug for Synchronizer<Buffer, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Synchronizer { rank, size, buckets, .. } = self;
        write!(f, "Synchronizer {{ rank: {rank}, size: {size}, buckets: {buckets} }}")
    }
}

fn worker_gone() -> Error {
    Error::GroupLost { reason: "the thread that exchanges the buckets has ended".into() }
}
