//! A run that is stopped and resumed ends with the same bits as one that is not.

use std::collections::BTreeMap;
use std::path::Path;

use thinwire::Bucket;
use thinwire::group::{Group, Local};
use thinwire::synchronizer::{self, Synchronizer};

use super::super::{Layer, Part, Position, Shared, Writer, read};
use crate::optimizer::{Layout, Optimizer, Spec, decay_ranges};

const WORKERS: usize = 3;

fn buckets() -> Vec<Vec<Layer>> {
    let layer = |name: &str, shape: &[usize]| (name.to_owned(), shape.to_vec());
    vec![
        vec![layer("head.weight", &[10, 20]), layer("head.bias", &[10])],
        vec![layer("body.weight", &[40, 30]), layer("body.bias", &[40])],
    ]
}

/// What one worker has in its hands.
struct Worker {
    synchronizer: Synchronizer,
    optimizer: Box<dyn Optimizer>,
    weights: Vec<Vec<f32>>,
}

impl Worker {
    fn new(group: Local, method: &str, optimizer: &str) -> Worker {
        let spec = Spec::parse(optimizer).unwrap();
        let momentum_in_memory = method.contains("momentum");
        let buckets = buckets();
        let decays: Vec<_> = buckets.iter().map(|layers| decay_ranges(layers)).collect();
        let layout = Layout { lengths: &[210, 1240], decays: &decays, momentum_in_memory };
        let places = buckets.into_iter().enumerate();
        let layers = places.map(|(id, layers)| Bucket::new(id as u32, layers).unwrap()).collect();
        let layers = synchronizer::Layout::new(layers).unwrap();
        Worker {
            synchronizer: Synchronizer::new(group, method, layers).unwrap(),
            optimizer: spec.build(layout).unwrap(),
            weights: [210, 1240].map(|n| (0..n).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect()).into(),
        }
    }

    /// Gradients that differ from worker to worker and from step to step, and depend on the weights.
    fn train(&mut self, steps: std::ops::Range<u64>) {
        let rank = self.synchronizer.rank() as u64;
        for step in steps {
            let slope = |(i, w): (usize, &f32)| {
                let noise = (i as u64 * 7919 + step * 104_729 + rank * 31) % 1009;
                w + noise as f32 / 504.0 - 1.0
            };
            let mut gradients: Vec<Vec<f32>> =
                self.weights.iter().map(|run| run.iter().enumerate().map(slope).collect()).collect();
            self.synchronizer.set_epoch(step as f64 / 4.0);
            self.synchronizer.step(&mut gradients, &self.weights).unwrap();
            self.optimizer.step(0.05, 1.0, &mut self.weights, &gradients);
        }
    }
}

fn stop_and_resume(dir: &Path, method: &str, optimizer: &str) {
    let straight = Local::run(WORKERS, |group| {
        let mut worker = Worker::new(group, method, optimizer);
        worker.train(0..20);
        worker.weights
    });
    let writer = Writer::new(dir, 1).unwrap();
    let settings = BTreeMap::from([("method".to_owned(), method.to_owned())]);
    let position = Position { step: 11, ..Position::default() };
    let mut stopped: Vec<(Part, Worker)> = Local::run(WORKERS, |group| {
        let rank = group.rank();
        let mut worker = Worker::new(group, method, optimizer);
        worker.train(0..11);
        (writer.worker(11, rank, &worker.synchronizer.save().unwrap(), &[]).unwrap(), worker)
    });
    let parts: Vec<Part> = stopped.iter().map(|(part, _)| part.clone()).collect();
    let (_, Worker { weights, optimizer: own, .. }) = stopped.remove(0);
    let shared =
        Shared { settings: &settings, position, buckets: &buckets(), weights: &weights, optimizer: &*own };
    writer.finish(&shared, &parts).unwrap();

    let resumed = Local::run(WORKERS, |group| {
        let mut worker = Worker::new(group, method, optimizer);
        let checkpoint = read(dir).unwrap();
        checkpoint.check_settings(&settings).unwrap();
        let (state, _) = checkpoint.worker(worker.synchronizer.rank()).unwrap();
        worker.synchronizer.restore(&state).unwrap();
        checkpoint.restore(&mut *worker.optimizer).unwrap();
        worker.weights = checkpoint.weights.clone();
        worker.train(checkpoint.position().step..20);
        worker.weights
    });
    assert_eq!(resumed, straight, "{method} with {optimizer}");
    assert!(straight.iter().all(|weights| *weights == straight[0]));
}

#[test]
fn a_resumed_run_ends_with_the_same_bits() {
    for (method, optimizer) in [
        ("dense", "sgd:nesterov=true"),
        ("topk:density=0.05", "adamw"),
        ("gaussian-k:density=0.05,warmup=dense/1", "sgd:decay=0.01"),
        ("dgc:density=0.05,momentum=0.9", "sgd:decay=0.01"),
        ("redsync:density=0.05,momentum=0.9,nesterov=true", "sgd:nesterov=true,decay=0.01"),
        ("ar-topk:density=0.05", "sgd:momentum=0"),
        ("fft", "adam"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        stop_and_resume(dir.path(), method, optimizer);
    }
}
