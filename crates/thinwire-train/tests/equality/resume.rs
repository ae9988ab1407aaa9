//! A run that was stopped and goes on ends as one that was never stopped.

use std::path::Path;

use thinwire_train::checkpoint;
use thinwire_train::event::{End, Event};
use thinwire_train::optimizer::{LearningRate, ThetaSchedule};
use thinwire_train::trainer::Settings;

use crate::workers::{Kind, Outcome, end, outcomes, small};

const WORKERS: usize = 2;

/// The first of the outcomes, all of which are good.
fn first(outcomes: Vec<Outcome>) -> (End, Vec<Event>) {
    let mut good = outcomes.into_iter().map(|(end, events)| (end.unwrap(), events));
    let first = good.next().unwrap();
    assert!(good.all(|(end, _)| end.weights == first.0.weights));
    first
}

/// What must not depend on whether a run was stopped; the times do.
fn figures(end: &End) -> impl PartialEq + std::fmt::Debug + use<> {
    let numbers = [end.value, end.best, end.loss, end.wire_ratio].map(f64::to_bits);
    (end.weights, end.steps, end.skipped, end.sent, end.dense_bytes, end.kept_over_asked, numbers)
}

/// Trains once without a stop, and once with two: after step 9, of which the checkpoint before step 8 is the last, and
/// after step 17, of which the one before step 16 is.
fn goes_on(kind: Kind, settings: Settings) {
    let whole = end(kind, WORKERS, &settings);
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("checkpoints");
    // Every 4 of 23 steps.
    let mut settings = Settings { save: Some(dir.clone()), save_every: 4.0 / 23.0, ..settings };
    for (stop, next) in [(9, 8), (17, 16)] {
        let all = vec![settings.clone(); WORKERS];
        for (end, events) in outcomes(kind, all, Some(stop)) {
            let error = end.unwrap_err().to_string();
            let last = events.iter().rev().find_map(|event| match event {
                Event::Step(step) => Some(step.step),
                _ => None,
            });
            // One of them may hear of the other's end before it has come to its own.
            assert!(error.contains("stopped here") && last >= Some(stop - 1), "{error}, {last:?}");
        }
        assert_eq!(checkpoint::read(&dir).unwrap().position().step, next, "{settings:?}");
        settings.resume = Some(dir.clone());
    }
    let (end, events) = first(outcomes(kind, vec![settings.clone(); WORKERS], None));
    let Some(Event::Run(run)) = events.first() else { panic!("no run has begun") };
    assert_eq!(run.resumed_at, 16);
    assert_eq!(figures(&end), figures(&whole), "{settings:?}");
    check_last(&dir, &settings, &whole);
}

/// The checkpoint at the end holds the weights of the end, and a run that goes on from there has nothing to do.
fn check_last(dir: &Path, settings: &Settings, whole: &End) {
    let last = checkpoint::read(dir).unwrap();
    assert_eq!((last.position().step, last.workers()), (whole.steps, WORKERS));
    let (again, events) = first(outcomes(Kind::Local, vec![settings.clone(); WORKERS], None));
    assert_eq!(figures(&again), figures(whole), "{settings:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Step(_))));
}

#[test]
fn dense_and_sparse_runs_go_on() {
    for method in ["dense", "topk:density=0.05", "gaussian-k:density=0.05", "random-k:density=0.05"] {
        goes_on(Kind::Local, small(method));
    }
}

#[test]
fn runs_with_agreed_coordinates_go_on() {
    for method in ["ar-topk:density=0.05", "ar-topk:density=0.05,leader=var", "iwp:dense_up_to=0"] {
        goes_on(Kind::Local, small(method));
    }
}

#[test]
fn runs_that_correct_momentum_and_warm_up_go_on() {
    // The warm-up ends between the first checkpoint and the second.
    for method in [
        "redsync:density=0.05,dense_up_to=0,warmup=dense/0.5",
        "redsync:density=0.05,dense_up_to=0,quantize=true",
        "dgc:density=0.05,dense_one_dimensional=false,warmup=linear/0.5",
    ] {
        goes_on(Kind::Local, small(method));
    }
}

#[test]
fn runs_whose_settings_change_from_step_to_step_go_on() {
    let lr = LearningRate { base: 0.05, schedule: "step/0.4/0.8".parse().unwrap(), warmup: 0.2 };
    goes_on(Kind::Local, Settings { lr, theta: ThetaSchedule::LearningRate, ..small("fft") });
    goes_on(Kind::Local, small("fft:feedback=true"));
}

#[test]
fn runs_with_other_optimisers_go_on_and_over_tcp() {
    for optimizer in ["adam", "adamw:decay=0.1", "sgd:momentum=0.8,nesterov=true"] {
        goes_on(Kind::Tcp, Settings { optimizer: optimizer.into(), ..small("topk:density=0.05") });
    }
}

#[test]
fn runs_with_running_statistics_go_on() {
    // The test loss, which is among the figures, depends on the statistics of both workers.
    let model = "resnet:depth=8".into();
    goes_on(Kind::Local, Settings { model, ..small("topk:density=0.05") });
}
