//! `thinwire compare`: the same training with several methods.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use thinwire_train::report::{self, Recorded};
use thinwire_train::trainer;

use crate::ranks::processes;
use crate::ranks::signals::{self, SIGCHLD, Signals, TERMINATING};
use crate::train::Training;
use crate::{files, output};

/// Train the same model with several methods, and compare what came out.
///
/// Every method trains with every seed, one run after the other, each in processes of its own; everything but the
/// method is the same. Runs that are in the folder already, with the same settings, are not made again, so that a
/// comparison that was interrupted goes on, and another method or seed can be added.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// A method, with parameters as in redsync:density=0.001; may be given many times [default: one of each paper]
    #[arg(short, long = "method", value_name = "METHOD")]
    methods: Vec<String>,
    /// The seeds
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seeds: Vec<u64>,
    /// Also tell the time to this accuracy, such as 88%, or to this perplexity
    #[arg(long, value_parser = crate::report::target, allow_negative_numbers = true)]
    target: Option<f64>,
    /// The folder for the runs and the report
    #[arg(short, long, value_name = "DIR", default_value = "runs/compare")]
    output: PathBuf,
    /// The heading of the report
    #[arg(long)]
    title: Option<String>,
    /// Also write the table to this file, as JSON; - for the standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    training: Training,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire compare
  thinwire compare --method dense --method redsync:quantize=true --seeds 1,2,3 --data fashion-mnist --target 88%
  thinwire compare --link 100mbit,1ms --method dense --method ar-topk:leader=var";

/// Everything dense, and each of the five papers.
const METHODS: [&str; 6] =
    ["dense", "ar-topk", "gaussian-k:density=0.01", "redsync:density=0.01", "iwp", "fft"];

/// Longest wait between looks at a run; signals and its end are noticed at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Compares.
pub fn run(arguments: Arguments) -> Result<()> {
    let Arguments { methods, seeds, target, output: folder, title, json, training } = arguments;
    ensure!(
        training.ranks().starts_processes() || training.group.name() == "local",
        "compare starts its workers itself: use --group tcp or local, and leave RANK unset"
    );
    if let Some(path) = json.as_deref().filter(|path| *path != Path::new("-")) {
        files::check_place(path).context("--json")?;
    }
    let methods =
        if methods.is_empty() { METHODS.map(str::to_owned).to_vec() } else { without_repeats(methods) };
    let seeds = without_repeats(seeds);
    let mut planned = Vec::new();
    for seed in &seeds {
        for method in &methods {
            // All mistakes are told before the first run begins; one look at the data is enough.
            let settings =
                training.settings(method, None, *seed).with_context(|| format!("--method {method}"))?;
            if planned.is_empty() {
                trainer::check(&settings, training.workers)?;
            }
            let place = folder.join(format!("{}-seed{seed}", file_name(method)));
            planned.push((method.as_str(), *seed, place));
        }
    }
    // Whoever ends this process means the run too.
    let mut signals = Signals::catch(&[&TERMINATING[..], &[SIGCHLD]].concat())?;
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("can't make the folder {}", folder.display()))?;
    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    for (number, (method, seed, place)) in planned.iter().enumerate() {
        let known = finished(place, &training, method, *seed)?;
        if known.is_none() {
            output::note(&format!("run {} of {}: {method}, seed {seed}", number + 1, planned.len()));
            if let Err(error) = train(&training, method, *seed, place, &mut signals) {
                // The others are worth having; what was recorded of this one is shown as interrupted.
                output::note(&format!("{error:#}; going on with the next"));
                failed.push(format!("{method} with seed {seed}"));
            }
        }
        match known.map_or_else(|| Recorded::read(place), Ok) {
            Ok(recorded) => runs.push(recorded),
            Err(error) if failed.is_empty() => return Err(error.into()),
            Err(_) => {}
        }
    }
    ensure!(!runs.is_empty(), "no run came to anything: {}", failed.join(", "));
    crate::report::check_target(target, runs[0].run.measure)?;
    let title = title.unwrap_or_else(|| crate::report::title(&runs));
    let file = folder.join("report.html");
    report::write_with_target(&file, &runs, &title, target)?;
    let rows = report::compare(&runs, target);
    let figures = serde_json::json!({
        "title": title, "report": file, "methods": rows,
        "runs": runs.iter().map(|run| serde_json::json!({"run": run.run, "end": run.end})).collect::<Vec<_>>(),
    });
    match json.as_deref() {
        Some(path) if path == Path::new("-") => {
            output::print_json(&figures)?;
            return report_failures(&failed);
        }
        Some(path) => {
            let text = serde_json::to_string_pretty(&figures)? + "\n";
            files::write(path, |out| Ok(out.write_all(text.as_bytes())?)).context("--json")?;
        }
        None => {}
    }
    output::print(&crate::report::table(&rows))?;
    output::print(&format!("report  {}\n", file.display()))?;
    report_failures(&failed)
}

fn report_failures(failed: &[String]) -> Result<()> {
    ensure!(failed.is_empty(), "runs that failed: {}", failed.join(", "));
    Ok(())
}

/// Each once, in the order given.
fn without_repeats<T: PartialEq>(given: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in given {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// The run in this folder, if it is the one that is wanted and has ended.
fn finished(place: &Path, training: &Training, method: &str, seed: u64) -> Result<Option<Recorded>> {
    if !place.join("metrics.jsonl").exists() {
        return Ok(None);
    }
    let Ok(recorded) = Recorded::read(place) else { return Ok(None) };
    let settings = training.settings(method, None, seed)?;
    let run = &recorded.run;
    // The method with the momentum where it has moved; the data as the run found it.
    let method = ("method".to_owned(), run.method.clone(), settings.with_momentum_moved()?.0);
    let rest = settings.kind(training.workers).into_iter().filter(|(name, _)| name != "method").map(
        |(name, wanted)| {
            let found = run.settings.get(&name).cloned().unwrap_or_default();
            (name, found, wanted)
        },
    );
    for (what, found, wanted) in [method].into_iter().chain(rest) {
        if found != wanted {
            bail!(
                "{} holds a run with other settings: --{what} was {found:?} and is {wanted:?} now; give another --output",
                place.display()
            );
        }
    }
    Ok(Some(recorded).filter(|recorded| !recorded.interrupted()))
}

fn train(training: &Training, method: &str, seed: u64, place: &Path, signals: &mut Signals) -> Result<()> {
    let program = std::env::current_exe().context("can't find this program's own file")?;
    let mut command = Command::new(program);
    command
        .arg("train")
        .args(training.to_arguments())
        .args(["--method", method, "--name", method, "--seed", &seed.to_string()])
        .args([OsString::from("--run"), place.into()])
        .stdout(std::process::Stdio::null());
    processes::end_with_parent(&mut command, Signal::TERM);
    let mut child = command.spawn().context("can't start a run")?;
    let status = loop {
        if let Some(status) = child.try_wait().context("can't ask for the state of a run")? {
            break status;
        }
        if let Some(signal) = signals.wait(PAUSE).into_iter().find(|signal| TERMINATING.contains(signal)) {
            // The run ends its workers itself when it is asked to end; it may have ended just now.
            let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::TERM);
            let _ = child.wait();
            output::note(&format!(
                "error: ended by {}, and the run with it; the same command goes on from here",
                signals::name(signal)
            ));
            signals::end_by(signal);
        }
    };
    ensure!(status.success(), "the run with {method} and seed {seed} ended with {status}");
    Ok(())
}

/// A method as a part of a file name.
fn file_name(method: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    method.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_make_good_file_names() {
        assert_eq!(file_name("redsync:density=0.001,warmup=dense/1"), "redsync-density-0.001-warmup-dense-1");
    }

    #[test]
    fn the_methods_of_the_default_are_methods() {
        assert!(METHODS.iter().all(|method| thinwire::method::parse(method).is_ok()));
    }
}
