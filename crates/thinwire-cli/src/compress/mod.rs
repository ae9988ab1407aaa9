//! `thinwire compress`: a gradient file to a .tw file.

mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use thinwire::kernels::Cpu;
use thinwire::memory::{Progress, State};
use thinwire::method::{self, METHODS, Method, Parameters, split_spec};
use thinwire::pipeline::{Compressor, Input, Recipe};

use crate::container::{Container, Header};
use crate::tensors::Tensors;
use crate::{files, human, output};

/// Above this many elements the work takes long enough that someone may wonder.
const LARGE: usize = 100_000_000;

/// Compress a gradient file
///
/// Compresses a .npy or .safetensors file of floats as one worker would send it, writes the result to a .tw
/// file, and says what it came to. All tensors of a file are layers of one bucket.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// The gradient: .npy or .safetensors, of F32, F64, F16 or BF16
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Where to write: a .tw file
    #[arg(short, long, value_name = "OUT.tw")]
    output: PathBuf,
    /// The method, with parameters after a colon; see `thinwire methods`
    #[arg(short, long, default_value = "topk")]
    method: String,
    /// The part of the elements to send, such as 0.01, 1/64 or 0.1% [default: the method's]
    #[arg(short, long)]
    density: Option<String>,
    /// The weights, for methods that look at them: the gradient's names and shapes
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// What was not sent: taken from this file if it is there, and written back
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The number of the training step, for methods that alternate or draw lots
    #[arg(long, value_name = "N", default_value_t = 0)]
    step: u64,
    /// Threads to work with [default: one for each core]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire compress gradient.npy -o gradient.tw
  thinwire compress gradient.npy -o gradient.tw --method redsync:density=0.001,quantize=true
  thinwire compress gradients.safetensors -o g.tw --method iwp --weights model.safetensors

With error feedback over several steps, what the first does not send is sent later:
  thinwire compress step0.npy -o 0.tw --state memory.safetensors --step 0
  thinwire compress step1.npy -o 1.tw --state memory.safetensors --step 1";

pub fn run(arguments: Arguments) -> Result<()> {
    let recipe = recipe(&arguments.method, arguments.density.as_deref())?;
    check_paths(&arguments)?;
    let weights = weights_file(&arguments, &recipe)?;
    let gradient = Tensors::read(&arguments.input)?;
    let weights = weights
        .map(|path| {
            let failed =
                || format!("the weights in {} do not fit {}", path.display(), arguments.input.display());
            Tensors::read(path)?.aligned_with(&gradient).with_context(failed)
        })
        .transpose()?;

    let failed = || format!("can't compress {}", arguments.input.display());
    let mut file = Header::new(&recipe.spec, &gradient).to_bytes().with_context(failed)?;
    let bucket = gradient.bucket().with_context(failed)?;
    if bucket.len() > LARGE {
        output::note(&format!("compressing {} elements", human::count(bucket.len() as u64)));
    }
    let is_dense = recipe.selector.is_none() || bucket.is_empty();
    let mut compressor = Compressor::new(recipe, bucket).with_context(failed)?;
    let mut state = restore(&mut compressor, arguments.state.as_deref())?;
    let input = Input {
        weights: weights.as_deref(),
        progress: Progress { step: arguments.step, ..Input::new(&[]).progress },
        ..Input::new(&gradient.values)
    };
    let mut cpu = Cpu::new(threads(&arguments));
    let figures = compressor.compress(&mut cpu, &input, &mut file).with_context(failed)?;
    if figures.dense == figures.elements && !is_dense {
        output::note(
            "every layer is one that this method sends dense, so nothing was compressed; its parameters \
             dense_up_to, dense_one_dimensional, include and exclude say which layers",
        );
    }

    let container = Container::parse(&file).with_context(failed)?;
    let received = container.values().with_context(failed)?;
    let summary = report::Summary::new(&arguments, &gradient, &container, &received, &figures, file.len());
    files::write(&arguments.output, |out| Ok(out.write_all(&file)?))?;
    if let Some(path) = &arguments.state {
        let saved = compressor.save()?;
        state.method = saved.method;
        // Layers of other files may be in the state too; they stay.
        state.residual.extend(saved.residual);
        state.momentum.extend(saved.momentum);
        state.selectors.extend(saved.selectors);
        state.write(path).with_context(|| {
            let output = arguments.output.display();
            format!("{output} was written, but the state was not; the same command can be given again")
        })?;
    }
    if arguments.json { output::print_json(&summary) } else { output::print(&summary.to_string()) }
}

/// The method as asked for, with `--density` in place of its own.
fn recipe(spec: &str, density: Option<&str>) -> Result<Recipe> {
    let Some(density) = density else { return Ok(method::parse(spec)?) };
    let (name, text) = split_spec(spec);
    let method = Method::find(name)?;
    if !method.has("density") {
        let way_out = if method.has("theta") {
            format!("say which part of the frequencies to drop, such as --method {name}:theta=0.9")
        } else {
            let with = METHODS.iter().filter(|method| method.has("density")).map(|method| method.name);
            format!(
                "it sends everything; methods with a density are: {}",
                with.collect::<Vec<_>>().join(", ")
            )
        };
        bail!("method {name:?} has no density, but --density {density} was given; {way_out}");
    }
    let mut parameters = Parameters::parse(method.name, method.parameters, text)?;
    parameters.set("density", density)?;
    Ok(method::parse(&parameters.to_string())?)
}

fn check_paths(arguments: &Arguments) -> Result<()> {
    let mut others = vec![arguments.input.as_path()];
    others.extend(arguments.weights.as_deref());
    if let Some(state) = &arguments.state {
        for taken in others.iter().copied().chain([arguments.output.as_path()]) {
            ensure!(
                !files::same(state, taken),
                "the state {} is the gradient, the weights or the output too; give it another name",
                state.display()
            );
        }
    }
    files::check_output(&arguments.output, &["tw"], &others)
}

/// The file of weights, if the method looks at weights.
fn weights_file<'a>(arguments: &'a Arguments, recipe: &Recipe) -> Result<Option<&'a Path>> {
    let needed = recipe.needs_weights();
    let name = split_spec(&recipe.spec).0;
    match &arguments.weights {
        None if needed => {
            bail!(
                "method {name:?} ranks by |gradient| / |weight|; give the weights with --weights FILE, a file \
                 with the gradient's names and shapes"
            )
        }
        Some(path) if !needed => {
            output::note(&format!(
                "note: method {name:?} does not look at weights; {} is not read",
                path.display()
            ));
            Ok(None)
        }
        other => Ok(other.as_deref()),
    }
}

/// Gives the compressor what an earlier run has left, and returns it whole.
fn restore(compressor: &mut Compressor, path: Option<&Path>) -> Result<State> {
    let Some(path) = path.filter(|path| path.exists()) else { return Ok(State::default()) };
    let state = State::read(path)?;
    let spec = &compressor.recipe().spec;
    ensure!(
        state.method == *spec,
        "state {} was made by method {:?}, but the method is {spec:?}; use the same method, or another state file",
        path.display(),
        state.method
    );
    compressor.restore(&state).with_context(|| format!("the state {} does not fit", path.display()))?;
    Ok(state)
}

fn threads(arguments: &Arguments) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    arguments.threads.map_or_else(all, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_density_takes_the_place_of_the_method_s_own() {
        let spec = |spec, density| recipe(spec, density).map(|recipe| recipe.spec);
        assert_eq!(
            spec("topk:density=0.5,values=f16", Some("1/64")).unwrap(),
            "topk:density=0.015625,values=f16"
        );
        assert_eq!(spec("topk", Some("0.1 %")).unwrap(), "topk:density=0.001");
        assert_eq!(spec("topk:density=0.5", None).unwrap(), "topk:density=0.5");
    }

    #[test]
    fn a_density_that_can_not_be_names_the_way_out() {
        let message = |spec, density| recipe(spec, Some(density)).unwrap_err().to_string();
        assert!(message("fft", "0.1").contains("--method fft:theta=0.9"));
        assert!(message("dense", "0.1").contains("methods with a density are: topk, gaussian-k"));
        assert!(message("topk", "2").contains("expected a number above 0 and up to 1"));
        assert!(message("none", "0.1").contains("the methods are: dense"));
    }
}
