//! One block of a [`RealFft`](super::RealFft): the library's transform, scaled and packed.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// The transforms of one even block size, with room to work in.
#[derive(Clone)]
pub(super) struct Plan {
    /// The elements of a block, and the coefficients of its spectrum.
    pub(super) size: usize,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    /// The block as the library wants it: it destroys its input.
    elements: Vec<f32>,
    /// The size/2 + 1 frequencies, all of them complex, as the library has them.
    bins: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl Plan {
    /// `size` must be even.
    pub(super) fn new(planner: &mut RealFftPlanner<f32>, size: usize) -> Plan {
        let (forward, inverse) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
        let scratch = vec![Complex::ZERO; forward.get_scratch_len().max(inverse.get_scratch_len())];
        let (elements, bins) = (forward.make_input_vec(), forward.make_output_vec());
        Plan { size, forward, inverse, elements, bins, scratch }
    }

    /// `input` may be shorter than the block: the rest is zero.
    pub(super) fn forward(&mut self, input: &[f32], spectrum: &mut [f32]) {
        self.elements[..input.len()].copy_from_slice(input);
        self.elements[input.len()..].fill(0.0);
        self.forward
            .process_with_scratch(&mut self.elements, &mut self.bins, &mut self.scratch)
            .expect("the buffers have the plan's lengths");
        // An inner frequency stands for itself and its mirror image, so it has twice the energy.
        let edge = (1.0 / self.size as f64).sqrt() as f32;
        let inner = (2.0 / self.size as f64).sqrt() as f32;
        let (constant, highest) = (self.bins[0].re, self.bins[self.size / 2].re);
        for (slot, bin) in spectrum.chunks_exact_mut(2).zip(&self.bins) {
            slot[0] = bin.re * inner;
            slot[1] = bin.im * inner;
        }
        spectrum[0] = constant * edge;
        spectrum[1] = highest * edge;
    }

    /// `output` may be shorter than the block: the rest is dropped.
    pub(super) fn inverse(&mut self, spectrum: &[f32], output: &mut [f32]) {
        // The library's inverse multiplies by the size; that is divided out here, together with the
        // scale of the forward transform.
        let edge = (1.0 / self.size as f64).sqrt() as f32;
        let inner = (0.5 / self.size as f64).sqrt() as f32;
        for (bin, slot) in self.bins.iter_mut().zip(spectrum.chunks_exact(2)) {
            *bin = Complex::new(slot[0] * inner, slot[1] * inner);
        }
        self.bins[0] = Complex::new(spectrum[0] * edge, 0.0);
        self.bins[self.size / 2] = Complex::new(spectrum[1] * edge, 0.0);
        let (elements, padded) = if output.len() == self.size {
            (&mut *output, false)
        } else {
            (self.elements.as_mut_slice(), true)
        };
        self.inverse
            .process_with_scratch(&mut self.bins, elements, &mut self.scratch)
            .expect("the buffers have the plan's lengths");
        if padded {
            output.copy_from_slice(&self.elements[..output.len()]);
        }
    }
}

/// The smallest even number of at least `n` with no prime factors but 2, 3 and 5.
pub(super) fn fast_length(n: usize) -> usize {
    let powers = |base: usize, limit: usize| {
        std::iter::successors(Some(1), move |power| Some(power * base))
            .take_while(move |&power| power <= limit.max(1))
    };
    let odd_parts = powers(3, n).flat_map(|threes| powers(5, n / threes).map(move |fives| threes * fives));
    odd_parts.map(|odd| odd * n.div_ceil(odd).next_power_of_two().max(2)).min().unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_length_is_the_smallest_there_is() {
        let smooth = |mut n: usize| {
            for prime in [2, 3, 5] {
                while n.is_multiple_of(prime) {
                    n /= prime;
                }
            }
            n == 1
        };
        for n in 1..3_000 {
            let expected = (n..).find(|&size| size % 2 == 0 && smooth(size)).unwrap();
            assert_eq!(fast_length(n), expected);
        }
        // 2^40 is its own; next to it nothing may overflow.
        assert_eq!(fast_length(1 << 40), 1 << 40);
        assert!(smooth(fast_length((1 << 40) + 1)));
    }
}
