//! `thinwire inspect`: what is in a .tw file.

mod layers;

use std::path::PathBuf;

use anyhow::{Context, Result};
use layers::LayerRow;
use serde::Serialize;
use serde_json::json;

use crate::container::{Container, VERSION};
use crate::{files, human, output};

/// Show what is in a .tw file
///
/// Shows the method, the step, and for each layer how it was sent and what that took.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// The .tw file
    #[arg(value_name = "IN.tw")]
    input: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  thinwire inspect gradient.tw
  thinwire inspect gradient.tw --json

In the column \"sent\": dense (all elements), delta, bitmap or list (chosen elements, by the way their
coordinates are written), frequencies (of a transform).";

/// Sums over the whole file.
#[derive(Debug, Serialize)]
struct Totals {
    elements: u64,
    count: u64,
    index_bytes: u64,
    value_bytes: u64,
    frame_bytes: u64,
    file_bytes: u64,
    /// Bytes as f32 over bytes of the frame.
    wire_ratio: f64,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let bytes = files::read(&arguments.input)?;
    let failed = || format!("can't inspect {}", arguments.input.display());
    let container = Container::parse(&bytes).with_context(failed)?;
    let rows = layers::rows(&container).context("it is damaged").with_context(failed)?;
    let sum = |field: fn(&LayerRow) -> u64| rows.iter().map(field).sum::<u64>();
    let totals = Totals {
        elements: container.bucket.len() as u64,
        count: container.frame.sections().map(|section| u64::from(section.count())).sum(),
        index_bytes: sum(|row| row.index_bytes),
        value_bytes: sum(|row| row.value_bytes),
        frame_bytes: container.frame_bytes.len() as u64,
        file_bytes: bytes.len() as u64,
        wire_ratio: 4.0 * container.bucket.len() as f64 / container.frame_bytes.len() as f64,
    };
    if arguments.json {
        return output::print_json(&to_json(&arguments, &container, &rows, &totals));
    }
    let sections = container.frame.sections().count();
    let head = container.frame.header();
    let order = if container.header.fortran_order { ", Fortran order" } else { "" };
    let lines = output::lines(&[
        (
            "file",
            format!(
                "{}, {}, format {VERSION}, written by thinwire {}",
                arguments.input.display(),
                human::bytes(totals.file_bytes),
                container.header.thinwire
            ),
        ),
        ("method", container.header.method.clone()),
        (
            "holds",
            format!(
                "{}, {} elements{order}",
                human::plural(rows.len(), "layer"),
                human::count(totals.elements)
            ),
        ),
        (
            "frame",
            format!(
                "step {}, plan {}, bucket {}, {}, {}",
                head.step,
                head.plan,
                head.bucket,
                human::plural(sections, "section"),
                human::bytes(totals.frame_bytes)
            ),
        ),
    ]);
    output::print(&format!("{lines}\n{}", to_table(&rows, &totals)))
}

fn to_table(rows: &[LayerRow], totals: &Totals) -> String {
    const TITLES: [&str; 10] =
        ["layer", "shape", "dtype", ">elements", "sent", ">count", ">index", "values", ">bytes", ">ratio"];
    let joined = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join("+") };
    let line = |row: &LayerRow| {
        let about = |text: String, shared: bool| if shared { format!("~{text}") } else { text };
        let frequencies = row.shared && row.sent.contains(&"frequencies");
        vec![
            row.name.clone(),
            human::shape(&row.shape),
            row.dtype.to_owned(),
            human::count(row.elements as u64),
            joined(row.sent.iter().map(|&word| word.into()).collect()),
            about(human::count(row.count), frequencies),
            about(human::bytes(row.index_bytes), row.shared),
            joined(row.value_forms.clone()),
            about(human::bytes(row.value_bytes), row.shared),
            row.ratio.map_or("-".into(), |ratio| about(human::ratio(ratio), row.shared)),
        ]
    };
    let total = vec![
        "total".to_owned(),
        String::new(),
        String::new(),
        human::count(totals.elements),
        String::new(),
        human::count(totals.count),
        human::bytes(totals.index_bytes),
        String::new(),
        human::bytes(totals.value_bytes),
        human::ratio(totals.wire_ratio),
    ];
    let mut text = output::table(&TITLES, rows.iter().map(line).chain([total]));
    if rows.iter().any(|row| row.shared) {
        text += "~ a layer's share of what several layers have together\n";
    }
    text + "The total ratio counts all bytes of the frame, headers too.\n"
}

fn to_json(
    arguments: &Arguments,
    container: &Container<'_>,
    rows: &[LayerRow],
    totals: &Totals,
) -> serde_json::Value {
    let head = container.frame.header();
    let sections: Vec<_> = container
        .frame
        .sections()
        .map(|section| {
            json!({
                "start": section.start(),
                "universe": section.universe(),
                "width": section.width(),
                "count": section.count(),
                "index_form": section.index_form().name(),
                "index_bytes": section.index_bytes().len(),
                "value_form": section.value_form().to_string(),
                "value_bytes": section.value_bytes().len(),
            })
        })
        .collect();
    json!({
        "file": arguments.input.display().to_string(),
        "format_version": VERSION,
        "thinwire": container.header.thinwire,
        "method": container.header.method,
        "fortran_order": container.header.fortran_order,
        "metadata": container.header.metadata,
        "frame": { "step": head.step, "plan": head.plan, "bucket": head.bucket, "elements": head.elements },
        "layers": rows,
        "sections": sections,
        "totals": totals,
    })
}
