//! The group over MPI, on ranks that `mpirun` starts.
//!
//! Started by `cargo test`, this program runs itself under `mpirun`, once for each scenario and number of ranks.
//! Each rank leaves what it found in a file: ranks that have failed don't end MPI, so what `mpirun` itself says
//! of them means nothing.

#[path = "mpi_ranks/checks.rs"]
mod checks;
#[path = "mpi_ranks/failures.rs"]
mod failures;
mod support;

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use thinwire::group::{Group, Mpi};

/// What a rank does, and what it finds: words for the parent to look at.
type Work = fn(Mpi) -> String;
/// Looks at what the ranks found.
type Judge = fn(&[String]) -> Result<(), String>;

struct Scenario {
    name: &'static str,
    ranks: &'static [usize],
    deadline: Duration,
    /// Whether all ranks end MPI, and mpirun has nothing to complain of.
    ends_well: bool,
    work: Work,
    judge: Judge,
}

/// For one run of `mpirun`, on a machine with fewer cores than ranks.
const LIMIT: Duration = Duration::from_secs(120);
/// For all of them.
const TOTAL: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let scenarios: Vec<Scenario> =
        [checks::scenarios(), failures::scenarios()].into_iter().flatten().collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [word, name, folder] if word == "--rank" => as_rank(&scenarios, name, Path::new(folder)),
        arguments if arguments.iter().any(|word| word == "--list") => ExitCode::SUCCESS,
        arguments => {
            let only = arguments.iter().find(|word| !word.starts_with('-'));
            as_parent(scenarios.iter().filter(|s| only.is_none_or(|only| s.name.contains(only.as_str()))))
        }
    }
}

fn as_rank(scenarios: &[Scenario], name: &str, folder: &Path) -> ExitCode {
    let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect("a scenario");
    let mut group = Mpi::join(LIMIT).expect("MPI");
    group.set_deadline(scenario.deadline);
    let rank = group.rank();
    // The group is meant to be used by another thread than the one that joined, and to be dropped there.
    let work = scenario.work;
    let found = std::thread::spawn(move || work(group)).join().unwrap_or_else(|panic| {
        let words = panic.downcast::<String>().map_or_else(|_| "?".into(), |words| *words);
        format!("panicked: {words}")
    });
    let part = folder.join(format!("{rank}.part"));
    std::fs::write(&part, found).expect("a file for what was found");
    std::fs::rename(part, folder.join(rank.to_string())).expect("a file for what was found");
    ExitCode::SUCCESS
}

fn as_parent<'a>(scenarios: impl Iterator<Item = &'a Scenario>) -> ExitCode {
    let begun = Instant::now();
    let mut failed = 0;
    for (scenario, &ranks) in scenarios.flat_map(|s| s.ranks.iter().map(move |ranks| (s, ranks))) {
        let started = Instant::now();
        let result = if begun.elapsed() < TOTAL {
            run(scenario, ranks)
        } else {
            Err(format!("not started: {TOTAL:?} are over"))
        };
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("{} on {ranks} ranks: ok, {seconds:.1} s", scenario.name),
            Err(reason) => {
                failed += 1;
                println!("{} on {ranks} ranks: FAILED after {seconds:.1} s\n{reason}", scenario.name);
            }
        }
    }
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    println!("{failed} runs under mpirun failed");
    ExitCode::FAILURE
}

fn run(scenario: &Scenario, ranks: usize) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = folder.path().join("output");
    let out = File::create(&output).map_err(|error| error.to_string())?;
    let mut child = mpirun(ranks, scenario.ends_well)?
        .arg(std::env::current_exe().map_err(|error| error.to_string())?)
        .args(["--rank", scenario.name])
        .arg(folder.path())
        // To look up the names for a backtrace can take longer than the deadline of the others.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(|error| error.to_string())?)
        .stderr(out)
        .spawn()
        .map_err(|error| format!("can't start mpirun: {error}"))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if begun.elapsed() > LIMIT + Duration::from_secs(10) {
            // The ranks end when they find mpirun gone.
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let found: Vec<Option<String>> =
        (0..ranks).map(|rank| std::fs::read_to_string(folder.path().join(rank.to_string())).ok()).collect();
    let judged = match found.iter().position(Option::is_none) {
        Some(rank) => Err(format!("rank {rank} has left nothing")),
        None if scenario.ends_well && !status.success() => Err(format!("mpirun ended with {status}")),
        None => (scenario.judge)(&found.iter().flatten().cloned().collect::<Vec<String>>()),
    };
    judged.map_err(|reason| {
        let ranks: String =
            found.iter().enumerate().map(|(rank, found)| format!("\n  rank {rank}: {found:?}")).collect();
        let output = std::fs::read_to_string(&output).unwrap_or_default();
        format!("{reason}{ranks}\n-- output of mpirun\n{output}")
    })
}

fn mpirun(ranks: usize, ends_well: bool) -> Result<Command, String> {
    let version = Command::new("mpirun")
        .arg("--version")
        .output()
        .map_err(|error| format!("can't start mpirun: {error}; Debian has it in openmpi-bin"))?;
    let mut command = Command::new("mpirun");
    if String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
        command.args(["--allow-run-as-root", "--oversubscribe", "--timeout", &LIMIT.as_secs().to_string()]);
        // What needs rights or a network that a container may not have.
        let mut settings = vec![
            ("btl", "self,vader"),
            ("btl_vader_single_copy_mechanism", "none"),
            ("oob_tcp_if_include", "lo"),
            ("hwloc_base_binding_policy", "none"),
        ];
        if !ends_well {
            // Ranks that have failed exit without ending MPI; the others shall live to tell what they found.
            settings.push(("orte_allowed_exit_without_sync", "1"));
            settings.push(("orte_abort_on_non_zero_status", "0"));
        }
        for (name, value) in settings {
            command.args(["--mca", name, value]);
        }
    }
    command.args(["-np", &ranks.to_string()]);
    Ok(command)
}
