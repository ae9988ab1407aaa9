//! All-gather of messages of any length, straight from every rank to every other.
//!
//! Each rank sends its message to its right neighbour first, then to the one after, and so on, so that at any
//! time every rank is sent to by about one other. Nothing is padded and nothing is passed on: one hop, and every
//! link carries each message once.

use super::Plan;

pub(in crate::group) struct Gather<'a> {
    mine: &'a [u8],
    limit: usize,
    messages: &'a mut [Vec<u8>],
    sources: Vec<usize>,
    targets: Vec<usize>,
    /// Length of the message of each source.
    lengths: Vec<usize>,
}

/// Memory for a message is taken as its bytes arrive, this much at first: to announce a length is not enough.
const PIECE: usize = 1 << 18;

impl<'a> Gather<'a> {
    /// `messages` has an empty message for each rank.
    pub fn new(mine: &'a [u8], limit: usize, messages: &'a mut [Vec<u8>], rank: usize) -> Gather<'a> {
        let size = messages.len();
        messages[rank].extend_from_slice(mine);
        let sources = (1..size).map(|distance| (rank + size - distance) % size).collect();
        let targets = (1..size).map(|distance| (rank + distance) % size).collect();
        Gather { mine, limit, messages, sources, targets, lengths: vec![0; size - 1] }
    }
}

impl Plan for Gather<'_> {
    fn sources(&self) -> &[usize] {
        &self.sources
    }

    fn targets(&self) -> &[usize] {
        &self.targets
    }

    fn announcement(&self) -> Option<u64> {
        Some(self.mine.len() as u64)
    }

    fn announced(&mut self, source: usize, length: u64) -> Result<u64, String> {
        if length > self.limit as u64 {
            return Err(format!("at most {}", self.limit));
        }
        self.lengths[source] = length as usize;
        Ok(length)
    }

    fn total(&self, _target: usize) -> u64 {
        self.mine.len() as u64
    }

    fn outgoing(&self, _target: usize, position: u64) -> &[u8] {
        &self.mine[position as usize..]
    }

    fn incoming(&mut self, source: usize, position: u64) -> &mut [u8] {
        grow(&mut self.messages[self.sources[source]], position as usize, self.lengths[source])
    }

    fn arrived(&mut self, _source: usize, _position: u64, _count: usize) {}
}

/// Room in `message` for bytes from `position` on, up to `length`.
pub(super) fn grow(message: &mut Vec<u8>, position: usize, length: usize) -> &mut [u8] {
    if position == message.len() {
        message.resize(length.min(position + position.max(PIECE)), 0);
    }
    &mut message[position..]
}
