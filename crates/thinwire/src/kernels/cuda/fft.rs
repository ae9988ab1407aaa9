//! cuFFT, loaded at run time.

use std::ffi::{c_longlong, c_void};
use std::sync::Arc;

use cudarc::cufft::{result as cufft, sys};
use cudarc::driver::result as driver;

use super::card::Left;
use super::device::Device;
use super::memory::Buffer;
use crate::{Error, Result};

/// Which way a transform goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Elements to complex bins.
    Forward,
    /// Bins to elements, times the size; the bins may be destroyed.
    Back,
}

/// Real transforms of one even size, many at a time. The `size / 2 + 1` bins of each follow those of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub direction: Direction,
    pub size: usize,
    pub batch: usize,
    /// Elements from the first of one transform to the first of the next; `size + 2` where they have the place of the bins.
    pub stride: usize,
}

/// Plans, each made when it is first needed, and the one work area they take turns in.
#[derive(Debug)]
pub(super) struct Transforms {
    device: Arc<Device>,
    plans: Vec<Plan>,
    work: Buffer<u8>,
}

impl Transforms {
    /// # Errors
    /// [`Error::Device`] with the way out if cuFFT is not there.
    pub fn new(device: &Arc<Device>) -> Result<Transforms> {
        check_present()?;
        Ok(Transforms { device: device.clone(), plans: Vec::new(), work: Buffer::new(device, 256)? })
    }

    /// Bytes held in the memory of the GPU.
    pub fn bytes(&self) -> usize {
        self.work.len()
    }

    /// Transforms between the elements and the bins at these addresses, both multiples of 8; they may be the same.
    ///
    /// # Safety
    /// Both are memory of this device with room for what the shape says.
    pub unsafe fn run(&mut self, shape: Shape, elements: u64, bins: u64) -> Result<()> {
        debug_assert!(elements.is_multiple_of(8) && bins.is_multiple_of(8), "as cuFFT wants it");
        let _current = self.device.bind()?;
        let number = match self.plans.iter().position(|plan| plan.shape == shape) {
            Some(number) => number,
            None => self.add(shape)?,
        };
        // SAFETY: as the caller promises; the plan is there, and has its work area.
        unsafe { self.plans[number].run(elements, bins) }
    }

    /// Makes a plan; all plans get a larger work area if it needs one.
    fn add(&mut self, shape: Shape) -> Result<usize> {
        let plan = Plan::new(&self.device, shape)?;
        if plan.work > self.work.len() {
            self.work = Buffer::new(&self.device, plan.work)?;
        }
        self.plans.push(plan);
        for plan in &self.plans {
            plan.work_in(&self.work)?;
        }
        Ok(self.plans.len() - 1)
    }
}

/// A plan of cuFFT's.
#[derive(Debug)]
struct Plan {
    handle: sys::cufftHandle,
    device: Arc<Device>,
    shape: Shape,
    /// Bytes it needs to work in.
    work: usize,
}

impl Plan {
    fn new(device: &Arc<Device>, shape: Shape) -> Result<Plan> {
        let failed = |error| fault(&format!("plan transforms {shape:?}"), error);
        let handle = cufft::create().map_err(failed)?;
        // From here on it is destroyed with the plan.
        let mut plan = Plan { handle, device: device.clone(), shape, work: 0 };
        let elements = shape.stride as c_longlong;
        let bins = (shape.size / 2 + 1) as c_longlong;
        let (kind, from, into) = match shape.direction {
            Direction::Forward => (sys::cufftType::CUFFT_R2C, elements, bins),
            Direction::Back => (sys::cufftType::CUFFT_C2R, bins, elements),
        };
        let (mut size, mut from_extent, mut into_extent) = ([shape.size as c_longlong], [from], [into]);
        // SAFETY: the handle was just made; the three arrays have one entry for each of one dimension; the stream is of
        // this device and outlives the plan, which holds the device.
        plan.work = unsafe {
            cufft::set_auto_allocation(handle, false).map_err(failed)?;
            let work = cufft::make_plan_many64(
                handle,
                1,
                size.as_mut_ptr(),
                from_extent.as_mut_ptr(),
                1,
                from,
                into_extent.as_mut_ptr(),
                1,
                into,
                kind,
                shape.batch as c_longlong,
            )
            .map_err(failed)?;
            cufft::set_stream(handle, device.stream().cast()).map_err(failed)?;
            work
        };
        // cuFFT brings its tables to the GPU on a stream of its own, for which the plan's stream does not wait.
        driver::ctx::synchronize()
            .map_err(|error| super::device::fault("make ready for transforms", error))?;
        Ok(plan)
    }

    fn work_in(&self, area: &Buffer<u8>) -> Result<()> {
        // SAFETY: the area is at least as large as this plan needs, and stays as long as the plan.
        unsafe { cufft::set_work_area(self.handle, area.address() as *mut c_void) }
            .map_err(|error| fault("give transforms a work area", error))
    }

    /// # Safety
    /// As [`Transforms::run`].
    unsafe fn run(&self, elements: u64, bins: u64) -> Result<()> {
        let (elements, bins) = (elements as *mut sys::cufftReal, bins as *mut sys::cufftComplex);
        // SAFETY: as the caller promises.
        let done = unsafe {
            match self.shape.direction {
                Direction::Forward => cufft::exec_r2c(self.handle, elements, bins),
                Direction::Back => cufft::exec_c2r(self.handle, bins, elements),
            }
        };
        done.map_err(|error| fault(&format!("transform {:?}", self.shape), error))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        let Ok(_current) = self.device.bind() else { return };
        // The stream may be gone before it.
        // SAFETY: the handle is this plan's own, and nothing is transformed by it any more.
        let _ = unsafe { cufft::set_stream(self.handle, std::ptr::null_mut()) };
        self.device.free(Left::Plan(self.handle));
    }
}

fn fault(action: &str, error: cufft::CufftError) -> Error {
    Error::Device { action: format!("{action} on the GPU"), reason: format!("cuFFT says {error}") }
}

/// Fails with the way out if cuFFT is not there.
pub(super) fn check_present() -> Result<()> {
    // SAFETY: loads a library that has no initialiser of its own to go wrong.
    if unsafe { sys::is_culib_present() } || super::compile::load_toolkit("libcufft.so") {
        return Ok(());
    }
    Err(Error::Device {
        action: "transform on the GPU".into(),
        reason: "cuFFT (libcufft) is not to be found; it comes with PyTorch for CUDA, with `pip install nvidia-cufft` and \
                 with the CUDA toolkit: put its folder into LD_LIBRARY_PATH"
            .into(),
    })
}
