//! Gains are measured without a trace, and beside the training as well as by training.

use thinwire::group::{Local, SharedGroup};
use thinwire_train::trainer::explore;

use crate::workers::small;

#[test]
fn what_was_put_back_leaves_every_bit_as_it_was() {
    for (method, model) in [("topk:density=0.05", "mlp:hidden=32"), ("dense", "cnn:width=4")] {
        let mut settings = small(method);
        (settings.model, settings.bucket_bytes) = (model.into(), Some(usize::MAX));
        let weights = |at: &'static [u64]| {
            Local::run(3, |group| explore(SharedGroup::new(group), &settings, at, 25).unwrap().1)
        };
        assert_eq!(weights(&[]), weights(&[4, 20]), "{method}");
    }
}

#[test]
fn gains_are_the_same_beside_the_training_and_by_training() {
    let settings = small("topk:density=0.05");
    let explored =
        Local::run(2, |group| explore(SharedGroup::new(group), &settings, &[10, 30], 31).unwrap().0);
    for seen in &explored[0] {
        for (beside, trained) in seen.beside.iter().zip(&seen.by_training) {
            assert!((beside / trained).ln().abs() < 0.25, "{seen:?}");
        }
    }
}
