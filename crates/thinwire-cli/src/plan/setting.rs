//! What a plan is made for: a gradient, workers, a network, and the pace at which workers compute.

use thinwire::adapt::cost::{Network, Ranks};
use thinwire::adapt::price::{Model, Price, Way, Wire, Workshop};

/// A bucket holds no more elements: coordinates are 32 bits.
pub const LARGEST_BUCKET: u64 = u32::MAX as u64;

/// Everything a step's time depends on, but for the way it takes.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Parameters of the model.
    pub parameters: u64,
    /// Parameters in each bucket but the last, which may be smaller. Buckets travel one after the other.
    pub bucket: u64,
    /// Seconds of forward and backward pass.
    pub compute: f64,
    network: Network,
    /// The wire as a probe found it on `network`; without it all collectives find what `network` says.
    probed: Option<(Network, Wire)>,
    model: Model,
}

impl Setting {
    /// So many parameters in one bucket, on a network of which only two numbers are known.
    pub fn new(parameters: u64, workers: usize, network: Network) -> Setting {
        Setting {
            parameters,
            bucket: parameters.min(LARGEST_BUCKET),
            compute: 0.0,
            network,
            probed: None,
            model: Model::new(workers, network),
        }
    }

    /// The same with another pace of working.
    pub fn with_workshop(mut self, workshop: Workshop) -> Setting {
        self.model.workshop = workshop;
        self
    }

    /// The same with a wire that was measured on the network `on`: what each collective added there is added here.
    pub fn with_wire(mut self, on: Network, wire: Wire) -> Setting {
        self.probed = Some((on, wire));
        let network = self.network;
        self.on(network)
    }

    /// The same on another network.
    pub fn on(mut self, network: Network) -> Setting {
        self.network = network;
        self.model.wire = match &self.probed {
            // Exactly what was measured, where nothing has changed.
            Some((on, wire)) if *on == network => wire.clone(),
            Some((on, wire)) => wire.moved(*on, network),
            None => Wire::uniform(network),
        };
        self
    }

    /// The same at another rate, in bits a second.
    pub fn at_rate(&self, bits: f64) -> Setting {
        self.clone().on(Network { seconds_per_byte: 8.0 / bits, ..self.network })
    }

    /// The same with another number of workers.
    pub fn with_workers(&self, workers: usize) -> Setting {
        let mut other = self.clone();
        other.model.ranks = Ranks::new(workers);
        other
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.model.ranks.count()
    }

    /// The network.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Bits a second.
    pub fn rate(&self) -> f64 {
        8.0 / self.network.seconds_per_byte
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> u64 {
        self.parameters.div_ceil(self.bucket)
    }

    /// What the exchange of a step takes, all buckets one after the other; computing is not in it.
    pub fn price(&self, way: &Way, density: f64) -> Price {
        let whole = self.model.price_of_bucket(way, self.bucket as f64, density);
        let (count, rest) = ((self.parameters / self.bucket) as f64, self.parameters % self.bucket);
        let all = Price {
            work: count * whole.work,
            sum: count * whole.sum,
            spread: count * whole.spread,
            bytes: count * whole.bytes,
        };
        let last = match rest {
            0 => Price::default(),
            rest => self.model.price_of_bucket(way, rest as f64, density),
        };
        all + last + self.model.price_of_verdict(way)
    }

    /// The whole step: computing, then the exchange. Nothing overlaps.
    pub fn step(&self, price: &Price) -> f64 {
        self.compute + price.seconds()
    }

    /// The fastest of some ways at a density, and what it takes.
    pub fn best<'a>(
        &self,
        ways: impl IntoIterator<Item = &'a Way>,
        density: f64,
    ) -> Option<(&'a Way, Price)> {
        let priced = ways.into_iter().map(|way| (way, self.price(way, density)));
        priced.reduce(|best, next| if next.1.seconds() < best.1.seconds() { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinwire::adapt::price::Collective;

    fn setting(link: &str) -> Setting {
        Setting::new(25_557_032, 8, link.parse().unwrap())
    }

    #[test]
    fn every_bucket_pays_its_hops() {
        let way = &Way::all("dense").unwrap()[0];
        let one = setting("1gbit,10ms");
        let mut three = one.clone();
        three.bucket = 10_000_000;
        assert_eq!((one.buckets(), three.buckets()), (1, 3));
        // A ring has 14 hops; whether everybody took part is asked once.
        let more = three.price(way, 1.0).sync() - one.price(way, 1.0).sync();
        assert!((more - 2.0 * 14.0 * 0.010).abs() < 1e-4, "{more}");
    }

    #[test]
    fn a_model_too_large_for_a_bucket_has_several() {
        let setting = Setting::new(6_738_415_616, 8, "1gbit".parse().unwrap());
        assert_eq!(setting.buckets(), 2);
    }

    #[test]
    fn a_measured_wire_stays_what_it_is_until_the_network_changes() {
        let on: Network = "1gbit,1ms".parse().unwrap();
        let mut wire = Wire::uniform(on);
        wire.set(Collective::RingSum, "500mbit,2ms".parse().unwrap());
        let way = &Way::all("dense").unwrap()[0];
        let (plain, probed) = (setting("1gbit,1ms"), setting("1gbit,1ms").with_wire(on, wire));
        assert!(probed.price(way, 1.0).sync() > 1.9 * plain.price(way, 1.0).sync());
        // What the ring added to the byte is not gained back by a faster network.
        let (plain, probed) = (plain.at_rate(1e12), probed.at_rate(1e12));
        assert!(probed.price(way, 1.0).sync() > 5.0 * plain.price(way, 1.0).sync());
    }

    #[test]
    fn more_bandwidth_is_never_slower() {
        let on: Network = "1gbit,1ms".parse().unwrap();
        let mut wire = Wire::uniform(on);
        wire.set(Collective::TreeSum, "300mbit,3ms".parse().unwrap());
        wire.set(Collective::RingGather, "2gbit,100us".parse().unwrap());
        let methods = [
            "dense",
            "dense:values=bf16",
            "topk",
            "ar-topk",
            "redsync:quantize=true",
            "fft",
            "iwp:leaders=3",
        ];
        for base in [setting("1gbit,1ms"), setting("20mbit,50ms"), setting("1gbit,1ms").with_wire(on, wire)] {
            for workers in [2, 3, 8, 100] {
                let base = base.with_workers(workers);
                for way in methods.iter().flat_map(|method| Way::all(method).unwrap()) {
                    for density in [0.5, 0.01, 0.0001] {
                        let times: Vec<f64> = (0..60)
                            .map(|step| base.at_rate(1e6 * 1.3f64.powi(step)).price(&way, density).seconds())
                            .collect();
                        assert!(times.is_sorted_by(|slow, fast| slow >= fast), "{way}: {times:?}");
                        assert!(times.iter().all(|time| time.is_finite() && *time > 0.0));
                    }
                }
            }
        }
    }
}
