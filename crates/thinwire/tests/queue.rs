//! The background queue under a scheduler that tries the ways in which threads can take turns.

mod sync {
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
}

#[path = "../src/synchronizer/queue.rs"]
mod queue;

use std::time::Duration;

use queue::{Queue, Rejected, Waited};
use shuttle::sync::Arc;
use shuttle::thread;

const SLOTS: usize = 3;

/// The background thread of a synchronizer: jobs in order, an outcome for each step.
fn work(queue: &Queue<u32, Vec<u32>>) -> usize {
    let mut steps = 0;
    loop {
        let mut jobs = Vec::new();
        for _ in 0..SLOTS {
            match queue.take() {
                Some(job) => jobs.push(job),
                None => return steps,
            }
        }
        queue.finish(jobs);
        steps += 1;
    }
}

/// Every schedule of a few thousand: random ones, and ones with few but hostile switches.
fn explore(test: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(test, 3000);
    shuttle::check_pct(test, 3000, 3);
}

#[test]
fn jobs_come_out_in_order_whatever_the_order_they_went_in() {
    explore(|| {
        let queue = Arc::new(Queue::<u32, Vec<u32>>::new(SLOTS));
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || work(&queue))
        };
        for (step, order) in [[2, 0, 1], [0, 1, 2], [1, 2, 0]].into_iter().enumerate() {
            let first = 10 * step as u32;
            // Half of them from a thread of their own, as hooks of a backward pass may be.
            let other = {
                let queue = queue.clone();
                thread::spawn(move || queue.submit(order[0], first + order[0] as u32))
            };
            for &slot in &order[1..] {
                assert!(queue.submit(slot, first + slot as u32).is_ok());
            }
            assert!(other.join().unwrap().is_ok());
            assert_eq!(queue.submitted(), SLOTS);
            let expected = vec![first, first + 1, first + 2];
            // The scheduler never lets the time be up.
            match step {
                1 => assert_eq!(queue.wait_for(Duration::from_secs(1)), Waited::Outcome(expected)),
                _ => assert_eq!(queue.wait(), Some(expected)),
            }
            assert_eq!(queue.submitted(), 0);
        }
        queue.close();
        assert_eq!(worker.join().unwrap(), 3);
    });
}

#[test]
fn closing_ends_every_wait() {
    explore(|| {
        let queue = Arc::new(Queue::<u32, Vec<u32>>::new(SLOTS));
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || work(&queue))
        };
        let waiter = {
            let queue = queue.clone();
            thread::spawn(move || (queue.wait(), queue.wait_for(Duration::from_secs(1))))
        };
        let _ = queue.submit(0, 7);
        queue.close();
        assert_eq!(waiter.join().unwrap(), (None, Waited::Closed));
        worker.join().unwrap();
        assert_eq!(queue.submit(1, 8), Err((Rejected::Closed, 8)));
    });
}

#[test]
fn a_slot_is_filled_once_a_step() {
    explore(|| {
        let queue = Arc::new(Queue::<u32, Vec<u32>>::new(1));
        assert_eq!(queue.submit(1, 5), Err((Rejected::Unknown, 5)));
        let twin = {
            let queue = queue.clone();
            thread::spawn(move || queue.submit(0, 1).is_ok())
        };
        let mine = queue.submit(0, 2).is_ok();
        assert_ne!(mine, twin.join().unwrap(), "one of the two, never both");
        let job = queue.take().unwrap();
        queue.finish(vec![job]);
        assert_eq!(queue.wait(), Some(vec![if mine { 2 } else { 1 }]));
        assert_eq!(queue.submit(0, 3), Ok(()));
    });
}
