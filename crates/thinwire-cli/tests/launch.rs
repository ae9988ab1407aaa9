//! `thinwire launch`, and the benchmarks that start ranks of their own.

mod common;

use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, Instant};

use common::Folder;
use serde_json::Value;

/// Runs `thinwire` with arguments that may hold spaces: whether it ended well, what it printed, and its errors.
fn run(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_thinwire")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_rank_is_told_who_it_is() {
    let (well, out, errors) = run(&["launch", "-n", "3", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE"]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert!(well, "{errors}");
    assert_eq!(lines, ["0 of 3", "1 of 3", "2 of 3"]);
}

#[test]
fn a_rank_that_fails_is_named_and_the_others_are_ended() {
    let script = "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 60";
    let begun = Instant::now();
    let (well, _, errors) = run(&["launch", "-n", "3", "--deadline", "0.2", "--", "sh", "-c", script]);
    assert!(!well && begun.elapsed() < Duration::from_secs(40));
    assert!(errors.contains("ending the ranks that are left: 0, 2"), "{errors}");
    assert!(errors.contains("error: rank 1 ended with exit status: 7"), "{errors}");
}

#[test]
fn a_rank_that_is_killed_is_named_and_not_those_that_fail_at_the_same_time() {
    let script = "if [ $RANK = 2 ]; then kill -9 $$; fi; exit 1";
    let (well, _, errors) = run(&["launch", "-n", "4", "--", "sh", "-c", script]);
    assert!(!well);
    assert_eq!(errors, "error: rank 2 ended with signal: 9 (SIGKILL)\n");
    let (well, _, errors) = run(&["launch", "-n", "2", "--", "/no/such/program"]);
    assert!(!well && errors.contains("/no/such/program"), "{errors}");
}

fn rows(text: &str) -> (Value, usize) {
    let outcome: Value = serde_json::from_str(text).unwrap();
    let rows = outcome["rows"].as_array().unwrap().len();
    (outcome, rows)
}

#[test]
fn collectives_are_measured_on_ranks_of_every_kind() {
    // Two algorithms for three collectives of one size, and the barrier.
    for backend in ["tcp", "local"] {
        let words = format!("bench collective -n 3 --sizes 4kB --repeats 5 --backend {backend}");
        let (outcome, rows) = rows(&Folder::new().json(&words).to_string());
        assert_eq!(
            (rows, outcome["ranks"].as_u64(), outcome["backend"].as_str()),
            (7, Some(3), Some(backend))
        );
        let all_measured = outcome["rows"].as_array().unwrap().iter().all(|row| row["repeats"] == 5);
        assert!(all_measured, "{outcome}");
    }
}

#[test]
fn ranks_that_were_launched_find_each_other_and_mind_their_options() {
    let folder = Folder::new();
    folder.write("secret", "hush\n");
    let (secret, program) = (folder.path("secret"), env!("CARGO_BIN_EXE_thinwire"));
    let bench = ["bench", "collective", "--sizes", "4kB", "--repeats", "2", "--what", "barrier", "--json"];
    let launch = |options: &[&str], own: &[&str]| {
        let words = [&["launch", "-n", "4"], options, &["--", program], &bench[..], own].concat();
        let (well, out, errors) = run(&words);
        assert!(well, "{errors}");
        let (outcome, rows) = rows(&out);
        assert_eq!((rows, outcome["ranks"].as_u64()), (1, Some(4)));
        outcome
    };
    assert_eq!(launch(&[], &[])["encrypted"], false);
    let outcome = launch(&["--secret-file", secret.to_str().unwrap(), "--link", "1gbit,1ms"], &[]);
    assert_eq!((&outcome["encrypted"], &outcome["link"]), (&true.into(), &"1gbit,1ms".into()));
    // Given to the command and not to launch: the delay of a barrier shows that it was minded.
    let outcome = launch(&[], &["--link", "1gbit,20ms"]);
    assert!(outcome["rows"][0]["best_ms"].as_f64().unwrap() >= 20.0, "{outcome}");
}

#[test]
fn a_secret_of_any_bytes_encrypts_and_one_that_can_not_be_read_is_an_error() {
    let folder = Folder::new();
    let strange = std::ffi::OsStr::from_bytes(b"secret \xff\xfe");
    let path = folder.path("x").with_file_name(strange);
    std::fs::write(&path, b"\xff\xfe\xfd").unwrap();
    let bench = |name: &str, value: &std::ffi::OsStr| {
        let words = "bench collective -n 2 --sizes 4kB --repeats 2 --what barrier --json";
        let mut command = Command::new(env!("CARGO_BIN_EXE_thinwire"));
        command.args(words.split(' ')).env(name, value).output().unwrap()
    };
    for (name, value) in [("THINWIRE_SECRET", strange), ("THINWIRE_SECRET_FILE", path.as_os_str())] {
        let output = bench(name, value);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        let (outcome, _) = rows(std::str::from_utf8(&output.stdout).unwrap());
        assert_eq!(outcome["encrypted"], true, "{name}");
        // The tag of a record shows on the wire: a barrier of two is an envelope of 40 bytes.
        assert!(outcome["rows"][0]["sent"].as_u64().unwrap() > 40, "{name}: {outcome}");
    }
    let missing = path.with_file_name(std::ffi::OsStr::from_bytes(b"none \xff"));
    let output = bench("THINWIRE_SECRET_FILE", missing.as_os_str());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{errors}");
    assert!(errors.contains("THINWIRE_SECRET_FILE") && errors.contains("No such file"), "{errors}");
}

#[test]
fn steps_are_measured_on_ranks() {
    for backend in ["tcp", "local"] {
        let words = format!(
            "bench step -n 3 --elements 10000 --steps 2 --methods dense,topk,iwp:leaders=2 --backend {backend}"
        );
        let (outcome, rows) = rows(&Folder::new().json(&words).to_string());
        assert_eq!((rows, outcome["ranks"].as_u64()), (3, Some(3)));
    }
}

#[test]
fn mistakes_are_told_once_with_what_would_be_right() {
    let folder = Folder::new();
    folder.write("empty", "");
    for (words, parts) in [
        ("--link fast", ["--link is \"fast\"", "100mbit"]),
        ("--link @none", ["none", "No such file"]),
        ("--deadline 0", ["--deadline is \"0\"", "more than 0"]),
        ("--deadline=-3", ["--deadline is \"-3\"", "more than 0"]),
        ("--deadline=nan", ["--deadline is \"NaN\"", "more than 0"]),
        ("--secret-file none", ["can't read none", "No such file"]),
        ("--secret-file empty", ["--secret-file is", "not empty"]),
        ("--grace=-1", ["--grace -1", "0 seconds or more"]),
        ("--port 0", ["--port is \"0\"", "1 to 65535"]),
    ] {
        let bench = format!("bench collective -n 3 --sizes 4kB --repeats 1 {words}");
        for command in [bench, format!("launch -n 3 {words} -- true")] {
            let errors = folder.error(&command);
            assert_eq!(errors.matches("error:").count(), 1, "{command}: {errors}");
            for part in parts {
                assert!(errors.contains(part), "{command}: expected {part:?} in {errors}");
            }
        }
    }
    let errors = folder.error("bench step -n 3 --elements 1000 --methods dense,tipk");
    assert!(errors.matches("error:").count() == 1, "{errors}");
    assert!(errors.contains("unknown method \"tipk\"") && errors.contains("topk"), "{errors}");
    let errors = folder.error("bench step -n 3 --elements 1000 --methods topk:density=7");
    assert!(errors.matches("error:").count() == 1 && errors.contains("density=7"), "{errors}");
    for command in ["bench collective -n 0", "launch -n 0 -- true"] {
        assert!(folder.error(command).contains("--ranks 0: give 1 to 1024"), "{command}");
    }
    let errors = folder.error("bench collective -n 3 --backend local --link 1gbit");
    assert!(errors.contains("--link 1gbit") && errors.contains("tcp"), "{errors}");
}
