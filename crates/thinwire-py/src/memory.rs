//! Memory that belongs to Python, as the engine sees it.

use std::sync::Arc;

use pyo3::prelude::*;
use thinwire::Result;
use thinwire::kernels::cuda::{Device, Element, Gradient};

use crate::engine::misfit;
use crate::error::OrException;

/// `f32` values in a tensor or an array, which is kept alive as long as this.
#[derive(Debug)]
pub struct Memory {
    address: usize,
    elements: usize,
    /// Only held.
    _owner: Py<PyAny>,
}

/// As Python hands it over: the owner, the address of its first value, how many there are; and for memory of a GPU
/// the kind of its numbers and the stream on which they become ready. An owner that has another number of bytes than
/// these values is refused.
pub enum Handed {
    /// In host memory.
    Host(Py<PyAny>, usize, usize),
    /// On a GPU.
    Device(Py<PyAny>, usize, usize, String, u64),
}

#[derive(FromPyObject)]
enum Fields {
    Host(Py<PyAny>, usize, usize),
    Device(Py<PyAny>, usize, usize, String, u64),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Handed {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Handed> {
        let py = object.py();
        match object.extract()? {
            Fields::Host(owner, address, elements) => {
                check_bytes(owner.bind(py), elements, size_of::<f32>())?;
                Ok(Handed::Host(owner, address, elements))
            }
            Fields::Device(owner, address, elements, kind, stream) => {
                let size = if kind == Element::F32.name() { 4 } else { 2 };
                check_bytes(owner.bind(py), elements, size)?;
                Ok(Handed::Device(owner, address, elements, kind, stream))
            }
        }
    }
}

/// Fails unless the owner, a tensor or an array, holds so many values of this size.
fn check_bytes(owner: &Bound<'_, PyAny>, elements: usize, size: usize) -> PyResult<()> {
    let bytes: usize = owner.getattr("nbytes")?.extract()?;
    if elements.checked_mul(size) == Some(bytes) {
        return Ok(());
    }
    let expected = format!("{elements} values of {size} bytes");
    Err(misfit(format!("an array of {bytes} bytes"), &expected)).or_exception()
}

impl Memory {
    /// The values of an owner.
    ///
    /// # Safety
    /// From `address` on there must be `elements` values of `f32`, for as long as the owner lives, and nobody else may
    /// use them as long as this does. `python/thinwire` sees to that: it hands over contiguous CPU tensors and arrays
    /// of 32-bit floats, and takes them back before anybody else sees them.
    pub unsafe fn new(handed: Handed) -> Result<Memory> {
        let Handed::Host(owner, address, elements) = handed else {
            return Err(misfit("memory of a GPU".into(), "memory of the host, where this engine works"));
        };
        let wrong = elements > 0 && (address == 0 || !address.is_multiple_of(align_of::<f32>()));
        if wrong || elements.checked_mul(size_of::<f32>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
            let found = format!("{elements} elements at {address:#x}");
            return Err(misfit(found, "32-bit floats at an address that is a multiple of four"));
        }
        Ok(Memory { address, elements, _owner: owner })
    }
}

/// Numbers in the memory of a GPU, in a tensor that is kept alive as long as this.
#[derive(Debug)]
pub struct DeviceMemory {
    gradient: Gradient,
    /// Only held.
    _owner: Py<PyAny>,
}

impl DeviceMemory {
    /// The values of an owner, ready at the point where its stream is now.
    ///
    /// # Safety
    /// As of [`Memory::new`], with numbers of the kind that is named, in the memory of this device, and a stream of it.
    pub unsafe fn new(handed: Handed, device: &Arc<Device>) -> Result<DeviceMemory> {
        let Handed::Device(owner, address, elements, kind, stream) = handed else {
            return Err(misfit("memory of the host".into(), "memory of the GPU on which this engine works"));
        };
        let kinds = [Element::F32, Element::F16, Element::Bf16];
        let Some(element) = kinds.into_iter().find(|element| element.name() == kind) else {
            return Err(misfit(format!("numbers of kind {kind:?}"), "f32, f16 or bf16"));
        };
        let ready = device.record(Some(stream))?;
        // SAFETY: as the caller promises.
        let gradient = unsafe { Gradient::new(address as u64, elements, element, Some(ready)) }?;
        Ok(DeviceMemory { gradient, _owner: owner })
    }

    /// What it is made of.
    pub fn element(&self) -> Element {
        self.gradient.element()
    }
}

impl AsRef<Gradient> for DeviceMemory {
    fn as_ref(&self) -> &Gradient {
        &self.gradient
    }
}

impl AsMut<Gradient> for DeviceMemory {
    fn as_mut(&mut self) -> &mut Gradient {
        &mut self.gradient
    }
}

impl AsRef<[f32]> for Memory {
    fn as_ref(&self) -> &[f32] {
        if self.elements == 0 {
            return &[];
        }
        // SAFETY: `new` was promised that these values are there and nobody else uses them, and has checked the
        // address and the length.
        unsafe { std::slice::from_raw_parts(self.address as *const f32, self.elements) }
    }
}

impl AsMut<[f32]> for Memory {
    fn as_mut(&mut self) -> &mut [f32] {
        if self.elements == 0 {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut f32, self.elements) }
    }
}
