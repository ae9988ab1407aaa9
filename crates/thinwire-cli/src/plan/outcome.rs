//! The plan: what was assumed, all offers, the winners, and up to which link speed they win.

use serde::Serialize;

use super::limit::Limit;
use super::offer::{Methods, Offer, dense, fastest, offers};
use super::setting::Setting;

/// A gain below this part of a step is hardly worth a change.
pub const WORTH: f64 = thinwire::adapt::solve::MARGIN;
/// The density that people ask about, whatever else is planned with.
pub const USUAL_DENSITY: f64 = 0.01;

/// A whole plan, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// What it is made for.
    pub assumed: Assumed,
    /// The step with plain `dense`, by its best collective.
    pub dense: Offer,
    /// The fastest of all.
    pub winner: Offer,
    /// Whether the fastest way that sends a part is faster than `dense`.
    pub pays: bool,
    /// The fastest at each density, and up to which link speed.
    pub by_density: Vec<AtDensity>,
    /// Everything that was looked at.
    pub offers: Vec<Offer>,
    /// What to do, in a sentence or two.
    pub advice: String,
}

/// What a plan is made for.
#[derive(Debug, Serialize)]
pub struct Assumed {
    /// The model's name, if it was given by name.
    pub model: Option<String>,
    pub parameters: u64,
    pub buckets: u64,
    pub workers: usize,
    pub bits_per_second: f64,
    pub latency_seconds: f64,
    pub compute_seconds: f64,
    /// Whose pace of working: `cpu`, `gpu` or `probe`.
    pub device: &'static str,
    /// No part of a step runs during another.
    pub overlap: bool,
}

/// The fastest way at one density.
#[derive(Debug, Serialize)]
pub struct AtDensity {
    pub density: f64,
    /// None where no method that sends a part was asked for.
    pub fastest: Option<Offer>,
    /// Up to which link speed compression is faster than `dense`, at this latency. Computing takes the same time in
    /// both, so that it does not matter here.
    pub pays_below: Limit,
    /// Up to which link speed the whole step, with computing, becomes shorter by a tenth at least.
    pub worth_it_below: Limit,
}

impl Outcome {
    /// Looks at everything.
    pub fn new(
        setting: &Setting,
        methods: &Methods,
        densities: &[f64],
        all: bool,
        model: Option<String>,
        device: &'static str,
    ) -> Outcome {
        let sparse = methods.all_sparse();
        let offers = offers(setting, methods, densities, all);
        let at = |density: f64| {
            let limit = |gain| Limit::of_paying(setting, &sparse, &methods.dense, density, gain);
            let these = offers.iter().filter(|offer| !offer.whole && offer.density == density);
            // One density that nobody asked for is not among the offers.
            let asked = fastest(these).cloned();
            let own = || self::offers(setting, methods, &[density], false);
            let fastest = asked.or_else(|| fastest(own().iter().filter(|offer| !offer.whole)).cloned());
            AtDensity { density, fastest, pays_below: limit(0.0), worth_it_below: limit(WORTH) }
        };
        let mut asked = densities.to_vec();
        if !asked.contains(&USUAL_DENSITY) {
            asked.push(USUAL_DENSITY);
        }
        asked.sort_by(|one, other| other.total_cmp(one));
        let by_density: Vec<AtDensity> = asked.into_iter().map(at).collect();
        let dense = dense(setting, methods);
        let winner = fastest(&offers).cloned().unwrap_or_else(|| dense.clone());
        let compressed = fastest(offers.iter().filter(|offer| !offer.whole));
        let pays = compressed.is_some_and(|offer| offer.step_seconds < dense.step_seconds);
        let network = setting.network();
        let assumed = Assumed {
            model,
            parameters: setting.parameters,
            buckets: setting.buckets(),
            workers: setting.workers(),
            bits_per_second: setting.rate(),
            latency_seconds: network.latency,
            compute_seconds: setting.compute,
            device,
            overlap: false,
        };
        let mut outcome = Outcome { assumed, dense, winner, pays, by_density, offers, advice: String::new() };
        outcome.advice = super::advice::advice(&outcome);
        outcome
    }

    /// What is planned at a density.
    pub fn at(&self, density: f64) -> Option<&AtDensity> {
        self.by_density.iter().find(|at| at.density == density)
    }
}
