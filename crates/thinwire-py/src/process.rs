//! The process that made an object.
//!
//! `fork()` copies memory and sockets, but only the thread that calls it. What has threads of its own therefore neither
//! works nor can be dropped in the child: joining a thread that is not there never ends.

/// A process, by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The one that asks.
    pub fn current() -> Process {
        Process(std::process::id())
    }

    /// Whether this code runs in another process, forked from that one.
    pub fn is_forked(self) -> bool {
        self != Process::current()
    }
}
