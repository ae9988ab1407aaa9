//! Who names the coordinates of a step.

use crate::select::mix;

/// Which ranks lead where coordinates are agreed. Every rank finds the same ones without asking, but for
/// [`LargestNorm`](Leaders::LargestNorm).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaders {
    /// Each rank in turn: AR-Topk's STAR. A coordinate that matters to one rank only waits for up to as many
    /// steps as there are ranks.
    RoundRobin,
    /// The rank whose selection has the largest squared norm, the first of equals: AR-Topk's VAR. All ranks
    /// select, and their norms are gathered.
    LargestNorm,
    /// Some ranks drawn anew in every step, and the union of what they name: IWP.
    Random {
        /// How many; all ranks if there are fewer.
        count: usize,
        /// The same on all ranks.
        seed: u64,
    },
    /// No leader: the selector draws the same coordinates on every rank, and nothing needs to be said.
    Nobody,
}

impl Leaders {
    /// The leaders of a step in ascending order, where they are known beforehand; for
    /// [`LargestNorm`](Leaders::LargestNorm) and [`Nobody`](Leaders::Nobody) there are none.
    ///
    /// ```
    /// use thinwire::exchange::Leaders;
    /// assert_eq!(Leaders::RoundRobin.of_step(7, 4), [3]);
    /// assert_eq!(Leaders::Random { count: 9, seed: 0 }.of_step(7, 4), [0, 1, 2, 3]);
    /// ```
    pub fn of_step(&self, step: u64, size: usize) -> Vec<usize> {
        match *self {
            Leaders::RoundRobin => vec![(step % size as u64) as usize],
            Leaders::LargestNorm | Leaders::Nobody => Vec::new(),
            Leaders::Random { count, seed } => draw(count.min(size), size, mix(seed ^ mix(step))),
        }
    }

    /// The first rank with the largest of the gathered norms.
    pub(super) fn largest(norms: impl Iterator<Item = f64>) -> usize {
        let first_largest = |(best, most): (usize, f64), (rank, norm): (usize, f64)| {
            if norm > most { (rank, norm) } else { (best, most) }
        };
        norms.enumerate().fold((0, f64::NEG_INFINITY), first_largest).0
    }
}

/// `count` of `size` ranks, each set equally likely: the first steps of a shuffle.
fn draw(count: usize, size: usize, mut state: u64) -> Vec<usize> {
    let mut ranks: Vec<usize> = (0..size).collect();
    for place in 0..count {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let left = (size - place) as u128;
        ranks.swap(place, place + ((mix(state) as u128 * left) >> 64) as usize);
    }
    ranks.truncate(count);
    ranks.sort_unstable();
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_leads_in_turn() {
        let leaders: Vec<usize> = (0..6).flat_map(|step| Leaders::RoundRobin.of_step(step, 3)).collect();
        assert_eq!(leaders, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn random_leaders_are_distinct_and_all_lead_equally_often() {
        let leaders = Leaders::Random { count: 2, seed: 5 };
        let mut led = [0; 5];
        for step in 0..10_000 {
            let drawn = leaders.of_step(step, 5);
            assert!(drawn.len() == 2 && drawn[0] < drawn[1]);
            drawn.iter().for_each(|&rank| led[rank] += 1);
        }
        // Expected 4000 each, deviation 49.
        assert!(led.iter().all(|led| (3800..4200).contains(led)), "{led:?}");
        assert_ne!(
            (0..20).map(|step| leaders.of_step(step, 5)).collect::<Vec<_>>(),
            (0..20).map(|step| Leaders::Random { count: 2, seed: 6 }.of_step(step, 5)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_first_of_equal_norms_leads() {
        assert_eq!(Leaders::largest([1.0, 3.0, 3.0, 2.0].into_iter()), 1);
        assert_eq!(Leaders::largest([0.0; 4].into_iter()), 0);
        assert_eq!(Leaders::largest([f64::NAN, 1.0].into_iter()), 1);
    }
}
