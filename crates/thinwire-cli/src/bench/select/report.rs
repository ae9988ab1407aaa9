//! The figures of `thinwire bench select`, and how they are shown.

use serde::Serialize;

use crate::output;

/// What one row came to.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub selector: &'static str,
    pub threads: usize,
    pub median_ms: f64,
    pub best_ms: f64,
    /// Time over that of `r += g` on as many threads just before it, the median of all steps.
    pub ratio: f64,
    /// The speed-up over the first number of threads given, divided by that of `r += g`.
    pub scaling: f64,
    pub asked: usize,
    pub kept_least: usize,
    pub kept_most: usize,
    pub allocations_per_step: f64,
    /// Memory beyond gradient and residual, as a part of the gradient.
    pub workspace: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Codec {
    pub index_bits: f64,
    pub encode_ms: f64,
    pub decode_ms: f64,
    /// Encode and decode together, over the exact selector's time on one thread (or the first count given).
    pub share_of_selection: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub elements: usize,
    pub density: f64,
    pub steps: usize,
    pub instructions: &'static str,
    pub rows: Vec<Figures>,
    pub codec: Codec,
}

impl Outcome {
    /// The table, and what its columns mean.
    pub fn describe(&self) -> String {
        let titles = [
            "selector",
            ">threads",
            ">ms",
            ">× r += g",
            ">scaling",
            ">kept",
            ">of k",
            ">allocations",
            ">memory",
        ];
        let codec = &self.codec;
        format!(
            "{} elements, density {}, median of {} steps, {}\n\n{}\n\
             × r += g     time over that of the plain pass on as many threads\n\
             scaling      the gain from the threads over the gain that r += g gets from them\n\
             allocations  per step, after warming up\n\
             memory       beyond gradient and residual, as a part of the gradient\n\n\
             indices take {:.2} bits each; encode {:.3} ms + decode {:.3} ms = {:.1} % of the exact selection's time\n",
            self.elements,
            self.density,
            self.steps,
            self.instructions,
            output::table(&titles, self.rows.iter().map(Figures::cells)),
            codec.index_bits,
            codec.encode_ms,
            codec.decode_ms,
            100.0 * codec.share_of_selection,
        )
    }
}

impl Figures {
    fn cells(&self) -> Vec<String> {
        let range =
            |least: String, most: String| if least == most { least } else { format!("{least}-{most}") };
        let part = |kept: usize| format!("{:.2}", kept as f64 / self.asked as f64);
        let (kept, of_k) = match self.asked {
            0 => (String::new(), String::new()),
            _ => (
                range(self.kept_least.to_string(), self.kept_most.to_string()),
                range(part(self.kept_least), part(self.kept_most)),
            ),
        };
        vec![
            self.selector.to_owned(),
            self.threads.to_string(),
            format!("{:.2}", self.median_ms),
            format!("{:.2}", self.ratio),
            format!("{:.2}", self.scaling),
            kept,
            of_k,
            format!("{:.2}", self.allocations_per_step),
            format!("{:.2} %", 100.0 * self.workspace),
        ]
    }
}
