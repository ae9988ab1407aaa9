//! `thinwire probe`: what the network and the machines do, measured over the ranks themselves.

mod report;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use thinwire::adapt::price::Way;
use thinwire::adapt::probe::{Budget, Effort, Probe, full, quick};
use thinwire::group::{Group, SharedGroup};

use crate::bench::progress;
use crate::{files, output, ranks};

/// Measure the network and the work of each method, to know what a training step will take.
///
/// Ranks run every collective with small and large messages, and real steps of each method on made-up gradients.
/// What comes out is the latency and the bandwidth as each collective finds them, and the time a rank works on an
/// element: all that is needed to foretell a step of any method, density and size. It takes a few seconds, on slow
/// links up to twenty.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    thinwire probe -n 4                                  # four processes on this machine\n  \
    thinwire probe -n 4 --link 100mbit,5ms --quick       # the network alone, in a second\n  \
    thinwire probe -n 4 -o probe.json                    # keep it: thinwire plan --probe probe.json\n  \
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 thinwire probe -o probe.json   # on two machines: this on the first,\n  \
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 thinwire probe                 # and this on the second\n\n\
    Measure while nothing else runs, with as many ranks on each machine as will train there.")]
pub struct Arguments {
    #[command(flatten)]
    ranks: ranks::Arguments,
    /// The network alone, by a few messages
    #[arg(long, conflicts_with_all = ["methods", "elements"])]
    quick: bool,
    /// Methods whose work is measured, separated by commas or spaces; a comma inside a method's parameters is
    /// written as a semicolon [default: all]
    #[arg(long)]
    methods: Option<String>,
    /// Elements of the gradients they work on: near the size of a real bucket, because what fits the cache is faster
    #[arg(long, default_value_t = 1 << 20)]
    elements: usize,
    /// Seconds a single message or step may take on the network; larger ones are made smaller
    #[arg(long, default_value_t = 0.25)]
    seconds: f64,
    /// Keep the result in this file, as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn effort(&self) -> Result<Effort> {
        let mut effort = Effort { elements: self.elements, seconds: self.seconds, ..Effort::default() };
        if let Some(methods) = &self.methods {
            effort.methods = crate::methods::split(methods);
            ensure!(
                !effort.methods.is_empty(),
                "--methods {methods:?}: name at least one; see `thinwire methods`"
            );
        }
        for method in &effort.methods {
            Way::all(method)?;
        }
        Ok(effort)
    }
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    let &Arguments { elements, seconds, .. } = arguments;
    ensure!((1..=u32::MAX as usize).contains(&elements), "--elements {elements}: give 1 to {}", u32::MAX);
    ensure!(seconds > 0.0 && seconds <= 60.0, "--seconds {seconds}: give a number above 0 and up to 60");
    let effort = arguments.effort()?;
    if let Some(path) = &arguments.output {
        files::check_place(path)?;
    }
    let show = |(probe, encrypted): (Probe, bool)| {
        if let Some(path) = &arguments.output {
            files::write(path, |file| Ok(serde_json::to_writer_pretty(file, &probe)?))?;
        }
        match arguments.json {
            true => output::print_json(&probe),
            false => output::print(&report::describe(&probe, &arguments.ranks, encrypted, arguments.quick)),
        }
    };
    let work = |group: SharedGroup| {
        let encrypted = group.encrypted();
        Ok((measure(arguments, &effort, group)?, encrypted))
    };
    arguments.ranks.run(work, show)
}

fn measure(arguments: &Arguments, effort: &Effort, mut group: SharedGroup) -> Result<Probe> {
    if arguments.quick {
        let network = quick(&mut group, Budget::default())?;
        return Ok(Probe::uniform(group.size(), network));
    }
    let first = group.rank() == 0;
    let mut tell = |text: &str| {
        if first {
            progress(text);
        }
    };
    let probe = full(&group, effort, &mut tell)?;
    tell("");
    Ok(probe)
}

/// Reads what `thinwire probe -o FILE` wrote.
pub fn read(path: &std::path::Path) -> Result<Probe> {
    let wrong = || format!("{} is not what `thinwire probe -o FILE` writes", path.display());
    serde_json::from_slice(&files::read(path)?).with_context(wrong)
}
