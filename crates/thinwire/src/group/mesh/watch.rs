//! The deadline, and who is to blame when it passes.
//!
//! A rank in a ring waits for its neighbour, which waits for its own, and so on to the one that is missing. To
//! name that one, every rank tells all others whom it waits for once half of the deadline is over, or as soon as it
//! hears that others wait for it. At the end a rank follows these words from the one it waits for to the first that
//! has said nothing. They also tell in which collective a rank waits: ranks that are at odds about it may wait for
//! each other without ever reading a message that would show it.
//!
//! All ranks may have slept, with the machine they run on: then the deadline is over before anybody has told
//! anything. So the end comes no sooner than half of a deadline after a rank has told.

use std::time::{Duration, Instant};

use super::{Mesh, tell_all};
use crate::Error;
use crate::group::Group;
use crate::group::envelope::{ENVELOPE_BYTES, Envelope, Operation};
use crate::group::wire::{Fault, Interest, Note, Wire};

/// How long to listen for the reason after a stream broke: its sender tells before it closes.
const GRACE: Duration = Duration::from_millis(300);

/// Notes of each rank that are read before the clock is looked at again.
const NOTES_AT_ONCE: usize = 8;

/// Why a collective could not go on.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A stream broke.
    Fault(Fault),
    /// A rank gave up and said why.
    GaveUp { rank: usize, culprit: usize, reason: String },
    /// This rank was waited for and said nothing.
    Silent(usize),
    /// A rank said something it should not have.
    Error(Error),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Trouble {
        Trouble::Fault(fault)
    }
}

/// Watches over one collective.
#[derive(Debug)]
pub(super) struct Watch {
    deadline: Duration,
    /// When something last moved.
    moved: Instant,
    /// When it told whom it waits for.
    told: Option<Instant>,
    /// Whether it has told because others wait for it.
    answered: bool,
    /// The collective this rank is in, and the one before: another rank may still be there.
    at: Option<Envelope>,
    before: Option<Envelope>,
    /// Whom each rank has said to be waiting for.
    waiting: Vec<Option<Vec<u32>>>,
}

impl Watch {
    pub fn begin(deadline: Duration, at: Option<Envelope>, before: Option<Envelope>) -> Watch {
        // The list is made when somebody speaks: in most collectives nobody does.
        Watch {
            deadline,
            moved: Instant::now(),
            told: None,
            answered: false,
            at,
            before,
            waiting: Vec::new(),
        }
    }

    pub fn progress(&mut self) {
        self.moved = Instant::now();
        (self.told, self.answered) = (None, false);
    }

    /// When to look again.
    pub fn until(&self) -> Instant {
        match self.told {
            None => self.moved + self.deadline / 2,
            Some(told) => (self.moved + self.deadline).max(told + self.deadline / 2),
        }
    }

    /// Reads the notes that have come, but not for ever: one that never stops talking must not outlast the
    /// deadline.
    pub fn listen(&mut self, wire: &mut impl Wire, interest: &Interest) -> Result<(), Trouble> {
        let mut asked = false;
        for _ in 0..NOTES_AT_ONCE * wire.size() {
            let Some((rank, note)) = wire.hear() else { break };
            match note {
                Note::Waiting { at, on } => {
                    let mine = [self.at, self.before].into_iter().flatten();
                    if let Some(error) = mine.into_iter().find_map(|mine| mine.contradiction(&at, rank)) {
                        return Err(Trouble::Error(error));
                    }
                    asked |= on.contains(&(wire.rank() as u32));
                    self.waiting.resize(wire.size(), None);
                    self.waiting[rank] = Some(on);
                }
                Note::GaveUp { culprit, reason } => {
                    return Err(Trouble::GaveUp { rank, culprit: culprit as usize, reason });
                }
            }
        }
        // One that came late and waits itself is not the one that is missing.
        if asked && !self.answered && !(interest.read.is_empty() && interest.write.is_empty()) {
            self.answered = true;
            self.tell(wire, interest);
        }
        Ok(())
    }

    fn tell(&self, wire: &mut impl Wire, interest: &Interest) {
        let on = interest.read.iter().chain(&interest.write).map(|&rank| rank as u32).collect();
        let at = self.at.map_or([0; ENVELOPE_BYTES], Envelope::to_bytes);
        tell_all(wire, &Note::Waiting { at, on });
    }

    /// Tells the others when half of the deadline is over, and ends the wait when all of it is.
    pub fn check(&mut self, wire: &mut impl Wire, interest: &Interest, now: Instant) -> Result<(), Trouble> {
        if now < self.until() {
            return Ok(());
        }
        if self.told.is_none() {
            self.tell(wire, interest);
            self.told = Some(Instant::now());
            return Ok(());
        }
        self.listen(wire, interest)?;
        Err(Trouble::Silent(self.missing(wire.rank(), wire.size(), interest)))
    }

    /// The first rank, from those waited for on, that has not said whom it waits for.
    fn missing(&self, rank: usize, size: usize, interest: &Interest) -> usize {
        let first = interest.read.iter().chain(&interest.write).copied();
        let mut queue: Vec<usize> = first.filter(|&peer| peer < size).collect();
        let mut seen = vec![false; size];
        seen[rank] = true;
        let mut at = 0;
        while let Some(&peer) = queue.get(at) {
            at += 1;
            if std::mem::replace(&mut seen[peer], true) {
                continue;
            }
            match self.waiting.get(peer).and_then(Option::as_ref) {
                None => return peer,
                Some(on) => queue.extend(on.iter().map(|&rank| rank as usize).filter(|&rank| rank < size)),
            }
        }
        // They all wait for each other: a link is cut between two that live.
        queue.first().copied().unwrap_or(rank)
    }
}

impl<W: Wire> Mesh<W> {
    /// Whose fault it was, and the error for it.
    pub(super) fn explain(&mut self, trouble: Trouble, operation: Operation) -> (usize, Error) {
        let (step, during) = (self.mark.step, operation.name());
        match trouble {
            Trouble::Fault(fault) => {
                let heard = self.reason_of(fault.peer);
                match heard {
                    Some(Trouble::GaveUp { rank, culprit, reason }) => {
                        (culprit, Error::PeerGaveUp { rank, culprit, step, reason })
                    }
                    _ => {
                        (fault.peer, Error::PeerLost { rank: fault.peer, step, during, reason: fault.reason })
                    }
                }
            }
            Trouble::GaveUp { rank, culprit, reason } => {
                (culprit, Error::PeerGaveUp { rank, culprit, step, reason })
            }
            Trouble::Silent(rank) => {
                let seconds = self.deadline.as_secs_f64();
                (rank, Error::PeerSilent { rank, step, during, seconds })
            }
            Trouble::Error(error) => {
                let culprit = if let Error::Disagreement { rank, .. } = error { rank } else { self.rank() };
                (culprit, error)
            }
        }
    }

    /// What the rank at the other end of a broken stream had to say.
    fn reason_of(&mut self, peer: usize) -> Option<Trouble> {
        let nobody = Interest::default();
        let until = Instant::now() + GRACE;
        let mut watch = Watch::begin(self.deadline, None, None);
        loop {
            if let Err(trouble) = watch.listen(&mut self.wire, &nobody) {
                return Some(trouble);
            }
            if !self.wire.hears(peer) || Instant::now() >= until {
                return None;
            }
            self.wire.wait(&nobody, until).ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Local;

    #[test]
    fn one_that_has_slept_tells_first_and_then_waits_for_answers() {
        let deadline = Duration::from_secs(60);
        let ago = |time: Duration| Instant::now().checked_sub(time).unwrap();
        let mut ranks = Local::connect_within(2, deadline);
        let (on, wire) = (Interest { read: vec![1], write: vec![] }, &mut ranks[0].wire);
        let mut watch = Watch { moved: ago(3 * deadline), ..Watch::begin(deadline, None, None) };
        assert!(watch.check(wire, &on, Instant::now()).is_ok() && watch.told.is_some());
        assert!(watch.check(wire, &on, Instant::now()).is_ok());
        watch.told = Some(ago(deadline / 2));
        assert!(matches!(watch.check(wire, &on, Instant::now()), Err(Trouble::Silent(1))));
        // One that told in time ends at the deadline, and no sooner.
        watch.moved = ago(deadline * 9 / 10);
        assert_eq!(watch.until(), watch.moved + deadline);
    }

    #[test]
    fn the_one_that_has_said_nothing_is_missing() {
        let waiting = |said: &[Option<&[u32]>]| Watch {
            waiting: said.iter().map(|said| said.map(<[u32]>::to_vec)).collect(),
            ..Watch::begin(Duration::from_secs(1), None, None)
        };
        let on = |peer| Interest { read: vec![peer], write: vec![] };
        assert_eq!(waiting(&[]).missing(0, 4, &on(3)), 3);
        assert_eq!(waiting(&[None, None, None, Some(&[2])]).missing(0, 4, &on(3)), 2);
        assert_eq!(waiting(&[None, None, Some(&[1]), Some(&[2])]).missing(0, 4, &on(3)), 1);
        // A circle, and words that name nobody.
        assert_eq!(waiting(&[None, Some(&[0]), Some(&[1]), Some(&[2])]).missing(0, 4, &on(3)), 3);
        assert_eq!(waiting(&[None, None, None, Some(&[77])]).missing(0, 4, &on(3)), 3);
    }
}
