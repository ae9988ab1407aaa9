//! What is trained, and how.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thinwire::memory::{Length, Warmup};
use thinwire::method::{self, split_spec};
use thinwire::pipeline::{Exchange, Momentum, Recipe, Scope};

use crate::data::shard::Epochs;
use crate::optimizer::{self, LearningRate, Schedule, ThetaSchedule};
use crate::{Error, Result};

/// Everything a training needs to know. The same on all workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// A short name for tables and legends; empty: the method.
    pub name: String,
    /// The model, such as `cnn`.
    pub model: String,
    /// The data set, such as `digits`.
    pub data: String,
    /// The method, such as `redsync:density=0.001`.
    pub method: String,
    /// The optimiser, such as `sgd:momentum=0.9`.
    pub optimizer: String,
    /// The learning rate, and how it changes.
    pub lr: LearningRate,
    /// How the dropped part of the frequencies changes, for `fft`.
    pub theta: ThetaSchedule,
    /// Epochs.
    pub epochs: f64,
    /// Samples in the batch of one worker.
    pub batch: usize,
    /// The seed of weights, order and augmentation.
    pub seed: u64,
    /// Limit of the mean gradient's norm; 0: none.
    pub clip: f64,
    /// Segments whose gradients are smaller than this many bytes travel together with the next. `None`: everything
    /// travels together where the method selects from the bucket as a whole, as its paper does; otherwise 64 KiB.
    pub bucket_bytes: Option<usize>,
    /// Whether gradients travel while the backward pass still runs.
    pub overlap: bool,
    /// Threads of one worker.
    pub threads: usize,
    /// Epochs from one measurement of the test set to the next.
    pub evaluate_every: f64,
    /// How many times the gradients are looked at for the report.
    pub probes: usize,
    /// Worker 0's weights are broadcast every so many steps; 0: never.
    pub rebroadcast: u64,
    /// Checksums of the replicas are compared every so many steps; 0: only at the end.
    pub check_every: u64,
    /// Where checkpoints are written.
    pub save: Option<PathBuf>,
    /// Epochs from one checkpoint to the next; there is one at the end in any case.
    pub save_every: f64,
    /// The checkpoint to go on from.
    pub resume: Option<PathBuf>,
    /// What connects the workers, for the record.
    pub group: String,
    /// The link that is imitated, for the record.
    pub link: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            name: String::new(),
            model: "cnn".into(),
            data: "digits".into(),
            method: "ar-topk".into(),
            optimizer: "sgd".into(),
            lr: LearningRate { base: 0.05, schedule: Schedule::default(), warmup: 0.0 },
            theta: ThetaSchedule::default(),
            epochs: 10.0,
            batch: 32,
            seed: 1,
            clip: 0.0,
            bucket_bytes: None,
            overlap: true,
            threads: 1,
            evaluate_every: 1.0,
            probes: 4,
            rebroadcast: 0,
            check_every: 100,
            save: None,
            save_every: 1.0,
            resume: None,
            group: "local".into(),
            link: None,
        }
    }
}

/// Before sparse steps under Adam, whose second moment is taken from it.
const ADAM_WARMUP: &str = "quantized/15%";

fn wrong(name: &str, found: String, expected: &str) -> Error {
    Error::BadSetting { name: format!("--{name}"), found, expected: expected.into() }
}

impl Settings {
    /// Says what can't be.
    pub fn check(&self) -> Result<()> {
        let positive = |number: f64| number.is_finite() && number > 0.0;
        let LearningRate { base, warmup, .. } = self.lr;
        if !positive(base) {
            return Err(wrong("lr", base.to_string(), "give a number above 0"));
        }
        if !(warmup.is_finite() && warmup >= 0.0) {
            return Err(wrong("lr-warmup", warmup.to_string(), "give epochs, 0 or more"));
        }
        if !positive(self.epochs) {
            return Err(wrong("epochs", self.epochs.to_string(), "give a number above 0"));
        }
        if !positive(self.evaluate_every) {
            let found = self.evaluate_every.to_string();
            return Err(wrong("evaluate-every", found, "give epochs, a number above 0"));
        }
        if !positive(self.save_every) {
            return Err(wrong("save-every", self.save_every.to_string(), "give epochs, a number above 0"));
        }
        if !(self.clip.is_finite() && self.clip >= 0.0) {
            return Err(wrong("clip", self.clip.to_string(), "give a number above 0, or 0 for no limit"));
        }
        if self.batch == 0 {
            return Err(wrong("batch", "0".into(), "give at least 1"));
        }
        if self.threads == 0 {
            return Err(wrong("threads", "0".into(), "give at least 1"));
        }
        let recipe = method::parse(&self.method)?;
        if self.theta != ThetaSchedule::Fixed && split_spec(&self.method).0 != "fft" {
            return Err(wrong("theta-schedule", self.theta.to_string(), "only the method fft has a theta"));
        }
        let optimizer = optimizer::Spec::parse(&self.optimizer)?;
        if recipe.momentum != Momentum::Off && recipe.masking && split_spec(&self.optimizer).0 != "sgd" {
            let expected =
                "momentum correction is for sgd; leave the method's momentum at 0, or give masking=false";
            return Err(wrong("optimizer", optimizer.to_string(), expected));
        }
        self.check_warmup_of(&optimizer)
    }

    /// Refuses a sparse method under Adam without full steps at the start.
    fn check_warmup_of(&self, optimizer: &optimizer::Spec) -> Result<()> {
        let recipe = method::parse(&self.with_momentum_moved()?.0)?;
        let local = recipe.momentum != Momentum::Off && !recipe.masking;
        let full = matches!(recipe.warmup, Warmup::Dense(_) | Warmup::Quantized { .. });
        if optimizer.beta1().is_some() && local && !full {
            let expected = "a warm-up that sends everything, such as warmup=quantized/15%: adam takes its second moment \
                            from it";
            return Err(wrong("method", self.method.clone(), expected));
        }
        Ok(())
    }

    /// Steps of the whole run.
    pub(super) fn steps(&self, epochs: &Epochs) -> u64 {
        ((self.epochs * epochs.steps_per_epoch() as f64).round() as u64).max(1)
    }

    /// The bytes up to which segments travel together, with this method.
    pub(super) fn bucket_bytes_with(&self, recipe: &Recipe) -> usize {
        const SMALL: usize = 64 << 10;
        let chooses = !matches!(recipe.exchange, Exchange::Dense | Exchange::Quantized(_));
        let whole = recipe.scope == Scope::Bucket && chooses;
        self.bucket_bytes.unwrap_or(if whole { usize::MAX } else { SMALL })
    }

    /// What must be the same for a run to go on from a checkpoint with the same bits. The number of epochs is free
    /// unless the learning rate or the warm-up of the method depends on it: a run may be made longer.
    pub fn identity(&self, workers: usize) -> BTreeMap<String, String> {
        let over_the_run = |text: String| format!("{text} over {} epochs", self.epochs);
        let schedule = match &self.lr.schedule {
            schedule @ Schedule::Cosine { .. } => over_the_run(schedule.to_string()),
            schedule => schedule.to_string(),
        };
        // The warm-up may be the method's own, or the one that the optimiser asks for.
        let of_the_run = |method: &str| {
            method::parse(method).is_ok_and(|recipe| matches!(recipe.warmup.length(), Some(Length::Part(_))))
        };
        let moved = self.with_momentum_moved().is_ok_and(|(method, _)| of_the_run(&method));
        let (mut method, mut optimizer) = (self.method.clone(), self.optimizer.clone());
        if of_the_run(&method) {
            method = over_the_run(method);
        } else if moved {
            optimizer = over_the_run(optimizer);
        }
        let pairs = [
            ("model", self.model.clone()),
            ("data", self.data.clone()),
            ("method", method),
            ("optimizer", optimizer),
            ("lr", self.lr.base.to_string()),
            ("lr-warmup", self.lr.warmup.to_string()),
            ("lr-schedule", schedule),
            ("theta-schedule", self.theta.to_string()),
            ("batch", self.batch.to_string()),
            ("seed", self.seed.to_string()),
            ("clip", self.clip.to_string()),
            ("bucket", self.bucket_bytes.map_or("auto".into(), |bytes| bytes.to_string())),
            ("threads", self.threads.to_string()),
            ("rebroadcast", self.rebroadcast.to_string()),
            ("workers", workers.to_string()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What runs have in common whose results may be averaged: all of that but the seed, and what changes times only.
    pub fn kind(&self, workers: usize) -> BTreeMap<String, String> {
        let mut kind = self.identity(workers);
        kind.remove("seed");
        let rest = [
            ("epochs", self.epochs.to_string()),
            ("overlap", self.overlap.to_string()),
            ("evaluate-every", self.evaluate_every.to_string()),
            ("probes", self.probes.to_string()),
            ("group", self.group.clone()),
            ("link", self.link.clone().unwrap_or_default()),
        ];
        kind.extend(rest.map(|(name, value)| (name.to_owned(), value)));
        kind
    }

    /// What all workers must have been told alike.
    pub(super) fn shared(&self, workers: usize) -> BTreeMap<String, String> {
        let mut shared = self.kind(workers);
        // Each worker has the threads its machine allows, and may have a link of its own.
        shared.retain(|name, _| name != "threads" && name != "link");
        let rest = [
            ("seed", self.seed.to_string()),
            ("check-every", self.check_every.to_string()),
            ("save", self.save.is_some().to_string()),
            ("save-every", self.save_every.to_string()),
            ("resume", self.resume.is_some().to_string()),
        ];
        shared.extend(rest.map(|(name, value)| (name.to_owned(), value)));
        shared
    }

    /// Where the method corrects momentum, as its paper asks, the optimiser's momentum moves into the method's
    /// memory: gives the method to use, and whether that was done. `dgc` and `redsync` do it by themselves, other
    /// methods when they are given a `momentum`. Under Adam every sparse method gets a local momentum, without masking,
    /// and a quantised warm-up unless it has another one. Without Adam `auto` gets sparse candidates, unless it names some.
    pub fn with_momentum_moved(&self) -> Result<(String, bool)> {
        let (name, parameters) = split_spec(&self.method);
        let recipe = method::parse(&self.method)?;
        if recipe.momentum != Momentum::Off {
            return Ok((recipe.spec, true));
        }
        let given = |what: &str| parameters.split(',').any(|pair| pair.trim_start().starts_with(what));
        let optimizer = optimizer::Spec::parse(&self.optimizer)?;
        let sparse = recipe.selector.is_some() && recipe.density < 1.0 && recipe.limits.is_none();
        if let Some(beta1) = optimizer.beta1().filter(|_| sparse && recipe.feedback && !given("momentum")) {
            let mut all: Vec<String> =
                parameters.split(',').filter(|it| !it.is_empty()).map(Into::into).collect();
            all.extend([format!("momentum={beta1}"), "masking=false".into()]);
            if !given("warmup") {
                all.push(format!("warmup={ADAM_WARMUP}"));
            }
            return Ok((method::parse(&format!("{name}:{}", all.join(",")))?.spec, true));
        }
        match optimizer.momentum() {
            _ if name == "auto" && optimizer.beta1().is_none() => Ok((method::for_sgd(&self.method)?, false)),
            Some(momentum) if matches!(name, "dgc" | "redsync") && !given("momentum") => {
                let comma = if parameters.is_empty() { "" } else { "," };
                let moved = match given("nesterov") {
                    true => format!("momentum={}", momentum.coefficient),
                    false => momentum.to_string(),
                };
                Ok((method::parse(&format!("{name}:{parameters}{comma}{moved}"))?.spec, true))
            }
            _ => Ok((recipe.spec, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(method: &str, optimizer: &str) -> (String, bool) {
        let settings = Settings { method: method.into(), optimizer: optimizer.into(), ..Settings::default() };
        settings.with_momentum_moved().unwrap()
    }

    #[test]
    fn momentum_moves_where_the_paper_corrects_it() {
        assert_eq!(moved("redsync", "sgd"), ("redsync:momentum=0.9".into(), true));
        let nesterov = moved("dgc:density=0.01", "sgd:momentum=0.8,nesterov=true");
        assert_eq!(nesterov, ("dgc:density=0.01,momentum=0.8,nesterov=true".into(), true));
        let given = moved("dgc:nesterov=true", "sgd");
        assert_eq!(given, ("dgc:momentum=0.9,nesterov=true".into(), true));
        assert_eq!(moved("topk", "sgd"), ("topk".into(), false));
        assert_eq!(moved("topk:momentum=0.9", "sgd"), ("topk:momentum=0.9".into(), true));
        assert_eq!(moved("redsync:momentum=0", "sgd"), ("redsync".into(), false));
        assert_eq!(moved("redsync", "sgd:momentum=0"), ("redsync".into(), false));
        let adam = "momentum=0.9,masking=false,warmup=quantized/15%";
        assert_eq!(moved("redsync", "adam"), (format!("redsync:{adam}"), true));
        assert_eq!(
            moved("topk:warmup=dense/2", "adamw:beta1=0.8").0,
            "topk:momentum=0.8,masking=false,warmup=dense/2"
        );
        assert_eq!(moved("topk:momentum=0", "adam"), ("topk".into(), false));
        for method in ["quantized", "dense", "topk:density=1", "topk:feedback=false"] {
            assert_eq!(moved(method, "adam"), (method.into(), false));
        }
    }

    #[test]
    fn auto_selects_only_where_the_optimiser_takes_it() {
        let candidates = |optimizer: &str, method: &str| moved(method, optimizer).0;
        assert!(candidates("sgd", "auto").ends_with("|quantized|topk|ar-topk"));
        assert!(candidates("sgd:momentum=0", "auto:min_density=0.01").contains("|topk|ar-topk,"));
        for optimizer in ["adam", "adamw"] {
            assert_eq!(candidates(optimizer, "auto"), "auto");
            assert_eq!(candidates(optimizer, "auto:methods=dense|topk"), "auto:methods=dense|topk");
        }
        assert_eq!(candidates("sgd", "auto:methods=dense|fft"), "auto:methods=dense|fft");
    }

    #[test]
    fn what_cannot_be_is_named() {
        let error = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(Settings::default().check().is_ok());
        assert!(error(|s| s.lr.base = f64::NAN).contains("--lr NaN"));
        assert!(error(|s| s.epochs = 0.0).contains("--epochs 0"));
        assert!(error(|s| s.batch = 0).contains("--batch"));
        assert!(error(|s| s.clip = -1.0).contains("--clip -1"));
        assert!(error(|s| s.method = "nope".into()).contains("gaussian-k"));
        assert!(error(|s| s.optimizer = "nope".into()).contains("adamw"));
        assert!(error(|s| s.theta = ThetaSchedule::LearningRate).contains("fft"));
        let both = error(|s| (s.method, s.optimizer) = ("topk:momentum=0.9".into(), "adam".into()));
        assert!(both.contains("momentum correction"), "{both}");
        let cold = error(|s| (s.method, s.optimizer) = ("topk:warmup=none".into(), "adam".into()));
        assert!(cold.contains("warmup=quantized/15%"), "{cold}");
    }
}
