//! Random-k: the baseline that looks at nothing.

use super::{Select, Survey};

/// `k` positions drawn at random, the same on every rank that has the seed and the step.
///
/// It may choose elements that are zero; that is what random means.
#[derive(Debug, Clone, Default)]
pub struct RandomK {
    /// The seed. Default 0.
    pub seed: u64,
    positions: Vec<u32>,
}

impl RandomK {
    /// A selector with this seed.
    pub fn new(seed: u64) -> RandomK {
        RandomK { seed, positions: Vec::new() }
    }

    /// Draws a uniformly random set of `k` of `0..len`, sorted, into `self.positions`. `start` tells units of
    /// one length apart.
    fn draw(&mut self, start: usize, len: usize, k: usize, step: u64) {
        let mut state = mix(self.seed ^ mix(step ^ mix(start as u64)));
        self.positions.clear();
        // Draw the smaller of the set and its complement until it is full: few draws are wasted.
        let wanted = k.min(len - k);
        while self.positions.len() < wanted {
            for _ in self.positions.len()..wanted {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                self.positions.push(((mix(state) as u128 * len as u128) >> 64) as u32);
            }
            self.positions.sort_unstable();
            self.positions.dedup();
        }
        if wanted < k {
            let left_out = std::mem::take(&mut self.positions);
            let mut next = left_out.iter().copied().peekable();
            self.positions = (0..len as u32).filter(|&i| next.next_if_eq(&i).is_none()).collect();
        }
    }
}

impl Select for RandomK {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(RandomK::new(self.seed))
    }

    fn expect(&self, _k: usize) -> usize {
        0
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, step: u64) {
        self.draw(survey.start(), survey.len(), k, step);
        survey.keep_positions(&self.positions);
    }
}

/// The finaliser of SplitMix64: turns counters into random-looking numbers.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_a_set_of_the_right_size_and_uniform() {
        let mut selector = RandomK::new(7);
        let mut hits = [0u32; 50];
        for step in 0..4000 {
            for k in [0, 1, 10, 25, 49, 50] {
                selector.draw(0, 50, k, step);
                assert_eq!(selector.positions.len(), k);
                assert!(selector.positions.is_sorted_by(|a, b| a < b));
            }
            selector.draw(0, 50, 10, step);
            selector.positions.iter().for_each(|&i| hits[i as usize] += 1);
        }
        // Expected 800 each, deviation 25.
        assert!(hits.iter().all(|hits| (660..940).contains(hits)), "{hits:?}");
    }
}
