//! What a probe came to, for people.

use std::time::Duration;

use thinwire::adapt::cost::Network;
use thinwire::adapt::price::Collective;
use thinwire::adapt::probe::Probe;

use crate::{human, output, ranks};

pub(super) fn describe(probe: &Probe, ranks: &ranks::Arguments, encrypted: bool, quick: bool) -> String {
    let link = ranks.link().map_or(String::new(), |link| format!(", link {link}"));
    let encrypted = if encrypted { ", encrypted" } else { "" };
    let head =
        format!("{}, {}{link}{encrypted}\n\n", human::plural(probe.ranks, "rank"), ranks.backend().name());
    if probe.ranks == 1 {
        return head
            + "One rank alone: nothing travels.\n\n"
            + &if quick { String::new() } else { work(probe) };
    }
    if quick {
        let Network { latency, seconds_per_byte } = probe.network;
        let latency = ("latency", human::duration(Duration::from_secs_f64(latency)));
        return head + &output::lines(&[latency, ("bandwidth", gbit(seconds_per_byte) + " Gbit/s")]);
    }
    head + &wire(probe) + "\n" + &work(probe)
}

fn gbit(seconds_per_byte: f64) -> String {
    human::three_digits(8e-9 / seconds_per_byte)
}

fn wire(probe: &Probe) -> String {
    let row = |name: &str, Network { latency, seconds_per_byte }: Network| {
        let latency = human::duration(Duration::from_secs_f64(latency));
        vec![name.to_owned(), latency, gbit(seconds_per_byte)]
    };
    let collectives =
        Collective::ALL.map(|collective| row(collective.name(), probe.wire.network(collective)));
    let rows = [row("a quick look", probe.network)].into_iter().chain(collectives);
    output::table(&["found by", ">latency of a hop", ">Gbit/s"], rows)
}

fn work(probe: &Probe) -> String {
    let nanoseconds = |seconds: f64| human::three_digits(seconds * 1e9);
    let rows = probe.workshop.methods().map(|(method, labour)| {
        let figures = [labour.element, labour.kept, labour.received].map(nanoseconds);
        std::iter::once(method.to_owned()).chain(figures).collect()
    });
    output::table(&["method", ">ns an element", ">a value sent", ">a value received"], rows)
        + "\nNanoseconds of the slowest rank's work, apart from what travels. Methods that were not measured have the\n\
           figures thinwire comes with.\n"
}
