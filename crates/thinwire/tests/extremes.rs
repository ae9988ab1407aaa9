//! Steps at the ends of the range: gradients that overflow, skipped steps in a row, late ranks, slow encrypted links.

mod support;

use std::time::Duration;

use support::noise;
use support::port::free_port;
use thinwire::group::{Algorithm, Group, Link, Local, Secret, Tcp, TcpSettings};
use thinwire::synchronizer::Layout;
use thinwire::{Bucket, Error, Synchronizer};

const NONE: &[Vec<f32>] = &[];

fn bucket(len: usize) -> Layout {
    Bucket::single("w", len).unwrap().into()
}

fn two_buckets() -> Layout {
    Layout::by_size([("a", vec![1000]), ("b", vec![1000])], 4000).unwrap()
}

#[test]
fn sums_at_half_width_do_not_overflow_and_what_is_cut_is_kept() {
    let results = Local::run(5, |group| {
        let rank = group.rank();
        let mut synchronizer =
            Synchronizer::new(group, "ar-topk:density=0.001,values=f16", bucket(1000)).unwrap();
        let mut arrived = 0.0;
        for _ in 0..40 {
            let mut gradient = vec![0.0f32; 1000];
            gradient[if rank == 0 { 1 } else { 0 }] = 10_000.0;
            let mut means = [gradient];
            synchronizer.step(&mut means, NONE).unwrap();
            arrived += means[0][0] as f64 * 5.0;
        }
        (arrived, synchronizer.save().unwrap().residual["w"][0] as f64)
    });
    let kept: f64 = results.iter().map(|(_, kept)| kept).sum();
    let (all, sent) = (40.0 * 4.0 * 10_000.0, results[0].0);
    assert!(((sent + kept) / all - 1.0).abs() < 1e-2, "{sent} + {kept} of {all}");
    assert!(sent > 0.8 * all, "{sent} of {all}");
}

#[test]
fn a_dense_mean_is_finite_or_the_step_is_skipped() {
    let run = |method: &str, value: f32| {
        let mut results = Local::run(2, |group| {
            let mut synchronizer = Synchronizer::new(group, method, bucket(8)).unwrap();
            let mut means = [vec![value; 8]];
            let result = synchronizer.step(&mut means, NONE).map(|_| means[0][3]);
            // Whatever it was, the next step is as good as any.
            synchronizer.step(&mut [vec![1.0; 8]], NONE).unwrap();
            result
        });
        results.remove(0)
    };
    assert_eq!(run("dense:values=f16", 40_000.0), Ok(40_000.0));
    assert_eq!(run("dense:values=bf16", 2e38).map(|mean| mean.is_finite()), Ok(true));
    let error = run("dense", 3e38).unwrap_err();
    assert!(matches!(&error, Error::Skipped { .. }) && error.to_string().contains("sum over all ranks"));
}

#[test]
fn every_skipped_step_names_its_own_reason() {
    let layout = two_buckets();
    let errors = Local::run(2, |group| {
        let rank = group.rank();
        let mut synchronizer = Synchronizer::new(group, "topk:density=0.1", layout.clone()).unwrap();
        let mut skip = |bad: usize, bucket: usize| {
            let mut gradients = vec![vec![1.0f32; 1000]; 2];
            if rank == bad {
                gradients[bucket][5] = f32::NAN;
            }
            synchronizer.step(&mut gradients, NONE).unwrap_err().to_string()
        };
        (skip(0, 1), skip(1, 0))
    });
    for (first, second) in errors {
        assert!(first.contains("step 0") && first.contains("rank 0") && first.contains("\"b\""), "{first}");
        assert!(
            second.contains("step 1") && second.contains("rank 1") && second.contains("\"a\""),
            "{second}"
        );
    }
}

#[test]
fn a_huge_gradient_is_clipped_by_the_norm_of_all_buckets() {
    let norm = |layout: Layout| {
        let norms = Local::run(1, |group| {
            let mut synchronizer =
                Synchronizer::new(group, "topk:density=0.9,clip=1", layout.clone()).unwrap();
            let mut means: Vec<Vec<f32>> = layout.buckets().iter().map(|b| vec![1e25; b.len()]).collect();
            synchronizer.step(&mut means, NONE).unwrap();
            means.iter().flatten().map(|&x| x as f64 * x as f64).sum::<f64>().sqrt()
        });
        norms[0]
    };
    assert!((norm(bucket(2000)) - norm(two_buckets())).abs() < 0.01);
}

#[test]
fn the_leader_is_chosen_by_what_was_selected() {
    let layout = Layout::by_size([("bias", vec![100]), ("weight", vec![1000])], 1 << 20).unwrap();
    let means = Local::run(2, |group| {
        let rank = group.rank();
        let method = "ar-topk:density=0.01,leader=var,dense_up_to=100";
        let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
        let mut gradient = vec![0.0f32; 1100];
        match rank {
            // A large bias, which is sent dense, and small weights.
            0 => (0..100).for_each(|i| (gradient[i], gradient[100 + i]) = (100.0, 0.1)),
            _ => (1000..1100).for_each(|i| gradient[i] = 5.0),
        }
        let mut means = [gradient];
        synchronizer.step(&mut means, NONE).unwrap();
        means
    });
    assert_eq!(means[0][0][100..].iter().filter(|&&mean| mean == 2.5).count(), 10);
}

#[test]
fn a_restored_run_knows_its_epoch_and_its_rank() {
    let method = "topk:density=0.01,warmup=dgc";
    let state = Local::run(2, |group| {
        let mut synchronizer = Synchronizer::new(group, method, bucket(1000)).unwrap();
        synchronizer.set_epoch(100.0);
        synchronizer.step(&mut [noise(1000, 1)], NONE).unwrap();
        synchronizer.save().unwrap()
    });
    Local::run(2, |group| {
        let rank = group.rank();
        let mut synchronizer = Synchronizer::new(group, method, bucket(1000)).unwrap();
        let error = synchronizer.restore(&state[1 - rank]).unwrap_err().to_string();
        assert!(error.contains(&format!("{} of 2", 1 - rank)), "{error}");
        synchronizer.restore(&state[rank]).unwrap();
        assert_eq!(synchronizer.step(&mut [noise(1000, 2)], NONE).unwrap().kept(), 10);
    });
}

#[test]
fn one_that_comes_late_and_waits_itself_is_not_blamed() {
    let groups = Local::connect_within(3, Duration::from_secs(6));
    std::thread::scope(|scope| {
        for mut group in groups {
            scope.spawn(move || {
                match group.rank() {
                    0 => return std::thread::sleep(Duration::from_secs(14)),
                    1 => std::thread::sleep(Duration::from_millis(3500)),
                    _ => {}
                }
                let error = group.broadcast(0, &mut Vec::new(), 100, Algorithm::Ring).unwrap_err();
                assert!(matches!(
                    error,
                    Error::PeerSilent { rank: 0, .. } | Error::PeerGaveUp { culprit: 0, .. }
                ));
            });
        }
    });
}

#[test]
fn a_slow_encrypted_link_is_not_a_silent_one() {
    let port = free_port();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let link: Link = "400kbit".parse().unwrap();
                let settings = TcpSettings {
                    rank,
                    size: 2,
                    port,
                    deadline: Duration::from_secs(2),
                    secret: Secret::new(b"hush"),
                    link: Some(link.into()),
                    ..TcpSettings::default()
                };
                let mut group = Tcp::join(&settings).unwrap();
                // A record alone takes 1.4 s, four of them far longer than the deadline.
                let mut message = if rank == 0 { vec![3; 200_000] } else { vec![] };
                group.broadcast(0, &mut message, 200_000, Algorithm::Ring).unwrap();
                assert_eq!(message.len(), 200_000);
            });
        }
    });
}
