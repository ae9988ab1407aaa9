//! `thinwire report`.

use crate::TINY;
use crate::common::Folder;

#[test]
fn one_run_and_several() {
    let folder = Folder::new();
    for (name, words) in [("a", "--method dense"), ("b", "--method topk"), ("c", "--method topk --seed 2")] {
        folder.text(&format!("train {TINY} --run {name} {words}"));
    }
    std::fs::remove_file(folder.path("a/report.html")).unwrap();
    let text = folder.text("report a");
    assert!(text.contains("dense") && text.ends_with("report  a/report.html\n"), "{text}");
    let report = String::from_utf8(folder.read("a/report.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("mlp:hidden=16 on digits"));

    let text = folder.text("report a b c --target 10% --title Three");
    assert!(text.ends_with("report  report.html\n") && text.contains("time to 10.00 %"), "{text}");
    let report = String::from_utf8(folder.read("report.html")).unwrap();
    assert!(report.contains("Three") && report.contains("topk") && report.contains("dense"));

    let outcome = folder.json("report a b/metrics.jsonl c -o all.html");
    assert_eq!(outcome["report"], "all.html");
    let rows: Vec<(&str, u64)> = outcome["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["runs"].as_u64().unwrap()))
        .collect();
    // Runs that differ in their seed alone are one row.
    assert_eq!(rows, [("dense", 1), ("topk", 2)]);
    assert_eq!(folder.files(), ["a", "all.html", "b", "c", "report.html"]);
}

#[test]
fn what_is_missing_or_damaged_is_named() {
    let folder = Folder::new();
    folder.text(&format!("train {TINY} --run r"));
    std::fs::remove_file(folder.path("r/report.html")).unwrap();
    std::fs::create_dir(folder.path("empty")).unwrap();
    let errors = folder.error("report empty");
    assert!(errors.contains("empty/metrics.jsonl") && errors.contains("No such file"), "{errors}");
    let errors = folder.error("report r nowhere");
    assert!(errors.contains("nowhere"), "{errors}");

    let text = String::from_utf8(folder.read("r/metrics.jsonl")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[6] = "{\"event\":\"step\",\"step\":\"five\"}";
    folder.write("r/metrics.jsonl", lines.join("\n") + "\n");
    let output = folder.run("report r");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && errors.contains("r/metrics.jsonl: line 7 can't be read: "),
        "{errors}"
    );
    assert!(folder.path("r/report.html").exists());
    // The first line describes the run; without it the file is an error.
    folder.write("r/metrics.jsonl", &text[10..]);
    assert!(folder.error("report r").contains("no run has begun; line 1 can't be read: "));

    // Half a line at the end is what a run leaves that is killed: it is read up to there.
    folder.write("r/metrics.jsonl", &text[..text.len() - 20]);
    assert!(folder.text("report r").contains("ar-topk"));
    folder.write("r/metrics.jsonl", "");
    assert!(folder.error("report r").contains("no run has begun"));
}

#[test]
fn accuracies_and_perplexities_do_not_go_together() {
    let folder = Folder::new();
    folder.write("book.txt", "A line of a book that is long enough.\n".repeat(100));
    folder.text(&format!("train {TINY} --run images"));
    let words = "--data book.txt --model lstm:width=4,hidden=8 -n 2 --batch 2 --epochs 0.2 --probes 0";
    folder.text(&format!("train {words} --run text"));
    let errors = folder.error("report images text");
    assert!(errors.contains("text: its model is measured by perplexity"), "{errors}");
}
