//! How fast bytes travel, for each collective.

use super::{Collective, Leg};
use crate::adapt::cost::{Network, Ranks};

/// A network as each of the collectives finds it.
///
/// On a slow link they all find the same. Where the machine is what limits them, they differ: an all-reduce adds, a
/// chain wakes one rank after the other, and a hundred small messages take longer than one.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Wire {
    networks: [Network; Collective::ALL.len()],
}

impl Wire {
    /// The same for all collectives.
    pub fn uniform(network: Network) -> Wire {
        Wire { networks: [network; Collective::ALL.len()] }
    }

    /// Sets what one collective finds.
    pub fn set(&mut self, collective: Collective, network: Network) {
        self.networks[collective.place()] = network;
    }

    /// What one collective finds.
    pub fn network(&self, collective: Collective) -> Network {
        self.networks[collective.place()]
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
        leg.collective.load(ranks, leg.bytes).seconds(self.network(leg.collective))
    }

    /// The same machine on another network: what has been added to latency and byte in between.
    pub fn moved(&self, from: Network, to: Network) -> Wire {
        let moved = |network: Network| Network {
            latency: (network.latency + to.latency - from.latency).max(0.1 * to.latency),
            seconds_per_byte: (network.seconds_per_byte + to.seconds_per_byte - from.seconds_per_byte)
                .max(0.5 * to.seconds_per_byte),
        };
        Wire { networks: self.networks.map(moved) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collective_adds_stays_when_the_network_changes() {
        let network = |ms: f64, gbit: f64| Network::from_gbit_ms(gbit, ms).unwrap();
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
}
