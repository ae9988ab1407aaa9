//! A GPU and the stream on which this engine works.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{DriverError, result as driver};

use super::compile::{self, Program, words};
use super::memory::Element;
use crate::{Error, Result};

/// A GPU, opened: its context, one stream, and the kernels that were loaded. Shared by everything that holds memory
/// on it.
pub struct Device {
    ordinal: i32,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    owns_stream: bool,
    architecture: String,
    name: String,
    processors: u32,
    /// Waits of the host for the stream: how many were begun, and the last of those that are over.
    waits_begun: AtomicU64,
    waits_over: AtomicU64,
    functions: Mutex<HashMap<(Program, &'static str), Function>>,
    /// Where other streams may wait for this one: memory to be given back when none does.
    left: Option<Mutex<Vec<Left>>>,
}

/// Memory that nobody holds any longer, by its address.
#[derive(Debug, Clone, Copy)]
pub(super) enum Left {
    OnDevice(u64),
    /// Pinned.
    OnHost(usize),
}

/// A kernel that was loaded.
#[derive(Debug, Clone, Copy)]
struct Function(sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread; each call makes the context current first.
unsafe impl Send for Device {}
// SAFETY: as above; the table of functions has a lock of its own.
unsafe impl Sync for Device {}
// SAFETY: a handle, valid as long as the device is open.
unsafe impl Send for Function {}

/// One kernel's parameters: pointers to values that live until the launch returns.
macro_rules! launch {
    ($device:expr, $program:expr, $name:literal, $grid:expr, $threads:expr $(, $argument:expr)* $(,)?) => {{
        let size = ($grid as u32, $threads as u32);
        $device.launch($program, $name, size, &mut [$( (&raw const *&$argument).cast_mut().cast::<std::ffi::c_void>() ),*])
    }};
}
/// The same for a kernel whose blocks wait for each other.
macro_rules! launch_together {
    ($device:expr, $program:expr, $name:literal, $grid:expr, $threads:expr $(, $argument:expr)* $(,)?) => {{
        let size = ($grid as u32, $threads as u32);
        $device.launch_together($program, $name, size, &mut [$( (&raw const *&$argument).cast_mut().cast::<std::ffi::c_void>() ),*])
    }};
}
pub(super) use {launch, launch_together};

impl Device {
    /// Why no GPU can be used here, if that is so: no driver, no card, a card that is too old, or no NVRTC.
    pub fn unusable(ordinal: usize) -> Option<String> {
        let checked = check_driver().and_then(|()| {
            let (_, capability) = look_up(ordinal as i32)?;
            compile::architecture_for(capability)
        });
        checked.err().map(|error| error.to_string())
    }

    /// Opens a GPU with a stream of its own.
    pub fn open(ordinal: usize) -> Result<Arc<Device>> {
        Device::make(ordinal, None, false)
    }

    /// Opens a GPU to work on a stream of somebody else.
    ///
    /// # Safety
    /// `stream` is a stream of that GPU's primary context, and outlives everything made with the device.
    pub unsafe fn open_on_stream(ordinal: usize, stream: u64) -> Result<Arc<Device>> {
        Device::make(ordinal, Some(stream as sys::CUstream), false)
    }

    /// Opens a GPU with a stream of its own, for which other streams may wait by a [`Counter`](super::Counter).
    ///
    /// While one does, nothing may be done here that waits for all of the GPU. So memory is given back only by
    /// [`give_back`](Device::give_back). The stream has the highest priority, which keeps it apart from ordinary ones:
    /// in a queue of the hardware that both share, what they wait for would stand behind their waiting
    /// ([`check_beside`](Device::check_beside) finds that out).
    pub fn open_ahead(ordinal: usize) -> Result<Arc<Device>> {
        Device::make(ordinal, None, true)
    }

    fn make(ordinal: usize, stream: Option<sys::CUstream>, ahead: bool) -> Result<Arc<Device>> {
        check_driver()?;
        let ordinal = ordinal as i32;
        let (device, capability) = look_up(ordinal)?;
        let architecture = compile::architecture_for(capability)?;
        let failed = |error| fault("open the GPU", error);
        let name = driver::device::get_name(device).map_err(failed)?;
        // SAFETY: the device exists.
        let context = unsafe { driver::primary_ctx::retain(device) }.map_err(failed)?;
        // SAFETY: the context was just retained.
        unsafe { driver::ctx::set_current(context) }.map_err(failed)?;
        let processors = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let owns_stream = stream.is_none();
        let stream = match stream {
            Some(stream) => stream,
            None => {
                let kind = driver::stream::StreamKind::NonBlocking;
                driver::stream::create_with_priority(kind, if ahead { highest_priority()? } else { 0 })
                    .map_err(failed)?
            }
        };
        Ok(Arc::new(Device {
            ordinal,
            device,
            context,
            stream,
            owns_stream,
            architecture,
            name,
            processors,
            waits_begun: AtomicU64::new(0),
            waits_over: AtomicU64::new(0),
            functions: Mutex::default(),
            left: ahead.then(Mutex::default),
        }))
    }

    /// The card's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which card of the machine it is.
    pub fn ordinal(&self) -> usize {
        self.ordinal as usize
    }

    /// How many multiprocessors it has.
    pub(super) fn processors(&self) -> u32 {
        self.processors
    }

    /// The stream everything here runs on.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Makes the context current on this thread, as every call into the driver needs.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained as long as the device is open.
        unsafe { driver::ctx::set_current(self.context) }.map_err(|error| fault("use the GPU", error))
    }

    /// Launches a kernel of so many blocks and threads on the stream. An empty grid is nothing to do.
    pub(super) fn launch(
        &self,
        program: &Program,
        name: &'static str,
        (grid, threads): (u32, u32),
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        if grid == 0 {
            return Ok(());
        }
        self.bind()?;
        let function = self.function(program, name)?.0;
        // SAFETY: the wrappers in this folder pass what the kernel of that name takes; all memory belongs to buffers
        // that outlive the work on this stream (they are freed on it, or after waiting for it).
        let launched = unsafe {
            driver::launch_kernel(function, (grid, 1, 1), (threads, 1, 1), 0, self.stream, arguments)
        };
        launched.map_err(|error| fault(&format!("launch the kernel {name}"), error))
    }

    /// The same for a kernel whose blocks wait for each other: all of them run at the same time, or none.
    pub(super) fn launch_together(
        &self,
        program: &Program,
        name: &'static str,
        (grid, threads): (u32, u32),
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        self.bind()?;
        let function = self.function(program, name)?.0;
        let (grid, threads) = ((grid, 1, 1), (threads, 1, 1));
        // SAFETY: as above.
        let launched =
            unsafe { driver::launch_cooperative_kernel(function, grid, threads, 0, self.stream, arguments) };
        launched.map_err(|error| fault(&format!("launch the kernel {name}"), error))
    }

    fn function(&self, program: &Program, name: &'static str) -> Result<Function> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&(program.clone(), name)) {
            return Ok(*function);
        }
        let code = program.compile_cached(&self.architecture)?;
        let failed = |error| fault(&format!("load the kernel {name} of {program}"), error);
        // SAFETY: the code is a whole cubin or PTX with its final zero. Modules stay loaded as long as the process.
        let module = unsafe { driver::module::load_data(code.as_ptr().cast()) }.map_err(failed)?;
        let symbol = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded.
        let function = Function(unsafe { driver::module::get_function(module, symbol) }.map_err(failed)?);
        functions.insert((program.clone(), name), function);
        Ok(function)
    }

    /// Loads every kernel that gradients of such numbers may need, now and not in the midst of a step: to load one may
    /// wait for all of the GPU.
    pub fn load_all(&self, element: Element) -> Result<()> {
        self.bind()?;
        for program in Program::all_for(element) {
            for name in program.kernels() {
                self.function(&program, name)?;
            }
        }
        Ok(())
    }

    /// Gives memory back, or leaves that to [`give_back`](Device::give_back).
    pub(super) fn free(&self, memory: Left) {
        match &self.left {
            Some(left) => left.lock().unwrap_or_else(PoisonError::into_inner).push(memory),
            None => self.free_now(memory),
        }
    }

    /// Gives back the memory that nobody holds any longer. Waits for the work on all of the GPU if there is some, so no
    /// stream may be waiting for this one.
    pub fn give_back(&self) {
        let left = self
            .left
            .as_ref()
            .map(|left| std::mem::take(&mut *left.lock().unwrap_or_else(PoisonError::into_inner)));
        left.into_iter().flatten().for_each(|memory| self.free_now(memory));
    }

    fn free_now(&self, memory: Left) {
        if self.bind().is_err() {
            return;
        }
        // SAFETY: nobody else has the address; freeing waits for the work that uses the memory.
        let _ = unsafe {
            match memory {
                Left::OnDevice(address) => driver::free_sync(address),
                Left::OnHost(address) => driver::free_host(address as *mut c_void),
            }
        };
    }

    /// Waits until the stream has done everything.
    pub fn wait(&self) -> Result<()> {
        self.bind()?;
        let number = self.waits_begun.fetch_add(1, Ordering::SeqCst) + 1;
        // SAFETY: the stream is there.
        unsafe { driver::stream::synchronize(self.stream) }
            .map_err(|error| fault("finish the work on the GPU", error))?;
        self.waits_over.fetch_max(number, Ordering::SeqCst);
        Ok(())
    }

    /// The number of the next wait, after which everything begun before is done; for [`wait_since`](Device::wait_since).
    pub(super) fn next_wait(&self) -> u64 {
        self.waits_begun.load(Ordering::SeqCst) + 1
    }

    /// Waits, unless a wait of this number or a later one is over.
    pub(super) fn wait_since(&self, number: u64) -> Result<()> {
        if self.waits_over.load(Ordering::SeqCst) < number { self.wait() } else { Ok(()) }
    }

    /// Bytes at an address become zero.
    pub(super) fn clear_at(&self, address: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller owns as many bytes at the address.
        unsafe { driver::memset_d8_async(address, 0, bytes, self.stream) }
            .map_err(|error| fault("clear memory of the GPU", error))
    }

    /// An event in the stream `of` (this device's own if `None`), for others to wait for.
    pub fn record(self: &Arc<Self>, of: Option<u64>) -> Result<Event> {
        let stream = of.map_or(self.stream, |of| of as sys::CUstream);
        self.point(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING, stream)
    }

    /// The time on the device between two [stamps](Device::stamp), in milliseconds; waits for the second.
    pub fn milliseconds(&self, from: &Event, to: &Event) -> Result<f32> {
        self.bind()?;
        let failed = |error| fault("read a time off the GPU", error);
        // SAFETY: both events are there, and were made for timing.
        unsafe {
            driver::event::synchronize(to.event).map_err(failed)?;
            driver::event::elapsed(from.event, to.event).map_err(failed)
        }
    }

    /// A point in this device's stream whose time can be read.
    pub fn stamp(self: &Arc<Self>) -> Result<Event> {
        self.point(sys::CUevent_flags::CU_EVENT_DEFAULT, self.stream)
    }

    fn point(self: &Arc<Self>, flags: sys::CUevent_flags, stream: sys::CUstream) -> Result<Event> {
        self.bind()?;
        let failed = |error| fault("mark a point in a stream", error);
        let event = Event { event: driver::event::create(flags).map_err(failed)?, device: self.clone() };
        // SAFETY: the event was just made, and the stream is of this context.
        unsafe { driver::event::record(event.event, stream) }.map_err(failed)?;
        Ok(event)
    }

    /// What follows on this stream comes after the event.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: event and stream are there.
        unsafe {
            driver::stream::wait_event(
                self.stream,
                event.event,
                sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
            )
        }
        .map_err(|error| fault("wait for another stream", error))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.give_back();
        if self.bind().is_err() {
            return;
        }
        // SAFETY: nothing is left that uses the stream, as everything that does holds this device.
        unsafe {
            if self.owns_stream {
                let _ = driver::stream::synchronize(self.stream);
                let _ = driver::stream::destroy(self.stream);
            }
            let _ = driver::primary_ctx::release(self.device);
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device {{ {}: {}, {} }}", self.ordinal, self.name, self.architecture)
    }
}

fn highest_priority() -> Result<i32> {
    let (mut lowest, mut highest) = (0, 0);
    // SAFETY: points to two integers; the context is current.
    let asked = unsafe { sys::cuCtxGetStreamPriorityRange(&mut lowest, &mut highest) }.result();
    asked.map(|()| highest).map_err(|error| fault("ask the GPU for the priorities of streams", error))
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    event: sys::CUevent,
    device: Arc<Device>,
}

// SAFETY: a handle of the driver, usable from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the stream has come to it.
    pub(super) fn is_over(&self) -> Result<bool> {
        self.device.bind()?;
        // SAFETY: the event is there.
        match unsafe { driver::event::query(self.event) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(fault("look at another stream", error)),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the event is not used any longer; the driver keeps what streams still wait for.
            let _ = unsafe { driver::event::destroy(self.event) };
        }
    }
}

/// The driver's error with what was to be done.
pub(super) fn fault(action: &str, error: DriverError) -> Error {
    Error::Device { action: action.to_owned(), reason: words(error) }
}

fn check_driver() -> Result<()> {
    let action = || "use a GPU".to_owned();
    // SAFETY: loads the driver's library, if there is one.
    if !unsafe { sys::is_culib_present() } {
        let reason = "NVIDIA's driver (libcuda) is not to be found on this machine".into();
        return Err(Error::Device { action: action(), reason });
    }
    driver::init().map_err(|error| fault("use a GPU: NVIDIA's driver does not start", error))?;
    let mut version = 0;
    // SAFETY: points to an integer.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    asked.map_err(|error| fault("ask NVIDIA's driver for its version", error))?;
    if version < 12_000 {
        let reason = format!(
            "NVIDIA's driver supports CUDA {}.{}; expected 12.0 or later: update the driver",
            version / 1000,
            version % 1000 / 10
        );
        return Err(Error::Device { action: action(), reason });
    }
    Ok(())
}

fn attribute(device: sys::CUdevice, which: CUdevice_attribute) -> Result<u32> {
    // SAFETY: the device exists.
    let value = unsafe { driver::device::get_attribute(device, which) };
    value.map(|value| value as u32).map_err(|error| fault("ask the GPU what it is", error))
}

/// The device and its compute capability, 90 for 9.0.
fn look_up(ordinal: i32) -> Result<(sys::CUdevice, u32)> {
    let count = driver::device::get_count().map_err(|error| fault("count the GPUs", error))?;
    if ordinal < 0 || ordinal >= count {
        let reason =
            if count == 0 { "there is none".into() } else { format!("there are {count}, numbered from 0") };
        return Err(Error::Device { action: format!("use GPU {ordinal}"), reason });
    }
    let device = driver::device::get(ordinal).map_err(|error| fault("open the GPU", error))?;
    let major = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let capability = 10 * major + minor;
    if capability < compile::OLDEST {
        let name = driver::device::get_name(device).unwrap_or_default();
        let (oldest_major, oldest_minor) = (compile::OLDEST / 10, compile::OLDEST % 10);
        let reason = format!(
            "{name} has compute capability {major}.{minor}; expected {oldest_major}.{oldest_minor} or later"
        );
        return Err(Error::Device { action: format!("use GPU {ordinal}"), reason });
    }
    Ok((device, capability))
}
