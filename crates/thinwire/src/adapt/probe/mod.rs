//! What the network and the machines really do, measured over the group itself.
//!
//! | file | what |
//! |---|---|
//! | `quick.rs` | [`quick`]: latency and bandwidth in a handful of messages, while a training waits |
//! | `wires.rs` | how fast bytes travel in each collective |
//! | `labours.rs` | how long ranks work on an element, method by method |
//! | `gradients.rs` | [`Gradients`] to work on |
//! | `agree.rs` | times that all ranks go by alike |
//! | `fit.rs` | two costs from a few measurements |
//!
//! [`full`] is all of it, in a few seconds: what `thinwire probe` runs. All ranks end with the same bits.
//!
//! ```
//! use thinwire::adapt::price::Way;
//! use thinwire::adapt::probe::{Effort, full};
//! use thinwire::group::{Local, SharedGroup};
//!
//! let effort = Effort { elements: 20_000, methods: vec!["dense".into(), "topk".into()], ..Effort::default() };
//! let probes = Local::run(2, |group| full(&SharedGroup::new(group), &effort, &mut |_| ()).unwrap());
//! assert!(probes[0] == probes[1]);
//! // What a step of a million elements would take on these ranks.
//! let price = probes[0].model().price(&Way::all("topk")?[0], 1e6, 0.01);
//! assert!(price.seconds() > 0.0);
//! # Ok::<(), thinwire::Error>(())
//! ```

mod agree;
mod fit;
mod gradients;
mod labours;
mod quick;
#[cfg(test)]
mod tests;
mod wires;

pub use gradients::Gradients;
pub use quick::{Budget, look, quick};

use super::cost::{Network, Ranks};
use super::price::{Model, Way, Wire, Workshop};
use crate::Result;
use crate::group::{Group, Mark, SharedGroup};

/// What was found out about a group of ranks.
///
/// As JSON it is what `thinwire probe -o FILE` writes and `thinwire plan --probe FILE` reads.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Probe {
    /// How many ranks there were.
    pub ranks: usize,
    /// The network by a [`quick`] look.
    pub network: Network,
    /// The network as each collective finds it.
    pub wire: Wire,
    /// How long ranks work.
    pub workshop: Workshop,
}

impl Probe {
    /// What is known after a [`quick`] look alone: all collectives find the same, and ranks work as fast as the
    /// machine the defaults are from.
    pub fn uniform(ranks: usize, network: Network) -> Probe {
        Probe { ranks, network, wire: Wire::uniform(network), workshop: Workshop::default() }
    }

    /// The price of any step on these ranks.
    pub fn model(&self) -> Model {
        Model { ranks: Ranks::new(self.ranks), wire: self.wire.clone(), workshop: self.workshop.clone() }
    }
}

/// How much is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Effort {
    /// The methods whose work is measured, as text that [`method::parse`](crate::method::parse) reads. Others keep the
    /// defaults of [`Workshop`].
    pub methods: Vec<String>,
    /// Elements of the gradients they work on; fewer, where more would travel too long. Work on what fits the cache is
    /// faster, so this should be near the size of a real bucket.
    pub elements: usize,
    /// Seconds that one message or step may take on the network: those that would take longer are made smaller.
    pub seconds: f64,
}

impl Default for Effort {
    /// All methods but `auto`, a million elements, messages of up to a quarter of a second.
    fn default() -> Effort {
        let names = crate::method::METHODS.iter().map(|method| method.name).filter(|name| *name != "auto");
        let methods = names.chain(["dense:values=bf16"]).map(str::to_owned).collect();
        Effort { methods, elements: 1 << 20, seconds: 0.25 }
    }
}

/// Measures everything. All ranks call it together, with the same effort; `progress` hears what is being done.
///
/// An error for a method that can't be read, before anything is measured.
pub fn full(group: &SharedGroup, effort: &Effort, progress: &mut dyn FnMut(&str)) -> Result<Probe> {
    for method in &effort.methods {
        Way::all(method)?;
    }
    let mut shared = group.clone();
    shared.mark(Mark::default());
    progress("latency and bandwidth");
    let network = quick(&mut shared, Budget::default())?;
    let wire = wires::measure(&mut shared, network, effort.seconds, progress)?;
    let (mut workshop, mut supply) = (Workshop::default(), labours::Supply::default());
    for method in &effort.methods {
        labours::measure(group, method, &wire, effort, &mut supply, &mut workshop, progress)?;
    }
    Ok(Probe { ranks: shared.size(), network, wire, workshop })
}
