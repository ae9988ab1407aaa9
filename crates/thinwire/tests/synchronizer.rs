//! The synchronizer as its users see it: steps, background buckets, skipped steps, state, and mistakes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::{METHODS, layout, noise};
use thinwire::group::{Algorithm, Group, Local};
use thinwire::memory::State;
use thinwire::synchronizer::{Layout, Mean, Options};
use thinwire::{Bucket, Error, Synchronizer};

const NONE: &[Vec<f32>] = &[];

fn gradients(layout: &Layout, seed: u64) -> Vec<Vec<f32>> {
    layout.buckets().iter().map(|bucket| noise(bucket.len(), 100 * seed + bucket.id() as u64)).collect()
}

#[test]
fn buckets_submitted_in_any_order_give_the_bits_of_a_plain_step() {
    let layout = Layout::by_size((0..7).map(|i| (format!("layer{i}"), vec![10 + 371 * i])), 4000).unwrap();
    let last = layout.buckets().len() - 1;
    assert!(last >= 3);
    for &(method, _) in METHODS.iter().filter(|(method, _)| !method.contains("iwp")) {
        let method = if method == "dense" { "topk:density=0.05,clip=0.5" } else { method };
        let run = |background: bool| {
            Local::run(3, |group| {
                let rank = group.rank();
                let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
                let mut all = Vec::new();
                for step in 0..4u64 {
                    let mut means = gradients(&layout, step * 10 + rank as u64);
                    if background {
                        let mut order: Vec<usize> = (0..=last).collect();
                        order.rotate_left((rank + step as usize) % (last + 1));
                        if rank == 1 {
                            order.reverse();
                        }
                        for bucket in order {
                            let gradient = std::mem::take(&mut means[bucket]);
                            synchronizer.submit(bucket, gradient, None).unwrap();
                        }
                        means = synchronizer.wait().unwrap().0;
                    } else {
                        synchronizer.step(&mut means, NONE).unwrap();
                    }
                    all.push(means);
                }
                (all, synchronizer.save().unwrap())
            })
        };
        assert!(run(true) == run(false), "{method}");
    }
}

#[test]
fn a_nan_on_one_rank_makes_all_skip_the_step_and_go_on() {
    let layout = layout(900);
    for &(method, _) in METHODS {
        for background in [false, true] {
            let states = Local::run(4, |group| {
                let rank = group.rank();
                let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
                let weights = gradients(&layout, 77);
                let run = |synchronizer: &mut Synchronizer, mut means: Vec<Vec<f32>>| {
                    if background {
                        for (bucket, gradient) in means.into_iter().enumerate().rev() {
                            synchronizer.submit(bucket, gradient, Some(weights[bucket].clone())).unwrap();
                        }
                        synchronizer.wait().map(|(means, report)| (means, report.step))
                    } else {
                        synchronizer.step(&mut means, &weights).map(|report| (means, report.step))
                    }
                };
                run(&mut synchronizer, gradients(&layout, rank as u64)).unwrap();
                let before = synchronizer.save().unwrap();
                // In turn: a bad first bucket, a bad last one; with each step another rank leads.
                let mut skips = 0;
                for step in 1..=4u64 {
                    let mut bad = gradients(&layout, 10 + rank as u64);
                    if rank == 2 {
                        let bucket = if step % 2 == 0 { 0 } else { bad.len() - 1 };
                        let at = bad[bucket].len() / 2;
                        bad[bucket][at] = [f32::NAN, f32::INFINITY][step as usize % 2];
                    }
                    match run(&mut synchronizer, bad) {
                        Err(Error::Skipped { rank: 2, step: found, reason }) if found == step => {
                            assert!(reason.contains("gradient holds"), "{method}: {reason}");
                            skips += 1;
                        }
                        other => panic!("{method}, step {step}: {other:?}"),
                    }
                }
                assert_eq!(skips, 4);
                let after = synchronizer.save().unwrap();
                for (name, residual) in &before.residual {
                    let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
                    assert!(residual.iter().zip(&after.residual[name]).all(close), "{method}: {name}");
                }
                assert_eq!(before.selectors, after.selectors, "{method}");
                let (means, step) = run(&mut synchronizer, gradients(&layout, 20 + rank as u64)).unwrap();
                assert_eq!(step, 5);
                means
            });
            assert!(states.iter().all(|means| means == &states[0]), "{method}");
        }
    }
}

#[test]
fn a_step_that_is_checked_first_leaves_every_bit_when_it_is_skipped() {
    let layout = layout(1000);
    for method in ["topk:density=0.05", "redsync:density=0.05,clip=1", "ar-topk:density=0.05,momentum=0.9"] {
        Local::run(3, |group| {
            let rank = group.rank();
            let options = Options { check_first: true, ..Options::default() };
            let mut synchronizer =
                Synchronizer::with_options(group, method, layout.clone(), options).unwrap();
            for step in 0..6 {
                let before = synchronizer.save().unwrap();
                // So large that what is kept would not survive being added to it and taken out again.
                let huge = |x: &f32| if step % 2 == 1 { x * 1e30 } else { *x };
                let mut all: Vec<Vec<f32>> = gradients(&layout, 10 * step + rank as u64)
                    .iter()
                    .map(|gradient| gradient.iter().map(huge).collect())
                    .collect();
                if step % 2 == 1 && rank == 1 {
                    *all.last_mut().unwrap().last_mut().unwrap() = f32::INFINITY;
                }
                for (bucket, gradient) in all.into_iter().enumerate() {
                    synchronizer.submit(bucket, gradient, None).unwrap();
                }
                match synchronizer.wait() {
                    Ok(_) => assert_eq!(step % 2, 0),
                    Err(error) => {
                        assert!(matches!(error, Error::Skipped { rank: 1, .. }), "{error}");
                        assert_eq!(State { step, ..synchronizer.save().unwrap() }, before);
                    }
                }
                assert_eq!(synchronizer.next_step(), step + 1);
            }
        });
    }
}

#[test]
fn waiting_for_a_while_comes_back_without_ending_the_step() {
    let (came_back, begun) = (AtomicBool::new(false), Instant::now());
    Local::run(2, |group| {
        let rank = group.rank();
        let mut synchronizer = Synchronizer::new(group, "topk:density=0.1", layout(1000)).unwrap();
        let error = synchronizer.wait_for(Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::StepUnderWay { submitted: 0, .. }), "{error}");
        while rank == 1 && !came_back.load(Ordering::Relaxed) {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "rank 0 has not come back from a wait of 5 ms"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        for (bucket, gradient) in gradients(&layout(1000), rank as u64).into_iter().enumerate() {
            synchronizer.submit(bucket, gradient, None).unwrap();
        }
        let (means, report) = loop {
            match synchronizer.wait_for(Duration::from_millis(5)).unwrap() {
                Some(finished) => break finished,
                None => came_back.store(true, Ordering::Relaxed),
            }
        };
        assert_eq!((means.len(), report.step), (layout(1000).buckets().len(), 0));
    });
}

#[test]
fn a_restored_run_goes_on_with_the_same_bits() {
    let layout = layout(2000);
    let folder = tempfile::tempdir().unwrap();
    for &(method, _) in METHODS {
        let method = if method.contains("fft") { "fft:feedback=true" } else { method };
        let run = |from: u64, to: u64, resume: bool| {
            Local::run(3, |group| {
                let rank = group.rank();
                let path = folder.path().join(format!("rank{rank}.safetensors"));
                let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
                if resume {
                    synchronizer.restore(&thinwire::memory::State::read(&path).unwrap()).unwrap();
                }
                assert_eq!(synchronizer.next_step(), from);
                let mut means = Vec::new();
                for step in from..to {
                    synchronizer.set_epoch(step as f64);
                    means = gradients(&layout, 10 * step + rank as u64);
                    synchronizer.step(&mut means, &gradients(&layout, 5)).unwrap();
                }
                if !resume {
                    synchronizer.save().unwrap().write(&path).unwrap();
                }
                (means, synchronizer.save().unwrap())
            })
        };
        run(0, 5, false);
        let resumed = run(5, 9, true);
        assert!(resumed == run(0, 9, false), "{method}");
    }
}

#[test]
fn a_step_that_never_ends_is_taken_out_of_the_state() {
    Local::run(1, |group| {
        let mut synchronizer = Synchronizer::new(group, "topk:density=0.1", layout(1000)).unwrap();
        synchronizer.step(&mut gradients(&layout(1000), 0), NONE).unwrap();
        let before = synchronizer.save().unwrap();
        // The other buckets never come.
        let first = gradients(&layout(1000), 1).swap_remove(0);
        synchronizer.submit(0, first, None).unwrap();
        assert!(matches!(synchronizer.save(), Err(Error::StepUnderWay { .. })));
        // So that the bucket is on its way; if it is not yet, there is less to take back.
        std::thread::sleep(Duration::from_millis(50));
        let after = synchronizer.save_after_loss(Duration::from_secs(20)).unwrap();
        assert_eq!((after.step, after.residual.len()), (1, before.residual.len()));
        for (name, values) in &before.residual {
            let pairs = values.iter().zip(&after.residual[name]);
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5), "{name}");
        }
        let last = gradients(&layout(1000), 2).swap_remove(1);
        assert!(matches!(synchronizer.submit(1, last, None), Err(Error::GroupLost { .. })));
    });
}

#[test]
fn other_buckets_of_the_same_layers_go_on_where_the_first_were() {
    let layers = [("a", vec![40, 10]), ("b", vec![7]), ("c", vec![300]), ("d", vec![5, 5])];
    let buckets = |bytes| Layout::by_size(layers.iter().cloned(), bytes).unwrap();
    let (few, many) = (buckets(100_000), buckets(100));
    assert_ne!(few.buckets().len(), many.buckets().len());
    // Layer by layer, so that the buckets make no difference.
    for method in
        ["topk:density=0.05,scope=layer,momentum=0.9", "redsync:density=0.05,dense_up_to=30,fuse_up_to=0"]
    {
        let run = |change: bool| {
            Local::run(3, |group| {
                let rank = group.rank() as u64;
                let mut synchronizer = Synchronizer::new(group, method, few.clone()).unwrap();
                for step in 0..6 {
                    let layout = if change && step >= 3 { &many } else { &few };
                    if change && step == 3 {
                        synchronizer.relayout(many.clone()).unwrap();
                        assert_eq!(synchronizer.next_step(), 3);
                    }
                    let whole = noise(few.len(), 10 * step + rank);
                    let mut rest = &whole[..];
                    for (number, bucket) in layout.buckets().iter().enumerate() {
                        let (mine, others) = rest.split_at(bucket.len());
                        synchronizer.submit(number, mine.to_vec(), None).unwrap();
                        rest = others;
                    }
                    synchronizer.wait().unwrap();
                }
                synchronizer.save().unwrap()
            })
        };
        assert!(run(true) == run(false), "{method}");
    }
    let error = Local::run(2, |group| {
        let mut synchronizer = Synchronizer::new(group, "topk", few.clone()).unwrap();
        synchronizer.relayout(Bucket::single("a", 400).unwrap()).unwrap_err().to_string()
    });
    assert!(error[0].contains("the 4 layers there are"), "{error:?}");
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    let results = Local::run(1, |group| {
        let layout = Layout::by_size([("a", vec![100]), ("b", vec![50])], 1).unwrap();
        let mut synchronizer = Synchronizer::new(group, "topk", layout.clone()).unwrap();
        synchronizer.step(&mut gradients(&layout, 1), NONE).unwrap();
        let before = synchronizer.save().unwrap();
        let mut foreign = before.clone();
        foreign.residual.get_mut("a").unwrap()[0] = 5.0;
        foreign.residual.remove("b");
        let error = synchronizer.restore(&foreign).unwrap_err();
        assert!(error.to_string().contains("residual/b"), "{error}");
        assert_eq!(synchronizer.save().unwrap(), before);
    });
    assert_eq!(results.len(), 1);
}

#[test]
fn ranks_that_were_told_different_things_learn_so_at_once() {
    let bucket = |len| Layout::from(Bucket::single("w", len).unwrap());
    let errors = Local::run(3, |group| {
        let method = if group.rank() == 2 { "topk:density=0.02" } else { "topk" };
        Synchronizer::new(group, method, bucket(10)).map(|_| ()).unwrap_err().to_string()
    });
    assert!(errors[0].contains("rank 2") && errors[0].contains("topk:density=0.02 there and topk here"));
    assert!(errors[2].contains("topk there and topk:density=0.02 here"), "{}", errors[2]);
    let errors = Local::run(2, |group| {
        let len = 10 + group.rank();
        Synchronizer::new(group, "topk", bucket(len)).map(|_| ()).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("the layout")), "{errors:?}");
    let errors = Local::run(2, |group| {
        let options = Options { check_replicas_every: group.rank() as u64, ..Options::default() };
        let made = Synchronizer::with_options(group, "topk", bucket(10), options);
        made.map(|_| ()).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("the options")), "{errors:?}");
}

#[test]
fn replicas_that_drift_apart_are_found_and_named() {
    let errors = Local::run(4, |group| {
        let rank = group.rank();
        let options = Options { check_replicas_every: 3, ..Options::default() };
        let layout = Bucket::single("w", 50).unwrap();
        let mut synchronizer = Synchronizer::with_options(group, "topk", layout, options).unwrap();
        let mut weights = [noise(50, 1)];
        if rank == 2 {
            weights[0][49] += 1e-6;
        }
        synchronizer.step(&mut [noise(50, 2)], &weights).unwrap();
        synchronizer.step(&mut [noise(50, 3)], &weights).unwrap();
        let error = synchronizer.step(&mut [noise(50, 4)], &weights).unwrap_err();
        // The group is as good as before.
        synchronizer.step(&mut [noise(50, 5)], &weights).unwrap();
        error
    });
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, Error::ReplicasDiffer { step: 2, what: "weights", .. }), "{text}");
        assert!(text.contains("ranks 0, 1, 3 hold") && text.contains("rank 2 holds"), "{text}");
    }
}

#[test]
fn clipping_is_by_the_norm_of_all_buckets() {
    let run = |layout: Layout| {
        let mut means = Local::run(2, |group| {
            let mut synchronizer = Synchronizer::new(group, "topk:density=1,clip=1", layout.clone()).unwrap();
            let mut values = noise(300, 1).into_iter();
            let mut means: Vec<Vec<f32>> =
                layout.buckets().iter().map(|b| values.by_ref().take(b.len()).collect()).collect();
            synchronizer.step(&mut means, NONE).unwrap();
            means.concat()
        });
        means.remove(0)
    };
    let layers = || [("a", vec![100]), ("b", vec![200])];
    let (one, two) =
        (run(Layout::by_size(layers(), 9999).unwrap()), run(Layout::by_size(layers(), 1).unwrap()));
    assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-6));
    let norm: f32 = two.iter().map(|x| x * x).sum::<f32>().sqrt();
    // Half of each, clipped to 1 / sqrt(2), and both point the same way.
    assert!((norm - 2f32.sqrt()).abs() < 1e-3, "{norm}");
}

#[test]
fn what_each_rank_gives_to_the_mean_is_clipped() {
    let given = |samples: [f64; 2], limit: f64| {
        let mut means = Local::run(2, |group| {
            let rank = group.rank();
            let options = Options { mean: Mean::OfSamples, ..Options::default() };
            let method = format!("topk:density=1,clip={limit}");
            let bucket = Bucket::single("w", 8).unwrap();
            let mut synchronizer = Synchronizer::with_options(group, &method, bucket, options).unwrap();
            synchronizer.set_samples(samples[rank]);
            // Norms of 20, in different places: the mean shows what each rank has given.
            let mut gradient = vec![0.0; 8];
            gradient[4 * rank..][..4].fill(10.0);
            let mut means = [gradient];
            synchronizer.step(&mut means, NONE).unwrap();
            means
        });
        let [mean] = means.remove(0);
        [&mean[..4], &mean[4..]].map(|part| part.iter().map(|x| x * x).sum::<f32>().sqrt())
    };
    let close = |found: [f32; 2], expected: [f32; 2]| {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{found:?}, {expected:?}");
    };
    // Unclipped they would be 10 and 10, or 15 and 5 with three times the samples; the limit is 10 / sqrt(2).
    close(given([1.0, 1.0], 10.0), [50f32.sqrt(); 2]);
    close(given([3.0, 1.0], 10.0), [50f32.sqrt(), 5.0]);
    close(given([3.0, 1.0], 30.0), [15.0, 5.0]);
}

#[test]
fn the_gain_counts_what_half_precision_loses() {
    // Every rank gives up to 65504 / 2 to the mean.
    let read = |value: f64| 1.0 - ((value - 65504.0) / value).powi(2);
    for (method, expected) in [
        ("dense:values=f16", read(1e6)),
        ("ar-topk:density=0.25,values=f16", 0.25 * read(1e6)),
        ("ar-topk:density=0.25,values=f16,feedback=false", 0.25 * read(1e6)),
        ("topk:density=0.25,values=f16", 0.25 * read(1e6)),
        ("dense", 1.0),
    ] {
        let gains = Local::run(2, |group| {
            let bucket = Bucket::single("w", 1000).unwrap();
            let mut synchronizer = Synchronizer::new(group, method, bucket).unwrap();
            synchronizer.step(&mut [vec![1e6; 1000]], NONE).unwrap().gain()
        });
        assert!(gains.iter().all(|gain| (gain - expected).abs() < 1e-4), "{method}: {gains:?} {expected}");
    }
}

#[test]
fn the_output_layer_of_a_layout_is_left_exact() {
    let kept = |layout: Layout| {
        let mut kept = Local::run(2, |group| {
            let method = "redsync:density=0.01,quantize=true,dense_up_to=0,fuse_up_to=0";
            let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
            let mut means = gradients(&layout, 3);
            synchronizer.step(&mut means, NONE).unwrap();
            // Values of one layer that differ: a quantised one has a single mean for each rank and their sum.
            let values = |mean: &Vec<f32>| mean.iter().filter(|&&x| x != 0.0).map(|x| x.to_bits()).collect();
            means
                .iter()
                .map(values)
                .map(|values: std::collections::HashSet<u32>| values.len())
                .collect::<Vec<_>>()
        });
        kept.remove(0)
    };
    let layers = [("head.bias", vec![500]), ("head.weight", vec![100, 50]), ("body.weight", vec![50, 100])];
    let layout = Layout::by_size(layers, 1).unwrap();
    let order = [("body.weight", 2), ("head.weight", 2), ("head.bias", 1)];
    assert!(kept(layout.clone()).iter().all(|&values| values <= 3));
    let marked = kept(layout.with_output_of(order));
    assert!(marked[0] > 3 && marked[1] > 3 && marked[2] <= 3, "{marked:?}");
}

#[test]
fn mistakes_of_the_caller_are_errors_and_not_hangs() {
    Local::run(1, |group| {
        let layout = Layout::by_size([("a", vec![10]), ("b", vec![5])], 1).unwrap();
        let mut synchronizer = Synchronizer::new(group, "topk", layout.clone()).unwrap();
        let error = |result: thinwire::Result<()>| result.unwrap_err().to_string();
        assert!(
            error(synchronizer.step(&mut [vec![0.0; 10]], NONE).map(drop)).contains("1 vectors of gradients")
        );
        let wrong = [vec![0.0; 1]];
        let text = error(synchronizer.step(&mut gradients(&layout, 1), &wrong).map(drop));
        assert!(text.contains("1 vectors of weights were given for 2 buckets"), "{text}");
        let text = error(synchronizer.step(&mut [vec![0.0; 10], vec![0.0; 4]], NONE).map(drop));
        assert!(text.contains("has 4") || text.contains("4 elements"), "{text}");

        synchronizer.submit(1, vec![1.0; 5], None).unwrap();
        assert!(error(synchronizer.submit(1, vec![1.0; 5], None)).contains("bucket 1 was submitted twice"));
        assert!(error(synchronizer.submit(7, vec![1.0; 5], None)).contains("buckets 0 to 1"));
        assert!(error(synchronizer.wait().map(drop)).contains("1 of 2 buckets"));
        assert!(error(synchronizer.save().map(drop)).contains("under way"));
        assert!(error(synchronizer.step(&mut gradients(&layout, 1), NONE).map(drop)).contains("under way"));
        synchronizer.submit(0, vec![1.0; 10], None).unwrap();
        assert_eq!(synchronizer.wait().unwrap().0[1].len(), 5);
        // Dropped in the midst of a step, it ends.
        synchronizer.submit(1, vec![1.0; 5], None).unwrap();
    });
}

#[test]
fn a_rank_that_stalls_in_the_background_is_an_error_at_the_deadline() {
    let groups = Local::connect_within(3, Duration::from_millis(2500));
    std::thread::scope(|scope| {
        for group in groups {
            scope.spawn(|| {
                let rank = group.rank();
                let layout = Layout::by_size([("a", vec![10]), ("b", vec![5])], 1).unwrap();
                let mut synchronizer = Synchronizer::new(group, "topk", layout.clone()).unwrap();
                if rank == 1 {
                    std::thread::sleep(Duration::from_millis(6000));
                    return;
                }
                for (bucket, gradient) in gradients(&layout, 1).into_iter().enumerate() {
                    synchronizer.submit(bucket, gradient, None).unwrap();
                }
                let error = synchronizer.wait().unwrap_err().to_string();
                assert!(error.contains("rank 1") && error.contains("step 0"), "{error}");
                let error = synchronizer.step(&mut gradients(&layout, 2), NONE).unwrap_err().to_string();
                assert!(error.contains("given up"), "{error}");
            });
        }
    });
}

#[test]
fn the_report_adds_up() {
    Local::run(4, |group| {
        let size = group.size();
        let options = Options { algorithm: Some(Algorithm::Ring), ..Options::default() };
        let layout = Bucket::single("w", 100_000).unwrap();
        let mut synchronizer =
            Synchronizer::with_options(group, "ar-topk:density=0.01", layout, options).unwrap();
        let report = synchronizer.step(&mut [noise(100_000, 1)], NONE).unwrap();
        assert_eq!((report.kept(), report.ranks), (1000, size));
        assert!((report.value_ratio() - 100.0).abs() < 1.0);
        // A ring of 1,001 values: each rank sends 1.5 times 4,004 bytes, and the proposal once at most.
        assert!(report.traffic.sent >= 6000 && report.traffic.sent < 9500, "{:?}", report.traffic);
        assert!(report.wire_ratio() > 60.0, "{}", report.wire_ratio());
        assert!(report.gain() > 0.01 && report.gain() < 0.2);
        assert!(report.times.total >= report.times.exchange);
        assert!(synchronizer.workspace_bytes() > 0);
    });
}

#[test]
fn a_density_set_between_steps_counts_from_the_next_one_and_must_be_the_same_everywhere() {
    let outcomes = Local::run(2, |group| {
        let rank = group.rank();
        let layout = Bucket::single("weight", 1000).unwrap();
        let mut synchronizer = Synchronizer::new(group, "ar-topk:density=0.01", layout).unwrap();
        let mut kept = Vec::new();
        for density in [None, Some(0.1), Some(1.0), None] {
            synchronizer.set_density(density).unwrap();
            let mut gradients = [noise(1000, rank as u64)];
            let report = synchronizer.step(&mut gradients, NONE).unwrap();
            kept.push((report.compression.values, report.leader));
        }
        assert!(synchronizer.set_density(Some(0.0)).is_err());
        synchronizer.set_density(Some(0.1 + rank as f64 / 10.0)).unwrap();
        let disagreement = synchronizer.step(&mut [noise(1000, 0)], NONE).unwrap_err();
        (kept, disagreement.to_string())
    });
    for (kept, disagreement) in outcomes {
        assert_eq!(kept, [(10, Some(0)), (100, Some(1)), (1000, None), (10, Some(1))]);
        assert!(disagreement.contains("plan"), "{disagreement}");
    }
}

#[test]
fn whoever_wants_to_know_is_told_the_end_of_every_background_step() {
    let few = Layout::by_size([("a", vec![300]), ("b", vec![200])], 2000).unwrap();
    let many = Layout::by_size([("a", vec![300]), ("b", vec![200])], 1).unwrap();
    Local::run(2, |group| {
        let rank = group.rank();
        let options = Options { zeros_after_error: true, ..Options::default() };
        let mut synchronizer =
            Synchronizer::with_options(group, "topk:density=0.1", few.clone(), options).unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let telling = told.clone();
        synchronizer.on_step_end(Arc::new(move || {
            telling.fetch_add(1, Ordering::SeqCst);
        }));
        let mut layout = &few;
        for step in 0..4 {
            if step == 2 {
                layout = &many;
                synchronizer.relayout(many.clone()).unwrap();
            }
            let mut given = gradients(layout, step * 10 + rank as u64);
            if step == 3 && rank == 1 {
                given[0][7] = f32::NAN;
            }
            for (bucket, gradient) in given.into_iter().enumerate() {
                synchronizer.submit(bucket, gradient, None).unwrap();
            }
            // Before anybody asks for the outcome.
            let begun = Instant::now();
            while told.load(Ordering::SeqCst) <= step as usize {
                assert!(begun.elapsed() < Duration::from_secs(20), "step {step}: nobody was told");
                std::thread::yield_now();
            }
            let outcome = synchronizer.wait();
            assert_eq!(outcome.is_err(), step == 3, "{outcome:?}");
        }
        let zeros = |gradient: &Vec<f32>| gradient.iter().all(|&value| value == 0.0);
        assert!(synchronizer.returned().iter().all(zeros), "a skipped step leaves zeros");
        drop(synchronizer);
        assert_eq!(told.load(Ordering::SeqCst), 4);
    });
}
