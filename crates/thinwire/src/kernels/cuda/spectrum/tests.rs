//! The transform of the host is what everything here is compared with.

use std::time::Instant;

use super::*;
use crate::transform::RealFft;

fn rough(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let energy: f64 = expected.iter().map(|&value| f64::from(value).powi(2)).sum();
    let squares = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    let distance = squares.sum::<f64>().sqrt();
    assert!(distance <= 1e-5 * energy.sqrt().max(1e-3), "{what}: {distance} of {}", energy.sqrt());
}

/// Everything a step does, on both sides.
fn check(device: &Arc<Device>, ranges: &[Range<usize>], block: FftBlock, half_input: bool) {
    let what = format!("{ranges:?} {block:?} {half_input}");
    let whole = ranges.iter().map(|range| range.end).max().unwrap_or(0) + 3;
    let vector = rough(whole, 5);
    let signal: Vec<f32> = ranges.iter().flat_map(|range| vector[range.clone()].to_vec()).collect();
    let round = |value: &f32| if half_input { half::f16::from_f32(*value).to_f32() } else { *value };
    let rounded: Vec<f32> = signal.iter().map(round).collect();
    let mut fft = RealFft::new(signal.len(), block).unwrap();
    let mut coefficients = vec![0.0; fft.coefficients()];
    fft.forward(&rounded, &mut coefficients);

    let mut spectrum = CudaSpectrum::new(device, ranges, block).unwrap();
    assert_eq!(spectrum.bins(), fft.slots(), "{what}");
    let slots = spectrum.bins();
    let mut values = Buffer::of(device, &vector).unwrap();
    // SAFETY: the ranges lie in the vector.
    unsafe { spectrum.forward(values.address(), half_input).unwrap() };
    assert!(values.read(0..whole).unwrap() == vector, "{what}: the input stays as it is");
    let all: Vec<u32> = (0..slots as u32).collect();
    let all = Buffer::of(device, &all).unwrap();
    // The values of a message may begin at any float.
    let gathered = Buffer::<f32>::new(device, 2 * slots + 1).unwrap();
    let parts = Run::of(&gathered, 1..2 * slots + 1);
    spectrum.gather(Run::of(&all, 0..slots), parts).unwrap();
    let found = gathered.read(1..2 * slots + 1).unwrap();
    assert_near(&found, &coefficients, &what);
    let magnitude =
        |pair: &[f32]| f64::from(pair[0]).mul_add(pair[0].into(), f64::from(pair[1]).powi(2)).sqrt() as f32;
    let expected: Vec<f32> = found.chunks(2).map(magnitude).collect();
    assert_near(&spectrum.magnitudes().read(0..slots).unwrap(), &expected, &what);

    // A part of the slots is sent, and a part of those is left.
    let chosen: Vec<u32> = (0..slots as u32).filter(|slot| slot % 3 == 0 || slot % 7 == 2).collect();
    let left: Vec<f32> = rough(2 * chosen.len(), 8).iter().map(|value| value / 64.0).collect();
    let mut sent = vec![0.0; 2 * slots];
    for (i, &slot) in chosen.iter().enumerate() {
        for part in 0..2 {
            sent[2 * slot as usize + part] = found[2 * slot as usize + part] - left[2 * i + part];
        }
    }
    let mut back = vec![0.0; signal.len()];
    fft.inverse(&sent, &mut back);
    let device_chosen = Buffer::of(device, &chosen).unwrap();
    let device_left = Buffer::of(device, &left).unwrap();
    let (bins, left_run) = (Run::of(&device_chosen, 0..chosen.len()), Run::of(&device_left, 0..left.len()));
    let apply = |vector: &[f32], back: &[f32], how: fn(f32, f32) -> f32| {
        let (mut expected, mut back) = (vector.to_vec(), back.iter());
        for range in ranges {
            expected[range.clone()]
                .iter_mut()
                .zip(&mut back)
                .for_each(|(value, &back)| *value = how(*value, back));
        }
        expected
    };
    spectrum.keep_only(bins, Some(left_run)).unwrap();
    // SAFETY: as above.
    unsafe { spectrum.inverse(values.address(), Onto::Subtract).unwrap() };
    assert_near(&values.read(0..whole).unwrap(), &apply(&vector, &back, |value, back| value - back), &what);

    // Two messages are added up, one of chosen slots and one of all.
    for onto in [Onto::Subtract, Onto::Replace] {
        values.write(0, &vector).unwrap();
        spectrum.zero();
        spectrum.add(Some(bins), left_run, 0.5).unwrap();
        spectrum.add(None, parts, 0.25).unwrap();
        spectrum.add(Some(bins), left_run, 0.5).unwrap();
        let mut sum: Vec<f32> = found.iter().map(|value| value * 0.25).collect();
        for (i, &slot) in chosen.iter().enumerate() {
            sum[2 * slot as usize] += left[2 * i];
            sum[2 * slot as usize + 1] += left[2 * i + 1];
        }
        fft.inverse(&sum, &mut back);
        let how = if onto == Onto::Subtract { |value, back| value - back } else { |_, back| back };
        // SAFETY: as above.
        unsafe { spectrum.inverse(values.address(), onto).unwrap() };
        assert_near(&values.read(0..whole).unwrap(), &apply(&vector, &back, how), &what);
    }
    // Nothing added is nothing.
    spectrum.zero();
    // SAFETY: as above.
    unsafe { spectrum.inverse(values.address(), Onto::Replace).unwrap() };
    assert_eq!(
        values.read(0..whole).unwrap(),
        apply(&values.read(0..whole).unwrap(), &vec![0.0; signal.len()], |_, back| back)
    );
    // All of one message.
    spectrum.zero();
    spectrum.add(None, parts, 1.0).unwrap();
    // SAFETY: as above.
    unsafe { spectrum.inverse(values.address(), Onto::Replace).unwrap() };
    let back: Vec<f32> = ranges.iter().flat_map(|range| values.read(range.clone()).unwrap()).collect();
    assert_near(&back, &rounded, &what);
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn spectra_are_those_of_the_host() {
    let device = Device::open(0).unwrap();
    for n in [1, 2, 3, 7, 64, 97, 509, 4095, 4096, 4097, 8192, 20_001] {
        for block in
            [FftBlock::Whole, FftBlock::Elements(2), FftBlock::Elements(22), FftBlock::Elements(4096)]
        {
            if matches!(block, FftBlock::Elements(2)) && n > 4097 {
                continue;
            }
            for half_input in [false, true] {
                check(&device, &[0..n], block, half_input);
            }
            check(&device, &[2..n + 2], block, false);
            check(&device, &[3..n + 3], block, false);
            if n > 2 {
                check(&device, &[1..n / 3 + 1, n / 3 + 5..n + 5], block, false);
                check(&device, &[0..1, 2..2, 4..n + 3], block, true);
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn the_same_bits_every_time() {
    let device = Device::open(0).unwrap();
    let n = 1_000_003;
    let values = Buffer::of(&device, &rough(n, 3)).unwrap();
    let mut runs = Vec::new();
    for _ in 0..3 {
        let mut spectrum = CudaSpectrum::new(&device, &[0..n], FftBlock::default()).unwrap();
        // SAFETY: the range is the vector.
        unsafe { spectrum.forward(values.address(), false).unwrap() };
        let bins = spectrum.bins();
        let magnitudes = spectrum.magnitudes().read(0..bins).unwrap();
        runs.push(magnitudes.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
    }
    assert!(runs[0] == runs[1] && runs[1] == runs[2]);
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn a_large_spectrum() {
    let device = Device::open(0).unwrap();
    let n = 138_357_544;
    let values = Buffer::of(&device, &rough(n, 3)).unwrap();
    let mut spectrum = CudaSpectrum::new(&device, &[0..n], FftBlock::default()).unwrap();
    let chosen: Vec<u32> = (0..spectrum.bins() as u32)
        .filter(|slot| slot.wrapping_mul(0x9e37_79b9) < u32::MAX / 100 * 15)
        .collect();
    let chosen = Buffer::of(&device, &chosen).unwrap();
    let bins = Run::of(&chosen, 0..chosen.len());
    let parts = Buffer::<f32>::new(&device, 2 * chosen.len()).unwrap();
    let parts = Run::of(&parts, 0..2 * chosen.len());
    for _ in 0..3 {
        let mut times = Vec::new();
        let mut begun = Instant::now();
        let mut lap = |name: &str| {
            device.wait().unwrap();
            times.push(format!("{name} {:?}", begun.elapsed()));
            begun = Instant::now();
        };
        // SAFETY: the range is the vector, here and below.
        unsafe { spectrum.forward(values.address(), false).unwrap() };
        lap("forward");
        spectrum.gather(bins, parts).unwrap();
        lap("gather");
        spectrum.keep_only(bins, None).unwrap();
        lap("keep_only");
        // SAFETY: as above.
        unsafe { spectrum.inverse(values.address(), Onto::Subtract).unwrap() };
        lap("inverse -=");
        spectrum.zero();
        spectrum.add(Some(bins), parts, 1.0).unwrap();
        lap("zero and add");
        // SAFETY: as above.
        unsafe { spectrum.inverse(values.address(), Onto::Replace).unwrap() };
        lap("inverse =");
        println!("{}; {} bytes", times.join(", "), spectrum.bytes());
    }
}
