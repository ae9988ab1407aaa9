//! Gains are measured without a trace, and beside the training near enough to what training steps give.

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
fn gains_beside_the_training_are_near_those_by_training() {
    let settings = small("topk:density=0.05");
    let explored =
        Local::run(2, |group| explore(SharedGroup::new(group), &settings, &[10, 30], 31).unwrap().0);
    for seen in &explored[0] {
        // Where little is sent, the weights of the ten steps part most: by training they hardly move.
        let far = [0.05, 0.1, 0.15, 0.3, 0.4];
        for ((beside, trained), far) in seen.beside.iter().zip(&seen.by_training).zip(far) {
            assert!((beside / trained).ln().abs() < far, "{seen:?}");
        }
    }
}
