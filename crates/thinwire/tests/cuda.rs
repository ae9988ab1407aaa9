//! The kernels on a GPU against those on the CPU: the same elements, the same sums, the same bits, on fresh random and
//! on hostile data. Needs an NVIDIA GPU: `./test gpu`.
#![cfg(feature = "cuda")]

mod cuda {
    pub mod data;
    pub mod engine;
    pub mod selection;
}
