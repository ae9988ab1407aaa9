//! `thinwire bench`: measures the engine on this machine.

mod collective;
mod gain;
mod select;
mod step;

use std::io::IsTerminal;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Counts allocations, so that the benchmarks can report them.
#[global_allocator]
static COUNTED: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Measure the engine on this machine: ratios inside one run, because machines are noisy.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Every selector with residual, against the plain pass `r += g` over the same memory
    Select(select::Arguments),
    /// All-reduce, all-gather, broadcast and barrier over ranks, sizes and algorithms
    Collective(collective::Arguments),
    /// The compression gain at each density, measured by training steps and beside them
    Gain(gain::Arguments),
    /// One whole step of each method over a network, stage by stage
    Step(step::Arguments),
}

/// Runs one benchmark.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.what {
        What::Select(arguments) => select::run(&arguments),
        What::Collective(arguments) => collective::run(&arguments),
        What::Gain(arguments) => gain::run(&arguments),
        What::Step(arguments) => step::run(&arguments),
    }
}

/// Says how far it is, on one line of the terminal that the next call writes over; nothing wipes it.
pub fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text:60}\r{text}");
    }
}

/// The value below which `percent` of the sorted values lie.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent).div_ceil(100).clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([percentile(&hundred, 50), percentile(&hundred, 99)], [50.0, 99.0]);
        assert_eq!([percentile(&[7.0], 50), percentile(&[7.0], 99)], [7.0, 7.0]);
    }
}
