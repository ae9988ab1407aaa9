//! `thinwire bench gain`: what each density sends of the gradient, measured in two ways.

use anyhow::{Result, ensure};
use thinwire::adapt::gain::LADDER;
use thinwire_train::trainer::{Explored, explore};

use crate::output;
use crate::train::Training;

/// The compression gain at each density, by training steps from a copy and beside the training.
///
/// AR-Topk measures the gain of a density by training ten steps at it from a copy of everything, and putting the copy
/// back. The method auto keeps a residual on the side for each density instead, into which the gradients of ten ordinary
/// steps enter. This trains, does both at some steps, and shows the gains side by side.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thinwire bench gain --data fashion-mnist --model cnn --at 50,200,400")]
pub struct Arguments {
    #[command(flatten)]
    training: Training,
    /// The method of the training
    #[arg(long, default_value = "topk:density=0.01")]
    method: String,
    /// The seed of weights, order of samples and augmentation
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The steps before which gains are measured, separated by commas
    #[arg(long, default_value = "20,100,200", value_delimiter = ',')]
    at: Vec<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the benchmark and prints it.
pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(!arguments.at.is_empty(), "--at: give at least one step");
    let settings = arguments.training.settings(&arguments.method, None, arguments.seed)?;
    let last = arguments.at.iter().max().map_or(0, |last| last + 1);
    let show = |explored: Vec<Explored>| match arguments.json {
        true => output::print_json(&explored),
        false => output::print(&table(&explored)),
    };
    arguments.training.ranks().run(|group| Ok(explore(group, &settings, &arguments.at, last)?.0), show)
}

fn table(explored: &[Explored]) -> String {
    let mut text = String::from("step  density  by training  beside  ratio\n");
    for Explored { step, by_training, beside } in explored {
        for ((density, trained), seen) in LADDER.iter().zip(by_training).zip(beside) {
            text += &format!("{step:4}  {density:7}  {trained:11.4}  {seen:6.4}  {:5.3}\n", seen / trained);
        }
    }
    text
}
