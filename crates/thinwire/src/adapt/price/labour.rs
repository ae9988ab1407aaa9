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
/// The default is what `thinwire probe` measured on one core of an AMD EPYC with AVX-512; it serves until something
/// better is known.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Workshop {
    known: BTreeMap<String, Labour>,
}

impl Default for Workshop {
    fn default() -> Workshop {
        let measured = [
            ("dense", 0.35, 0.0, 0.0),
            ("dense:values=bf16", 2.0, 0.0, 0.0),
            ("dense:values=f16", 2.0, 0.0, 0.0),
            ("topk", 0.45, 12.0, 4.0),
            ("ar-topk", 0.45, 12.0, 4.0),
            ("gaussian-k", 0.5, 12.0, 4.0),
            ("redsync", 0.5, 12.0, 4.0),
            ("iwp", 0.8, 12.0, 4.0),
            ("dgc", 0.5, 12.0, 4.0),
            ("mstopk", 0.5, 12.0, 4.0),
            ("random-k", 0.4, 12.0, 4.0),
            ("fft", 12.0, 12.0, 4.0),
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
    /// | an element of `redsync` | what a DDP step of ResNet-50 grows by (5.78 ms): it asks the GPU layer by layer |
    /// | an element of `fft` | compressing and decompressing 138 million (4.18 ms) |
    /// | a value that is sent | the host's clock beyond the GPU's (0.045 ms for 138 thousand) |
    /// | a value that arrives | a byte as fast as `fft`'s frames come back from the host (4.3 GB/s), and adding it there |
    ///
    /// Not measured, and counted as their nearest kin: `iwp` and `dgc` as `redsync`, `mstopk` and `random-k` as
    /// `gaussian-k`, 16-bit `dense` as twelve bytes an element at the rate of a copy. `dense` itself is free: it is
    /// summed where it lies, as NCCL does.
    ///
    /// ```
    /// use thinwire::adapt::price::{Way, Workshop};
    ///
    /// let way = &Way::all("topk")?[0];
    /// let of = |workshop: Workshop| workshop.seconds(way, 8, 138_357_544.0, 0.001);
    /// assert!(of(Workshop::h200()) < 0.003 && of(Workshop::default()) > 0.06);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn h200() -> Workshop {
        let measured = [
            ("dense", 0.0, 0.0, 0.0),
            ("dense:values=bf16", 0.0029, 0.0, 0.0),
            ("dense:values=f16", 0.0029, 0.0, 0.0),
            ("topk", 0.0048, 0.33, 1.2),
            ("ar-topk", 0.0048, 0.33, 1.2),
            ("gaussian-k", 0.0059, 0.33, 1.2),
            ("mstopk", 0.0059, 0.33, 1.2),
            ("random-k", 0.0059, 0.33, 1.2),
            ("redsync", 0.226, 0.33, 1.2),
            ("iwp", 0.226, 0.33, 1.2),
            ("dgc", 0.226, 0.33, 1.2),
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

    /// All methods that are known, and what each costs.
    pub fn methods(&self) -> impl Iterator<Item = (&str, Labour)> {
        self.known.iter().map(|(method, labour)| (method.as_str(), *labour))
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

    /// The seconds a rank works on a bucket.
    pub fn seconds(&self, way: &Way, ranks: usize, elements: f64, density: f64) -> f64 {
        let kept = way.kept(elements, density);
        let received = if way.is_gathered() { kept * ranks as f64 } else { kept };
        self.labour(&way.method).seconds(elements, kept, received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
