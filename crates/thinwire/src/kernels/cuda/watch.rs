//! Finds out that the GPU and the host wait for each other.
//!
//! Some calls keep the driver to themselves until the GPU has done them: copies from or to memory that is not pinned,
//! launches into a queue that is full (of about a thousand), and the loading of a kernel on its first use (seen with
//! driver 580). If a stream that was left to wait for this engine stands before such a call, the engine can't get into
//! the driver to do what the stream waits for, and nobody would ever go on. The same where such a call keeps an interpreter
//! that the engine needs. What can be done is to let the stream go, and to say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::ahead::Counter;
use super::call::{Calls, Seen};
use super::device::Device;
use crate::{Error, Result};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// In the upper half of the word that says whether a stream waits: there may be a zero in the lower half.
const HELD: u64 = 1 << 32;

/// How often calls may be found unchanged while a stream waits. Looks are counted and not seconds: a process that was
/// stopped for a while has not been looked at.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// One that puts something into a queue.
    call: u32,
    /// One that waits for the GPU, which may be busy.
    wait: u32,
}

/// Calls into the driver: ten seconds, and two minutes.
const DRIVER: Patience = Patience { call: 100, wait: 1200 };
/// Calls into an interpreter that others may use for long.
const INTERPRETER: Patience = Patience { call: 1200, wait: 1200 };

/// Calls that are looked at again and again.
#[derive(Debug)]
struct Looked {
    calls: Arc<Calls>,
    patience: Patience,
    last: Seen,
    /// Looks since something has changed.
    unchanged: u32,
}

impl Looked {
    fn new(calls: Arc<Calls>, patience: Patience) -> Looked {
        Looked { calls, patience, last: Seen::default(), unchanged: 0 }
    }

    /// Looks once more; whether a call is not going to come back, while a stream `waits`.
    fn is_stuck(&mut self, waits: bool) -> bool {
        let seen = self.calls.seen();
        let same = waits && seen.under_way && seen == self.last;
        self.unchanged = if same { self.unchanged + 1 } else { 0 };
        self.last = seen;
        self.unchanged > if seen.waiting { self.patience.wait } else { self.patience.call }
    }
}

/// A thread that looks on, and lets all streams go that wait by a [`Counter`] when they can't do anything else any more.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What a stream waits for, and [`HELD`]; 0 as long as none has waited.
    held: AtomicU64,
    let_go: AtomicBool,
    ended: AtomicBool,
}

impl Watch {
    /// Looks on the calls of a device, and on those into an `interpreter` that steps need, for the sake of streams that
    /// wait for the counter.
    pub fn new(device: &Device, interpreter: Arc<Calls>, counter: &Arc<Counter>) -> Result<Watch> {
        let (reached, released) = (counter.clone(), counter.clone());
        let calls = vec![Looked::new(device.calls().clone(), DRIVER), Looked::new(interpreter, INTERPRETER)];
        Watch::over(calls, move |number| reached.has_reached(number), move || released.release())
    }

    fn over(
        mut calls: Vec<Looked>,
        reached: impl Fn(u32) -> bool + Send + 'static,
        release: impl Fn() + Send + 'static,
    ) -> Result<Watch> {
        let shared = Arc::new(Shared::default());
        let here = shared.clone();
        let look = move || {
            while !here.ended.load(Ordering::SeqCst) {
                std::thread::park_timeout(PAUSE);
                let held = here.held.load(Ordering::SeqCst);
                let waits = held >= HELD && !reached(held as u32);
                // Each of them is looked at.
                let stuck =
                    calls.iter_mut().map(|calls| calls.is_stuck(waits)).filter(|&stuck| stuck).count();
                if stuck > 0 {
                    here.let_go.store(true, Ordering::SeqCst);
                    release();
                    return;
                }
            }
        };
        let started = Builder::new().name("thinwire-watch".into()).spawn(look);
        let thread = started.map_err(|error| Error::Device {
            action: "let the GPU wait for the means (run_ahead)".into(),
            reason: format!("the system gives no thread to look after it: {error}"),
        })?;
        Ok(Watch { shared, thread: Some(thread) })
    }

    /// From now on a stream waits until the counter has reached this number.
    pub fn holds(&self, number: u32) {
        self.shared.held.store(HELD | number as u64, Ordering::SeqCst);
    }

    /// Nothing is to be looked at any longer.
    pub fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }

    /// The error to give if streams were let go before their time.
    pub fn fault(&self) -> Option<Error> {
        self.shared.let_go.load(Ordering::SeqCst).then(|| Error::Device {
            action: "let the GPU wait for the means (run_ahead)".into(),
            reason: "another thread was in a call that keeps NVIDIA's driver to itself until the GPU has done it, and \
                     the GPU waited for a step that needs the driver; such are copies from or to memory that is not \
                     pinned (.cpu(), .tolist(), .to(\"cuda\") of a large tensor), the first use of a kernel, launches \
                     into a full queue, and torch.cuda.empty_cache(). The GPU was let go, so the weights of this rank \
                     are worth nothing now. Call wait() of the synchronizer before such a call, or leave run_ahead out"
                .into(),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It can't panic: it only looks.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::Current;
    use super::*;

    const LITTLE: Patience = Patience { call: 3, wait: 9 };

    /// Calls, and whether they are found stuck in one of so many looks.
    fn looked() -> (Arc<Calls>, impl FnMut(bool, usize) -> bool) {
        let calls = Arc::new(Calls::default());
        let mut looked = Looked::new(calls.clone(), LITTLE);
        let look = move |waits, looks| (0..looks).any(|_| looked.is_stuck(waits));
        (calls, look)
    }

    #[test]
    fn a_call_that_does_not_come_back_is_stuck_if_a_stream_waits() {
        let (calls, mut stuck) = looked();
        let _call = Current::new(None, &calls);
        assert!(!stuck(false, 100), "nobody waits");
        assert!(!stuck(true, 3));
        assert!(stuck(true, 1));
    }

    #[test]
    fn calls_that_come_back_are_not() {
        let (calls, mut stuck) = looked();
        for _ in 0..20 {
            let _call = Current::new(None, &calls);
            assert!(!stuck(true, 3));
        }
        // Nothing is asked of the driver: the network has the word.
        assert!(!stuck(true, 100));
    }

    #[test]
    fn a_wait_for_the_gpu_may_take_longer_and_its_end_counts() {
        let (calls, mut stuck) = looked();
        let (_call, wait) = (Current::new(None, &calls), calls.begin_wait());
        assert!(!stuck(true, 9));
        calls.end_wait(wait);
        assert!(!stuck(true, 4));
        assert!(stuck(true, 1));
    }

    #[test]
    fn streams_are_let_go_and_somebody_is_told() {
        let (calls, number) = (Arc::new(Calls::default()), Arc::new(AtomicU64::new(0)));
        let (reached, released) = (number.clone(), number.clone());
        let watch = Watch::over(
            vec![Looked::new(calls.clone(), LITTLE)],
            move |wanted| reached.load(Ordering::SeqCst) >= wanted as u64,
            move || released.store(u64::MAX, Ordering::SeqCst),
        );
        let watch = watch.unwrap();
        calls.begin();
        watch.holds(1);
        while number.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // Said first, then done: whoever goes on by it finds the fault.
        let said = watch.fault().expect("it was noticed").to_string();
        assert!(said.contains("not pinned") && said.contains("wait()"), "{said}");
    }
}
