//! `thinwire probe` over threads: what it finds is kept, read again and used; not how fast this machine is.

mod common;

use common::Folder;

const PROBE: &str = "probe -n 2 --backend local --methods topk,dense --elements 20000 -o probe.json";
const STEP: &str = "bench step --backend local --elements 20000 --steps 2 --warmup 1 --probe probe.json";

#[test]
fn what_was_found_is_kept_and_foretells_steps() {
    let folder = Folder::new();
    let probe = folder.json(PROBE);
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path("probe.json")).unwrap()).unwrap();
    assert_eq!(probe, kept);
    assert_eq!(probe["ranks"], 2);
    assert!(probe["network"]["latency"].as_f64().unwrap() > 0.0);
    assert!(probe["workshop"]["known"]["topk"]["element"].as_f64().unwrap() > 0.0);
    let steps = folder.json(&format!("{STEP} -n 2 --algorithm tree --methods dense,topk,ar-topk"));
    for row in steps["rows"].as_array().unwrap() {
        assert!(row["predicted_ms"].as_f64().unwrap() > 0.0, "{row}");
    }
    let table = folder.text(&format!("{STEP} -n 2 --algorithm ring --methods topk"));
    assert!(table.contains("foretold"), "{table}");
}

#[test]
fn the_tables_name_what_was_measured() {
    let text = Folder::new().text("probe -n 3 --backend local --methods topk --elements 5000");
    for word in ["3 ranks", "ring all-reduce", "tree broadcast", "Gbit/s", "topk", "ns an element"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    let text = Folder::new().text("probe -n 2 --backend local --quick");
    assert!(text.contains("latency") && text.contains("Gbit/s") && !text.contains("topk"), "{text}");
    let text = Folder::new().text("probe -n 1 --backend local --methods topk --elements 5000");
    assert!(text.contains("nothing travels"), "{text}");
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new();
    folder.text(PROBE);
    std::fs::write(folder.path("other.json"), "{}").unwrap();
    for (words, code, expected) in [
        ("probe --methods topq", 1, "topq"),
        ("probe --methods auto", 1, "auto"),
        ("probe --methods ,", 1, "at least one"),
        ("probe --elements 0", 1, "--elements 0"),
        ("probe --seconds 0", 1, "--seconds 0"),
        ("probe -o no/such/place.json", 1, "no folder"),
        ("probe --quick --methods topk", 2, "--quick"),
        (&format!("{STEP} -n 2"), 2, "--algorithm"),
        (&format!("{STEP} -n 3 --algorithm ring"), 1, "made with 2 ranks, and here are 3"),
        ("bench step --backend local --algorithm ring --probe other.json", 1, "other.json is not what"),
    ] {
        let output = folder.run(words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words}: {errors}");
        assert!(errors.contains(expected), "{words}: {errors}");
    }
}
