//! How fast bytes travel, for each collective.

use super::{Collective, Leg};
use crate::adapt::cost::{Load, Network, Ranks};

/// A network as each of the collectives finds it.
///
/// On a slow link they all find the same. Where the machine is what limits them, they differ: an all-reduce adds, a
/// chain wakes one rank after the other, and a hundred small messages take longer than one. Two numbers are not always
/// enough: a link that lets the first bytes pass at once, or a cache that the larger messages do not fit, bend the
/// line. So a collective may also have [`Sample`]s, and what lies between two of them is read off between them.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Wire {
    found: [Found; Collective::ALL.len()],
}

/// What one collective finds.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Found {
    collective: Collective,
    #[serde(flatten)]
    network: Network,
    /// In ascending order of their bytes.
    samples: Vec<Sample>,
}

/// What a collective of one size took.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// The messages that waited for each other.
    pub hops: f64,
    /// The bytes that passed one after the other.
    pub bytes: f64,
    /// The time.
    pub seconds: f64,
}

impl Wire {
    /// The same for all collectives.
    pub fn uniform(network: Network) -> Wire {
        Wire { found: Collective::ALL.map(|collective| Found { collective, network, samples: Vec::new() }) }
    }

    /// Sets what one collective finds.
    pub fn set(&mut self, collective: Collective, network: Network) {
        self.found[collective.place()] = Found { collective, network, samples: Vec::new() };
    }

    /// Sets what one collective takes, by measurements of several sizes. The latency is that of the smallest, the
    /// seconds for a byte are those between the two largest.
    ///
    /// ```
    /// use thinwire::adapt::cost::Ranks;
    /// use thinwire::adapt::price::{Collective, Leg, Sample, Wire};
    ///
    /// let mut wire = Wire::uniform("1gbit,1ms".parse()?);
    /// let sample = |bytes: f64, ms: f64| Sample { hops: 1.0, bytes, seconds: ms / 1e3 };
    /// // The first 100 kB pass at once.
    /// wire.set_samples(Collective::ChainCast, vec![sample(0.0, 1.0), sample(1e5, 1.0), sample(1e6, 8.2)]);
    /// let ms = |bytes| 1e3 * wire.seconds(Ranks::new(2), Leg { collective: Collective::ChainCast, bytes: bytes - 40.0 });
    /// assert!((ms(5e4) - 1.0).abs() < 1e-9);
    /// assert!((ms(5.5e5) - 4.6).abs() < 1e-9);
    /// assert!((ms(2e6) - 16.2).abs() < 1e-9);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn set_samples(&mut self, collective: Collective, mut samples: Vec<Sample>) {
        samples.sort_by(|one, other| one.bytes.total_cmp(&other.bytes));
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return };
        let before = samples[samples.len().saturating_sub(2)];
        let slope = (last.seconds - before.seconds) / (last.bytes - before.bytes);
        // A disturbed measurement may be larger than the next.
        let plausible = slope.is_finite() && slope > 0.25 * last.seconds / last.bytes.max(1.0);
        let seconds_per_byte = if plausible { slope } else { last.seconds / last.bytes.max(1.0) };
        let latency = (first.seconds - first.bytes * seconds_per_byte).max(0.0) / first.hops.max(1.0);
        self.found[collective.place()] =
            Found { collective, network: Network { latency, seconds_per_byte }, samples };
    }

    /// What one collective finds.
    pub fn network(&self, collective: Collective) -> Network {
        self.found[collective.place()].network
    }

    /// The seconds of a leg.
    ///
    /// ```
    /// use thinwire::adapt::cost::Ranks;
    /// use thinwire::adapt::price::{Collective, Leg, Wire};
    ///
    /// let wire = Wire::uniform("1gbit,1ms".parse()?);
    /// let leg = Leg { collective: Collective::RingSum, bytes: 25e6 };
    /// assert!((wire.seconds(Ranks::new(4), leg) - 0.306).abs() < 1e-3);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn seconds(&self, ranks: Ranks, leg: Leg) -> f64 {
        self.found[leg.collective.place()].seconds(leg.collective.load(ranks, leg.bytes))
    }

    /// The same machine on another network: what has been added to latency and byte in between.
    pub fn moved(&self, from: Network, to: Network) -> Wire {
        let mut wire = self.clone();
        for found in &mut wire.found {
            let network = found.network;
            found.network = Network {
                latency: (network.latency + to.latency - from.latency).max(0.1 * to.latency),
                seconds_per_byte: (network.seconds_per_byte + to.seconds_per_byte - from.seconds_per_byte)
                    .max(0.5 * to.seconds_per_byte),
            };
            for sample in &mut found.samples {
                let load = Load { hops: sample.hops, bytes: sample.bytes };
                let least = 0.1 * load.seconds(found.network);
                sample.seconds = (sample.seconds + load.seconds(to) - load.seconds(from)).max(least);
            }
        }
        wire
    }
}

impl Found {
    fn seconds(&self, load: Load) -> f64 {
        let next = self.samples.partition_point(|sample| sample.bytes < load.bytes);
        let (before, after) = (next.checked_sub(1).map(|at| self.samples[at]), self.samples.get(next));
        let (near, slope) = match (before, after) {
            (None, None) => return load.seconds(self.network),
            (None, Some(first)) => (*first, self.network.seconds_per_byte),
            (Some(last), None) => (last, self.network.seconds_per_byte),
            (Some(a), Some(b)) => (a, (b.seconds - a.seconds) / (b.bytes - a.bytes)),
        };
        let further = (load.hops - near.hops) * self.network.latency;
        if load == Load::default() {
            return 0.0;
        }
        (near.seconds + slope * (load.bytes - near.bytes) + further).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(ms: f64, gbit: f64) -> Network {
        Network::from_gbit_ms(gbit, ms).unwrap()
    }

    #[test]
    fn what_a_collective_adds_stays_when_the_network_changes() {
        let mut wire = Wire::uniform(network(1.0, 1.0));
        wire.set(Collective::TreeSum, network(1.5, 0.5));
        let moved = wire.moved(network(1.0, 1.0), network(50.0, 0.1));
        let tree = moved.network(Collective::TreeSum);
        assert!((tree.latency - 50.5e-3).abs() < 1e-9);
        assert!((tree.seconds_per_byte - 88e-9).abs() < 1e-15);
        let back = moved.moved(network(50.0, 0.1), network(1.0, 1.0));
        assert!((back.network(Collective::TreeSum).latency - 1.5e-3).abs() < 1e-9);
        // Never below zero, whatever was measured.
        let odd = wire.moved(network(1.0, 1.0), network(0.0, 100.0));
        assert!(Collective::ALL.iter().all(|c| odd.network(*c).seconds_per_byte > 0.0));
        assert!(Collective::ALL.iter().all(|c| odd.network(*c).latency >= 0.0));
    }

    /// Samples of a straight all-gather of two ranks on a network, each this much off.
    fn sampled(network: Network, off: f64) -> Wire {
        let mut wire = Wire::uniform(network);
        let sample = |bytes: f64| {
            let load = Collective::StraightGather.load(Ranks::new(2), bytes);
            Sample { hops: load.hops, bytes: load.bytes, seconds: load.seconds(network) + off }
        };
        wire.set_samples(Collective::StraightGather, [1e6, 64.0, 1e4].map(sample).to_vec());
        wire
    }

    #[test]
    fn samples_are_read_off_between_and_beyond() {
        let wire = sampled(network(1.0, 1.0), 0.0);
        let found = wire.network(Collective::StraightGather);
        assert!((found.latency - 1e-3).abs() < 1e-9 && (found.seconds_per_byte - 8e-9).abs() < 1e-15);
        for ranks in [2, 3] {
            for bytes in [0.0, 64.0, 3e3, 5e5, 1e7] {
                let leg = Leg { collective: Collective::StraightGather, bytes };
                let (read, line) = (
                    wire.seconds(Ranks::new(ranks), leg),
                    Wire::uniform(network(1.0, 1.0)).seconds(Ranks::new(ranks), leg),
                );
                assert!((read - line).abs() < 1e-9, "{ranks} ranks, {bytes}: {read} {line}");
            }
        }
        assert_eq!(
            wire.seconds(Ranks::new(1), Leg { collective: Collective::StraightGather, bytes: 1e6 }),
            0.0
        );
    }

    #[test]
    fn samples_move_with_the_network() {
        let (here, there) = (network(1.0, 1.0), network(20.0, 0.1));
        let moved = sampled(here, 1e-3).moved(here, there);
        for bytes in [64.0, 1e5, 1e7] {
            let leg = Leg { collective: Collective::StraightGather, bytes };
            let (read, direct) =
                (moved.seconds(Ranks::new(2), leg), sampled(there, 1e-3).seconds(Ranks::new(2), leg));
            assert!((read / direct - 1.0).abs() < 1e-6, "{bytes}: {read} {direct}");
        }
    }

    #[test]
    fn a_disturbed_measurement_makes_no_bytes_that_cost_nothing() {
        let mut wire = Wire::uniform(network(1.0, 1.0));
        let sample = |bytes: f64, seconds: f64| Sample { hops: 1.0, bytes, seconds };
        wire.set_samples(
            Collective::ChainCast,
            vec![sample(100.0, 1e-3), sample(1e5, 0.5), sample(1e6, 0.1)],
        );
        let found = wire.network(Collective::ChainCast);
        assert!((found.seconds_per_byte - 1e-7).abs() < 1e-12, "{found:?}");
        assert!(found.latency > 0.0);
    }
}
