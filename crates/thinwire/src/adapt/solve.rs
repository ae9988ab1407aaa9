//! Which way and which density, for what is known now.

use super::gain::Curve;
use super::price::{Model, Price, Way};
use super::search::{Interval, Scale, grid, nsga2, pick};
use super::{Limits, Pick, Solver};
use crate::Result;

/// Compressing costs accuracy, so it has to save at least this part of a step against sending everything.
pub const MARGIN: f64 = 0.1;
/// Sending everything in fewer bits costs little, so it has to save at least this part of a step against more of them.
pub const SMALL_MARGIN: f64 = 0.02;

/// What is known when something is to be chosen.
#[derive(Debug)]
pub struct Problem<'a> {
    /// Times of steps.
    pub model: &'a Model,
    /// The ways there are.
    pub ways: &'a [Way],
    /// For each way, how much longer it takes on the network than the model says, and how much more work it is.
    pub measured: &'a [Measured],
    /// Elements of the buckets.
    pub buckets: &'a [f64],
    /// What a user allows.
    pub limits: &'a Limits,
    /// The gain at a density.
    pub curve: &'a Curve,
    /// Seconds of a step apart from synchronising.
    pub compute: f64,
    /// Whether only ways that send everything may be taken.
    pub full_only: bool,
}

/// What steps by one way have shown, against the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Seconds on the network over those of the model.
    pub sync: f64,
    /// Seconds of work over those of the model.
    pub work: f64,
}

impl Default for Measured {
    fn default() -> Measured {
        Measured { sync: 1.0, work: 1.0 }
    }
}

/// What is best.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// For each bucket its way.
    pub ways: Vec<usize>,
    /// The density of those that do not send everything.
    pub density: f64,
    /// The share of the energy that will be sent.
    pub gain: f64,
    /// Seconds of synchronising.
    pub seconds: f64,
    /// Seconds of synchronising if everything is sent, in however many bits, by the fastest way that does.
    pub full_seconds: f64,
    /// Seconds of synchronising by the fastest way of `dense`.
    pub dense_seconds: f64,
    /// The best with another method, and its seconds.
    pub second: Option<(usize, f64)>,
}

impl Problem<'_> {
    /// Searches for the density, and the ways that are fastest at it, bucket by bucket.
    ///
    /// Time and one over the gain are weighed against each other as in AR-Topk. Sending everything is better than that
    /// if it is not more than [`MARGIN`] slower, counted in whole steps, and in more bits better than in fewer if that
    /// is not more than [`SMALL_MARGIN`] slower.
    pub fn solve(&self) -> Result<Solution> {
        let Limits { min_density: low, max_density: high, time_weight, .. } = *self.limits;
        if !self.selects() {
            return Ok(self.at(1.0));
        }
        // The least density with the gain that is asked for; the largest, if none has it.
        let bottom = Interval::new(low, high, Scale::Logarithmic)?;
        let enough = (0..=200).map(|i| bottom.at(i as f64 / 200.0));
        let low = enough.clone().find(|c| self.curve.at(*c) >= self.limits.target_gain).unwrap_or(high);
        let interval = Interval::new(low, high, Scale::Logarithmic)?;
        let objectives = |density: f64| [self.seconds(density), 1.0 / self.curve.at(density)];
        let front = match self.limits.solver {
            Solver::Nsga2 => {
                nsga2::search(interval, nsga2::Settings { archive: true, ..Default::default() }, objectives)
            }
            Solver::Grid => grid(interval, grid::POINTS, objectives),
        };
        let picked = match self.limits.pick {
            Pick::Asf => pick::asf(&front, [time_weight, 1.0 - time_weight]),
            Pick::Knee => pick::knee(&front),
        };
        Ok(self.at(picked.map_or(high, |point| point.x)))
    }

    /// The best at a density; where everything must be sent the density is 1, whatever is asked for.
    pub fn at(&self, density: f64) -> Solution {
        // What travels is what an f32 holds, and all ranks must find the same.
        let density = if self.selects() { f64::from(density as f32) } else { 1.0 };
        let lines = self.lines(density);
        let (mut ways, mut seconds) = self.fastest(&lines, |_| true).unwrap_or_default();
        let full = self.fastest(&lines, Way::is_dense);
        let full_seconds = full.as_ref().map_or(f64::INFINITY, |full| full.1);
        if let Some(full) = full.filter(|full| self.near(full.1, seconds, MARGIN)) {
            (ways, seconds) = self.in_most_bits(&lines, full);
        }
        let dense = self.fastest(&lines, |way| way.is_dense() && !way.is_quantized());
        let dense_seconds = dense.map_or(f64::INFINITY, |dense| dense.1);
        let everything = ways.iter().all(|way| self.ways[*way].is_dense());
        let gain = if everything { 1.0 } else { self.curve.at(density) };
        let second = self.second(&lines, &ways);
        Solution { ways, density, gain, seconds, full_seconds, dense_seconds, second }
    }

    /// Whether a part of the gradient may be sent, so that there is a density to choose.
    pub fn selects(&self) -> bool {
        self.allowed().any(|way| !self.ways[way].is_dense())
    }

    /// The numbers of the ways that may be taken.
    fn allowed(&self) -> impl Iterator<Item = usize> {
        (0..self.ways.len()).filter(|way| !self.full_only || self.ways[*way].is_dense())
    }

    /// Whether the slower of two is to be taken, because it loses less than this part of a step.
    fn near(&self, slow: f64, fast: f64, margin: f64) -> bool {
        slow - fast < margin * (self.compute + slow)
    }

    /// Of the choices that send everything the one in the most bits that is hardly slower than `full`, the fastest.
    fn in_most_bits(&self, lines: &[Line], full: (Vec<usize>, f64)) -> (Vec<usize>, f64) {
        let mut widths: Vec<f64> = self.ways.iter().filter_map(Way::bits).collect();
        widths.sort_unstable_by(|one, other| other.total_cmp(one));
        let hardly_slower = widths.into_iter().find_map(|least| {
            let such = |way: &Way| way.bits().is_some_and(|bits| bits >= least);
            self.fastest(lines, such).filter(|found| self.near(found.1, full.1, SMALL_MARGIN))
        });
        hardly_slower.unwrap_or(full)
    }

    /// The seconds of a choice that was made before.
    pub fn seconds_of(&self, ways: &[usize], density: f64) -> f64 {
        let lines = self.lines(density);
        let buckets: f64 =
            ways.iter().zip(self.buckets).map(|(way, elements)| lines[*way].at(*elements)).sum();
        buckets + self.verdict(ways).seconds()
    }

    /// What the model says of a choice, with what was measured.
    pub fn price_of(&self, ways: &[usize], density: f64) -> Price {
        let price = |(way, elements): (&usize, &f64)| self.price(*way, *elements, density);
        ways.iter().zip(self.buckets).map(price).sum::<Price>() + self.verdict(ways)
    }

    fn price(&self, way: usize, elements: f64, density: f64) -> Price {
        self.corrected(way, self.model.price_of_bucket(&self.ways[way], elements, density))
    }

    /// What comes once behind all buckets of a choice.
    fn verdict(&self, ways: &[usize]) -> Price {
        let first = ways.iter().find(|way| self.ways[**way].is_dense());
        first.map_or(Price::default(), |way| {
            self.corrected(*way, self.model.price_of_verdict(&self.ways[*way]))
        })
    }

    fn corrected(&self, way: usize, price: Price) -> Price {
        let Price { work, sum, spread, bytes } = price;
        let Measured { sync, work: labour } = self.measured[way];
        Price { work: labour * work, sum: sync * sum, spread: sync * spread, bytes }
    }

    fn seconds(&self, density: f64) -> f64 {
        self.fastest(&self.lines(density), |_| true).map_or(f64::INFINITY, |(_, seconds)| seconds)
    }

    /// The fastest of such ways for each bucket, and the seconds of all; `None` without any. One bucket that goes by
    /// `dense` makes all of them wait for a verdict, so that it may be better without.
    fn fastest(&self, lines: &[Line], is_such: impl Fn(&Way) -> bool) -> Option<(Vec<usize>, f64)> {
        let such: Vec<usize> = self.allowed().filter(|way| is_such(&self.ways[*way])).collect();
        let unjudged = such.iter().copied().filter(|way| self.ways[*way].verdict().is_none());
        let both = [such.clone(), unjudged.collect()];
        let found = both.iter().filter(|ways| !ways.is_empty()).map(|ways| self.best(lines, ways));
        found.reduce(|a, b| if b.1 < a.1 { b } else { a })
    }

    /// For each way its seconds as a straight line over the elements of a bucket: a model with many buckets is priced
    /// as fast as one with a single one.
    fn lines(&self, density: f64) -> Vec<Line> {
        const FEW: f64 = 1e6;
        const MANY: f64 = 2e6;
        let line = |way: usize| {
            let few = self.price(way, FEW, density).seconds();
            let slope = (self.price(way, MANY, density).seconds() - few) / (MANY - FEW);
            Line { constant: few - slope * FEW, slope }
        };
        (0..self.ways.len()).map(line).collect()
    }

    /// The fastest of some ways for each bucket, and the seconds of all; nothing, if there are no ways.
    fn best(&self, lines: &[Line], ways: &[usize]) -> (Vec<usize>, f64) {
        let mut total = 0.0;
        let chosen = self.buckets.iter().filter_map(|elements| {
            let seconds = |way: &usize| lines[*way].at(*elements);
            let best = ways.iter().copied().reduce(|a, b| if seconds(&b) < seconds(&a) { b } else { a })?;
            total += seconds(&best);
            Some(best)
        });
        let chosen: Vec<usize> = chosen.collect();
        let verdict = self.verdict(&chosen).seconds();
        (chosen, total + verdict)
    }

    /// The fastest that sends all buckets by one method which the choice does not use.
    fn second(&self, lines: &[Line], chosen: &[usize]) -> Option<(usize, f64)> {
        let used: Vec<&str> = chosen.iter().map(|way| self.ways[*way].method.as_str()).collect();
        let others = self.allowed().filter(|way| !used.contains(&self.ways[*way].method.as_str()));
        let seconds = |way: usize| {
            let buckets = self.buckets.iter().map(|elements| lines[way].at(*elements)).sum::<f64>();
            buckets + self.verdict(&[way]).seconds()
        };
        others.map(|way| (way, seconds(way))).reduce(|a, b| if b.1 < a.1 { b } else { a })
    }
}

#[derive(Debug, Clone, Copy)]
struct Line {
    constant: f64,
    slope: f64,
}

impl Line {
    fn at(self, elements: f64) -> f64 {
        self.constant + self.slope * elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(methods: &[&str]) -> Limits {
        let parsed = crate::method::parse(&format!("auto:methods={}", methods.join("|"))).unwrap();
        parsed.limits.unwrap()
    }

    fn solve(
        link: &str,
        ranks: usize,
        buckets: &[f64],
        compute: f64,
        change: fn(&mut Limits),
    ) -> (Solution, Vec<Way>) {
        let mut limits = limits(&["dense", "dense:values=bf16", "topk", "ar-topk"]);
        change(&mut limits);
        let ways = limits.ways().unwrap();
        let model = Model::new(ranks, link.parse().unwrap());
        let measured = vec![Measured::default(); ways.len()];
        let curve = Curve::default();
        let problem = Problem {
            model: &model,
            ways: &ways,
            measured: &measured,
            buckets,
            limits: &limits,
            curve: &curve,
            compute,
            full_only: false,
        };
        (problem.solve().unwrap(), ways)
    }

    #[test]
    fn a_fast_network_sends_everything_and_a_slow_one_does_not() {
        let (fast, ways) = solve("100gbit,10us", 4, &[1e6], 0.05, |_| ());
        assert!(ways[fast.ways[0]].is_dense() && fast.gain == 1.0);
        let (slow, ways) = solve("100mbit,1ms", 4, &[1e6], 0.05, |_| ());
        assert!(!ways[slow.ways[0]].is_dense(), "{slow:?}");
        assert!(slow.density >= 0.001 && slow.density <= 0.1);
        assert!(slow.seconds < 0.5 * slow.dense_seconds);
        let (second, seconds) = slow.second.unwrap();
        assert!(seconds >= slow.seconds && ways[second].method != ways[slow.ways[0]].method);
    }

    /// The same network, but the step is long anyway: then there is nothing to save.
    #[test]
    fn what_saves_little_of_a_step_is_not_worth_it() {
        let (short, ways) = solve("10gbit,100us", 4, &[1e6], 0.0, |_| ());
        assert!(!ways[short.ways[0]].is_dense());
        let (long, ways) = solve("10gbit,100us", 4, &[1e6], 1.0, |_| ());
        assert!(ways[long.ways[0]].is_dense());
    }

    #[test]
    fn buckets_are_chosen_for_one_by_one() {
        let (mixed, ways) = solve("1gbit,5ms", 16, &[100.0, 5e7], 0.0, |limits| limits.min_density = 0.1);
        assert_ne!(mixed.ways[0], mixed.ways[1], "{mixed:?} {:?}", ways[mixed.ways[0]].to_string());
    }

    #[test]
    fn limits_hold() {
        let (bounded, _) = solve("10mbit,1ms", 4, &[1e6], 0.0, |limits| limits.min_density = 0.05);
        assert!(bounded.density >= 0.05 - 1e-9);
        let (gained, _) = solve("10mbit,1ms", 4, &[1e6], 0.0, |limits| limits.target_gain = 0.4);
        assert!(gained.gain >= 0.39, "{gained:?}");
        let (unreachable, _) = solve("10mbit,1ms", 4, &[1e6], 0.0, |limits| limits.target_gain = 1.0);
        assert!((unreachable.density - 0.1).abs() < 1e-6);
        let (dense, ways) =
            solve("1mbit,1ms", 4, &[1e6], 0.0, |limits| limits.methods = vec!["dense".into()]);
        assert!(ways[dense.ways[0]].is_dense() && dense.second.is_none());
    }

    #[test]
    fn the_grid_finds_what_nsga2_finds() {
        for link in ["10mbit,1ms", "100mbit,10ms", "1gbit,1ms", "1gbit,50ms"] {
            for ranks in [2, 4, 8, 64] {
                let (nsga2, _) = solve(link, ranks, &[1e6, 3e7], 0.0, |_| ());
                let (grid, _) = solve(link, ranks, &[1e6, 3e7], 0.0, |limits| limits.solver = Solver::Grid);
                assert!(
                    (nsga2.density / grid.density).ln().abs() < 0.06,
                    "{link} {ranks}: {nsga2:?} {grid:?}"
                );
                assert!((nsga2.seconds / grid.seconds).ln().abs() < 0.06, "{link} {ranks}");
            }
        }
    }
}
