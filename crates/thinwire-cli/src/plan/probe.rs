//! What `thinwire probe` measured, as far as a plan needs it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use thinwire::adapt::cost::Network;
use thinwire::adapt::price::{Collective, Wire, Workshop};

use super::offer::Methods;
use crate::files;

/// A group of workers as it was measured.
#[derive(Debug, Deserialize)]
pub struct Probed {
    /// How many there were.
    pub ranks: usize,
    /// The network between them.
    pub network: Network,
    /// What each collective found of it.
    pub wire: Wire,
    /// How long they worked.
    pub workshop: Workshop,
}

impl Probed {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Probed> {
        let bytes = files::read(path).context("--probe")?;
        let wrong = || {
            format!(
                "--probe {}: expected the JSON that `thinwire probe --json` writes, with ranks, network, wire and \
                 workshop",
                path.display()
            )
        };
        let probed: Probed = serde_json::from_slice(&bytes).with_context(wrong)?;
        let networks = Collective::ALL.map(|collective| probed.wire.network(collective));
        for network in [probed.network].iter().chain(&networks) {
            let Network { latency, seconds_per_byte } = *network;
            ensure!(
                latency.is_finite()
                    && latency >= 0.0
                    && seconds_per_byte.is_finite()
                    && seconds_per_byte > 0.0,
                "--probe {}: a latency of {latency} s and {seconds_per_byte} s for a byte describe no network; \
                 expected 0 or more, and more than 0",
                path.display()
            );
        }
        Ok(probed)
    }

    /// Refuses labour that no machine has.
    pub fn check(&self, path: &Path, methods: &Methods) -> Result<()> {
        for way in methods.whole.iter().chain(&methods.sparse).flatten() {
            let labour = self.workshop.labour(&way.method);
            for seconds in [labour.element, labour.kept, labour.received] {
                ensure!(
                    seconds.is_finite() && seconds >= 0.0,
                    "--probe {}: {seconds} s of work for a value by {}; expected 0 or more",
                    path.display(),
                    way.method
                );
            }
        }
        Ok(())
    }
}
