//! One step of all buckets: travel in order, then settle together or not at all.

mod state;

use std::time::{Duration, Instant};

use super::adaptation::Adaptation;
use super::agreement::{agree_on, told};
use super::layout::Layout;
use super::note::Measure;
use super::replicas;
use super::report::{StageTimes, StepReport};
use super::{Mean, Options};
use crate::adapt::decision::Decision;
use crate::exchange::{Algorithms, DenseLayers, Lane, LaneTimes, Route, Situation, reduction_pays, verdict};
use crate::group::{Algorithm, Gathered, Group, Mark, Traffic};
use crate::kernels::{Fault, Kernels};
use crate::memory::Progress;
use crate::pipeline::{Exchange, Recipe, Report, fault_in};
use crate::{Bucket, Error, Result, method};

/// Everything a rank needs to take part in steps.
pub(super) struct Engine<K: Kernels> {
    pub group: Box<dyn Group>,
    kernels: K,
    lanes: Vec<Lane<K>>,
    options: Options,
    plan: u32,
    spec: String,
    clips: bool,
    /// Layers sent dense beside gathered frames.
    dense_layers: DenseLayers,
    /// Where the method is an automatic one.
    adaptation: Option<Adaptation<K>>,
    /// Whether the lanes have yet to be told what was chosen for them.
    unassigned: bool,
    pub progress: Progress,
    pub samples: f64,
}

/// A step that is under way.
pub(super) struct Begun {
    situation: Situation,
    /// False once some rank is known not to take part.
    going: bool,
    at: Instant,
    traffic: Traffic,
}

/// A bucket's gradient, and the weights where the method looks at them.
pub(super) type Vectors<'a, K> = (&'a mut <K as Kernels>::Gradient, Option<&'a <K as Kernels>::Gradient>);

impl<K: Kernels> Engine<K> {
    /// Asks the other ranks whether they were told the same.
    pub fn new(
        mut kernels: K,
        mut group: Box<dyn Group>,
        spec: &str,
        layout: &Layout,
        options: Options,
    ) -> Result<Engine<K>> {
        let recipe = method::parse(spec)?;
        let progress = Progress { total_steps: options.total_steps, ..Progress::default() };
        recipe.check_length_known(progress)?;
        let first = first_method(&recipe);
        let buckets = layout.buckets().iter();
        let lanes = buckets.map(|bucket| Lane::new(&mut kernels, method::parse(&first)?, bucket.clone()));
        let lanes = lanes.collect::<Result<Vec<Lane<K>>>>()?;
        let plan = agree_on(group.as_mut(), &told(&recipe.spec, layout, &options))?;
        let mut adaptation = Adaptation::new(&mut kernels, group.as_mut(), &recipe, bucket_lengths(layout))?;
        if let Some(adaptation) = &mut adaptation {
            adaptation.start(group.as_mut(), progress, bucket_lengths(layout))?;
        }
        Ok(Engine {
            group,
            kernels,
            lanes,
            dense_layers: DenseLayers::default(),
            clips: recipe.clip.is_some(),
            options,
            plan,
            spec: recipe.spec,
            unassigned: adaptation.is_some(),
            adaptation,
            progress,
            samples: 1.0,
        })
    }

    pub fn buckets(&self) -> usize {
        self.lanes.len()
    }

    /// Whether the norm of the whole gradient must be known before the first bucket may travel.
    pub fn needs_norm(&self) -> bool {
        self.clips && self.lanes.len() > 1
    }

    /// The norm of the whole gradient; `None` if it is not finite, which the bucket it is in will report.
    pub fn norm<'a>(&mut self, gradients: impl Iterator<Item = &'a K::Gradient>) -> Result<Option<f64>> {
        let mut squares = 0.0;
        for gradient in gradients {
            let measured = match self.kernels.statistics(gradient, &[0..K::elements(gradient)]) {
                Ok(statistics) => statistics.sum_squares,
                Err(Fault::NonFinite(_)) => return Ok(None),
                Err(Fault::Failed(error)) => return Err(error),
            };
            squares += match measured.is_finite() {
                true => measured,
                false => self.kernels.norm_of_huge(gradient)?.powi(2),
            };
        }
        Ok(Some(f64::sqrt(squares)).filter(|norm| norm.is_finite()))
    }

    /// Whether all buckets must be at hand before the first may travel.
    pub fn needs_all(&self) -> bool {
        self.needs_norm() || self.options.check_first
    }

    /// Asks all ranks whether their gradients are finite, if the options say so. If one is not, the step is skipped:
    /// nothing has touched any memory.
    pub fn check_first<'a>(&mut self, gradients: impl Iterator<Item = &'a K::Gradient>) -> Result<()> {
        if !self.options.check_first {
            return Ok(());
        }
        self.mark_step();
        let mut refusal = None;
        for (lane, gradient) in self.lanes.iter().zip(gradients) {
            match self.kernels.statistics(gradient, &[0..K::elements(gradient)]) {
                Ok(_) => {}
                Err(Fault::Failed(error)) => return Err(error),
                Err(fault) => {
                    let bucket = lane.compressor().bucket();
                    refusal.get_or_insert_with(|| fault_in(bucket, "gradient", fault));
                }
            }
        }
        match verdict(self.group.as_mut(), refusal.as_ref(), &[], &mut Vec::new())? {
            None => Ok(()),
            Some(skipped) => {
                self.progress.step += 1;
                self.adaptation.iter_mut().for_each(Adaptation::skipped);
                Err(skipped)
            }
        }
    }

    /// Begins a step.
    pub fn begin(&mut self, norm: Option<f64>) -> Result<Begun> {
        let (at, traffic) = (Instant::now(), self.group.traffic());
        self.lanes.iter_mut().for_each(Lane::begin);
        self.mark_step();
        if let Some(adaptation) = &mut self.adaptation {
            let anew = std::mem::take(&mut self.unassigned);
            adaptation.begin(&mut self.kernels, &mut self.lanes, self.progress, anew)?;
            self.mark_step();
        }
        let share = match self.options.mean {
            Mean::OfRanks => 1.0,
            Mean::OfSamples => self.share()?,
        };
        let reduces_dense = self.reduces_dense()?;
        let situation = Situation { progress: self.progress, plan: self.plan(), norm, share, reduces_dense };
        Ok(Begun { situation, going: true, at, traffic })
    }

    /// Whether the layers of this step that are sent dense are summed beside the gathered frames. All ranks decide the
    /// same: by sizes, and by methods and densities they agree on.
    fn reduces_dense(&self) -> Result<bool> {
        let in_frames = self.lanes.iter().map(|lane| lane.dense_bytes_in_frame(self.progress));
        Ok(reduction_pays(in_frames.sum::<Result<usize>>()?, self.group.size()))
    }

    /// Sums them, once all buckets have travelled. A sum that is not finite ends the step for all ranks.
    fn reduce_dense(&mut self, begun: &mut Begun) -> Result<()> {
        if !begun.going || !begun.situation.reduces_dense {
            return Ok(());
        }
        let mut route = route(self.group.as_mut(), &mut self.kernels, &self.options);
        self.dense_layers.reduce(&mut self.lanes, &mut route)?;
        begun.going = self.lanes.iter().all(|lane| lane.refusal().is_none());
        Ok(())
    }

    /// What follows belongs to the step and to no bucket.
    fn mark_step(&mut self) {
        self.group.mark(Mark { step: self.progress.step, plan: self.plan(), bucket: u32::MAX });
    }

    /// The number every message carries: of what the ranks were told at the beginning, and of a density that was
    /// set or a choice that was made since.
    fn plan(&self) -> u32 {
        let density = self.progress.density.map_or(0, |density| crc32fast::hash(&density.to_le_bytes()));
        let choice = self.adaptation.as_ref().map_or(0, |it| crc32fast::hash(&it.number().to_le_bytes()));
        self.plan ^ density ^ choice
    }

    /// This rank's samples against the mean over all ranks.
    fn share(&mut self) -> Result<f32> {
        let mut gathered = Gathered::default();
        self.group.all_gather(&self.samples.to_le_bytes(), 8, Algorithm::Tree, &mut gathered)?;
        let samples = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes);
        let total: f64 = gathered.iter().map(samples).sum();
        if total.is_finite() && total > 0.0 && gathered.iter().all(|bytes| samples(bytes) >= 0.0) {
            return Ok((self.samples * self.group.size() as f64 / total) as f32);
        }
        let found: Vec<String> = gathered.iter().map(|bytes| samples(bytes).to_string()).collect();
        Err(Error::BadSetting {
            name: "the numbers of samples of the ranks".into(),
            found: found.join(", "),
            expected: "finite numbers, none below 0 and not all 0".into(),
        })
    }

    /// Gradient and weights of a bucket are going to be worked on. Where all buckets must be at hand, this comes before
    /// anything else; other buckets arrive as they travel.
    pub fn arrive(&mut self, (gradient, weights): &Vectors<'_, K>) -> Result<()> {
        self.kernels.arrive(gradient)?;
        weights.map_or(Ok(()), |weights| self.kernels.arrive(weights))
    }

    /// Lets the next bucket travel, unless the step is known to be skipped.
    pub fn travel(&mut self, begun: &mut Begun, bucket: usize, vectors: Vectors<'_, K>) -> Result<()> {
        if begun.going {
            if !self.needs_all() {
                self.arrive(&vectors)?;
            }
            let (gradient, weights) = vectors;
            if let Some(adaptation) = &mut self.adaptation {
                adaptation.look(&mut self.kernels, bucket, begun.situation.share, gradient)?;
            }
            let mut route = route(self.group.as_mut(), &mut self.kernels, &self.options);
            begun.going = self.lanes[bucket].travel(&mut route, &begun.situation, gradient, weights)?;
        }
        Ok(())
    }

    /// Ends a step all of whose buckets have travelled.
    pub fn finish(&mut self, mut begun: Begun, buckets: &mut [Vectors<'_, K>]) -> Result<StepReport> {
        self.mark_step();
        if let Err(error) = self.reduce_dense(&mut begun) {
            // The error that has lost the group is the one to report, whatever comes of this.
            let _ = self.cancel(&begun.situation, buckets);
            return Err(error);
        }
        if let Some(adaptation) = self.adaptation.as_mut().filter(|_| begun.going) {
            adaptation.listen(self.group.as_mut())?;
        }
        let note = self.adaptation.as_ref().map_or(Vec::new(), |it| it.note(&self.lanes));
        let (mut notes, mut judging) = (Vec::new(), Duration::ZERO);
        if !begun.going || self.lanes.iter().any(Lane::needs_verdict) {
            let refusal = self.lanes.iter().find_map(Lane::refusal).cloned();
            let asked = Instant::now();
            let judged = verdict(self.group.as_mut(), refusal.as_ref(), &note, &mut notes);
            judging = asked.elapsed();
            match judged {
                Ok(None) if begun.going => {}
                judged => {
                    self.adaptation.iter_mut().for_each(Adaptation::skipped);
                    // Nothing may be settled, also where the buckets have not travelled to the end.
                    let cancelled = self.cancel(&begun.situation, buckets);
                    let skipped = judged?;
                    cancelled?;
                    self.progress.step += skipped.is_some() as u64;
                    return Err(skipped.unwrap_or_else(|| self.unexplained()));
                }
            }
        }
        let settling = Instant::now();
        let size = self.group.size();
        for (lane, (gradient, _)) in self.lanes.iter_mut().zip(buckets.iter_mut()) {
            lane.settle(&mut self.kernels, &begun.situation, size, gradient)?;
        }
        self.kernels.complete()?;
        let settle = settling.elapsed();
        let checking = Instant::now();
        let checked = self.check_replicas(buckets);
        let check = checking.elapsed();
        let adapt = self.adapt(notes, judging, settle)?;
        let exchange = judging;
        let times = StageTimes { settle, check, adapt, exchange, total: begun.at.elapsed() };
        let report = self.report(&begun, times);
        self.progress.step += 1;
        checked.map(|()| report)
    }

    /// Shows the step to the controller, where there is one; the time that took.
    fn adapt(&mut self, mut notes: Vec<f32>, judging: Duration, settle: Duration) -> Result<Duration> {
        let Some(adaptation) = &mut self.adaptation else { return Ok(Duration::ZERO) };
        if notes.is_empty() {
            notes.clone_from(&self.lanes[0].notes);
        }
        let mut compression = Report::default();
        let (mut sum, mut spread, mut work) = (Duration::ZERO, judging, settle);
        for lane in &self.lanes {
            let (report, times) = lane.report();
            // What is sent whole would hide how little is sent of the rest.
            if lane.density(self.progress) < 1.0 {
                compression.add(report);
            }
            (sum, spread, work) = (sum + times.sum, spread + times.spread, work + times.work);
        }
        let mine = Measure {
            sum: sum.as_secs_f32(),
            spread: spread.as_secs_f32(),
            work: work.as_secs_f32(),
            gain: compression.gain() as f32,
            ..Measure::default()
        };
        adaptation.end(self.group.as_ref(), self.progress, &notes, mine)?;
        Ok(adaptation.time())
    }

    /// Whether the method chooses by itself.
    pub fn chooses(&self) -> bool {
        self.adaptation.is_some()
    }

    /// What was decided since this was asked last; only rank 0 knows why.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        self.adaptation.as_mut().map_or(Vec::new(), Adaptation::take_decisions)
    }

    /// The error for a rank that did not take part and would not say why.
    fn unexplained(&self) -> Error {
        let step = self.progress.step;
        match self.lanes.iter().find_map(Lane::absent) {
            Some(rank) => {
                Error::BadMessage { rank, step, reason: "it is empty, and no reason was given".into() }
            }
            None => Error::GroupLost {
                reason: format!("step {step}: a rank took no part in the sum, and none says why"),
            },
        }
    }

    /// After an error that has lost the group: tells the others, and takes back what can be taken back.
    pub fn give_up(&mut self, begun: &Begun, error: &Error, buckets: &[Vectors<'_, K>]) {
        self.group.abandon(&error.to_string());
        // The error that has lost the group is the one to report, whatever comes of this.
        let _ = self.withdraw(begun, buckets);
    }

    /// Takes the buckets of a step back, as far as they have come.
    pub fn withdraw(&mut self, begun: &Begun, buckets: &[Vectors<'_, K>]) -> Result<()> {
        self.cancel(&begun.situation, buckets)
    }

    /// Zeros take the place of gradients that are worth nothing, if the options say so.
    pub fn clear_after_error(&mut self, buckets: &mut [Vectors<'_, K>]) -> Result<()> {
        if !self.options.zeros_after_error {
            return Ok(());
        }
        for bucket in buckets {
            // The step may have ended before this one's turn.
            self.arrive(bucket)?;
            self.kernels.begin_mean(bucket.0)?;
            self.kernels.end_mean(bucket.0)?;
        }
        self.kernels.complete()
    }

    /// Takes all buckets back; the first error, if the device has failed.
    fn cancel(&mut self, situation: &Situation, buckets: &[Vectors<'_, K>]) -> Result<()> {
        let mut outcome = Ok(());
        for (lane, (gradient, _)) in self.lanes.iter_mut().zip(buckets) {
            outcome = outcome.and(lane.cancel(&mut self.kernels, situation, gradient));
        }
        outcome.and(self.kernels.complete())
    }

    fn check_replicas(&mut self, buckets: &[Vectors<'_, K>]) -> Result<()> {
        let every = self.options.check_replicas_every;
        if every == 0 || !(self.progress.step + 1).is_multiple_of(every) {
            return Ok(());
        }
        let (group, kernels) = (self.group.as_mut(), &mut self.kernels);
        if buckets.iter().all(|(_, weights)| weights.is_some()) {
            let weights = buckets.iter().filter_map(|(_, weights)| *weights);
            replicas::compare(group, kernels, "weights", weights)?;
        }
        let gradients = buckets.iter().map(|(gradient, _)| &**gradient);
        replicas::compare(group, kernels, "mean gradients", gradients)
    }

    fn report(&self, begun: &Begun, mut times: StageTimes) -> StepReport {
        let mut compression = Report::default();
        for lane in &self.lanes {
            let (report, LaneTimes { sum, spread, .. }) = lane.report();
            compression.add(report);
            times.exchange += sum + spread;
        }
        StepReport {
            step: self.progress.step,
            ranks: self.group.size(),
            density: self.lanes.iter().map(|lane| lane.density(begun.situation.progress)).fold(1.0, f64::min),
            compression,
            leader: self.lanes.iter().find_map(Lane::leader),
            traffic: self.group.traffic() - begun.traffic,
            times,
        }
    }
}

/// What buckets travel by.
fn route<'a, K>(group: &'a mut dyn Group, kernels: &'a mut K, options: &Options) -> Route<'a, K> {
    let algorithms = options.algorithm.map(|how| Algorithms { sum: how, spread: how });
    Route { group, kernels, algorithms }
}

/// The method that lanes begin with: an automatic one has yet to choose.
fn first_method(recipe: &Recipe) -> String {
    match recipe.exchange {
        Exchange::Automatic => "topk".into(),
        _ => recipe.spec.clone(),
    }
}

fn bucket_lengths(layout: &Layout) -> Vec<usize> {
    layout.buckets().iter().map(Bucket::len).collect()
}
