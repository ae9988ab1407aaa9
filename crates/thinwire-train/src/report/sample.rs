//! Made-up runs for the tests: well-formed events with the shapes that real ones have.

use super::Recorded;
use crate::event::{
    Distribution, End, Evaluation, Event, FillIn, Measure, Reconstructed, Reconstruction, Run, Step, Times,
};

const ELEMENTS: usize = 400_000;
const WORKERS: usize = 4;

/// Numbers from 0 to 1 that look drawn by lot and are the same every time.
fn noise(number: u64) -> f64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 32)) as u32 as f64 / f64::from(u32::MAX)
}

/// A finished run of a method: `dense`, or anything else at a density of 1 %.
pub(crate) fn run(method: &str, seed: u64, steps: u64) -> Recorded {
    Recorded::from_events(format!("{method}-{seed}"), events(method, seed, steps)).unwrap()
}

/// Its events.
pub(crate) fn events(method: &str, seed: u64, steps: u64) -> Vec<Event> {
    let kind = method.bytes().map(u64::from).sum::<u64>();
    let density = if method == "dense" { 1.0 } else { 0.01 };
    let mut events = vec![Event::Run(Box::new(settings(method, seed, steps, density)))];
    let (mut sent, mut elapsed) = (0, 0.0);
    let mut last = Evaluation::default();
    for number in 0..steps {
        let step = step(method, number, steps, seed * 1000 + kind, &mut elapsed);
        sent += step.sent;
        events.push(Event::Step(step));
        if number % (steps / 5).max(1) == 0 {
            events.push(Event::Distribution(distribution(number, number as f64 / steps as f64)));
            events.push(Event::FillIn(fill_in(number, density)));
            events.push(Event::Reconstruction(reconstruction(number)));
        }
        if (number + 1) % (steps / 12).max(1) == 0 || number + 1 == steps {
            let progress = (number + 1) as f64 / steps as f64;
            let value = 0.93 - 0.6 * (-5.0 * progress).exp() + 0.01 * noise(seed + kind * 7 + number);
            last = Evaluation {
                step: number + 1,
                epoch: 10.0 * progress,
                loss: 1.0 - value,
                value,
                elapsed,
                sent,
            };
            events.push(Event::Evaluation(last));
        }
    }
    events.push(Event::Note { step: 3, text: "The density warms up over 4 epochs.".into() });
    let mut recorded = Recorded::from_events(String::new(), events.clone()).unwrap();
    recorded.end = None;
    events.push(Event::End(Box::new(End {
        name: method.into(),
        method: method.into(),
        seed,
        measure: Measure::Accuracy,
        value: last.value,
        best: last.value,
        loss: last.loss,
        steps,
        sent,
        dense_bytes: recorded.dense_bytes(),
        wire_ratio: recorded.dense_bytes() as f64 / sent as f64,
        wire_ratio_settled: Some(recorded.dense_bytes() as f64 / sent as f64),
        times: recorded.times().unwrap_or_default(),
        hidden: recorded.hidden().unwrap_or(0.0),
        seconds: elapsed,
        wall: elapsed * 1.1,
        ..End::default()
    })));
    events
}

fn settings(method: &str, seed: u64, steps: u64, density: f64) -> Run {
    Run {
        version: "0.1.0".into(),
        name: method.into(),
        method: method.into(),
        model: "cnn:width=32".into(),
        data: "cifar10".into(),
        optimizer: "sgd:momentum=0.9".into(),
        schedule: "cosine".into(),
        lr: 0.1,
        workers: WORKERS,
        batch: 32,
        epochs: 10.0,
        steps_per_epoch: steps / 10,
        steps,
        seed,
        group: "tcp".into(),
        link: Some("100mbit,1ms".into()),
        threads: 2,
        samples: (50_000, 10_000),
        measure: Measure::Accuracy,
        buckets: vec![
            vec![("convolution.weight".into(), vec![32, 3, 3, 3])],
            vec![("head".into(), vec![512, 10])],
        ],
        parameters: ELEMENTS,
        resumed_at: 0,
        density,
        ..Run::default()
    }
}

fn step(method: &str, number: u64, steps: u64, seed: u64, elapsed: &mut f64) -> Step {
    let random = noise(seed.wrapping_mul(1_000_003) + number);
    let progress = number as f64 / steps as f64;
    let dense = method == "dense";
    let dense_bytes = 2 * (WORKERS as u64 - 1) * 4 * ELEMENTS as u64 / WORKERS as u64;
    // The density falls from a quarter over the first tenth of the run.
    let density: f64 = if dense { 1.0 } else { 0.01f64.max(0.25 * 0.04f64.powf(progress * 10.0)) };
    let asked = if dense { 0 } else { (density * ELEMENTS as f64) as usize };
    let kept = (asked as f64 * (0.9 + 0.2 * random)) as usize;
    let sent = if dense { dense_bytes + 400 } else { (kept * 18) as u64 };
    let wire = sent as f64 * 8.0 / 1e8;
    let times = Times {
        total: 0.06 + 0.01 * random + 0.6 * wire,
        data: 0.001,
        forward: 0.018 + 0.002 * random,
        backward: 0.034 + 0.003 * random,
        copy: 0.002,
        wait: 0.6 * wire,
        optimizer: 0.003,
        select: if dense { 0.0 } else { 0.004 },
        encode: 0.001,
        exchange: wire,
        settle: 0.002,
        adapt: 0.0,
        synchronizer: 0.007 + wire,
    };
    *elapsed += times.total;
    Step {
        step: number,
        epoch: 10.0 * progress,
        loss: 0.15 + 2.1 * (-6.0 * progress).exp() + 0.35 * (random - 0.5),
        lr: 0.1 * (1.0 - progress),
        elements: ELEMENTS,
        dense_elements: 1000,
        asked,
        kept,
        message_bytes: kept * 6,
        value_bytes: kept * 4,
        dense_layer_bytes: 4000,
        reduced_bytes: 0,
        sent,
        received: sent,
        dense_bytes,
        gain: 0.7 + 0.1 * random,
        leader: (method == "ar-topk")
            .then_some((noise(seed + number * 3) * WORKERS as f64) as usize % WORKERS),
        times,
        elapsed: *elapsed,
        skipped: number == 17,
    }
}

/// A gradient with a sharper peak and heavier tails than a normal distribution has.
fn distribution(step: u64, progress: f64) -> Distribution {
    let bins = 80;
    let range = (-8.0, 8.0);
    let width = 16.0 / f64::from(bins);
    let height = |bin: i32| {
        let at: f64 = -8.0 + width * (f64::from(bin) + 0.5);
        let normal = (-at * at / 2.0).exp() / 2.5066;
        let sharp = (-at.abs() * 1.414).exp() * 0.707;
        (ELEMENTS as f64 * width * ((1.0 - progress) * normal + progress * sharp)) as u64
    };
    let counts = (0..bins).map(height).collect();
    Distribution {
        step,
        mean: 1e-5,
        deviation: 3e-3,
        range,
        counts,
        bound: 0.98,
        left: 0.85 - 0.3 * progress,
    }
}

fn fill_in(step: u64, density: f64) -> FillIn {
    let of = |density: f64| (1..=WORKERS as i32).map(|workers| 1.0 - (1.0 - density).powi(workers)).collect();
    FillIn { step, unagreed: of(density * 0.8), independent: of(density), sent: density }
}

fn reconstruction(step: u64) -> Reconstruction {
    let method = |method: &str, error: f64, ratio| Reconstructed {
        method: method.into(),
        error,
        ratio,
        quantiles: [0.0, 0.02, 0.08, 0.2, 0.4, 0.8, 2.0].map(|quantile| quantile * error).to_vec(),
    };
    let methods = vec![
        method("topk:density=0.01", 0.72, 66.0),
        method("fft:density=0.01", 0.81, 90.0),
        method("random-k", 0.99, 50.0),
    ];
    Reconstruction { step, methods }
}
