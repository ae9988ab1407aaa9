//! Memory that belongs to Python, as the engine sees it.

use pyo3::prelude::*;
use thinwire::{Error, Result};

/// `f32` values in a tensor or an array, which is kept alive as long as this.
#[derive(Debug)]
pub struct Memory {
    address: usize,
    elements: usize,
    /// Only held.
    _owner: Py<PyAny>,
}

/// As Python hands it over: the owner, the address of its first value, how many there are.
pub type Handed = (Py<PyAny>, usize, usize);

impl Memory {
    /// The values of an owner.
    ///
    /// # Safety
    /// From `address` on there must be `elements` values of `f32`, for as long as the owner lives, and nobody else may
    /// use them as long as this does. `python/thinwire` sees to that: it hands over contiguous CPU tensors and arrays
    /// of 32-bit floats, and takes them back before anybody else sees them.
    pub unsafe fn new((owner, address, elements): Handed) -> Result<Memory> {
        let misfit = elements > 0 && (address == 0 || !address.is_multiple_of(align_of::<f32>()));
        if misfit || elements.checked_mul(size_of::<f32>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::BadSetting {
                name: "an array".into(),
                found: format!("{elements} elements at {address:#x}"),
                expected: "32-bit floats at an address that is a multiple of four".into(),
            });
        }
        Ok(Memory { address, elements, _owner: owner })
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
