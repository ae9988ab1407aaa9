//! Workers for a test, and what they came to.

use std::sync::mpsc;
use std::time::Duration;

use thinwire::group::{Group, Local, SharedGroup, Tcp, TcpSettings};
use thinwire_train::event::{End, Event};
use thinwire_train::trainer::{Settings, train};
use thinwire_train::{Error, Result};

use super::port::free_port;

/// For the workers of one training; a test waits no longer.
const LIMIT: Duration = Duration::from_secs(60);

/// What connects the workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Local,
    Tcp,
}

/// What a worker came to, with the events it told of.
pub type Outcome = (Result<End>, Vec<Event>);

/// A small training: one pass over the digits in 23 steps of two workers.
pub fn small(method: &str) -> Settings {
    Settings {
        model: "mlp:hidden=32".into(),
        method: method.into(),
        epochs: 1.0,
        probes: 0,
        check_every: 10,
        ..Settings::default()
    }
}

/// A size, as settings have it: by itself or as an option.
pub fn bytes<Size: From<usize>>(size: usize) -> Size {
    size.into()
}

/// Trains with one worker for each of `settings`. With a `stop` they all fail after that step, as if the disk were
/// full. Panics if they are not all done in time.
pub fn outcomes(kind: Kind, settings: Vec<Settings>, stop: Option<u64>) -> Vec<Outcome> {
    let (tell, told) = mpsc::channel();
    // Not joined: workers that hang are left behind, and the test fails.
    std::thread::spawn(move || {
        let work = |group: SharedGroup| {
            let mut events = Vec::new();
            let settings = &settings[group.rank()];
            let end = train(group, settings, &mut |event| {
                events.push(event.clone());
                match event {
                    Event::Step(step) if Some(step.step) == stop => Err(stopped()),
                    _ => Ok(()),
                }
            });
            (end, events)
        };
        let outcomes = match kind {
            Kind::Local => Local::run(settings.len(), |group| work(SharedGroup::new(group))),
            Kind::Tcp => over_tcp(settings.len(), |group| work(SharedGroup::new(group))),
        };
        // Nobody listens once the time is over.
        let _ = tell.send(outcomes);
    });
    told.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("workers hang or have panicked: {error}"))
}

/// What workers say that are stopped.
fn stopped() -> Error {
    Error::Io { action: "write", path: "the events".into(), reason: "stopped here".into() }
}

/// Runs `work` on ranks that know each other only by TCP.
fn over_tcp<T: Send>(size: usize, work: impl Fn(Tcp) -> T + Sync) -> Vec<T> {
    let port = free_port();
    std::thread::scope(|scope| {
        let start = |rank| {
            let (settings, work) = (TcpSettings { rank, size, port, ..TcpSettings::default() }, &work);
            scope.spawn(move || work(Tcp::join(&settings).unwrap()))
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The figures of worker 0 of a training that ends well, after a look at those of the others.
pub fn end(kind: Kind, workers: usize, settings: &Settings) -> End {
    let outcomes = outcomes(kind, vec![settings.clone(); workers], None);
    let ends: Vec<End> = outcomes.into_iter().map(|(end, _)| end.expect(&settings.method)).collect();
    for other in &ends[1..] {
        let same = |end: &End| (end.weights, end.steps, end.value.to_bits(), end.loss.to_bits());
        assert_eq!(same(other), same(&ends[0]), "{}", settings.method);
    }
    ends[0].clone()
}

/// The errors of workers of which none ends well.
pub fn errors(kind: Kind, settings: Vec<Settings>) -> Vec<Error> {
    outcomes(kind, settings, None)
        .into_iter()
        .enumerate()
        .map(|(rank, (end, _))| match end {
            Ok(_) => panic!("worker {rank} ended well"),
            Err(error) => error,
        })
        .collect()
}
