//! The called side of an introduction, one step at a time: greeting, claim, handshake, hello.
//!
//! It never waits. [`Introduction::advance`] goes as far as the bytes that are here allow, so that one thread listens
//! to many callers, and one that says nothing, or dribbles, costs no more than its place.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::hello::{Claim, GREETING, HELLO, Hello, OPENING, Stranger, check_greeting};
use super::line::{Failure, Line};
use super::secure::{Handshake, Identity, LONGEST_HANDSHAKE};

/// What callers are measured by.
pub(super) struct Desk {
    pub rank: usize,
    pub size: usize,
    pub identity: Option<Arc<Identity>>,
    /// The number of the group's name.
    pub name: u64,
}

/// What came of a step.
pub(super) enum Progress {
    /// More has to come.
    Waiting,
    /// A rank that may call.
    Introduced(u32, Hello),
    /// One that may not, and whether to tell it why: a caller that speaks the protocol, and with a secret only one
    /// that knows it, which the line sees to.
    Refused(String, bool),
}

/// What is expected next.
enum Stage {
    Greeting,
    Claim,
    /// The first message of the handshake, or the third.
    First(Claim, Box<Handshake>),
    Third(Claim, Box<Handshake>),
    Hello(Claim),
}

/// A caller that is introducing itself.
pub(super) struct Introduction {
    line: Line,
    stage: Stage,
    progress: u8,
}

impl AsFd for Introduction {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Introduction {
    pub fn new(stream: TcpStream, desk: &Desk) -> std::io::Result<Introduction> {
        let line = Line::new(stream, desk.identity.is_some())?;
        Ok(Introduction { line, stage: Stage::Greeting, progress: 0 })
    }

    pub fn into_line(self) -> Line {
        self.line
    }

    /// How far it has come; 0 without a valid greeting.
    pub fn progress(&self) -> u8 {
        self.progress
    }

    /// Goes on with what has come.
    pub fn advance(&mut self, desk: &Desk) -> Progress {
        loop {
            match self.step(desk) {
                Ok(Some(Step::Next(stage))) => {
                    self.stage = stage;
                    self.progress += 1;
                }
                Ok(Some(Step::Done(rank, hello))) => return Progress::Introduced(rank, hello),
                Ok(None) => return Progress::Waiting,
                Err((reason, tell)) => return Progress::Refused(reason, tell),
            }
        }
    }

    fn step(&mut self, desk: &Desk) -> Result<Option<Step>, (String, bool)> {
        let line = &mut self.line;
        let silently = |reason: String| (reason, false);
        let broken = |failure: Failure| (failure.to_string(), false);
        // The handshake is put back where it was when its message is not whole yet.
        let stage = match std::mem::replace(&mut self.stage, Stage::Greeting) {
            Stage::Greeting => {
                let Some(bytes) = line.first_bytes(GREETING).map_err(broken)? else { return Ok(None) };
                check_greeting(bytes, desk.identity.is_some()).map_err(|stranger| match stranger {
                    Stranger::Unknown(reason) => (reason, false),
                    Stranger::Refused(reason) => (reason, true),
                })?;
                Stage::Claim
            }
            Stage::Claim => {
                let bytes = line.first_bytes(OPENING).map_err(broken)?;
                let Some(opening) = bytes.and_then(|bytes| <&[u8; OPENING]>::try_from(bytes).ok()) else {
                    self.stage = Stage::Claim;
                    return Ok(None);
                };
                let (opening, claim) = (*opening, Claim::parse(opening));
                line.take_first_bytes();
                if claim.called as usize != desk.rank {
                    let Claim { caller, called } = claim;
                    return Err((
                        format!("rank {caller} called rank {called}, this is rank {}", desk.rank),
                        true,
                    ));
                }
                match &desk.identity {
                    None => Stage::Hello(claim),
                    Some(identity) => {
                        Stage::First(claim, Box::new(identity.handshake(false, &opening).map_err(silently)?))
                    }
                }
            }
            Stage::First(claim, mut handshake) => {
                let Some(message) = line.try_receive(LONGEST_HANDSHAKE).map_err(broken)? else {
                    self.stage = Stage::First(claim, handshake);
                    return Ok(None);
                };
                handshake.read(&message).map_err(|_| {
                    silently(format!(
                        "it calls itself rank {}, but its handshake is not for rank {} of this group \
                         (another THINWIRE_GROUP, or a call that was forwarded)",
                        claim.caller, desk.rank
                    ))
                })?;
                line.send_now(&handshake.write().map_err(silently)?).map_err(broken)?;
                Stage::Third(claim, handshake)
            }
            Stage::Third(claim, mut handshake) => {
                let message = line.try_receive(LONGEST_HANDSHAKE).map_err(|failure| {
                    silently(format!(
                        "{failure}, in the handshake of rank {} (THINWIRE_SECRET)",
                        claim.caller
                    ))
                })?;
                let Some(message) = message else {
                    self.stage = Stage::Third(claim, handshake);
                    return Ok(None);
                };
                handshake.read(&message).map_err(|_| {
                    silently(format!(
                        "it calls itself rank {}, but its secret is not that of this group (THINWIRE_SECRET)",
                        claim.caller
                    ))
                })?;
                line.encrypt(handshake.finish().map_err(silently)?);
                Stage::Hello(claim)
            }
            Stage::Hello(claim) => {
                let Some(message) = line.try_receive(HELLO).map_err(broken)? else {
                    self.stage = Stage::Hello(claim);
                    return Ok(None);
                };
                let hello = Hello::parse(&message).map_err(silently)?;
                hello
                    .check(claim.caller, desk.rank, desk.size, desk.name)
                    .map_err(|reason| (reason, true))?;
                return Ok(Some(Step::Done(claim.caller, hello)));
            }
        };
        Ok(Some(Step::Next(stage)))
    }
}

enum Step {
    Next(Stage),
    Done(u32, Hello),
}
