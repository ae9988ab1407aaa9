//! `thinwire bench`: measures the engine on this machine.

mod gradients;
mod select;

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
}

/// Runs one benchmark.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.what {
        What::Select(arguments) => select::run(&arguments),
    }
}
