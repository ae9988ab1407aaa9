//! What an exchange costs on a network: `thinwire::adapt::cost`, as `thinwire.cost` asks for it.

use pyo3::prelude::*;
use thinwire::adapt::cost::{
    Collective, Message, Network, Ranks, Step, parameter_server, rabenseifner, ring_all_reduce,
    tree_all_reduce,
};

use crate::error::OrException;

/// Latency in seconds, and seconds for each byte.
type Link = (f64, f64);
/// Seconds by the name of a collective.
type Seconds = Vec<(&'static str, f64)>;

/// The network a text such as `1gbit,1ms` describes.
#[pyfunction]
pub fn network_from_text(text: &str) -> PyResult<Link> {
    let network: Network = text.parse().or_exception()?;
    Ok((network.latency, network.seconds_per_byte))
}

/// The network of so many Gbit/s and milliseconds.
#[pyfunction]
pub fn network_from_numbers(gbit: f64, ms: f64) -> PyResult<Link> {
    let network = Network::from_gbit_ms(gbit, ms).or_exception()?;
    Ok((network.latency, network.seconds_per_byte))
}

/// Seconds to sum so many bytes of every rank, by each of the dense collectives.
#[pyfunction]
pub fn dense_seconds(link: Link, ranks: usize, bytes: f64) -> Seconds {
    let ranks = Ranks::new(ranks);
    let loads = [
        ("ring", ring_all_reduce(ranks, bytes)),
        ("tree", tree_all_reduce(ranks, bytes)),
        ("rabenseifner", rabenseifner(ranks, bytes)),
        ("parameter-server", parameter_server(ranks, bytes)),
    ];
    loads.map(|(name, load)| (name, load.seconds(network(link)))).to_vec()
}

/// Seconds to exchange compressed gradients of so many bytes of values and indices, by each collective.
#[pyfunction]
pub fn compressed_seconds(link: Link, ranks: usize, values: f64, indices: f64) -> Seconds {
    let message = Message { values, indices };
    let seconds = |collective: Collective| collective.load(Ranks::new(ranks), message).seconds(network(link));
    Collective::ALL.map(|collective| (collective.name(), seconds(collective))).to_vec()
}

/// The fastest of those.
#[pyfunction]
pub fn best_collective(link: Link, ranks: usize, values: f64, indices: f64) -> (&'static str, f64) {
    let (best, seconds) = Collective::best(network(link), Ranks::new(ranks), Message { values, indices });
    (best.name(), seconds)
}

/// Whether a compressed step is faster than a dense one, all in seconds.
#[pyfunction]
pub fn pays(exchange: f64, compress: f64, decompress: f64, dense: f64) -> bool {
    Step { sync: exchange, compress, decompress }.pays(dense)
}

fn network((latency, seconds_per_byte): Link) -> Network {
    Network { latency, seconds_per_byte }
}
