//! The calls into MPI that a group makes, each safe to make.
//!
//! None of them blocks: a call hands the memory it works on to MPI and gives a [`Flight`], which gives the
//! memory back when MPI has done its work. A flight that is dropped before that leaks the memory, because MPI
//! may go on reading and writing it: a collective can't be cancelled.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};

use ::mpi::ffi;

use super::adder::Adder;

/// A call's name and what MPI said of it.
pub(super) type Called<T> = Result<T, String>;

/// Memory for MPI to work on, kept from call to call. Sums need it aligned, so it is made of words.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// What goes out.
    pub outgoing: Words,
    /// What comes in.
    pub incoming: Words,
    counts: Vec<c_int>,
    offsets: Vec<c_int>,
}

/// Aligned bytes.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<u32>);

impl Words {
    /// The first `bytes` bytes.
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        let words = bytes.div_ceil(4);
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..bytes]
    }

    fn pointer(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// A call that MPI is working on.
#[derive(Debug)]
pub(super) struct Flight {
    call: &'static str,
    request: ffi::MPI_Request,
    /// MPI's until the request is complete; see the [module](self).
    staging: ManuallyDrop<Staging>,
}

// SAFETY: a request may be completed by any thread, as long as only one at a time calls MPI; see Communicator.
unsafe impl Send for Flight {}

/// What has become of a flight.
pub(super) enum Landing {
    /// MPI is done; here is the memory.
    Landed(Staging),
    /// Not yet.
    Flying(Flight),
}

impl Flight {
    fn begin(call: &'static str, code: c_int, request: ffi::MPI_Request, staging: Staging) -> Called<Flight> {
        let staging = ManuallyDrop::new(staging);
        check(call, code).map(|()| Flight { call, request, staging })
    }

    /// Lets MPI work, and asks whether it is done.
    pub fn test(mut self) -> Called<Landing> {
        let mut done = 0;
        // SAFETY: the request came from MPI and has not been completed, for then this flight would be gone.
        let code = unsafe { ffi::MPI_Test(&mut self.request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
        check(self.call, code)?;
        if done == 0 {
            return Ok(Landing::Flying(self));
        }
        Ok(Landing::Landed(ManuallyDrop::into_inner(self.staging)))
    }
}

/// A message that can be received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub source: usize,
    pub tag: c_int,
    pub bytes: usize,
}

/// All ranks, and a space for messages that no other communicator can see.
#[derive(Debug)]
pub(super) struct Communicator {
    raw: ffi::MPI_Comm,
    pub rank: usize,
    pub size: usize,
}

// SAFETY: MPI was started for calls from any thread, one at a time (MPI_THREAD_SERIALIZED). Communicators are
// not Sync and not Clone, and the two of a group live and move together in it, so no two threads call at once.
unsafe impl Send for Communicator {}

impl Communicator {
    /// A copy of the communicator of all ranks, whose errors are returned and not fatal. Every rank calls this
    /// together, and waits for the others: only while the group is put together.
    pub fn of_all() -> Called<Communicator> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI has been started, and the constants are MPI's own.
        let raw = unsafe {
            let mut raw = ffi::RSMPI_COMM_NULL;
            // Calls that concern no communicator report to that of all ranks.
            let world = ffi::RSMPI_COMM_WORLD;
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN))?;
            check("MPI_Comm_dup", ffi::MPI_Comm_dup(world, &mut raw))?;
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut size))?;
            raw
        };
        Ok(Communicator { raw, rank: rank as usize, size: size as usize })
    }

    /// Sends the first `each` bytes of `outgoing` to all; what all sent comes to `incoming` in the order of the
    /// ranks.
    pub fn gather_equal(&self, mut staging: Staging, each: usize) -> Called<Flight> {
        let count = whole(each)?;
        staging.outgoing.room(each);
        staging.incoming.room(each * self.size);
        let (from, to) = (staging.outgoing.pointer(), staging.incoming.pointer());
        let mut request = no_request();
        // SAFETY: both sides have room for what was said, and stay where they are until the flight has landed.
        let code = unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            ffi::MPI_Iallgather(from, count, byte, to, count, byte, self.raw, &mut request)
        };
        Flight::begin("MPI_Iallgather", code, request, staging)
    }

    /// The same with as many bytes from each rank as `lengths` says, which is the same on all ranks.
    pub fn gather_ragged(
        &self,
        mut staging: Staging,
        lengths: impl Iterator<Item = usize>,
    ) -> Called<Flight> {
        staging.counts.clear();
        staging.offsets.clear();
        let mut total = 0;
        for length in lengths.chain(std::iter::repeat(0)).take(self.size) {
            staging.counts.push(whole(length)?);
            staging.offsets.push(whole(total)?);
            total += length;
        }
        whole(total)?;
        let mine = staging.counts[self.rank];
        staging.outgoing.room(mine as usize);
        staging.incoming.room(total);
        let (from, to) = (staging.outgoing.pointer(), staging.incoming.pointer());
        let (counts, offsets) = (staging.counts.as_ptr(), staging.offsets.as_ptr());
        let mut request = no_request();
        // SAFETY: both sides have room for what was said, there is a count and an offset for every rank, and all
        // four stay where they are until the flight has landed.
        let code = unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            ffi::MPI_Iallgatherv(from, mine, byte, to, counts, offsets, byte, self.raw, &mut request)
        };
        Flight::begin("MPI_Iallgatherv", code, request, staging)
    }

    /// Sends each rank its `each` bytes of `outgoing`; what all sent comes to `incoming` in the order of the ranks.
    pub fn all_to_all(&self, mut staging: Staging, each: usize) -> Called<Flight> {
        let count = whole(each)?;
        staging.outgoing.room(each * self.size);
        staging.incoming.room(each * self.size);
        let (from, to) = (staging.outgoing.pointer(), staging.incoming.pointer());
        let mut request = no_request();
        // SAFETY: both sides have room for what was said, and stay where they are until the flight has landed.
        let code = unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            ffi::MPI_Ialltoall(from, count, byte, to, count, byte, self.raw, &mut request)
        };
        Flight::begin("MPI_Ialltoall", code, request, staging)
    }

    /// Sums `outgoing` over all ranks; the part `shares` gives to this rank comes to `incoming`. The shares are
    /// in elements, and the same on all ranks.
    pub fn sum_scatter(
        &self,
        mut staging: Staging,
        adder: &Adder,
        shares: impl Iterator<Item = usize>,
    ) -> Called<Flight> {
        staging.counts.clear();
        let mut total = 0;
        for share in shares.chain(std::iter::repeat(0)).take(self.size) {
            staging.counts.push(whole(share)?);
            total += share;
        }
        whole(total)?;
        staging.outgoing.room(total * adder.width());
        staging.incoming.room(staging.counts[self.rank] as usize * adder.width());
        let (from, to, counts) =
            (staging.outgoing.pointer(), staging.incoming.pointer(), staging.counts.as_ptr());
        let mut request = no_request();
        // SAFETY: both sides have room for what was said, there is a count for every rank, all three stay where
        // they are until the flight has landed, and the operator is one for elements of that kind.
        let code = unsafe {
            let (kind, operator) = (adder.kind(), adder.operator());
            ffi::MPI_Ireduce_scatter(from, to, counts, kind, operator, self.raw, &mut request)
        };
        Flight::begin("MPI_Ireduce_scatter", code, request, staging)
    }

    /// Sums `outgoing` over all ranks; the sum comes to `incoming` of rank 0.
    pub fn sum_to_first(&self, mut staging: Staging, adder: &Adder, elements: usize) -> Called<Flight> {
        let count = whole(elements)?;
        staging.outgoing.room(elements * adder.width());
        staging.incoming.room(elements * adder.width());
        let (from, to) = (staging.outgoing.pointer(), staging.incoming.pointer());
        let mut request = no_request();
        // SAFETY: both sides have room for what was said, stay where they are until the flight has landed, and
        // the operator is one for elements of that kind.
        let code = unsafe {
            let (kind, operator) = (adder.kind(), adder.operator());
            ffi::MPI_Ireduce(from, to, count, kind, operator, 0, self.raw, &mut request)
        };
        Flight::begin("MPI_Ireduce", code, request, staging)
    }

    /// The first `bytes` bytes of the root's `outgoing` become everybody's.
    pub fn cast(&self, mut staging: Staging, root: usize, bytes: usize) -> Called<Flight> {
        let (count, root) = (whole(bytes)?, whole(root)?);
        staging.outgoing.room(bytes);
        let buffer = staging.outgoing.pointer();
        let mut request = no_request();
        // SAFETY: there is room for what was said, and it stays where it is until the flight has landed.
        let code =
            unsafe { ffi::MPI_Ibcast(buffer, count, ffi::RSMPI_UINT8_T, root, self.raw, &mut request) };
        Flight::begin("MPI_Ibcast", code, request, staging)
    }

    /// Sends a message to one rank.
    pub fn send(&self, to: usize, tag: c_int, message: &[u8]) -> Called<Flight> {
        let (count, to) = (whole(message.len())?, whole(to)?);
        let mut staging = Staging::default();
        staging.outgoing.room(message.len()).copy_from_slice(message);
        let from = staging.outgoing.pointer();
        let mut request = no_request();
        // SAFETY: the message was put there, and stays there until the flight has landed.
        let code =
            unsafe { ffi::MPI_Isend(from, count, ffi::RSMPI_UINT8_T, to, tag, self.raw, &mut request) };
        Flight::begin("MPI_Isend", code, request, staging)
    }

    /// The first message that can be received, if there is one.
    pub fn probe(&self) -> Called<Option<Waiting>> {
        let mut status = MaybeUninit::<ffi::MPI_Status>::uninit();
        let (mut there, mut count) = (0, 0);
        // SAFETY: MPI writes the status when it says that a message is there, and it is only read then.
        let (source, tag) = unsafe {
            let (any, comm) = (ffi::RSMPI_ANY_SOURCE, self.raw);
            check(
                "MPI_Iprobe",
                ffi::MPI_Iprobe(any, ffi::RSMPI_ANY_TAG, comm, &mut there, status.as_mut_ptr()),
            )?;
            if there == 0 {
                return Ok(None);
            }
            check("MPI_Get_count", ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count))?;
            let status = status.assume_init();
            (status.MPI_SOURCE, status.MPI_TAG)
        };
        Ok(Some(Waiting { source: source as usize, tag, bytes: count.max(0) as usize }))
    }

    /// Receives a message that was probed into `incoming`.
    pub fn receive(&self, waiting: Waiting) -> Called<Flight> {
        let (count, source) = (whole(waiting.bytes)?, whole(waiting.source)?);
        let mut staging = Staging::default();
        staging.incoming.room(waiting.bytes);
        let to = staging.incoming.pointer();
        let mut request = no_request();
        // SAFETY: there is room for the message, and it stays where it is until the flight has landed.
        let code = unsafe {
            ffi::MPI_Irecv(to, count, ffi::RSMPI_UINT8_T, source, waiting.tag, self.raw, &mut request)
        };
        Flight::begin("MPI_Irecv", code, request, staging)
    }
}

fn no_request() -> ffi::MPI_Request {
    // SAFETY: a constant of MPI's.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// MPI counts in 32 bits. The group works in pieces far below that, so this is a net and not a limit.
fn whole(count: usize) -> Called<c_int> {
    c_int::try_from(count).map_err(|_| format!("MPI counts to {}, but {count} are needed", c_int::MAX))
}

/// An error code in MPI's words.
pub(super) fn check(call: &'static str, code: c_int) -> Called<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut words = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: there is room for the longest text there can be.
    let known = unsafe { ffi::MPI_Error_string(code, words.as_mut_ptr().cast::<c_char>(), &mut length) };
    let words = if known == ffi::MPI_SUCCESS as c_int {
        String::from_utf8_lossy(&words[..(length.max(0) as usize).min(words.len())]).into_owned()
    } else {
        format!("error {code}")
    };
    Err(format!("{call}: {words}"))
}
