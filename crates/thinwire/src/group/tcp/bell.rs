//! Wakes a thread that waits for sockets.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Rung by one thread, polled by another.
#[derive(Debug)]
pub(super) struct Bell {
    event: OwnedFd,
}

impl Bell {
    pub fn new() -> Result<Bell> {
        Ok(Bell { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    pub fn ring(&self) {
        // It fails only when it has been rung 2^64 times and nobody looked: then it rings already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Makes it still again.
    pub fn quiet(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
