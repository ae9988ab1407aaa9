//! Starts MPI and ends it.
//!
//! MPI wants to be ended by the thread that started it, but a group may be dropped by another: a thread of its
//! own, the keeper, does both. It also lets the start have a deadline, which MPI's own does not have.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ::mpi::Threading;

use super::adder::Adder;
use super::calls::Communicator;
use crate::group::Precision;
use crate::{Error, Result};

/// What the group calls MPI with.
#[derive(Debug)]
pub(super) struct Handles {
    /// For the collectives.
    pub data: Communicator,
    /// For what ranks tell each other beside them.
    pub notes: Communicator,
    /// For each precision, in the order of [`Precision`].
    pub adders: [Adder; 3],
}

/// The other end of the thread that keeps MPI. When it is dropped MPI is not ended, on purpose: after a failure
/// that would wait for ranks that never come.
#[derive(Debug)]
pub(super) struct Keeper {
    end: Sender<()>,
    ended: Receiver<()>,
}

impl Keeper {
    /// Starts MPI; every rank does so at the same time.
    pub fn start(deadline: Duration) -> Result<(Keeper, Handles)> {
        let failed = |reason: String| Error::Rendezvous { rank: rank_in_environment(), reason };
        let (started, start) = channel();
        let (end, order) = channel();
        let (report, ended) = channel();
        let keep = move || {
            // The group is used by one thread at a time, but not always the same one.
            let Some((universe, level)) = ::mpi::initialize_with_threading(Threading::Serialized) else {
                let _ =
                    started.send(Err("MPI was started in this process before; it can be once".to_owned()));
                return;
            };
            let handles = if level < Threading::Serialized {
                Err(format!("this MPI offers the thread level {level:?}; Serialized is needed"))
            } else {
                handles()
            };
            // Kept from ending MPI unless the group says so.
            let universe = std::mem::ManuallyDrop::new(universe);
            if started.send(handles).is_ok() && order.recv().is_ok() {
                drop(std::mem::ManuallyDrop::into_inner(universe));
                let _ = report.send(());
            }
        };
        let spawned = std::thread::Builder::new().name("thinwire-mpi".into()).spawn(keep);
        spawned.map_err(|error| failed(format!("can't start a thread: {error}")))?;
        let handles = start.recv_timeout(deadline).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                failed(format!("the ranks did not all start MPI within {deadline:?}"))
            }
            RecvTimeoutError::Disconnected => failed("MPI did not start".into()),
        })?;
        Ok((Keeper { end, ended }, handles.map_err(failed)?))
    }

    /// Ends MPI, when all ranks do. What MPI still holds, communicators and operators, it frees itself.
    pub fn finish(self, deadline: Duration) {
        if self.end.send(()).is_ok() && self.ended.recv_timeout(deadline).is_err() {
            tracing::warn!("MPI has not ended within {deadline:?}; it is left as it is");
        }
    }
}

fn handles() -> Result<Handles, String> {
    Ok(Handles {
        data: Communicator::of_all()?,
        notes: Communicator::of_all()?,
        adders: [Adder::new(Precision::F32)?, Adder::new(Precision::F16)?, Adder::new(Precision::Bf16)?],
    })
}

/// This rank as the common launchers tell it, for errors before MPI can be asked.
fn rank_in_environment() -> usize {
    let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).unwrap_or(0)
}
