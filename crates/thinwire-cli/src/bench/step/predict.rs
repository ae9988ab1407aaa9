//! What a probe says a step will take.

use anyhow::{Result, ensure};
use thinwire::adapt::price::{Model, Price, Way};
use thinwire::adapt::probe::Probe;
use thinwire::group::Algorithm;
use thinwire::synchronizer::Layout;

/// Foretells steps by one algorithm.
pub(super) struct Prophet {
    model: Model,
    algorithm: Algorithm,
}

impl Prophet {
    pub fn new(probe: Probe, algorithm: Algorithm) -> Prophet {
        Prophet { model: probe.model(), algorithm }
    }

    /// Refuses a probe of other ranks.
    pub fn check(&self, ranks: usize) -> Result<()> {
        let probed = self.model.ranks.count();
        ensure!(
            probed == ranks,
            "--probe: it was made with {probed} ranks, and here are {ranks}; run `thinwire probe -n {ranks} -o FILE`"
        );
        Ok(())
    }

    /// The seconds of a step of all buckets.
    pub fn seconds(&self, method: &str, layout: &Layout) -> Result<f64> {
        let density = thinwire::method::parse(method)?.density;
        let way = Way::by(method, self.algorithm)?;
        let price =
            |bucket: &thinwire::Bucket| self.model.price_of_bucket(&way, bucket.len() as f64, density);
        let buckets: Price = layout.buckets().iter().map(price).sum();
        Ok((buckets + self.model.price_of_verdict(&way)).seconds())
    }
}
