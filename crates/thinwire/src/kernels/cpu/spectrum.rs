//! The frequency side of a unit on the CPU: forward, choose bins, and the inverse.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use crate::Result;
use crate::kernels::Spectrum;
use crate::transform::{FftBlock, RealFft};

/// A transform on the CPU with its work space, for the elements of some ranges of a bucket taken as one vector.
#[derive(Debug)]
pub struct CpuSpectrum {
    fft: RealFft,
    ranges: Vec<Range<usize>>,
    signal: Vec<f32>,
    coefficients: Vec<f32>,
    /// One magnitude for each bin; filled only where bins are chosen.
    magnitudes: Vec<f32>,
    /// All bins, as the one range of a survey.
    bins: [Range<usize>; 1],
}

impl CpuSpectrum {
    pub(super) fn new(ranges: &[Range<usize>], block: FftBlock) -> Result<CpuSpectrum> {
        let len = ranges.iter().map(Range::len).sum();
        let fft = RealFft::new(len, block)?;
        let (coefficients, bins) = (vec![0.0; fft.coefficients()], [0..fft.slots()]);
        Ok(CpuSpectrum {
            fft,
            ranges: ranges.to_vec(),
            signal: vec![0.0; len],
            coefficients,
            magnitudes: Vec::new(),
            bins,
        })
    }

    /// Transforms what stands in the ranges of `values` and measures the bins.
    pub(super) fn forward(&mut self, values: &[f32], half_input: bool) {
        let mut at = 0;
        for range in &self.ranges {
            self.signal[at..at + range.len()].copy_from_slice(&values[range.clone()]);
            at += range.len();
        }
        if half_input {
            round_to_half(&mut self.signal);
        }
        self.fft.forward(&self.signal, &mut self.coefficients);
        self.magnitudes.clear();
        let (pairs, _) = self.coefficients.as_chunks();
        // In f64, where neither huge nor tiny parts leave the range when squared.
        let magnitude = |[re, im]: &[f32; 2]| {
            let (re, im) = (*re as f64, *im as f64);
            (re * re + im * im).sqrt() as f32
        };
        self.magnitudes.extend(pairs.iter().map(magnitude));
    }

    /// What a survey of the bins looks at: their magnitudes, all bins as one range, and both parts of each.
    pub(super) fn measured(&mut self) -> (&mut [f32], &[Range<usize>], &[f32]) {
        (&mut self.magnitudes, &self.bins, &self.coefficients)
    }

    /// Turns the spectrum into the part of it that was sent: the chosen bins, less what is `left` of them.
    pub(super) fn keep_only(&mut self, bins: &[u32], left: Option<&[f32]>) {
        let mut lefts = left.map(|left| left.as_chunks::<2>().0.iter());
        let mut chosen = bins.iter().peekable();
        let (pairs, _) = self.coefficients.as_chunks_mut::<2>();
        for (number, pair) in pairs.iter_mut().enumerate() {
            if chosen.next_if(|bin| **bin as usize == number).is_none() {
                *pair = [0.0; 2];
            } else if let Some(left) = lefts.as_mut().and_then(Iterator::next) {
                *pair = [pair[0] - left[0], pair[1] - left[1]];
            }
        }
    }

    /// Empties the spectrum, to be filled by [`add`](CpuSpectrum::add).
    pub(super) fn zero(&mut self) {
        self.coefficients.fill(0.0);
    }

    /// Adds both parts of the given bins; `None` means all of them, in order.
    pub(super) fn add(&mut self, bins: Option<&[u32]>, values: &[f32]) {
        let (pairs, _) = self.coefficients.as_chunks_mut::<2>();
        let (parts, _) = values.as_chunks::<2>();
        match bins {
            Some(bins) => {
                bins.iter().zip(parts).for_each(|(&bin, part)| add_pair(&mut pairs[bin as usize], part))
            }
            None => pairs.iter_mut().zip(parts).for_each(|(pair, part)| add_pair(pair, part)),
        }
    }

    /// Transforms back once, and hands each element of the ranges its value.
    pub(super) fn inverse(&mut self, values: &mut [f32], apply: impl Fn(&mut f32, f32)) {
        self.fft.inverse(&self.coefficients, &mut self.signal);
        let mut signal = self.signal.iter();
        for range in &self.ranges {
            values[range.clone()].iter_mut().zip(&mut signal).for_each(|(value, &back)| apply(value, back));
        }
    }
}

impl Spectrum for CpuSpectrum {
    fn bins(&self) -> usize {
        self.fft.slots()
    }

    fn bytes(&self) -> usize {
        4 * (self.signal.capacity() + self.coefficients.capacity() + self.magnitudes.capacity())
    }
}

fn add_pair(pair: &mut [f32; 2], part: &[f32; 2]) {
    pair[0] += part[0];
    pair[1] += part[1];
}

/// Rounds to half precision and back, a piece at a time; what is too large for it is cut to its largest.
fn round_to_half(values: &mut [f32]) {
    let mut halves = [half::f16::ZERO; 256];
    let most = half::f16::MAX.to_f32();
    for piece in values.chunks_mut(256) {
        piece.iter_mut().for_each(|x| *x = x.clamp(-most, most));
        let halves = &mut halves[..piece.len()];
        halves.convert_from_f32_slice(piece);
        halves.convert_to_f32_slice(piece);
    }
}
