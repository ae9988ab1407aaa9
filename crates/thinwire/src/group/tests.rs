//! The collectives over threads, against their definitions.

use std::time::{Duration, Instant};

use half::{bf16, f16};

use super::*;

const SIZES: [usize; 8] = [1, 2, 3, 4, 5, 7, 8, 16];
const LENGTHS: [usize; 8] = [0, 1, 2, 3, 17, 1000, 300_007, 3_000_001];
const HOW: [Algorithm; 2] = [Algorithm::Ring, Algorithm::Tree];

fn vector(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((rank * 31 + i * 7) % 1009) as f32 / 7.0 - 60.0).collect()
}

#[test]
fn all_reduce_sums_on_every_rank_with_the_same_bits() {
    for (size, how) in SIZES.into_iter().flat_map(|size| HOW.map(|how| (size, how))) {
        for len in LENGTHS {
            let terms: Vec<Vec<f32>> = (0..size).map(|rank| vector(rank, len)).collect();
            let results = Local::run(size, |mut group| {
                let mut values = terms[group.rank()].clone();
                group.all_reduce(Sum::F32(&mut values), how).unwrap();
                values
            });
            for i in (0..len).step_by(1 + len / 1000) {
                let exact: f64 = terms.iter().map(|term| term[i] as f64).sum();
                assert!((results[0][i] as f64 - exact).abs() < 1e-3, "{size} {how} {len} {i}");
            }
            let bits = |values: &Vec<f32>| values.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            assert!(results.iter().all(|r| bits(r) == bits(&results[0])), "{size} {how} {len}");
        }
    }
}

#[test]
fn half_width_sums_work_too() {
    for (size, how) in [2, 3, 5].into_iter().flat_map(|size| HOW.map(|how| (size, how))) {
        for len in [1, 999, 300_001] {
            let results = Local::run(size, |mut group| {
                let mut half = vec![f16::from_f32(group.rank() as f32 + 0.5); len];
                let mut brain = vec![bf16::from_f32(group.rank() as f32 + 1.0); len];
                group.all_reduce(Sum::F16(&mut half), how).unwrap();
                group.all_reduce(Sum::Bf16(&mut brain), how).unwrap();
                (half, brain)
            });
            let ranks = (size * (size - 1) / 2) as f32;
            for (half, brain) in results {
                assert!(half.iter().all(|x| x.to_f32() == ranks + 0.5 * size as f32));
                assert!(brain.iter().all(|x| x.to_f32() == ranks + size as f32));
            }
        }
    }
}

#[test]
fn all_gather_hands_everybody_messages_of_any_length() {
    for (size, how) in SIZES.into_iter().flat_map(|size| HOW.map(|how| (size, how))) {
        let message = |rank: usize| vec![rank as u8; (rank * 400_009) % 1_000_003 * (rank % 3)];
        let results = Local::run(size, |mut group| {
            let mut gathered = Gathered::default();
            group.all_gather(&message(group.rank()), 1_000_003 * 2, how, &mut gathered).unwrap();
            // Once more, to see that what is kept does no harm.
            group.all_gather(&message(group.rank()), 1_000_003 * 2, how, &mut gathered).unwrap();
            gathered
        });
        for gathered in results {
            assert!((0..size).all(|rank| gathered.of(rank) == message(rank)));
        }
    }
}

#[test]
fn broadcast_reaches_everybody_from_any_root() {
    for (size, how) in SIZES.into_iter().flat_map(|size| HOW.map(|how| (size, how))) {
        for root in [0, size / 2, size - 1] {
            for len in [0, 1, 5000, 3_000_001] {
                let message: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
                let results = Local::run(size, |mut group| {
                    let mut mine = if group.rank() == root { message.clone() } else { vec![9; 3] };
                    group.broadcast(root, &mut mine, 3_000_001, how).unwrap();
                    mine
                });
                assert!(results.iter().all(|r| *r == message), "{size} {how} {root} {len}");
            }
        }
    }
    let errors = Local::run(2, |mut group| group.broadcast(2, &mut Vec::new(), 9, Algorithm::Ring));
    assert!(errors[0].as_ref().unwrap_err().to_string().contains("a rank below 2"));
}

#[test]
fn nobody_passes_a_barrier_before_the_last_has_come() {
    let come = std::sync::atomic::AtomicUsize::new(0);
    let seen = Local::run(5, |mut group| {
        std::thread::sleep(Duration::from_millis(10 * group.rank() as u64));
        come.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        group.barrier().unwrap();
        come.load(std::sync::atomic::Ordering::SeqCst)
    });
    assert_eq!(seen, [5; 5]);
}

#[test]
fn traffic_is_that_of_the_formulas() {
    let (size, len) = (4, 1 << 16);
    for (how, most) in [(Algorithm::Ring, 2.0 * 0.75), (Algorithm::Tree, 2.0)] {
        let traffic = Local::run(size, |mut group| {
            group.all_reduce(Sum::F32(&mut vec![1.0; len]), how).unwrap();
            group.traffic()
        });
        let bytes = 4.0 * len as f64;
        let sent: Vec<f64> = traffic.iter().map(|t| t.sent as f64 / bytes).collect();
        assert!(sent.iter().all(|&sent| sent <= most + 0.001), "{how}: {sent:?}");
        let (sent, received): (u64, u64) =
            traffic.iter().fold((0, 0), |(s, r), t| (s + t.sent, r + t.received));
        assert_eq!(sent, received);
    }
}

/// Runs with a short deadline; gives each rank's error.
fn failing(size: usize, work: impl Fn(Local) -> Result<()> + Sync) -> Vec<Error> {
    let groups = Local::connect_within(size, Duration::from_millis(2500));
    std::thread::scope(|scope| {
        let start = |group| scope.spawn(|| work(group));
        let threads: Vec<_> = groups.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap_err()).collect()
    })
}

#[test]
fn ranks_that_disagree_get_an_error_with_both_values() {
    let mark = Mark { step: 7, plan: 1, bucket: 0 };
    type Other = fn(&mut Local) -> Result<()>;
    let cases: [(&str, Other); 4] = [
        ("the step is 8 there and 7 here", |group| {
            group.mark(Mark { step: 8, plan: 1, bucket: 0 });
            group.barrier()
        }),
        ("the plan is 5 there", |group| {
            group.mark(Mark { step: 7, plan: 5, bucket: 0 });
            group.barrier()
        }),
        ("the collective is all-gather there and barrier here", |group| {
            group.all_gather(b"x", 1, Algorithm::Tree, &mut Gathered::default())
        }),
        ("the collective is tree all-reduce of f32 there", |group| {
            group.all_reduce(Sum::F32(&mut [1.0]), Algorithm::Tree)
        }),
    ];
    for (words, other) in cases {
        let errors = failing(3, |mut group| {
            group.mark(mark);
            if group.rank() == 1 { other(&mut group) } else { group.barrier() }
        });
        assert!([0, 2].iter().any(|&rank| errors[rank].to_string().contains(words)), "{words}: {errors:?}");
        assert!(
            [0, 2].iter().all(|&rank| errors[rank].to_string().contains("rank 1")),
            "{words}: {errors:?}"
        );
    }
}

#[test]
fn vectors_and_messages_of_the_wrong_length_are_refused() {
    for how in HOW {
        let errors = failing(2, |mut group| {
            let mut values = vec![1.0; 10 + group.rank()];
            group.all_reduce(Sum::F32(&mut values), how)
        });
        assert!(errors.iter().any(|e| e.to_string().contains("the number of bytes is 44 there and 40 here")));
    }
    for how in HOW {
        let errors = failing(2, |mut group| {
            let limit = if group.rank() == 0 { 99 } else { 100 };
            let message = vec![0; 99 + group.rank()];
            group.all_gather(&message, limit, how, &mut Gathered::default()).and_then(|()| group.barrier())
        });
        let words = "the number of bytes is 100 there and at most 99 here";
        assert!(errors[0].to_string().contains(words), "{how}: {errors:?}");
    }
}

#[test]
fn a_rank_that_ends_is_named_by_all() {
    for how in HOW {
        let errors = failing(5, |mut group| {
            if group.rank() == 3 {
                return Err(Error::GroupLost { reason: "rank 3 ends here".into() });
            }
            group.all_reduce(Sum::F32(&mut vec![1.0; 1 << 20]), how)
        });
        assert!(errors.iter().all(|error| error.to_string().contains("rank 3")), "{how}: {errors:?}");
    }
}

#[test]
fn a_rank_that_stalls_is_named_by_all_at_the_deadline() {
    for how in HOW {
        let begun = Instant::now();
        let errors = failing(5, |mut group| {
            if group.rank() == 2 {
                std::thread::sleep(Duration::from_millis(6000));
                return group.barrier();
            }
            group.mark(Mark { step: 12, ..Mark::default() });
            group.all_reduce(Sum::F32(&mut vec![1.0; 1 << 20]), how)
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        for error in [0, 1, 3, 4].map(|rank| errors[rank].to_string()) {
            assert!(error.contains("no word from rank 2") && error.contains("step 12"), "{how}: {error}");
        }
    }
}

#[test]
fn an_abandoned_group_tells_why_and_stays_lost() {
    let errors = failing(3, |mut group| {
        if group.rank() == 1 {
            group.abandon("out of disk space");
            return group.barrier();
        }
        let first = group.barrier().unwrap_err();
        let again = group.barrier().unwrap_err();
        assert!(again.to_string().contains("given up"), "{again}");
        Err(first)
    });
    assert!(errors.iter().all(|error| error.to_string().contains("out of disk space")), "{errors:?}");
}

#[test]
fn ring_for_large_and_two_ranks_tree_for_small() {
    assert_eq!(Algorithm::for_size(4, 2), Algorithm::Ring);
    assert_eq!(Algorithm::for_size(0, 1), Algorithm::Ring);
    assert_eq!(Algorithm::for_size(40_000, 4), Algorithm::Tree);
    assert_eq!(Algorithm::for_size(400_000, 4), Algorithm::Ring);
    assert_eq!("tree".parse(), Ok(Algorithm::Tree));
    assert!("star".parse::<Algorithm>().unwrap_err().to_string().contains("ring or tree"));
}
