//! Workers: how fast each is, how even their links are, and the noise.

use super::MOST_WORKERS;
use crate::{Error, Result};

/// The workers of a simulation. Everything random about them is a function of the seed, the step and the rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// How many there are.
    pub workers: usize,
    /// Seconds of a step apart from synchronising, on a worker of the usual speed.
    pub compute: f64,
    /// By how much times vary from step to step, evenly to both sides: the computing of each worker for itself, latency
    /// and bandwidth for all of them together.
    pub noise: f64,
    /// How many times slower than the network's the slowest link is; the others lie in between, the logarithms evenly.
    pub uneven: f64,
    /// Workers that are always slower.
    pub stragglers: Slow,
    /// How often any worker is slower for a single step.
    pub hiccups: Slow,
    /// What everything random begins with.
    pub seed: u64,
}

/// A share of workers, or of steps, that takes this many times as long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// The share, from 0 to 1.
    pub share: f64,
    /// How many times as long.
    pub factor: f64,
}

impl Slow {
    /// Nobody, never.
    pub const NONE: Slow = Slow { share: 0.0, factor: 1.0 };
}

impl Default for Cluster {
    /// Eight even workers that compute for 120 ms, without noise.
    fn default() -> Cluster {
        Cluster {
            workers: 8,
            compute: 0.12,
            noise: 0.0,
            uneven: 1.0,
            stragglers: Slow::NONE,
            hiccups: Slow::NONE,
            seed: 1,
        }
    }
}

impl Cluster {
    /// Refuses what can't be.
    pub fn check(&self) -> Result<()> {
        let wrong = |name: &str, found: String, expected: String| {
            Err(Error::BadSetting { name: name.into(), found, expected })
        };
        let Cluster { workers, compute, noise, uneven, stragglers, hiccups, .. } = *self;
        if !(1..=MOST_WORKERS).contains(&workers) {
            return wrong("workers", workers.to_string(), format!("1 to {MOST_WORKERS}"));
        }
        if !(compute.is_finite() && compute >= 0.0) {
            return wrong("compute", format!("{compute} s"), "a time of 0 or more".into());
        }
        if !(0.0..=0.9).contains(&noise) {
            return wrong("noise", noise.to_string(), "a part from 0 to 0.9".into());
        }
        if !(1.0..=1e3).contains(&uneven) {
            return wrong("uneven", uneven.to_string(), "a factor from 1 to 1000".into());
        }
        for (name, slow) in [("stragglers", stragglers), ("hiccups", hiccups)] {
            if !((0.0..=1.0).contains(&slow.share) && (1.0..=1e3).contains(&slow.factor)) {
                let expected = "a share from 0 to 1 and a factor from 1 to 1000".into();
                return wrong(name, format!("{} x{}", slow.share, slow.factor), expected);
            }
        }
        Ok(())
    }

    /// How many times longer than the network's bytes those of each worker take.
    pub fn links(&self) -> Vec<f64> {
        let place = |rank: usize| match self.workers {
            1 => 0.0,
            many => rank as f64 / (many - 1) as f64,
        };
        // Who has which is shuffled: neighbours in a ring are no neighbours in speed.
        let mut order: Vec<usize> = (0..self.workers).collect();
        order.sort_by_key(|rank| self.word(0, *rank, LINK));
        order.iter().map(|rank| self.uneven.powf(place(*rank))).collect()
    }

    /// How many times as long as usual a worker takes for everything in a step.
    pub fn pace(&self, step: usize, rank: usize) -> f64 {
        let slow = |slow: Slow, chance: f64| if chance < slow.share { slow.factor } else { 1.0 };
        self.usual_pace(rank)
            * slow(self.hiccups, self.part(step, rank, HICCUP))
            * self.around_one(step, rank, COMPUTE)
    }

    /// The same on a usual step.
    pub fn usual_pace(&self, rank: usize) -> f64 {
        let straggles = self.part(0, rank, STRAGGLER) < self.stragglers.share;
        if straggles { self.stragglers.factor } else { 1.0 }
    }

    /// By what latency and seconds for a byte differ from usual in a step.
    pub fn weather(&self, step: usize) -> (f64, f64) {
        (self.around_one(step, 0, LATENCY), self.around_one(step, 0, BYTE))
    }

    /// A number around 1, for what `what` is measured with.
    pub(super) fn around_one(&self, step: usize, rank: usize, what: u64) -> f64 {
        1.0 + self.noise * (2.0 * self.part(step, rank, what) - 1.0)
    }

    /// A number from 0 up to 1.
    pub(super) fn part(&self, step: usize, rank: usize, what: u64) -> f64 {
        (self.word(step, rank, what) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn word(&self, step: usize, rank: usize, what: u64) -> u64 {
        let place = (step as u64) << 16 | rank as u64;
        mix(mix(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ what << 56).wrapping_add(place))
    }
}

const COMPUTE: u64 = 1;
const LATENCY: u64 = 2;
const BYTE: u64 = 3;
const LINK: u64 = 4;
const STRAGGLER: u64 = 5;
const HICCUP: u64 = 6;
pub(super) const GAIN: u64 = 7;
pub(super) const PROBE: u64 = 8;

/// A counter to a random-looking word.
fn mix(counter: u64) -> u64 {
    crate::select::mix(counter.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_stays_in_its_bounds_and_is_around_one() {
        let cluster = Cluster { noise: 0.1, workers: 100, ..Cluster::default() };
        let paces: Vec<f64> = (0..100)
            .flat_map(|step| (0..100).map(move |rank| (step, rank)))
            .map(|(s, r)| cluster.pace(s, r))
            .collect();
        assert!(paces.iter().all(|pace| (0.9..1.1).contains(pace)));
        let mean = paces.iter().sum::<f64>() / paces.len() as f64;
        assert!((mean - 1.0).abs() < 2e-3, "{mean}");
    }

    #[test]
    fn as_many_are_slow_as_was_asked() {
        let slow = Slow { share: 0.1, factor: 3.0 };
        let cluster = Cluster { stragglers: slow, workers: 4096, ..Cluster::default() };
        let count = (0..4096).filter(|rank| cluster.pace(7, *rank) == 3.0).count();
        assert!((350..470).contains(&count), "{count}");
        let cluster = Cluster { hiccups: slow, stragglers: Slow::NONE, ..cluster };
        let slow_in =
            |step: usize| (0..4096).filter(|rank| cluster.pace(step, *rank) == 3.0).collect::<Vec<_>>();
        assert!((350..470).contains(&slow_in(3).len()));
        assert_ne!(slow_in(3), slow_in(4));
    }

    #[test]
    fn links_lie_between_the_networks_and_the_slowest() {
        let links = Cluster { uneven: 2.0, workers: 5, ..Cluster::default() }.links();
        let mut sorted = links.clone();
        sorted.sort_by(f64::total_cmp);
        assert_eq!((sorted[0], sorted[4]), (1.0, 2.0));
        assert!((sorted[2] - 2f64.sqrt()).abs() < 1e-12);
        assert_eq!(Cluster { workers: 3, ..Cluster::default() }.links(), [1.0; 3]);
    }

    #[test]
    fn what_can_not_be_is_named() {
        for (cluster, word) in [
            (Cluster { workers: 0, ..Cluster::default() }, "workers"),
            (Cluster { workers: 4097, ..Cluster::default() }, "4097"),
            (Cluster { noise: 1.0, ..Cluster::default() }, "noise"),
            (Cluster { uneven: 0.5, ..Cluster::default() }, "uneven"),
            (Cluster { compute: f64::NAN, ..Cluster::default() }, "compute"),
            (Cluster { stragglers: Slow { share: 2.0, factor: 1.0 }, ..Cluster::default() }, "stragglers"),
        ] {
            assert!(cluster.check().unwrap_err().to_string().contains(word));
        }
    }
}
