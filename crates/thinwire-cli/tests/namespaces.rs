//! The imitated link against a real one: network namespaces with `tc tbf` between them.
//!
//! Needs root and iproute2, so it is run by name: `./test root`.

use std::path::Path;
use std::process::Command;

/// Runs the program, behind `before` if that is not empty; gives the best time of each row in milliseconds. On a real
/// link acknowledgements stand in a queue with data, which makes a round up to a quarter longer now and then.
fn best_times(before: &[&str], options: &[&str]) -> Vec<f64> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = env!("CARGO_BIN_EXE_thinwire");
    let words: Vec<&str> =
        before.iter().chain(&[program, "bench", "collective", "--json"]).chain(options).copied().collect();
    let done = Command::new(words[0]).args(&words[1..]).current_dir(root).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    let outcome: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let rows = outcome["rows"].as_array().unwrap();
    rows.iter().map(|row| row["best_ms"].as_f64().unwrap()).collect()
}

#[test]
#[ignore = "needs root: ./test root"]
fn an_imitated_link_takes_the_time_of_a_real_one() {
    for (rate, sizes) in [("100mbit", "1MB,4MB"), ("1gbit", "4MB,25MB")] {
        let what = [
            "--what",
            "all-reduce,all-gather,broadcast",
            "--algorithms",
            "ring",
            "--sizes",
            sizes,
            "--repeats",
            "8",
        ];
        let real = best_times(&["bench/namespaces", "-n", "4", "-r", rate, "--"], &what);
        let imitated = best_times(&[], &[&what[..], &["-n", "4", "--link", rate]].concat());
        println!("{rate}: real {real:.1?} ms, imitated {imitated:.1?} ms");
        for (real, imitated) in real.iter().zip(&imitated) {
            let ratio = imitated / real;
            assert!((0.9..=1.1).contains(&ratio), "{rate}: {imitated:.1} ms imitated, {real:.1} ms real");
        }
    }
}
