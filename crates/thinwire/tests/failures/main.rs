//! Ranks that die, freeze, lie or speak nonsense: every other rank ends its wait by the deadline, with an error that
//! names the rank and the step, and leaves nothing behind.
//!
//! Started by `cargo test`, this program starts itself once for each rank: real processes, real sockets. A word
//! behind `--` picks scenarios by name. Those that need root, for network namespaces of their own, run with
//! `cargo test -p thinwire --test failures -- --ignored`.

mod abandon;
#[path = "../support/accused.rs"]
mod accused;
mod cut;
mod disagree;
mod freeze;
mod judge;
mod kill;
mod lie;
mod rank;
mod raw;
mod saboteur;
mod start;
mod strangers;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// Scenarios mostly wait, so several run side by side.
const AT_ONCE: usize = 4;

/// What is tried, and what must come of it.
pub struct Scenario {
    name: String,
    run: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Scenario {
    /// A scenario; its result says what was not as it should be.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Scenario {
        Scenario { name: name.into(), run: Box::new(run) }
    }
}

fn main() -> ExitCode {
    if let Some(part) = rank::part_of_environment() {
        return rank::play(&part);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let only_root = arguments.iter().any(|word| word == "--ignored");
    let mut scenarios = if only_root {
        if let Err(reason) = cut::possible() {
            println!("cut links: not tried, because {reason}");
            return ExitCode::SUCCESS;
        }
        cut::scenarios()
    } else {
        let all = [
            abandon::scenarios(),
            kill::scenarios(),
            freeze::scenarios(),
            strangers::scenarios(),
            disagree::scenarios(),
            lie::scenarios(),
        ];
        println!("cut links: only with root, by: cargo test -p thinwire --test failures -- --ignored");
        all.into_iter().flatten().collect()
    };
    if let Some(word) = arguments.iter().find(|word| !word.starts_with('-')) {
        scenarios.retain(|scenario| scenario.name.contains(word.as_str()));
    }
    run_all(scenarios)
}

fn run_all(scenarios: Vec<Scenario>) -> ExitCode {
    accused::check_accused();
    let (begun, count) = (Instant::now(), scenarios.len());
    let left = Mutex::new(scenarios.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().next();
                    let Some(scenario) = next else { return };
                    let started = Instant::now();
                    let result = (scenario.run)();
                    let seconds = started.elapsed().as_secs_f64();
                    match result {
                        Ok(()) => println!("{}: ok, {seconds:.1} s", scenario.name),
                        Err(reason) => {
                            println!("{}: FAILED after {seconds:.1} s", scenario.name);
                            failed.lock().unwrap().push((scenario.name, reason));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("{} of {count} scenarios ok, {:.1} s", count - failed.len(), begun.elapsed().as_secs_f64());
    failed.iter().for_each(|(name, reason)| println!("FAILED: {name}\n{reason}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
