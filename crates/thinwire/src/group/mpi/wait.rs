//! The wait for MPI, its deadline, and who is to blame when it passes.

use std::time::{Duration, Instant};

use super::Mpi;
use super::calls::{Called, Flight, Landing, Staging};
use super::notes::GaveUp;
use crate::Error;
use crate::group::envelope::Operation;

/// How often to look for notes.
const LISTEN: Duration = Duration::from_millis(3);

/// How long a collective may go on when a rank has given up: all ranks may well have what they need to find the
/// error themselves.
const GRACE: Duration = Duration::from_millis(30);

/// The least time for answers to a roll call.
const ROLL_CALL: Duration = Duration::from_millis(1500);

/// Why a collective could not go on.
#[derive(Debug)]
pub(super) enum Trouble {
    /// MPI failed, in its words.
    Broken(String),
    /// A rank gave up and said why.
    GaveUp(GaveUp),
    /// The deadline has passed.
    Late,
    /// A rank is somewhere else.
    Error(Error),
}

impl Mpi {
    /// Waits until MPI is done. MPI works only while it is asked, so this asks often at first, and then less,
    /// because there may be more ranks than cores.
    pub(super) fn complete(&mut self, flight: Called<Flight>, pace: Pace) -> Result<Staging, Trouble> {
        let mut flight = flight.map_err(Trouble::Broken)?;
        let begun = Instant::now();
        let mut listened = begun;
        loop {
            // On every way out but this one the flight is dropped, which leaks what MPI may still write to.
            flight = match flight.test().map_err(Trouble::Broken)? {
                Landing::Landed(staging) => return Ok(staging),
                Landing::Flying(flight) => flight,
            };
            let now = Instant::now();
            if now - listened >= LISTEN {
                listened = now;
                self.notes.listen().map_err(Trouble::Broken)?;
            }
            if let Some(gave_up) = &self.notes.gave_up
                && now.saturating_duration_since(gave_up.heard) >= GRACE
            {
                return Err(Trouble::GaveUp(gave_up.clone()));
            }
            if now - begun >= self.deadline {
                return Err(Trouble::Late);
            }
            pace.pause(now - begun);
        }
    }

    /// Whose fault it was, and the error for it.
    pub(super) fn explain(&mut self, trouble: Trouble, operation: Operation) -> (usize, Error) {
        let (step, during, seconds) = (self.mark.step, operation.name(), self.deadline.as_secs_f64());
        let broken = match trouble {
            Trouble::Error(error) => {
                let culprit =
                    if let Error::Disagreement { rank, .. } = error { rank } else { self.data.rank };
                return (culprit, error);
            }
            Trouble::GaveUp(gave_up) => return gave_up_error(gave_up, step),
            Trouble::Broken(reason) => Some(reason),
            Trouble::Late => None,
        };
        let missing = self.notes.roll_call((self.deadline / 4).max(ROLL_CALL));
        if let Some(gave_up) = self.notes.gave_up.take() {
            return gave_up_error(gave_up, step);
        }
        match (missing, broken) {
            (Ok(Some(rank)), None) => (rank, Error::PeerSilent { rank, step, during, seconds }),
            (Ok(Some(rank)), Some(reason)) => (rank, Error::PeerLost { rank, step, during, reason }),
            (Ok(None), None) => {
                let reason = format!(
                    "step {step}: all ranks are there, but {during} has not gone on for {seconds} s: the \
                     network is cut or too slow"
                );
                (self.data.rank, Error::GroupLost { reason })
            }
            (_, Some(reason)) | (Err(reason), None) => {
                let reason = format!("step {step}: MPI failed during {during}: {reason}");
                (self.data.rank, Error::GroupLost { reason })
            }
        }
    }

    /// Tells everybody whose fault it was. MPI is left as it is from here on: to end it would be to wait for
    /// ranks that never come.
    pub(super) fn give_up(&mut self, culprit: usize, error: Error) {
        let reason = match &error {
            Error::GroupLost { reason } => reason.clone(),
            // Passed on as the one who noticed it said it, not wrapped once more by everybody.
            Error::PeerGaveUp { reason, .. } => reason.clone(),
            error => error.to_string(),
        };
        self.notes.say_gave_up(culprit, reason);
        self.lost = Some(error);
        self.keeper = None;
    }
}

fn gave_up_error(gave_up: GaveUp, step: u64) -> (usize, Error) {
    let GaveUp { rank, culprit, reason, .. } = gave_up;
    (culprit, Error::PeerGaveUp { rank, culprit, step, reason })
}

/// What a wait is for, which says how often MPI is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    /// For ranks to come, which may compute for long yet.
    Meeting,
    /// For bytes to move between ranks that are all here. MPI sends long vectors in many small parts, and each
    /// of them has to be asked for.
    Moving,
}

impl Pace {
    /// Lets others run: longer, the longer the wait has been.
    fn pause(self, waited: Duration) {
        let (busy, longest) = match self {
            Pace::Meeting => (Duration::from_micros(200), Duration::from_micros(200)),
            Pace::Moving => (Duration::from_millis(20), Duration::from_micros(20)),
        };
        if waited < busy {
            std::thread::yield_now();
        } else {
            std::thread::sleep((waited / 16).min(longest));
        }
    }
}
