//! Time as the ranks see it: one step, or one probe, of all of them.

use super::cluster::PROBE;
use super::{Scene, Wires};
use crate::Result;
use crate::adapt::cost::{Network, Ranks};
use crate::adapt::estimate::of_the_last_two;
use crate::adapt::price::{Collective, Leg, Way, Wire, Workshop};
use crate::adapt::probe::{Budget, look};

/// The clocks of all ranks.
#[derive(Debug, Clone)]
pub struct Clock<'a> {
    scene: &'a Scene,
    workshop: Workshop,
    /// How many times longer than the network's each rank's bytes take.
    links: Vec<f64>,
    /// When each rank was done with the last step.
    done: Vec<f64>,
    wires: Wires,
    times: Vec<f64>,
    before: Vec<f64>,
    before_echo: Vec<f64>,
    /// Seconds of sums and of spreads of each rank.
    spent: Vec<[f64; 2]>,
    messages: usize,
}

/// How a step travels: for each bucket a way, and all at one density.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course<'a> {
    pub ways: &'a [Way],
    pub choice: &'a [usize],
    pub density: f64,
    /// Bytes of a note that rides with the first bucket.
    pub note: f64,
    /// Seconds that rank 0 has to do something else before it can begin.
    pub delay: f64,
    /// Whether an empty message follows the buckets, to tell the latency.
    pub echo: bool,
}

/// What a step was like.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shown {
    pub network: Option<Network>,
    pub sum: f64,
    pub spread: f64,
    /// Of an empty message behind the buckets.
    pub echo: Option<f64>,
    /// Means over all ranks.
    pub work: f64,
    pub interval: f64,
    /// From the end of the step before to the end of this one, of whoever was last.
    pub seconds: f64,
    /// Bytes the busiest rank sent.
    pub bytes: f64,
}

impl<'a> Clock<'a> {
    /// All at zero.
    pub fn new(scene: &'a Scene) -> Clock<'a> {
        let workers = scene.cluster.workers;
        Clock {
            scene,
            workshop: Workshop::default(),
            links: scene.cluster.links(),
            done: vec![0.0; workers],
            wires: Wires::new(0.0, vec![0.0; workers]),
            times: vec![0.0; workers],
            before: vec![0.0; workers],
            before_echo: vec![0.0; workers],
            spent: vec![[0.0; 2]; workers],
            messages: 0,
        }
    }

    /// When the last rank was done.
    pub fn now(&self) -> f64 {
        self.done.iter().copied().fold(0.0, f64::max)
    }

    /// The part of the run before a step.
    pub fn part(&self, step: usize) -> f64 {
        step as f64 / self.scene.steps as f64
    }

    /// The network that holds in a step, without noise.
    pub fn network(&self, step: usize) -> Network {
        self.scene.timetable.at(step, self.scene.steps, self.now())
    }

    fn set_wires(&mut self, network: Network, (latency, bytes): (f64, f64)) {
        self.wires.latency = network.latency * latency;
        let byte = network.seconds_per_byte * bytes;
        self.wires.bytes.iter_mut().zip(&self.links).for_each(|(wire, factor)| *wire = byte * factor);
    }

    /// What each collective really finds on a network, without noise: what nobody but an oracle knows.
    pub fn truth(&mut self, network: Network) -> Wire {
        const MUCH: f64 = 1e8;
        self.set_wires(network, (1.0, 1.0));
        let mut wire = Wire::uniform(network);
        let ranks = Ranks::new(self.done.len());
        if ranks.count() == 1 {
            return wire;
        }
        for collective in Collective::ALL {
            let mut taken = |bytes: f64| {
                self.times.fill(0.0);
                self.wires.pass(collective, bytes, 0, &mut self.times);
                self.times.iter().copied().fold(0.0, f64::max)
            };
            let (little, much) = (taken(0.0), taken(MUCH));
            let loads = [0.0, MUCH].map(|bytes| collective.load(ranks, bytes));
            let seconds_per_byte = (much - little) / (loads[1].bytes - loads[0].bytes);
            let latency = (little - loads[0].bytes * seconds_per_byte) / loads[0].hops;
            wire.set(collective, Network { latency: latency.max(0.0), seconds_per_byte });
        }
        wire
    }

    /// All ranks take a step.
    pub(super) fn step(&mut self, step: usize, course: &Course<'_>) -> Shown {
        let (began, network, cluster) = (self.now(), self.network(step), &self.scene.cluster);
        self.set_wires(network, cluster.weather(step));
        let ranks = Ranks::new(self.done.len());
        self.before.copy_from_slice(&self.done);
        self.spent.fill([0.0; 2]);
        let mut paced = 0.0;
        for (rank, time) in self.times.iter_mut().enumerate() {
            let pace = cluster.pace(step, rank);
            *time = self.done[rank] + cluster.compute * pace;
            paced += pace;
        }
        self.times[0] += course.delay;
        let (mut worked, mut settling, mut bytes) = (0.0, 0.0, 0.0);
        for (bucket, (way, elements)) in course.choice.iter().zip(&self.scene.buckets).enumerate() {
            let (way, elements) = (&course.ways[*way], *elements as f64);
            let kept = way.kept(elements, course.density);
            let labour = self.workshop.labour_by(way);
            let selecting = labour.seconds(elements, kept, 0.0);
            let received = if way.is_gathered() { kept * ranks.count() as f64 } else { kept };
            settling += labour.seconds(0.0, 0.0, received);
            worked += selecting;
            for (rank, time) in self.times.iter_mut().enumerate() {
                *time += selecting * cluster.pace(step, rank);
            }
            let legs = way.legs(elements, course.density);
            let with_note = if bucket == 0 && way.verdict().is_none() { legs.len() - 1 } else { usize::MAX };
            for (number, leg) in legs.into_iter().enumerate() {
                let note = if number == with_note { course.note } else { 0.0 };
                bytes += self.pass(step, leg, note);
            }
        }
        let ways = || course.choice.iter().map(|way| &course.ways[*way]);
        if let Some(verdict) = ways().find_map(Way::verdict) {
            let note =
                if ways().next().is_some_and(|way| way.verdict().is_some()) { course.note } else { 0.0 };
            bytes += self.pass(step, verdict, note);
        }
        let echo = course.echo.then(|| self.listen());
        for (rank, time) in self.times.iter_mut().enumerate() {
            *time += settling * cluster.pace(step, rank);
        }
        self.done.copy_from_slice(&self.times);
        let count = ranks.count() as f64;
        let [sum, spread] =
            of_the_last_two(self.spent.iter().map(|spent| spent.map(|seconds| seconds.max(0.0))));
        let intervals = self.done.iter().zip(&self.before).map(|(done, before)| done - before);
        Shown {
            network: Some(network),
            sum,
            spread,
            echo: echo.map(|(least, _)| least),
            work: (worked + settling) * paced / count,
            // What ranks do for the controller does not count.
            interval: (intervals.sum::<f64>() - course.delay) / count - echo.map_or(0.0, |(_, mean)| mean),
            seconds: self.now() - began,
            bytes,
        }
    }

    /// A collective with a note of so many bytes from every rank, and the time it takes each; the bytes of the busiest.
    fn pass(&mut self, step: usize, leg: Leg, note: f64) -> f64 {
        let ranks = Ranks::new(self.done.len());
        let is_sum = leg.collective.is_sum();
        // Sums carry a place for everybody's note.
        let length = leg.bytes + if is_sum { note * ranks.count() as f64 } else { note };
        for (spent, time) in self.spent.iter_mut().zip(&self.times) {
            spent[usize::from(!is_sum)] -= time;
        }
        self.wires.pass(leg.collective, length, step % ranks.count(), &mut self.times);
        for (spent, time) in self.spent.iter_mut().zip(&self.times) {
            spent[usize::from(!is_sum)] += time;
        }
        leg.collective.load(ranks, length).bytes
    }

    /// An empty message from everybody to everybody: the time of the last two ranks, and the mean.
    fn listen(&mut self) -> (f64, f64) {
        self.before_echo.copy_from_slice(&self.times);
        self.wires.pass(Collective::StraightGather, 0.0, 0, &mut self.times);
        let taken = self.times.iter().zip(&self.before_echo).map(|(after, before)| after - before);
        let mean = taken.clone().sum::<f64>() / self.times.len() as f64;
        (of_the_last_two(taken.map(|seconds| [seconds, 0.0]))[0], mean)
    }

    /// All ranks look at the network, as they would in a training. What they find, the seconds it took, and the bytes.
    pub(super) fn probe(&mut self, step: usize, budget: Budget) -> Result<(Network, f64, f64)> {
        let (began, network) = (self.now(), self.network(step));
        let ranks = Ranks::new(self.done.len());
        let mut sent = 0.0;
        let found = look(ranks, budget, |bytes, times| {
            let mut gather = |bytes: f64| {
                sent += Collective::StraightGather.load(ranks, bytes).bytes;
                self.gather(step, network, bytes)
            };
            if bytes == 0 {
                gather(0.0);
            }
            let taken = (0..times).map(|_| gather(bytes as f64)).collect();
            // The ranks tell each other.
            gather(8.0 * times as f64);
            Ok(taken)
        })?;
        Ok((found, self.now() - began, sent))
    }

    /// A straight all-gather, and the mean of all ranks' times.
    fn gather(&mut self, step: usize, network: Network, bytes: f64) -> f64 {
        self.messages += 1;
        let weather = [0, 1].map(|what| self.scene.cluster.around_one(step, 2 * self.messages + what, PROBE));
        self.set_wires(network, (weather[0], weather[1]));
        self.before.copy_from_slice(&self.done);
        self.wires.pass(Collective::StraightGather, bytes, 0, &mut self.done);
        let taken = self.done.iter().zip(&self.before).map(|(done, before)| done - before);
        taken.sum::<f64>() / self.done.len() as f64
    }
}
