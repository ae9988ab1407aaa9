//! `thinwire compare`.

use std::time::SystemTime;

use crate::common::Folder;
use crate::names;

const COMPARE: &str = "compare --model mlp:hidden=16 -n 2 --epochs 1 --probes 0 --seeds 1,2 -o out";
const METHODS: &str = "--method dense --method topk:density=0.05";
const RUNS: [&str; 4] = ["dense-seed1", "dense-seed2", "topk-density-0.05-seed1", "topk-density-0.05-seed2"];

/// The records of all runs, and when they were written.
fn records(folder: &Folder) -> Vec<(Vec<u8>, SystemTime)> {
    let record = |run: &&str| {
        let name = format!("out/{run}/metrics.jsonl");
        (folder.read(&name), folder.path(&name).metadata().unwrap().modified().unwrap())
    };
    RUNS.iter().map(record).collect()
}

#[test]
fn methods_and_seeds_are_compared_once() {
    let folder = Folder::new();
    let text = folder.text(&format!("{COMPARE} {METHODS} --target 20% --json figures.json"));
    assert!(text.contains("topk:density=0.05") && text.contains("report  out/report.html"), "{text}");
    assert_eq!(names(&folder.path("out")), [&RUNS[..2], &["report.html"], &RUNS[2..]].concat());
    let figures: serde_json::Value = serde_json::from_slice(&folder.read("figures.json")).unwrap();
    let rows = figures["methods"].as_array().unwrap();
    let methods: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(methods, ["dense", "topk:density=0.05"]);
    for row in rows {
        assert_eq!(row["runs"], 2, "{row}");
        assert!(row["value_mean"].as_f64().unwrap() > 0.2 && row["value_spread"].is_number(), "{row}");
        assert_eq!(row["reached"], 2, "{row}");
    }
    assert!(rows[1]["wire_ratio"].as_f64() > Some(5.0), "{}", rows[1]);
    let runs = figures["runs"].as_array().unwrap();
    let seeds: Vec<u64> = runs.iter().map(|run| run["end"]["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [1, 1, 2, 2]);
    let weights: Vec<u64> = runs.iter().map(|run| run["end"]["weights"].as_u64().unwrap()).collect();
    assert!(weights.iter().enumerate().all(|(number, one)| !weights[..number].contains(one)), "{weights:?}");

    // Nothing is trained twice.
    let before = records(&folder);
    let output = folder.run(&format!("{COMPARE} {METHODS} --json -"));
    assert!(output.status.success());
    let again: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(again["runs"], figures["runs"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("run "), "{output:?}");
    assert!(records(&folder) == before);

    // But what was interrupted is, and what is new.
    let name = format!("out/{}/metrics.jsonl", RUNS[1]);
    let text = String::from_utf8(folder.read(&name)).unwrap();
    let end = text.find("{\"event\":\"end\"").unwrap();
    folder.write(&name, &text[..end]);
    let output = folder.run(&format!("{COMPARE} {METHODS} --method ar-topk --json -"));
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{notes}");
    assert_eq!(notes.matches("run ").count(), 3, "{notes}");
    assert!(notes.contains(": dense, seed 2") && notes.contains(": ar-topk, seed 1"), "{notes}");
    let after = records(&folder);
    assert!(after[0] == before[0] && after[1] != before[1] && after[2..] == before[2..]);
    other_settings_are_refused(&folder);
    assert!(records(&folder) == after);
}

fn other_settings_are_refused(folder: &Folder) {
    for (words, parts) in [
        ("--epochs 2", ["--epochs was \"1\" and is \"2\" now", "out/dense-seed1"]),
        ("--batch 8", ["--batch was \"16\" and is \"8\" now", "another --output"]),
        ("--lr 0.1", ["--lr was \"0.05\" and is \"0.1\" now", "another --output"]),
        (
            "--model mlp:hidden=17",
            ["--model was \"mlp:hidden=16\" and is \"mlp:hidden=17\" now", "another --output"],
        ),
        ("--clip 1", ["--clip was \"0\" and is \"1\" now", "another --output"]),
        ("--lr-warmup 0.5", ["--lr-warmup was \"0\" and is \"0.5\" now", "another --output"]),
        ("--no-overlap", ["--overlap was \"true\" and is \"false\" now", "another --output"]),
        ("--workers 3", ["--workers was \"2\" and is \"3\" now", "another --output"]),
    ] {
        let mut all: Vec<&str> = COMPARE.split_whitespace().collect();
        // An option is given once.
        if let Some(at) = all.iter().position(|word| words.starts_with(&format!("{word} "))) {
            all.drain(at..at + 2);
        }
        let command = all.join(" ").replace("-n 2", if words.contains("workers") { "" } else { "-n 2" });
        let errors = folder.error(&format!("{command} {METHODS} {words}"));
        assert!(parts.iter().all(|part| errors.contains(part)), "{words}: expected {parts:?} in {errors}");
    }
}

#[test]
fn mistakes_are_told_before_the_first_run() {
    let folder = Folder::new();
    for (words, part) in [
        ("--method dense --method nope", "gaussian-k"),
        ("--method dense --method topk:density=7", "density=7"),
        ("--data nope", "king-james"),
        ("--target -1", "88%"),
        ("--group mpi", "--group tcp or local"),
    ] {
        let output = folder.run(&format!("compare --epochs 1 -o out {words}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(part), "{words}: expected {part:?} in {errors}");
        assert_eq!(errors.matches("error:").count(), 1, "{words}: {errors}");
        assert!(folder.files().is_empty(), "{words}: {:?}", folder.files());
    }
}
