//! What a collective lays on the network, without saying which network.

use std::ops::{Add, Mul};

use super::Network;

/// Hops and bytes that follow each other in a collective, along its longest way.
///
/// Loads of collectives that run one after the other add up.
///
/// ```
/// use thinwire::adapt::cost::{Network, Ranks, broadcast, ring_all_reduce};
///
/// let ranks = Ranks::new(4);
/// let load = broadcast(ranks, 1e6) + ring_all_reduce(ranks, 1e6);
/// assert_eq!((load.hops, load.bytes), (2.0 + 6.0, 2e6 + 1.5e6));
/// let seconds = load.seconds(Network::from_gbit_ms(1.0, 1.0)?);
/// assert!((seconds - (0.008 + 0.028)).abs() < 1e-9);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Load {
    /// Messages that must wait for each other: what the latency is paid for.
    pub hops: f64,
    /// Bytes that pass one after the other.
    pub bytes: f64,
}

impl Load {
    /// The time it takes on a network.
    pub fn seconds(self, network: Network) -> f64 {
        self.hops * network.latency + self.bytes * network.seconds_per_byte
    }
}

impl Add for Load {
    type Output = Load;

    fn add(self, next: Load) -> Load {
        Load { hops: self.hops + next.hops, bytes: self.bytes + next.bytes }
    }
}

/// The same load so many times over.
impl Mul<f64> for Load {
    type Output = Load;

    fn mul(self, times: f64) -> Load {
        Load { hops: self.hops * times, bytes: self.bytes * times }
    }
}
