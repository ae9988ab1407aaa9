//! `thinwire plan`: what it tells, and what it refuses.

mod common;

use common::Folder;
use serde_json::Value;

const RESNET: &str = "plan --model resnet50 --workers 8 --link 1gbit,1ms";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn offers(plan: &Value) -> &[Value] {
    plan["offers"].as_array().unwrap()
}

/// The error of a wrong use of the program.
fn misuse(words: &str) -> String {
    let output = Folder::new().run(words);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "thinwire {words}\n{errors}");
    errors
}

#[test]
fn the_text_says_what_was_assumed_what_wins_and_how_far() {
    let text = Folder::new().text(RESNET);
    for part in [
        "25.6 M parameters (resnet50), 102 MB, in 1 bucket",
        "1.00 Gbit/s, 1.00 ms one way",
        "--compute 120ms adds",
        "AMD EPYC",
        "overlap   none",
        "redsync:quantize=true",
        " *",
        "straight",
        "pays below",
        "Compress: ",
        "With 1 % sent, compression pays up to",
    ] {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
    // Two that send everything, seven methods at five densities, and the lines around them.
    assert_eq!(text.lines().filter(|line| line.ends_with('x')).count(), 2 + 7 * 5);
}

#[test]
fn the_figures_agree_with_each_other() {
    let plan = Folder::new().json(&format!("{RESNET} --compute 120ms"));
    let dense = number(&plan["dense"]["step_seconds"]);
    // 2 · 7/8 of 102 MB at 1 Gbit/s, 15 hops, and a walk over memory.
    assert!((dense - (0.120 + 1.431 + 0.015 + 0.009)).abs() < 0.002, "{dense}");
    let mut least = f64::INFINITY;
    for offer in offers(&plan) {
        let (step, network, work) = (
            number(&offer["step_seconds"]),
            number(&offer["network_seconds"]),
            number(&offer["work_seconds"]),
        );
        assert!((step - 0.120 - network - work).abs() < 1e-9, "{offer}");
        assert!((number(&offer["speedup"]) - dense / step).abs() < 1e-9, "{offer}");
        assert!(number(&offer["bytes_sent"]) > 0.0);
        thinwire::method::parse(offer["spec"].as_str().unwrap()).unwrap();
        least = least.min(step);
    }
    assert_eq!(number(&plan["winner"]["step_seconds"]), least);
    assert_eq!(plan["pays"], true);
    let densities: Vec<f64> =
        plan["by_density"].as_array().unwrap().iter().map(|at| number(&at["density"])).collect();
    assert_eq!(densities, [0.1, 0.033, 0.011, 0.01, 0.004, 0.001]);
}

#[test]
fn the_speed_at_which_it_stops_paying_lies_where_the_plan_turns() {
    let folder = Folder::new();
    let plan = |link: &str| {
        folder
            .json(&format!("plan --params 86.6M --workers 4 --link {link},20us --density 1% --compute 50ms"))
    };
    let limit = &plan("1gbit")["by_density"][0]["pays_below"];
    assert_eq!(limit["holds"], "below", "{limit}");
    let mbit = number(&limit["bits_per_second"]) / 1e6;
    assert_eq!(plan(&format!("{:.0}mbit", 0.99 * mbit))["pays"], true);
    let above = plan(&format!("{:.0}mbit", 1.01 * mbit));
    assert_eq!(above["pays"], false);
    assert!(above["winner"]["whole"].as_bool().unwrap());
    let fast = plan("400gbit");
    assert!(fast["advice"].as_str().unwrap().starts_with("Send dense"), "{}", fast["advice"]);
}

#[test]
fn more_bandwidth_and_less_latency_are_never_slower() {
    let folder = Folder::new();
    let steps = |link: &str| -> Vec<(String, f64)> {
        let plan = folder.json(&format!("plan --params 5M --workers 6 --link {link} --all"));
        let mut steps: Vec<(String, f64)> = offers(&plan)
            .iter()
            .map(|offer| {
                (format!("{} {}", offer["spec"], offer["collective"]), number(&offer["step_seconds"]))
            })
            .collect();
        steps.sort_by(|one, other| one.0.cmp(&other.0));
        steps
    };
    let links = ["10mbit,20ms", "10mbit,1ms", "100mbit,1ms", "1gbit,1ms", "1gbit", "50gbit"];
    let all: Vec<_> = links.iter().map(|link| steps(link)).collect();
    for pair in all.windows(2) {
        for ((name, slow), (same, fast)) in pair[0].iter().zip(&pair[1]) {
            assert_eq!(name, same);
            assert!(slow >= fast, "{name}: {slow} {fast}");
        }
    }
}

#[test]
fn buckets_devices_and_lists_change_what_they_say() {
    let folder = Folder::new();
    let one = folder.json("plan --model vgg16 --workers 8 --link 10gbit,1ms");
    let many = folder.json("plan --model vgg16 --workers 8 --link 10gbit,1ms --bucket 25MB");
    assert_eq!((&one["assumed"]["buckets"], &many["assumed"]["buckets"]), (&1.into(), &23.into()));
    assert!(number(&many["dense"]["step_seconds"]) > number(&one["dense"]["step_seconds"]) + 22.0 * 0.007);
    let gpu = folder.json("plan --model vgg16 --workers 8 --link 10gbit,1ms --device gpu");
    assert!(number(&gpu["winner"]["work_seconds"]) < 0.1 * number(&one["winner"]["work_seconds"]));
    let few = folder.json("plan --params 1M --workers 2 --link 1gbit");
    assert!(few["assumed"]["model"].is_null());
    let listed = folder.json(&format!("{RESNET} --methods topk:values=f16;scope=layer,iwp --density 1/64"));
    let specs: Vec<&str> = offers(&listed).iter().map(|offer| offer["spec"].as_str().unwrap()).collect();
    assert_eq!(specs.len(), 3);
    assert!(specs.contains(&"dense") && specs.contains(&"iwp:density=0.015625"), "{specs:?}");
}

#[test]
fn a_probe_stands_for_network_workers_and_machine() {
    let folder = Folder::new();
    let network = r#"{"latency": 0.001, "seconds_per_byte": 8e-9}"#;
    let names = ["ring-sum", "tree-sum", "ring-gather", "straight-gather", "chain-cast", "tree-cast"];
    let found = names.map(|name| {
        let bytes = if name.ends_with("sum") { "16e-9" } else { "8e-9" };
        format!(r#"{{"collective": "{name}", "latency": 0.001, "seconds_per_byte": {bytes}, "samples": []}}"#)
    });
    let found = found.join(", ");
    let probe = |workshop: &str| {
        format!(
            r#"{{"ranks": 8, "network": {network}, "more": [1, 2],
                "wire": {{"found": [{found}]}},
                "workshop": {{"known": {{"topk": {workshop}}}}}}}"#
        )
    };
    folder.write("probe.json", probe(r#"{"element": 1e-9, "kept": 0, "received": 0}"#));
    let probed = folder.json("plan --model resnet50 --probe probe.json --methods topk");
    assert_eq!((&probed["assumed"]["workers"], &probed["assumed"]["device"]), (&8.into(), &"probe".into()));
    let plain = folder.json(&format!("{RESNET} --methods topk"));
    let network = |plan: &Value| number(&plan["dense"]["network_seconds"]);
    assert!(network(&probed) > 1.9 * network(&plain));
    let other = folder.json("plan --model resnet50 --probe probe.json --workers 2 --link 100mbit,1ms");
    assert_eq!(other["assumed"]["workers"], 2);
    assert_eq!(number(&other["assumed"]["bits_per_second"]), 1e8);

    folder.write("probe.json", probe(r#"{"element": -1, "kept": 0, "received": 0}"#));
    let error = folder.error("plan --model resnet50 --probe probe.json --methods topk");
    assert!(
        error.contains("probe.json") && error.contains("-1 s of work") && error.contains("topk"),
        "{error}"
    );
    folder.write("probe.json", r#"{"ranks": 8}"#);
    let error = folder.error("plan --model resnet50 --probe probe.json");
    assert!(
        error.contains("probe.json") && error.contains("thinwire probe") && error.contains("network"),
        "{error}"
    );
    let error = folder.error("plan --model resnet50 --probe none.json");
    assert!(error.contains("can't read none.json"), "{error}");
    assert!(misuse("plan --model resnet50 --probe p.json --device gpu").contains("cannot be used with"));
}

#[test]
fn the_plot_is_a_drawing_of_its_own() {
    let folder = Folder::new();
    let text = folder.text(&format!("{RESNET} --plot plan.svg"));
    assert!(text.ends_with("plot  plan.svg\n"), "{text}");
    let drawing = String::from_utf8(folder.read("plan.svg")).unwrap();
    for part in [
        "<svg xmlns=",
        "resnet50 on 8 workers",
        "Time of a step",
        "Speed-up over dense",
        "1 % sent",
        "pays up to",
    ] {
        assert!(drawing.contains(part), "{part}");
    }
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
    folder.json("plan --params 1M -n 300 --link 500gbit --density 0.5,0.2 --plot other.svg");
    let drawing = String::from_utf8(folder.read("other.svg")).unwrap();
    assert!(drawing.contains("50 % sent") && !drawing.contains("0.1 % sent"));
    let error = folder.error(&format!("{RESNET} --plot plan.png"));
    assert!(error.contains("plan.png") && error.contains(".svg"), "{error}");
    let error = folder.error(&format!("{RESNET} --plot none/plan.svg"));
    assert!(error.contains("there is no folder none"), "{error}");
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    for (words, parts) in [
        ("--workers 8 --link 1gbit", &["--params", "--model"][..]),
        ("--params 1M --model gpt2 --workers 8 --link 1gbit", &["cannot be used with"]),
        ("--params many --workers 8 --link 1gbit", &["\"many\"", "25.6M"]),
        ("--model resnet51 --workers 8 --link 1gbit", &["resnet51", "resnet50", "llama-7b", "--params"]),
        ("--params 1M --link 1gbit", &["--workers"]),
        ("--params 1M --workers 8", &["--link"]),
        ("--params 1M --workers 1 --link 1gbit", &["1", "2.."]),
        ("--params 1M --workers 8 --link 5ms", &["5ms", "1gbit,1ms"]),
        ("--params 1M --workers 8 --link fast", &["fast", "100mbit,5ms"]),
        ("--params 1M --workers 8 --link 1gbit --compute 120", &["120", "120ms"]),
        ("--params 1M --workers 8 --link 1gbit --density 0.1,2", &["'2'", "above 0 and up to 1"]),
        ("--params 1M --workers 8 --link 1gbit --device tpu", &["tpu", "cpu, gpu"]),
        ("--params 1M --workers 8 --link 1gbit --bucket big", &["big", "500MB"]),
    ] {
        let error = misuse(&format!("plan {words}"));
        assert!(parts.iter().all(|part| error.contains(part)), "{words}: {error}");
    }
    let folder = Folder::new();
    for (words, parts) in [
        ("--methods topq", &["--methods topq", "gaussian-k"][..]),
        ("--methods topk:density=0.01", &["density", "--density"]),
        ("--methods auto", &["auto"]),
        ("--methods ,", &["at least one"]),
        ("--bucket 3", &["--bucket 3", "at least 4"]),
    ] {
        let error = folder.error(&format!("{RESNET} {words}"));
        assert!(parts.iter().all(|part| error.contains(part)), "{words}: {error}");
    }
}
