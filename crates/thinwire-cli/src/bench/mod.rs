//! `thinwire bench`: measures the engine on this machine.

/// The benchmarks.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// Runs one.
pub fn run(_arguments: Arguments) -> anyhow::Result<()> {
    Ok(())
}
