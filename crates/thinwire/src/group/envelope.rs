//! What stands in front of every message of a collective.

use super::{Algorithm, Mark, Precision};
use crate::{Error, Result};

/// Which collective a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    RingSum(Precision),
    TreeSum(Precision),
    RingGather,
    DirectGather,
    /// Broadcast from this rank along the ring.
    RingCast(u32),
    /// Broadcast from this rank along the tree.
    TreeCast(u32),
    Barrier,
    /// Compressed contributions to the owners of shards, and their sums to all.
    CompressedSum,
    /// The end of the group, where it is ended together.
    #[cfg(feature = "mpi")]
    Leave,
}

impl Operation {
    /// The sum along this way.
    pub fn sum(how: Algorithm, precision: Precision) -> Operation {
        match how {
            Algorithm::Ring => Operation::RingSum(precision),
            Algorithm::Tree => Operation::TreeSum(precision),
        }
    }

    /// The all-gather along this way.
    pub fn gather(how: Algorithm) -> Operation {
        match how {
            Algorithm::Ring => Operation::RingGather,
            Algorithm::Tree => Operation::DirectGather,
        }
    }

    /// The broadcast along this way; its root must be a rank.
    pub fn cast(how: Algorithm, root: usize, size: usize) -> Result<Operation> {
        if root >= size {
            return Err(Error::BadSetting {
                name: "root of a broadcast".into(),
                found: root.to_string(),
                expected: format!("a rank below {size}"),
            });
        }
        Ok(match how {
            Algorithm::Ring => Operation::RingCast(root as u32),
            Algorithm::Tree => Operation::TreeCast(root as u32),
        })
    }

    fn code(self) -> (u8, u32) {
        match self {
            Operation::RingSum(precision) => (1, precision as u32),
            Operation::TreeSum(precision) => (2, precision as u32),
            Operation::DirectGather => (3, 0),
            Operation::RingGather => (8, 0),
            Operation::RingCast(root) => (4, root),
            Operation::TreeCast(root) => (5, root),
            Operation::Barrier => (6, 0),
            Operation::CompressedSum => (9, 0),
            #[cfg(feature = "mpi")]
            Operation::Leave => (7, 0),
        }
    }

    /// The words for it.
    pub fn name(self) -> String {
        describe(self.code())
    }
}

fn describe((code, detail): (u8, u32)) -> String {
    let precision = ["f32", "f16", "bf16"].get(detail as usize).unwrap_or(&"unknown values");
    match code {
        1 => format!("ring all-reduce of {precision}"),
        2 => format!("tree all-reduce of {precision}"),
        3 => "all-gather".into(),
        8 => "ring all-gather".into(),
        4 => format!("ring broadcast from rank {detail}"),
        5 => format!("tree broadcast from rank {detail}"),
        6 => "barrier".into(),
        7 => "end of the group".into(),
        9 => "compressed all-reduce".into(),
        other => format!("operation {other}"),
    }
}

/// The envelope: which collective, for what, and how long the message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Envelope {
    pub operation: Operation,
    /// The number of the collective in this group.
    pub sequence: u64,
    pub mark: Mark,
    /// Bytes of the vector or of the message.
    pub length: u64,
}

const MAGIC: [u8; 3] = *b"tw>";
pub(super) const ENVELOPE_BYTES: usize = 40;

impl Envelope {
    pub fn to_bytes(self) -> [u8; ENVELOPE_BYTES] {
        let (code, detail) = self.operation.code();
        let mut bytes = [0; ENVELOPE_BYTES];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = code;
        bytes[4..8].copy_from_slice(&detail.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.mark.step.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.mark.plan.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.mark.bucket.to_le_bytes());
        bytes[32..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Checks that `bytes` from `rank` are of the collective this rank is in; gives the length they announce.
    /// This rank's own length plays no part.
    pub fn check(self, bytes: &[u8; ENVELOPE_BYTES], rank: usize) -> Result<u64> {
        let disagree = |field: &'static str, found: String, expected: String| Error::Disagreement {
            rank,
            step: self.mark.step,
            field,
            found,
            expected,
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if bytes[..3] != MAGIC {
            let found = format!("{:02x?}", &bytes[..3]);
            return Err(disagree("a message's first bytes", found, format!("{MAGIC:02x?}")));
        }
        for (field, found, expected) in [
            ("the step", long(16), self.mark.step),
            ("the plan", word(24).into(), self.mark.plan.into()),
            ("the bucket", word(28).into(), self.mark.bucket.into()),
            ("the number of the collective", long(8), self.sequence),
        ] {
            if found != expected {
                return Err(disagree(field, found.to_string(), expected.to_string()));
            }
        }
        let found = (bytes[3], word(4));
        if found != self.operation.code() {
            return Err(disagree("the collective", describe(found), self.operation.name()));
        }
        Ok(long(32))
    }

    /// The error, if `bytes` are what `rank` sends in this collective and do not fit it.
    pub fn contradiction(self, bytes: &[u8; ENVELOPE_BYTES], rank: usize) -> Option<Error> {
        let same = bytes[8..16] == self.sequence.to_le_bytes();
        if same { self.check(bytes, rank).err() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_checked_and_named() {
        let mine = Envelope {
            operation: Operation::RingSum(Precision::Bf16),
            sequence: 1 << 40,
            mark: Mark { step: 7, plan: 8, bucket: 9 },
            length: 1 << 50,
        };
        assert_eq!(mine.check(&mine.to_bytes(), 3), Ok(1 << 50));
        let mark = |mark| Envelope { mark, ..mine };
        let others = [
            (mark(Mark { step: 6, ..mine.mark }), "the step is 6 there and 7 here"),
            (mark(Mark { plan: 6, ..mine.mark }), "the plan is 6 there and 8 here"),
            (mark(Mark { bucket: 6, ..mine.mark }), "the bucket is 6 there and 9 here"),
            (Envelope { sequence: 6, ..mine }, "the number of the collective is 6 there"),
            (
                Envelope { operation: Operation::DirectGather, ..mine },
                "the collective is all-gather there and ring all-reduce of bf16 here",
            ),
        ];
        for (other, words) in others {
            let error = mine.check(&other.to_bytes(), 3).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("rank 3"), "{error}");
        }
        let other_step = mark(Mark { step: 6, ..mine.mark });
        assert!(mine.contradiction(&other_step.to_bytes(), 3).is_some());
        assert!(mine.contradiction(&Envelope { sequence: 6, ..other_step }.to_bytes(), 3).is_none());
        let mut garbage = mine.to_bytes();
        garbage[0] = 0;
        assert!(mine.check(&garbage, 3).is_err());
    }
}
