//! When each rank is through with a collective, if ranks come to it at unlike times and over unlike links.
//!
//! Bytes are passed on as they come, so a collective is a set of streams: what a rank sends can begin when the first
//! byte it depends on is there, can't end before the last one, and takes as long as its link makes it. That makes one
//! recurrence over the ranks for each algorithm, in time proportional to their number:
//!
//! | collective | recurrence |
//! |---|---|
//! | along a chain, down a tree | from the root outwards: first byte and last byte of each rank from those of its parent |
//! | up a tree | the same from the leaves inwards |
//! | straight | a rank is through when the slowest other's bytes have come and its own have left |
//! | around a ring | the longest way around: each of K chunks either moves on or waits, and waits for the slowest link |
//!
//! On a ring the ranks depend on each other in circles, and a way that waits is taken to wait at the slowest link of
//! all, also where it does not pass that one: so an uneven ring is never faster than here, and an even one takes
//! exactly this long. On ranks that are alike everything takes what [`Collective::load`] says, but for trees whose
//! number of ranks is no power of two: these are up to half as high as that says, for it counts rounds.

use std::collections::VecDeque;

use crate::adapt::price::Collective;

/// Bytes in front of every message.
const ENVELOPE: f64 = 40.0;

/// The links of all ranks in one step.
#[derive(Debug, Clone, Default)]
pub struct Wires {
    /// Seconds that a byte is on its way.
    pub latency: f64,
    /// Seconds that each byte takes to leave, rank by rank.
    pub bytes: Vec<f64>,
    first: Vec<f64>,
    last: Vec<f64>,
    sums: Vec<f64>,
    window: VecDeque<(usize, f64)>,
}

impl Wires {
    /// Links of the same latency that need this many seconds for a byte.
    pub fn new(latency: f64, bytes: Vec<f64>) -> Wires {
        Wires { latency, bytes, ..Wires::default() }
    }

    /// Ranks come to a collective at `times` and leave it at those it leaves behind. `root` is where a broadcast
    /// begins; `bytes` as in [`Collective::load`].
    ///
    /// ```
    /// use thinwire::adapt::price::Collective;
    /// use thinwire::adapt::simulate::Wires;
    ///
    /// // Rank 2 is a second late: the others wait for it, and it finds their messages there.
    /// let mut times = [0.0, 0.0, 1.0];
    /// Wires::new(0.01, vec![1e-6; 3]).pass(Collective::StraightGather, 9960.0, 0, &mut times);
    /// assert!(times.iter().zip([1.03, 1.03, 1.02]).all(|(a, b): (&f64, f64)| (a - b).abs() < 1e-9));
    /// ```
    pub fn pass(&mut self, collective: Collective, bytes: f64, root: usize, times: &mut [f64]) {
        if times.len() < 2 {
            return;
        }
        let count = times.len() as f64;
        match collective {
            Collective::RingSum => self.ring(2 * times.len() - 2, bytes / count, times),
            Collective::RingGather => {
                self.lengths(times);
                self.ring(times.len() - 1, bytes, times);
            }
            Collective::StraightGather => self.straight((count - 1.0) * (bytes + ENVELOPE), times),
            Collective::StraightSum => {
                // A shard to each owner, then each owner's sum to all.
                let shards = (count - 1.0) * (bytes / count + ENVELOPE);
                self.straight(shards, times);
                self.straight(shards, times);
            }
            Collective::TreeSum => self.tree_sum(bytes + ENVELOPE, times),
            Collective::TreeCast => {
                self.cast(bytes + ENVELOPE, root, times, |place| place & (place - 1), below)
            }
            Collective::ChainCast => self.cast(
                bytes + ENVELOPE,
                root,
                times,
                |place| place - 1,
                |place, size| usize::from(place + 1 < size),
            ),
        }
    }

    fn straight(&self, bytes: f64, times: &mut [f64]) {
        let left = |rank: usize, times: &[f64]| times[rank] + bytes * self.bytes[rank];
        let (mut slowest, mut second) = ((0, f64::NEG_INFINITY), f64::NEG_INFINITY);
        for rank in 0..times.len() {
            let end = left(rank, times);
            if end > slowest.1 {
                (slowest, second) = ((rank, end), slowest.1);
            } else {
                second = second.max(end);
            }
        }
        for rank in 0..times.len() {
            let others = if rank == slowest.0 { second } else { slowest.1 };
            times[rank] = left(rank, times).max(others + self.latency);
        }
    }

    /// Everybody hears from everybody how long its message will be.
    fn lengths(&self, times: &mut [f64]) {
        let latest = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (time, byte) in times.iter_mut().zip(&self.bytes) {
            *time = time.max(latest + self.latency) + ENVELOPE * byte;
        }
    }

    /// Every rank sends so many chunks to its right; the first when it comes, each other one when that before it has
    /// left and the one from the left has come.
    ///
    /// The longest way to a rank begins at some rank, moves on at some of its chunks and waits at the others.
    fn ring(&mut self, chunks: usize, bytes: f64, times: &mut [f64]) {
        let size = times.len();
        let slowest = self.bytes.iter().copied().fold(0.0, f64::max);
        let base = times.iter().copied().fold(f64::INFINITY, f64::min);
        // Laps are laid out one after the other, so that a way is a run of places. A move takes the latency and its
        // link, and saves a wait at the slowest one.
        let laps = chunks / size + 2;
        self.sums.clear();
        self.sums.push(0.0);
        for place in 0..laps * size {
            let moved = self.latency + bytes * (self.bytes[place % size] - slowest);
            self.sums.push(self.sums[place] + moved);
        }
        self.window.clear();
        let last_lap = (laps - 1) * size;
        let begin = |place: usize, sums: &[f64], times: &[f64]| times[place % size] - base - sums[place];
        self.first.clear();
        for place in 0..laps * size {
            let value = begin(place, &self.sums, times);
            while self.window.back().is_some_and(|(_, before)| *before <= value) {
                self.window.pop_back();
            }
            self.window.push_back((place, value));
            while self.window.front().is_some_and(|(from, _)| from + chunks < place) {
                self.window.pop_front();
            }
            if place >= last_lap {
                let longest = self.window.front().map_or(0.0, |(_, value)| *value) + self.sums[place];
                let rest = (chunks as f64 * bytes + ENVELOPE) * slowest;
                self.first.push(base + longest + rest);
            }
        }
        times.copy_from_slice(&self.first);
    }

    fn tree_sum(&mut self, bytes: f64, times: &mut [f64]) {
        let size = times.len();
        // Up: the first byte of a sum needs that of every child, the last one theirs.
        self.first.clear();
        self.first.extend_from_slice(times);
        self.last.clear();
        self.last.resize(size, f64::NEG_INFINITY);
        for rank in (1..size).rev() {
            let parent = rank & (rank - 1);
            let sent = (self.first[rank] + bytes * self.bytes[rank]).max(self.last[rank]);
            self.first[parent] = self.first[parent].max(self.first[rank] + self.latency);
            self.last[parent] = self.last[parent].max(sent + self.latency);
        }
        // Down: it begins at the root with the first byte of the whole sum.
        (times[0], self.last[0]) = (self.first[0], self.last[0].max(self.first[0]));
        self.spread(bytes, 0, times, |place| place & (place - 1), below);
    }

    fn cast(
        &mut self,
        bytes: f64,
        root: usize,
        times: &mut [f64],
        parent: fn(usize) -> usize,
        children: fn(usize, usize) -> usize,
    ) {
        self.last.clear();
        self.last.resize(times.len(), times[root]);
        self.spread(bytes, root, times, parent, children);
    }

    /// From the root outwards: `times` are when ranks come, `last[0]` when the root has the last byte.
    fn spread(
        &mut self,
        bytes: f64,
        root: usize,
        times: &mut [f64],
        parent: fn(usize) -> usize,
        children: fn(usize, usize) -> usize,
    ) {
        let size = times.len();
        self.first.clear();
        self.first.resize(size, 0.0);
        for place in 0..size {
            let rank = (place + root) % size;
            let (first, last) = match place {
                0 => (times[rank], self.last[0]),
                _ => {
                    let above = parent(place);
                    let first = times[rank].max(self.first[above] + self.latency);
                    (first, first.max(self.last[above] + self.latency))
                }
            };
            let sending = children(place, size) as f64 * bytes * self.bytes[rank];
            // From here on `last` is when the last byte has left for the children.
            (self.first[place], self.last[place]) = (first, last.max(first + sending));
            times[rank] = self.last[place];
        }
    }
}

/// How many children a place of a binomial tree has.
fn below(place: usize, size: usize) -> usize {
    let reach = if place == 0 { size.next_power_of_two() } else { 1 << place.trailing_zeros() };
    (0..).map(|bit| 1usize << bit).take_while(|&bit| bit < reach && place + bit < size).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::adapt::cost::{Network, Ranks};

    fn latest(collective: Collective, bytes: f64, root: usize, wires: &mut Wires, times: &[f64]) -> f64 {
        let mut times = times.to_vec();
        wires.pass(collective, bytes, root, &mut times);
        times.into_iter().fold(f64::NEG_INFINITY, f64::max)
    }

    /// A ring by its definition: every chunk of every rank.
    fn ring_by_hand(chunks: usize, bytes: f64, wires: &Wires, times: &[f64]) -> Vec<f64> {
        let size = times.len();
        let mut left = times.to_vec();
        let mut here = times.to_vec();
        for _ in 0..chunks {
            let sent: Vec<f64> =
                (0..size).map(|rank| left[rank].max(here[rank]) + bytes * wires.bytes[rank]).collect();
            here = (0..size).map(|rank| sent[(rank + size - 1) % size] + wires.latency).collect();
            left = sent;
        }
        here.iter().zip(&left).map(|(here, left)| here.max(*left)).collect()
    }

    proptest! {
        #[test]
        fn ranks_that_are_alike_take_what_the_model_says(
            count in 1usize..70,
            latency in 0.0..0.1f64,
            byte in 1e-12..1e-7f64,
            bytes in 0.0..1e9f64,
            root in 0usize..70,
            late in 0.0..1e3f64,
        ) {
            let network = Network { latency, seconds_per_byte: byte };
            let mut wires = Wires::new(latency, vec![byte; count]);
            for collective in Collective::ALL {
                let taken = latest(collective, bytes, root % count, &mut wires, &vec![late; count]) - late;
                let model = collective.load(Ranks::new(count), bytes).seconds(network);
                let near = (taken - model).abs() <= 1e-9 * (model + late);
                let tree = matches!(collective, Collective::TreeSum | Collective::TreeCast);
                if tree && !count.is_power_of_two() {
                    // Not all of its rounds follow each other.
                    prop_assert!(taken <= model * (1.0 + 1e-9) + 1e-9 * late && taken >= 0.5 * model - 1e-9 * late);
                } else {
                    prop_assert!(near, "{} of {count}: {taken} {model}", collective.name());
                }
            }
        }

        #[test]
        fn a_ring_takes_at_least_its_definition_and_hardly_more(
            times in proptest::collection::vec(0.0..0.1f64, 2..24),
            bytes in 0.0..1e6f64,
            latency in 0.0..0.02f64,
            seed in 0u64..1000,
            even: bool,
        ) {
            let count = times.len();
            let cluster = super::super::Cluster { workers: count, uneven: if even { 1.0 } else { 3.0 }, seed, ..Default::default() };
            let links = cluster.links().iter().map(|factor| factor * 1e-8).collect();
            let mut wires = Wires::new(latency, links);
            for chunks in [count - 1, 2 * count - 2] {
                let exact = ring_by_hand(chunks, bytes, &wires, &times);
                let mut found = times.clone();
                wires.ring(chunks, bytes, &mut found);
                for (found, exact) in found.iter().zip(&exact) {
                    // The envelope, and for uneven links the slowest that is not passed.
                    let waits = if even { 0.0 } else { chunks as f64 * bytes * 2e-8 };
                    let slack = ENVELOPE * 3e-8 + waits + 1e-9;
                    prop_assert!(*found >= exact - 1e-9 && *found <= exact + slack, "{found} {exact}");
                }
            }
        }

        #[test]
        fn nobody_leaves_before_it_came_and_later_ranks_make_nobody_faster(
            times in proptest::collection::vec(0.0..0.1f64, 2..40),
            bytes in 0.0..1e6f64,
            who in 0usize..40,
        ) {
            let count = times.len();
            let mut wires = Wires::new(1e-3, (0..count).map(|rank| 1e-8 * (1 + rank % 3) as f64).collect());
            for collective in Collective::ALL {
                let mut through = times.clone();
                wires.pass(collective, bytes, who % count, &mut through);
                prop_assert!(through.iter().zip(&times).all(|(after, before)| after >= before));
                let mut later = times.clone();
                later[who % count] += 0.05;
                wires.pass(collective, bytes, who % count, &mut later);
                prop_assert!(later.iter().zip(&through).all(|(later, through)| *later >= *through - 1e-12));
            }
        }
    }

    #[test]
    fn the_slowest_link_holds_everybody_up() {
        for collective in Collective::ALL {
            let times = vec![0.0; 8];
            let mut wires = Wires::new(1e-4, vec![1e-8; 8]);
            let even = latest(collective, 1e7, 0, &mut wires, &times);
            wires.bytes[0] = 3e-8;
            let uneven = latest(collective, 1e7, 0, &mut wires, &times);
            assert!(uneven > 2.5 * even, "{}: {even} {uneven}", collective.name());
        }
    }

    #[test]
    fn a_rank_alone_waits_for_nobody() {
        let mut wires = Wires::new(1.0, vec![1.0]);
        for collective in Collective::ALL {
            assert_eq!(latest(collective, 1e6, 0, &mut wires, &[5.0]), 5.0);
        }
    }
}
