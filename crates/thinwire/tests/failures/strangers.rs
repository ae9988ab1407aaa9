//! Whatever comes to an open port: noise, halves of introductions, silence, other secrets and other versions.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::rank::Part;
use super::start::{End, Ranks, SHORT};
use super::{Scenario, judge, raw};

pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::new("strangers: 200 that say nothing", idle),
        Scenario::new("strangers: after the group is complete", late),
        Scenario::new("strangers: another version of the protocol", other_version),
    ];
    for secret in [None, Some("hush")] {
        let with = if secret.is_some() { "with" } else { "without" };
        all.push(Scenario::new(format!("strangers: noise and halves, {with} a secret"), move || {
            noise(secret)
        }));
    }
    for (what, secret, words) in [
        ("a wrong secret", Some("Hush"), "its secret is not that of this group"),
        ("no secret", None, "this group has a secret, it has none"),
    ] {
        all.push(Scenario::new(format!("strangers: {what}"), move || wrong_secret(secret, words)));
    }
    all
}

/// Three ranks gather; the fourth comes after `bother` has had its way with the port.
fn bothered(
    secret: Option<&str>,
    bother: impl FnOnce(u16) -> Result<Vec<TcpStream>, String>,
) -> Result<Vec<End>, String> {
    let mut ranks = Ranks::new();
    ranks.variables.extend(secret.map(|secret| ("THINWIRE_SECRET", secret.to_owned())));
    let part = Part::of("topk");
    (0..3).try_for_each(|rank| ranks.start(rank, &part, &[]))?;
    let kept = bother(ranks.port)?;
    ranks.start(3, &part, &[])?;
    let ends = ranks.finish();
    drop(kept);
    ends
}

fn noise(secret: Option<&str>) -> Result<(), String> {
    let ends = bothered(secret, |port| {
        let mut kept = Vec::new();
        let mut send = |bytes: &[u8], keep: bool| -> Result<(), String> {
            let mut stream = raw::dial(port)?;
            // It may be hung up on in the midst of it.
            let _ = stream.write_all(bytes);
            kept.extend(Some(stream).filter(|_| keep));
            Ok(())
        };
        for seed in 0..20u32 {
            let noise: Vec<u8> =
                (0..9999u32).map(|i| (i.wrapping_mul(seed * 7919 + 31) >> 3) as u8).collect();
            send(&noise, false)?;
        }
        let whole = match secret {
            None => raw::join_call(raw::VERSION, 3, 4, 1),
            // The first message of the handshake: a key of 32 bytes and a tag, or anything.
            Some(_) => [raw::opening(raw::VERSION, true, 3), vec![1, 48, 0], vec![9; 48]].concat(),
        };
        for length in [1, 8, 11, 12, 13, 20, 23, 30, whole.len() - 1] {
            send(&whole[..length], true)?;
            send(&whole[..length], false)?;
        }
        // The longest message that can be announced, and then nothing.
        let greeting = raw::opening(raw::VERSION, secret.is_some(), 3);
        send(&[&greeting[..], &[1, 0xff, 0xff]].concat(), true)?;
        send(&[&greeting[..], &[0, 0xff, 0xff]].concat(), true)?;
        send(&[&greeting[..], &[77, 0xff, 0xff]].concat(), true)?;
        Ok(kept)
    })?;
    judge::all_but(&ends, None, judge::ended_well)?;
    let warned = ends[0].said.matches("WARN").count();
    if warned < 20 { Err(format!("rank 0 has warned {warned} times:\n{}", ends[0].said)) } else { Ok(()) }
}

fn idle() -> Result<(), String> {
    let ends = bothered(None, |port| (0..200).map(|_| raw::dial(port)).collect())?;
    judge::all_but(&ends, None, judge::ended_well)
}

/// The ports are closed then.
fn late() -> Result<(), String> {
    let mut ranks = Ranks::new();
    ranks.start_all(|_| Part { steps: 50, pause: Duration::from_millis(20), ..Part::of("topk") })?;
    (0..ranks.size).try_for_each(|rank| ranks.wait_until_joined(rank))?;
    match TcpStream::connect(("127.0.0.1", ranks.port)) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        other => return Err(format!("the port of rank 0 is not closed: {other:?}")),
    }
    judge::all_but(&ranks.finish()?, None, judge::ended_well)
}

fn wrong_secret(secret: Option<&str>, words: &str) -> Result<(), String> {
    let mut ranks = Ranks::new();
    ranks.deadlines[0] = SHORT;
    // It is told nothing; what it makes of that is tested among the tests of the TCP group.
    ranks.deadlines[2] = SHORT;
    let part = Part::of("topk");
    for rank in 0..ranks.size {
        let secret = if rank == 2 { secret } else { Some("hush") };
        let variables: Vec<(&str, &str)> =
            secret.map(|secret| ("THINWIRE_SECRET", secret)).into_iter().collect();
        ranks.start(rank, &part, &variables)?;
    }
    let ends = ranks.finish()?;
    judge::all_but(&ends, Some(2), |end| judge::says(end, &["no word from rank 2 of 4"]))?;
    judge::all_but(&ends[2..3], None, |end| judge::says(end, &["rank 0 at "]))?;
    let logged = ends[0].said.lines().any(|line| line.contains("WARN") && line.contains(words));
    if logged { Ok(()) } else { Err(format!("rank 0 has not logged it:\n{}", ends[0].said)) }
}

fn other_version() -> Result<(), String> {
    let mut ranks = Ranks::new();
    ranks.deadlines[0] = SHORT;
    let half_join = |rank| Some(raw::VERSION + 1).filter(|_| rank == 2);
    ranks.start_all(|rank| Part { half_join: half_join(rank), ..Part::of("topk") })?;
    let ends = ranks.finish()?;
    judge::all_but(&ends, Some(2), |end| judge::says(end, &["no word from rank 2 of 4"]))?;
    let words = "it speaks version 3 of the protocol, this rank version 2";
    judge::all_but(&ends[2..3], None, |end| judge::says(end, &[words]))?;
    if ends[0].said.contains(words) { Ok(()) } else { Err(format!("not logged:\n{}", ends[0].said)) }
}
