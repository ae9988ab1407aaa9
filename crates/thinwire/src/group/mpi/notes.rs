//! What the ranks tell each other beside the collectives, over a communicator of its own.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use super::calls::{Called, Communicator, Flight, Landing, Waiting};
use crate::group::wire::Note;

/// "Who is there?", asked by a rank whose deadline has passed.
const ASK: c_int = 1;
/// "I am", from a rank that waits too.
const HERE: c_int = 2;
/// "I have given the group up", with a [`Note`].
const GAVE_UP: c_int = 3;

/// Longer messages are none of ours.
const MOST: usize = 2048;

/// For the last bytes of a message whose first have come.
const BRIEFLY: Duration = Duration::from_millis(200);

/// A rank that has given up.
#[derive(Debug, Clone)]
pub(super) struct GaveUp {
    pub rank: usize,
    pub culprit: usize,
    pub reason: String,
    pub heard: Instant,
}

/// This rank's end of it.
#[derive(Debug)]
pub(super) struct Notes {
    all: Communicator,
    sending: Vec<Flight>,
    /// Who has asked or answered. A rank only asks when it is about to give up, and only then is it answered: so
    /// this never speaks of an earlier collective.
    present: Vec<bool>,
    /// The first that has given up.
    pub gave_up: Option<GaveUp>,
}

impl Notes {
    pub fn over(all: Communicator) -> Notes {
        let present = (0..all.size).map(|rank| rank == all.rank).collect();
        Notes { all, sending: Vec::new(), present, gave_up: None }
    }

    /// Reads what has come, and answers those who ask.
    pub fn listen(&mut self) -> Called<()> {
        while let Some(waiting) = self.all.probe()? {
            let Waiting { source, tag, bytes } = waiting;
            if bytes > MOST || source >= self.all.size {
                return Err(format!(
                    "a note of {bytes} bytes from rank {source}; at most {MOST} are allowed"
                ));
            }
            let message = self.receive(waiting)?;
            match tag {
                ASK => {
                    self.present[source] = true;
                    self.tell(source, HERE, &[]);
                }
                HERE => self.present[source] = true,
                GAVE_UP => {
                    let (culprit, reason) = match Note::parse(&message) {
                        Ok(Some((Note::GaveUp { culprit, reason }, _))) => (culprit as usize, reason),
                        _ => (source, "its words can't be read".to_owned()),
                    };
                    let heard = Instant::now();
                    self.gave_up.get_or_insert(GaveUp { rank: source, culprit, reason, heard });
                }
                other => return Err(format!("a note of kind {other} from rank {source}")),
            }
        }
        self.push();
        Ok(())
    }

    /// The first rank that does not answer within `patience`. Ends early when all have answered, and when one
    /// says that it has given up, for it has found the culprit already.
    pub fn roll_call(&mut self, patience: Duration) -> Called<Option<usize>> {
        let begun = Instant::now();
        self.tell_all(ASK, &[]);
        loop {
            self.listen()?;
            let missing = self.present.iter().position(|present| !present);
            if missing.is_none() || self.gave_up.is_some() || begun.elapsed() >= patience {
                return Ok(missing);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Tells all others that this rank gives up; those that can be told at all are told when this returns.
    pub fn say_gave_up(&mut self, culprit: usize, reason: String) {
        let begun = Instant::now();
        self.tell_all(GAVE_UP, &Note::GaveUp { culprit: culprit as u32, reason }.to_bytes());
        while !self.sending.is_empty() && begun.elapsed() < BRIEFLY {
            self.push();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn tell_all(&mut self, tag: c_int, message: &[u8]) {
        let (mine, size) = (self.all.rank, self.all.size);
        for rank in (0..size).filter(|&rank| rank != mine) {
            self.tell(rank, tag, message);
        }
    }

    /// A rank that can't be told will be missed by other means.
    fn tell(&mut self, rank: usize, tag: c_int, message: &[u8]) {
        self.sending.extend(self.all.send(rank, tag, message));
    }

    fn push(&mut self) {
        let on_their_way = |flight: Flight| match flight.test() {
            Ok(Landing::Flying(flight)) => Some(flight),
            Ok(Landing::Landed(_)) | Err(_) => None,
        };
        self.sending = std::mem::take(&mut self.sending).into_iter().filter_map(on_their_way).collect();
    }

    fn receive(&mut self, waiting: Waiting) -> Called<Vec<u8>> {
        let begun = Instant::now();
        let mut flight = self.all.receive(waiting)?;
        loop {
            flight = match flight.test()? {
                Landing::Landed(mut staging) => return Ok(staging.incoming.room(waiting.bytes).to_vec()),
                Landing::Flying(flight) => flight,
            };
            if begun.elapsed() >= BRIEFLY {
                return Err(format!("a note from rank {} is announced but does not come", waiting.source));
            }
            std::thread::yield_now();
        }
    }
}
