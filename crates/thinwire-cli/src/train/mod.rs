//! `thinwire train`: the main job.

mod arguments;
mod folder;
mod list;
mod progress;
mod recorder;
mod summary;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use thinwire::group::{Group, SharedGroup};
use thinwire_train::event::{End, Event, Run};
use thinwire_train::report::{self, Recorded};
use thinwire_train::trainer::{self, Settings};

pub use arguments::Training;

use crate::ranks::Backend;
use crate::{files, logging, output};
use arguments::Keeping;
use recorder::Recorder;

/// Train a model with several workers that exchange compressed gradients.
///
/// Without options: four worker processes on this machine train a small convolutional network on the embedded
/// digits, exchange a hundredth of the gradient over TCP, and write a report. What a run did is kept in a folder:
/// metrics.jsonl (one event a line), summary.json, report.html, and a log of each worker but the first.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// The method (see `thinwire methods`), with parameters as in redsync:density=0.001,quantize=true
    #[arg(long, default_value = "ar-topk")]
    method: String,
    /// The part of the gradient to send, such as 0.1%; short for the method's own parameter
    #[arg(long, allow_negative_numbers = true)]
    density: Option<String>,
    /// The seed of weights, order of samples and augmentation
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// A name for tables and legends [default: the method]
    #[arg(long, help_heading = "What is recorded")]
    name: Option<String>,
    /// Also write the figures of the run to this file, as JSON; - for the standard output
    #[arg(long, value_name = "FILE", help_heading = "What is recorded")]
    json: Option<PathBuf>,
    /// List models, data sets and optimisers with their parameters, and end
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    training: Training,
    #[command(flatten)]
    keeping: Keeping,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire train
  thinwire train --method redsync --density 0.1% --link 100mbit,1ms
  thinwire train --data fashion-mnist --epochs 5 --save checkpoints
  thinwire train --data fashion-mnist --epochs 5 --save checkpoints --resume checkpoints
  thinwire train --data book.txt --model lstm --lr 2
  mpirun -np 4 thinwire train --group mpi

On several machines start the same command on each, once for each worker, with RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT set, as torchrun and Slurm do; worker 0 speaks and writes the report.";

/// What a run left behind.
struct Outcome {
    folder: PathBuf,
    run: Run,
    end: End,
    /// What could not be written at the end.
    lost: Option<anyhow::Error>,
}

/// Trains.
pub fn run(arguments: Arguments) -> Result<()> {
    if arguments.list {
        return output::print(&list::list());
    }
    let training = &arguments.training;
    let mut settings = training.settings(&arguments.method, arguments.density.as_deref(), arguments.seed)?;
    settings.name = arguments.name.clone().unwrap_or_default();
    settings.save = arguments.keeping.save.clone();
    settings.save_every = arguments.keeping.save_every;
    settings.resume = arguments.keeping.resume.clone();
    let ranks = training.ranks();
    if ranks.starts_processes() || ranks.backend() == Backend::Local {
        // A mistake is told once, not by each worker, and before the work.
        trainer::check(&settings, ranks.ranks())?;
        training.network.for_ranks(ranks.ranks())?;
        if let Some(path) = arguments.json.as_deref().filter(|path| *path != Path::new("-")) {
            files::check_place(path).context("--json")?;
        }
        if let Some(folder) = arguments.keeping.run.as_deref().filter(|_| settings.resume.is_none()) {
            let finished = Recorded::read(folder).is_ok_and(|recorded| !recorded.interrupted());
            ensure!(
                !finished,
                "--run {}: there is a finished run in it; give another folder",
                folder.display()
            );
        }
        for folder in [&arguments.keeping.run, &settings.save].into_iter().flatten() {
            folder::make(folder)?;
        }
    }
    ranks.run(
        |group| work(group, &settings, arguments.keeping.run.as_deref()),
        |outcome| show(outcome, arguments.json.as_deref()),
    )
}

/// What one worker does.
fn work(mut group: SharedGroup, settings: &Settings, folder: Option<&Path>) -> Result<Outcome> {
    let (rank, workers) = (group.rank(), group.size());
    let prepared = folder::agree(&mut group, folder, settings).and_then(|folder| {
        let recorder = Recorder::new(&folder, rank, settings, workers)?;
        Ok((folder, recorder))
    });
    let (folder, mut recorder) = prepared.inspect_err(|error| group.abandon(&format!("{error:#}")))?;
    let (mut about, mut figures) = (Run::default(), None);
    let trained = trainer::train(group, settings, &mut |event| {
        match event {
            Event::Run(run) => about = (**run).clone(),
            Event::End(end) => figures = Some((**end).clone()),
            _ => {}
        }
        recorder.record(event)
    });
    recorder.end(trained.as_ref().err());
    let (end, lost) = match (trained, figures) {
        (Ok(end), _) => (end, None),
        // The training has come to its end all the same.
        (Err(error @ thinwire_train::Error::NotSaved { .. }), Some(end)) if rank == 0 => {
            (end, Some(error.into()))
        }
        (Err(error), _) => {
            let quiet = rank != 0 && settings.group != "local" && !is_loss_of_worker_0(&error);
            let error = anyhow::Error::from(error);
            return Err(if quiet { error.context(logging::Logged) } else { error });
        }
    };
    let written = if rank == 0 { write_results(&folder, &about, &end) } else { Ok(()) };
    Ok(Outcome { folder, run: about, end, lost: lost.or(written.err()) })
}

/// What is made from a run at its end: `summary.json` and `report.html`.
fn write_results(folder: &Path, about: &Run, end: &End) -> Result<()> {
    let json = serde_json::to_string_pretty(&serde_json::json!({ "run": about, "end": end }))?;
    files::write(&folder.join("summary.json"), |out| Ok(out.write_all(json.as_bytes())?))?;
    let title = format!("{} on {}", about.model, about.data);
    Ok(report::write(&folder.join("report.html"), &[Recorded::read(folder)?], &title)?)
}

/// Whether nobody is left who would tell the user.
fn is_loss_of_worker_0(error: &thinwire_train::Error) -> bool {
    use thinwire::Error::{PeerLost, PeerSilent};
    matches!(error, thinwire_train::Error::Engine(PeerLost { rank: 0, .. } | PeerSilent { rank: 0, .. }))
}

/// Shows what came out, and only then what could not be kept of it.
fn show(outcome: Outcome, json: Option<&Path>) -> Result<()> {
    let Outcome { folder, run, end, mut lost } = outcome;
    let figures = serde_json::json!({ "folder": folder, "run": run, "end": end });
    match json {
        Some(path) if path == Path::new("-") => output::print_json(&figures)?,
        Some(path) => {
            let text = serde_json::to_string_pretty(&figures)? + "\n";
            let written = files::write(path, |out| Ok(out.write_all(text.as_bytes())?)).context("--json");
            output::print(&summary::text(&folder, &run, &end))?;
            lost = lost.or(written.err());
        }
        None => output::print(&summary::text(&folder, &run, &end))?,
    }
    lost.map_or(Ok(()), Err)
}
