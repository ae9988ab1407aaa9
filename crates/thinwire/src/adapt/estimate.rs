//! The network, as the traffic itself shows it.
//!
//! A step's sums and spreads take as long as the network makes them; the model says how long they should take. While
//! the two agree, nothing has changed. Five of seven steps that take more than a fifth longer or less than they did are
//! a change; single slow steps are not, and neither is noise of a tenth. Where a step has both sums and spreads,
//! and they share latency and bytes differently, their times give both numbers of the new network. Where it has only
//! one of them, the times of a step can't tell latency from bandwidth, and somebody has to ask the network
//! ([`probe`](super::probe)).

use std::collections::VecDeque;

use crate::adapt::cost::{Load, Network};

/// So many of the last steps must say the same before it counts as a change.
const AGREE: usize = 5;
const LAST: usize = 7;
/// A change is a ratio beyond this, or below its inverse.
const CHANGE: f64 = 1.22;

/// What one step showed: the loads of its sums and its spreads, and their seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shown {
    /// What the sums laid on the network, and how long they took.
    pub sum: (Load, f64),
    /// What gathers and broadcasts laid on it, and how long they took.
    pub spread: (Load, f64),
}

impl Shown {
    /// The seconds of both.
    pub fn seconds(&self) -> f64 {
        self.sum.1 + self.spread.1
    }
}

/// What the last steps say of the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// Nothing new.
    Same,
    /// It has changed, and this is what it is now.
    Changed(Network),
    /// It has changed, and a step like this can't tell how.
    Unclear,
}

/// Watches the times of steps for changes of the network.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// The last steps, and whether each took longer (1) or shorter (-1) than it should have, or neither.
    recent: VecDeque<(Shown, i32)>,
}

impl Watch {
    /// Begins anew: after a change, or when the steps are of another kind.
    pub fn reset(&mut self) {
        self.recent.clear();
    }

    /// Takes in a step that should have taken `expected` seconds on `network`.
    pub fn see(&mut self, shown: Shown, expected: f64, network: Network) -> Verdict {
        if !(expected > 0.0 && shown.seconds().is_finite()) {
            return Verdict::Same;
        }
        let ratio = shown.seconds() / expected;
        let beyond = if ratio > CHANGE { 1 } else { -i32::from(ratio < 1.0 / CHANGE) };
        if self.recent.len() == LAST {
            self.recent.pop_front();
        }
        self.recent.push_back((shown, beyond));
        let agree: Vec<Shown> =
            self.recent.iter().filter(|(_, other)| *other == beyond).map(|(shown, _)| *shown).collect();
        if beyond == 0 || agree.len() < AGREE {
            return Verdict::Same;
        }
        self.reset();
        separate(&agree, network).map_or(Verdict::Unclear, Verdict::Changed)
    }
}

/// Both numbers of the network from the medians of sums and spreads, where they can be told apart.
fn separate(steps: &[Shown], before: Network) -> Option<Network> {
    let median = |of: fn(&Shown) -> f64| {
        let mut seconds: Vec<f64> = steps.iter().map(of).collect();
        seconds.sort_unstable_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    let last = steps.last()?;
    let ((sum, spread), (sums, spreads)) =
        ((last.sum.0, last.spread.0), (median(|step| step.sum.1), median(|step| step.spread.1)));
    // How much of each is latency, on the network before: where both are alike, dividing by the difference would
    // make networks out of noise.
    let share = |load: Load| load.hops * before.latency / load.seconds(before).max(f64::MIN_POSITIVE);
    if (share(sum) - share(spread)).abs() < 0.5 {
        return None;
    }
    let determinant = sum.hops * spread.bytes - spread.hops * sum.bytes;
    let latency = (sums * spread.bytes - spreads * sum.bytes) / determinant;
    let seconds_per_byte = (sum.hops * spreads - spread.hops * sums) / determinant;
    let sane =
        latency.is_finite() && latency >= 0.0 && seconds_per_byte.is_finite() && seconds_per_byte > 0.0;
    sane.then_some(Network { latency, seconds_per_byte })
}

/// The seconds of a step's sums and spreads from those of each rank, which include waiting for the others.
///
/// The last rank to come finds the messages of the others on their way or there, by as much time as the last but one has
/// to wait for it. So both together have waited for nobody. Who came last is who was through with all of it in the
/// least time: sums and spreads are not looked at one by one, because ranks that are early out of a tree, as its root
/// is, wait in the next for those that are late.
pub fn of_the_last_two(ranks: impl Iterator<Item = [f64; 2]>) -> [f64; 2] {
    let all = |[sum, spread]: [f64; 2]| sum + spread;
    let never = [f64::INFINITY; 2];
    let (mut least, mut second) = (never, never);
    for seconds in ranks {
        if all(seconds) < all(least) {
            (least, second) = (seconds, least);
        } else if all(seconds) < all(second) {
            second = seconds;
        }
    }
    if second == never { least } else { [0, 1].map(|what| 0.5 * (least[what] + second[what])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(gbit: f64, ms: f64) -> Network {
        Network::from_gbit_ms(gbit, ms).unwrap()
    }

    /// A dense step on four ranks: a ring, and a word from everybody.
    fn dense(on: Network, noise: f64) -> Shown {
        let (sum, spread) = (Load { hops: 6.0, bytes: 6e6 }, Load { hops: 1.0, bytes: 120.0 });
        Shown { sum: (sum, noise * sum.seconds(on)), spread: (spread, noise * spread.seconds(on)) }
    }

    fn gathered(on: Network, noise: f64) -> Shown {
        let spread = Load { hops: 1.0, bytes: 1e5 };
        Shown { spread: (spread, noise * spread.seconds(on)), ..Shown::default() }
    }

    /// Noise between 0.9 and 1.1, and now and then a step of three times the time.
    fn noise(step: u64) -> f64 {
        let word = crate::select::mix(step) % 1000;
        if word < 40 { 3.0 } else { 0.9 + 0.2 * (word as f64 / 1000.0) }
    }

    #[test]
    fn noise_is_no_change() {
        for of in [dense, gathered] {
            let (mut watch, on) = (Watch::default(), network(1.0, 1.0));
            for step in 0..20_000 {
                let shown = of(on, noise(step));
                assert_eq!(watch.see(shown, of(on, 1.0).seconds(), on), Verdict::Same, "{step}");
            }
        }
    }

    #[test]
    fn a_change_of_two_is_seen_in_a_few_steps_and_told_apart() {
        for (gbit, ms) in [(0.5, 1.0), (2.0, 1.0), (1.0, 50.0), (25.0, 1.0), (0.1, 20.0)] {
            let (mut watch, before, after) = (Watch::default(), network(1.0, 1.0), network(gbit, ms));
            let expected = dense(before, 1.0).seconds();
            let seen =
                (0..10).map(|step| watch.see(dense(after, 0.95 + 0.01 * step as f64), expected, before));
            let (steps, verdict) = seen.enumerate().find(|(_, verdict)| *verdict != Verdict::Same).unwrap();
            assert_eq!(steps + 1, AGREE);
            let Verdict::Changed(found) = verdict else { panic!("{gbit} {ms}: {verdict:?}") };
            assert!((found.latency / after.latency - 1.0).abs() < 0.1, "{gbit} {ms}: {found:?}");
            assert!((found.seconds_per_byte / after.seconds_per_byte - 1.0).abs() < 0.1, "{gbit} {ms}");
        }
    }

    #[test]
    fn a_step_of_one_kind_says_that_it_can_not_tell() {
        let (mut watch, before) = (Watch::default(), network(1.0, 1.0));
        let expected = gathered(before, 1.0).seconds();
        let verdicts: Vec<Verdict> =
            (0..AGREE).map(|_| watch.see(gathered(network(1.0, 50.0), 1.0), expected, before)).collect();
        assert_eq!(verdicts[..AGREE - 1], [Verdict::Same; AGREE - 1]);
        assert_eq!(verdicts[AGREE - 1], Verdict::Unclear);
    }

    #[test]
    fn steps_without_traffic_say_nothing() {
        let mut watch = Watch::default();
        assert_eq!(watch.see(Shown::default(), 0.0, network(1.0, 1.0)), Verdict::Same);
        let broken = Shown { sum: (Load::default(), f64::NAN), ..Shown::default() };
        assert_eq!(watch.see(broken, 1.0, network(1.0, 1.0)), Verdict::Same);
    }
}
