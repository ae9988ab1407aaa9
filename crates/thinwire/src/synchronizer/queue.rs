//! Buckets on their way to the thread that exchanges them: handed in as they become ready, taken out in one
//! fixed order.
//!
//! The types of [`sync`](super::sync) are the standard library's; a test puts others in their place and tries
//! all the ways in which threads can take turns (`tests/queue.rs`).

use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// The jobs of one step, and its result. One step is under way at a time.
#[derive(Debug)]
pub struct Queue<Job, Outcome> {
    state: Mutex<State<Job, Outcome>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<Job, Outcome> {
    /// What was handed in and not taken yet.
    slots: Vec<Option<Job>>,
    /// Which were handed in during this step.
    submitted: Vec<bool>,
    /// The one to be taken next.
    next: usize,
    outcome: Option<Outcome>,
    closed: bool,
}

/// Why a job was not taken in.
#[derive(Debug, PartialEq, Eq)]
pub enum Rejected {
    /// There is no such slot.
    Unknown,
    /// The slot was filled before in this step.
    Twice,
    /// The other side is gone.
    Closed,
}

/// What came of waiting for a while.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited<Outcome> {
    /// The step is over.
    Outcome(Outcome),
    /// It is not over yet.
    TimeIsUp,
    /// The other side is gone.
    Closed,
}

impl<Job, Outcome> State<Job, Outcome> {
    /// The outcome, if it is there; then the next step may begin.
    fn take_outcome(&mut self) -> Option<Outcome> {
        let outcome = self.outcome.take()?;
        self.next = 0;
        self.submitted.fill(false);
        Some(outcome)
    }
}

impl<Job, Outcome> Queue<Job, Outcome> {
    /// A queue for steps of `slots` jobs.
    pub fn new(slots: usize) -> Queue<Job, Outcome> {
        let state = State {
            slots: (0..slots).map(|_| None).collect(),
            submitted: vec![false; slots],
            next: 0,
            outcome: None,
            closed: false,
        };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Nothing is left half done where a lock is held, so one that was poisoned is as good as any.
    fn lock(&self) -> MutexGuard<'_, State<Job, Outcome>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Hands a job in; the job comes back if it can't be taken.
    pub fn submit(&self, slot: usize, job: Job) -> Result<(), (Rejected, Job)> {
        let mut state = self.lock();
        if state.closed {
            return Err((Rejected::Closed, job));
        }
        match state.submitted.get(slot) {
            None => return Err((Rejected::Unknown, job)),
            Some(true) => return Err((Rejected::Twice, job)),
            Some(false) => {}
        }
        state.submitted[slot] = true;
        state.slots[slot] = Some(job);
        self.changed.notify_all();
        Ok(())
    }

    /// How many jobs were handed in during this step.
    pub fn submitted(&self) -> usize {
        self.lock().submitted.iter().filter(|&&submitted| submitted).count()
    }

    /// For the working thread: the next job in order, as soon as it is there; `None` when the queue is closed.
    pub fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let next = state.next;
            if let Some(job) = state.slots.get_mut(next).and_then(Option::take) {
                state.next += 1;
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// For the working thread: the step is over.
    pub fn finish(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        self.changed.notify_all();
    }

    /// The outcome of the step, as soon as it is over; then the next one may begin. `None` when the queue was
    /// closed instead.
    pub fn wait(&self) -> Option<Outcome> {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = state.take_outcome() {
                return Some(outcome);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// The same, but not for longer than this.
    pub fn wait_for(&self, time: Duration) -> Waited<Outcome> {
        let mut state = self.lock();
        if state.outcome.is_none() && !state.closed {
            let waiting = |state: &mut State<Job, Outcome>| state.outcome.is_none() && !state.closed;
            let waited = self.changed.wait_timeout_while(state, time, waiting);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        match state.take_outcome() {
            Some(outcome) => Waited::Outcome(outcome),
            None if state.closed => Waited::Closed,
            None => Waited::TimeIsUp,
        }
    }

    /// Ends all waiting, on both sides.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
