//! The plan in a sentence or two.

use super::limit::Limit;
use super::offer::Offer;
use super::outcome::{Outcome, USUAL_DENSITY, WORTH};
use crate::human;

/// What to do.
pub fn advice(outcome: &Outcome) -> String {
    let Outcome { dense, winner, offers, .. } = outcome;
    if offers.iter().all(|offer| offer.whole) {
        return format!(
            "Only ways that send everything were looked at; {} is the fastest of them.",
            name(winner)
        );
    }
    let shorter = 1.0 - winner.step_seconds / dense.step_seconds;
    let place = format!(
        "at {} and {}",
        human::rate(outcome.assumed.bits_per_second),
        human::seconds(outcome.assumed.latency_seconds)
    );
    if winner.is_plain_dense() {
        return format!("Send dense: nothing that was looked at is faster {place}. {}", usual_limit(outcome));
    }
    if shorter < WORTH {
        return format!(
            "Send dense: {} would make a step only {:.1} % shorter {place}, which is hardly worth a change. {}",
            name(winner),
            100.0 * shorter,
            usual_limit(outcome)
        );
    }
    if winner.whole {
        return format!(
            "Send everything, in fewer bits: {} makes a step {} than dense does, and no way that sends a part is faster. \
             {}",
            name(winner),
            times(winner.speedup),
            usual_limit(outcome)
        );
    }
    format!(
        "Compress: {} by {} makes a step {} than dense does: {} instead of {}. {}{}",
        winner.spec,
        winner.collective,
        times(winner.speedup),
        human::seconds(winner.step_seconds),
        human::seconds(dense.step_seconds),
        careful(outcome),
        usual_limit(outcome)
    )
}

/// The density is a question of accuracy, which no plan knows: what is left with more of the gradient.
fn careful(outcome: &Outcome) -> String {
    let largest = outcome.by_density.first().filter(|at| at.density > outcome.winner.density);
    match largest.and_then(|at| at.fastest.as_ref()) {
        Some(offer) => format!(
            "How little is enough is for the accuracy to say: with {} sent, {} makes it {}. ",
            human::density(offer.density),
            offer.method,
            times(offer.speedup)
        ),
        None => String::new(),
    }
}

/// Up to where compression pays with the density that people ask about, and up to where one would notice.
fn usual_limit(outcome: &Outcome) -> String {
    let Some(at) = outcome.at(USUAL_DENSITY) else { return String::new() };
    let pays = match at.pays_below {
        Limit::Never => return "With 1 % sent, compression pays at no link speed.".into(),
        Limit::Always => "at any link speed, because bandwidth is not what decides here".into(),
        Limit::Below(bits) => format!("up to {}", human::rate(bits)),
    };
    let worth = match at.worth_it_below {
        Limit::Never => "; it never makes a step shorter by a tenth".into(),
        Limit::Always => String::new(),
        Limit::Below(bits) => format!(", and makes a step shorter by a tenth up to {}", human::rate(bits)),
    };
    format!("With 1 % sent, compression pays {pays}{worth}.")
}

fn name(offer: &Offer) -> String {
    format!("{} by {}", offer.spec, offer.collective)
}

/// `2.50 times faster`, or slower.
fn times(speedup: f64) -> String {
    match speedup {
        faster if faster >= 1.0 => format!("{} times faster", human::three_digits(faster)),
        slower => format!("{} times slower", human::three_digits(1.0 / slower)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::offer::Methods;
    use super::super::setting::Setting;
    use super::*;

    fn plan(link: &str, workers: usize, compute: f64, methods: &[&str]) -> Outcome {
        let mut setting = Setting::new(25_557_032, workers, link.parse().unwrap());
        setting.compute = compute;
        let specs: Vec<String> = methods.iter().map(|method| (*method).to_owned()).collect();
        let methods = Methods::read(&specs).unwrap();
        Outcome::new(&setting, &methods, &[0.1, 0.001], false, None, "cpu")
    }

    #[test]
    fn every_outcome_has_its_words() {
        let all = ["dense", "dense:values=bf16", "topk", "ar-topk"];
        let thin = plan("100mbit,1ms", 8, 0.0, &all).advice;
        assert!(thin.starts_with("Compress: ") && thin.contains("density=0.001"), "{thin}");
        assert!(
            thin.contains("with 10 % sent") && thin.contains("With 1 % sent, compression pays up to"),
            "{thin}"
        );
        let fast = plan("4000gbit,1us", 8, 0.0, &all).advice;
        assert!(
            fast.starts_with("Send dense: nothing") && fast.contains("4.00 Tbit/s and 1.00 µs"),
            "{fast}"
        );
        let slow_work = plan("10gbit,10us", 8, 10.0, &all).advice;
        assert!(slow_work.starts_with("Send dense: ") && slow_work.contains("% shorter"), "{slow_work}");
        let whole = plan("1gbit,1ms", 8, 0.0, &["dense"]).advice;
        assert!(whole.contains("Only ways that send everything"), "{whole}");
        let far = plan("1gbit,500ms", 8, 0.0, &all).advice;
        assert!(far.contains("pays at any link speed"), "{far}");
    }
}
