//! `thinwire decompress`: a .tw file back to tensors.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;

use crate::container::Container;
use crate::tensors::EXTENSIONS;
use crate::{files, human, output};

/// Restore the tensors of a .tw file
///
/// Restores names, shapes and dtypes, with the values a receiver of the frame would have: zero where nothing
/// was sent.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// The .tw file
    #[arg(value_name = "IN.tw")]
    input: PathBuf,
    /// Where to write: .npy for one tensor, .safetensors for any number
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// The largest output to make from a file, such as 500MB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = human::parse_size)]
    limit: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire decompress gradient.tw -o back.npy
  thinwire decompress gradients.tw -o back.safetensors --limit 500MB";

pub fn run(arguments: Arguments) -> Result<()> {
    files::check_output(&arguments.output, &EXTENSIONS, &[&arguments.input])?;
    let bytes = files::read(&arguments.input)?;
    let failed = || format!("can't decompress {}", arguments.input.display());
    let container = Container::parse(&bytes).with_context(failed)?;
    container.check_limit(arguments.limit).with_context(failed)?;
    let (method, step) = (container.recipe.spec.clone(), container.frame.header().step);
    let output_bytes = container.output_bytes();
    let tensors = container.tensors().with_context(failed)?;
    let (count, elements) = (tensors.infos.len(), tensors.values.len());
    let clipped = tensors.write(&arguments.output)?;
    if arguments.json {
        return output::print_json(&json!({
            "input": arguments.input.display().to_string(),
            "output": arguments.output.display().to_string(),
            "method": method,
            "step": step,
            "tensors": count,
            "elements": elements,
            "data_bytes": output_bytes,
            "clipped": clipped,
        }));
    }
    let mut lines = vec![
        ("input", format!("{}, by {method} at step {step}", arguments.input.display())),
        (
            "output",
            format!(
                "{}: {}, {} elements, {}",
                arguments.output.display(),
                human::plural(count, "tensor"),
                human::count(elements as u64),
                human::bytes(output_bytes)
            ),
        ),
    ];
    if clipped > 0 {
        lines.push(("clipped", format!("{} to the largest of their dtype", human::plural(clipped, "value"))));
    }
    output::print(&output::lines(&lines))
}
