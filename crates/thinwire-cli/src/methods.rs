//! `thinwire methods`: what there is to choose from.

use anyhow::Result;
use serde::Serialize;
use thinwire::method::{METHODS, Method, Parameter};
use thinwire::pipeline::Exchange;

use crate::output;

/// List the methods, or the parameters of one
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// The method whose parameters to show
    name: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire methods
  thinwire methods redsync";

#[derive(Serialize)]
struct MethodEntry {
    name: &'static str,
    paper: &'static str,
    summary: &'static str,
    needs_weights: bool,
    /// Chooses among the others for ranks that train, and so compresses no file by itself.
    needs_ranks: bool,
    parameters: Vec<ParameterEntry>,
}

#[derive(Serialize)]
struct ParameterEntry {
    name: &'static str,
    default: &'static str,
    allowed: String,
    help: &'static str,
}

pub fn run(arguments: Arguments) -> Result<()> {
    match (&arguments.name, arguments.json) {
        (None, true) => {
            let methods = METHODS.iter().map(entry).collect::<Result<Vec<_>>>()?;
            output::print_json(&serde_json::json!({ "methods": methods }))
        }
        (None, false) => {
            let row =
                |method: &Method| [method.name, method.paper, method.summary].map(String::from).to_vec();
            let table = output::table_of_text(&["method", "paper", "sends"], METHODS.iter().map(row));
            output::print(&format!("{table}The parameters of one: thinwire methods NAME\n"))
        }
        (Some(name), true) => output::print_json(&entry(Method::find(name)?)?),
        (Some(name), false) => output::print(&describe(Method::find(name)?)?),
    }
}

/// The methods of a list such as `dense,topk redsync:density=0.001;quantize=true`: separated by commas or spaces, and
/// with a semicolon for a comma inside one.
pub fn split(list: &str) -> Vec<String> {
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(|word| word.replace(';', ",")).collect()
}

fn parameters(method: &Method) -> impl Iterator<Item = &'static Parameter> {
    method.parameters.iter().flat_map(|group| group.iter())
}

fn entry(method: &Method) -> Result<MethodEntry> {
    let parameter = |parameter: &'static Parameter| ParameterEntry {
        name: parameter.name,
        default: parameter.default,
        allowed: parameter.kind.describe(),
        help: parameter.help,
    };
    Ok(MethodEntry {
        name: method.name,
        paper: method.paper,
        summary: method.summary,
        needs_weights: needs_weights(method)?,
        needs_ranks: needs_ranks(method)?,
        parameters: parameters(method).map(parameter).collect(),
    })
}

fn needs_weights(method: &Method) -> Result<bool> {
    Ok(method.recipe("")?.needs_weights())
}

fn needs_ranks(method: &Method) -> Result<bool> {
    Ok(method.recipe("")?.exchange == Exchange::Automatic)
}

fn describe(method: &Method) -> Result<String> {
    let mut lines = vec![("method", method.name.to_owned()), ("sends", method.summary.to_owned())];
    lines.push(("paper", method.paper.to_owned()));
    if needs_weights(method)? {
        lines.push(("needs", "the weights, with --weights FILE".into()));
    }
    if needs_ranks(method)? {
        lines.push(("needs", "ranks that train: it chooses for them among the others".into()));
    }
    let row = |parameter: &'static Parameter| {
        let default = if parameter.default.is_empty() { "(none)" } else { parameter.default };
        vec![parameter.name.into(), default.into(), parameter.kind.describe(), parameter.help.into()]
    };
    let table = output::table_of_text(
        &["parameter", "default", "allowed", "what it does"],
        parameters(method).map(row),
    );
    let example =
        parameters(method).next().map_or(String::new(), |first| format!(":{}={}", first.name, first.default));
    Ok(format!("{}\n{table}Given as: --method {}{example}\n", output::lines(&lines), method.name))
}
