//! `thinwire bench select --device cuda`: the selectors on a GPU, in the time of its own clock.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use thinwire::codec::Rounding;
use thinwire::kernels::cuda::{Buffer, Cuda, Element, FftTrip, Gradient};
use thinwire::kernels::{Guess, Kernels, List, Walk};
use thinwire::pipeline::ValuePlan;
use thinwire::select::{Exact, Importance, Select};

use super::{Arguments, median, selectors};
use crate::bench::progress;
use crate::output;
use thinwire::adapt::probe::Gradients;

/// Gradients that take turns: together far larger than any cache.
const GRADIENTS: usize = 6;

#[derive(Debug, Serialize)]
struct Figures {
    what: String,
    elements: usize,
    /// What the gradient is made of.
    gradient: &'static str,
    /// On the device's clock: the selection, until it stands in the device's memory, and the clearing of the residual.
    device_ms: f64,
    /// On the host's clock: the same, the copy of the message to host memory, and all waits.
    host_ms: f64,
    /// Reading gradient and residual and writing the residual once, at the rate of a plain copy.
    floor_ms: f64,
    ratio: f64,
    asked: usize,
    kept_least: usize,
    kept_most: usize,
}

#[derive(Debug, Serialize)]
struct Outcome {
    device: String,
    density: f64,
    steps: usize,
    copy_gb_per_s: f64,
    rows: Vec<Figures>,
}

/// One selector with its own residual.
struct Row {
    name: String,
    cold: bool,
    selector: Box<dyn Select>,
    residual: Buffer<f32>,
    guess: Guess,
}

struct Timed {
    device: Vec<f64>,
    host: Vec<f64>,
    kept: Vec<usize>,
}

/// Runs the benchmark on GPU 0 and prints it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let &Arguments { elements, density, steps, warmup, json, .. } = arguments;
    let mut cuda = Cuda::new(0)?;
    cuda.time_selections();
    let source = Gradients::new(elements, std::thread::available_parallelism().map_or(1, |n| n.get()));
    let mut host = vec![0.0f32; elements];
    source.weights(&mut host);
    let weights = Buffer::of(cuda.device(), &host)?;
    let (mut wide, mut narrow) = (Vec::new(), Vec::new());
    for step in 0..GRADIENTS {
        progress(&format!("gradient {} of {GRADIENTS}", step + 1));
        source.fill(step as u64, &mut host);
        wide.push(Buffer::of(cuda.device(), &host)?);
        let words: Vec<u16> = host.iter().map(|&x| half::bf16::from_f32(x).to_bits()).collect();
        narrow.push(Buffer::of(cuda.device(), &words)?);
    }
    let wide: Vec<Gradient> = wide.iter().map(Gradient::of).collect();
    let narrow_gradients = narrow
        .iter()
        // SAFETY: the buffers hold as many such numbers, and stay until the end.
        .map(|buffer| unsafe { Gradient::new(buffer.address(), elements, Element::Bf16, None) })
        .collect::<thinwire::Result<Vec<Gradient>>>()?;
    let rate = copy_rate(&mut cuda, elements)?;
    let mut rows = Vec::new();
    for (name, cold, selector) in selectors() {
        rows.push((Row::new(&mut cuda, name, cold, selector, elements)?, &wide));
    }
    rows.push((Row::new(&mut cuda, "exact top-k", false, Box::new(Exact), elements)?, &narrow_gradients));
    let weights = Gradient::of(&weights);
    let mut figures = Vec::new();
    for (mut row, gradients) in rows {
        progress(&row.name);
        let timed = row.measure(&mut cuda, gradients, &weights, (density, warmup, steps))?;
        let floor = (8 + gradients[0].element().width()) as f64 * elements as f64 / rate / 1e6;
        figures.push(timed.figures(&row, gradients[0].element(), (elements, density, floor)));
    }
    figures.push(scatter(&mut cuda, &wide, (density, steps, rate))?);
    figures.extend(frequencies(&mut cuda, &wide, (warmup, steps, rate))?);
    progress("");
    let device = cuda.device().name().to_owned();
    let outcome = Outcome { device, density, steps, copy_gb_per_s: rate, rows: figures };
    if json { output::print_json(&outcome) } else { output::print(&outcome.describe()) }
}

/// Gigabytes a second of a plain copy, read and written.
fn copy_rate(cuda: &mut Cuda, elements: usize) -> Result<f64> {
    let (from, mut to) = (cuda.zeros(elements)?, cuda.zeros(elements)?);
    let mut times = Vec::new();
    for _ in 0..20 {
        let begun = cuda.device().stamp()?;
        to.copy_from(&from)?;
        let ended = cuda.device().stamp()?;
        times.push(cuda.device().milliseconds(&begun, &ended)? as f64);
    }
    Ok(8.0 * elements as f64 / median(&times) / 1e6)
}

impl Row {
    fn new(
        cuda: &mut Cuda,
        name: &str,
        cold: bool,
        selector: Box<dyn Select>,
        elements: usize,
    ) -> Result<Row> {
        Ok(Row {
            name: name.into(),
            cold,
            selector,
            residual: cuda.zeros(elements)?,
            guess: Guess::default(),
        })
    }

    fn measure(
        &mut self,
        cuda: &mut Cuda,
        gradients: &[Gradient],
        weights: &Gradient,
        (density, warmup, steps): (f64, usize, usize),
    ) -> Result<Timed> {
        let elements = gradients[0].len();
        let whole: [Range<usize>; 1] = [0..elements];
        let sample = Importance::weight_sample(&whole);
        let k = self.selector.quota(elements, density);
        let (mut positions, mut values) = (cuda.positions(), cuda.values());
        let mut timed = Timed { device: Vec::new(), host: Vec::new(), kept: Vec::new() };
        for step in 0..warmup + steps {
            if self.cold {
                self.guess = Guess::default();
            }
            positions.truncate(0);
            values.truncate(0);
            cuda.complete()?;
            let (begun, clock) = (cuda.device().stamp()?, Instant::now());
            let mean_weight = match self.selector.needs_weights() {
                true => cuda.statistics(weights, &sample)?.mean_magnitude(),
                false => 0.0,
            };
            let walk = Walk {
                weights: Some(weights),
                score: self.selector.score(mean_weight),
                ..Walk::new(&gradients[step % gradients.len()], &mut self.residual)
            };
            let mut survey = cuda.survey(walk, &whole, self.selector.expect(k), &mut self.guess)?;
            self.selector.select(&mut survey, k, step as u64);
            self.selector.commit();
            Cuda::finish(survey, &mut positions, &mut values)?;
            // Where the host has chosen (random-k), the end of its choice is the end.
            let finished = cuda.device().stamp()?;
            let chosen = cuda.chosen_at().unwrap_or(finished);
            let clearing = cuda.device().stamp()?;
            cuda.clear(positions.all(), &mut self.residual)?;
            let ended = cuda.device().stamp()?;
            cuda.complete()?;
            let host = clock.elapsed().as_secs_f64() * 1e3;
            if step >= warmup {
                let between = |from, to| cuda.device().milliseconds(from, to).map(f64::from);
                timed.device.push(between(&begun, &chosen)? + between(&clearing, &ended)?);
                timed.host.push(host);
                timed.kept.push(positions.len());
            }
        }
        Ok(timed)
    }
}

impl Timed {
    fn figures(
        &self,
        row: &Row,
        element: Element,
        (elements, density, floor_ms): (usize, f64, f64),
    ) -> Figures {
        let device_ms = median(&self.device);
        Figures {
            what: row.name.clone(),
            elements,
            gradient: element.name(),
            device_ms,
            host_ms: median(&self.host),
            floor_ms,
            ratio: device_ms / floor_ms,
            asked: row.selector.quota(elements, density),
            kept_least: self.kept.iter().copied().min().unwrap_or(0),
            kept_most: self.kept.iter().copied().max().unwrap_or(0),
        }
    }
}

/// The mean of eight ranks' messages, made in the order of the ranks: zeros, then one rank after another.
fn scatter(
    cuda: &mut Cuda,
    gradients: &[Gradient],
    (density, steps, rate): (f64, usize, f64),
) -> Result<Figures> {
    let elements = gradients[0].len();
    let (whole, k) = ([0..elements], Exact.quota(elements, density));
    let mut messages = Vec::new();
    for rank in 0..8 {
        let (mut positions, mut values) = (cuda.positions(), cuda.values());
        let (mut residual, mut guess) = (cuda.zeros(elements)?, Guess::default());
        let walk =
            Walk { scale: 1.0 + rank as f32, ..Walk::new(&gradients[rank % gradients.len()], &mut residual) };
        let mut survey = cuda.survey(walk, &whole, Exact.expect(k), &mut guess)?;
        Exact.select(&mut survey, k, 0);
        Cuda::finish(survey, &mut positions, &mut values)?;
        messages.push((positions, values));
    }
    let mut sum = cuda.zeros(elements)?;
    let (mut device, mut host, mut seen) = (Vec::new(), Vec::new(), None);
    for _ in 0..steps + 2 {
        let (begun, clock) = (cuda.device().stamp()?, Instant::now());
        cuda.clear_ranges(&[0..elements], &mut sum)?;
        for (positions, values) in &messages {
            cuda.scatter_add(positions.all(), values.all(), &mut sum)?;
        }
        let ended = cuda.device().stamp()?;
        cuda.complete()?;
        host.push(clock.elapsed().as_secs_f64() * 1e3);
        device.push(cuda.device().milliseconds(&begun, &ended)? as f64);
        let mut hash = crc32fast::Hasher::new();
        cuda.read(&Gradient::of(&sum), &mut |bytes| hash.update(bytes))?;
        let hash = hash.finalize();
        anyhow::ensure!(*seen.get_or_insert(hash) == hash, "two sums of the same messages differ");
    }
    let floor_ms = 4.0 * elements as f64 / rate / 1e6;
    let device_ms = median(&device);
    Ok(Figures {
        what: "scatter-add of 8 ranks".into(),
        elements,
        gradient: "f32",
        device_ms,
        host_ms: median(&host),
        floor_ms,
        ratio: device_ms / floor_ms,
        asked: 8 * k,
        kept_least: 8 * k,
        kept_most: 8 * k,
    })
}

/// The method `fft` with its defaults, 15 % of the bins at 10 bits: compress, and decompress the own message.
fn frequencies(
    cuda: &mut Cuda,
    gradients: &[Gradient],
    (warmup, steps, rate): (usize, usize, f64),
) -> Result<Vec<Figures>> {
    let (elements, density) = (gradients[0].len(), 0.15);
    let plan = ValuePlan::Covering { bits: 10, mantissa: 5, rounding: Rounding::Truncate };
    let mut trip = FftTrip::new(cuda, elements)?;
    let (mut compress, mut decompress, mut both, mut host) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for step in 0..warmup + steps {
        progress(&format!("fft, step {} of {}", step + 1, warmup + steps));
        let clock = Instant::now();
        let times = trip.step(cuda, &gradients[step % gradients.len()], density, &plan)?;
        if step >= warmup {
            host.push(clock.elapsed().as_secs_f64() * 1e3);
            compress.push(times.compress);
            decompress.push(times.decompress);
            both.push(times.compress + times.decompress);
        }
    }
    let floor_ms = 12.0 * elements as f64 / rate / 1e6;
    let figures = |what: &str, device: &[f64]| Figures {
        what: what.into(),
        elements,
        gradient: "f32",
        device_ms: median(device),
        // The host's clock covers both, and the copies of the frame.
        host_ms: median(&host),
        floor_ms,
        ratio: median(device) / floor_ms,
        asked: Exact.quota(elements / 2, density),
        kept_least: 0,
        kept_most: 0,
    };
    Ok(vec![
        figures("fft: compress", &compress),
        figures("fft: decompress", &decompress),
        figures("fft: both", &both),
    ])
}

impl Outcome {
    fn describe(&self) -> String {
        let titles = ["what", "gradient", ">device ms", ">host ms", ">floor ms", ">× floor", ">kept"];
        let cells = |row: &Figures| {
            let kept = if row.kept_least == row.kept_most {
                row.kept_least.to_string()
            } else {
                format!("{}-{}", row.kept_least, row.kept_most)
            };
            vec![
                row.what.clone(),
                row.gradient.to_owned(),
                format!("{:.3}", row.device_ms),
                format!("{:.3}", row.host_ms),
                format!("{:.3}", row.floor_ms),
                format!("{:.2}", row.ratio),
                kept,
            ]
        };
        format!(
            "{}, {} elements, density {}, median of {} steps; a plain copy moves {:.0} GB/s\n\n{}\n\
             device   on the GPU's clock: until the selection stands in its memory, and clearing the residual there\n\
             host     on the host's clock, with the copy of the message to host memory and all waits; for fft also of \
             the frame, to the host and back\n\
             floor    gradient and residual read and the residual written once (for the scatter-add: the sum written \
             once), at the rate of a plain copy\n",
            self.device,
            self.rows.first().map_or(0, |row| row.elements),
            self.density,
            self.steps,
            self.copy_gb_per_s,
            output::table(&titles, self.rows.iter().map(cells)),
        )
    }
}
