//! Rice-coded gaps: for random positions within 2 % of the entropy.
//!
//! Each index becomes the number of coordinates skipped since the one before (the first: its own position).
//! Its low `parameter` bits are stored as they are, what is above them in unary. The two go into separate
//! streams, first all the unary quotients (`q` zeros and a one), then all the low bits: so the decoder finds
//! the quotients word by word and the low bits at known positions.

use crate::codec::bits::{self, BitWriter};
use crate::{Error, Result};

/// The largest parameter: gaps have at most 32 bits, and one of them is better spent in the quotient.
const LARGEST_PARAMETER: u32 = 31;

/// How a set of indices is going to be coded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    /// The Rice parameter: how many low bits are stored as they are.
    pub parameter: u32,
    /// Bits in the unary stream.
    pub unary_bits: u64,
    /// Length of everything in bytes.
    pub bytes: u64,
}

/// The parameter that makes `indices` (strictly increasing) shortest, and the length it gives.
///
/// Length as a function of the parameter is convex (halving all quotients once more saves at most what it
/// saved the time before, and costs a bit each every time), so walking downhill from a good guess finds the
/// best one; each look at three neighbouring parameters is one pass, and one pass usually is enough.
pub(super) fn plan(indices: &[u32]) -> Plan {
    plan_by(indices.len() as u64, indices.last().copied(), |middle| quotient_sums(indices, middle))
}

/// The same for `count` indices up to `last`, wherever they are: `quotient_sums` gives the sums of all quotients for
/// a parameter and its two neighbours.
pub(super) fn plan_by(count: u64, last: Option<u32>, quotient_sums: impl Fn(u32) -> [u64; 3]) -> Plan {
    let Some(last) = last else {
        return Plan { parameter: 0, unary_bits: 0, bytes: 0 };
    };
    let mean_gap = (u64::from(last) + 1) / count;
    // For geometric gaps the best parameter is near log2(ln 2 * mean).
    let guess = (mean_gap * 7 / 10).checked_ilog2().unwrap_or(0);
    let mut middle = guess.clamp(1, LARGEST_PARAMETER - 1);
    loop {
        let quotients = quotient_sums(middle);
        let cost = |i: usize| quotients[i] + count * (u64::from(middle) - 1 + i as u64);
        if cost(0) < cost(1) && middle > 1 {
            middle -= 1;
        } else if cost(2) < cost(1) && middle < LARGEST_PARAMETER - 1 {
            middle += 1;
        } else {
            let best = (0..3).min_by_key(|&i| cost(i)).unwrap_or(1);
            let parameter = middle - 1 + best as u32;
            let unary_bits = quotients[best] + count;
            let low_bits = count * u64::from(parameter);
            return Plan { parameter, unary_bits, bytes: 1 + unary_bits.div_ceil(8) + low_bits.div_ceil(8) };
        }
    }
}

/// The sums of all quotients for the parameters `middle - 1`, `middle` and `middle + 1`.
fn quotient_sums(indices: &[u32], middle: u32) -> [u64; 3] {
    let Some(&first) = indices.first() else { return [0; 3] };
    let parameters = [middle - 1, middle, middle + 1];
    let mut sums = parameters.map(|parameter| u64::from(first >> parameter));
    for (before, index) in indices.iter().zip(&indices[1..]) {
        let gap = index - before - 1;
        for (sum, parameter) in sums.iter_mut().zip(parameters) {
            *sum += u64::from(gap >> parameter);
        }
    }
    sums
}

/// Appends `indices` as planned.
pub(super) fn encode(indices: &[u32], plan: &Plan, out: &mut Vec<u8>) {
    if indices.is_empty() {
        return;
    }
    let Plan { parameter, unary_bits, bytes } = *plan;
    out.reserve(bytes as usize);
    out.push(parameter as u8);

    let start = out.len();
    out.resize(start + unary_bits.div_ceil(8) as usize, 0);
    let unary = &mut out[start..];
    let (mut next, mut position) = (0, 0);
    for &index in indices {
        position += ((index - next) >> parameter) as usize;
        unary[position / 8] |= 1 << (position % 8);
        position += 1;
        next = index + 1;
    }

    let mask = (1 << parameter) - 1;
    let mut low = BitWriter::new(out);
    let mut next = 0;
    for &index in indices {
        low.put((index - next) & mask, parameter);
        next = index + 1;
    }
    low.finish();
}

/// Reads indices into an empty `out`, which is filled only if there can be `count` of them in `bytes`.
pub(super) fn decode(bytes: &[u8], count: usize, universe: u32, out: &mut Vec<u32>) -> Result<()> {
    if count == 0 {
        return bits::check_length("delta indices", bytes, 0);
    }
    let (parameter, unary, low) = split(bytes, count, universe)?;
    out.reserve_exact(count);
    out.resize(count, 0);

    // The index is the sum of all gaps so far: (quotients << parameter) + low bits + one for each index
    // before. The quotients so far are the zeros so far: the position of the one less the number of ones
    // before it.
    let mut words = bits::words(unary);
    let (mut word, mut word_start) = (words.next().unwrap_or(0), 0u64);
    let (mut low_sum, mut low_position, mut index) = (0u64, 0u64, 0u64);
    for (before, slot) in out.iter_mut().enumerate() {
        while word == 0 {
            let Some(following) = words.next() else {
                return Err(Error::BadField {
                    field: "delta indices",
                    found: format!("{before} quotients"),
                    expected: format!("{count}, the number of coordinates"),
                });
            };
            word = following;
            word_start += 64;
        }
        let before = before as u64;
        let zeros = word_start + u64::from(word.trailing_zeros()) - before;
        word &= word - 1;
        low_sum += u64::from(bits::read(low, low_position, parameter));
        low_position += u64::from(parameter);
        index = (zeros << parameter) + low_sum + before;
        *slot = index as u32;
    }
    // The last byte of the quotients is not zero, so whatever follows the last quotient read would show here.
    if word != 0 || words.next().is_some() {
        return Err(Error::BadField {
            field: "delta indices",
            found: format!("more than {count} quotients"),
            expected: format!("{count}, the number of coordinates"),
        });
    }
    // Gaps are at least one, so the last index is the largest; kept in 64 bits it can't have wrapped.
    if index >= u64::from(universe) {
        return Err(Error::BadField {
            field: "delta indices",
            found: format!("{index} as the last"),
            expected: format!("strictly increasing indices below {universe}"),
        });
    }
    Ok(())
}

/// The parameter, the quotients and the low bits, once their lengths are possible for `count` indices.
pub(super) fn split(bytes: &[u8], count: usize, universe: u32) -> Result<(u32, &[u8], &[u8])> {
    let field = "delta indices";
    let left = bytes.len() as u64;
    let Some((&parameter, streams)) = bytes.split_first() else {
        return Err(Error::Truncated { field, needed: 1, left });
    };
    let parameter = u32::from(parameter);
    if parameter > LARGEST_PARAMETER {
        return Err(Error::BadField {
            field: "Rice parameter",
            found: parameter.to_string(),
            expected: format!("at most {LARGEST_PARAMETER}"),
        });
    }
    let count = count as u64;
    let low_bits = count * u64::from(parameter);
    let needed = 1 + count.div_ceil(8) + low_bits.div_ceil(8);
    if left < needed {
        return Err(Error::Truncated { field, needed, left });
    }
    let (unary, low) = streams.split_at(streams.len() - low_bits.div_ceil(8) as usize);
    bits::check_extent("low bits of the delta indices", low, low_bits)?;
    // More zeros than this would lead beyond the universe; this also keeps all sums far below 64 bits.
    let most = (count + u64::from(universe >> parameter)).div_ceil(8);
    if unary.len() as u64 > most || unary.last() == Some(&0) {
        return Err(Error::BadField {
            field: "quotients of the delta indices",
            found: format!("{} bytes, the last {:#04x}", unary.len(), unary.last().unwrap_or(&0)),
            expected: format!("at most {most} bytes, the last not zero"),
        });
    }
    Ok((parameter, unary, low))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every parameter's length, by the definition.
    fn plain_len(indices: &[u32], parameter: u32) -> u64 {
        let mut next = 0;
        let mut quotients = 0u64;
        for &index in indices {
            quotients += u64::from((index - next) >> parameter);
            next = index + 1;
        }
        let count = indices.len() as u64;
        1 + (quotients + count).div_ceil(8) + (count * u64::from(parameter)).div_ceil(8)
    }

    #[test]
    fn the_parameter_is_the_best_one() {
        let mut random = 1u64;
        let mut sets: Vec<Vec<u32>> = vec![vec![0], vec![u32::MAX - 1], (0..100).collect()];
        for spread in 0..31 {
            let mut next = 0u32;
            let mut set = Vec::new();
            for _ in 0..50 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let gap = (random >> 33) as u32 & ((1 << spread) - 1);
                let Some(index) = next.checked_add(gap).filter(|&index| index < u32::MAX - 1) else { break };
                set.push(index);
                next = index + 1;
            }
            sets.push(set);
        }
        // One far outlier after a dense run, and the reverse.
        sets.push((0..1000).chain([4_000_000_000]).collect());
        sets.push((4_000_000_000..4_000_001_000).collect());
        for set in sets.iter().filter(|set| !set.is_empty()) {
            let best = (0..=LARGEST_PARAMETER).map(|parameter| plain_len(set, parameter)).min().unwrap();
            // Bytes are rounded up in two places, which may hide one byte from the count in bits.
            let found = plan(set);
            assert_eq!(found.bytes, plain_len(set, found.parameter));
            assert!(found.bytes <= best + 1, "{found:?} against {best}");
        }
    }

    #[test]
    fn hostile_lengths() {
        let mut out = Vec::new();
        let mut refuse = |bytes: &[u8], count, universe| {
            out.clear();
            assert!(decode(bytes, count, universe, &mut out).is_err(), "{bytes:x?}");
            assert!(out.capacity() <= 8 * bytes.len());
        };
        refuse(&[], 1, 10);
        refuse(&[0], 1, 10);
        refuse(&[32, 1], 1, 10);
        refuse(&[0, 0], 1, 10);
        refuse(&[0, 1, 0], 1, 10);
        refuse(&[0, 0b11], 1, 10);
        refuse(&[0, 0b1], 2, 10);
        refuse(&[0, 0b1], 0, 10);
        refuse(&[1, 0b1, 0b10], 1, 10);
        refuse(&[31, 0b1, 0xff, 0xff, 0xff, 0x7f], 1, u32::MAX - 1 - (1 << 31));
        refuse(&[0, 0, 0, 1], 1, 10);
        refuse(&[31, 0b1], usize::MAX >> 8, u32::MAX);
    }
}
