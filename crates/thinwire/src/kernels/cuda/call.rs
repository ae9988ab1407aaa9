//! Calls into the driver, counted: whoever looks on can tell that one does not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{result as driver, sys};

/// How many calls were begun and are over, and among them waits of the host for the stream.
#[derive(Debug, Default)]
pub(super) struct Calls {
    begun: AtomicU64,
    over: AtomicU64,
    waits_begun: AtomicU64,
    /// The last of those that are over.
    waits_over: AtomicU64,
}

impl Calls {
    /// How many are over.
    pub fn over(&self) -> u64 {
        self.over.load(Ordering::SeqCst)
    }

    /// Whether one is under way.
    pub fn under_way(&self) -> bool {
        self.over() < self.begun.load(Ordering::SeqCst)
    }

    /// Whether the host waits for the stream.
    pub fn waiting(&self) -> bool {
        self.waits_over.load(Ordering::SeqCst) < self.waits_begun.load(Ordering::SeqCst)
    }

    /// Begins a wait, and gives its number.
    pub fn begin_wait(&self) -> u64 {
        self.waits_begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn end_wait(&self, number: u64) {
        self.waits_over.fetch_max(number, Ordering::SeqCst);
    }

    /// The number of the wait that comes next.
    pub fn next_wait(&self) -> u64 {
        self.waits_begun.load(Ordering::SeqCst) + 1
    }

    /// Whether a wait of this number or a later one is over.
    pub fn is_over(&self, number: u64) -> bool {
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
        calls.begun.fetch_add(1, Ordering::SeqCst);
        Current { before, calls: calls.clone() }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: it was current a moment ago, on this thread.
            let _ = unsafe { driver::ctx::set_current(before) };
        }
        self.calls.over.fetch_add(1, Ordering::SeqCst);
    }
}
