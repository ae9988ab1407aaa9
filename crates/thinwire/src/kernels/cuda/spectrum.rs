//! The frequency side of a unit on the GPU: forward, choose bins, and the inverse.
//!
//! The same operations as those of the pipeline's spectrum, on the transform of [`transform`](crate::transform). The bins
//! stay as cuFFT leaves them; scales are applied where a bin is looked at, so that no walk over memory is spent on them.
//! Sums of several messages are made after scaling, not before as on the CPU: the last bits may differ from the CPU's,
//! as those of the transform itself do, but not from those of another GPU of its kind.

use std::ops::Range;
use std::sync::Arc;

use super::codec::Run;
use super::compile::Program;
use super::device::{Device, launch};
use super::fft::{Direction, Shape, Transforms};
use super::memory::Buffer;
use crate::Result;
use crate::kernels::Spectrum;
use crate::transform::{Cut, FftBlock};

/// Slots a block fills at a time, as in the source.
const TILE: usize = 2048;
/// Whatever else a block takes at a time.
const EACH_BLOCK: usize = 1024;

/// What becomes of a value when its element comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Onto {
    /// The element is subtracted from it.
    Subtract = 1,
    /// The element takes its place. Costs a third of the others where the unit is one range.
    Replace = 2,
}

/// How slots lie in memory, as the kernels have it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Layout {
    magic: u64,
    half: u32,
    full: u32,
    slots: u32,
    scales: [f32; 3],
    tail_scales: [f32; 3],
}

impl Layout {
    fn new(cut: &Cut) -> Layout {
        // As in transform/block.rs: slot 0, the others, and the others on the way back.
        let scales = |size: usize| [1.0, 2.0, 0.5].map(|factor| (factor / size.max(1) as f64).sqrt() as f32);
        let half = (cut.block / 2).max(1);
        Layout {
            // Slots are divided by `half` with one multiplication: exact below 2^32, and 0 stands for 2^64.
            magic: (u64::MAX / half as u64).wrapping_add(1),
            half: half as u32,
            full: (cut.full_len() / 2) as u32,
            slots: (cut.coefficients() / 2) as u32,
            scales: scales(cut.block),
            tail_scales: scales(cut.tail),
        }
    }
}

/// A transform with its work space, for the elements of some ranges of a bucket taken as one vector.
#[derive(Debug)]
pub struct CudaSpectrum {
    device: Arc<Device>,
    ranges: Vec<Range<usize>>,
    len: usize,
    cut: Cut,
    layout: Layout,
    transforms: Transforms,
    /// Bins, or elements in their place: two numbers each.
    bins: Buffer<f32>,
    /// One magnitude for each slot; there once something was transformed forward.
    magnitudes: Buffer<f32>,
    /// Where each tile begins in a list of slots.
    cuts: Buffer<u32>,
    /// The spectrum is zero, whatever stands in `bins`.
    is_zero: bool,
}

fn program() -> Program {
    Program::new("spectrum")
}

fn grid(count: usize) -> u32 {
    count.div_ceil(EACH_BLOCK) as u32
}

impl CudaSpectrum {
    pub(super) fn new(
        device: &Arc<Device>,
        ranges: &[Range<usize>],
        block: FftBlock,
    ) -> Result<CudaSpectrum> {
        let len = ranges.iter().map(Range::len).sum();
        let cut = Cut::new(len, block)?;
        let tail_bins = if cut.tail > 0 { cut.tail / 2 + 1 } else { 0 };
        let bins = Buffer::zeros(device, 2 * (cut.blocks * (cut.block / 2 + 1) + tail_bins))?;
        let mut spectrum = CudaSpectrum {
            device: device.clone(),
            ranges: ranges.to_vec(),
            len,
            cut,
            layout: Layout::new(&cut),
            transforms: Transforms::new(device)?,
            bins,
            magnitudes: Buffer::new(device, 0)?,
            cuts: Buffer::new(device, (cut.coefficients() / 2).div_ceil(TILE) + 1)?,
            is_zero: true,
        };
        spectrum.prepare()?;
        Ok(spectrum)
    }

    /// Runs every transform once, on zeros: plans and cuFFT's kernels are made ready now, and not in a step, where others
    /// may wait for this GPU.
    fn prepare(&mut self) -> Result<()> {
        let elements = Buffer::<f32>::zeros(&self.device, self.cut.full_len() + self.cut.tail + 2)?;
        let elsewhere = (elements.address(), self.tail_of(elements.address()));
        for (full, tail) in [elsewhere, (self.bins.address(), self.tail_place())] {
            for direction in [Direction::Forward, Direction::Back] {
                // SAFETY: there is room for all elements at both places.
                unsafe { self.transform(direction, full, tail)? };
            }
        }
        self.device.wait()
    }

    /// The magnitude of each bin, as the last [`forward`](CudaSpectrum::forward) has found it.
    pub(super) fn magnitudes(&self) -> &Buffer<f32> {
        &self.magnitudes
    }

    /// Transforms what stands in the ranges of the vector at `values` and measures the bins.
    ///
    /// # Safety
    /// The vector is memory of this device and reaches to the end of the last range.
    pub(super) unsafe fn forward(&mut self, values: u64, half_input: bool) -> Result<()> {
        if self.magnitudes.len() != self.bins() {
            self.magnitudes = Buffer::new(&self.device, self.bins())?;
        }
        self.is_zero = false;
        let in_place = self.bins.address();
        let direct = self.in_one_piece(values).filter(|_| !half_input);
        let (full, tail) = match direct {
            Some(address) if self.cut.rest == self.cut.tail => (address, self.tail_of(address)),
            Some(address) => {
                let rest = self.tail_of(address);
                self.load(rest, self.cut.rest, self.cut.full_len(), false)?;
                self.pad()?;
                (address, self.tail_place())
            }
            None => {
                let mut at = 0;
                for range in &self.ranges {
                    self.load(values + 4 * range.start as u64, range.len(), at, half_input)?;
                    at += range.len();
                }
                self.pad()?;
                (in_place, self.tail_place())
            }
        };
        // SAFETY: the elements are those of the caller's vector, or stand in the place of the bins.
        unsafe { self.transform(Direction::Forward, full, tail)? };
        let (bins, layout, magnitudes) = (in_place, self.layout, self.magnitudes.address());
        launch!(self.device, &program(), "measure_bins", grid(self.bins()), 256, bins, layout, magnitudes)
    }

    /// Both parts of each chosen bin, into `values`, which has room for twice as many.
    pub(super) fn gather(&self, chosen: Run<u32>, values: Run<f32>) -> Result<()> {
        assert_eq!(values.len, 2 * chosen.len, "two parts for each bin");
        let (bins, layout, count) = (self.bins.address(), self.layout, chosen.len as u32);
        launch!(
            self.device,
            &program(),
            "gather_bins",
            grid(chosen.len),
            256,
            bins,
            layout,
            chosen.address,
            count,
            values.address
        )
    }

    /// Turns the spectrum into the part of it that was sent: the chosen bins, less what is `left` of them.
    pub(super) fn keep_only(&mut self, chosen: Run<u32>, left: Option<Run<f32>>) -> Result<()> {
        if let Some(left) = left {
            assert_eq!(left.len, 2 * chosen.len, "two parts for each bin");
        }
        self.make_zero()?;
        self.place(chosen, left.map_or(0, |left| left.address), true, 1.0)
    }

    /// Empties the spectrum, to be filled by [`add`](CudaSpectrum::add).
    pub(super) fn zero(&mut self) {
        self.is_zero = true;
    }

    /// Adds `factor` times both parts of the given bins; `None` means all of them, in order.
    pub(super) fn add(&mut self, chosen: Option<Run<u32>>, values: Run<f32>, factor: f32) -> Result<()> {
        let count = chosen.map_or(values.len / 2, |chosen| chosen.len);
        assert_eq!(values.len, 2 * count, "two parts for each bin");
        assert!(count <= self.bins(), "no more than there are");
        let fresh = self.is_zero && count == self.bins() && chosen.is_none();
        if let (true, Some(chosen)) = (self.is_zero, chosen) {
            return self.place(chosen, values.address, false, factor);
        }
        if !fresh {
            self.make_zero()?;
        }
        self.is_zero = false;
        let (bins, layout, fresh) = (self.bins.address(), self.layout, u32::from(fresh));
        let (chosen, number) = (chosen.map_or(0, |chosen| chosen.address), count as u32);
        launch!(
            self.device,
            &program(),
            "add_bins",
            grid(count),
            256,
            bins,
            layout,
            chosen,
            number,
            values.address,
            fresh,
            factor
        )
    }

    /// Transforms back once, and hands each element of the ranges of the vector at `values` its value. The spectrum is
    /// gone then.
    ///
    /// # Safety
    /// As [`forward`](CudaSpectrum::forward).
    pub(super) unsafe fn inverse(&mut self, values: u64, onto: Onto) -> Result<()> {
        self.make_zero()?;
        self.is_zero = true;
        match self.in_one_piece(values).filter(|_| onto == Onto::Replace) {
            Some(address) => {
                let whole = self.cut.rest == self.cut.tail;
                let rest = self.tail_of(address);
                let tail = if whole { rest } else { self.tail_place() };
                // SAFETY: the elements go into the caller's vector, the padded ones into the place of their bins.
                unsafe { self.transform(Direction::Back, address, tail)? };
                if whole { Ok(()) } else { self.store(rest, self.cut.full_len(), self.cut.rest, onto) }
            }
            None => {
                // SAFETY: the elements go into the place of the bins.
                unsafe { self.transform(Direction::Back, self.bins.address(), self.tail_place())? };
                let mut at = 0;
                for range in &self.ranges {
                    self.store(values + 4 * range.start as u64, at, range.len(), onto)?;
                    at += range.len();
                }
                Ok(())
            }
        }
    }

    /// The address of the unit's elements, if they are one run that cuFFT can use as it is.
    fn in_one_piece(&self, values: u64) -> Option<u64> {
        let [range] = &self.ranges[..] else { return None };
        Some(values + 4 * range.start as u64).filter(|address| address.is_multiple_of(8))
    }

    /// Where the tail's elements are, in a run that holds all.
    fn tail_of(&self, address: u64) -> u64 {
        address + 4 * self.cut.full_len() as u64
    }

    /// Where the tail's bins are.
    fn tail_place(&self) -> u64 {
        self.bins.address() + 8 * (self.cut.blocks * (self.cut.block / 2 + 1)) as u64
    }

    /// Runs all transforms between the bins and the elements at two addresses: those of the full blocks and those of the
    /// tail, each of which may be the place of the bins themselves.
    ///
    /// # Safety
    /// There is memory for them.
    unsafe fn transform(&mut self, direction: Direction, full: u64, tail: u64) -> Result<()> {
        let Cut { block, blocks, tail: tail_size, .. } = self.cut;
        let (bins, tail_bins) = (self.bins.address(), self.tail_place());
        if blocks > 0 {
            let stride = if full == bins { block + 2 } else { block };
            // SAFETY: as the caller promises.
            unsafe {
                self.transforms.run(Shape { direction, size: block, batch: blocks, stride }, full, bins)?
            };
        }
        if tail_size > 0 {
            // In the place of the bins there is room for two more, which cuFFT may use; elsewhere there is not.
            let stride = if tail == tail_bins { tail_size + 2 } else { tail_size };
            let shape = Shape { direction, size: tail_size, batch: 1, stride };
            // SAFETY: as the caller promises.
            unsafe { self.transforms.run(shape, tail, tail_bins)? };
        }
        Ok(())
    }

    /// `count` elements from element `at` of the unit on, into the place of the bins.
    fn load(&self, values: u64, count: usize, at: usize, half_input: bool) -> Result<()> {
        self.load_and_pad(values, count, count, at, half_input)
    }

    /// Zeros after the last element, up to the size of the tail.
    fn pad(&self) -> Result<()> {
        self.load_and_pad(0, 0, self.cut.tail - self.cut.rest, self.len, false)
    }

    fn load_and_pad(
        &self,
        values: u64,
        count: usize,
        total: usize,
        at: usize,
        half_input: bool,
    ) -> Result<()> {
        let (grid, signal, layout) = (grid(total), self.bins.address(), self.layout);
        let (count, total, at, as_half) = (count as u64, total as u64, at as u64, u32::from(half_input));
        launch!(
            self.device,
            &program(),
            "load_signal",
            grid,
            256,
            values,
            count,
            total,
            at,
            as_half,
            layout,
            signal
        )
    }

    /// `count` elements from element `at` of the unit on, out of the place of the bins.
    fn store(&self, values: u64, at: usize, count: usize, onto: Onto) -> Result<()> {
        let (signal, layout, how) = (self.bins.address(), self.layout, onto as u32);
        let mut done = 0;
        if values.is_multiple_of(8) && at.is_multiple_of(2) {
            let (from, pairs) = ((at / 2) as u32, (count / 2) as u32);
            launch!(
                self.device,
                &program(),
                "store_pairs",
                grid(count / 2),
                256,
                signal,
                layout,
                from,
                pairs,
                how,
                values
            )?;
            done = count / 2 * 2;
        }
        let (values, at, left) = (values + 4 * done as u64, (at + done) as u64, (count - done) as u64);
        launch!(
            self.device,
            &program(),
            "store_signal",
            grid(count - done),
            256,
            signal,
            layout,
            at,
            left,
            how,
            values
        )
    }

    /// Makes the whole spectrum of chosen bins.
    fn place(&mut self, chosen: Run<u32>, values: u64, kept: bool, factor: f32) -> Result<()> {
        self.is_zero = false;
        let tiles = self.bins().div_ceil(TILE) as u32;
        let (count, cuts) = (chosen.len as u32, self.cuts.address());
        launch!(
            self.device,
            &program(),
            "cut_chosen",
            (tiles as usize + 1).div_ceil(256),
            256,
            chosen.address,
            count,
            tiles,
            cuts
        )?;
        let (bins, layout, kept) = (self.bins.address(), self.layout, u32::from(kept));
        launch!(
            self.device,
            &program(),
            "place_bins",
            tiles,
            256,
            bins,
            layout,
            chosen.address,
            cuts,
            values,
            kept,
            factor
        )
    }

    /// Writes the zeros that are meant.
    fn make_zero(&mut self) -> Result<()> {
        if self.is_zero {
            self.bins.clear()?;
        }
        Ok(())
    }
}

impl Spectrum for CudaSpectrum {
    fn bins(&self) -> usize {
        self.cut.coefficients() / 2
    }

    fn bytes(&self) -> usize {
        4 * (self.bins.len() + self.magnitudes.len() + self.cuts.len()) + self.transforms.bytes()
    }
}

#[cfg(test)]
mod tests;
