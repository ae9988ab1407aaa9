//! `thinwire launch`: one process for each rank on this machine.

use std::ffi::OsString;

use anyhow::{Result, ensure};

use crate::ranks::start::{Settings, start};

/// Start a command once for each rank on this machine.
///
/// Each process gets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as from torchrun, and so finds the
/// others. When one fails, the others end with an error that names it. When this program ends, in whatever way, so
/// does everything that the ranks have started.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thinwire launch -n 4 -- python train.py\n  \
    thinwire launch -n 4 --link 100mbit,5ms -- ./my-training\n\n\
    On several machines start the command on each by other means, with RANK, WORLD_SIZE, MASTER_ADDR and\n\
    MASTER_PORT set: by torchrun, by Slurm (RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS), or by hand.")]
pub struct Arguments {
    /// How many ranks
    #[arg(short = 'n', long)]
    ranks: usize,
    #[command(flatten)]
    settings: Settings,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command on all ranks.
pub fn run(arguments: Arguments) -> Result<()> {
    let Arguments { ranks, settings, command } = arguments;
    ensure!((1..=1024).contains(&ranks), "--ranks {ranks}: give 1 to 1024");
    start(ranks, &settings, command)
}
