//! `thinwire simulate`: what it tells, and what it refuses.

mod common;

use common::Folder;
use serde_json::Value;

/// With sparse methods among the candidates, so that there is a density to search for.
const SPARSE: &str = "auto:methods=dense|dense:values=bf16|topk|ar-topk";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn error(words: &str) -> String {
    let output = Folder::new().run(words);
    assert!(!output.status.success(), "thinwire {words}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_controller_beside_the_oracle() {
    let text = Folder::new().text(&format!("simulate --schedule c2 --steps 600 --method {SPARSE}"));
    for part in [
        "25.6 M parameters in 1 bucket, 600 steps, seed 1",
        "10.0 Gbit/s 8.00 ms from step 144",
        "oracle",
        "regret",
        "after exploring",
        "the network changed: ",
        "gains measured: ",
    ] {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let seconds = |seed: u32| {
        let run = Folder::new().json(&format!("simulate --steps 100 -n 5 --stragglers 20%x2 --seed {seed}"));
        number(&run["run"]["seconds"])
    };
    assert_eq!(seconds(3), seconds(3));
    assert_ne!(seconds(3), seconds(4));
}

#[test]
fn all_fixed_methods_and_the_best_of_them_in_hindsight() {
    let setting = "-n 16 --steps 300 --params 5M --bucket 10MB";
    let found = Folder::new().json(&format!("simulate --compare {setting} --method {SPARSE}"));
    assert_eq!(found["assumed"]["buckets"], 2);
    assert_eq!(found["networks"].as_array().unwrap().len(), 4);
    let auto = number(&found["run"]["seconds"]);
    let others = found["others"].as_array().unwrap();
    let dense = others.iter().find(|other| other["name"] == "dense").unwrap();
    assert!(others.len() > 10 && auto < number(&dense["seconds"]));
    assert_eq!(number(&dense["gain"]), 1.0);
    assert!(number(&found["best_fixed"]["gain"]) >= number(&found["run"]["gain"]));
    assert!(number(&found["regret"]["exploration"]) < 0.1);
    assert!(!found["decisions"].as_array().unwrap().is_empty());
}

#[test]
fn a_fixed_method_on_a_link_takes_what_a_plan_says() {
    let folder = Folder::new();
    let setting = "--model resnet50 --workers 8 --link 1gbit,1ms --compute 120ms";
    let plan = folder.json(&format!("plan {setting}"));
    let run = folder.json(&format!("simulate {setting} --noise 0 --steps 20 --method dense"));
    let (planned, simulated) = (number(&plan["dense"]["step_seconds"]), number(&run["run"]["step_seconds"]));
    assert!((planned / simulated - 1.0).abs() < 0.02, "{planned} {simulated}");
    assert!(run["oracle"].is_null() && run["regret"].is_null());
}

#[test]
fn a_schedule_from_a_file_and_a_drawing() {
    let folder = Folder::new();
    folder.write("links.txt", "10gbit,1ms\nat step 40: 100mbit,20ms\n");
    let text = folder.text("simulate --schedule links.txt -n 4 --steps 80 --plot run.svg");
    assert!(text.contains("100 Mbit/s 20.0 ms from step 40") && text.contains("plot  run.svg"), "{text}");
    let drawing = String::from_utf8(folder.read("run.svg")).unwrap();
    for part in ["<svg", "Time of a step", "oracle", "best fixed", "100 Mbit/s 20.0 ms"] {
        assert!(drawing.contains(part), "{part}");
    }
}

#[test]
fn what_can_not_be_is_named() {
    for (words, part) in [
        ("simulate --workers 5000", "5000"),
        ("simulate --schedule c3", "c3"),
        ("simulate --stragglers 2%", "2%x3"),
        ("simulate --noise lots", "10%"),
        ("simulate --link 20ms", "1gbit,1ms"),
        ("simulate --link 1gbit,1ms --schedule c1", "cannot be used with"),
        ("simulate --method nonsense", "nonsense"),
        ("simulate --method auto:warmup=linear/5", "no epochs"),
        ("simulate --steps 0", "--steps 0"),
        ("simulate --compare --method topk", "--compare is for auto"),
        ("simulate --plot run.png", "svg"),
        ("simulate --bucket 1kB --params 100M", "buckets"),
    ] {
        let error = error(words);
        assert!(error.contains(part), "thinwire {words}\nexpected {part:?} in:\n{error}");
    }
}
