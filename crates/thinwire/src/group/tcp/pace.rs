//! When bytes leave an imitated link: the arithmetic of a token bucket.

use std::time::{Duration, Instant};

use super::link::Link;

/// Payload of a full Ethernet frame, and the bytes of Ethernet, IP and TCP (with timestamps) around it. `tc`
/// counts them, so they are counted here: 100mbit carry 95.6 Mbit/s of payload on both.
const SEGMENT: u64 = 1448;
const HEADERS: u64 = 66;

/// Bytes that may leave at once after a pause, as with `tc … tbf burst 32kb`: small messages leave at once.
const BURST: u64 = 32 << 10;

/// The queue holds what leaves in this time, as with `tc … tbf latency 50ms`, but neither too few bytes to be of
/// use nor more than memory should be taken for.
const LATENCY: Duration = Duration::from_millis(50);
const LEAST_QUEUE: u64 = 64 << 10;
const MOST_QUEUE: u64 = 16 << 20;

/// The longest piece that leaves as one, and the time it may take at most.
const MOST_PIECE: u64 = 16 << 10;
const PIECE_TIME: Duration = Duration::from_millis(1);

/// The state of the bucket, as the time at which everything accepted so far would have left without a burst.
#[derive(Debug)]
pub(super) struct Pace {
    link: Link,
    empty_at: Instant,
}

impl Pace {
    pub fn new(link: Link, now: Instant) -> Pace {
        Pace { link, empty_at: now }
    }

    pub fn set(&mut self, link: Link) {
        self.link = link;
    }

    fn time(&self, bytes: u64) -> Duration {
        match self.link.rate {
            None => Duration::ZERO,
            Some(rate) => {
                Duration::from_nanos((u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1))) as u64)
            }
        }
    }

    fn bytes_in(&self, time: Duration) -> u64 {
        let rate = self.link.rate.unwrap_or(u64::MAX);
        (time.as_nanos() * u128::from(rate) / 8_000_000_000).min(u128::from(u64::MAX)) as u64
    }

    /// Bytes the queue of the link holds.
    pub fn queue(&self) -> u64 {
        self.bytes_in(LATENCY).clamp(LEAST_QUEUE, MOST_QUEUE)
    }

    /// Bytes that are in the queue or on the way when the link is busy.
    pub fn in_flight(&self) -> u64 {
        self.queue() + self.bytes_in(self.link.delay).min(MOST_QUEUE)
    }

    /// The longest piece to be sent as one.
    pub fn piece(&self) -> usize {
        self.bytes_in(PIECE_TIME).clamp(SEGMENT, MOST_PIECE) as usize
    }

    /// When the queue takes the next piece; `now` or before when it does now.
    pub fn takes_at(&self, now: Instant) -> Instant {
        if self.link.rate.is_none() {
            return now;
        }
        let full = self.time(self.queue() + BURST);
        self.empty_at.checked_sub(full).unwrap_or(now)
    }

    /// Takes a piece of `bytes`: when its last byte arrives at the other end.
    pub fn take(&mut self, bytes: usize, now: Instant) -> Instant {
        let framed = bytes as u64 + (bytes as u64).div_ceil(SEGMENT) * HEADERS;
        self.empty_at = self.empty_at.max(now) + self.time(framed);
        let leaves = self.empty_at.checked_sub(self.time(BURST)).unwrap_or(now).max(now);
        leaves + self.link.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(text: &str) -> (Pace, Instant) {
        let now = Instant::now();
        (Pace::new(text.parse().unwrap(), now), now)
    }

    #[test]
    fn a_hundred_megabits_carry_ninety_five_of_payload() {
        let (mut pace, start) = pace("100mbit,5ms");
        let mut last = start;
        for _ in 0..1000 {
            last = pace.take(1448 * 8, start);
        }
        let seconds = (last - start).as_secs_f64() - 0.005;
        let rate = (1000.0 * 1448.0 * 8.0 - 32768.0) * 8.0 / seconds;
        assert!((95.0e6..96.5e6).contains(&rate), "{rate}");
    }

    #[test]
    fn a_small_message_leaves_at_once_and_a_pause_refills_the_bucket() {
        let (mut pace, start) = pace("1mbit,5ms");
        let delay = Duration::from_millis(5);
        assert_eq!(pace.take(4096, start), start + delay);
        assert!(pace.take(60_000, start) > start + delay);
        let later = start + Duration::from_secs(10);
        assert_eq!(pace.take(4096, later), later + delay);
    }

    #[test]
    fn a_full_queue_says_when_there_is_room() {
        let (mut pace, start) = pace("100mbit");
        let mut held = 0;
        while pace.takes_at(start) <= start {
            pace.take(pace.piece(), start);
            held += pace.piece();
        }
        // 50 ms at 100 Mbit/s, and the burst.
        assert!((600_000..700_000).contains(&held), "{held}");
        assert!(pace.takes_at(start) <= start + Duration::from_millis(2));
    }

    #[test]
    fn without_a_rate_there_is_only_the_delay() {
        let (mut pace, start) = pace("5ms");
        assert_eq!(pace.take(1 << 30, start), start + Duration::from_millis(5));
        assert!(pace.takes_at(start) <= start);
    }
}
