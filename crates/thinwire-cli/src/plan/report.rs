//! The plan as text.

use super::limit::Limit;
use super::offer::Offer;
use super::outcome::{AtDensity, Outcome, WORTH};
use crate::{human, output};

impl Outcome {
    /// What was assumed, the table, the fastest at each density, and the advice.
    pub fn describe(&self) -> String {
        let table = output::table(
            &["method", ">density", "collective", ">step", ">network", ">work", ">sent", ">speed-up"],
            self.offers.iter().map(|offer| self.row(offer)),
        );
        let tenth = format!(">{:.0} % shorter below", 100.0 * WORTH);
        let by_density = output::table(
            &[">density", "fastest", "collective", ">step", ">speed-up", ">pays below", &tenth],
            self.by_density.iter().map(at_density),
        );
        format!(
            "{}\n{table}\nThe fastest at each density, and the link speed up to which it pays at this latency:\n\n\
             {by_density}\n{}\n",
            self.assumptions(),
            // A sentence a line.
            self.advice.replace(". ", ".\n")
        )
    }

    fn assumptions(&self) -> String {
        let assumed = &self.assumed;
        let model = assumed.model.as_deref().map_or(String::new(), |name| format!(" ({name})"));
        let compute = match assumed.compute_seconds {
            0.0 => {
                "not given, so that a step is its exchange alone; --compute 120ms adds forward and backward"
                    .into()
            }
            time => format!("{} for forward and backward", human::seconds(time)),
        };
        let work = match assumed.device {
            "gpu" => "as measured on an NVIDIA H200 (the default is --device cpu)",
            "probe" => "as the probe measured it",
            _ => {
                "as measured on one core of an AMD EPYC with AVX-512 (--device gpu, or --probe for your own)"
            }
        };
        output::lines(&[
            (
                "gradient",
                format!(
                    "{} parameters{model}, {}, in {}",
                    human::count(assumed.parameters),
                    human::bytes(4 * assumed.parameters),
                    human::plural(assumed.buckets as usize, "bucket")
                ),
            ),
            ("workers", assumed.workers.to_string()),
            (
                "link",
                format!(
                    "{}, {} one way",
                    human::rate(assumed.bits_per_second),
                    human::seconds(assumed.latency_seconds)
                ),
            ),
            ("compute", compute),
            ("work", work.into()),
            (
                "overlap",
                "none is counted: what travels during the backward pass makes a step shorter than here"
                    .into(),
            ),
        ])
    }

    fn row(&self, offer: &Offer) -> Vec<String> {
        vec![
            // The fastest of all is marked.
            format!("{}{}", offer.method, if *offer == self.winner { " *" } else { "" }),
            if offer.whole { "all".into() } else { human::density(offer.density) },
            offer.collective.into(),
            human::seconds(offer.step_seconds),
            human::seconds(offer.network_seconds),
            human::seconds(offer.work_seconds),
            human::bytes(offer.bytes_sent.round() as u64),
            human::ratio(offer.speedup),
        ]
    }
}

fn at_density(at: &AtDensity) -> Vec<String> {
    let of = |text: fn(&Offer) -> String| at.fastest.as_ref().map_or("-".into(), text);
    vec![
        human::density(at.density),
        of(|offer| offer.method.clone()),
        of(|offer| offer.collective.into()),
        of(|offer| human::seconds(offer.step_seconds)),
        of(|offer| human::ratio(offer.speedup)),
        limit(at.pays_below),
        limit(at.worth_it_below),
    ]
}

fn limit(limit: Limit) -> String {
    match limit {
        Limit::Never => "never".into(),
        Limit::Below(bits) => human::rate(bits),
        Limit::Always => "any speed".into(),
    }
}
