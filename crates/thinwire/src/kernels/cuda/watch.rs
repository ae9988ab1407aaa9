//! Finds out that the GPU and the host wait for each other.
//!
//! Some calls keep the driver to themselves until the GPU has done them: copies from or to memory that is not pinned,
//! launches into a queue that is full (of about a thousand), and the loading of a kernel on its first use (seen with
//! driver 580). If a stream that was left to wait for this engine stands before such a call, the engine can't get into
//! the driver to do what the stream waits for, and nobody would ever go on. What can be done is to let the stream go,
//! and to say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::ahead::Counter;
use super::call::Calls;
use super::device::Device;
use crate::Error;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// In the upper half of the word that says whether a stream waits: there may be a zero in the lower half.
const HELD: u64 = 1 << 32;

/// How long a call may take while a stream waits for the engine.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// To put something into a queue.
    call: Duration,
    /// To wait for the GPU, which may be busy.
    wait: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { call: Duration::from_secs(10), wait: Duration::from_secs(120) }
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
    /// Looks on the calls of a device, for the sake of streams that wait for the counter.
    pub fn new(device: &Device, counter: &Arc<Counter>) -> Watch {
        let (reached, released) = (counter.clone(), counter.clone());
        let reached = move |number| reached.has_reached(number);
        Watch::over(device.calls().clone(), Patience::default(), reached, move || released.release())
    }

    fn over(
        calls: Arc<Calls>,
        patience: Patience,
        reached: impl Fn(u32) -> bool + Send + 'static,
        release: impl Fn() + Send + 'static,
    ) -> Watch {
        let shared = Arc::new(Shared::default());
        let here = shared.clone();
        let look = move || {
            let (mut seen, mut since) = (calls.over(), Instant::now());
            while !here.ended.load(Ordering::SeqCst) {
                std::thread::park_timeout(PAUSE.min(patience.call / 4));
                let held = here.held.load(Ordering::SeqCst);
                let waits = held >= HELD && !reached(held as u32);
                if !waits || !calls.under_way() || calls.over() != seen {
                    (seen, since) = (calls.over(), Instant::now());
                    continue;
                }
                if since.elapsed() > if calls.waiting() { patience.wait } else { patience.call } {
                    here.let_go.store(true, Ordering::SeqCst);
                    release();
                    return;
                }
            }
        };
        Watch { shared, thread: Some(std::thread::spawn(look)) }
    }

    /// From now on a stream waits until the counter has reached this number.
    pub fn holds(&self, number: u32) {
        self.shared.held.store(HELD | number as u64, Ordering::SeqCst);
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
        self.shared.ended.store(true, Ordering::SeqCst);
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

    /// Much longer than a busy machine keeps a thread waiting.
    const SHORT: Duration = Duration::from_millis(250);
    const LONG: Duration = Duration::from_secs(60);

    /// A watch with little patience, the calls it looks at, and the number that was reached.
    fn watched() -> (Watch, Arc<Calls>, Arc<AtomicU64>) {
        let (calls, number) = (Arc::new(Calls::default()), Arc::new(AtomicU64::new(0)));
        let (reached, released) = (number.clone(), number.clone());
        let watch = Watch::over(
            calls.clone(),
            Patience { call: SHORT, wait: LONG },
            move |wanted| reached.load(Ordering::SeqCst) >= wanted as u64,
            move || released.store(u64::MAX, Ordering::SeqCst),
        );
        (watch, calls, number)
    }

    /// The words of a watch that has let go.
    fn fault_of(watch: &Watch) -> String {
        let begun = Instant::now();
        while watch.fault().is_none() && begun.elapsed() < LONG {
            std::thread::sleep(SHORT / 20);
        }
        watch.fault().expect("it was noticed").to_string()
    }

    #[test]
    fn a_call_that_does_not_come_back_lets_the_streams_go() {
        let (watch, calls, number) = watched();
        watch.holds(1);
        let _call = Current::new(None, &calls);
        let said = fault_of(&watch);
        assert!(said.contains("not pinned") && said.contains("wait()"), "{said}");
        // Said first, then done: whoever goes on by it finds the fault.
        drop(watch);
        assert_eq!(number.load(Ordering::SeqCst), u64::MAX);
    }

    #[test]
    fn nothing_is_let_go_as_long_as_calls_come_back_or_nobody_waits() {
        let (watch, calls, number) = watched();
        // Nobody waits, however long it takes; then somebody whose time has come.
        let call = Current::new(None, &calls);
        std::thread::sleep(2 * SHORT);
        number.store(1, Ordering::SeqCst);
        watch.holds(1);
        std::thread::sleep(2 * SHORT);
        drop(call);
        // Nothing is asked of the driver: the network has the word.
        watch.holds(2);
        std::thread::sleep(2 * SHORT);
        for _ in 0..60 {
            let _call = Current::new(None, &calls);
            std::thread::sleep(SHORT / 20);
        }
        assert!(watch.fault().is_none());
        assert_eq!(number.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_wait_for_the_gpu_may_take_longer() {
        let (watch, calls, _) = watched();
        watch.holds(1);
        let (_call, wait) = (Current::new(None, &calls), calls.begin_wait());
        std::thread::sleep(3 * SHORT);
        assert!(watch.fault().is_none());
        calls.end_wait(wait);
        fault_of(&watch);
    }
}
