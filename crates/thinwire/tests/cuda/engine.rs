//! Whole steps of several ranks, all on one GPU, against the same on the CPU.

use thinwire::group::{Group, Local};
use thinwire::kernels::cuda::{Buffer, Cuda, Element, Gradient};
use thinwire::synchronizer::{Layout, Options, Synchronizer};
use thinwire::{Bucket, Error};

use super::data::{Noise, assert_same};

/// Memory of the GPU as a synchronizer takes it.
struct Held {
    memory: Buffer<f32>,
    gradient: Gradient,
}

impl Held {
    fn new(cuda: &Cuda, values: &[f32]) -> Held {
        let memory = Buffer::of(cuda.device(), values).unwrap();
        let gradient = Gradient::of(&memory);
        Held { memory, gradient }
    }
}

impl AsRef<Gradient> for Held {
    fn as_ref(&self) -> &Gradient {
        &self.gradient
    }
}

impl AsMut<Gradient> for Held {
    fn as_mut(&mut self) -> &mut Gradient {
        &mut self.gradient
    }
}

const METHODS: &[&str] = &[
    "dense",
    "dense:values=f16",
    "topk:density=0.01",
    "topk:density=0.01,values=f16",
    "topk:density=0.01,momentum=0.9",
    "gaussian-k:density=0.01",
    "redsync:density=0.01",
    "redsync:density=0.01,quantize=true",
    "dgc:density=0.01",
    "mstopk:density=0.01",
    "random-k:density=0.01",
    "ar-topk:density=0.01",
    "ar-topk:density=0.01,leader=var",
    "iwp:density=0.02",
];

fn buckets() -> Vec<Bucket> {
    let layers = [
        ("embedding", vec![300, 500]),
        ("norm", vec![300]),
        ("middle", vec![120, 100]),
        ("gain", vec![401]),
        ("head", vec![70, 1001]),
        ("bias", vec![70]),
    ];
    let (first, second) = layers.split_at(2);
    vec![Bucket::new(0, first.to_vec()).unwrap(), Bucket::new(1, second.to_vec()).unwrap()]
}

/// Gradients by step, rank and bucket.
fn gradients(noise: &mut Noise, buckets: &[Bucket], steps: usize, ranks: usize) -> Vec<Vec<Vec<Vec<f32>>>> {
    let of_rank = |noise: &mut Noise| buckets.iter().map(|bucket| noise.normal(bucket.len())).collect();
    (0..steps).map(|_| (0..ranks).map(|_| of_rank(noise)).collect()).collect()
}

/// The mean gradients of each step on a rank; nothing for a step that was skipped.
fn run_cpu(
    method: &str,
    buckets: &[Bucket],
    ranks: usize,
    gradients: &[Vec<Vec<Vec<f32>>>],
    weights: &[Vec<f32>],
) -> Vec<Vec<Vec<f32>>> {
    let means = Local::run(ranks, |group| {
        let rank = group.rank();
        let mut synchronizer =
            Synchronizer::new(group, method, Layout::new(buckets.to_vec()).unwrap()).unwrap();
        let step = |of_ranks: &Vec<Vec<Vec<f32>>>| {
            let mut mine = of_ranks[rank].clone();
            match synchronizer.step(&mut mine, weights) {
                Err(Error::Skipped { .. }) => Vec::new(),
                stepped => stepped.map(|_| mine).unwrap(),
            }
        };
        gradients.iter().map(step).collect::<Vec<_>>()
    });
    means.into_iter().next().unwrap()
}

fn run_cuda(
    method: &str,
    buckets: &[Bucket],
    ranks: usize,
    gradients: &[Vec<Vec<Vec<f32>>>],
    weights: &[Vec<f32>],
) -> Vec<Vec<Vec<Vec<f32>>>> {
    Local::run(ranks, |group| {
        let rank = group.rank();
        let cuda = Cuda::new(0).unwrap();
        let device = Cuda::new(0).unwrap();
        let layout = Layout::new(buckets.to_vec()).unwrap();
        let mut synchronizer =
            Synchronizer::<Held, Cuda>::with_kernels(cuda, group, method, layout, Options::default())
                .unwrap();
        let mut means = Vec::new();
        for of_ranks in gradients {
            for (bucket, gradient) in of_ranks[rank].iter().enumerate() {
                let weights = Held::new(&device, &weights[bucket]);
                synchronizer.submit(bucket, Held::new(&device, gradient), Some(weights)).unwrap();
            }
            let buffers = match synchronizer.wait() {
                Err(Error::Skipped { .. }) => Vec::new(),
                stepped => stepped.unwrap().0,
            };
            means.push(buffers.iter().map(|held| held.memory.read(0..held.memory.len()).unwrap()).collect());
        }
        means
    })
}

/// Some steps of each method on so many ranks, with the same bits on both devices.
fn assert_means_of_the_cpu(methods: &[&str], buckets: &[Bucket], ranks: usize) {
    let mut noise = Noise::fresh();
    let weights: Vec<Vec<f32>> = buckets.iter().map(|bucket| noise.normal(bucket.len())).collect();
    let gradients = gradients(&mut noise, buckets, 4, ranks);
    assert_means(methods, buckets, &gradients, &weights);
}

fn assert_means(
    methods: &[&str],
    buckets: &[Bucket],
    gradients: &[Vec<Vec<Vec<f32>>>],
    weights: &[Vec<f32>],
) {
    let ranks = gradients[0].len();
    for method in methods {
        let expected = run_cpu(method, buckets, ranks, gradients, weights);
        for of_rank in run_cuda(method, buckets, ranks, gradients, weights) {
            for (step, (found, expected)) in of_rank.iter().zip(&expected).enumerate() {
                assert_eq!(found.len(), expected.len(), "{method}, step {step}: buckets");
                for (found, expected) in found.iter().zip(expected) {
                    assert_same(found, expected, &format!("{method}, step {step}"));
                }
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn every_method_gives_the_means_of_the_cpu() {
    assert_means_of_the_cpu(METHODS, &buckets(), 3);
}

/// Beyond 262,144 entries a list is coded on the device, and does not go to the host with the rest.
#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn long_lists_give_the_means_of_the_cpu() {
    let dense = [("table", vec![500, 540]), ("small", vec![10, 20])];
    let mixed =
        [("small too", vec![30, 10]), ("wide", vec![1000, 1000]), ("long", vec![540, 500]), ("end", vec![7])];
    let buckets = [Bucket::new(0, dense.to_vec()).unwrap(), Bucket::new(1, mixed.to_vec()).unwrap()];
    let methods = [
        "redsync:density=0.01,dense_up_to=300000",
        "redsync:density=0.3,dense_up_to=300000",
        "redsync:density=0.3,dense_up_to=1000",
        "topk:density=0.3,dense_up_to=300000,values=f16",
        "ar-topk:density=0.3,dense_up_to=300000",
    ];
    assert_means_of_the_cpu(&methods, &buckets, 2);
}

const LENGTHS: [usize; 10] = [9000, 70, 12_345, 100_000, 5000, 4096, 64, 150_000, 33_333, 20_000];

/// A bucket of many layers, and gradients for it by step and rank, each layer by itself.
fn many_layers(
    steps: usize,
    ranks: usize,
    mut layer: impl FnMut(usize) -> Vec<f32>,
) -> (Bucket, Vec<Vec<Vec<Vec<f32>>>>) {
    let layers = LENGTHS.iter().enumerate().map(|(number, &len)| (format!("layer {number}"), vec![len]));
    let bucket = Bucket::new(0, layers.collect::<Vec<_>>()).unwrap();
    let mut whole = || vec![LENGTHS.iter().flat_map(|&len| layer(len)).collect()];
    (bucket, (0..steps).map(|_| (0..ranks).map(|_| whole()).collect()).collect())
}

/// Layers whose selections end together: with guesses that are far off, and with fewer elements than may be kept.
#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn many_layers_at_once_give_the_means_of_the_cpu() {
    let mut noise = Noise::fresh();
    let (bucket, gradients) = many_layers(12, 2, |len| {
        let scale = [1.0, 1.0, 0.01, 100.0][noise.below(4)];
        // Sums of any exponent would not be finite.
        let mut finite =
            std::iter::repeat_with(|| noise.hostile(len)).filter(|(kind, _)| *kind != "any exponent");
        finite.next().unwrap().1.into_iter().map(|value| value * scale).collect()
    });
    let weights = [Noise::fresh().normal(bucket.len())];
    let methods = [
        "topk:density=0.01,scope=layer",
        "topk:density=0.02,scope=layer,values=f16,momentum=0.9",
        "redsync:density=0.01,dense_up_to=100",
        "redsync:density=0.05,dense_up_to=100,quantize=true",
        "iwp:density=0.02,dense_up_to=100",
    ];
    assert_means(&methods, &[bucket], &gradients, &weights);
}

/// All of them have been walked when it is found. Sums of whole numbers are exact, so that what has entered the memory is
/// taken out to the bit.
#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn a_nan_in_one_of_many_layers_is_taken_out_of_all() {
    let mut noise = Noise::fresh();
    let (bucket, mut gradients) = many_layers(8, 2, |len| {
        let most = [10.0, 100.0, 1000.0][noise.below(3)];
        noise.normal(len).into_iter().map(|value| (value * most).round()).collect()
    });
    gradients[4][1][0][LENGTHS[..3].iter().sum::<usize>() + 17] = f32::NAN;
    let weights = [Noise::fresh().normal(bucket.len())];
    assert_means(
        &["topk:density=0.01,scope=layer", "redsync:density=0.01,dense_up_to=100"],
        &[bucket],
        &gradients,
        &weights,
    );
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn frequencies_are_those_of_the_cpu_but_for_rounding() {
    let mut noise = Noise::fresh();
    let ranks = 2;
    let buckets = buckets();
    let weights: Vec<Vec<f32>> = buckets.iter().map(|bucket| noise.normal(bucket.len())).collect();
    let gradients = gradients(&mut noise, &buckets, 4, ranks);
    for method in [
        "fft",
        "fft:bits=0",
        "fft:block=256",
        "fft:block=0",
        "fft:theta=0",
        "fft:theta=0.999",
        "fft:half_input=true",
    ] {
        let expected = run_cpu(method, &buckets, ranks, &gradients, &weights);
        let found = run_cuda(method, &buckets, ranks, &gradients, &weights);
        assert!(found[0] == found[1], "{method}: replicas");
        for (step, (found, expected)) in found[0].iter().zip(&expected).enumerate() {
            for (found, expected) in found.iter().zip(expected) {
                let distance: f64 =
                    found.iter().zip(expected).map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
                let size: f64 = expected.iter().map(|b| (*b as f64).powi(2)).sum();
                // A bin at the edge of the selection, or a value at the edge of two codes, may fall to the other side.
                assert!(distance <= 1e-3 * size, "{method}, step {step}: {distance} of {size}");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn half_width_gradients_get_half_width_means() {
    for element in [Element::F16, Element::Bf16] {
        let means = Local::run(2, |group| {
            let value = group.rank() as f32 + 1.0;
            let bits = if element == Element::F16 {
                half::f16::from_f32(value).to_bits()
            } else {
                half::bf16::from_f32(value).to_bits()
            };
            let (cuda, device) = (Cuda::new(0).unwrap(), Cuda::new(0).unwrap());
            let memory = Buffer::of(device.device(), &[bits; 1000]).unwrap();
            struct Words(Gradient);
            impl AsRef<Gradient> for Words {
                fn as_ref(&self) -> &Gradient {
                    &self.0
                }
            }
            impl AsMut<Gradient> for Words {
                fn as_mut(&mut self) -> &mut Gradient {
                    &mut self.0
                }
            }
            let layout = Bucket::single("weight", 1000).unwrap();
            let mut synchronizer = Synchronizer::<Words, Cuda>::with_kernels(
                cuda,
                group,
                "topk:density=0.01,dense_up_to=0,dense_one_dimensional=false",
                layout,
                Options::default(),
            )
            .unwrap();
            // SAFETY: the buffer holds as many such numbers, and stays.
            let gradient = unsafe { Gradient::new(memory.address(), 1000, element, None) }.unwrap();
            synchronizer.submit(0, Words(gradient), None).unwrap();
            synchronizer.wait().unwrap();
            memory.read(0..1000).unwrap()
        });
        let mean = if element == Element::F16 {
            half::f16::from_f32(1.5).to_bits()
        } else {
            half::bf16::from_f32(1.5).to_bits()
        };
        for words in means {
            assert!(words[..10].iter().all(|&word| word == mean), "{:?}", &words[..12]);
            assert!(words[10..].iter().all(|&word| word == 0));
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn a_nan_is_skipped_by_all_ranks_and_the_next_step_works() {
    let mut noise = Noise::fresh();
    let good = gradients(&mut noise, &buckets(), 2, 2);
    for method in ["topk:density=0.01", "redsync:density=0.01", "ar-topk:density=0.01", "dense"] {
        let outcomes = Local::run(2, |group| {
            let rank = group.rank();
            let (cuda, device) = (Cuda::new(0).unwrap(), Cuda::new(0).unwrap());
            let layout = Layout::new(buckets()).unwrap();
            let mut synchronizer =
                Synchronizer::<Held, Cuda>::with_kernels(cuda, group, method, layout, Options::default())
                    .unwrap();
            let mut step = |gradients: &[Vec<f32>]| {
                for (bucket, gradient) in gradients.iter().enumerate() {
                    synchronizer.submit(bucket, Held::new(&device, gradient), None).unwrap();
                }
                synchronizer.wait().map(|_| ())
            };
            step(&good[0][rank]).unwrap();
            let mut bad = good[1][rank].clone();
            if rank == 1 {
                bad[1][12_000 + 401 + 70_070 + 5] = f32::NAN;
            }
            let skipped = step(&bad).unwrap_err();
            step(&good[1][rank]).unwrap();
            skipped
        });
        for outcome in outcomes {
            assert!(
                matches!(&outcome, Error::Skipped { rank: 1, reason, .. } if reason.contains("bias")),
                "{method}: {outcome}"
            );
        }
    }
}
