//! The whole of a compressed step, and whether it is worth it.

/// The seconds of one compressed step: on the wire, and at both ends of it.
///
/// Where the times at the ends come from is left open: measured, or from a throughput as in [`fft`](super::fft).
///
/// ```
/// use thinwire::adapt::cost::Step;
///
/// let step = Step { sync: 0.056, compress: 0.03, decompress: 0.01 };
/// assert!(step.pays(0.1));
/// assert!(!step.pays(0.09));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Step {
    /// Time on the network.
    pub sync: f64,
    /// Time before: selecting, transforming, packing.
    pub compress: f64,
    /// Time after: unpacking, adding.
    pub decompress: f64,
}

impl Step {
    /// All of it: nothing is supposed to overlap.
    pub fn seconds(self) -> f64 {
        self.sync + self.compress + self.decompress
    }

    /// AR-Topk's test of viability: this is faster than a dense step of so many seconds. A tie does not pay, as
    /// dense loses nothing.
    pub fn pays(self, dense: f64) -> bool {
        self.seconds() < dense
    }
}
