//! The basis in which coordinates are selected: the gradient's own, or frequencies.
//!
//! The paper behind it is "FFT-based Gradient Sparsification for the Distributed Training of Deep
//! Neural Networks" (arXiv 1811.08596): dropping small frequencies spreads the error over all
//! elements, where dropping small elements loses those elements whole. Both transforms here are
//! linear and orthonormal, so what selection drops costs exactly its own energy, and ranks may sum
//! spectra first and run one inverse for all of them.

mod block;
mod cut;
mod fft;

#[cfg(feature = "cuda")]
pub(crate) use cut::Cut;
pub use fft::RealFft;

/// What happens to a vector before selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransformKind {
    /// Nothing: elements are selected as they are.
    #[default]
    Identity,
    /// A [`RealFft`]: frequencies are selected.
    Fft {
        /// How the vector is cut before the transform.
        block: FftBlock,
    },
}

/// How a vector is cut before a [`RealFft`]. The default is blocks of 4,096.
///
/// The paper transforms the whole gradient at once. Blocks of 4,096 are our default because they
/// stay in the cache and take half the time (1.15 ms instead of 2.2 ms for a million elements), any
/// length costs the same, and threads could share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FftBlock {
    /// One transform of the whole vector, as in the paper.
    Whole,
    /// Transforms of this many elements each: an even number of at least 2.
    Elements(usize),
}

impl Default for FftBlock {
    fn default() -> FftBlock {
        FftBlock::Elements(4096)
    }
}
