//! The same samples in the same steps, on one worker or on four.

use thinwire_train::checkpoint;
use thinwire_train::trainer::Settings;

use crate::workers::{Kind, end, small};

/// The weights at the end.
fn weights(workers: usize, settings: Settings) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { save: Some(folder.path().to_owned()), ..settings };
    end(Kind::Local, workers, &settings);
    checkpoint::read(folder.path()).unwrap().weights.concat()
}

fn distance(one: &[f32], other: &[f32]) -> f64 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn one_worker_with_large_batches_trains_as_four_with_small_ones() {
    for model in ["mlp:hidden=32", "cnn:width=4"] {
        for optimizer in ["sgd", "adam"] {
            let lr = if optimizer == "adam" { 0.001 } else { 0.05 };
            let mut settings =
                Settings { model: model.into(), optimizer: optimizer.into(), epochs: 2.0, ..small("dense") };
            settings.lr.base = lr;
            let one = weights(1, Settings { batch: 64, ..settings.clone() });
            let four = weights(4, Settings { batch: 16, ..settings.clone() });
            let start = weights(1, Settings { batch: 64, epochs: 1e-9, ..settings });
            let (moved, apart) = (distance(&one, &start), distance(&one, &four));
            assert!(moved > 0.1, "{model}, {optimizer}: {moved}");
            assert!(apart < 1e-3 * moved, "{model}, {optimizer}: {apart} apart after {moved}");
        }
    }
}
