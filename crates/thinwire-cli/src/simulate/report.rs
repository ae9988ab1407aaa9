//! The runs as text.

use thinwire::adapt::cost::Network;
use thinwire::adapt::simulate::Regret;

use super::outcome::{Assumed, Named, Outcome};
use crate::{human, output};

impl Outcome {
    /// What was assumed, the table, the regret, and what was decided.
    pub fn describe(&self) -> String {
        let mut rows: Vec<Vec<String>> = vec![self.row(&self.run)];
        rows.extend(self.oracle.iter().map(|oracle| self.row(oracle)));
        if let Some(best) = &self.best_fixed {
            let mut row = self.row(best);
            row[0] = format!("best fixed: {}", best.name);
            rows.push(row);
        }
        let mut others: Vec<&Named> = self.others.iter().collect();
        others.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        rows.extend(others.into_iter().map(|named| self.row(named)));
        let titles =
            ["method", ">time", ">a step", ">efficiency", ">sent", ">gain", ">changes", ">over oracle"];
        let table = output::table(&titles, rows);
        let mut text = format!("{}\n{table}\n", self.assumptions());
        if let Some(regret) = &self.regret {
            text += &self.regret(regret);
        }
        if !self.decisions.is_empty() {
            text += "\nDecisions, after step:\n";
            for decision in &self.decisions {
                text += &format!("{:>6}  {decision}\n", decision.step);
            }
        }
        text
    }

    fn row(&self, named: &Named) -> Vec<String> {
        let over = self.oracle.as_ref().map_or(String::new(), |oracle| {
            if named.name == oracle.name { "-".into() } else { percent(named.seconds / oracle.seconds - 1.0) }
        });
        vec![
            named.name.clone(),
            human::seconds(named.seconds),
            human::seconds(named.step_seconds),
            percent(named.efficiency),
            human::bytes(named.bytes as u64),
            format!("{:.3}", named.gain),
            named.changes.to_string(),
            over,
        ]
    }

    fn regret(&self, regret: &Regret) -> String {
        let Named { probes, explorations, run, .. } = &self.run;
        output::lines(&[
            (
                "regret",
                format!(
                    "{} of the oracle's time; {} after exploring",
                    percent(regret.total),
                    percent(regret.after_exploration)
                ),
            ),
            (
                "exploring",
                format!(
                    "{} of the run: gains measured {} times, the network asked {} times in {}",
                    percent(regret.exploration),
                    explorations,
                    probes,
                    human::seconds(run.probing)
                ),
            ),
        ])
    }

    fn assumptions(&self) -> String {
        let Assumed { workers, compute_seconds, noise, uneven, stragglers, hiccups, .. } = self.assumed;
        let mut cluster = format!(
            "{workers}, {} of computing, times within {} of that",
            human::seconds(compute_seconds),
            percent(noise)
        );
        let slow = |(share, factor): (f64, f64)| format!("{} x{factor}", percent(share));
        if uneven > 1.0 {
            cluster += &format!("; links up to {uneven} times slower");
        }
        if stragglers.0 > 0.0 {
            cluster += &format!("; stragglers {}", slow(stragglers));
        }
        if hiccups.0 > 0.0 {
            cluster += &format!("; hiccups {}", slow(hiccups));
        }
        let networks: Vec<String> = self
            .networks
            .iter()
            .map(|(step, network)| format!("{} from step {step}", link(*network)))
            .collect();
        output::lines(&[
            ("workers", cluster),
            (
                "gradient",
                format!(
                    "{} parameters in {}, {} steps, seed {}",
                    human::count(self.assumed.parameters),
                    human::plural(self.assumed.buckets, "bucket"),
                    self.assumed.steps,
                    self.assumed.seed
                ),
            ),
            ("network", networks.join(", ")),
        ])
    }
}

/// A network in words.
pub fn link(network: Network) -> String {
    format!("{} {}", human::rate(8.0 / network.seconds_per_byte), human::seconds(network.latency))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
