//! A real, orthonormal, blocked fast Fourier transform.

use std::fmt;

use realfft::RealFftPlanner;

use super::FftBlock;
use super::block::Plan;
use super::cut::Cut;
use crate::Result;

/// A real Fourier transform for vectors of one length, with its plans and scratch: after
/// [`RealFft::new`] nothing is allocated.
///
/// The vector is cut into blocks of B elements, and each block becomes B/2 **slots**: pairs (re, im)
/// of f32. A slot is one complex frequency and the unit of selection, by its magnitude; only slot 0
/// of a block is different, it holds two real numbers, the constant part and the highest frequency.
/// So a spectrum is as long as its vector, rounded up to an even number.
///
/// The last block holds what is left, padded with one zero when that is odd. [`FftBlock::Whole`] is
/// one block, padded to the next even length with no prime factors but 2, 3 and 5, because a length
/// with a large one takes several times as long. The padding is dropped by the inverse.
///
/// The paper (arXiv 1811.08596) does not say how its transform is scaled. This one is orthonormal: a
/// spectrum has the energy of its vector, and a dropped slot costs exactly its own square (less, in
/// a padded block, by what falls on the padding). The paper rounds to f16 first, for a GPU's half
/// precision units; here everything is f32.
///
/// The bits of a result depend on the CPU's vector units, of which the library uses the widest: equal
/// machines give equal bits, unlike ones may differ in the last place.
///
/// ```
/// use thinwire::transform::{FftBlock, RealFft};
///
/// let wave: Vec<f32> = (0..64).map(|i| (i as f32 * std::f32::consts::TAU / 16.0).cos()).collect();
/// let mut fft = RealFft::new(wave.len(), FftBlock::Whole)?;
/// let mut spectrum = vec![0.0; fft.coefficients()];
/// fft.forward(&wave, &mut spectrum);
///
/// // A wave of four periods is one slot, with the energy of all 64 elements.
/// let energy: Vec<f32> = spectrum.chunks(2).map(|slot| slot[0] * slot[0] + slot[1] * slot[1]).collect();
/// assert!((energy[4] - 32.0).abs() < 1e-3);
/// assert!(energy.iter().enumerate().all(|(slot, energy)| slot == 4 || *energy < 1e-6));
///
/// let mut back = vec![0.0; wave.len()];
/// fft.inverse(&spectrum, &mut back);
/// assert!(wave.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-5));
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Clone)]
pub struct RealFft {
    len: usize,
    coefficients: usize,
    /// For the blocks that are full, when there are any.
    full: Option<Plan>,
    /// For what is left after them.
    tail: Option<Plan>,
}

impl RealFft {
    /// Plans transforms of vectors of `n` elements.
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) for a block that is odd or empty.
    pub fn new(n: usize, block: FftBlock) -> Result<RealFft> {
        let cut = Cut::new(n, block)?;
        let mut planner = RealFftPlanner::new();
        let mut plan = |size: usize| (size > 0).then(|| Plan::new(&mut planner, size));
        let (full, tail, coefficients) = (plan(cut.block), plan(cut.tail), cut.coefficients());
        Ok(RealFft { len: n, coefficients, full, tail })
    }

    /// The length of a spectrum in f32, always even.
    pub fn coefficients(&self) -> usize {
        self.coefficients
    }

    /// The number of slots in a spectrum: half its coefficients.
    pub fn slots(&self) -> usize {
        self.coefficients / 2
    }

    /// The spectrum of a vector.
    ///
    /// # Panics
    /// When `input` does not have the planned length or `spectrum` not [`RealFft::coefficients`].
    pub fn forward(&mut self, input: &[f32], spectrum: &mut [f32]) {
        self.check(input.len(), spectrum.len());
        let (input, input_rest) = input.split_at(self.full_len());
        let (spectrum, spectrum_rest) = spectrum.split_at_mut(self.full_len());
        if let Some(plan) = &mut self.full {
            let blocks = input.chunks_exact(plan.size).zip(spectrum.chunks_exact_mut(plan.size));
            blocks.for_each(|(input, spectrum)| plan.forward(input, spectrum));
        }
        if let Some(plan) = &mut self.tail {
            plan.forward(input_rest, spectrum_rest);
        }
    }

    /// The vector of a spectrum. It need not be one that [`RealFft::forward`] has made: slots may be
    /// zeroed, and spectra of several ranks added.
    ///
    /// # Panics
    /// As [`RealFft::forward`].
    pub fn inverse(&mut self, spectrum: &[f32], output: &mut [f32]) {
        self.check(output.len(), spectrum.len());
        let (spectrum, spectrum_rest) = spectrum.split_at(self.full_len());
        let (output, output_rest) = output.split_at_mut(self.full_len());
        if let Some(plan) = &mut self.full {
            let blocks = spectrum.chunks_exact(plan.size).zip(output.chunks_exact_mut(plan.size));
            blocks.for_each(|(spectrum, output)| plan.inverse(spectrum, output));
        }
        if let Some(plan) = &mut self.tail {
            plan.inverse(spectrum_rest, output_rest);
        }
    }

    /// The elements in full blocks, which have as many coefficients.
    fn full_len(&self) -> usize {
        self.coefficients - self.tail.as_ref().map_or(0, |plan| plan.size)
    }

    fn check(&self, elements: usize, coefficients: usize) {
        assert_eq!(elements, self.len, "the vector must have the planned length");
        assert_eq!(coefficients, self.coefficients, "the spectrum must have the planned length");
    }
}

impl fmt::Debug for RealFft {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |plan: &Option<Plan>| plan.as_ref().map_or(0, |plan| plan.size);
        out.debug_struct("RealFft")
            .field("len", &self.len)
            .field("block", &size(&self.full))
            .field("tail", &size(&self.tail))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed, rough sequence in [-1, 1].
    fn rough(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    fn forward(fft: &mut RealFft, input: &[f32]) -> Vec<f32> {
        // Old contents must not shine through.
        let mut spectrum = vec![f32::NAN; fft.coefficients()];
        fft.forward(input, &mut spectrum);
        spectrum
    }

    fn inverse(fft: &mut RealFft, spectrum: &[f32], n: usize) -> Vec<f32> {
        let mut output = vec![f32::NAN; n];
        fft.inverse(spectrum, &mut output);
        output
    }

    fn energy(values: &[f32]) -> f64 {
        values.iter().map(|&value| f64::from(value).powi(2)).sum()
    }

    fn distance(a: &[f32], b: &[f32]) -> f64 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
    }

    /// The definition: products with the cosines and sines of one block, padded to `size`.
    fn naive(block: &[f32], size: usize) -> Vec<f32> {
        let product = |frequency: usize, wave: fn(f64) -> f64| -> f64 {
            let angle = |i: usize| std::f64::consts::TAU * ((frequency * i) % size) as f64 / size as f64;
            block.iter().enumerate().map(|(i, &value)| f64::from(value) * wave(angle(i))).sum()
        };
        let (edge, inner) = ((1.0 / size as f64).sqrt(), (2.0 / size as f64).sqrt());
        let mut spectrum = vec![product(0, f64::cos) * edge, product(size / 2, f64::cos) * edge];
        for frequency in 1..size / 2 {
            spectrum.extend([product(frequency, f64::cos) * inner, -product(frequency, f64::sin) * inner]);
        }
        spectrum.into_iter().map(|value| value as f32).collect()
    }

    fn assert_as_defined(n: usize, block: FftBlock) {
        let input = rough(n, n as u64);
        let mut fft = RealFft::new(n, block).unwrap();
        let expected: Vec<f32> = match block {
            FftBlock::Whole => naive(&input, fft.coefficients()),
            FftBlock::Elements(block) => {
                input.chunks(block).flat_map(|part| naive(part, part.len().next_multiple_of(2))).collect()
            }
        };
        let spectrum = forward(&mut fft, &input);
        assert_eq!((spectrum.len(), fft.slots() * 2), (expected.len(), expected.len()));
        assert!(distance(&spectrum, &expected) <= 1e-6 * energy(&input).sqrt().max(1.0), "{n} {block:?}");
        assert!(distance(&inverse(&mut fft, &expected, n), &input) <= 1e-6 * energy(&input).sqrt().max(1.0));
    }

    #[test]
    fn equals_the_definition() {
        for n in (1..=70).chain([97, 251, 509, 514, 1021]) {
            assert_as_defined(n, FftBlock::Whole);
            for block in [2, 6, 16, 22, 64, 4096] {
                assert_as_defined(n, FftBlock::Elements(block));
            }
        }
    }

    #[test]
    fn keeping_every_slot_gives_the_vector_back_and_keeps_its_energy() {
        for n in [1, 2, 3, 1000, 4095, 4096, 4097, 1_000_003] {
            for block in [FftBlock::default(), FftBlock::Whole] {
                let input = rough(n, 7);
                let mut fft = RealFft::new(n, block).unwrap();
                let spectrum = forward(&mut fft, &input);
                let size = energy(&input);
                assert!((energy(&spectrum) / size - 1.0).abs() < 1e-5, "{n} {block:?}");
                let error = distance(&inverse(&mut fft, &spectrum, n), &input);
                assert!(error < 1e-5 * size.sqrt(), "{n} {block:?} {error}");
            }
        }
    }

    #[test]
    fn a_dropped_slot_costs_its_own_energy() {
        let (n, block) = (96, FftBlock::Elements(32));
        let input = rough(n, 3);
        let mut fft = RealFft::new(n, block).unwrap();
        let spectrum = forward(&mut fft, &input);
        for slot in 0..fft.slots() {
            let mut kept = spectrum.clone();
            kept[2 * slot..2 * slot + 2].fill(0.0);
            let cost = distance(&inverse(&mut fft, &kept, n), &input).powi(2);
            assert!((cost - energy(&spectrum[2 * slot..2 * slot + 2])).abs() < 1e-5, "{slot}");
        }
    }

    #[test]
    fn summed_spectra_invert_to_the_sum() {
        let n = 10_001;
        let mut fft = RealFft::new(n, FftBlock::default()).unwrap();
        let (mut sum, mut spectra) = (vec![0.0; n], vec![0.0; fft.coefficients()]);
        for rank in 0..4 {
            let input = rough(n, rank);
            sum.iter_mut().zip(&input).for_each(|(sum, value)| *sum += value);
            spectra.iter_mut().zip(forward(&mut fft, &input)).for_each(|(sum, value)| *sum += value);
        }
        assert!(distance(&inverse(&mut fft, &spectra, n), &sum) < 1e-5 * energy(&sum).sqrt());
    }

    #[test]
    fn a_constant_is_one_slot_of_each_block() {
        let mut fft = RealFft::new(64 * 3 + 10, FftBlock::Elements(64)).unwrap();
        let spectrum = forward(&mut fft, &vec![0.5; 64 * 3 + 10]);
        let strong = |slot: &&[f32]| energy(slot) > 1e-10;
        let counts: Vec<_> =
            spectrum.chunks(64).map(|block| block.chunks(2).filter(strong).count()).collect();
        assert_eq!(counts, [1, 1, 1, 1]);
    }

    #[test]
    fn the_same_bits_every_time() {
        let input = rough(9_999, 1);
        let mut fft = RealFft::new(9_999, FftBlock::default()).unwrap();
        let first = forward(&mut fft, &input);
        assert_eq!(first, forward(&mut fft.clone(), &input));
        assert_eq!(inverse(&mut fft, &first, 9_999), inverse(&mut fft.clone(), &first, 9_999));
    }

    #[test]
    fn sizes_are_planned_as_documented() {
        let sizes = |n, block| {
            let fft = RealFft::new(n, block).unwrap();
            assert_eq!(fft.slots() * 2, fft.coefficients());
            fft.coefficients()
        };
        for (n, coefficients) in
            [(0, 0), (1, 2), (4095, 4096), (4096, 4096), (4097, 4098), (1_000_003, 1_000_004)]
        {
            assert_eq!(sizes(n, FftBlock::default()), coefficients);
        }
        for (n, coefficients) in
            [(0, 0), (1, 2), (7, 8), (11, 12), (22, 24), (4097, 4320), (1_000_003, 1_012_500)]
        {
            assert_eq!(sizes(n, FftBlock::Whole), coefficients);
        }
    }

    #[test]
    fn odd_and_empty_blocks_are_refused() {
        for block in [0, 1, 3, 4097] {
            let error = RealFft::new(10, FftBlock::Elements(block)).unwrap_err().to_string();
            let expected =
                format!("fft: parameter block={block} is not right; expected an even number of at least 2");
            assert_eq!(error, expected);
        }
    }

    #[test]
    #[should_panic(expected = "the vector must have the planned length")]
    fn a_wrong_length_panics() {
        forward(&mut RealFft::new(4, FftBlock::default()).unwrap(), &[1.0; 3]);
    }
}
