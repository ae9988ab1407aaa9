//! Wire and work together: the time of a step.

use super::{Leg, Way, Wire, Workshop};
use crate::adapt::cost::{Network, Ranks};

/// What is known about a group of ranks, and with it the time of any step.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The ranks.
    pub ranks: Ranks,
    /// How fast bytes travel.
    pub wire: Wire,
    /// How long ranks work.
    pub workshop: Workshop,
}

/// The time of one step of a bucket, or of several one after the other. Nothing overlaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Price {
    /// Seconds a rank works.
    pub work: f64,
    /// Seconds of sums on the network.
    pub sum: f64,
    /// Seconds of gathers and broadcasts on the network.
    pub spread: f64,
    /// Bytes the busiest rank sends.
    pub bytes: f64,
}

impl Price {
    /// Seconds on the network.
    pub fn sync(&self) -> f64 {
        self.sum + self.spread
    }

    /// All of it.
    pub fn seconds(&self) -> f64 {
        self.work + self.sync()
    }
}

impl std::ops::Add for Price {
    type Output = Price;

    fn add(self, next: Price) -> Price {
        Price {
            work: self.work + next.work,
            sum: self.sum + next.sum,
            spread: self.spread + next.spread,
            bytes: self.bytes + next.bytes,
        }
    }
}

impl std::iter::Sum for Price {
    fn sum<I: Iterator<Item = Price>>(prices: I) -> Price {
        prices.fold(Price::default(), std::ops::Add::add)
    }
}

impl Model {
    /// So many ranks on this network, each working as fast as one core of the machine the defaults are from.
    pub fn new(ranks: usize, network: Network) -> Model {
        Model { ranks: Ranks::new(ranks), wire: Wire::uniform(network), workshop: Workshop::default() }
    }

    /// What a step of a single bucket of so many elements takes.
    pub fn price(&self, way: &Way, elements: f64, density: f64) -> Price {
        self.price_of_bucket(way, elements, density) + self.price_of_verdict(way)
    }

    /// What a bucket among others takes.
    pub fn price_of_bucket(&self, way: &Way, elements: f64, density: f64) -> Price {
        let work = self.workshop.seconds(way, self.ranks.count(), elements, density);
        Price { work, ..self.price_of_legs(way.legs(elements, density)) }
    }

    /// What comes behind all buckets, if one of them goes this way.
    pub fn price_of_verdict(&self, way: &Way) -> Price {
        self.price_of_legs(way.verdict())
    }

    fn price_of_legs(&self, legs: impl IntoIterator<Item = Leg>) -> Price {
        let mut price = Price::default();
        for leg in legs {
            let seconds = self.wire.seconds(self.ranks, leg);
            match leg.collective.is_sum() {
                true => price.sum += seconds,
                false => price.spread += seconds,
            }
            price.bytes += leg.collective.load(self.ranks, leg.bytes).bytes;
        }
        price
    }

    /// The fastest of some ways, and what it takes; the first on a tie.
    pub fn best<'a>(
        &self,
        ways: impl IntoIterator<Item = &'a Way>,
        elements: f64,
        density: f64,
    ) -> Option<(&'a Way, Price)> {
        let priced = ways.into_iter().map(|way| (way, self.price(way, elements, density)));
        priced.reduce(|best, next| if next.1.seconds() < best.1.seconds() { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(link: &str, ranks: usize, density: f64) -> String {
        let model = Model::new(ranks, link.parse().unwrap());
        let methods = ["dense", "topk", "ar-topk"];
        let ways: Vec<Way> = methods.iter().flat_map(|method| Way::all(method).unwrap()).collect();
        model.best(&ways, 1e6, density).unwrap().0.to_string()
    }

    #[test]
    fn each_has_its_place() {
        // A fast network needs no compression.
        assert_eq!(best("1000gbit,1us", 4, 0.01), "dense, ring");
        // Far away, one hop is best.
        assert_eq!(best("1gbit,50ms", 4, 0.01), "topk, straight");
        // Many ranks on a thin wire: agreed coordinates are summed on the way.
        assert_eq!(best("10mbit,10us", 16, 0.1), "ar-topk, chain + ring");
        assert!(best("100mbit,5ms", 64, 0.01).starts_with("ar-topk, tree + tree"));
    }

    #[test]
    fn a_rank_alone_has_work_and_nothing_else() {
        let model = Model::new(1, "1gbit,1ms".parse().unwrap());
        let price = model.price(&Way::all("topk").unwrap()[0], 1e6, 0.01);
        assert!(price.work > 0.0 && price.sync() == 0.0 && price.bytes == 0.0);
    }
}
