//! The program `thinwire`: trains over a thin wire, plans, compresses gradient files, looks into them, and measures
//! the engine.

mod bench;
mod compare;
mod compress;
mod container;
mod decompress;
mod files;
mod human;
mod inspect;
mod launch;
mod logging;
mod methods;
mod output;
mod plan;
mod probe;
mod ranks;
mod report;
mod simulate;
mod tensors;
mod train;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Training over slow networks with compressed gradients.
///
/// Trains a model with several workers, compares methods, tells beforehand what a step will take, compresses a
/// gradient file, and measures the engine.
#[derive(Debug, Parser)]
#[command(name = "thinwire", version, after_help = AFTER_HELP)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Example:
  thinwire train
  thinwire plan --model resnet50 --workers 8 --link 1gbit,1ms
  thinwire simulate --workers 64 --schedule c1
  thinwire methods
  thinwire compress gradient.npy -o gradient.tw --method topk --density 1%
  thinwire inspect gradient.tw
  thinwire decompress gradient.tw -o back.npy";

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Arguments),
    Compare(compare::Arguments),
    Report(report::Arguments),
    Compress(compress::Arguments),
    Decompress(decompress::Arguments),
    Inspect(inspect::Arguments),
    Methods(methods::Arguments),
    Plan(plan::Arguments),
    Simulate(simulate::Arguments),
    Launch(launch::Arguments),
    Probe(probe::Arguments),
    Bench(bench::Arguments),
    #[command(hide = true)]
    Supervise(ranks::supervise::Arguments),
}

fn main() -> ExitCode {
    logging::start();
    let result = match Program::parse().command {
        Command::Train(arguments) => train::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Compress(arguments) => compress::run(arguments),
        Command::Decompress(arguments) => decompress::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Methods(arguments) => methods::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Launch(arguments) => launch::run(arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Supervise(arguments) => ranks::supervise::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough, as in `thinwire methods | head -1`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // A worker that is not the first speaks in its log, and a launcher through its supervisor.
            if !error.is::<logging::Logged>() && !error.is::<ranks::start::Reported>() {
                tell(&error);
            }
            exit_code(&error)
        }
    }
}

/// A rank that ends because it has lost another one says so to its launcher, which looks for the first that failed.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    use thinwire::Error::{GroupLost, PeerGaveUp, PeerLost, PeerSilent, Rendezvous};
    let lost_another = error.chain().any(|cause| {
        let of_training = cause.downcast_ref().and_then(|error| match error {
            thinwire_train::Error::Engine(error) => Some(error),
            _ => None,
        });
        matches!(
            of_training.or_else(|| cause.downcast_ref()),
            Some(
                PeerLost { .. }
                    | PeerSilent { .. }
                    | PeerGaveUp { .. }
                    | GroupLost { .. }
                    | Rendezvous { .. }
            )
        )
    });
    // The code is for a launcher. Ranks that are threads of one process have none.
    let is_rank = std::env::var_os("RANK").is_some();
    if is_rank && lost_another { ExitCode::from(ranks::failure::LOST_ANOTHER) } else { ExitCode::FAILURE }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

/// The error and what it came from, one line each.
fn tell(error: &anyhow::Error) {
    let mut text = format!("error: {error}\n");
    for cause in error.chain().skip(1) {
        text += &format!("  {cause}\n");
    }
    // If nobody reads the errors there is nobody to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
