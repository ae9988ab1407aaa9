//! `thinwire bench collective`: every collective of a group, over sizes and algorithms.

mod report;

use std::time::Instant;

use anyhow::{Result, ensure};
use thinwire::group::{Algorithm, Gathered, Group, Link, SharedGroup, Sum, Traffic};

use super::progress;
use crate::{human, output, ranks};
use report::{Figures, Outcome};

/// Every collective of a group of ranks: time, bytes, and how far from the bandwidth's bound.
///
/// In each repetition all ranks meet at a barrier and then run the collective; its time is that of the slowest
/// rank. The median and the 99th percentile are over the repetitions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thinwire bench collective -n 4 --sizes 4kB,25MB --link 1gbit\n  \
    mpirun -n 4 thinwire bench collective --backend mpi\n\n\
    The bound of an all-reduce of M bytes on N ranks is 2 (N-1)/N M over the bandwidth, of an all-gather\n\
    (N-1) M, of a broadcast M. It is shown where the bandwidth is known, by --link or --bandwidth.")]
pub struct Arguments {
    #[command(flatten)]
    ranks: ranks::Arguments,
    /// What to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "all-reduce,all-gather,broadcast,barrier"
    )]
    what: Vec<What>,
    /// Algorithms; an all-gather by tree goes straight from each rank to each
    #[arg(long, value_delimiter = ',', default_value = "ring,tree")]
    algorithms: Vec<Algorithm>,
    /// Bytes: of the vector that is summed, or of each rank's message
    #[arg(long, value_delimiter = ',', default_value = "4kB,64kB,1MB,25MB", value_parser = human::parse_size)]
    sizes: Vec<u64>,
    /// Repetitions that count [default: as many as take two seconds, 5 to 1000]
    #[arg(long)]
    repeats: Option<u32>,
    /// The bandwidth of the real link, such as 1gbit, for the bound
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<Link>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Sums of vectors
    AllReduce,
    /// Everybody's message to everybody
    AllGather,
    /// One rank's message to everybody
    Broadcast,
    /// Nothing but the wait
    Barrier,
}

/// One line of the result.
#[derive(Debug, Clone, Copy)]
struct Case {
    what: What,
    algorithm: Option<Algorithm>,
    bytes: usize,
}

/// Runs the benchmark and prints it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let largest = arguments.sizes.iter().copied().max().unwrap_or(0);
    ensure!(largest <= 4 << 30, "--sizes {largest}: give at most 4 GiB");
    ensure!(arguments.repeats != Some(0), "--repeats 0: nothing would be measured; give at least 1");
    let show = |outcome: Outcome| match arguments.json {
        true => output::print_json(&outcome),
        false => output::print(&outcome.describe()),
    };
    arguments.ranks.run(|group| measure(arguments, group), show)
}

fn cases(arguments: &Arguments) -> Vec<Case> {
    let mut cases = Vec::new();
    for &what in &arguments.what {
        let algorithms: Vec<Option<Algorithm>> = match what {
            What::Barrier => vec![None],
            _ => arguments.algorithms.iter().copied().map(Some).collect(),
        };
        let sizes = if what == What::Barrier { &[0][..] } else { &arguments.sizes[..] };
        for &bytes in sizes {
            let bytes = bytes as usize;
            cases.extend(algorithms.iter().map(|&algorithm| Case { what, algorithm, bytes }));
        }
    }
    cases
}

fn measure(arguments: &Arguments, mut group: SharedGroup) -> Result<Outcome> {
    let bandwidth =
        arguments.bandwidth.or_else(|| arguments.ranks.link()?.parse().ok()).and_then(|link| link.rate);
    let mut rows = Vec::new();
    for case in cases(arguments) {
        let mut bench = Bench::new(case, &mut group);
        if group.rank() == 0 {
            progress(&format!("{:?}, {}", case.what, human::bytes(case.bytes as u64)));
        }
        // The first rounds warm up, and tell how many more there is time for.
        let begun = Instant::now();
        for _ in 0..3 {
            bench.once(&mut group)?;
        }
        let repeats = match arguments.repeats {
            Some(repeats) => repeats as usize,
            None => agree(&mut group, 2.0 / (begun.elapsed().as_secs_f64() / 3.0))?,
        };
        let mut times = Vec::with_capacity(repeats);
        let mut traffic = Traffic::default();
        for repeat in 0..repeats {
            group.barrier()?;
            let start = group.traffic();
            let begun = Instant::now();
            bench.once(&mut group)?;
            times.push(begun.elapsed().as_secs_f64());
            if repeat == 0 {
                traffic = group.traffic() - start;
            }
        }
        let slowest = slowest(&mut group, &times)?;
        rows.push(Figures::new(case, group.size(), slowest, traffic, bandwidth));
    }
    if group.rank() == 0 {
        progress("");
    }
    Ok(Outcome {
        backend: arguments.ranks.backend().name(),
        ranks: group.size(),
        link: arguments.ranks.link(),
        encrypted: group.encrypted(),
        rows,
    })
}

/// The vectors and messages of one case.
struct Bench {
    case: Case,
    values: Vec<f32>,
    message: Vec<u8>,
    gathered: Gathered,
}

impl Bench {
    fn new(case: Case, group: &mut dyn Group) -> Bench {
        let floats = if case.what == What::AllReduce { case.bytes / 4 } else { 0 };
        let speaks = match case.what {
            What::AllGather => true,
            What::Broadcast => group.rank() == 0,
            What::AllReduce | What::Barrier => false,
        };
        let message = vec![7; if speaks { case.bytes } else { 0 }];
        Bench { case, values: vec![0.0; floats], message, gathered: Gathered::default() }
    }

    fn once(&mut self, group: &mut dyn Group) -> thinwire::Result<()> {
        let Case { what, algorithm, bytes } = self.case;
        let algorithm = algorithm.unwrap_or(Algorithm::Ring);
        match what {
            What::AllReduce => group.all_reduce(Sum::F32(&mut self.values), algorithm),
            What::AllGather => group.all_gather(&self.message, bytes, algorithm, &mut self.gathered),
            What::Broadcast => group.broadcast(0, &mut self.message, bytes, algorithm),
            What::Barrier => group.barrier(),
        }
    }
}

/// Rank 0's number of repetitions, for all.
fn agree(group: &mut dyn Group, wanted: f64) -> thinwire::Result<usize> {
    let mut number = (wanted.clamp(5.0, 1000.0) as u64).to_le_bytes().to_vec();
    group.broadcast(0, &mut number, 8, Algorithm::Tree)?;
    Ok(number.try_into().map_or(5, u64::from_le_bytes) as usize)
}

/// The slowest rank's time of each repetition.
pub(super) fn slowest(group: &mut dyn Group, mine: &[f64]) -> thinwire::Result<Vec<f64>> {
    let bytes: Vec<u8> = mine.iter().flat_map(|time| time.to_le_bytes()).collect();
    let mut gathered = Gathered::default();
    group.all_gather(&bytes, bytes.len(), Algorithm::Tree, &mut gathered)?;
    let mut slowest = mine.to_vec();
    for theirs in gathered.iter() {
        for (most, time) in slowest.iter_mut().zip(theirs.as_chunks().0) {
            *most = most.max(f64::from_le_bytes(*time));
        }
    }
    Ok(slowest)
}
