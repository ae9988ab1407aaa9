//! The report as a whole: it is well-formed, self-contained, small, and survives any run.

use super::*;
use crate::event::{Distribution, Evaluation, FillIn, Reconstructed, Reconstruction, Step, Times};

/// Checks that every tag that is opened is closed in turn, and returns how many there were.
fn check(html: &str) -> usize {
    let mut open: Vec<&str> = Vec::new();
    let mut count = 0;
    let mut rest = html.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(open.last() == Some(&"style") || !text.contains('>'), "a stray > in {text:?}");
        let end = start + rest[start..].find('>').expect("a tag without its end");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "a tag inside the tag <{tag}>");
        assert!(tag.matches('"').count().is_multiple_of(2), "quotes in <{tag}>");
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop(),
                Some(name),
                "after {count} tags, before {:?}",
                &rest[..rest.len().min(80)]
            );
            continue;
        }
        count += 1;
        if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
        // Style sheets have signs of their own.
        if tag == "style" {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    for word in ["NaN", "inf\"", "inf ", "http:", "https:", "<script", "url(h", "@import"] {
        assert!(!html.contains(word), "{word} in the report");
    }
    count
}

fn many() -> Vec<Recorded> {
    let methods = ["dense", "topk", "gaussian-k", "ar-topk", "fft", "redsync"];
    methods.iter().flat_map(|method| (1..=3).map(|seed| sample::run(method, seed, 400))).collect()
}

#[test]
fn one_run_has_every_figure() {
    let html = html(&[sample::run("ar-topk", 1, 300)], "One run");
    assert!(check(&html) > 200);
    let titles = [
        "Test accuracy",
        "Training loss",
        "Where the time of a step goes",
        "Bytes on the wire",
        "Is k what was asked?",
        "Leaders and ratios",
        "How full a sparse ring",
        "Is the gradient normally",
        "How well each method",
    ];
    for title in titles {
        assert!(html.contains(&format!("<h3>{title}")), "{title}");
    }
    assert!(html.contains("<h4>ar-topk-1</h4>") && html.contains("The density warms up"));
    assert!(!html.contains("interrupted") && !html.contains("What is gained"));
}

#[test]
fn several_runs_are_compared_with_mean_and_spread() {
    let html = html_with_target(&many(), "Many", Some(0.9));
    check(&html);
    assert!(html.contains("What is gained") && html.contains("class=\"comparison\"") && html.contains(" ± "));
    assert!(html.contains("gaussian-k (mean of 3)") && html.contains("time to 90.00 %"));
    assert_eq!(html.matches("<tr><th><ul class=\"legend\">").count(), 6);
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
}

#[test]
fn long_runs_stay_small() {
    let runs: Vec<Recorded> =
        (0..4).map(|seed| sample::run(["dense", "topk"][seed as usize % 2], seed, 100_000)).collect();
    let html = html(&runs, "Long");
    check(&html);
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
    let longest =
        html.split("d=\"").skip(1).map(|path| path.split('"').next().unwrap().matches('L').count()).max();
    assert!(longest.unwrap() <= 600, "{longest:?} points");
}

#[test]
fn many_kinds_of_runs_stay_small() {
    let run = |place: u64| {
        let mut run = sample::run("topk", place % 3, 1500);
        run.run.name = format!("method {}", place / 3);
        run
    };
    let runs: Vec<Recorded> = (0..60).map(run).collect();
    let html = html(&runs, "Twenty methods of three seeds");
    check(&html);
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "</svg><script>alert('x')</script>\" onload=\"x";
    let mut runs = [sample::run("topk", 1, 20), sample::run("dense", 1, 20)];
    for run in &mut runs {
        run.label = hostile.into();
        run.notes = vec![(1, hostile.into())];
        run.reconstructions[0].methods[0].method = hostile.into();
        for text in [&mut run.run.name, &mut run.run.model, &mut run.run.data, &mut run.run.version] {
            *text = hostile.into();
        }
        run.run.link = Some(hostile.into());
        run.end = None;
    }
    runs[0].run.method = hostile.into();
    let html = html(&runs, hostile);
    check(&html);
    assert!(html.contains("&lt;script&gt;"));
}

#[test]
fn runs_of_no_step_and_of_one_are_reported() {
    check(&html(&[], "Nothing"));
    check(&html(&[Recorded::default()], "Empty"));
    let only = html(&[sample::run("topk", 1, 1)], "One step");
    assert!(check(&only) > 50 && only.contains("<h3>Training loss"));
    check(&html(&[Recorded::default(), sample::run("topk", 1, 1), sample::run("dense", 1, 40)], "Mixed"));
}

#[test]
fn a_run_without_end_is_marked() {
    let mut run = sample::run("topk", 1, 40);
    (run.end, run.run.steps) = (None, 100);
    let html = html(&[run], "Interrupted");
    check(&html);
    assert!(html.contains("was interrupted after 40 of 100 steps"));
}

#[test]
fn values_that_are_not_numbers_leave_a_report() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, -1e308, 0.0] {
        let mut run = sample::run("topk", 1, 60);
        for step in run.steps.iter_mut().skip(10) {
            *step = Step { loss: bad, gain: bad, elapsed: bad, ..*step };
            step.times = Times { total: bad, wait: bad, synchronizer: bad, ..step.times };
        }
        run.evaluations.push(Evaluation {
            step: 60,
            loss: bad,
            value: bad,
            elapsed: bad,
            ..Evaluation::default()
        });
        let some = vec![bad; 4];
        run.distributions.push(Distribution {
            step: 30,
            mean: bad,
            deviation: bad,
            range: (bad, bad),
            counts: vec![1; 4],
            bound: bad,
            left: bad,
        });
        run.fill_ins.push(FillIn { step: 30, unagreed: some.clone(), independent: some.clone(), sent: bad });
        let method = Reconstructed { method: "bad".into(), error: bad, ratio: bad, quantiles: some };
        run.reconstructions.push(Reconstruction { step: 30, methods: vec![method] });
        run.run.lr = bad;
        let mut stopped = run.clone();
        stopped.end = None;
        if let Some(end) = &mut run.end {
            (end.value, end.best, end.hidden, end.seconds) = (bad, bad, bad, bad);
        }
        check(&html_with_target(&[run.clone()], "Diverged", Some(bad)));
        check(&html(&[stopped, run, sample::run("dense", 1, 60)], "Diverged"));
    }
}

#[test]
fn a_report_replaces_the_old_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    std::fs::write(&path, "old").unwrap();
    let runs = [sample::run("topk", 1, 10)];
    write(&path, &runs, "New").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), html(&runs, "New"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let missing = folder.path().join("missing").join("report.html");
    assert!(write(&missing, &runs, "New").unwrap_err().to_string().contains("report.html"));
}
