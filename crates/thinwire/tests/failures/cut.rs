//! A link that goes down in the midst of a step, between network namespaces. Needs root.
//!
//! What a cut link is to ranks that are not told of it, a relay that stops forwarding shows without root:
//! `a_cut_link_ends_all_ranks_by_the_deadline` among the tests of the TCP group.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::rank::Part;
use super::start::{Ranks, SHORT, SIZE};
use super::{Scenario, judge};

pub fn possible() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root".into());
    }
    Network::build().map(|_| ())
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|error| format!("can't start ip: {error}; Debian has it in iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// A namespace for each rank, and one with a bridge between them. They are removed when it goes out of scope.
struct Network {
    name: String,
}

impl Network {
    fn build() -> Result<Network, String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Network { name: format!("thinwire-{}-{number}", std::process::id()) };
        let bridge = network.bridge();
        ip(&format!("netns add {bridge}"))?;
        ip(&format!("-n {bridge} link add bridge type bridge"))?;
        ip(&format!("-n {bridge} link set bridge up"))?;
        for rank in 0..SIZE {
            let own = network.of(rank);
            ip(&format!("netns add {own}"))?;
            ip(&format!("-n {own} link add wire type veth peer name wire{rank} netns {bridge}"))?;
            ip(&format!("-n {own} addr add 10.77.0.{}/24 dev wire", rank + 1))?;
            ip(&format!("-n {own} link set lo up"))?;
            ip(&format!("-n {own} link set wire up"))?;
            ip(&format!("-n {bridge} link set wire{rank} master bridge"))?;
            ip(&format!("-n {bridge} link set wire{rank} up"))?;
        }
        Ok(network)
    }

    fn bridge(&self) -> String {
        format!("{}-bridge", self.name)
    }

    fn of(&self, rank: usize) -> String {
        format!("{}-{rank}", self.name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Those that were not made can't be removed.
        for name in (0..SIZE).map(|rank| self.of(rank)).chain([self.bridge()]) {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (method, victim) in [("dense", 0), ("topk", 2), ("ar-topk", 1), ("ar-topk:leader=var", 3)] {
        for secret in [None, Some("hush")] {
            let with = if secret.is_some() { ", encrypted" } else { "" };
            let name = format!("cut: {method}{with}, the link of rank {victim}");
            all.push(Scenario::new(name, move || cut(method, victim, secret)));
        }
    }
    all
}

fn cut(method: &str, victim: usize, secret: Option<&str>) -> Result<(), String> {
    let network = Network::build()?;
    let mut ranks = Ranks::new();
    ranks.deadlines = [SHORT; SIZE];
    let into = |rank| ["ip", "netns", "exec", &network.of(rank)].map(String::from).to_vec();
    ranks.prefix = (0..SIZE).map(into).collect();
    ranks.variables.push(("MASTER_ADDR", "10.77.0.1".into()));
    ranks.variables.extend(secret.map(|secret| ("THINWIRE_SECRET", secret.to_owned())));
    ranks.start_all(|_| Part { steps: 1_000_000, ..Part::of(method) })?;
    (0..SIZE).try_for_each(|rank| ranks.wait_until_joined(rank))?;
    std::thread::sleep(Duration::from_millis(300));
    ip(&format!("-n {} link set wire{victim} down", network.bridge()))?;
    let ends = ranks.finish()?;
    judge::blamed(&ends, victim, 0..=1_000_000)?;
    judge::all_but(&ends[victim..=victim], None, |end| judge::says(end, &["step ", "rank "]))
}
