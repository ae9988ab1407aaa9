//! `thinwire bench step`: one whole step of a synchronizer, method by method.

mod predict;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use thinwire::group::{Algorithm, Group, Mark, SharedGroup};
use thinwire::synchronizer::{Layout, Options, StepReport};
use thinwire::{Bucket, Synchronizer};

use super::collective::slowest;
use super::progress;
use crate::{human, methods, output, ranks};
use predict::Prophet;
use report::{Figures, Outcome};
use thinwire::adapt::probe::Gradients;

/// One whole step of every method: compress, exchange, decompress, with the time of each stage.
///
/// Every rank has a gradient of its own that drifts as in training. In each step all ranks meet at a barrier and
/// then exchange; the time of a step is that of the slowest rank. The first method is the one the others are
/// compared with.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thinwire bench step -n 4 --link 1gbit\n  \
    thinwire bench step -n 8 --link 100mbit,5ms --elements 1000000 --methods dense,redsync,ar-topk:leader=var")]
pub struct Arguments {
    #[command(flatten)]
    ranks: ranks::Arguments,
    /// Elements of the gradient; the default is ResNet-50
    #[arg(long, default_value_t = 25_557_032)]
    elements: usize,
    /// Methods, separated by commas or spaces; a comma inside a method's parameters is written as a semicolon
    #[arg(
        long,
        default_value = "dense,ar-topk:density=0.01,gaussian-k:density=0.01,redsync,iwp,fft:theta=0.99"
    )]
    methods: String,
    /// Steps that count
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// Steps before them
    #[arg(long, default_value_t = 3)]
    warmup: usize,
    /// Bytes of a bucket; the default is one bucket for all
    #[arg(long, value_parser = human::parse_size)]
    bucket: Option<u64>,
    /// Threads of each rank
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Algorithm of sums and broadcasts [default: by size]
    #[arg(long)]
    algorithm: Option<Algorithm>,
    /// Foretell each step from what `thinwire probe -o FILE` found with as many ranks; needs --algorithm
    #[arg(long, value_name = "FILE", requires = "algorithm")]
    probe: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn layout(&self) -> thinwire::Result<Layout> {
        let Some(bytes) = self.bucket else { return Ok(Bucket::single("gradient", self.elements)?.into()) };
        let each = (bytes as usize / 4).clamp(1, self.elements);
        let layers = (0..self.elements.div_ceil(each))
            .map(|number| (format!("part{number}"), vec![each.min(self.elements - number * each)]));
        Layout::by_size(layers, bytes as usize)
    }
}

/// Runs the benchmark and prints it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let &Arguments { elements, steps, threads, .. } = arguments;
    ensure!(elements > 0, "--elements 0: there is nothing to send; give at least 1");
    ensure!(elements <= u32::MAX as usize, "--elements {elements}: a bucket holds at most {}", u32::MAX);
    ensure!(steps > 0, "--steps 0: nothing would be measured; give at least 1");
    ensure!(threads > 0, "--threads 0: give 1 or more");
    ensure!(arguments.bucket != Some(0), "--bucket 0: give at least 4 bytes");
    let methods = methods::split(&arguments.methods);
    ensure!(
        !methods.is_empty(),
        "--methods {:?}: name at least one; see `thinwire methods`",
        arguments.methods
    );
    for method in &methods {
        thinwire::method::parse(method)?;
    }
    let prophet = match (&arguments.probe, arguments.algorithm) {
        (Some(path), Some(algorithm)) => Some(Prophet::new(crate::probe::read(path)?, algorithm)),
        _ => None,
    };
    let show = |outcome: Outcome| match arguments.json {
        true => output::print_json(&outcome),
        false => output::print(&outcome.describe()),
    };
    arguments.ranks.run(|group| measure(arguments, &methods, prophet.as_ref(), group), show)
}

fn measure(
    arguments: &Arguments,
    methods: &[String],
    prophet: Option<&Prophet>,
    mut group: SharedGroup,
) -> Result<Outcome> {
    let (rank, size) = (group.rank(), group.size());
    if let Some(prophet) = prophet {
        prophet.check(size)?;
    }
    let layout = arguments.layout()?;
    let source = Gradients::new(arguments.elements, 1);
    // Two gradients in turn: making a new one for each step would take longer than the step.
    let mut fresh = [vec![0.0; arguments.elements], vec![0.0; arguments.elements]];
    for (number, gradient) in fresh.iter_mut().enumerate() {
        source.fill((1 + rank * 2 + number) as u64, gradient);
    }
    let mut weights = vec![0.0; arguments.elements];
    source.weights(&mut weights);
    let weights = cut(&layout, &weights);
    let mut gradients = cut(&layout, &fresh[0]);
    let mut rows: Vec<Figures> = Vec::new();
    for method in methods {
        let options = Options {
            threads: arguments.threads,
            algorithm: arguments.algorithm,
            check_replicas_every: 0,
            ..Options::default()
        };
        let mut synchronizer = Synchronizer::with_options(group.clone(), method, layout.clone(), options)?;
        synchronizer.set_epoch(f64::INFINITY);
        let (mut times, mut reports) = (Vec::new(), Vec::new());
        for step in 0..arguments.warmup + arguments.steps {
            if rank == 0 {
                progress(&format!("{method}: step {} of {}", step + 1, arguments.warmup + arguments.steps));
            }
            let mut from = &fresh[step % 2][..];
            for gradient in &mut gradients {
                let (head, rest) = from.split_at(gradient.len());
                gradient.copy_from_slice(head);
                from = rest;
            }
            group.mark(Mark { step: step as u64, ..Mark::default() });
            group.barrier()?;
            let begun = Instant::now();
            let report = synchronizer.step(&mut gradients, &weights)?;
            if step >= arguments.warmup {
                times.push(begun.elapsed().as_secs_f64());
                reports.push(report);
            }
        }
        group.mark(Mark::default());
        let times = slowest(&mut group, &times)?;
        let workspace = synchronizer.workspace_bytes();
        let mut figures = Figures::new(method, times, &reports, workspace, size, rows.first());
        figures.predicted_ms = match prophet {
            Some(prophet) => Some(prophet.seconds(method, &layout)? * 1e3),
            None => None,
        };
        rows.push(figures);
    }
    if rank == 0 {
        progress("");
    }
    Ok(Outcome {
        backend: arguments.ranks.backend().name(),
        ranks: size,
        link: arguments.ranks.link(),
        encrypted: group.encrypted(),
        elements: arguments.elements,
        buckets: layout.buckets().len(),
        threads: arguments.threads,
        steps: arguments.steps,
        rows,
    })
}

/// A flat vector as one for each bucket.
fn cut(layout: &Layout, flat: &[f32]) -> Vec<Vec<f32>> {
    let mut left = flat;
    let take = |bucket: &Bucket| {
        let (head, rest) = left.split_at(bucket.len());
        left = rest;
        head.to_vec()
    };
    layout.buckets().iter().map(take).collect()
}
