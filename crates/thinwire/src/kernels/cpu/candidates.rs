//! The few elements worth looking at: collected during the walk, in order of position.
//!
//! A candidate is its position, its score and its value. Scores are never negative, so their bits order as
//! they do, and `(score bits, !position)` as one 64-bit key orders candidates by score, ties to the lower
//! position: the one order of the whole crate.

use super::lanes::{Lanes, WIDTH};

#[derive(Debug, Default, Clone)]
pub(super) struct Candidates {
    positions: Vec<u32>,
    scores: Vec<f32>,
    values: Vec<f32>,
    len: usize,
    /// At least this many of the best are never thrown away.
    keep: usize,
    /// Elements from this score on are complete; below it some were thrown away or never collected.
    floor: f32,
    keys: Vec<u64>,
}

/// The smallest score a candidate can have: zeros carry nothing and are never sent.
const LEAST: f32 = f32::from_bits(1);

fn key(position: u32, score: f32) -> u64 {
    (score.to_bits() as u64) << 32 | !position as u64
}

impl Candidates {
    /// Empties the list: collect from `floor` on, and never throw away the best `keep`. Room for `expected` is
    /// made at once, so that a step which finds a few more than the one before does not allocate.
    pub fn begin(&mut self, keep: usize, expected: usize, floor: f32) {
        self.len = 0;
        self.keep = keep;
        self.floor = floor.max(LEAST);
        self.grow(expected + 1024);
    }

    fn grow(&mut self, wanted: usize) {
        if self.positions.len() < wanted {
            self.positions.resize(wanted, 0);
            self.scores.resize(wanted, 0.0);
            self.values.resize(wanted, 0.0);
        }
    }

    pub fn floor(&self) -> f32 {
        self.floor
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn positions(&self) -> &[u32] {
        &self.positions[..self.len]
    }

    pub fn scores(&self) -> &[f32] {
        &self.scores[..self.len]
    }

    pub fn values(&self) -> &[f32] {
        &self.values[..self.len]
    }

    /// Makes room for `more` elements. When the list has grown past twice what must be kept, the rest is
    /// thrown away and the floor rises to the last one kept: later elements must beat it. So one walk
    /// finds the best `keep` from any floor, and the list stays short.
    pub fn make_room(&mut self, more: usize) {
        if self.len > 2 * self.keep + 1024 {
            self.prune(self.keep);
        }
        let wanted = self.len + more + WIDTH;
        if self.positions.len() < wanted {
            self.grow(wanted + wanted / 4);
        }
    }

    /// Appends the lanes named by `mask`. [`make_room`](Self::make_room) must have been called.
    #[inline(always)]
    pub fn push<L: Lanes>(&mut self, values: L, scores: L, mask: u16, first: u32) {
        #[inline(always)]
        fn tail<T>(list: &mut [T], len: usize) -> &mut [T; WIDTH] {
            (&mut list[len..len + WIDTH]).try_into().expect("WIDTH long")
        }
        L::pack_positions(mask, first, tail(&mut self.positions, self.len));
        scores.pack(mask, tail(&mut self.scores, self.len));
        values.pack(mask, tail(&mut self.values, self.len));
        self.len += mask.count_ones() as usize;
    }

    /// Appends the candidates of a later part of the vector.
    pub fn append(&mut self, later: &Candidates) {
        let end = self.len + later.len;
        self.grow(end);
        self.positions[self.len..end].copy_from_slice(later.positions());
        self.scores[self.len..end].copy_from_slice(later.scores());
        self.values[self.len..end].copy_from_slice(later.values());
        self.len = end;
        self.floor = self.floor.max(later.floor);
        self.make_room(0);
    }

    fn prune(&mut self, k: usize) {
        let last = if k == 0 {
            self.scores().iter().copied().fold(LEAST, f32::max)
        } else {
            f32::from_bits((self.cut(k) >> 32) as u32)
        };
        if k == 0 {
            self.len = 0;
        } else {
            self.retain_best(k);
        }
        self.floor = self.floor.max(last.next_up());
    }

    /// The key of the `k`-th best candidate, `1 <= k <= len`.
    fn cut(&mut self, k: usize) -> u64 {
        self.keys.clear();
        self.keys.reserve(self.positions.len());
        let (positions, scores) = (&self.positions[..self.len], &self.scores[..self.len]);
        self.keys.extend(positions.iter().zip(scores).map(|(&p, &s)| key(p, s)));
        *self.keys.select_nth_unstable(self.len - k).1
    }

    /// Keeps the best `k` (all, if there are fewer), still in order of position. Returns the lowest score
    /// kept, or 0 when none is.
    pub fn retain_best(&mut self, k: usize) -> f32 {
        if self.len > k && k > 0 {
            let cut = self.cut(k);
            self.retain(|position, score| key(position, score) >= cut);
            return f32::from_bits((cut >> 32) as u32);
        }
        self.len = self.len.min(k);
        self.scores().iter().copied().min_by(f32::total_cmp).unwrap_or(0.0)
    }

    /// Keeps the candidates for which `keep(position, score)` holds; asked in order of position.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, f32) -> bool) {
        let mut kept = 0;
        for i in 0..self.len {
            let (position, score, value) = (self.positions[i], self.scores[i], self.values[i]);
            // Written whether kept or not: no branch to mispredict.
            self.positions[kept] = position;
            self.scores[kept] = score;
            self.values[kept] = value;
            kept += keep(position, score) as usize;
        }
        self.len = kept;
    }

    /// Puts other elements, which were chosen without a score, in place of the candidates.
    pub fn replace(&mut self, elements: impl Iterator<Item = (u32, f32)>) {
        self.len = 0;
        for (position, value) in elements {
            if self.len == self.positions.len() {
                self.grow(2 * self.len + 16);
            }
            self.positions[self.len] = position;
            self.values[self.len] = value;
            self.len += 1;
        }
    }

    /// How many have a score above `threshold`.
    pub fn count_above(&self, threshold: f32) -> usize {
        self.scores().iter().filter(|&&score| score > threshold).count()
    }

    /// Keeps those with a score above `threshold`.
    pub fn retain_above(&mut self, threshold: f32) {
        self.retain(|_, score| score > threshold);
    }

    /// Bytes held, for the reports.
    pub fn bytes(&self) -> usize {
        4 * (self.positions.capacity() + self.scores.capacity() + self.values.capacity())
            + 8 * self.keys.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::portable::Portable;
    use super::*;

    fn collect(scores: &[f32], keep: usize, floor: f32) -> Candidates {
        let mut list = Candidates::default();
        list.begin(keep, keep, floor);
        for (at, sixteen) in scores.chunks(WIDTH).enumerate() {
            list.make_room(WIDTH);
            let mut lanes = [0.0; WIDTH];
            lanes[..sixteen.len()].copy_from_slice(sixteen);
            let lanes = Portable::load(&lanes);
            let mask = lanes.not_below(Portable::splat(list.floor()));
            list.push(lanes, lanes, mask, (at * WIDTH) as u32);
        }
        list
    }

    fn best(scores: &[f32], k: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..scores.len() as u32).filter(|&i| scores[i as usize] > 0.0).collect();
        order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
        order.truncate(k);
        order.sort();
        order
    }

    #[test]
    fn pruning_never_loses_one_of_the_best() {
        let rising: Vec<f32> = (0..20_000).map(|i| i as f32).collect();
        let tied: Vec<f32> = (0..20_000).map(|i| (i % 7) as f32).collect();
        let falling: Vec<f32> = rising.iter().rev().copied().collect();
        for scores in [&rising, &tied, &falling] {
            for k in [1, 10, 999] {
                let mut list = collect(scores, k, 0.0);
                assert!(list.len() <= 2 * k + 1024 + WIDTH);
                list.retain_best(k);
                assert_eq!(list.positions(), best(scores, k), "k {k}");
            }
        }
    }

    #[test]
    fn the_floor_says_from_where_the_list_is_complete() {
        let scores: Vec<f32> = (0..9000).map(|i| ((i * 7919) % 9001) as f32).collect();
        let list = collect(&scores, 100, 50.0);
        let expected = scores.iter().filter(|&&s| s >= list.floor()).count();
        assert_eq!(list.count_above(list.floor().next_down()), expected);
    }
}
