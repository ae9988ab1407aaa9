//! What MPI needs to know to add elements: their kind, and the operator.
//!
//! MPI has no half-width floats, so they travel as 16-bit words with an operator of our own, which adds them as
//! every other group does.

use std::ffi::{c_int, c_void};

use ::mpi::ffi;

use super::calls::{Called, check};
use crate::group::Precision;
use crate::group::numbers::add;

/// Adds elements of one precision.
#[derive(Debug)]
pub(super) struct Adder {
    precision: Precision,
    kind: ffi::MPI_Datatype,
    operator: ffi::MPI_Op,
}

// SAFETY: both are handles of things that don't change, and MPI is called by one thread at a time; see
// Communicator.
unsafe impl Send for Adder {}

impl Adder {
    /// The one for `precision`. MPI has been started.
    pub fn new(precision: Precision) -> Called<Adder> {
        let function: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut ffi::MPI_Datatype) =
            match precision {
                // SAFETY: constants of MPI's.
                Precision::F32 => unsafe {
                    return Ok(Adder { precision, kind: ffi::RSMPI_FLOAT, operator: ffi::RSMPI_SUM });
                },
                Precision::F16 => add_f16,
                Precision::Bf16 => add_bf16,
            };
        // SAFETY: the function has the signature and the contract of an operator: it adds the first vector to
        // the second. Sums don't depend on which of the two is which, so it commutes.
        unsafe {
            let mut operator = ffi::RSMPI_SUM;
            check("MPI_Op_create", ffi::MPI_Op_create(Some(function), 1, &mut operator))?;
            Ok(Adder { precision, kind: ffi::RSMPI_UINT16_T, operator })
        }
    }

    /// Bytes of one element.
    pub fn width(&self) -> usize {
        self.precision.width()
    }

    pub fn kind(&self) -> ffi::MPI_Datatype {
        self.kind
    }

    pub fn operator(&self) -> ffi::MPI_Op {
        self.operator
    }
}

unsafe extern "C" fn add_f16(
    more: *mut c_void,
    sums: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: the contract of an operator, which is that of `add_words`.
    unsafe { add_words(Precision::F16, more, sums, len) }
}

unsafe extern "C" fn add_bf16(
    more: *mut c_void,
    sums: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: the contract of an operator, which is that of `add_words`.
    unsafe { add_words(Precision::Bf16, more, sums, len) }
}

/// # Safety
/// `len` can be read, and `more` and `sums` are vectors of that many 16-bit words that don't overlap; `sums` can
/// be written.
unsafe fn add_words(precision: Precision, more: *mut c_void, sums: *mut c_void, len: *mut c_int) {
    // SAFETY: promised by the caller.
    let len = unsafe { *len };
    if len <= 0 {
        return;
    }
    let bytes = len as usize * precision.width();
    // SAFETY: promised by the caller; MPI keeps vectors of 16-bit words where such words may stand.
    let (more, sums) = unsafe {
        (
            std::slice::from_raw_parts(more.cast::<u8>(), bytes),
            std::slice::from_raw_parts_mut(sums.cast::<u8>(), bytes),
        )
    };
    add(precision, sums, more);
}
