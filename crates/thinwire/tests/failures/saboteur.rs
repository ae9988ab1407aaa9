//! A rank that works as it should up to one place, and there does something else.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use thinwire::Result;
use thinwire::codec::{Frame, FrameWriter, IndexChoice, SectionInput, ValueForm};
use thinwire::group::{Algorithm, CompressedSum, Gathered, Group, Mark, ShardMessages, Sum, Tcp, Traffic};

/// What it does, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sabotage {
    /// The step; `None` for the collective in which the ranks compare what they were told.
    pub step: Option<u64>,
    /// Which collective of that step, from 0.
    pub call: usize,
    pub moment: Moment,
    pub deed: Deed,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Moment {
    /// When the others wait in the collective.
    Before,
    /// A moment after this rank has entered it.
    Inside,
    After,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Deed {
    Die,
    Freeze,
    /// Sends this instead of its message.
    Send(Lie),
    /// Marks its messages with another plan.
    OtherPlan,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Lie {
    /// Random bytes.
    Noise,
    /// The first half of its message.
    Half,
    /// A frame, with the right checksum, that claims more coordinates than there could be.
    ManyCoordinates,
    /// The same with sections.
    ManySections,
    /// A right frame without values.
    WithoutValues,
    /// Nothing, and no reason for it later.
    Nothing,
    /// More bytes than any message may have.
    TooLong,
}

/// Long enough for the others to have entered a collective, or for this rank to be in the midst of it.
const A_MOMENT: Duration = Duration::from_millis(100);
/// On a link that delays every byte by three times this.
const INSIDE: Duration = Duration::from_millis(10);

pub struct Saboteur {
    group: Tcp,
    sabotage: Option<Sabotage>,
    step: Option<u64>,
    /// Collectives of this step so far.
    calls: usize,
}

pub fn freeze() {
    kill_process(getpid(), Signal::STOP).expect("a signal to this process");
}

fn act(deed: &Deed) {
    match deed {
        Deed::Die => kill_process(getpid(), Signal::KILL).expect("a signal to this process"),
        Deed::Freeze => freeze(),
        Deed::Send(_) | Deed::OtherPlan => {}
    }
}

impl Saboteur {
    pub fn new(group: Tcp, sabotage: Option<Sabotage>) -> Saboteur {
        Saboteur { group, sabotage, step: None, calls: 0 }
    }

    /// The deed, if this is the place for it.
    fn here(&self, moment: Moment) -> Option<&Deed> {
        let here = |s: &&Sabotage| (s.step, s.call, s.moment) == (self.step, self.calls, moment);
        self.sabotage.as_ref().filter(here).map(|sabotage| &sabotage.deed)
    }

    fn around<T>(&mut self, call: impl FnOnce(&mut Tcp, Option<Lie>) -> Result<T>) -> Result<T> {
        let mut lie = None;
        match self.here(Moment::Before) {
            Some(Deed::Send(what)) => lie = Some(*what),
            Some(deed) => {
                std::thread::sleep(A_MOMENT);
                act(deed);
            }
            None => {}
        }
        if let Some(deed) = self.here(Moment::Inside).cloned() {
            std::thread::spawn(move || {
                std::thread::sleep(INSIDE);
                act(&deed);
            });
        }
        let result = call(&mut self.group, lie);
        if let Some(deed) = self.here(Moment::After) {
            act(deed);
        }
        self.calls += 1;
        result
    }
}

impl Group for Saboteur {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn mark(&mut self, mut mark: Mark) {
        if self.step != Some(mark.step) {
            (self.step, self.calls) = (Some(mark.step), 0);
        }
        if self.here(Moment::Before) == Some(&Deed::OtherPlan) {
            mark.plan ^= 1;
        }
        self.group.mark(mark);
    }

    fn marked(&self) -> Mark {
        self.group.marked()
    }

    fn all_reduce(&mut self, values: Sum<'_>, how: Algorithm) -> Result<()> {
        self.around(|group, _| group.all_reduce(values, how))
    }

    fn all_gather(
        &mut self,
        mine: &[u8],
        limit: usize,
        how: Algorithm,
        gathered: &mut Gathered,
    ) -> Result<()> {
        self.around(|group, lie| match lie {
            None => group.all_gather(mine, limit, how, gathered),
            Some(lie) => group.all_gather(&lie.told(mine, limit), limit, how, gathered),
        })
    }

    fn broadcast(&mut self, root: usize, message: &mut Vec<u8>, limit: usize, how: Algorithm) -> Result<()> {
        self.around(|group, lie| {
            if let Some(lie) = lie {
                *message = lie.told(message, limit);
            }
            group.broadcast(root, message, limit, how)
        })
    }

    fn compressed_sum(&mut self, sum: &mut dyn CompressedSum, messages: &mut ShardMessages) -> Result<()> {
        self.around(|group, _| group.compressed_sum(sum, messages))
    }

    fn barrier(&mut self) -> Result<()> {
        self.around(|group, _| group.barrier())
    }

    fn traffic(&self) -> Traffic {
        self.group.traffic()
    }

    fn abandon(&mut self, reason: &str) {
        self.group.abandon(reason);
    }
}

impl Lie {
    /// What is sent instead of `truth`, which is a frame in some collectives.
    fn told(self, truth: &[u8], limit: usize) -> Vec<u8> {
        match self {
            Lie::Noise => {
                (0..truth.len() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
            }
            Lie::Half => truth[..truth.len() / 2].to_vec(),
            Lie::Nothing => vec![],
            Lie::TooLong => vec![7; limit + 1],
            Lie::WithoutValues => without_values(truth),
            Lie::ManyCoordinates => {
                // Behind the header: start 0, all elements, a list of f32, 2^32 - 1 of them in 2^32 - 1 bytes.
                let most = [0xff, 0xff, 0xff, 0xff, 0x0f];
                forged(truth, 1, &[&[0, 0xa0, 0x9c, 0x01, 1][..], &most, &most, &[0; 64]].concat())
            }
            Lie::ManySections => forged(truth, u32::MAX, &[0; 64]),
        }
    }
}

fn without_values(truth: &[u8]) -> Vec<u8> {
    let header = *Frame::parse(truth).expect("a frame").header();
    let mut frame = Vec::new();
    let mut writer = FrameWriter::new(&mut frame, header);
    let section = SectionInput {
        start: 0,
        universe: header.elements,
        width: 1,
        indices: Some(&[1, 2, 3]),
        values: &[],
        index: IndexChoice::Shortest,
        form: &ValueForm::Absent,
    };
    writer.section(&section).expect("a section");
    writer.finish().expect("a frame");
    frame
}

/// The header of a frame before other sections, with the right length and checksum (`docs/wire.md`).
fn forged(truth: &[u8], sections: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = [&truth[..33], &sections.to_le_bytes(), body].concat();
    let length = frame.len() as u64 + 4;
    frame[5..13].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(&frame).to_le_bytes();
    [frame, checksum.to_vec()].concat()
}
