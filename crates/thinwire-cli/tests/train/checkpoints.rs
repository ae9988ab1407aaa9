//! Runs that end before their end, and go on.

use serde_json::Value;

use crate::common::Folder;
use crate::{TINY, names, weights};

#[test]
fn a_run_goes_on_from_its_checkpoint_and_its_record_with_it() {
    let folder = Folder::new();
    // All layers dense, so that both workers send as many bytes: the record has worker 0's, the end the mean.
    let words = "--model mlp:hidden=16 -n 2 --batch 32 --epochs 2 --probes 0 --method redsync:fuse_up_to=0";
    let whole = weights(&folder, words);
    folder.text(&format!("train {words} --run r --save c --save-every 0.5"));
    // The last two are kept: half an epoch before the end, and the end. Without the end, the run was stopped there.
    assert_eq!(names(&folder.path("c")), ["latest", "step-000036", "step-000046"]);
    folder.write("c/latest", "step-000036\n");
    std::fs::remove_dir_all(folder.path("c/step-000046")).unwrap();
    let text = folder.text(&format!("train {words} --run r --save c --resume c --json -"));
    let outcome: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&outcome["end"]["weights"], &outcome["run"]["resumed_at"]), (&whole.into(), &36.into()));
    assert_eq!(outcome["end"]["steps"], 46);
    // What was done twice is in the report once.
    let report = folder.json("report r");
    assert_eq!(report["methods"][0]["sent_mean"], outcome["end"]["sent"].as_f64().unwrap());
    let record = thinwire_train::report::Recorded::read(&folder.path("r")).unwrap();
    let sent: u64 = record.steps.iter().map(|step| step.sent).sum();
    assert_eq!((record.steps.len(), sent), (46, record.end.unwrap().sent));
    // In another folder there is what came after.
    folder.text(&format!("train {words} --run s --resume c/step-000036"));
    assert_eq!(thinwire_train::report::Recorded::read(&folder.path("s")).unwrap().steps.len(), 10);
}

#[test]
fn other_settings_and_damaged_files_are_refused_once() {
    let folder = Folder::new();
    folder.text(&format!("train {TINY} --run r --save c"));
    let resume = format!("train {TINY} --resume c");
    let one = |words: &str, parts: &[&str]| {
        let errors = folder.error(words);
        assert_eq!(errors.matches("error:").count(), 1, "{words}: {errors}");
        assert!(parts.iter().all(|part| errors.contains(part)), "{words}: expected {parts:?} in {errors}");
    };
    one(&format!("{resume} --batch 17"), &["batch 17", "c/step-", "with batch 16"]);
    one(&format!("{resume} --seed 3"), &["seed 3", "with seed 1"]);
    one(&format!("{resume} --method topk"), &["method topk", "with method ar-topk"]);
    one(&resume.replace("-n 2", "-n 3"), &["workers 3", "with workers 2"]);
    let step = names(&folder.path("c")).into_iter().find(|name| name.starts_with("step-")).unwrap();
    for name in ["shared.safetensors", "worker-1.safetensors", "checkpoint.json"] {
        let file = format!("c/{step}/{name}");
        let good = folder.read(&file);
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        folder.write(&file, &bad);
        one(&resume, &[&file]);
        folder.write(&file, &good);
    }
    assert_eq!(folder.files(), ["c", "r"]);
}

/// The steps of a record, as their numbers.
fn steps(folder: &Folder, run: &str) -> Vec<u64> {
    let recorded = thinwire_train::report::Recorded::read(&folder.path(run)).unwrap();
    recorded.steps.iter().map(|step| step.step).collect()
}

#[test]
fn a_run_made_longer_keeps_its_record() {
    let folder = Folder::new();
    let words = "--model mlp:hidden=16 -n 2 --batch 32 --probes 0 --run r --save c";
    folder.text(&format!("train {words} --epochs 1"));
    let first = folder.read("r/metrics.jsonl");
    folder.text(&format!("train {words} --epochs 2 --resume c --evaluate-every 0.5"));
    assert!(folder.read("r/metrics.jsonl").starts_with(&first), "what was recorded is still there");
    assert_eq!(steps(&folder, "r"), (0..46).collect::<Vec<u64>>());
    assert_eq!(folder.json("report r")["methods"][0]["runs"], 1);
    // The logs of the other workers go on too.
    let log = String::from_utf8(folder.read("r/worker-1.log")).unwrap();
    assert_eq!(log.matches("worker 1, process ").count(), 2, "{log}");
}

#[test]
fn a_damaged_line_costs_that_line_alone() {
    let folder = Folder::new();
    let words =
        "--model mlp:hidden=16 -n 2 --batch 32 --epochs 1 --probes 0 --run r --save c --save-every 0.5";
    folder.text(&format!("train {words}"));
    folder.write("c/latest", "step-000012\n");
    let mut lines: Vec<Vec<u8>> =
        folder.read("r/metrics.jsonl").split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    // The event of step 5, and of one that is done again.
    lines[6][10] ^= 1;
    lines[20].truncate(9);
    let damaged = lines.join(&b'\n');
    folder.write("r/metrics.jsonl", &damaged);
    folder.text(&format!("train {words} --resume c"));
    assert!(folder.read("r/metrics.jsonl").starts_with(&damaged), "what was recorded is still there");
    let expected: Vec<u64> = (0..23).filter(|step| *step != 5).collect();
    assert_eq!(steps(&folder, "r"), expected);
    let output = folder.run("report r");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && errors.contains("2 lines can't be read, the first of them line 7"),
        "{errors}"
    );
    // The first line describes the run. A file without it is kept under another name.
    folder.write("r/metrics.jsonl", &damaged[30..]);
    folder.write("c/latest", "step-000012\n");
    let output = folder.run(&format!("train {words} --resume c"));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("an earlier record is kept as r/metrics-1.jsonl"), "{errors}");
    assert_eq!(folder.read("r/metrics-1.jsonl"), damaged[30..]);
    assert_eq!(steps(&folder, "r"), (12..23).collect::<Vec<u64>>());
}

#[test]
fn the_record_of_another_run_is_kept_beside() {
    let folder = Folder::new();
    folder.text(&format!("train {TINY} --run r --save c"));
    folder.text(&format!("train {TINY} --seed 2 --run s --save d"));
    let first = folder.read("r/metrics.jsonl");
    folder.text(&format!("train {TINY} --seed 2 --run r --resume d"));
    assert_eq!(folder.read("r/metrics-1.jsonl"), first);
    // One that was interrupted is begun anew: what it had recorded is kept as well.
    let interrupted = first[..first.len() - 30].to_vec();
    folder.write("r/metrics.jsonl", &interrupted);
    folder.text(&format!("train {TINY} --run r"));
    assert_eq!((folder.read("r/metrics-1.jsonl"), folder.read("r/metrics-2.jsonl")), (first, interrupted));
    assert_eq!(names(&folder.path("r")).iter().filter(|name| name.starts_with("metrics")).count(), 3);
    assert_eq!(folder.json("report r")["methods"][0]["runs"], 1);
}

/// Looks into `/proc`.
#[cfg(target_os = "linux")]
mod killed {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// The workers of a launcher, with their ranks: children of its supervisor.
    fn workers(launcher: u32) -> Vec<(usize, u32)> {
        let supervisor = children(launcher).into_iter().next().map_or(0, |(supervisor, _)| supervisor);
        let mut found: Vec<(usize, u32)> = children(supervisor)
            .into_iter()
            .filter_map(|(pid, environment)| {
                let rank =
                    environment.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(b"RANK="))?;
                Some((std::str::from_utf8(rank).ok()?.parse().ok()?, pid))
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// The processes that `parent` has started, with their environments.
    fn children(parent: u32) -> Vec<(u32, Vec<u8>)> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let child = |entry: std::fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            // Processes come and go meanwhile.
            let about = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            // After the name, in brackets: the state and the parent.
            let above = about.rsplit(')').next()?.split_whitespace().nth(1)?;
            (above == parent.to_string()).then_some((pid, environment))
        };
        entries.filter_map(child).collect()
    }

    fn wait(what: &str, mut until: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !until() {
            assert!(begun.elapsed() < Duration::from_secs(60), "waited too long for {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The run is ended whatever the test finds.
    struct Started(Child);

    impl Drop for Started {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_worker_that_is_killed_is_named_and_the_run_goes_on_from_its_last_checkpoint() {
        let folder = Folder::new();
        let words = "--model cnn:width=4 -n 3 --epochs 3 --probes 0 --method topk:density=0.05";
        let whole = weights(&folder, words);
        // Over a slow link, so that it does not end before it is killed.
        let slow = format!("train {words} --run r --save c --save-every 0.25 --link 1gbit,50ms");
        let mut command = Command::new(env!("CARGO_BIN_EXE_thinwire"));
        command.args(slow.split_whitespace()).current_dir(folder.path(""));
        let errors = std::fs::File::create(folder.path("errors")).unwrap();
        let mut run = Started(command.stdout(Stdio::null()).stderr(errors).spawn().unwrap());
        wait("a checkpoint", || folder.path("c/latest").exists());
        let workers = workers(run.0.id());
        assert_eq!(workers.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 2]);
        let victim = workers[1].1.to_string();
        assert!(Command::new("kill").args(["-9", &victim]).status().unwrap().success());

        let killed = Instant::now();
        wait("the end of the others", || run.0.try_wait().unwrap().is_some());
        assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
        assert_eq!(run.0.wait().unwrap().code(), Some(1));
        for (rank, pid) in &workers {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "worker {rank} is left");
        }
        let errors = String::from_utf8(folder.read("errors")).unwrap();
        assert!(errors.contains("rank 1 ended with signal: 9"), "{errors}");
        // Worker 0 says so, and the others in their logs.
        let lost = errors.lines().filter(|line| line.starts_with("error: ") && line.contains("rank 1"));
        assert_eq!(lost.count(), 2, "{errors}");
        let log = String::from_utf8(folder.read("r/worker-2.log")).unwrap();
        assert!(log.lines().any(|line| line.starts_with("error: ") && line.contains("rank 1")), "{log}");
        assert!(!errors.contains("panicked"), "{errors}");

        // What was recorded can be looked at.
        let report = folder.text("report r");
        assert!(report.contains("topk:density=0.05"), "{report}");
        assert!(!folder.path("r/summary.json").exists());
        let text = folder.text(&format!("train {words} --run r --save c --resume c --json -"));
        let outcome: Value = serde_json::from_str(&text).unwrap();
        let resumed_at = outcome["run"]["resumed_at"].as_u64().unwrap();
        assert!((8..93).contains(&resumed_at), "{resumed_at}");
        assert_eq!(outcome["end"]["weights"], whole);
        assert_eq!(outcome["end"]["steps"], 93);
    }
}
