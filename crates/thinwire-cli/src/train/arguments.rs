//! What can be said about a training on the command line.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use thinwire::method::{Method, split_spec};
use thinwire_train::optimizer::{LearningRate, Schedule, ThetaSchedule};
use thinwire_train::trainer::Settings;

use crate::human;
use crate::ranks::{self, Backend, start};

/// What is trained, on what, and by how many workers.
#[derive(Debug, Clone, PartialEq, clap::Args)]
#[group(skip)]
pub struct Training {
    /// How many workers to start on this machine; not needed where RANK and WORLD_SIZE or mpirun say so
    #[arg(short = 'n', long, default_value_t = 4, allow_negative_numbers = true)]
    pub workers: usize,
    /// What connects them
    #[arg(long, value_enum, default_value_t = Backend::Tcp)]
    pub group: Backend,
    /// The model, with parameters as in cnn:width=32 (see `thinwire train --list`)
    #[arg(long, default_value = "cnn", help_heading = "What is trained")]
    pub model: String,
    /// The data set, with parameters as in cifar-10:folder=DIR; or a text file
    #[arg(long, default_value = "digits", help_heading = "What is trained")]
    pub data: String,
    /// How often the training data is gone through [default: 20 for digits, 5 otherwise]
    #[arg(long, help_heading = "What is trained", allow_negative_numbers = true)]
    pub epochs: Option<f64>,
    /// Samples in the batch of one worker
    #[arg(long, default_value_t = 16, help_heading = "What is trained", allow_negative_numbers = true)]
    pub batch: usize,
    /// The optimiser: sgd, adam or adamw, with parameters as in sgd:momentum=0.9,decay=5e-4
    #[arg(long, default_value = "sgd", help_heading = "How")]
    pub optimizer: String,
    /// The learning rate [default: 0.05 for sgd, 0.001 for adam and adamw]
    #[arg(long, help_heading = "How", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// How it changes: constant, step/30/60 (a tenth at each), step/30/60@0.2, cosine, cosine/0.01
    #[arg(long, value_name = "FORM", default_value = "constant", help_heading = "How")]
    pub lr_schedule: Schedule,
    /// Epochs in which it rises from a tenth to its value
    #[arg(
        long,
        value_name = "EPOCHS",
        default_value_t = 0.0,
        help_heading = "How",
        allow_negative_numbers = true
    )]
    pub lr_warmup: f64,
    /// Limit of the mean gradient's norm; 0 for none
    #[arg(
        long,
        value_name = "NORM",
        default_value_t = 0.0,
        help_heading = "How",
        allow_negative_numbers = true
    )]
    pub clip: f64,
    /// Send worker 0's weights to all every so many steps, as the FFT paper does; 0: not needed, replicas are equal
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 0,
        help_heading = "How",
        allow_negative_numbers = true
    )]
    pub rebroadcast: u64,
    /// How the method fft's theta changes: fixed, lr (falls with the learning rate), drop/EPOCH (0 from there on)
    #[arg(long, value_name = "FORM", default_value = "fixed", help_heading = "How")]
    pub theta_schedule: ThetaSchedule,
    /// Segments of the model with gradients smaller than this travel together with the next [default: the whole model
    /// for methods that select from all of it, 64KiB for the others]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, help_heading = "How")]
    pub bucket: Option<u64>,
    /// Let gradients travel only after the whole backward pass
    #[arg(long, help_heading = "How")]
    pub no_overlap: bool,
    /// Threads of each worker [default: the machine's cores divided by its workers]
    #[arg(long, help_heading = "How", allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Epochs from one measurement of the test set to the next
    #[arg(
        long,
        value_name = "EPOCHS",
        default_value_t = 1.0,
        help_heading = "What is recorded",
        allow_negative_numbers = true
    )]
    pub evaluate_every: f64,
    /// How many times gradients are looked at for the report; 0: never
    #[arg(long, default_value_t = 4, help_heading = "What is recorded", allow_negative_numbers = true)]
    pub probes: usize,
    #[command(flatten)]
    pub network: start::Settings,
}

impl Training {
    /// Where the workers are.
    pub fn ranks(&self) -> ranks::Arguments {
        ranks::Arguments::named(["--workers", "--group"], self.workers, self.group, self.network.clone())
    }

    /// The settings of a run with this method and seed.
    pub fn settings(&self, method: &str, density: Option<&str>, seed: u64) -> Result<Settings> {
        let lr = self.lr.unwrap_or(if self.optimizer.starts_with("adam") { 0.001 } else { 0.05 });
        let data = self.data()?;
        let epochs = self.epochs.unwrap_or(if data == "digits" { 20.0 } else { 5.0 });
        let ranks = self.ranks();
        let here = if ranks.starts_processes() || self.group == Backend::Local {
            self.workers
        } else {
            workers_on_this_machine().unwrap_or(1)
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let settings = Settings {
            model: self.model.clone(),
            data,
            method: with_density(method, density)?,
            optimizer: self.optimizer.clone(),
            lr: LearningRate { base: lr, schedule: self.lr_schedule.clone(), warmup: self.lr_warmup },
            theta: self.theta_schedule,
            epochs,
            batch: self.batch,
            seed,
            clip: self.clip,
            bucket_bytes: self.bucket.map(usize::try_from).transpose().context("--bucket")?,
            overlap: !self.no_overlap,
            threads: self.threads.unwrap_or((cores / here.max(1)).max(1)),
            evaluate_every: self.evaluate_every,
            probes: self.probes,
            rebroadcast: self.rebroadcast,
            group: self.group.name().into(),
            link: ranks.link(),
            ..Settings::default()
        };
        settings.check()?;
        Ok(settings)
    }

    /// The command line that says the same.
    pub fn to_arguments(&self) -> Vec<String> {
        let mut all = vec![
            format!("--workers={}", self.workers),
            format!("--group={}", self.group.name()),
            format!("--model={}", self.model),
            format!("--data={}", self.data),
            format!("--batch={}", self.batch),
            format!("--optimizer={}", self.optimizer),
            format!("--lr-schedule={}", self.lr_schedule),
            format!("--lr-warmup={}", self.lr_warmup),
            format!("--clip={}", self.clip),
            format!("--rebroadcast={}", self.rebroadcast),
            format!("--theta-schedule={}", self.theta_schedule),
            format!("--evaluate-every={}", self.evaluate_every),
            format!("--probes={}", self.probes),
        ];
        let mut add = |name: &str, value: Option<String>| {
            all.extend(value.map(|value| format!("--{name}={value}")));
        };
        add("epochs", self.epochs.map(|epochs| epochs.to_string()));
        add("lr", self.lr.map(|lr| lr.to_string()));
        add("threads", self.threads.map(|threads| threads.to_string()));
        add("bucket", self.bucket.map(|bytes| bytes.to_string()));
        add("link", self.network.link.clone());
        add("secret-file", self.network.secret_file.clone());
        add("deadline", self.network.deadline.map(|deadline| deadline.to_string()));
        add("port", self.network.port.map(|port| port.to_string()));
        add("grace", self.network.grace.map(|grace| grace.to_string()));
        all.extend(self.no_overlap.then(|| "--no-overlap".to_owned()));
        all
    }

    /// A file is taken for text.
    fn data(&self) -> Result<String> {
        let path = std::path::Path::new(&self.data);
        if path.is_file() {
            ensure!(
                !self.data.contains(','),
                "--data {}: the path of a text must not have a comma",
                self.data
            );
            return Ok(format!("text:file={}", self.data));
        }
        let name = split_spec(&self.data).0;
        let looks_like_a_path = name.contains(['/', '.']);
        ensure!(
            !looks_like_a_path,
            "--data {}: there is no such file, and no data set of that name",
            self.data
        );
        Ok(self.data.clone())
    }
}

/// As torchrun, Open MPI or Slurm say, or, where nobody does, as many as there are in all.
fn workers_on_this_machine() -> Option<usize> {
    let names = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", "WORLD_SIZE"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).filter(|workers| *workers > 0)
}

/// The method with `density`, as the parameter that it has for it.
fn with_density(method: &str, density: Option<&str>) -> Result<String> {
    let Some(density) = density else { return Ok(method.to_owned()) };
    let (name, parameters) = split_spec(method);
    let known = Method::find(name)?;
    let given = if known.has("density") {
        format!("density={density}")
    } else {
        ensure!(
            !known.has("max_density"),
            "--density {density}: {name} chooses it; bound it by {name}:min_density=0.001,max_density=0.1"
        );
        ensure!(known.has("theta"), "--density {density}: the method {name} has no density");
        let density = thinwire::method::parse(&format!("topk:density={density}"))?.density;
        format!("theta={}", 1.0 - density)
    };
    let comma = if parameters.is_empty() { "" } else { "," };
    let spec = format!("{name}:{parameters}{comma}{given}");
    Ok(thinwire::method::parse(&spec).with_context(|| format!("--density {density}"))?.spec)
}

/// Where a run is kept.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Keeping {
    /// The folder for metrics, report and logs [default: a new one under runs/]
    #[arg(long, value_name = "DIR", help_heading = "What is recorded")]
    pub run: Option<PathBuf>,
    /// Write checkpoints there
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints")]
    pub save: Option<PathBuf>,
    /// Epochs from one checkpoint to the next; there is one at the end in any case
    #[arg(
        long,
        value_name = "EPOCHS",
        default_value_t = 1.0,
        help_heading = "Checkpoints",
        allow_negative_numbers = true
    )]
    pub save_every: f64,
    /// Go on from the checkpoint there, with the same settings
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints")]
    pub resume: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Training, with_density};

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        training: Training,
    }

    #[test]
    fn what_is_said_can_be_said_again() {
        let given = "x -n 3 --group local --model mlp:hidden=7 --data king-james --epochs 0.5 --batch 9 --lr 0.3 \
                     --optimizer sgd:momentum=0 --lr-schedule step/1@0.5 --lr-warmup 0.25 --clip 1.5 --rebroadcast 10 \
                     --theta-schedule drop/2 --bucket 1MB --no-overlap --threads 2 --evaluate-every 0.1 --probes 0 \
                     --link 1gbit,2ms --secret-file f --deadline 7 --port 99 --grace 4";
        for words in [given, "x"] {
            let training = Only::parse_from(words.split_whitespace()).training;
            let again = ["x".to_owned()].into_iter().chain(training.to_arguments());
            assert_eq!(Only::parse_from(again).training, training);
        }
    }

    #[test]
    fn a_density_goes_where_the_method_has_one() {
        let spec =
            |method, density| with_density(method, Some(density)).map_err(|error| format!("{error:#}"));
        assert_eq!(spec("topk", "0.1%").unwrap(), "topk:density=0.001");
        assert_eq!(spec("redsync:quantize=true", "1/64").unwrap(), "redsync:density=0.015625,quantize=true");
        assert_eq!(spec("fft", "0.25").unwrap(), "fft:theta=0.75");
        assert!(spec("dense", "0.1").unwrap_err().contains("dense has no density"));
        assert!(spec("auto", "0.1").unwrap_err().contains("max_density"));
        assert!(spec("topk", "7").unwrap_err().contains("--density 7"));
        assert!(spec("topk:density=0.1", "0.2").unwrap_err().contains("given once"));
        assert_eq!(with_density("topk", None).unwrap(), "topk");
    }
}
