//! `thinwire plan`: what a step will take, before anything is bought or run.
//!
//! | file | what |
//! |---|---|
//! | `size.rs` | parameters, as a number or by a model's name |
//! | `setting.rs` | gradient, workers, network and pace: the time of any way |
//! | `offer.rs` | methods × densities × collectives, priced |
//! | `limit.rs` | the link speed above which compression stops paying |
//! | `outcome.rs` | all of it together, as `--json` prints it |
//! | `advice.rs`, `report.rs`, `plot.rs` | in words, as tables, as a drawing |
//! | `probe.rs` | what `thinwire probe` measured |

mod advice;
mod limit;
mod offer;
mod outcome;
mod plot;
mod probe;
mod report;
mod setting;
pub mod size;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use thinwire::adapt::cost::Network;
use thinwire::adapt::price::Workshop;
use thinwire::method::{Kind, Parameter, Parameters};

use self::offer::Methods;
use self::outcome::Outcome;
use self::probe::Probed;
use self::setting::{LARGEST_BUCKET, Setting};
use crate::{files, human, methods, output};

/// Tell what a step will take, by method, density and collective, before anything is bought or run.
///
/// By formula: bytes and hops of thinwire's own collectives, and the time that workers were measured to need for
/// selecting and encoding. Which density costs how much accuracy it can't know; `thinwire compare` finds that out.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = clap::ArgGroup::new("size").required(true).args(["params", "model"]))]
pub struct Arguments {
    /// Parameters of the model, such as 25.6M or 1.3B
    #[arg(long, value_name = "N", value_parser = size::parse)]
    params: Option<u64>,
    /// A model everybody knows, in place of --params: resnet50, vgg16, vit-b, bert-large, gpt2, llama-7b, ...
    #[arg(long, value_name = "NAME", value_parser = model)]
    model: Option<String>,
    /// How many workers there are
    #[arg(short = 'n', long, value_name = "N", required_unless_present = "probe",
        value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    workers: Option<u32>,
    /// The link of each worker: rate and one-way latency, such as 1gbit,1ms
    #[arg(long, value_name = "RATE,LATENCY", required_unless_present = "probe")]
    link: Option<Network>,
    /// Forward and backward pass of one worker, such as 120ms [default: none, so that a step is its exchange]
    #[arg(long, value_name = "TIME", value_parser = human::parse_duration)]
    compute: Option<Duration>,
    /// Parts of the gradient to send, such as 0.01, 1/64 or 0.1% [default: 10%,3.3%,1.1%,0.4%,0.1%]
    #[arg(long, value_name = "D,D,...", value_delimiter = ',', value_parser = density)]
    density: Vec<f64>,
    /// Methods, separated by commas or spaces; a comma inside a method's parameters is written as a semicolon
    #[arg(
        long,
        value_name = "METHODS",
        default_value = "dense,dense:values=bf16,topk,ar-topk,gaussian-k,redsync,redsync:quantize=true,fft,iwp"
    )]
    methods: String,
    /// Bytes of a bucket, such as 25MB; each pays its own hops [default: one bucket for all]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    bucket: Option<u64>,
    /// Where gradients are worked on: cpu (one core) or gpu (an H200)
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "gpu"], conflicts_with = "probe")]
    device: String,
    /// The JSON of `thinwire probe`: your own network and machine; --workers and --link then default to it
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    /// List every collective of a method, not only the fastest
    #[arg(long)]
    all: bool,
    /// Also draw step time over link speed and speed-up over workers
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire plan --model resnet50 --workers 8 --link 1gbit,1ms
  thinwire plan --params 1.3B --workers 16 --link 25gbit,50us --compute 400ms --device gpu
  thinwire plan --model vit-b --workers 2 --link 1gbit,50ms --density 1% --plot plan.svg";

/// The densities of tables when none was asked for.
const LADDER: [f64; 5] = [0.1, 0.033, 0.011, 0.004, 0.001];
/// Those of drawings: lines are for looking at.
const DRAWN: [f64; 2] = [0.01, 0.001];

/// Reads a model's name.
fn model(name: &str) -> Result<String, String> {
    size::of_model(name).map(|_| name.to_ascii_lowercase())
}

/// Reads a density as methods read theirs.
fn density(text: &str) -> Result<f64, String> {
    const DENSITY: &[Parameter] = &[Parameter {
        name: "density",
        kind: Kind::Density,
        default: "1",
        help: "the part of the gradient to send",
    }];
    let wrong = |_| format!("expected {}, such as 0.01, 1/64 or 1%", Kind::Density.describe());
    let read = Parameters::parse("plan", &[DENSITY], &format!("density={text}")).map_err(wrong)?;
    Ok(read.number("density"))
}

/// Makes the plan.
pub fn run(arguments: Arguments) -> Result<()> {
    let listed = methods::split(&arguments.methods);
    ensure!(
        !listed.is_empty(),
        "--methods {:?}: name at least one; see `thinwire methods`",
        arguments.methods
    );
    let methods = Methods::read(&listed).map_err(|wrong| anyhow!("--methods {wrong}"))?;
    if let Some(path) = &arguments.plot {
        let probe: Vec<_> = arguments.probe.as_deref().into_iter().collect();
        files::check_output(path, &["svg"], &probe)?;
    }
    let (setting, device) = arguments.setting(&methods)?;
    let mut densities = arguments.density.clone();
    if densities.is_empty() {
        densities = LADDER.to_vec();
    }
    densities.sort_by(|one, other| other.total_cmp(one));
    densities.dedup();
    let outcome =
        Outcome::new(&setting, &methods, &densities, arguments.all, arguments.model.clone(), device);
    if let Some(path) = &arguments.plot {
        let drawn = if arguments.density.is_empty() { &DRAWN } else { &densities[..] };
        let drawing = plot::svg(&outcome, &setting, &methods, drawn);
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
    fn setting(&self, methods: &Methods) -> Result<(Setting, &'static str)> {
        let named = self.model.as_deref().map(size::of_model).transpose().map_err(|wrong| anyhow!(wrong))?;
        let parameters = self.params.or(named).expect("one of the two is required");
        let probed = self.probe.as_deref().map(Probed::read).transpose()?;
        let workers =
            self.workers.map(|workers| workers as usize).or(probed.as_ref().map(|probed| probed.ranks));
        let workers = workers.expect("required unless a probe is given");
        ensure!(
            workers >= 2,
            "the probe is of {workers} worker, which sends nothing to anybody; give --workers 2 or more"
        );
        let network = self.link.or(probed.as_ref().map(|probed| probed.network));
        let mut setting =
            Setting::new(parameters, workers, network.expect("required unless a probe is given"));
        setting.compute = self.compute.unwrap_or_default().as_secs_f64();
        if let Some(bytes) = self.bucket {
            ensure!(bytes >= 4, "--bucket {bytes}: give at least 4 bytes, one parameter");
            setting.bucket = (bytes / 4).min(parameters).min(LARGEST_BUCKET);
        }
        if let (Some(probed), Some(path)) = (probed, &self.probe) {
            probed.check(path, methods)?;
            return Ok((
                setting.with_wire(probed.network, probed.wire).with_workshop(probed.workshop),
                "probe",
            ));
        }
        Ok(match self.device.as_str() {
            "gpu" => (setting.with_workshop(Workshop::h200()), "gpu"),
            _ => (setting, "cpu"),
        })
    }
}
