//! What a process does that was started as a rank.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thinwire::group::{Group, Tcp, TcpSettings};
use thinwire::synchronizer::{Layout, Options};
use thinwire::{Result, Synchronizer};

use super::saboteur::{Sabotage, Saboteur, freeze};
use super::{raw, support};

/// The variable with the part, as JSON.
pub const PART: &str = "THINWIRE_TEST_PART";

/// The exit status of a rank that ended with an error, as it should.
pub const ENDED_WITH_ERROR: i32 = 3;

/// No rank goes on for longer, whatever becomes of the process that started it.
const LONGEST: Duration = Duration::from_secs(60);

/// What a rank is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    pub method: String,
    pub elements: usize,
    pub buckets: usize,
    pub steps: u64,
    /// Pause after each step.
    pub pause: Duration,
    /// Hand the buckets to the background thread.
    pub background: bool,
    /// The step to go on from, as if restored.
    pub first_step: u64,
    pub check_replicas_every: u64,
    /// Its gradient is larger than those of the others.
    pub loud: bool,
    /// Joins by hand, in this version of the protocol, and dies when it has been told where the others are.
    pub half_join: Option<u16>,
    /// Stops before it joins.
    pub freeze_first: bool,
    pub sabotage: Option<Sabotage>,
    /// Gives the group up between two buckets of the first step.
    pub abandon: Option<String>,
}

impl Part {
    pub fn of(method: &str) -> Part {
        Part {
            method: method.into(),
            elements: 20_000,
            buckets: 1,
            steps: 4,
            pause: Duration::ZERO,
            background: false,
            first_step: 0,
            check_replicas_every: 1,
            loud: false,
            half_join: None,
            freeze_first: false,
            sabotage: None,
            abandon: None,
        }
    }
}

/// What a rank tells at its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Findings {
    pub error: Option<String>,
    /// Sockets that are still open.
    pub sockets: usize,
    /// How much the most memory held has grown since the group was complete.
    pub grown_kilobytes: u64,
}

pub fn part_of_environment() -> Option<Part> {
    let text = std::env::var(PART).ok()?;
    Some(serde_json::from_str(&text).expect("a part"))
}

pub fn play(part: &Part) -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().with_ansi(false).init();
    let mut before = None;
    let result = if part.freeze_first {
        freeze();
        run(part, &mut before)
    } else if let Some(version) = part.half_join {
        raw::join_and_die(&TcpSettings::from_environment().expect("settings"), version)
    } else {
        run(part, &mut before)
    };
    let sockets = std::fs::read_dir("/proc/self/fd")
        .expect("the open files")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count();
    let grown_kilobytes = before.map_or(0, |before| most_memory().saturating_sub(before));
    let error = result.err().map(|error| error.to_string());
    let code = if error.is_some() { ExitCode::from(ENDED_WITH_ERROR as u8) } else { ExitCode::SUCCESS };
    let findings = Findings { error, sockets, grown_kilobytes };
    println!("{}", serde_json::to_string(&findings).expect("JSON"));
    code
}

/// Everything is dropped at its end.
fn run(part: &Part, memory_before: &mut Option<u64>) -> Result<()> {
    let group = Tcp::from_environment()?;
    println!("joined");
    *memory_before = Some(most_memory());
    let rank = group.rank();
    let group = Saboteur::new(group, part.sabotage.clone());
    let each = part.elements / part.buckets;
    let layers = (0..part.buckets).map(|number| (format!("part{number}"), vec![each, 1]));
    let layout = Layout::by_size(layers, 4 * each)?;
    let options = Options { check_replicas_every: part.check_replicas_every, ..Options::default() };
    let mut synchronizer = Synchronizer::with_options(group, &part.method, layout, options)?;
    synchronizer.set_epoch(f64::INFINITY);
    if part.first_step > 0 {
        let mut state = synchronizer.save()?;
        state.step = part.first_step;
        synchronizer.restore(&state)?;
    }
    let loudness = if part.loud { 3.0 } else { 1.0 };
    let gradient = |bucket: usize| -> Vec<f32> {
        let seed = (10 * rank + bucket) as u64;
        support::noise(each, seed).into_iter().map(|value| value * loudness).collect()
    };
    let gradients: Vec<Vec<f32>> = (0..part.buckets).map(gradient).collect();
    let needs_weights = part.method.starts_with("iwp");
    let weights: Vec<Vec<f32>> = match needs_weights {
        true => (0..part.buckets).map(|bucket| support::noise(each, 99 + bucket as u64)).collect(),
        false => vec![],
    };
    let begun = Instant::now();
    for _ in 0..part.steps {
        if part.background {
            for (bucket, gradient) in gradients.iter().enumerate() {
                if let (1, Some(reason)) = (bucket, &part.abandon) {
                    std::thread::sleep(Duration::from_millis(100));
                    synchronizer.abandon(reason);
                }
                synchronizer.submit(bucket, gradient.clone(), weights.get(bucket).cloned())?;
            }
            synchronizer.wait()?;
        } else {
            synchronizer.step(&mut gradients.clone(), &weights)?;
        }
        std::thread::sleep(part.pause);
        if begun.elapsed() > LONGEST {
            break;
        }
    }
    Ok(())
}

/// The most memory this process has held, in kilobytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the state of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
