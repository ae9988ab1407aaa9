//! `thinwire simulate`: a training that does not happen, on as many workers as you like.
//!
//! | file | what |
//! |---|---|
//! | `scene.rs` | workers, network and gradient, from what was typed |
//! | `outcome.rs` | the runs, as `--json` prints them |
//! | `report.rs`, `plot.rs` | as tables, as a drawing |

mod outcome;
mod plot;
mod report;
mod scene;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use thinwire::adapt::Limits;
use thinwire::adapt::cost::Network;
use thinwire::adapt::simulate::{Driver, Run, Scene, Slow, compare, regret, run as simulate};

use self::outcome::{Named, Outcome};
use crate::bench::progress;
use crate::plan::size;
use crate::{files, human, output};

/// Play a training through in simulated time: up to 4,096 workers, networks that change, stragglers, any method.
///
/// Workers compute, arrive, exchange and go on, each by a clock of its own; with `auto` the real controller measures
/// and decides, as late as it would in a training. It is compared with an oracle that knows the future. How far a
/// training gets is not simulated: a step that sends less is a step. A thousand workers take a thousand steps in
/// well under a second, and the same seed gives the same run to the bit.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Parameters of the model, such as 25.6M or 1.3B [default: those of resnet50]
    #[arg(long, value_name = "N", value_parser = size::parse)]
    params: Option<u64>,
    /// A model everybody knows, in place of --params; `thinwire plan --help` names some
    #[arg(long, value_name = "NAME", value_parser = size::of_model, conflicts_with = "params")]
    model: Option<u64>,
    /// How many workers there are, 1 to 4096
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    workers: usize,
    /// The method, with its parameters: auto, or a fixed one such as topk:density=0.01
    #[arg(short, long, default_value = "auto")]
    method: String,
    /// How the network changes: c1 or c2, the schedules of AR-Topk's paper, or a file with lines such as
    /// `at 30s: 1gbit,50ms` or `at step 300: 1gbit,50ms`
    #[arg(long, value_name = "c1|c2|FILE", default_value = "c1")]
    schedule: String,
    /// One network for the whole run, in place of a schedule: rate and one-way latency, such as 1gbit,1ms
    #[arg(long, value_name = "RATE,LATENCY", conflicts_with = "schedule")]
    link: Option<Network>,
    /// Steps of the run; c1 and c2 are stretched to it
    #[arg(long, value_name = "N", default_value_t = 1000)]
    steps: usize,
    /// Forward and backward pass of a worker
    #[arg(long, value_name = "TIME", default_value = "120ms", value_parser = human::parse_duration)]
    compute: Duration,
    /// By how much computing, latency and bandwidth vary from step to step, to both sides
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = scene::share)]
    noise: f64,
    /// How many times slower than the network's the slowest worker's link is; the others lie in between
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    uneven: f64,
    /// Workers that are always slower: 2%x3 makes about two in a hundred take three times as long
    #[arg(long, value_name = "SHARExFACTOR", value_parser = scene::slow)]
    stragglers: Option<Slow>,
    /// How often a worker is slower for one step, written likewise
    #[arg(long, value_name = "SHARExFACTOR", value_parser = scene::slow)]
    hiccups: Option<Slow>,
    /// Bytes of a bucket, such as 25MB; each pays its own hops [default: one bucket for all]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    bucket: Option<u64>,
    /// What everything random begins with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also run fixed methods, and find the best fixed choice in hindsight; with auto
    #[arg(long)]
    compare: bool,
    /// Also draw the time of each step, and what it sends
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire simulate                                             # auto on 64 workers, schedule c1
  thinwire simulate -n 1024 --schedule c2 --compare             # with every fixed method beside it
  thinwire simulate --method 'auto:methods=dense|topk|ar-topk'  # may send a part of the gradient, as under SGD
  thinwire simulate --link 100mbit,5ms -n 8 --model vgg16 --method ar-topk:density=0.01
  thinwire simulate -n 256 --uneven 2 --stragglers 2%x3 --noise 20% --plot run.svg
  thinwire simulate --method 'auto:methods=dense|topk|redsync,target_gain=0.3'

What is modelled and what is not: docs/simulate.md.";

/// Fixed methods of `--compare`: each of the engine's, those of AR-Topk's paper at its densities.
const FIXED: [&str; 14] = [
    "dense",
    "dense:values=bf16",
    "topk:density=0.1",
    "topk:density=0.01",
    "topk:density=0.001",
    "ar-topk:density=0.1",
    "ar-topk:density=0.01",
    "ar-topk:density=0.001",
    "gaussian-k:density=0.01",
    "redsync:density=0.01",
    "redsync:density=0.001,quantize=true",
    "dgc:density=0.001",
    "fft",
    "random-k:density=0.01",
];

/// Simulates, and prints what came out.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(path) = &arguments.plot {
        files::check_output(path, &["svg"], &[])?;
    }
    let scene = arguments.scene()?;
    ensure!((1..=1_000_000).contains(&scene.steps), "--steps {}: give 1 to 1000000", scene.steps);
    let begun = Instant::now();
    let mut outcome = match Driver::parse(&arguments.method, &scene)? {
        Driver::Auto(limits) => arguments.automatic(&scene, &limits)?,
        fixed => {
            ensure!(!arguments.compare, "--compare is for auto; --method {} is fixed", arguments.method);
            let run = simulate(&scene, &fixed, &mut |step| tell(&arguments.method, step, &scene))?;
            Outcome::fixed(arguments, &scene, Named::new(&arguments.method, run))
        }
    };
    outcome.took_seconds = begun.elapsed().as_secs_f64();
    progress("");
    if let Some(path) = &arguments.plot {
        let drawing = plot::svg(&outcome);
        files::write(path, |out| Ok(out.write_all(drawing.as_bytes())?))?;
    }
    if arguments.json {
        return output::print_json(&outcome);
    }
    output::print(&outcome.describe())?;
    match &arguments.plot {
        Some(path) => output::print(&format!("plot  {}\n", path.display())),
        None => Ok(()),
    }
}

impl Arguments {
    /// The controller and the oracle; with `--compare` or a drawing, fixed choices too.
    fn automatic(&self, scene: &Scene, limits: &Limits) -> Result<Outcome> {
        if !self.compare && self.plot.is_none() {
            let one = |name: &str, driver: Driver| -> Result<Run> {
                Ok(simulate(scene, &driver, &mut |step| tell(name, step, scene))?)
            };
            let auto = one("auto", Driver::Auto(limits.clone()))?;
            let oracle = one("oracle", Driver::Oracle(limits.clone()))?;
            let lost = regret(&auto, &oracle);
            return Ok(Outcome::automatic(self, scene, auto, oracle, lost));
        }
        let found = compare(scene, limits, &mut |name, step| tell(name, step, scene))?;
        let mut outcome = Outcome::automatic(self, scene, found.auto, found.oracle, found.regret);
        if let Some((name, run)) = found.best_fixed {
            outcome.best_fixed = Some(Named::new(&name, run));
        }
        if self.compare {
            for method in FIXED {
                let fixed = Driver::parse(method, scene)?;
                let run = simulate(scene, &fixed, &mut |step| tell(method, step, scene))?;
                outcome.others.push(Named::new(method, run));
            }
        }
        Ok(outcome)
    }
}

/// Says how far a long run is.
fn tell(name: &str, step: usize, scene: &Scene) {
    if step.is_multiple_of(100) && scene.steps * scene.cluster.workers > 1_000_000 {
        progress(&format!("{name}: step {step} of {}", scene.steps));
    }
}
