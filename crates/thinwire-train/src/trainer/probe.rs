//! Looks at the gradients of a few steps, for the report: how they are distributed (paper 4), how full a ring
//! without agreed coordinates would become (paper 1), and what each method makes of them (paper 3).

use std::collections::BTreeMap;

use thinwire::Bucket;
use thinwire::group::{Algorithm, Gathered, Group, SharedGroup};
use thinwire::kernels::Cpu;
use thinwire::pipeline::{Aggregator, Compressor, Exchange, Input, Momentum, Recipe};

use super::buckets::Buckets;
use crate::Result;
use crate::event::{Distribution, Event, FillIn, QUANTILES, Reconstructed, Reconstruction};

/// Bins of a histogram, and its half width in standard deviations.
const BINS: usize = 81;
const WIDTH: f64 = 6.0;

/// The density where the method has none of its own: paper 3 compares methods at this one.
const DENSITY_OF_DENSE: f64 = 0.01;

/// The methods whose reconstruction is compared, at the density of paper 3.
const COMPARED: [&str; 6] = [
    "topk:density=0.15",
    "gaussian-k:density=0.15",
    "redsync:density=0.15,dense_up_to=0",
    "fft:theta=0.85,bits=0",
    "fft:theta=0.85",
    "random-k:density=0.15",
];

/// Looks at gradients.
pub(super) struct Probe {
    /// The density the method is asked for once its warm-up is over.
    density: f64,
    /// The method of the run.
    method: String,
}

impl Probe {
    /// For a run with this method.
    pub fn new(recipe: &Recipe) -> Probe {
        let density = if recipe.density < 1.0 { recipe.density } else { DENSITY_OF_DENSE };
        // What an automatic method will choose is not known; what it chooses from is here anyway.
        let automatic = recipe.exchange == Exchange::Automatic;
        Probe { density, method: if automatic { "topk".into() } else { recipe.spec.clone() } }
    }

    /// What there is to see of worker 0's gradients and, where all workers are needed, of everybody's. All workers
    /// call it together; only worker 0 gets events.
    pub fn look(
        &mut self,
        step: u64,
        group: &mut SharedGroup,
        buckets: &Buckets,
        gradients: &[Vec<f32>],
        weights: &[Vec<f32>],
        residual: &BTreeMap<String, Vec<f32>>,
    ) -> Result<Vec<Event>> {
        let accumulated = accumulated(buckets, gradients, residual);
        if accumulated.iter().any(|element| !element.is_finite()) {
            return self.fill_in(step, group, &vec![0.0; accumulated.len()]).map(|_| Vec::new());
        }
        let fill_in = self.fill_in(step, group, &accumulated)?;
        if group.rank() != 0 {
            return Ok(Vec::new());
        }
        let (gradient, weights) = (gradients.concat(), weights.concat());
        Ok(vec![
            Event::Distribution(self.distribution(step, &accumulated)),
            Event::FillIn(fill_in),
            Event::Reconstruction(self.reconstruction(step, buckets, &gradient, &weights)?),
        ])
    }

    fn distribution(&self, step: u64, elements: &[f32]) -> Distribution {
        let count = elements.len() as f64;
        let mean = elements.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let variance = elements.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
        let deviation = variance.sqrt();
        let mut counts = vec![0; BINS];
        for &element in elements {
            let place =
                ((f64::from(element) - mean) / deviation.max(f64::MIN_POSITIVE) + WIDTH) / (2.0 * WIDTH);
            counts[((place * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
        let k = quota(elements.len(), self.density);
        let mut squares: Vec<f64> = elements.iter().map(|&x| f64::from(x).powi(2)).collect();
        let energy: f64 = squares.iter().sum();
        squares.select_nth_unstable_by(elements.len() - k, f64::total_cmp);
        let left: f64 = squares[..elements.len() - k].iter().sum();
        Distribution {
            step,
            mean,
            deviation,
            range: (-WIDTH, WIDTH),
            counts,
            bound: (1.0 - k as f64 / count).powi(2),
            left: if energy > 0.0 { left / energy } else { 0.0 },
        }
    }

    /// The union of what the first, the first two, … workers would have chosen.
    fn fill_in(&self, step: u64, group: &mut SharedGroup, elements: &[f32]) -> Result<FillIn> {
        let length = elements.len();
        let mut order: Vec<u32> = (0..length as u32).collect();
        let k = quota(length, self.density);
        order.select_nth_unstable_by(k - 1, |&a, &b| {
            elements[b as usize].abs().total_cmp(&elements[a as usize].abs())
        });
        let mut mask = vec![0_u8; length.div_ceil(8)];
        order[..k].iter().for_each(|&place| mask[place as usize / 8] |= 1 << (place % 8));
        let mut gathered = Gathered::default();
        group.all_gather(&mask, mask.len(), Algorithm::for_size(mask.len(), group.size()), &mut gathered)?;
        let mut union = vec![0_u8; mask.len()];
        let mut unagreed = Vec::new();
        for theirs in gathered.iter() {
            union.iter_mut().zip(theirs).for_each(|(union, theirs)| *union |= theirs);
            let full: u64 = union.iter().map(|byte| u64::from(byte.count_ones())).sum();
            unagreed.push(full as f64 / length as f64);
        }
        let own = k as f64 / length as f64;
        let independent = (1..=group.size()).map(|workers| 1.0 - (1.0 - own).powi(workers as i32)).collect();
        // What did travel is known once the step is done.
        Ok(FillIn { step, unagreed, independent, sent: own })
    }

    /// Each method on the same gradient, with an empty memory.
    fn reconstruction(
        &self,
        step: u64,
        buckets: &Buckets,
        gradient: &[f32],
        weights: &[f32],
    ) -> Result<Reconstruction> {
        let layout = buckets.layout()?;
        let output: Vec<&str> = layout.output().map(|layer| layer.name()).collect();
        let bucket = Bucket::new(0, buckets.layers().iter().flatten().cloned())?.with_output(&output);
        let compared = COMPARED.into_iter().filter(|method| *method != self.method);
        let methods = compared.chain([self.method.as_str()]).map(|method| {
            let mut recipe = thinwire::method::parse(method)?;
            // A gradient that was clipped or remembered would be another one.
            (recipe.clip, recipe.momentum) = (None, Momentum::Off);
            reconstruct(method, recipe, &bucket, gradient, weights)
        });
        Ok(Reconstruction { step, methods: methods.collect::<Result<_>>()? })
    }
}

/// What a worker would choose from: gradient plus residual, bucket by bucket.
fn accumulated(buckets: &Buckets, gradients: &[Vec<f32>], residual: &BTreeMap<String, Vec<f32>>) -> Vec<f32> {
    let mut sum = gradients.concat();
    let mut rest = &mut sum[..];
    for (name, shape) in buckets.layers().iter().flatten() {
        let (layer, after) = rest.split_at_mut(shape.iter().product());
        if let Some(kept) = residual.get(name) {
            layer.iter_mut().zip(kept).for_each(|(gradient, kept)| *gradient += kept);
        }
        rest = after;
    }
    sum
}

fn quota(length: usize, density: f64) -> usize {
    ((length as f64 * density) as usize).clamp(1, length)
}

fn reconstruct(
    method: &str,
    recipe: Recipe,
    bucket: &Bucket,
    gradient: &[f32],
    weights: &[f32],
) -> Result<Reconstructed> {
    let mut cpu = Cpu::new(1);
    let mut aggregator = Aggregator::new(&recipe, bucket.clone())?;
    let mut compressor = Compressor::new(recipe, bucket.clone())?;
    let (mut frame, mut back) = (Vec::new(), vec![0.0; gradient.len()]);
    let input = Input { weights: Some(weights), ..Input::new(gradient) };
    let report = compressor.compress(&mut cpu, &input, &mut frame)?;
    aggregator.sum(&mut cpu, [&frame[..]], None, 1.0, &mut back)?;
    let norm = |elements: &[f64]| elements.iter().map(|x| x * x).sum::<f64>().sqrt();
    let whole: Vec<f64> = gradient.iter().map(|&x| f64::from(x)).collect();
    let mut errors: Vec<f64> = whole.iter().zip(&back).map(|(x, y)| (x - f64::from(*y)).abs()).collect();
    let (size, missed) = (norm(&whole).max(f64::MIN_POSITIVE), norm(&errors));
    errors.sort_unstable_by(f64::total_cmp);
    let root_mean_square = size / (gradient.len() as f64).sqrt();
    let quantile = |percent: f64| {
        errors[((errors.len() - 1) as f64 * percent / 100.0).round() as usize] / root_mean_square
    };
    Ok(Reconstructed {
        method: method.to_owned(),
        error: missed / size,
        ratio: report.wire_ratio(),
        quantiles: QUANTILES.map(quantile).to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use thinwire::group::Local;

    use super::*;
    use crate::data::Kind;
    use crate::model;

    fn buckets() -> Buckets {
        let kind = Kind::Images { channels: 1, height: 8, width: 8, classes: 10 };
        let (_, segments) =
            model::build("mlp:hidden=32,layers=2", kind, 1, &Device::flex().autodiff()).unwrap();
        Buckets::new(&segments, 0)
    }

    /// Elements that no two ranks rank alike.
    fn gradients(buckets: &Buckets, rank: usize) -> Vec<Vec<f32>> {
        let element = |i: usize| ((i * 7919 + rank * 104_729) % 10_007) as f32 / 10_007.0 - 0.5;
        buckets.lengths().iter().map(|&length| (0..length).map(element).collect()).collect()
    }

    #[test]
    fn worker_0_sees_all_there_is_to_see() {
        let events = Local::run(3, |group| {
            let (buckets, mut group) = (buckets(), SharedGroup::new(group));
            let gradients = gradients(&buckets, group.rank());
            let mut probe = Probe::new(&thinwire::method::parse("ar-topk:density=0.1").unwrap());
            probe.look(7, &mut group, &buckets, &gradients, &gradients, &BTreeMap::new()).unwrap()
        });
        assert!(events[1].is_empty() && events[2].is_empty());
        let [Event::Distribution(distribution), Event::FillIn(fill_in), Event::Reconstruction(all)] =
            &events[0][..]
        else {
            panic!("{events:?}")
        };
        let elements: usize = buckets().lengths().iter().sum();
        assert_eq!(distribution.counts.iter().sum::<u64>(), elements as u64);
        // Elements spread evenly over -0.5 to 0.5.
        assert!(distribution.mean.abs() < 0.02 && (distribution.deviation - 0.2887).abs() < 0.01);
        assert!(distribution.left < distribution.bound);
        assert!(fill_in.unagreed.is_sorted() && (fill_in.unagreed[0] - 0.1).abs() < 1e-3);
        assert!(fill_in.unagreed[2] > 0.25 && fill_in.unagreed[2] <= 0.3);
        assert!((fill_in.independent[2] - 0.271).abs() < 1e-3);
        let error = |method: &str| {
            all.methods
                .iter()
                .find(|m| m.method == method)
                .unwrap_or_else(|| panic!("{method}: {all:?}"))
                .error
        };
        assert!(error("topk:density=0.15") < error("random-k:density=0.15"));
        assert!(error("ar-topk:density=0.1") > error("topk:density=0.15"));
        assert!(all.methods.iter().all(|method| method.quantiles.is_sorted() && method.ratio > 1.0));
    }

    #[test]
    fn what_was_kept_counts() {
        let buckets = buckets();
        let gradients = gradients(&buckets, 0);
        let (name, shape) = &buckets.layers()[1][0];
        let kept = BTreeMap::from([(name.clone(), vec![1.0; shape.iter().product()])]);
        let sum = accumulated(&buckets, &gradients, &kept);
        let first = buckets.lengths()[0];
        assert_eq!(sum[..first], gradients[0]);
        assert_eq!(sum[first], gradients[1][0] + 1.0);
    }

    #[test]
    fn a_gradient_that_is_no_number_is_not_looked_at() {
        let events = Local::run(2, |group| {
            let (buckets, mut group) = (buckets(), SharedGroup::new(group));
            let mut gradients = gradients(&buckets, 0);
            gradients[0][0] = if group.rank() == 0 { f32::NAN } else { 0.0 };
            let mut probe = Probe::new(&thinwire::method::parse("dense").unwrap());
            probe.look(0, &mut group, &buckets, &gradients, &gradients, &BTreeMap::new()).unwrap()
        });
        assert!(events.iter().all(Vec::is_empty));
    }
}
