//! The FFT pipeline: what it costs to compute, and the least ratio that pays for it.
//!
//! The paper prices the stages by their throughput and the network by its bandwidth alone. Compressing and
//! decompressing a gradient of M bytes must take less time than the bytes that need not be sent.

use super::{Message, Network, Ranks, Step, sparse_all_gather};

/// How many bytes of gradient each stage gets through in a second.
///
/// ```
/// use thinwire::adapt::cost::Network;
/// use thinwire::adapt::cost::fft::Throughput;
///
/// // On 10 Gbit/s a message must be at most 1/1.21 of the gradient; on 100 Gbit/s the paper's GPU is too slow.
/// let least = Throughput::PAPER.least_ratio(Network::from_gbit_ms(10.0, 0.0)?);
/// assert!((least.unwrap() - 1.21).abs() < 0.005);
/// assert_eq!(Throughput::PAPER.least_ratio(Network::from_gbit_ms(100.0, 0.0)?), None);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Throughput {
    /// Change of precision and thresholding, which walk the gradient four times: the paper's Tm, of one walk.
    pub convert: f64,
    /// The transform: Tf.
    pub transform: f64,
    /// Packing: Tp.
    pub pack: f64,
    /// Selection: Ts.
    pub select: f64,
}

impl Throughput {
    /// The paper's figures for a GPU: 600, 71, 67 and 30 GB/s.
    pub const PAPER: Throughput = Throughput { convert: 600e9, transform: 71e9, pack: 67e9, select: 30e9 };

    /// Seconds to compress one byte of gradient: 4/Tm + 1/Tf + 1/Tp + 1/Ts.
    pub fn seconds_per_byte(self) -> f64 {
        4.0 / self.convert + 1.0 / self.transform + 1.0 / self.pack + 1.0 / self.select
    }

    /// The bandwidth, in bytes a second, from which on no ratio pays: 1 / (2·[`seconds_per_byte`]).
    ///
    /// [`seconds_per_byte`]: Throughput::seconds_per_byte
    pub fn fastest_network(self) -> f64 {
        0.5 / self.seconds_per_byte()
    }

    /// The ratio of gradient to message that must be exceeded for compression to pay; `None` if none is enough.
    ///
    /// As in the paper this knows the bandwidth only: no latency, no number of ranks. Its k is the ratio of bytes
    /// with all that is sent, bitmap too. For N ranks compare [`step`] with a dense step.
    pub fn least_ratio(self, network: Network) -> Option<f64> {
        let left = 1.0 - 2.0 * self.seconds_per_byte() / network.seconds_per_byte;
        (left > 0.0).then(|| 1.0 / left)
    }
}

/// A step of the FFT pipeline for a gradient of so many bytes: an all-gather of the messages, and the paper's cost
/// of computing once at each end.
///
/// Put together here from the paper's throughput model and an all-gather; the paper itself has no formula in N.
/// Decompressing counts once, as in the paper, though its ranks decode a message of each of their peers: thinwire
/// sums the coefficients first and transforms back once, which is nearer to the formula.
pub fn step(
    network: Network,
    ranks: Ranks,
    gradient_bytes: f64,
    message: Message,
    throughput: Throughput,
) -> Step {
    let compute = gradient_bytes * throughput.seconds_per_byte();
    let sync = sparse_all_gather(ranks, message).seconds(network);
    Step { sync, compress: compute, decompress: compute }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [f64; 5] = [1.0, 10.0, 25.0, 40.0, 56.0];

    /// Selection and packing in GB/s, the fastest network in Gbit/s, and the least ratio at each of `RATES`: the
    /// paper's formula with its figures, worked out apart from this code. 0 stands for never.
    const LEAST: [(f64, f64, f64, [f64; 5]); 5] = [
        (30.0, 67.0, 58.0, [1.02, 1.21, 1.76, 3.23, 29.5]),
        (30.0, 34.0, 47.9, [1.02, 1.26, 2.09, 6.06, 0.0]),
        (12.0, 67.0, 33.6, [1.03, 1.42, 3.90, 0.0, 0.0]),
        (30.0, 12.0, 29.1, [1.04, 1.52, 7.09, 0.0, 0.0]),
        (12.0, 12.0, 21.3, [1.05, 1.88, 0.0, 0.0, 0.0]),
    ];

    #[test]
    fn least_ratios() {
        for (select, pack, fastest, ratios) in LEAST {
            let throughput = Throughput { select: select * 1e9, pack: pack * 1e9, ..Throughput::PAPER };
            assert!((throughput.fastest_network() * 8e-9 - fastest).abs() < 0.05);
            for (gbit, expected) in RATES.into_iter().zip(ratios) {
                let found = throughput.least_ratio(Network::from_gbit_ms(gbit, 1.0).unwrap()).unwrap_or(0.0);
                assert!((found - expected).abs() <= 0.002 * expected + 0.005, "{gbit}: {found} {expected}");
            }
        }
        let free = Network { latency: 1.0, seconds_per_byte: 0.0 };
        assert_eq!(Throughput::PAPER.least_ratio(free), None);
    }

    /// Two ranks without latency gather a message in the time of its bytes, which is the paper's picture.
    #[test]
    fn the_least_ratio_is_where_a_step_begins_to_pay() {
        let gradient = 1e8;
        for gbit in RATES {
            let network = Network::from_gbit_ms(gbit, 0.0).unwrap();
            let least = Throughput::PAPER.least_ratio(network).unwrap();
            let pays = |ratio: f64| {
                let message = Message { values: gradient / ratio, indices: 0.0 };
                step(network, Ranks::new(2), gradient, message, Throughput::PAPER)
                    .pays(gradient * network.seconds_per_byte)
            };
            assert!(pays(1.001 * least) && !pays(0.999 * least), "{gbit}");
        }
    }

    #[test]
    fn a_step_by_hand() {
        let network = Network { latency: 1e-3, seconds_per_byte: 1e-9 };
        let message = Message::bitmap(1e6, 0.15e6, 10.0);
        let found = step(network, Ranks::new(8), 4e6, message, Throughput::PAPER);
        assert!((found.sync - (3e-3 + 7.0 * 312_500.0 * 1e-9)).abs() < 1e-12);
        assert!((found.compress - 4e6 * 6.9e-11).abs() < 1e-6 && found.decompress == found.compress);
    }
}
