//! One worker: its copy of the model, and what it does in a step.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::tensor::Device;
use thinwire::Synchronizer;
use thinwire::adapt::gain::{Curve, Shadow};
use thinwire::group::{Algorithm, Gathered, Group, SharedGroup, Traffic, peer_text};
use thinwire::pipeline::Recipe;
use thinwire::synchronizer::{NO_WEIGHTS, Options, StepReport};

use super::Settings;
use super::buckets::Buckets;
use super::probe::Probe;
use crate::data::shard::{Epochs, augment_number};
use crate::data::{self, Batch, DataSet};
use crate::event::{Event, Step, Times};
use crate::model::{self, Segment, pass};
use crate::optimizer::{self, Optimizer, ThetaSchedule, clip_norm, decay_ranges};
use crate::{Error, Result};

/// A worker between two steps.
pub(super) struct Worker<'a> {
    pub settings: &'a Settings,
    pub group: SharedGroup,
    pub rank: usize,
    pub workers: usize,
    pub device: Device,
    pub data: DataSet,
    pub epochs: Epochs,
    pub segments: Vec<Box<dyn Segment>>,
    pub buckets: Buckets,
    pub weights: Vec<Vec<f32>>,
    pub optimizer: Box<dyn Optimizer>,
    pub synchronizer: Synchronizer,
    /// The method, with the optimiser's momentum where that has moved.
    pub recipe: Recipe,
    /// Whether the momentum has moved from the optimiser into the memory: with Adam for sparse steps only.
    pub momentum_moved: bool,
    needs_weights: bool,
    /// Where gains are measured beside the training, and what came of it.
    pub shadow: Option<Shadow>,
    pub curve: Option<Curve>,
    /// The buffers of the gradients, while they are not under way.
    gradients: Vec<Vec<f32>>,
    batch: Batch,
    samples: Vec<usize>,
}

impl<'a> Worker<'a> {
    /// A worker that has not trained yet. All workers begin with the weights of worker 0.
    pub fn new(settings: &'a Settings, mut group: SharedGroup) -> Result<Worker<'a>> {
        let (rank, workers) = (group.rank(), group.size());
        agree_on(&mut group, &settings.shared(workers))?;
        let device = Device::flex().autodiff();
        let data = data::open(&settings.data)?;
        let epochs = Epochs::new(data.train.len(), workers, settings.batch, settings.seed)?;
        let (_, mut segments) = model::build(&settings.model, data.kind, settings.seed, &device)?;
        let (method, momentum_moved) = settings.with_momentum_moved()?;
        let recipe = thinwire::method::parse(&method)?;
        let buckets = Buckets::new(&segments, settings.bucket_bytes_with(&recipe));
        let mut weights = buckets.read(&segments);
        broadcast(&mut group, &mut weights)?;
        buckets.write(&weights, &mut segments);

        let options = Options {
            check_replicas_every: settings.check_every,
            total_steps: Some(settings.steps(&epochs)),
            ..Options::default()
        };
        let synchronizer = Synchronizer::with_options(group.clone(), &method, buckets.layout()?, options)?;
        let decays: Vec<_> = buckets.layers().iter().map(|layers| decay_ranges(layers)).collect();
        let layout = optimizer::Layout {
            lengths: buckets.lengths(),
            decays: &decays,
            momentum_in_memory: momentum_moved,
        };
        let optimizer = optimizer::build(&settings.optimizer, layout)?;
        let gradients = buckets.lengths().iter().map(|length| Vec::with_capacity(*length)).collect();
        let needs_weights = recipe.needs_weights();
        Ok(Worker {
            settings,
            group,
            rank,
            workers,
            device,
            data,
            epochs,
            segments,
            buckets,
            weights,
            optimizer,
            synchronizer,
            recipe,
            momentum_moved,
            needs_weights,
            shadow: None,
            curve: None,
            gradients,
            batch: Batch::default(),
            samples: Vec::new(),
        })
    }

    /// Epochs done before a step.
    pub fn epoch(&self, step: u64) -> f64 {
        step as f64 / self.epochs.steps_per_epoch() as f64
    }

    /// Takes one step. With a probe, the gradients are looked at before they travel, and nothing is hidden behind the
    /// backward pass.
    pub fn step(&mut self, step: u64, probe: Option<&mut Probe>) -> Result<(Step, Vec<Event>)> {
        let (begun, traffic) = (Instant::now(), self.group.traffic());
        let epoch = self.epoch(step);
        let lr = self.settings.lr.at(epoch, self.settings.epochs);
        self.synchronizer.set_epoch(epoch);
        if self.settings.theta != ThetaSchedule::Fixed {
            let theta = 1.0 - self.recipe.density;
            let density = self.settings.theta.density(theta, lr / self.settings.lr.base, epoch);
            self.synchronizer.set_density(Some(density))?;
        }
        self.epochs.samples(self.rank, step, &mut self.samples);
        let augment = augment_number(self.settings.seed, self.epochs.epoch_of(step));
        self.data.train.batch(&self.samples, Some(augment), &mut self.batch);
        let mut times = Times { data: begun.elapsed().as_secs_f64(), ..Times::default() };

        // A single bucket has nothing to hide behind, and another thread would only have to be woken.
        let travels_at_once = self.settings.overlap && probe.is_none() && self.gradients.len() > 1;
        let loss = self.forward_backward(step, travels_at_once, &mut times)?;
        if let Some(shadow) = self.shadow.as_mut().filter(|_| !travels_at_once) {
            let runs = shadow.runs(0).to_vec();
            let sample =
                runs.into_iter().flat_map(|run| &self.gradients[0][run]).copied().collect::<Vec<f32>>();
            self.curve = self.curve.take().or(shadow.see(&sample));
        }
        let look = probe.map(|probe| self.look(step, probe)).transpose()?.unwrap_or_default();
        let waiting = Instant::now();
        let outcome = if travels_at_once {
            self.synchronizer.wait().map(|(means, report)| {
                self.gradients = means;
                report
            })
        } else {
            let shows_weights = self.needs_weights || self.checks_replicas(step);
            let weights = if shows_weights { &self.weights[..] } else { NO_WEIGHTS };
            self.synchronizer.step(&mut self.gradients, weights)
        };
        times.wait += waiting.elapsed().as_secs_f64();

        let mut events = look.events;
        let report = match outcome {
            Ok(report) => {
                self.update(step, lr, report.density, &mut times)?;
                Some(report)
            }
            Err(error @ thinwire::Error::Skipped { .. }) => {
                if travels_at_once {
                    self.gradients = self.synchronizer.returned();
                }
                events.push(Event::Note { step, text: error.to_string() });
                None
            }
            Err(error) => return Err(error.into()),
        };
        let decisions = self.synchronizer.decisions().into_iter().map(|it| Event::Decision(Box::new(it)));
        events.extend(decisions);
        times.total = begun.elapsed().as_secs_f64() - look.seconds;
        let traffic = self.group.traffic() - traffic - look.traffic;
        let mut record = Step { step, epoch, loss, lr, skipped: report.is_none(), ..Step::default() };
        (record.sent, record.received) = (traffic.sent, traffic.received);
        record.note(&report.unwrap_or_default(), self.elements(), self.workers, times);
        for event in &mut events {
            if let Event::FillIn(fill_in) = event {
                fill_in.sent = (record.kept + record.dense_elements) as f64 / record.elements as f64;
            }
        }
        Ok((record, events))
    }

    /// The loss. Gradients that are ready are submitted if they travel at once, and lie in `gradients` otherwise.
    fn forward_backward(&mut self, step: u64, travels_at_once: bool, times: &mut Times) -> Result<f64> {
        let at = Instant::now();
        let (input, targets) = pass::input(&self.batch, self.data.kind, &self.device);
        times.data += at.elapsed().as_secs_f64();
        let (needs_weights, checks) = (self.needs_weights, self.checks_replicas(step));
        let Worker { segments, buckets, gradients, weights, synchronizer, .. } = self;
        gradients.iter_mut().for_each(Vec::clear);
        let (begun, mut forward, mut copy, mut handing_over) = (Instant::now(), 0.0, 0.0, 0.0);
        let mut refused = None;
        let loss = pass::forward_backward(
            segments,
            input,
            targets,
            || forward = begun.elapsed().as_secs_f64(),
            |number, tensors| {
                let at = Instant::now();
                let bucket = buckets.place(number).0;
                segments[number].gradients(tensors, &mut gradients[bucket]);
                copy += at.elapsed().as_secs_f64();
                if travels_at_once && buckets.completes(number) {
                    let at = Instant::now();
                    let weights = (needs_weights || checks).then(|| weights[bucket].clone());
                    let gradient = std::mem::take(&mut gradients[bucket]);
                    refused = refused.take().or(synchronizer.submit(bucket, gradient, weights).err());
                    handing_over += at.elapsed().as_secs_f64();
                }
            },
        );
        (times.forward, times.copy, times.wait) = (forward, copy, handing_over);
        times.backward = begun.elapsed().as_secs_f64() - forward - copy - handing_over;
        match refused {
            Some(error) => Err(error.into()),
            None => Ok(loss.into()),
        }
    }

    /// Whether the checksum of the weights is due.
    fn checks_replicas(&self, step: u64) -> bool {
        self.settings.check_every > 0 && (step + 1).is_multiple_of(self.settings.check_every)
    }

    /// New weights from the mean gradients.
    fn update(&mut self, step: u64, lr: f64, density: f64, times: &mut Times) -> Result<()> {
        let at = Instant::now();
        if self.settings.clip > 0.0 {
            clip_norm(&mut self.gradients, self.settings.clip);
        }
        self.optimizer.step(lr, density, &mut self.weights, &self.gradients);
        times.optimizer = at.elapsed().as_secs_f64();
        let every = self.settings.rebroadcast;
        if every > 0 && (step + 1).is_multiple_of(every) {
            let at = Instant::now();
            broadcast(&mut self.group, &mut self.weights)?;
            times.wait += at.elapsed().as_secs_f64();
        }
        let at = Instant::now();
        self.buckets.write(&self.weights, &mut self.segments);
        times.copy += at.elapsed().as_secs_f64();
        Ok(())
    }

    /// Shows the gradients to a probe.
    fn look(&mut self, step: u64, probe: &mut Probe) -> Result<Look> {
        let (at, traffic) = (Instant::now(), self.group.traffic());
        let residual = self.synchronizer.save()?.residual;
        let events =
            probe.look(step, &mut self.group, &self.buckets, &self.gradients, &self.weights, &residual)?;
        let traffic = self.group.traffic() - traffic;
        Ok(Look { events, seconds: at.elapsed().as_secs_f64(), traffic })
    }

    fn elements(&self) -> usize {
        self.buckets.lengths().iter().sum()
    }
}

/// What a probe saw, and what it cost.
#[derive(Default)]
struct Look {
    events: Vec<Event>,
    seconds: f64,
    traffic: Traffic,
}

/// All workers must have been told the same: an error names the first setting that differs.
fn agree_on(group: &mut SharedGroup, mine: &BTreeMap<String, String>) -> Result<()> {
    const LONGEST: usize = 65_536;
    let mine: Vec<String> = mine.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut gathered = Gathered::default();
    group.all_gather(mine.join("\n").as_bytes(), LONGEST, Algorithm::Tree, &mut gathered)?;
    for (rank, theirs) in gathered.iter().enumerate() {
        let mut pairs = mine.iter().zip(theirs.split(|byte| *byte == b'\n'));
        if let Some((mine, theirs)) = pairs.find(|(mine, theirs)| mine.as_bytes() != *theirs) {
            let theirs = peer_text(theirs);
            return Err(Error::BadSetting {
                name: format!("--{mine}"),
                found: "here".into(),
                expected: format!("worker {rank} has --{theirs}; start all workers with the same settings"),
            });
        }
    }
    Ok(())
}

/// Worker 0's weights for all.
pub(super) fn broadcast(group: &mut SharedGroup, weights: &mut [Vec<f32>]) -> Result<()> {
    for run in weights {
        let mut bytes: Vec<u8> = run.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        let length = bytes.len();
        group.broadcast(0, &mut bytes, length, Algorithm::for_size(length, group.size()))?;
        let (values, _) = bytes.as_chunks();
        if values.len() != run.len() {
            return Err(Error::BadSetting {
                name: "the model".into(),
                found: format!("{} weights here", run.len()),
                expected: format!("worker 0 has {}; start all workers with the same settings", values.len()),
            });
        }
        run.iter_mut().zip(values).for_each(|(weight, bytes)| *weight = f32::from_le_bytes(*bytes));
    }
    Ok(())
}

impl Step {
    /// Fills in what the synchronizer reports.
    fn note(&mut self, report: &StepReport, elements: usize, workers: usize, times: Times) {
        let compression = &report.compression;
        self.elements = elements;
        self.dense_elements = compression.dense;
        (self.asked, self.kept) = (compression.asked, compression.kept);
        (self.message_bytes, self.value_bytes) = (compression.frame_bytes, compression.value_bytes);
        (self.dense_layer_bytes, self.reduced_bytes) = (compression.dense_bytes, compression.reduced_bytes);
        self.dense_bytes = 8 * (workers as u64 - 1) * elements as u64 / workers as u64;
        self.gain = report.gain();
        self.leader = report.leader;
        self.times = Times {
            select: compression.select_time.as_secs_f64(),
            encode: compression.encode_time.as_secs_f64(),
            exchange: report.times.exchange.as_secs_f64(),
            settle: report.times.settle.as_secs_f64(),
            adapt: report.times.adapt.as_secs_f64(),
            synchronizer: report.times.total.as_secs_f64(),
            ..times
        };
    }
}

#[cfg(test)]
mod tests {
    use thinwire::group::Local;

    use super::*;

    #[test]
    fn settings_of_others_reach_no_terminal_as_they_are() {
        let errors = Local::run(2, |group| {
            let mut group = SharedGroup::new(group);
            let seed = if group.rank() == 0 { "1" } else { "2\x1b[2J\u{202e}" };
            agree_on(&mut group, &BTreeMap::from([("seed".to_owned(), seed.to_owned())]))
                .unwrap_err()
                .to_string()
        });
        assert!(errors[0].contains("worker 1 has --seed 2\u{fffd}[2J\u{fffd};"), "{errors:?}");
    }
}
