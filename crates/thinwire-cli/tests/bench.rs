//! `thinwire bench select` on a small gradient: what it counts, not how long it takes.

mod common;

use common::Folder;

#[test]
fn every_selector_is_measured_on_every_number_of_threads() {
    let outcome = Folder::new()
        .json("bench select --elements 100003 --density 0.01 --threads 1,2 --steps 3 --warmup 4");
    let rows = outcome["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 11);
    for row in rows {
        let name = row["selector"].as_str().unwrap();
        assert!(row["median_ms"].as_f64().unwrap() > 0.0 && row["ratio"].as_f64().unwrap() > 0.0, "{name}");
        if name == "r += g" {
            continue;
        }
        let (asked, least, most) = (
            row["asked"].as_f64().unwrap(),
            row["kept_least"].as_f64().unwrap(),
            row["kept_most"].as_f64().unwrap(),
        );
        assert!(
            least >= (2.0 * asked / 3.0).floor() && most <= (4.0 * asked / 3.0).ceil(),
            "{name}: {least}-{most}"
        );
    }
    assert!((5.0..12.0).contains(&outcome["codec"]["index_bits"].as_f64().unwrap()));
}

#[test]
fn the_table_names_the_columns() {
    let text = Folder::new().text("bench select --elements 1000 --threads 1 --steps 1 --warmup 0");
    for word in ["exact top-k", "gaussian-k", "× r += g", "allocations", "memory"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}

#[test]
fn senseless_sizes_are_refused() {
    for (words, expected) in [
        ("--elements 0", "at least 1"),
        ("--elements 5000000000", "at most 4294967295"),
        ("--density 0", "above 0"),
        ("--density 1.5", "up to 1"),
        ("--steps 0", "at least 1"),
        ("--threads 0", "1 or more"),
    ] {
        let output = Folder::new().run(&format!("bench select {words}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(errors.contains(expected), "{words}: {errors}");
    }
}
