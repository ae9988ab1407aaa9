//! All workers end with the same bits, whatever the method and whatever connects them.

use thinwire::method::METHODS;
use thinwire_train::optimizer::{LearningRate, ThetaSchedule};
use thinwire_train::trainer::Settings;

use crate::workers::{Kind, bytes, end, small};

/// Every method at a density at which a small model has something to send, and its variants of note.
fn trainings() -> Vec<Settings> {
    // What auto chooses depends on the clock, so that its bits are its own in each run.
    let fixed = METHODS.iter().filter(|method| method.name != "auto");
    let dense_enough = fixed.map(|method| {
        // Layers of a small model would otherwise be small enough to travel dense.
        let parameters = ["density=0.05", "dense_up_to=0"];
        let known = parameters.iter().filter(|given| method.has(given.split('=').next().unwrap()));
        format!("{}:{}", method.name, known.copied().collect::<Vec<_>>().join(","))
    });
    let variants = [
        "iwp:dense_up_to=0",
        "redsync:density=0.05,quantize=true,dense_up_to=0",
        "ar-topk:density=0.05,leader=var",
        "ar-topk:density=0.02,warmup=linear/0.5",
        "gaussian-k:density=0.02,warmup=ladder/0.25",
        "topk:density=0.05,scope=layer,values=f16,momentum=0.9,clip=1",
        "dense:values=bf16",
    ];
    let mut all: Vec<Settings> =
        dense_enough.chain(variants.map(str::to_owned)).map(|method| small(&method)).collect();
    // The part that is dropped falls with the learning rate, and so from step to step.
    let lr = LearningRate { base: 0.05, schedule: "cosine".parse().unwrap(), warmup: 0.3 };
    let theta = ThetaSchedule::LearningRate;
    all.push(Settings { lr: lr.clone(), theta, ..small("fft") });
    all.push(Settings {
        lr,
        clip: 1.0,
        rebroadcast: 7,
        ..small("redsync:density=0.05,dense_up_to=0,warmup=dense/0.5")
    });
    all.push(Settings { optimizer: "adam".into(), ..small("topk:density=0.05") });
    all
}

fn end_equal_over_both(workers: usize, trainings: &[Settings]) -> Vec<u32> {
    let weights = |settings: &Settings| {
        let local = end(Kind::Local, workers, settings);
        let tcp = end(Kind::Tcp, workers, settings);
        let same = (local.weights, local.steps, local.loss.to_bits());
        assert_eq!(same, (tcp.weights, tcp.steps, tcp.loss.to_bits()), "{settings:?}");
        assert!(local.sent > 0 && tcp.sent > 0, "{settings:?}");
        local.weights
    };
    trainings.iter().map(weights).collect()
}

#[test]
fn workers_end_equal_by_every_method_over_threads_and_over_tcp() {
    let trainings = trainings();
    let weights = end_equal_over_both(3, &trainings);
    // Equality would mean little if the weights did not depend on what was sent.
    for (number, (one, settings)) in weights.iter().zip(&trainings).enumerate() {
        // The search of mstopk ends with the coordinates that topk has.
        let is_searched = settings.method.starts_with("mstopk");
        let same = weights[..number].iter().position(|other| other == one && !is_searched);
        let same = same.map(|other| &trainings[other].method);
        assert_eq!(same, None, "the weights of {}", settings.method);
    }
}

#[test]
fn workers_with_convolutions_end_equal() {
    // Several buckets, which travel during the backward pass.
    for method in ["dense", "ar-topk:density=0.05", "redsync:density=0.02,dense_up_to=0,quantize=true"] {
        let settings = Settings { model: "cnn:width=4".into(), bucket_bytes: bytes(1024), ..small(method) };
        end_equal_over_both(2, &[settings]);
    }
}

#[test]
fn workers_with_running_statistics_end_equal() {
    let model = "resnet:depth=8".into();
    end_equal_over_both(2, &[Settings { model, batch: 16, epochs: 0.25, ..small("topk:density=0.05") }]);
}

#[test]
fn when_gradients_travel_and_who_looks_at_them_changes_no_bit() {
    for method in ["dense", "iwp:dense_up_to=0", "redsync:density=0.05,dense_up_to=0"] {
        let plain = Settings { model: "cnn:width=4".into(), bucket_bytes: bytes(1024), ..small(method) };
        let late = Settings { overlap: false, ..plain.clone() };
        let looked_at = Settings { probes: 5, ..plain.clone() };
        let measured = Settings { evaluate_every: 0.1, check_every: 1, ..plain.clone() };
        let wanted = end(Kind::Local, 3, &plain).weights;
        for settings in [&late, &looked_at, &measured] {
            assert_eq!(end(Kind::Local, 3, settings).weights, wanted, "{settings:?}");
        }
    }
}

#[test]
fn workers_that_choose_as_they_go_end_equal_and_go_on() {
    for method in ["auto", "auto:methods=topk|ar-topk|iwp,min_density=0.02,warmup=linear/0.3"] {
        for kind in [Kind::Local, Kind::Tcp] {
            let folder = tempfile::tempdir().unwrap();
            let settings = Settings { save: Some(folder.path().to_owned()), ..small(method) };
            // The end of a training compares the weights of all workers.
            let first = end(kind, 3, &settings);
            let longer =
                Settings { resume: settings.save.clone(), epochs: settings.epochs + 1.0, ..settings };
            assert!(end(kind, 3, &longer).steps > first.steps, "{method}");
        }
    }
}
