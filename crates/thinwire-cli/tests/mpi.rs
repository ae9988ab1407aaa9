//! `thinwire train --group mpi`, on workers that `mpirun` starts.

#![cfg(feature = "mpi")]

mod common;

use std::process::{Command, Output, Stdio};

use common::Folder;
use serde_json::Value;

const TRAIN: &str = "train --model mlp:hidden=16 --epochs 1 --probes 0 --threads 1";

/// Runs `thinwire` with these words on so many ranks.
fn mpirun(folder: &Folder, ranks: usize, words: &str) -> Output {
    let version = Command::new("mpirun").arg("--version").output().expect("mpirun, Debian: openmpi-bin");
    let mut command = Command::new("mpirun");
    if String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
        command.args(["--allow-run-as-root", "--oversubscribe", "--timeout", "120"]);
        // What needs rights or a network that a container may not have.
        for (name, value) in [
            ("btl", "self,vader"),
            ("btl_vader_single_copy_mechanism", "none"),
            ("oob_tcp_if_include", "lo"),
            ("hwloc_base_binding_policy", "none"),
        ] {
            command.args(["--mca", name, value]);
        }
    }
    command.args(["-np", &ranks.to_string(), env!("CARGO_BIN_EXE_thinwire")]);
    command.args(words.split_whitespace()).current_dir(folder.path("")).stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn workers_of_mpirun_end_with_the_weights_of_threads() {
    let folder = Folder::new();
    for method in ["dense", "topk:density=0.05", "ar-topk:density=0.05"] {
        let output = mpirun(&folder, 3, &format!("{TRAIN} --method {method} --group mpi --json -"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{method}: {errors}");
        let outcome: Value = serde_json::from_slice(&output.stdout).expect("one object, of worker 0");
        let threads = folder.text(&format!("{TRAIN} --method {method} --group local -n 3 --json -"));
        let threads: Value = serde_json::from_str(&threads).unwrap();
        assert_eq!((&outcome["run"]["workers"], &outcome["run"]["group"]), (&3.into(), &"mpi".into()));
        assert_eq!(outcome["end"]["weights"], threads["end"]["weights"], "{method}");
    }
}

#[test]
fn a_mistake_ends_all_workers() {
    let output = mpirun(&Folder::new(), 2, &format!("{TRAIN} --group mpi --data nosuch"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("no data set \"nosuch\""), "{errors}");
}
