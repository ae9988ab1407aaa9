//! The callers that have not introduced themselves yet, and which of them has to leave when there is no room.
//!
//! Whoever reaches the port can connect faster than anybody is served, so room is limited and the choice of the one
//! that leaves decides who gets in. The victim is a caller
//! 1. of the source with the most callers, so that a source which floods the port displaces only its own;
//! 2. among these, one without a valid greeting. A rank sends its greeting with its first bytes;
//! 3. among these, one that has stood still for more than [`A_MOMENT`], because the others may still be answering;
//! 4. among these, the one that has come least far in its introduction: a greeting leaves before a handshake;
//! 5. among these, the one that has stood still for longest. An honest rank moves on with every round trip.
//!
//! So an honest caller is displaced by its own address only, and only while it stands still for as long as that address
//! needs to open [`MOST_CALLERS`] connections. Against callers from about as many addresses, of which none has more than
//! the rank's own, the first rule decides nothing: there the others do.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Callers that are listened to at once, which is also a bound on open files.
pub(super) const MOST_CALLERS: usize = 256;

/// One that stands still for no longer may be about to go on.
const A_MOMENT: Duration = Duration::from_millis(100);

/// One caller.
pub(super) struct Entry<T> {
    source: IpAddr,
    /// How far it has come; 0 without a valid greeting.
    progress: u8,
    /// When it last came further.
    moved: Instant,
    /// When it has to be done.
    pub until: Instant,
    pub caller: T,
}

impl<T> Entry<T> {
    pub fn new(from: IpAddr, now: Instant, until: Instant, caller: T) -> Entry<T> {
        Entry { source: source(from), progress: 0, moved: now, until, caller }
    }

    pub fn set_progress(&mut self, progress: u8, now: Instant) {
        if progress != self.progress {
            (self.progress, self.moved) = (progress, now);
        }
    }
}

/// Whoever owns one IPv6 address usually owns all of its /64.
fn source(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// All of them.
pub(super) struct Callers<T> {
    entries: Vec<Entry<T>>,
}

impl<T> Callers<T> {
    pub fn new() -> Callers<T> {
        Callers { entries: Vec::with_capacity(MOST_CALLERS) }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry<T>> {
        self.entries.iter()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get_mut(&mut self, at: usize) -> &mut Entry<T> {
        &mut self.entries[at]
    }

    /// Takes one out; the last takes its place.
    pub fn remove(&mut self, at: usize) -> Entry<T> {
        self.entries.swap_remove(at)
    }

    /// Adds a caller, and gives the one that has to leave for it.
    pub fn admit(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
        let full = self.entries.len() >= MOST_CALLERS;
        let victim = if full { self.displace(Some(entry.source), entry.moved) } else { None };
        self.entries.push(entry);
        victim
    }

    /// Takes out the caller that leaves first. One of `joining` is about to come, and counts.
    pub fn displace(&mut self, joining: Option<IpAddr>, now: Instant) -> Option<Entry<T>> {
        let mut sources: Vec<(IpAddr, usize)> = joining.map(|source| (source, 1)).into_iter().collect();
        for entry in &self.entries {
            match sources.iter_mut().find(|(source, _)| *source == entry.source) {
                Some((_, count)) => *count += 1,
                None => sources.push((entry.source, 1)),
            }
        }
        let held = |source: IpAddr| sources.iter().find(|(other, _)| *other == source).map_or(0, |s| s.1);
        let fresh = |entry: &Entry<T>| now.saturating_duration_since(entry.moved) < A_MOMENT;
        let stays = |entry: &Entry<T>| {
            let greeted = entry.progress > 0;
            (std::cmp::Reverse(held(entry.source)), greeted, fresh(entry), entry.progress, entry.moved)
        };
        let victim = self.entries.iter().enumerate().min_by_key(|(_, entry)| stays(entry));
        victim.map(|(at, _)| at).map(|at| self.entries.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Room for callers, and a clock that moves a little with each.
    struct Flood {
        callers: Callers<&'static str>,
        now: Instant,
        displaced: Vec<&'static str>,
    }

    impl Flood {
        fn new() -> Flood {
            Flood { callers: Callers::new(), now: Instant::now(), displaced: vec![] }
        }

        fn come(&mut self, from: &str, progress: u8, name: &'static str) {
            self.now += Duration::from_millis(1);
            let mut entry = Entry::new(ip(from), self.now, self.now, name);
            entry.set_progress(progress, self.now);
            self.displaced.extend(self.callers.admit(entry).map(|entry| entry.caller));
        }

        fn has(&self, name: &str) -> bool {
            self.callers.iter().any(|entry| entry.caller == name)
        }
    }

    #[test]
    fn a_flood_never_displaces_a_caller_of_another_source() {
        let mut flood = Flood::new();
        flood.come("10.0.0.1", 0, "honest");
        for _ in 0..100 * MOST_CALLERS {
            // Further along than the honest one.
            flood.come("10.0.0.2", 2, "stranger");
        }
        assert!(flood.has("honest"));
        assert!(flood.displaced.iter().all(|&name| name == "stranger"));
        assert_eq!(flood.callers.len(), MOST_CALLERS);
        // Nor does it keep one out.
        flood.come("10.0.0.3", 0, "late");
        assert!(flood.has("late"));
    }

    #[test]
    fn of_one_source_those_without_a_greeting_leave_first_and_then_the_one_that_stood_still() {
        let mut flood = Flood::new();
        flood.come("127.0.0.1", 1, "honest");
        for _ in 0..MOST_CALLERS - 1 {
            flood.come("127.0.0.1", 0, "silent");
        }
        for _ in 0..MOST_CALLERS - 1 {
            flood.come("127.0.0.1", 1, "greeting");
        }
        assert!(flood.has("honest") && !flood.has("silent"));
        flood.come("127.0.0.1", 2, "handshake");
        assert!(!flood.has("honest") && flood.has("handshake"));
        for _ in 0..2 * MOST_CALLERS {
            flood.come("127.0.0.1", 1, "greeting");
        }
        assert!(flood.has("handshake"));
    }

    #[test]
    fn a_valid_greeting_outlives_any_number_without_one() {
        let mut flood = Flood::new();
        flood.come("127.0.0.1", 1, "honest");
        for _ in 0..100 * MOST_CALLERS {
            flood.come("127.0.0.1", 0, "silent");
        }
        assert!(flood.has("honest"));
        // From as many addresses, too.
        for number in 0..100 * MOST_CALLERS {
            flood.come(&format!("10.0.{}.{}", number >> 8 & 255, number & 255), 0, "silent");
        }
        assert!(flood.has("honest"));
    }

    #[test]
    fn one_that_has_just_greeted_outlives_those_that_stand_still_in_their_handshakes() {
        let mut flood = Flood::new();
        for _ in 0..2 * MOST_CALLERS {
            flood.come("127.0.0.1", 3, "handshake");
        }
        flood.come("127.0.0.1", 1, "honest");
        flood.come("127.0.0.1", 3, "handshake");
        assert!(flood.has("honest"));
        for _ in 0..A_MOMENT.as_millis() {
            flood.come("127.0.0.1", 3, "handshake");
        }
        assert!(!flood.has("honest"));
    }

    #[test]
    fn an_ipv6_network_is_one_source_and_a_mapped_address_is_ipv4() {
        assert_eq!(source(ip("2001:db8:1:2:3::4")), source(ip("2001:db8:1:2:ffff::1")));
        assert_ne!(source(ip("2001:db8:1:2::1")), source(ip("2001:db8:1:3::1")));
        assert_eq!(source(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
        assert_ne!(source(ip("127.0.0.1")), source(ip("127.0.0.2")));
    }
}
