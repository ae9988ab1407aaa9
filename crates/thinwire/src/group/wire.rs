//! Byte streams between ranks: what the collectives of [`Mesh`](super::Mesh) run on.

use std::time::Instant;

use super::Traffic;
use super::envelope::ENVELOPE_BYTES;
use super::peer_text::peer_text;

/// One rank's streams to and from every other rank, and a side channel for notes. Nothing here blocks but
/// [`wait`](Wire::wait).
pub trait Wire: Send {
    /// This rank.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Takes bytes for `peer`, `head` and then `body`: says how many it took, 0 when it can take none now.
    fn write(&mut self, peer: usize, head: &[u8], body: &[u8]) -> Result<usize, Fault>;

    /// Fills `into` with bytes from `peer`: says how many, 0 when there are none now. What is behind them stays as
    /// it was: a sum may still have to be sent from there.
    fn read(&mut self, peer: usize, into: &mut [u8]) -> Result<usize, Fault>;

    /// Hands on what was taken for `peer` and is still held here; true when nothing is.
    fn flush(&mut self, peer: usize) -> Result<bool, Fault>;

    /// Sleeps until a peer of `interest` may be ready, a note may be there, or `until` has come.
    fn wait(&mut self, interest: &Interest, until: Instant) -> Result<(), Fault>;

    /// Leaves a note with `peer`, if it can still be reached: a peer that can't is found by other means.
    fn tell(&mut self, peer: usize, note: &Note);

    /// A note that has come in, with its sender.
    fn hear(&mut self) -> Option<(usize, Note)>;

    /// Whether a note from `peer` may still come.
    fn hears(&self, peer: usize) -> bool;

    /// Bytes sent and received so far.
    fn traffic(&self) -> Traffic;

    /// Whether there are streams, and all of them are encrypted.
    fn encrypted(&self) -> bool {
        false
    }

    /// Another step of the training begins, for wires that imitate a network that changes with it.
    fn begin_step(&mut self, step: u64) {
        let _ = step;
    }

    /// Closes all streams.
    fn close(&mut self);
}

/// Which peers are waited for.
#[derive(Debug, Default)]
pub struct Interest {
    /// To read from.
    pub read: Vec<usize>,
    /// To write to.
    pub write: Vec<usize>,
}

/// A stream that no longer works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The rank at its other end.
    pub peer: usize,
    /// What the system said.
    pub reason: String,
}

/// What ranks tell each other beside the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// "I have been waiting for these ranks": sent when half of the deadline is over, so that at its end
    /// everybody can tell who waits and who is missing, or that some wait in collectives that do not fit together.
    Waiting {
        /// The envelope of the collective it is in.
        at: [u8; ENVELOPE_BYTES],
        /// The ranks waited for.
        on: Vec<u32>,
    },
    /// "I have given the group up."
    GaveUp {
        /// Whose fault it was.
        culprit: u32,
        /// The error.
        reason: String,
    },
}

impl Note {
    /// Longer notes are cut.
    const MOST: usize = 1024;

    /// The note as bytes: kind, length of the rest, the rest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, mut rest) = match self {
            Note::Waiting { at, on } => (
                1u8,
                at.iter().copied().chain(on.iter().flat_map(|rank| rank.to_le_bytes())).collect::<Vec<u8>>(),
            ),
            Note::GaveUp { culprit, reason } => (2, [&culprit.to_le_bytes(), reason.as_bytes()].concat()),
        };
        rest.truncate(Note::MOST);
        [&[kind][..], &(rest.len() as u16).to_le_bytes(), &rest].concat()
    }

    /// The first note in `bytes` and its length; `None` while it is not whole.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Note, usize)>, String> {
        let Some((&[kind, low, high], rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let length = u16::from_le_bytes([low, high]) as usize;
        if length > Note::MOST {
            return Err(format!("a note of {length} bytes; at most {} are allowed", Note::MOST));
        }
        let Some(rest) = rest.get(..length) else { return Ok(None) };
        let (words, _) = rest.as_chunks::<4>();
        let note = match kind {
            1 if length >= ENVELOPE_BYTES => {
                let mut at = [0; ENVELOPE_BYTES];
                at.copy_from_slice(&rest[..ENVELOPE_BYTES]);
                let on = words[ENVELOPE_BYTES / 4..].iter().map(|word| u32::from_le_bytes(*word));
                Note::Waiting { at, on: on.collect() }
            }
            2 if !words.is_empty() => {
                Note::GaveUp { culprit: u32::from_le_bytes(words[0]), reason: peer_text(&rest[4..]) }
            }
            _ => return Err(format!("a note of kind {kind} with {length} bytes")),
        };
        Ok(Some((note, 3 + length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_and_long_ones_are_cut() {
        let notes = [
            Note::Waiting { at: [1; ENVELOPE_BYTES], on: vec![] },
            Note::Waiting { at: [2; ENVELOPE_BYTES], on: vec![3, 70_000] },
            Note::GaveUp { culprit: 2, reason: "rank 2 was silent".into() },
        ];
        for note in notes {
            let bytes = note.to_bytes();
            for end in 0..bytes.len() {
                assert_eq!(Note::parse(&bytes[..end]), Ok(None));
            }
            assert_eq!(Note::parse(&bytes), Ok(Some((note, bytes.len()))));
        }
        let long = Note::GaveUp { culprit: 1, reason: "x".repeat(5000) }.to_bytes();
        let (note, length) = Note::parse(&long).unwrap().unwrap();
        assert_eq!((note, length), (Note::GaveUp { culprit: 1, reason: "x".repeat(1020) }, 1027));
    }

    #[test]
    fn a_reason_is_safe_to_print() {
        let note = Note::GaveUp { culprit: 1, reason: "\x1b[2Jgone\rrank 2".into() };
        let (note, _) = Note::parse(&note.to_bytes()).unwrap().unwrap();
        assert_eq!(note, Note::GaveUp { culprit: 1, reason: "\u{fffd}[2Jgone rank 2".into() });
    }

    #[test]
    fn damaged_notes_are_errors() {
        assert!(Note::parse(&[9, 0, 0]).is_err());
        assert!(Note::parse(&[2, 3, 0, 1, 2, 3]).is_err());
        assert!(Note::parse(&[1, 4, 0, 1, 2, 3, 4]).is_err());
        assert!(Note::parse(&[1, 0xff, 0xff]).is_err());
    }
}
