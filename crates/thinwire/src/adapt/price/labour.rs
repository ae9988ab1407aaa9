//! What a step costs at both ends of the wire.

use std::collections::BTreeMap;

use super::Way;
use crate::method::split_spec;

/// Seconds that one rank works on a step, apart from what travels: selecting, encoding, decoding, adding.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Labour {
    /// For each element of the bucket.
    pub element: f64,
    /// For each value that this rank sends.
    pub kept: f64,
    /// For each value that arrives; in a gather everybody's.
    pub received: f64,
}

impl Labour {
    /// The seconds for a bucket.
    pub fn seconds(&self, elements: f64, kept: f64, received: f64) -> f64 {
        self.element * elements + self.kept * kept + self.received * received
    }
}

/// What each method costs on one machine.
///
/// The default is what `thinwire probe -n 2` measured over loopback, with one core of an AMD EPYC (Zen 4, AVX-512, 32 MiB
/// of L3) for each of the two ranks: the medians of seven runs on 1,048,576
/// elements. It serves until something better is known. Buckets that do not fit the cache take longer: with 25 million
/// elements an element took 1.1 to 2.3 times as long (`topk` 0.56 ns), a value that is sent 1.0 to 2.0 times, one that is
/// received 1.6 to 8 times.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Workshop {
    known: BTreeMap<String, Labour>,
}

impl Default for Workshop {
    fn default() -> Workshop {
        let measured = [
            ("dense", 0.28, 0.0, 0.0),
            ("dense:values=bf16", 3.6, 0.0, 0.0),
            ("dense:values=f16", 4.8, 0.0, 0.0),
            ("quantized", 0.7, 0.0, 0.0),
            ("topk", 0.45, 13.3, 4.7),
            ("ar-topk", 0.49, 23.0, 2.0),
            ("gaussian-k", 0.49, 13.7, 4.6),
            ("redsync", 0.48, 12.8, 4.6),
            ("iwp", 0.5, 33.6, 2.4),
            ("dgc", 0.53, 11.1, 4.3),
            ("mstopk", 0.53, 21.0, 4.6),
            ("random-k", 0.17, 42.2, 2.3),
            ("fft", 6.2, 16.6, 6.2),
        ];
        Workshop::of_nanoseconds(&measured)
    }
}

impl Workshop {
    /// What each method costs on one NVIDIA H200, by the figures of `bench/README.md`.
    ///
    /// | what | from |
    /// |---|---|
    /// | an element of `topk`, `ar-topk`, `gaussian-k` | the selection of 0.1 % of 138 million on the GPU's clock (0.535 and 0.684 ms), and writing the mean (0.133 ms) |
    /// | an element of `redsync` | choosing from the 53 layers of ResNet-50 that are compressed (1.72 ms) |
    /// | an element of `iwp`, `dgc` | what a DDP step of ResNet-50 grew by (5.78 ms) while `redsync` still asked the GPU layer by layer, as these do |
    /// | an element of `fft` | compressing and decompressing 138 million (4.18 ms) |
    /// | a value that is sent with its coordinate | writing the frames of ResNet-50 at 1 % (1.29 ms for 256 thousand; layer by layer 2.08 ms), and the host's clock beyond the GPU's (0.045 ms for 138 thousand) |
    /// | one that is summed at agreed coordinates, or sent by `fft` | the latter |
    /// | a value that arrives with its coordinate | as on the CPU: the host reads it |
    /// | one that arrives otherwise | a byte as fast as `fft`'s frames come back from the host (4.3 GB/s), and adding it there |
    ///
    /// Not measured, and counted as their nearest kin: `mstopk` and `random-k` as `gaussian-k`, 16-bit `dense` as twelve bytes an element at the rate of a copy, and `quantized`, which the host
    /// does, as on the CPU and two copies of gradient and residual. `dense` itself is free: it is
    /// summed where it lies, as NCCL does.
    ///
    /// ```
    /// use thinwire::adapt::price::{Way, Workshop};
    ///
    /// let way = &Way::all("topk")?[0];
    /// let of = |workshop: Workshop| workshop.seconds(way, 8, 138_357_544.0, 0.001);
    /// assert!(of(Workshop::h200()) < 0.007 && of(Workshop::default()) > 0.06);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn h200() -> Workshop {
        let measured = [
            ("dense", 0.0, 0.0, 0.0),
            ("dense:values=bf16", 0.0029, 0.0, 0.0),
            ("dense:values=f16", 0.0029, 0.0, 0.0),
            ("quantized", 1.5, 0.0, 0.0),
            ("topk", 0.0048, 5.4, 4.7),
            ("ar-topk", 0.0048, 0.33, 1.2),
            ("gaussian-k", 0.0059, 5.4, 4.6),
            ("mstopk", 0.0059, 5.4, 4.6),
            ("random-k", 0.0059, 5.4, 2.3),
            ("redsync", 0.067, 8.5, 4.6),
            ("iwp", 0.226, 0.33, 1.2),
            ("dgc", 0.226, 8.5, 4.3),
            ("fft", 0.0302, 0.38, 0.38),
        ];
        Workshop::of_nanoseconds(&measured)
    }

    fn of_nanoseconds(measured: &[(&str, f64, f64, f64)]) -> Workshop {
        const NS: f64 = 1e-9;
        let known = measured.iter().map(|&(method, element, kept, received)| {
            (method.to_owned(), Labour { element: element * NS, kept: kept * NS, received: received * NS })
        });
        Workshop { known: known.collect() }
    }

    /// Notes what a method costs.
    pub fn set(&mut self, method: &str, labour: Labour) {
        self.known.insert(method.to_owned(), labour);
    }

    /// Notes what a method costs by one of its ways. Where ranks share cores, that depends on who waits for whom.
    pub fn set_way(&mut self, way: &Way, labour: Labour) {
        self.known.insert(way.to_string(), labour);
    }

    /// All methods that are known, and what each costs whatever its way.
    pub fn methods(&self) -> impl Iterator<Item = (&str, Labour)> {
        let methods = self.known.iter().filter(|(name, _)| !name.contains(", "));
        methods.map(|(method, labour)| (method.as_str(), *labour))
    }

    /// What a method costs: as it is written, or else as the method of this name with other parameters.
    pub fn labour(&self, method: &str) -> Labour {
        let named = || self.known.get(split_spec(method).0);
        self.known
            .get(method)
            .or_else(named)
            .copied()
            .unwrap_or(Labour { element: 1e-9, ..Labour::default() })
    }

    /// What a way costs: as it was measured, or else as its method does.
    pub fn labour_by(&self, way: &Way) -> Labour {
        let named = || {
            let name = split_spec(&way.method).0;
            self.known
                .get(&format!("{name}, {}", way.algorithms()))
                .filter(|_| name == way.method || !self.known.contains_key(&way.method))
        };
        self.known.get(&way.to_string()).or_else(named).copied().unwrap_or_else(|| self.labour(&way.method))
    }

    /// The seconds a rank works on a bucket.
    pub fn seconds(&self, way: &Way, ranks: usize, elements: f64, density: f64) -> f64 {
        let kept = way.kept(elements, density);
        let received = if way.is_gathered() { kept * ranks as f64 } else { kept };
        self.labour_by(way).seconds(elements, kept, received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Algorithm::{Ring, Tree};

    #[test]
    fn a_method_with_parameters_costs_what_the_method_costs_until_it_is_measured() {
        let mut workshop = Workshop::default();
        assert_eq!(workshop.labour("topk:values=f16"), workshop.labour("topk"));
        let other = Labour { element: 1.0, kept: 2.0, received: 3.0 };
        workshop.set("topk:values=f16", other);
        assert_eq!(workshop.labour("topk:values=f16"), other);
        assert_ne!(workshop.labour("topk"), other);
        assert!(workshop.labour("nobody-knows").element > 0.0);
    }

    #[test]
    fn both_machines_know_every_method_of_their_own() {
        for workshop in [Workshop::default(), Workshop::h200()] {
            for method in crate::method::METHODS.iter().filter(|method| method.name != "auto") {
                assert!(workshop.known.contains_key(method.name), "{}", method.name);
            }
        }
    }

    #[test]
    fn a_gather_works_on_what_everybody_sent() {
        let mut workshop = Workshop::default();
        workshop.set("topk", Labour { element: 0.0, kept: 0.0, received: 1.0 });
        let way = &Way::all("topk").unwrap()[0];
        assert_eq!(workshop.seconds(way, 8, 1000.0, 0.01), 80.0);
    }

    #[test]
    fn a_way_costs_what_its_method_costs_until_it_is_measured() {
        let mut workshop = Workshop::default();
        let (ring, straight) = (Way::by("topk:density=0.5", Ring).unwrap(), Way::by("topk", Tree).unwrap());
        assert_eq!(workshop.labour_by(&ring), workshop.labour("topk"));
        let labour = Labour { element: 1.0, kept: 2.0, received: 3.0 };
        workshop.set_way(&Way::by("topk", Ring).unwrap(), labour);
        assert_eq!(workshop.labour_by(&ring), labour);
        assert_eq!(workshop.labour_by(&straight), workshop.labour("topk"));
        // What is known of the method with these parameters is nearer than a way of it with others.
        workshop.set("topk:density=0.5", Labour::default());
        assert_eq!(workshop.labour_by(&ring), Labour::default());
        assert!(workshop.methods().all(|(method, _)| !method.contains("ring")));
    }
}
