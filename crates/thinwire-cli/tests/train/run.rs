//! What a run prints and leaves behind.

use serde_json::Value;
use thinwire_train::event::{self, Event};

use crate::common::Folder;
use crate::{TINY, names, summary, weights};

#[test]
fn a_run_prints_a_summary_and_leaves_its_record() {
    let folder = Folder::new();
    let text = folder.text("train --epochs 2");
    for part in
        ["result      accuracy ", "bytes sent  ", "wire ratio  ", " for 46 steps", "stages  ", "exchange  "]
    {
        assert!(text.contains(part), "expected {part:?} in {text}");
    }
    let run = "runs/digits-cnn-ar-topk";
    assert!(text.contains(&format!("report      {run}/report.html\n")), "{text}");
    assert_eq!(folder.files(), ["runs"]);
    let files =
        ["metrics.jsonl", "report.html", "summary.json", "worker-1.log", "worker-2.log", "worker-3.log"];
    assert_eq!(names(&folder.path(run)), files);
    let report = String::from_utf8(folder.read(&format!("{run}/report.html"))).unwrap();
    assert!(report.contains("<svg") && report.trim_end().ends_with("</html>"));
    let log = String::from_utf8(folder.read(&format!("{run}/worker-3.log"))).unwrap();
    assert!(log.starts_with("worker 3, process ") && log.contains("Evaluation {"), "{log}");
    the_record_adds_up(&folder, run);
    // Another run has another folder.
    folder.text("train --epochs 0.1 --model mlp:hidden=16 --probes 0");
    folder.text("train --epochs 0.1 --model mlp:hidden=16 --probes 0");
    let runs = ["digits-cnn-ar-topk", "digits-mlp-ar-topk", "digits-mlp-ar-topk-2"];
    assert_eq!(names(&folder.path("runs")), runs);
}

fn the_record_adds_up(folder: &Folder, run: &str) {
    let events = event::read(&folder.path(run).join("metrics.jsonl")).unwrap();
    let (Some(Event::Run(about)), Some(Event::End(end))) = (events.first(), events.last()) else {
        panic!("a record begins with the run and ends with its end: {events:?}");
    };
    assert_eq!((about.workers, about.steps, about.steps_per_epoch), (4, 46, 23));
    assert_eq!((about.data.as_str(), about.group.as_str(), about.resumed_at), ("digits", "tcp", 0));
    let sizes = about.buckets.iter().flatten().map(|(_, shape)| shape.iter().product::<usize>());
    assert_eq!(about.parameters, sizes.sum::<usize>());
    let (mut steps, mut sent, mut dense_bytes, mut elapsed, mut looks) = (0, 0, 0, 0.0, [0; 3]);
    let mut measured = Vec::new();
    for event in &events {
        match event {
            Event::Step(step) => {
                assert_eq!((step.step, step.skipped), (steps, false));
                assert!(step.loss.is_finite() && step.sent > 0 && step.received > 0, "{step:?}");
                assert!(step.elements == about.parameters && step.kept > 0, "{step:?}");
                let times = &step.times;
                let parts = times.data + times.forward + times.backward + times.copy + times.optimizer;
                assert!(parts + times.wait <= times.total * 1.001, "{step:?}");
                elapsed += times.total;
                assert!((step.elapsed - elapsed).abs() < 1e-6, "{step:?}");
                (steps, sent, dense_bytes) = (steps + 1, sent + step.sent, dense_bytes + step.dense_bytes);
            }
            Event::Evaluation(evaluation) => {
                assert_eq!((evaluation.step, evaluation.sent), (steps, sent));
                measured.push(evaluation.value);
            }
            Event::Distribution(_) => looks[0] += 1,
            Event::FillIn(_) => looks[1] += 1,
            Event::Reconstruction(_) => looks[2] += 1,
            _ => {}
        }
    }
    assert_eq!((steps, dense_bytes), (end.steps, end.dense_bytes));
    // The end has the mean over the workers, which send different parts.
    assert!(end.sent.abs_diff(sent) < sent / 2, "{} {sent}", end.sent);
    assert_eq!(looks, [4; 3]);
    assert!((end.seconds - elapsed).abs() < 1e-6 && end.wall >= end.seconds);
    assert_eq!(measured.len(), 2);
    assert_eq!((end.value, end.best), (measured[1], measured[0].max(measured[1])));
    assert!((end.wire_ratio - dense_bytes as f64 / end.sent as f64).abs() < 1e-9);
    let summary = summary(folder, run);
    assert_eq!(summary["end"], serde_json::to_value(end).unwrap());
    assert_eq!(summary["run"], serde_json::to_value(about).unwrap());
}

#[test]
fn figures_are_printed_or_written_as_json() {
    let folder = Folder::new();
    let text = folder.text(&format!("train {TINY} --run here --name mine --json -"));
    // The whole of the standard output is one object.
    let outcome: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&outcome["folder"], &outcome["run"]["name"]), (&"here".into(), &"mine".into()));
    assert_eq!(outcome["end"], summary(&folder, "here")["end"]);
    let text = folder.text(&format!("train {TINY} --run there --json figures.json"));
    assert!(text.starts_with("result "), "{text}");
    let outcome: Value = serde_json::from_slice(&folder.read("figures.json")).unwrap();
    assert_eq!(outcome["end"], summary(&folder, "there")["end"]);
    assert_eq!(folder.files(), ["figures.json", "here", "there"]);
}

#[test]
fn threads_and_processes_and_links_end_with_the_same_weights() {
    let folder = Folder::new();
    folder.write("secret", "hush\n");
    for method in ["ar-topk", "redsync:density=0.02,dense_up_to=0", "fft"] {
        let words = format!("--model mlp:hidden=16 -n 2 --epochs 1 --threads 1 --method {method}");
        let wanted = weights(&folder, &words);
        for other in
            ["--group local", "--link 1gbit,100us", "--secret-file secret", "--no-overlap", "--probes 0"]
        {
            assert_eq!(weights(&folder, &format!("{words} {other}")), wanted, "{method} {other}");
        }
        assert_ne!(weights(&folder, &format!("{words} --seed 2")), wanted);
    }
}

#[test]
fn a_secret_that_others_may_read_is_warned_of_once() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("secret", "hush\n");
    std::fs::set_permissions(folder.path("secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let program = env!("CARGO_BIN_EXE_thinwire");
    let train = format!("train {TINY} --threads 1 --secret-file secret");
    let launched = format!("launch -n 2 --secret-file secret -- {program} train {TINY} --threads 1");
    for words in [train, launched] {
        let output = folder.run(&words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{errors}");
        let warnings = errors.matches("can be read or changed by other users (mode 644)").count();
        assert_eq!(warnings, 1, "{words}: {errors}");
    }
}

#[test]
fn workers_that_were_launched_train_together() {
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_thinwire");
    let text = folder.text(&format!("launch -n 2 -- {program} train {TINY} --threads 1 --run r --json -"));
    let outcome: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(outcome["run"]["workers"], 2);
    assert_eq!(outcome["end"]["weights"], weights(&folder, &format!("{TINY} --threads 1")));
}

#[test]
fn a_text_file_is_learned_from() {
    let folder = Folder::new();
    folder.write("book.txt", "In the beginning was the word, and the word was short.\n".repeat(200));
    let words = "--data book.txt --model lstm:width=8,hidden=16 -n 2 --batch 4 --lr 1 --clip 1 --epochs 1";
    let text = folder.text(&format!("train {words} --method topk --density 5% --run r"));
    assert!(text.contains("result      perplexity "), "{text}");
    let outcome = summary(&folder, "r");
    assert_eq!(
        (&outcome["run"]["measure"], &outcome["run"]["method"]),
        (&"perplexity".into(), &"topk:density=0.05".into())
    );
    // As many as the different letters would be no learning at all.
    assert!(outcome["end"]["value"].as_f64().unwrap() < 18.0, "{outcome}");
}

#[test]
fn there_is_a_list_of_what_there_is() {
    let text = Folder::new().text("train --list");
    for part in ["Models", "resnet20", "hidden=", "Data sets", "king-james", "Optimisers", "adamw"] {
        assert!(text.contains(part), "expected {part:?} in {text}");
    }
}
