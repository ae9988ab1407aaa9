use proptest::prelude::*;

use super::*;

const SIZES: [usize; 12] = [1, 2, 3, 7, 8, 9, 63, 255, 256, 257, 511, 5000];

fn normal(count: usize, seed: u32) -> Vec<f32> {
    let uniform = |i: usize| {
        let hash = (i as u32 + 1).wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(0x85eb_ca6b);
        ((hash ^ hash >> 15).wrapping_mul(0x2c1b_3c6d) >> 8) as f32 / (1 << 24) as f32
    };
    (0..count).map(|i| (0..6).map(|j| uniform(6 * i + j) - 0.5).sum::<f32>() * 1e-3).collect()
}

fn quantizers() -> impl Iterator<Item = Quantizer> {
    let nearest = [2, 3, 4, 8].map(|bits| Quantizer::new(bits).unwrap());
    nearest.into_iter().flat_map(|quantizer| [quantizer, quantizer.stochastic(7)])
}

/// The definition, one value at a time.
fn plain(values: &[f32], quantizer: Quantizer, first: usize) -> Vec<f32> {
    let top = f64::from((1i32 << (quantizer.bits() - 1)) - 1);
    let part = block::part_len(quantizer.bits().into());
    let of_part = |(number, block): (usize, &[f32])| {
        let most = block.iter().fold(0.0f64, |most, value| most.max(f64::from(value.abs())));
        let squares: f64 = block.iter().map(|&value| f64::from(value).powi(2)).sum();
        let width = if quantizer.bits() == 2 { 2.0 * (squares / block.len() as f64).sqrt() } else { most };
        // The least bfloat16 that is not below it.
        let near = half::bf16::from_f64(width / top);
        let scale =
            if near.to_f64() < width / top { half::bf16::from_bits(near.to_bits() + 1) } else { near };
        let scale = scale.to_f64();
        let sent = |(i, &value): (usize, &f32)| {
            let shift = quantizer.dither(first).map_or(0.0, |dither| dither.at(number * part + i));
            let code = (f64::from(value) / scale + f64::from(shift)).round_ties_even().clamp(-top, top);
            if scale > 0.0 { (code * scale) as f32 } else { 0.0 }
        };
        block.iter().enumerate().map(sent).collect::<Vec<f32>>()
    };
    values.chunks(part).enumerate().flat_map(of_part).collect()
}

#[test]
fn what_is_read_is_the_definition_and_the_rest_is_left() {
    for quantizer in quantizers() {
        for count in SIZES {
            let values = normal(count, 3);
            let (mut rest, mut bytes) = (values.clone(), vec![9]);
            let sums = quantizer.quantize(&mut rest, 1000, &mut bytes).unwrap();
            assert_eq!(bytes.len() - 1, quantizer.encoded_len(count), "{quantizer:?} {count}");
            let mut read = vec![f32::NAN; count];
            quantizer.decode(&bytes[1..], 1.0, &mut read).unwrap();
            let expected = plain(&values, quantizer, 1000);
            let (mut energy, mut lost, mut other) = (0.0, 0.0, 0);
            for i in 0..count {
                let rounding = values[i].abs().max(read[i].abs()) * f32::EPSILON;
                assert!((read[i] + rest[i] - values[i]).abs() <= rounding, "{quantizer:?} {count} {i}");
                // A value that lies within a rounding of the middle may go either way.
                other += usize::from((read[i] - expected[i]).abs() > 1e-6 * expected[i].abs());
                energy += f64::from(values[i]).powi(2);
                lost += f64::from(rest[i]).powi(2);
            }
            assert!(other * 1000 <= count, "{quantizer:?}: {other} of {count} differ");
            assert!((sums.energy / energy - 1.0).abs() < 1e-4, "{quantizer:?} {count}");
            assert!((sums.lost - lost).abs() <= 1e-4 * energy, "{quantizer:?} {count}");
        }
    }
}

#[test]
fn adding_is_decoding_and_accumulating_is_adding_first() {
    for quantizer in quantizers() {
        let (gradient, residual) = (normal(1000, 1), normal(1000, 2));
        let (mut one, mut two) = (residual.clone(), residual.clone());
        let (mut bytes_one, mut bytes_two) = (Vec::new(), Vec::new());
        quantizer.accumulate(Some((&gradient, 0.5)), &mut one, 0, &mut bytes_one).unwrap();
        two.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += 0.5 * g);
        quantizer.quantize(&mut two, 0, &mut bytes_two).unwrap();
        assert_eq!((&one, &bytes_one), (&two, &bytes_two));
        let (mut sums, mut read) = (gradient.clone(), vec![0.0; 1000]);
        quantizer.add(&bytes_one, &mut sums).unwrap();
        quantizer.decode(&bytes_one, 1.0, &mut read).unwrap();
        assert!(sums.iter().zip(&gradient).zip(&read).all(|((sum, g), r)| *sum == g + r));
    }
}

#[test]
fn error_feedback_delivers_everything_in_the_end() {
    for quantizer in quantizers() {
        let gradient = normal(3000, 5);
        let (mut residual, mut bytes, mut read) = (vec![0.0; 3000], Vec::new(), vec![0.0; 3000]);
        let mut total = vec![0.0f64; 3000];
        for step in 0..200 {
            bytes.clear();
            let quantizer = quantizer.key.map_or(quantizer, |key| quantizer.stochastic(key + step));
            quantizer.accumulate(Some((&gradient, 1.0)), &mut residual, 0, &mut bytes).unwrap();
            quantizer.decode(&bytes, 1.0, &mut read).unwrap();
            total.iter_mut().zip(&read).for_each(|(total, read)| *total += f64::from(*read));
        }
        let most = gradient.iter().fold(0.0f32, |most, g| most.max(g.abs()));
        for (total, gradient) in total.iter().zip(&gradient) {
            let missing = (total - 200.0 * f64::from(*gradient)).abs();
            assert!(missing < 6.0 * f64::from(most), "{quantizer:?}: {missing} of {gradient}");
        }
    }
}

#[test]
fn stochastic_rounding_has_no_bias_and_depends_on_key_and_position_only() {
    let quantizer = Quantizer::new(4).unwrap();
    let mut values = vec![0.31f32; 256 * 400];
    values.iter_mut().step_by(64).for_each(|value| *value = 7.0);
    let sent = |quantizer: Quantizer, values: &[f32], first| {
        let (mut rest, mut bytes, mut read) = (values.to_vec(), Vec::new(), vec![0.0; values.len()]);
        quantizer.quantize(&mut rest, first, &mut bytes).unwrap();
        quantizer.decode(&bytes, 1.0, &mut read).unwrap();
        read
    };
    let read = sent(quantizer.stochastic(1), &values, 0);
    let mean = read.iter().filter(|&&value| value < 6.0).sum::<f32>() / (63.0 * 1600.0);
    assert!((mean - 0.31).abs() < 0.005, "{mean}");
    assert!(sent(quantizer, &values, 0).iter().filter(|&&value| value < 6.0).all(|&value| value == 0.0));
    assert_eq!(read[256..], sent(quantizer.stochastic(1), &values[256..], 256)[..]);
    assert_ne!(read, sent(quantizer.stochastic(2), &values, 0));
}

#[test]
fn a_value_that_is_not_finite_stops_at_its_block_and_changes_nothing_from_there() {
    for quantizer in quantizers() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38] {
            let (mut residual, mut bytes) = (normal(1000, 4), Vec::new());
            let before = residual.clone();
            let mut gradient = normal(1000, 5);
            gradient[600] = bad;
            gradient[700] = bad;
            let found = quantizer.accumulate(Some((&gradient, 1.0)), &mut residual, 0, &mut bytes);
            assert_eq!(found, Err(600));
            assert_eq!(residual[512..], before[512..]);
            assert_eq!(bytes.len(), quantizer.encoded_len(512));
        }
    }
}

#[test]
fn extreme_sizes_survive() {
    for quantizer in quantizers() {
        for size in [0.0, 1e-44, 1e-38, 1e-30, 1.0, 1e30, 7e37] {
            let mut values = vec![size, -size, size / 3.0, 0.0];
            let (before, mut bytes, mut read) = (values.clone(), Vec::new(), vec![0.0; 4]);
            quantizer.quantize(&mut values, 0, &mut bytes).unwrap();
            quantizer.decode(&bytes, 1.0, &mut read).unwrap();
            for i in 0..4 {
                let rounding = before[i].abs() * f32::EPSILON;
                assert!((values[i] + read[i] - before[i]).abs() <= rounding, "{quantizer:?} {size} {i}");
            }
        }
    }
}

#[test]
fn damaged_bytes_are_refused() {
    let quantizer = Quantizer::new(4).unwrap();
    let (mut bytes, mut out) = (Vec::new(), vec![0.0; 300]);
    quantizer.quantize(&mut normal(300, 1), 0, &mut bytes).unwrap();
    assert!(quantizer.decode(&bytes, 1.0, &mut out).is_ok());
    assert!(quantizer.decode(&bytes[..bytes.len() - 1], 1.0, &mut out).is_err());
    assert!(quantizer.decode(&bytes, 1.0, &mut out[..299]).is_ok(), "an odd value shares its byte");
    assert!(quantizer.decode(&bytes, 1.0, &mut out[..298]).is_err());
    for scale in [half::bf16::NAN, half::bf16::INFINITY, half::bf16::NEG_ONE, half::bf16::MAX] {
        let mut damaged = bytes.clone();
        damaged[136..138].copy_from_slice(&scale.to_le_bytes());
        let error = quantizer.add(&damaged, &mut out).unwrap_err().to_string();
        assert!(error.contains("the one at place 4"), "{error}");
    }
    assert!(Quantizer::new(5).is_err());
}

#[test]
fn shards_are_whole_blocks_and_cover_everything() {
    for elements in [0, 1, 255, 256, 257, 1000, 100_000] {
        for ranks in 1..10 {
            let mut end = 0;
            for rank in 0..ranks {
                let shard = Quantizer::shard(elements, rank, ranks);
                assert_eq!(shard.start, end);
                assert!(shard.start.is_multiple_of(BLOCK) || shard.is_empty());
                end = shard.end;
            }
            assert_eq!(end, elements);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_of_the_right_length_give_finite_values_or_an_error(
        bits in prop::sample::select(vec![2u8, 3, 4, 8]),
        bytes in prop::collection::vec(any::<u8>(), 4..600),
    ) {
        let quantizer = Quantizer::new(bits).unwrap();
        let count = (1..3000).find(|&count| quantizer.encoded_len(count) >= bytes.len()).unwrap();
        let mut out = vec![0.0; count];
        if quantizer.decode(&bytes, 1.0, &mut out).is_ok() {
            prop_assert!(out.iter().all(|value| value.is_finite()));
        }
    }
}
