//! How fast bytes travel in each collective, by running it.

use super::agree::{mean, median, timed};
use crate::Result;
use crate::adapt::cost::{Network, Ranks};
use crate::adapt::price::{Collective, Leg, Sample, Wire};
use crate::group::{Algorithm, Gathered, Group, Sum};

/// Bytes of the messages that are tried: the small ones always, the large ones as far as the link allows.
const SMALL: [usize; 4] = [64, 4 << 10, 16 << 10, 64 << 10];
const LARGEST: usize = 4 << 20;

/// However slow the link, bytes must be seen.
const FEWEST: usize = 16 << 10;

/// A measurement is repeated until it has taken so many seconds, but for a number of times in these bounds.
const SECONDS: f64 = 0.05;
const REPEATS: std::ops::RangeInclusive<usize> = 3..=25;

/// What each collective finds, where a quick look found `network`. No message is meant to take longer than
/// `seconds`.
pub(super) fn measure(
    group: &mut dyn Group,
    network: Network,
    seconds: f64,
    progress: &mut dyn FnMut(&str),
) -> Result<Wire> {
    let ranks = Ranks::new(group.size());
    let mut wire = Wire::uniform(network);
    if ranks.count() == 1 {
        return Ok(wire);
    }
    let mut course = Course::default();
    // A tree ends for its root long before it ends: everybody's answer is waited for, and then taken off again.
    let answer = course.seconds(group, Collective::StraightGather, 0, network, 0.0)?;
    for collective in Collective::ALL {
        let largest = largest(collective, ranks, network, seconds);
        let mut samples = Vec::new();
        let small = SMALL.into_iter().filter(|&bytes| bytes < largest / 2);
        for bytes in small.chain([largest / 2, largest]) {
            progress(&format!("{}, {} bytes", collective.name(), bytes));
            let seconds = course.seconds(group, collective, bytes, network, answer)?;
            let load = collective.load(ranks, bytes as f64);
            samples.push(Sample { hops: load.hops, bytes: load.bytes, seconds });
        }
        wire.set_samples(collective, samples);
    }
    Ok(wire)
}

/// The largest message that takes no longer than `seconds`, and one that is large enough to see bytes at all.
fn largest(collective: Collective, ranks: Ranks, network: Network, seconds: f64) -> usize {
    let fits = |bytes: &usize| {
        let leg = Leg { collective, bytes: *bytes as f64 };
        Wire::uniform(network).seconds(ranks, leg) <= seconds
    };
    let sizes = (0..).map(|halves| LARGEST >> halves).take_while(|&bytes| bytes >= FEWEST);
    sizes.into_iter().find(fits).unwrap_or(FEWEST)
}

/// The vectors and messages of the measurements, kept for their memory.
#[derive(Default)]
struct Course {
    values: Vec<f32>,
    message: Vec<u8>,
    gathered: Gathered,
}

impl Course {
    /// The median over some repetitions of the mean of the ranks' times.
    fn seconds(
        &mut self,
        group: &mut dyn Group,
        collective: Collective,
        bytes: usize,
        network: Network,
        answer: f64,
    ) -> Result<f64> {
        let ranks = Ranks::new(group.size());
        let leg = Leg { collective, bytes: bytes as f64 };
        let guess = Wire::uniform(network).seconds(ranks, leg);
        let repeats = (SECONDS / guess.max(1e-9)) as usize;
        let repeats = repeats.clamp(*REPEATS.start(), *REPEATS.end());
        let mut times = Vec::with_capacity(repeats);
        for repeat in 0..=repeats {
            group.barrier()?;
            let time = timed(|| self.once(group, collective, bytes, repeat))?;
            // The first is for memory and connections that have to grow.
            if repeat > 0 {
                times.push(time);
            }
        }
        let off = if ends_early(collective) { answer } else { 0.0 };
        Ok((median(mean(group, &times)?) - off).max(1e-9))
    }

    fn once(
        &mut self,
        group: &mut dyn Group,
        collective: Collective,
        bytes: usize,
        repeat: usize,
    ) -> Result<()> {
        use Algorithm::{Ring, Tree};
        match collective {
            Collective::RingSum | Collective::TreeSum => {
                self.values.clear();
                self.values.resize(bytes.div_ceil(4), 1.0);
                let how = if collective == Collective::RingSum { Ring } else { Tree };
                group.all_reduce(Sum::F32(&mut self.values), how)?;
            }
            Collective::RingGather | Collective::StraightGather | Collective::StraightSum => {
                self.message.resize(bytes, 0);
                let how = if collective == Collective::RingGather { Ring } else { Tree };
                group.all_gather(&self.message, bytes, how, &mut self.gathered)?;
            }
            Collective::ChainCast | Collective::TreeCast => {
                let root = repeat % group.size();
                self.message.resize(if group.rank() == root { bytes } else { 0 }, 0);
                let how = if collective == Collective::ChainCast { Ring } else { Tree };
                group.broadcast(root, &mut self.message, bytes, how)?;
            }
        }
        if ends_early(collective) {
            group.all_gather(&[], 0, Tree, &mut self.gathered)?;
        }
        Ok(())
    }
}

/// Whether some rank is through when it has sent, and need not hear from the others.
fn ends_early(collective: Collective) -> bool {
    matches!(collective, Collective::TreeSum | Collective::ChainCast | Collective::TreeCast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_large_as_the_link_allows() {
        let (fast, slow) = ("100gbit,10us".parse().unwrap(), "50mbit,1ms".parse().unwrap());
        let ranks = Ranks::new(8);
        assert_eq!(largest(Collective::RingSum, ranks, fast, 0.25), 4 << 20);
        assert_eq!(largest(Collective::RingSum, ranks, slow, 0.25), 512 << 10);
        assert_eq!(largest(Collective::StraightGather, ranks, slow, 0.25), 128 << 10);
        // However slow, bytes must be seen.
        assert_eq!(largest(Collective::StraightGather, ranks, slow, 0.0), 16 << 10);
    }
}
