//! What must always hold, for every method, over groups of threads and over TCP. (Over MPI: `mpi_ranks.rs`.)

mod support;

use support::{METHODS, check_full_density, check_method, check_weighted_mean, over_tcp};
use thinwire::group::{Local, SharedGroup};

const SIZES: [usize; 5] = [1, 2, 3, 5, 8];

#[test]
fn every_method_keeps_the_invariants_on_small_models() {
    for size in SIZES {
        for elements in [1, 2, 1000] {
            Local::run(size, |group| {
                let group = SharedGroup::new(group);
                METHODS.iter().for_each(|&(method, kind)| check_method(&group, method, kind, elements, 4));
            });
        }
    }
}

#[test]
fn every_method_keeps_the_invariants_on_a_large_model() {
    for size in SIZES {
        Local::run(size, |group| {
            let group = SharedGroup::new(group);
            METHODS.iter().for_each(|&(method, kind)| check_method(&group, method, kind, 1_000_003, 2));
        });
    }
}

#[test]
fn full_density_is_the_dense_mean() {
    for size in SIZES {
        for elements in [1, 2, 1000, 100_003] {
            Local::run(size, |group| check_full_density(&SharedGroup::new(group), elements));
        }
    }
}

#[test]
fn samples_weigh_the_mean() {
    for size in SIZES {
        Local::run(size, |group| check_weighted_mean(&SharedGroup::new(group)));
    }
}

#[test]
fn every_method_keeps_the_invariants_over_tcp() {
    for size in SIZES {
        for (elements, steps) in [(1, 2), (2, 2), (1000, 3), (1_000_003, 1)] {
            over_tcp(size, None, |group| {
                let group = SharedGroup::new(group);
                METHODS
                    .iter()
                    .for_each(|&(method, kind)| check_method(&group, method, kind, elements, steps));
            });
        }
    }
}

#[test]
fn every_method_keeps_the_invariants_over_encrypted_tcp() {
    over_tcp(3, Some("a shared secret"), |group| {
        let group = SharedGroup::new(group);
        METHODS.iter().for_each(|&(method, kind)| check_method(&group, method, kind, 100_003, 2));
        check_full_density(&group, 1000);
        check_weighted_mean(&group);
    });
}
