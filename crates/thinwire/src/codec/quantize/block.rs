//! The arithmetic of one block, and the passes over many, on three instruction sets.
//!
//! The loops are plain Rust over arrays of fixed length, which the compiler turns into vector instructions; each pass is
//! compiled once for every instruction set and the one at hand is called. Rounding uses the fact that a float near
//! `1.5 * 2^23` has no fraction: adding that number rounds to the nearest integer, and the low bits are the integer.

use super::BLOCK;

/// Adding this rounds to an integer.
const ROUNDER: f32 = 12_582_912.0;
/// Below this, a block is zero: the reciprocal of its scale would overflow. The values stay behind.
const SMALLEST: f32 = 1e-35;
/// At or above this, a block is refused like one with an infinity: its decoded values could overflow.
const LARGEST: f32 = 8e37;
/// Sums are made in this many lanes on every instruction set.
const LANES: usize = 16;

/// Random numbers for stochastic rounding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dither {
    pub key: u32,
    /// The position of the first value.
    pub first: u32,
}

impl Dither {
    /// The same for the values from a position on.
    #[inline(always)]
    fn from(self, position: usize) -> Dither {
        Dither { first: self.first.wrapping_add(position as u32), ..self }
    }

    /// From -0.5 up to 0.5, for the value at a position.
    #[inline(always)]
    pub(super) fn at(self, position: usize) -> f32 {
        let mut hash = (self.first.wrapping_add(position as u32)).wrapping_mul(0x9e37_79b1) ^ self.key;
        hash = (hash ^ (hash >> 15)).wrapping_mul(0x85eb_ca77);
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae3d);
        ((hash >> 8) as i32 as f32) * (1.0 / 16_777_216.0) - 0.5
    }
}

/// The largest integer of so many bits; its negative is the smallest.
const fn top(bits: u32) -> u8 {
    (1 << (bits - 1)) - 1
}

/// Values that share a scale: as many as leave a code of 3 bits at most 3.125 bits a value, and the others 0.25 more.
pub(super) const fn part_len(bits: u32) -> usize {
    if bits == 3 { 128 } else { 64 }
}

/// Bytes of a block of `count` values.
pub(super) const fn len(bits: u32, count: usize) -> usize {
    let codes = match bits {
        8 => count,
        3 => count.div_ceil(4) + count.div_ceil(8),
        4 => count.div_ceil(2),
        _ => count.div_ceil(4),
    };
    2 * count.div_ceil(part_len(bits)) + codes
}

/// The scales at the beginning of a block of `count` values.
pub(super) fn scales_of(bits: u32, block: &[u8], count: usize) -> impl Iterator<Item = f32> {
    let words = block.as_chunks().0.iter().take(count.div_ceil(part_len(bits)));
    words.map(|word| scale_from(*word))
}

#[inline(always)]
fn scale_from(word: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(word)) << 16)
}

/// The least bfloat16 that is not below a positive number.
#[inline(always)]
fn up_to_bf16(value: f32) -> f32 {
    f32::from_bits((value.to_bits() + 0xffff) & 0xffff_0000)
}

/// The sum of the squares of `values * factor`, in lanes.
#[inline(always)]
fn sum_of_squares(values: &[f32], factor: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for chunk in values.as_chunks::<LANES>().0 {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            let part = value * factor;
            *lane += part * part;
        }
    }
    lanes.iter().sum()
}

/// The largest magnitude; not finite if any value is not.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |most, value| most.max(value.to_bits() & 0x7fff_ffff)))
}

/// Writes `values`, `count` of which count, and leaves what is lost; `None` if they can't be written. Gives the sums of
/// squares before and after.
#[inline(always)]
fn quantize_block<const BITS: u32>(
    values: &mut [f32; BLOCK],
    count: usize,
    dither: Option<Dither>,
    bytes: &mut [u8],
) -> Option<(f64, f64)> {
    let most = largest(values);
    // Not finite, if any value is not.
    if most.is_nan() || most >= LARGEST {
        return None;
    }
    let part = part_len(BITS);
    let (scales, packed) = bytes.split_at_mut(2 * count.div_ceil(part));
    let mut codes = [top(BITS); BLOCK];
    let (mut energy, mut lost) = (0.0, 0.0);
    let parts = values.chunks_exact_mut(part).zip(codes.chunks_exact_mut(part));
    for (number, ((values, codes), word)) in parts.zip(scales.as_chunks_mut().0).enumerate() {
        let first = number * part;
        let dither = dither.map(|dither| dither.from(first));
        let (scale, before, after) = quantize_part::<BITS>(values, part.min(count - first), dither, codes);
        *word = ((scale.to_bits() >> 16) as u16).to_le_bytes();
        energy += before;
        lost += after;
    }
    if count == BLOCK {
        pack::<BITS>(&codes, BLOCK, packed);
    } else {
        pack::<BITS>(&codes, count, packed);
    }
    Some((energy, lost))
}

/// The scale of a part, the sums of squares before and after, the codes, and what is lost in the place of `values`.
#[inline(always)]
fn quantize_part<const BITS: u32>(
    values: &mut [f32],
    count: usize,
    dither: Option<Dither>,
    codes: &mut [u8],
) -> (f32, f64, f64) {
    let most = largest(values);
    if most < SMALLEST {
        return (0.0, 0.0, 0.0);
    }
    let reach = top(BITS) as f32;
    let width = match BITS {
        2 => 2.0 * most * (sum_of_squares(values, 1.0 / most) / count as f32).sqrt(),
        _ => most,
    };
    let scale = up_to_bf16(width / reach);
    let inverse = 1.0 / scale;
    let (mut energy, mut lost) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (low, high) = (ROUNDER - reach, ROUNDER + reach);
    let chunks = values.as_chunks_mut::<LANES>().0.iter_mut().zip(codes.as_chunks_mut::<LANES>().0);
    for (number, (values, codes)) in chunks.enumerate() {
        for lane in 0..LANES {
            let part = values[lane] * inverse;
            let shift = dither.map_or(0.0, |dither| dither.at(number * LANES + lane));
            let rounded = (part + shift + ROUNDER).max(low).min(high);
            let sent = rounded - ROUNDER;
            codes[lane] = (rounded.to_bits() as u8).wrapping_add(top(BITS));
            values[lane] -= sent * scale;
            energy[lane] += part * part;
            lost[lane] += (part - sent) * (part - sent);
        }
    }
    let unit = f64::from(scale) * f64::from(scale);
    let sum = |lanes: [f32; LANES]| f64::from(lanes.iter().sum::<f32>()) * unit;
    (scale, sum(energy), sum(lost))
}

/// Codes to planes.
#[inline(always)]
fn pack<const BITS: u32>(codes: &[u8; BLOCK], count: usize, bytes: &mut [u8]) {
    match BITS {
        8 => bytes[..count].copy_from_slice(&codes[..count]),
        3 => {
            let (low, high) = bytes.split_at_mut(count.div_ceil(4));
            plane::<2>(codes, count, 0, low);
            plane::<1>(codes, count, 2, high);
        }
        4 => plane::<4>(codes, count, 0, bytes),
        _ => plane::<2>(codes, count, 0, bytes),
    }
}

/// `WIDTH` bits of every code, from bit `shift` on.
#[inline(always)]
fn plane<const WIDTH: usize>(codes: &[u8; BLOCK], count: usize, shift: u32, bytes: &mut [u8]) {
    let stride = count.div_ceil(8 / WIDTH);
    let mask = ((1u32 << WIDTH) - 1) as u8;
    let bytes = &mut bytes[..stride];
    bytes.fill(0);
    for (number, part) in codes[..count].chunks(stride).enumerate() {
        for (byte, code) in bytes.iter_mut().zip(part) {
            *byte |= (code >> shift & mask) << (number * WIDTH);
        }
    }
}

/// Planes to codes.
#[inline(always)]
fn unpack<const BITS: u32>(bytes: &[u8], count: usize, codes: &mut [u8; BLOCK]) {
    match BITS {
        8 => codes[..count].copy_from_slice(&bytes[..count]),
        3 => {
            let (low, high) = bytes.split_at(count.div_ceil(4));
            codes.fill(0);
            unplane::<2>(low, count, 0, codes);
            unplane::<1>(high, count, 2, codes);
        }
        4 => {
            codes.fill(0);
            unplane::<4>(bytes, count, 0, codes);
        }
        _ => {
            codes.fill(0);
            unplane::<2>(bytes, count, 0, codes);
        }
    }
}

#[inline(always)]
fn unplane<const WIDTH: usize>(bytes: &[u8], count: usize, shift: u32, codes: &mut [u8; BLOCK]) {
    let stride = count.div_ceil(8 / WIDTH);
    let mask = ((1u32 << WIDTH) - 1) as u8;
    for (number, part) in codes[..count].chunks_mut(stride).enumerate() {
        for (code, byte) in part.iter_mut().zip(&bytes[..stride]) {
            *code |= (byte >> (number * WIDTH) & mask) << shift;
        }
    }
}

/// The values of one block times `factor`.
#[inline(always)]
fn decode_block<const BITS: u32>(bytes: &[u8], count: usize, factor: f32, values: &mut [f32; BLOCK]) {
    let part = part_len(BITS);
    let (scales, packed) = bytes.split_at(2 * count.div_ceil(part));
    let mut codes = [0u8; BLOCK];
    if count == BLOCK {
        unpack::<BITS>(packed, BLOCK, &mut codes);
    } else {
        unpack::<BITS>(packed, count, &mut codes);
    }
    let parts = values.chunks_exact_mut(part).zip(codes.chunks_exact(part));
    for ((values, codes), word) in parts.zip(scales.as_chunks().0) {
        let step = scale_from(*word) * factor;
        for (value, code) in values.iter_mut().zip(codes) {
            *value = (i32::from(*code) - i32::from(top(BITS))) as f32 * step;
        }
    }
}

#[inline(always)]
fn quantize_all<const BITS: u32>(
    gradient: Option<(&[f32], f32)>,
    values: &mut [f32],
    dither: Option<Dither>,
    mut bytes: &mut [u8],
) -> Result<super::QuantizeSums, usize> {
    let mut sums = super::QuantizeSums::default();
    let mut work = [0.0f32; BLOCK];
    for (number, values) in values.chunks_mut(BLOCK).enumerate() {
        let (begin, count) = (number * BLOCK, values.len());
        if count < BLOCK {
            work.fill(0.0);
        }
        match gradient {
            Some((gradient, scale)) => {
                let gradient = &gradient[begin..begin + count];
                for ((sum, value), gradient) in work.iter_mut().zip(values.iter()).zip(gradient) {
                    *sum = value + scale * gradient;
                }
            }
            None => work[..count].copy_from_slice(values),
        }
        let dither = dither.map(|dither| dither.from(begin));
        let (mine, rest) = std::mem::take(&mut bytes).split_at_mut(len(BITS, count));
        bytes = rest;
        let Some((energy, lost)) = quantize_block::<BITS>(&mut work, count, dither, mine) else {
            let large = |value: &f32| value.is_nan() || value.abs() >= LARGEST;
            return Err(begin + work.iter().position(large).unwrap_or(0));
        };
        values.copy_from_slice(&work[..count]);
        sums.energy += energy;
        sums.lost += lost;
    }
    Ok(sums)
}

#[inline(always)]
fn decode_all<const BITS: u32>(bytes: &[u8], factor: f32, out: &mut [f32]) {
    let mut work = [0.0; BLOCK];
    for (bytes, out) in bytes.chunks(len(BITS, BLOCK)).zip(out.chunks_mut(BLOCK)) {
        match <&mut [f32; BLOCK]>::try_from(&mut *out) {
            Ok(whole) => decode_block::<BITS>(bytes, BLOCK, factor, whole),
            Err(_) => {
                decode_block::<BITS>(bytes, out.len(), factor, &mut work);
                out.copy_from_slice(&work[..out.len()]);
            }
        }
    }
}

#[inline(always)]
fn add_all<const BITS: u32>(bytes: &[u8], sums: &mut [f32]) {
    let mut work = [0.0; BLOCK];
    for (bytes, sums) in bytes.chunks(len(BITS, BLOCK)).zip(sums.chunks_mut(BLOCK)) {
        if sums.len() == BLOCK {
            decode_block::<BITS>(bytes, BLOCK, 1.0, &mut work);
        } else {
            decode_block::<BITS>(bytes, sums.len(), 1.0, &mut work);
        }
        sums.iter_mut().zip(&work).for_each(|(sum, value)| *sum += value);
    }
}

/// A pass, compiled for every instruction set, and the function that calls the best there is.
macro_rules! on_every_set {
    ($name:ident = $body:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?) => {
        pub(super) fn $name<const BITS: u32>($($argument: $kind),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                fn avx512<const BITS: u32>($($argument: $kind),*) $(-> $result)? {
                    $body::<BITS>($($argument),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2<const BITS: u32>($($argument: $kind),*) $(-> $result)? {
                    $body::<BITS>($($argument),*)
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                {
                    // SAFETY: the instruction set was just detected.
                    return unsafe { avx512::<BITS>($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the instruction set was just detected.
                    return unsafe { avx2::<BITS>($($argument),*) };
                }
            }
            $body::<BITS>($($argument),*)
        }
    };
}

on_every_set!(quantize = quantize_all(
    gradient: Option<(&[f32], f32)>,
    values: &mut [f32],
    dither: Option<Dither>,
    bytes: &mut [u8]
) -> Result<super::QuantizeSums, usize>);
on_every_set!(decode = decode_all(bytes: &[u8], factor: f32, out: &mut [f32]));
on_every_set!(add = add_all(bytes: &[u8], sums: &mut [f32]));
