//! What a compression came to, for people and for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use thinwire::pipeline::Report;

use super::Arguments;
use crate::container::Container;
use crate::tensors::Tensors;
use crate::{human, output};

/// The figures of one `thinwire compress`.
#[derive(Debug, Serialize)]
pub struct Summary {
    input: String,
    output: String,
    state: Option<String>,
    method: String,
    step: u64,
    layers: usize,
    dtypes: Vec<&'static str>,
    elements: usize,
    /// Elements of layers that were sent whole.
    dense: usize,
    /// Coordinates there were to choose from: elements, or frequencies.
    choices: u64,
    frequencies: bool,
    asked: usize,
    kept: usize,
    index_bytes: usize,
    value_bytes: usize,
    frame_bytes: usize,
    file_bytes: usize,
    value_ratio: f64,
    wire_ratio: f64,
    /// None if the gradient is zero and what was sent is not.
    relative_error: Option<f64>,
    gain: f64,
    /// Values cut because they were beyond the range of their form.
    clipped: usize,
    /// Values rounded to f32 before anything else.
    rounded: usize,
    select_seconds: f64,
    encode_seconds: f64,
}

impl Summary {
    pub fn new(
        arguments: &Arguments,
        gradient: &Tensors,
        container: &Container<'_>,
        received: &[f32],
        figures: &Report,
        file_bytes: usize,
    ) -> Summary {
        let name = |path: &std::path::Path| path.display().to_string();
        let mut dtypes: Vec<&str> = gradient.infos.iter().map(|info| info.dtype.name()).collect();
        dtypes.sort_unstable();
        dtypes.dedup();
        let bins: u64 = container
            .frame
            .sections()
            .filter(|section| section.width() == 2)
            .map(|section| u64::from(section.universe()))
            .sum();
        Summary {
            input: name(&arguments.input),
            output: name(&arguments.output),
            state: arguments.state.as_deref().map(name),
            method: container.recipe.spec.clone(),
            step: arguments.step,
            layers: gradient.infos.len(),
            dtypes,
            elements: figures.elements,
            dense: figures.dense,
            choices: if bins > 0 { bins } else { (figures.elements - figures.dense) as u64 },
            frequencies: bins > 0,
            asked: figures.asked,
            kept: figures.kept,
            index_bytes: figures.index_bytes,
            value_bytes: figures.value_bytes,
            frame_bytes: figures.frame_bytes,
            file_bytes,
            value_ratio: figures.value_ratio(),
            wire_ratio: figures.wire_ratio(),
            relative_error: relative_error(&gradient.values, received),
            gain: figures.gain(),
            clipped: figures.clipped,
            rounded: gradient.rounded,
            select_seconds: figures.select_time.as_secs_f64(),
            encode_seconds: figures.encode_time.as_secs_f64(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: usize| human::bytes(bytes as u64);
        let count = |number: usize| human::count(number as u64);
        let seconds = |seconds| human::duration(Duration::from_secs_f64(seconds));
        let mut lines = vec![
            (
                "input",
                format!(
                    "{}: {}, {} elements of {}",
                    self.input,
                    human::plural(self.layers, "layer"),
                    count(self.elements),
                    if self.dtypes.is_empty() { "nothing".into() } else { self.dtypes.join(", ") }
                ),
            ),
            ("method", self.method.clone()),
        ];
        if self.choices > 0 {
            let share = human::percent(self.kept as u64, self.choices);
            let what = if self.frequencies { " frequencies" } else { "" };
            let (kept, asked) = (count(self.kept), count(self.asked));
            lines.push((
                "kept",
                format!("{kept} of {asked} asked, {share} of {}{what}", human::count(self.choices)),
            ));
        }
        if self.dense > 0 {
            lines.push(("dense", format!("{} elements sent whole", count(self.dense))));
        }
        lines.push((
            "values",
            format!("{}, {} smaller than f32", bytes(self.value_bytes), human::ratio(self.value_ratio)),
        ));
        let indices = bytes(self.index_bytes);
        let wire = (bytes(self.frame_bytes), human::ratio(self.wire_ratio));
        lines.push(("wire", format!("{}, {} smaller than f32 (coordinates {indices})", wire.0, wire.1)));
        let error = self.relative_error.map_or("-, the gradient is zero".into(), human::three_digits);
        lines.push(("relative error", error));
        lines.push(("gain", human::three_digits(self.gain)));
        if self.clipped > 0 {
            lines.push((
                "clipped",
                format!("{} beyond the range of their form", human::plural(self.clipped, "value")),
            ));
        }
        if self.rounded > 0 {
            lines.push(("rounded", format!("{} from F64 to F32", human::plural(self.rounded, "value"))));
        }
        let (select, encode) = (self.select_seconds, self.encode_seconds);
        lines.push((
            "time",
            format!("{} (select {}, encode {})", seconds(select + encode), seconds(select), seconds(encode)),
        ));
        lines.push(("output", format!("{}, {}", self.output, bytes(self.file_bytes))));
        if let Some(state) = &self.state {
            lines.push(("state", state.clone()));
        }
        f.write_str(&output::lines(&lines))
    }
}

/// ||g - ĝ|| / ||g||, where ĝ is what a receiver has.
fn relative_error(gradient: &[f32], received: &[f32]) -> Option<f64> {
    let square = |x: f64| x * x;
    let norm: f64 = gradient.iter().map(|&g| square(g.into())).sum();
    let error: f64 = gradient.iter().zip(received).map(|(&g, &r)| square(f64::from(g) - f64::from(r))).sum();
    if error == 0.0 { Some(0.0) } else { Some((error / norm).sqrt()).filter(|ratio| ratio.is_finite()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_relative() {
        assert_eq!(relative_error(&[3.0, 4.0], &[3.0, 0.0]), Some(0.8));
        assert_eq!(relative_error(&[0.0], &[0.0]), Some(0.0));
        assert_eq!(relative_error(&[0.0], &[1.0]), None);
        assert_eq!(relative_error(&[], &[]), Some(0.0));
    }
}
