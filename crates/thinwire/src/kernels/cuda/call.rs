//! Calls into the driver, or into something else that may be kept by others, counted: whoever looks on can tell that one
//! does not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{result as driver, sys};

/// How many calls were begun and are over, and among them waits of the host for the stream.
#[derive(Debug, Default)]
pub struct Calls {
    begun: AtomicU64,
    over: AtomicU64,
    waits_begun: AtomicU64,
    /// The last of those that are over.
    waits_over: AtomicU64,
}

/// What can be seen of calls at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    pub over: u64,
    pub under_way: bool,
    /// Whether the host waits for the stream.
    pub waiting: bool,
}

impl Calls {
    /// Begins a call.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a call.
    pub fn end(&self) {
        self.over.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn seen(&self) -> Seen {
        let over = self.over.load(Ordering::SeqCst);
        let waits_over = self.waits_over.load(Ordering::SeqCst);
        Seen {
            over,
            under_way: over < self.begun.load(Ordering::SeqCst),
            waiting: waits_over < self.waits_begun.load(Ordering::SeqCst),
        }
    }

    /// Begins a wait, and gives its number.
    pub(super) fn begin_wait(&self) -> u64 {
        self.waits_begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn end_wait(&self, number: u64) {
        self.waits_over.fetch_max(number, Ordering::SeqCst);
    }

    /// The number of the wait that comes next.
    pub(super) fn next_wait(&self) -> u64 {
        self.waits_begun.load(Ordering::SeqCst) + 1
    }

    /// Whether a wait of this number or a later one is over.
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.waits_over.load(Ordering::SeqCst) >= number
    }
}

/// A call, or several in a row: while it lasts, the context of the device is current.
#[must_use]
pub(super) struct Current {
    /// The context that was current before, and will be again.
    before: Option<sys::CUcontext>,
    calls: Arc<Calls>,
}

impl Current {
    pub fn new(before: Option<sys::CUcontext>, calls: &Arc<Calls>) -> Current {
        calls.begin();
        Current { before, calls: calls.clone() }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: it was current a moment ago, on this thread.
            let _ = unsafe { driver::ctx::set_current(before) };
        }
        self.calls.end();
    }
}
