//! `thinwire bench select`: every selector with residual, against the plain pass `r += g`.

mod cuda;
mod report;

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};
use thinwire::codec::{Frame, FrameWriter, Header, IndexChoice, SectionInput, ValueForm};
use thinwire::kernels::{Cpu, Guess, Kernels, List, Walk};
use thinwire::select::{
    BySize, DgcSampling, Exact, GaussianK, Importance, MsTopk, RandomK, Select, ThresholdSearch, Trimmed,
};

use super::progress;
use crate::output;
use report::{Codec, Figures, Outcome};
use thinwire::adapt::probe::Gradients;

/// Every selector with residual, in one run, against the plain pass `r += g` over the same memory.
///
/// In each step a new gradient is made, then every selector adds it to a residual of its own, chooses, and
/// clears what it chose. The gradients drift as in training. The first steps warm up and are not counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thinwire bench select --density 0.01 --threads 1,2\n\n\
    A ratio of 1.10 means 10 % more time than the plain pass `r += g`, which no method with a residual can avoid.")]
pub struct Arguments {
    /// Elements of the gradient; the default is ResNet-50
    #[arg(long, default_value_t = 25_557_032)]
    elements: usize,
    /// The part of the elements to keep
    #[arg(long, default_value_t = 0.001)]
    density: f64,
    /// Thread counts to compare, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Steps that count
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Steps before them
    #[arg(long, default_value_t = 6)]
    warmup: usize,
    /// Where to select: cpu, or cuda for the first NVIDIA GPU (which has no --threads)
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    device: Device,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
enum Device {
    Cpu,
    Cuda,
}

/// One selector on one number of threads, with its own residual.
struct Row {
    name: &'static str,
    cold: bool,
    selector: Box<dyn Select>,
    cpu: Cpu,
    weight_sample: Vec<Range<usize>>,
    residual: Vec<f32>,
    guess: Guess,
    positions: Vec<u32>,
    values: Vec<f32>,
    /// Times of the plain pass just before each step, and of the steps, in milliseconds.
    plain: Vec<f64>,
    times: Vec<f64>,
    kept: Vec<usize>,
    allocations: usize,
}

fn selectors() -> Vec<(&'static str, bool, Box<dyn Select>)> {
    let mut signed = BySize::new(true);
    (signed.exact_up_to, signed.trimmed_up_to) = (0, 0);
    vec![
        ("exact top-k", false, Box::new(Exact)),
        ("exact top-k, cold start", true, Box::new(Exact)),
        ("gaussian-k", false, Box::new(GaussianK::default())),
        ("trimmed top-k", false, Box::new(Trimmed::default())),
        ("threshold search, reused", false, Box::new(ThresholdSearch::default())),
        ("threshold search, one sign", false, Box::new(signed)),
        ("importance |g|/|w|", false, Box::new(Importance::default())),
        ("dgc sampling", false, Box::new(DgcSampling::default())),
        ("mstopk, 25 rounds", false, Box::new(MsTopk::default())),
        ("random-k", false, Box::new(RandomK::default())),
    ]
}

impl Row {
    fn step(&mut self, gradient: &[f32], weights: &[f32], k: usize, step: u64) -> Result<f64> {
        let whole = [0..gradient.len()];
        self.positions.clear();
        self.values.clear();
        if self.cold {
            self.guess = Guess::default();
        }
        let begun = Instant::now();
        let mean_weight = match self.selector.needs_weights() {
            true => {
                self.cpu.statistics(weights, &self.weight_sample).expect("finite weights").mean_magnitude()
            }
            false => 0.0,
        };
        let walk = Walk {
            weights: Some(weights),
            score: self.selector.score(mean_weight),
            ..Walk::new(gradient, &mut self.residual)
        };
        let surveyed = self.cpu.survey(walk, &whole, self.selector.expect(k), &mut self.guess);
        let mut survey = surveyed.ok().context("the made gradients are finite")?;
        self.selector.select(&mut survey, k, step);
        self.selector.commit();
        Cpu::finish(survey, &mut self.positions, &mut self.values)?;
        self.cpu.clear(self.positions.all(), &mut self.residual)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

/// Runs the benchmark and prints it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let &Arguments { elements, density, steps, warmup, json, .. } = arguments;
    ensure!(elements > 0, "--elements 0: there is nothing to select from; give at least 1");
    ensure!(elements <= u32::MAX as usize, "--elements {elements}: a bucket holds at most {}", u32::MAX);
    ensure!(density > 0.0 && density <= 1.0, "--density {density}: give a number above 0 and up to 1");
    ensure!(steps > 0, "--steps 0: nothing would be measured; give at least 1");
    ensure!(arguments.threads.iter().all(|&t| t > 0), "--threads 0: give 1 or more, such as 1,2");
    if arguments.device == Device::Cuda {
        return cuda::run(arguments);
    }
    let outcome = measure(arguments, warmup, steps)?;
    if json { output::print_json(&outcome) } else { output::print(&outcome.describe()) }
}

fn measure(arguments: &Arguments, warmup: usize, steps: usize) -> Result<Outcome> {
    let &Arguments { elements, density, .. } = arguments;
    let source = Gradients::new(elements, std::thread::available_parallelism().map_or(1, |n| n.get()));
    let (mut gradient, mut weights) = (vec![0.0; elements], vec![0.0; elements]);
    source.weights(&mut weights);
    let mut rows: Vec<Row> = Vec::new();
    let mut plain_residual = vec![0.0f32; elements];
    for &threads in &arguments.threads {
        rows.extend(selectors().into_iter().map(|(name, cold, selector)| Row {
            name,
            cold,
            selector,
            cpu: Cpu::new(threads),
            weight_sample: Importance::weight_sample(&[0..elements]),
            residual: vec![0.0; elements],
            guess: Guess::default(),
            positions: Vec::new(),
            values: Vec::new(),
            plain: Vec::new(),
            times: Vec::new(),
            kept: Vec::new(),
            allocations: 0,
        }));
    }
    for step in 0..warmup + steps {
        progress(&format!("step {} of {}", step + 1, warmup + steps));
        source.fill(step as u64, &mut gradient);
        for row in &mut rows {
            // The plain pass is timed just before each selector, so that both meet the machine in one mood.
            let begun = Instant::now();
            row.cpu.accumulate_only(&gradient, &mut plain_residual);
            let plain = begun.elapsed().as_secs_f64() * 1e3;
            let k = row.selector.quota(elements, density);
            let region = Region::new(&INSTRUMENTED_SYSTEM);
            let time = row.step(&gradient, &weights, k, step as u64)?;
            let change = region.change();
            if step >= warmup {
                row.allocations += change.allocations + change.reallocations;
                row.plain.push(plain);
                row.times.push(time);
                row.kept.push(row.positions.len());
            }
        }
    }
    progress("");
    let codec = measure_codec(&rows[0], elements)?;
    let instructions = rows[0].cpu.instructions();
    let of_one_count = rows.len() / arguments.threads.len();
    let mut figures = Vec::new();
    for group in rows.chunks(of_one_count) {
        figures.push(plain_figures(group));
        figures.extend(group.iter().zip(&rows).map(|(row, first)| row.figures(first, elements, density)));
    }
    Ok(Outcome { elements, density, steps, instructions, rows: figures, codec })
}

/// The plain pass, over all its runs on one number of threads.
fn plain_figures(group: &[Row]) -> Figures {
    let times: Vec<f64> = group.iter().flat_map(|row| &row.plain).copied().collect();
    Figures {
        selector: "r += g",
        threads: group[0].cpu.threads(),
        median_ms: median(&times),
        best_ms: least(&times),
        ratio: 1.0,
        scaling: 1.0,
        asked: 0,
        kept_least: 0,
        kept_most: 0,
        allocations_per_step: 0.0,
        workspace: 0.0,
    }
}

impl Row {
    /// What the row came to. `first` is the same selector on the first number of threads.
    fn figures(&self, first: &Row, elements: usize, density: f64) -> Figures {
        let ratios: Vec<f64> = self.times.iter().zip(&self.plain).map(|(time, plain)| time / plain).collect();
        let gain = median(&first.times) / median(&self.times);
        let plain_gain = median(&first.plain) / median(&self.plain);
        let workspace = self.cpu.workspace_bytes() + 4 * (self.positions.capacity() + self.values.capacity());
        Figures {
            selector: self.name,
            threads: self.cpu.threads(),
            median_ms: median(&self.times),
            best_ms: least(&self.times),
            ratio: median(&ratios),
            scaling: gain / plain_gain,
            asked: self.selector.quota(elements, density),
            kept_least: self.kept.iter().copied().min().unwrap_or(0),
            kept_most: self.kept.iter().copied().max().unwrap_or(0),
            allocations_per_step: self.allocations as f64 / self.times.len() as f64,
            workspace: workspace as f64 / (4 * elements) as f64,
        }
    }
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Encodes and decodes what a row kept last.
fn measure_codec(row: &Row, elements: usize) -> Result<Codec> {
    let header = Header { step: 0, plan: 0, bucket: 0, elements: elements as u32 };
    let (mut bytes, mut indices, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let (mut encode, mut decode, mut index_bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..21 {
        bytes.clear();
        let begun = Instant::now();
        let mut writer = FrameWriter::new(&mut bytes, header);
        let size = writer.section(&SectionInput {
            start: 0,
            universe: elements as u32,
            width: 1,
            indices: Some(&row.positions),
            values: &row.values,
            index: IndexChoice::Shortest,
            form: &ValueForm::F32,
        })?;
        writer.finish()?;
        encode.push(begun.elapsed().as_secs_f64() * 1e3);
        index_bytes = size.index_bytes;
        let begun = Instant::now();
        for section in Frame::parse(&bytes)?.sections() {
            section.decode(&mut indices, &mut values)?;
        }
        decode.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let (encode_ms, decode_ms) = (median(&encode), median(&decode));
    Ok(Codec {
        index_bits: 8.0 * index_bytes as f64 / row.positions.len().max(1) as f64,
        encode_ms,
        decode_ms,
        share_of_selection: (encode_ms + decode_ms) / median(&row.times),
    })
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
