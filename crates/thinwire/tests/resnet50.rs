//! What `redsync` sends of a gradient in ResNet-50's shapes: `cargo test --release --test resnet50 -- --ignored`. It
//! takes 3 GB of memory.

mod support;

use support::noise;
use thinwire::group::{Group, Local};
use thinwire::synchronizer::Layout;
use thinwire::{Bucket, Synchronizer};

const ELEMENTS: usize = 25_557_032;
const RANKS: usize = 8;
const STEPS: usize = 100;

/// The parameters of torchvision's ResNet-50, in its order.
fn layers() -> Vec<(String, Vec<usize>)> {
    let mut layers = Vec::new();
    let mut convolution = |name: &str, shape: [usize; 4]| {
        layers.push((format!("{name}.weight"), shape.to_vec()));
        layers.push((format!("{name}.norm.weight"), vec![shape[0]]));
        layers.push((format!("{name}.norm.bias"), vec![shape[0]]));
    };
    convolution("conv1", [64, 3, 7, 7]);
    let mut channels = 64;
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            convolution(&format!("{name}.conv1"), [width, channels, 1, 1]);
            convolution(&format!("{name}.conv2"), [width, width, 3, 3]);
            convolution(&format!("{name}.conv3"), [4 * width, width, 1, 1]);
            if block == 0 {
                convolution(&format!("{name}.downsample"), [4 * width, channels, 1, 1]);
            }
            channels = 4 * width;
        }
    }
    layers.push(("fc.weight".into(), vec![1000, 2048]));
    layers.push(("fc.bias".into(), vec![1000]));
    layers
}

/// The bytes a rank sends in a step: the mean over ranks and steps.
fn sent(method: &str) -> usize {
    let bucket = Bucket::new(0, layers()).unwrap();
    assert_eq!(bucket.len(), ELEMENTS);
    let layout = Layout::from(bucket);
    let base = noise(ELEMENTS, 1);
    let sent = Local::run(RANKS, |group| {
        let rank = group.rank();
        let mut synchronizer = Synchronizer::new(group, method, layout.clone()).unwrap();
        let mut gradient = [vec![0.0; ELEMENTS]];
        let mut sent = 0;
        for step in 0..STEPS {
            let (head, tail) = base.split_at((rank * 2_999_999 + step * 77_777) % ELEMENTS);
            gradient[0][..tail.len()].copy_from_slice(tail);
            gradient[0][tail.len()..].copy_from_slice(head);
            sent += synchronizer.step(&mut gradient, &[] as &[Vec<f32>]).unwrap().traffic.sent as usize;
        }
        sent
    });
    sent.iter().sum::<usize>() / RANKS / STEPS
}

#[test]
#[ignore = "3 GB of memory, minutes"]
fn redsync_quantised_sends_few_bytes() {
    for (method, most) in [
        ("redsync:density=0.001,quantize=true", 700_000),
        ("redsync:density=0.001,quantize=true,values=bf16", 510_000),
    ] {
        let sent = sent(method);
        println!("{method}: {sent} bytes a step");
        assert!(sent <= most, "{method}: {sent} bytes a step, expected at most {most}");
    }
}
