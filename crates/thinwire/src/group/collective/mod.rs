//! The algorithms: what each rank sends to whom, and what it does with what arrives.
//!
//! An algorithm is a [`Plan`]: streams of known order, from and to some ranks, and a rule of how far each may go
//! on. [`Mesh`](super::Mesh) moves the bytes. A plan never waits and never blocks, so every algorithm works on as
//! soon as a byte it depends on is there: chunks are pipelined without being cut.

pub(super) mod cast;
pub(super) mod compressed;
pub(super) mod gather;
pub(super) mod ring;
pub(super) mod ring_gather;
pub(super) mod tree;

/// One rank's part in a collective. Sources and targets are numbered by their place in the lists.
pub(super) trait Plan {
    /// The ranks this one receives from.
    fn sources(&self) -> &[usize];

    /// The ranks this one sends to.
    fn targets(&self) -> &[usize];

    /// What this rank announces to its targets: the length of the vector or message. `None` while it is not
    /// known; then nothing is sent.
    fn announcement(&self) -> Option<u64>;

    /// A source has announced a length: the bytes that will come from it, or what was expected instead.
    fn announced(&mut self, source: usize, length: u64) -> Result<u64, String>;

    /// Bytes that go to a target in all.
    fn total(&self, target: usize) -> u64;

    /// What may go to a target now, from `position` on.
    fn outgoing(&self, target: usize, position: u64) -> &[u8];

    /// Where the bytes of a source from `position` on are to be put; empty while they have to wait.
    fn incoming(&mut self, source: usize, position: u64) -> &mut [u8];

    /// `count` bytes from `position` on were put there.
    fn arrived(&mut self, source: usize, position: u64, count: usize);

    /// Does a part of the work that bytes to be sent depend on; false if there is none to do now.
    fn advance(&mut self) -> bool {
        false
    }
}

/// Work space in which bytes arrive before they are added: aligned, and small enough to stay in the cache.
/// Taken at the first use.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    words: Vec<u32>,
}

impl Scratch {
    /// Over loopback, 64 KiB to 1 MiB made no difference that could be told from noise.
    pub const BYTES: usize = 256 << 10;

    pub fn bytes(&mut self) -> &mut [u8] {
        self.words.resize(Scratch::BYTES / 4, 0);
        bytemuck::cast_slice_mut(&mut self.words)
    }
}

/// The neighbours in a binomial tree over `size` ranks with rank 0 at its root: the parent, and the children
/// from the nearest to the farthest.
pub(super) fn binomial(rank: usize, size: usize) -> (Option<usize>, Vec<usize>) {
    let below = if rank == 0 { size.next_power_of_two() } else { 1 << rank.trailing_zeros() };
    let children = (0..).map(|bit| 1usize << bit).take_while(|&bit| bit < below);
    let children = children.map(|bit| rank + bit).filter(|&child| child < size).collect();
    ((rank > 0).then(|| rank & (rank - 1)), children)
}

#[cfg(test)]
mod tests {
    use super::binomial;

    #[test]
    fn everybody_has_the_parent_that_has_it_as_a_child() {
        for size in 1..40 {
            let mut found = 1;
            for rank in 0..size {
                for child in binomial(rank, size).1 {
                    assert_eq!(binomial(child, size).0, Some(rank), "{child} of {size}");
                    found += 1;
                }
            }
            assert_eq!(found, size);
        }
        assert_eq!(binomial(0, 6).1, [1, 2, 4]);
        assert_eq!(binomial(4, 6), (Some(0), vec![5]));
    }
}
