//! Latency and bandwidth in a handful of messages.

use super::agree::{mean, timed};
use crate::Result;
use crate::adapt::cost::{Network, Ranks};
use crate::adapt::price::Collective;
use crate::group::{Algorithm, Gathered, Group};

/// How much a quick look at the network may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The largest message of a rank, in bytes.
    pub most_bytes: usize,
    /// Seconds of messages after which none larger is tried.
    pub seconds: f64,
}

impl Default for Budget {
    /// 4 MiB and 0.3 seconds: a last message beyond that is not begun unless it will be over in about the same time.
    fn default() -> Budget {
        Budget { most_bytes: 4 << 20, seconds: 0.3 }
    }
}

/// The first of the growing messages, and how they grow.
const FIRST: usize = 16 << 10;
const GROWTH: usize = 8;

/// A message tells the bandwidth when it takes this much longer than an empty one.
const ENOUGH: f64 = 2e-3;

/// The network as a straight all-gather finds it: what the engine asks for when a training begins and when the network
/// has changed.
///
/// Latency is the least of three empty all-gathers. Then messages grow until one takes four times as long and 2 ms
/// more than an empty one, or the budget is spent. All ranks go by the mean of their times and end with the same bits.
/// A rank alone has no network: its latency is 0, and bytes cost next to nothing.
///
/// ```
/// use thinwire::adapt::probe::{Budget, quick};
/// use thinwire::group::Local;
///
/// let networks = Local::run(2, |mut group| quick(&mut group, Budget::default()).unwrap());
/// assert!(networks[0].latency > 0.0 && networks[0] == networks[1]);
/// ```
pub fn quick(group: &mut dyn Group, budget: Budget) -> Result<Network> {
    let ranks = Ranks::new(group.size());
    if ranks.count() == 1 {
        return Ok(Network { latency: 0.0, seconds_per_byte: 1e-12 });
    }
    let mut gathered = Gathered::default();
    let mut once = |group: &mut dyn Group, message: &[u8]| {
        timed(|| group.all_gather(message, message.len(), Algorithm::Tree, &mut gathered))
    };
    // The first one also waits for ranks that come late.
    once(group, &[])?;
    let mut empty = [0.0; 3];
    for time in &mut empty {
        *time = once(group, &[])?;
    }
    let empty = mean(group, &empty)?.into_iter().fold(f64::INFINITY, f64::min);
    let enough = (3.0 * empty).max(ENOUGH);
    let most = budget.most_bytes.max(1);
    let (mut bytes, mut spent) = (FIRST.min(most), 0.0);
    loop {
        let mine = once(group, &vec![0; bytes])?;
        let time = mean(group, &[mine])?[0];
        spent += time;
        let more = time - empty;
        // The next takes this long if bytes are what this one took its time for.
        let next = empty + GROWTH as f64 * more.max(0.0);
        let too_long = spent + next > 2.0 * budget.seconds;
        if more >= enough || bytes == most || too_long {
            let sent = Collective::StraightGather.load(ranks, bytes as f64).bytes;
            // Where nothing was to be seen of the bytes, they cost at most what can't be seen.
            let more = if more > 0.0 { more } else { 0.05 * time.max(1e-9) };
            return Ok(Network { latency: empty, seconds_per_byte: more / sent });
        }
        bytes = (bytes * GROWTH).min(most);
    }
}
