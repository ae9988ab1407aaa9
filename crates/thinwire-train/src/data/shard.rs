//! Which samples which worker sees in which step.

use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{Error, Result};

/// The order of the training samples, cut into the batches of the workers.
///
/// In each epoch the samples stand in a random order that depends on seed and epoch alone. The batches of all
/// workers of one step are one contiguous piece of it, and worker r has the r-th part of that piece: one worker
/// with batches of 4 B samples and four workers with batches of B see the same samples in the same step. The samples
/// at the end of the order that fill no whole step are left out; other ones in every epoch.
#[derive(Debug, Clone)]
pub struct Epochs {
    workers: usize,
    batch: usize,
    seed: u64,
    /// The order of epoch `epoch`, once there is one.
    epoch: Option<u64>,
    order: Vec<usize>,
}

impl Epochs {
    /// For so many samples, workers and samples in the batch of each worker.
    ///
    /// # Errors
    /// [`Error::BadSetting`] if there are no workers, the batch is empty, or the samples are too few for one step.
    pub fn new(samples: usize, workers: usize, batch: usize, seed: u64) -> Result<Epochs> {
        if workers == 0 || batch == 0 {
            let name = if workers == 0 { "workers" } else { "batch" };
            return Err(bad(name, "0".into(), "1 or more".into()));
        }
        if workers.checked_mul(batch).is_none_or(|step| step > samples) {
            let found = format!("{batch} with {workers} workers");
            let expected =
                format!("batch times workers may be at most {samples}, the number of training samples");
            return Err(bad("batch", found, expected));
        }
        Ok(Epochs { workers, batch, seed, epoch: None, order: (0..samples).collect() })
    }

    /// Whole steps in one pass over the samples.
    pub fn steps_per_epoch(&self) -> u64 {
        (self.order.len() / (self.workers * self.batch)) as u64
    }

    /// The epoch, from 0, that this step belongs to.
    pub fn epoch_of(&self, step: u64) -> u64 {
        step / self.steps_per_epoch()
    }

    /// Puts the numbers of the samples of worker `rank` in step `step`, counted from the start of the training, in
    /// place of what is in `into`. Steps may be asked for in any order; going back and forth between epochs draws
    /// their orders anew.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn samples(&mut self, rank: usize, step: u64, into: &mut Vec<usize>) {
        assert!(rank < self.workers, "there is no worker {rank} of {}", self.workers);
        let epoch = self.epoch_of(step);
        if self.epoch != Some(epoch) {
            // From the same start every time, so that an epoch's order does not depend on the epochs before it.
            self.order.iter_mut().enumerate().for_each(|(number, sample)| *sample = number);
            shuffle(&mut self.order, mix(self.seed, epoch));
            self.epoch = Some(epoch);
        }
        let batch = (step % self.steps_per_epoch()) as usize * self.workers + rank;
        into.clear();
        into.extend_from_slice(&self.order[batch * self.batch..][..self.batch]);
    }
}

/// The number that stands for seed and epoch in [`Samples::batch`](super::Samples::batch).
pub fn augment_number(seed: u64, epoch: u64) -> u64 {
    // Not the number that the order of the epoch comes from.
    mix(mix(seed, epoch), 0x00a1_61e7)
}

/// The part of the test samples that worker `rank` measures: the parts of all workers together are all samples, and
/// differ by one in size at most.
pub fn test_share(rank: usize, workers: usize, samples: usize) -> Range<usize> {
    let edge = |rank: usize| (rank as u128 * samples as u128 / workers as u128) as usize;
    edge(rank)..edge(rank + 1)
}

/// Brings numbers into a random order (Fisher and Yates) that depends on the seed alone.
pub(super) fn shuffle(numbers: &mut [usize], seed: u64) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for last in (1..numbers.len()).rev() {
        // Drawn as u64, so that machines of other word sizes draw the same.
        numbers.swap(last, random.random_range(0..=last as u64) as usize);
    }
}

/// One number from two, such that close pairs give unrelated ones (the finaliser of SplitMix64 over both).
pub(super) fn mix(one: u64, other: u64) -> u64 {
    let scatter = |number: u64| {
        let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    };
    scatter(scatter(one) ^ other)
}

fn bad(name: &str, found: String, expected: String) -> Error {
    Error::BadSetting { name: name.into(), found, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epochs: &mut Epochs, rank: usize, step: u64) -> Vec<usize> {
        let mut samples = vec![99];
        epochs.samples(rank, step, &mut samples);
        samples
    }

    #[test]
    fn one_worker_with_large_batches_sees_what_four_with_small_ones_see() {
        let mut one = Epochs::new(103, 1, 20, 5).unwrap();
        let mut four = Epochs::new(103, 4, 5, 5).unwrap();
        assert_eq!((one.steps_per_epoch(), four.steps_per_epoch()), (5, 5));
        for step in 0..17 {
            let parts: Vec<usize> = (0..4).flat_map(|rank| batch(&mut four, rank, step)).collect();
            assert_eq!(parts, batch(&mut one, 0, step), "step {step}");
        }
    }

    #[test]
    fn every_sample_comes_once_an_epoch() {
        let mut epochs = Epochs::new(60, 3, 4, 1).unwrap();
        for epoch in 0..3 {
            let steps = epoch * 5..(epoch + 1) * 5;
            let pairs = steps.flat_map(|step| (0..3).map(move |rank| (rank, step)));
            let mut seen: Vec<usize> =
                pairs.flat_map(|(rank, step)| batch(&mut epochs, rank, step)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..60).collect::<Vec<_>>(), "epoch {epoch}");
            assert_eq!(epochs.epoch_of(epoch * 5 + 4), epoch);
        }
        // What fills no step is left out, and nothing comes twice.
        let mut uneven = Epochs::new(65, 3, 4, 1).unwrap();
        let seen: Vec<usize> = (0..15).flat_map(|i| batch(&mut uneven, i % 3, i as u64 / 3)).collect();
        assert_eq!(seen.iter().collect::<std::collections::HashSet<_>>().len(), 60);
    }

    #[test]
    fn the_order_depends_on_seed_and_epoch_alone() {
        let mut forward = Epochs::new(40, 2, 5, 9).unwrap();
        let mut backward = forward.clone();
        let ahead: Vec<_> = (0..12).map(|step| batch(&mut forward, 1, step)).collect();
        let mut back: Vec<_> = (0..12).rev().map(|step| batch(&mut backward, 1, step)).collect();
        back.reverse();
        assert_eq!(ahead, back, "a resumed run sees what an unbroken one sees");
        assert_ne!(ahead[0], ahead[4], "epochs differ");
        assert_ne!(ahead[0], batch(&mut Epochs::new(40, 2, 5, 10).unwrap(), 1, 0), "seeds differ");
    }

    #[test]
    fn orders_are_uniform() {
        let mut counts = [[0usize; 5]; 5];
        for seed in 0..5000 {
            let mut numbers = [0, 1, 2, 3, 4];
            shuffle(&mut numbers, mix(seed, 0));
            numbers.iter().enumerate().for_each(|(place, &number)| counts[place][number] += 1);
        }
        // 1,000 expected, with a deviation of 28.
        assert!(counts.iter().flatten().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn too_few_samples_for_a_step_are_refused_with_the_numbers() {
        let message =
            |samples, workers, batch| Epochs::new(samples, workers, batch, 0).unwrap_err().to_string();
        let expected =
            "batch 32 with 4 workers: batch times workers may be at most 100, the number of training samples";
        assert_eq!(message(100, 4, 32), expected);
        assert_eq!(message(100, 0, 32), "workers 0: 1 or more");
        assert_eq!(message(100, 4, 0), "batch 0: 1 or more");
        assert!(message(100, usize::MAX, 2).contains("at most 100"));
        assert_eq!(Epochs::new(128, 4, 32, 0).unwrap().steps_per_epoch(), 1);
    }

    #[test]
    fn shares_of_the_test_set_cover_it() {
        for (workers, samples) in [(1, 7), (3, 10), (4, 300), (5, 3), (7, 0)] {
            let shares: Vec<_> = (0..workers).map(|rank| test_share(rank, workers, samples)).collect();
            assert_eq!((shares[0].start, shares[workers - 1].end), (0, samples));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            let sizes = shares.iter().map(ExactSizeIterator::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }

    #[test]
    fn numbers_for_variation_differ_by_seed_and_epoch() {
        let numbers: std::collections::HashSet<u64> =
            (0..30).flat_map(|seed| (0..30).map(move |epoch| augment_number(seed, epoch))).collect();
        assert_eq!(numbers.len(), 900);
    }
}
