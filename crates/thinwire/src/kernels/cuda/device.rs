//! A GPU and the stream on which this engine works.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{DriverError, result as driver};

use super::call::{Calls, Current};
use super::card::{Card, Function, Left};
use super::compile::{self, Program, words};
use super::memory::Element;
use crate::{Error, Result};

/// A GPU, opened: its context, one stream, and the kernels that are loaded there. Shared by everything that holds memory
/// on it.
pub struct Device {
    ordinal: i32,
    stream: sys::CUstream,
    architecture: String,
    name: String,
    processors: u32,
    calls: Arc<Calls>,
    card: Arc<Card>,
    functions: Mutex<HashMap<(Program, &'static str), Function>>,
    /// Whether other streams may wait for this one.
    ahead: AtomicBool,
}

// SAFETY: the driver's handles may be used from any thread; each call makes the context current first.
unsafe impl Send for Device {}
// SAFETY: as above; the table of functions has a lock of its own.
unsafe impl Sync for Device {}

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
        Device::make(ordinal, false)
    }

    /// Opens a GPU with a stream of its own, for which other streams may wait by a [`Counter`](super::Counter).
    ///
    /// While one does, nothing may be done that waits for all of the GPU. So as long as such a device is open, memory of
    /// this GPU is given back only by [`give_back`](Device::give_back). The stream has the highest priority, which keeps
    /// it apart from ordinary ones: in a queue of the hardware that both share, what they wait for would stand behind
    /// their waiting ([`check_beside`](Device::check_beside) finds that out).
    pub fn open_ahead(ordinal: usize) -> Result<Arc<Device>> {
        Device::make(ordinal, true)
    }

    fn make(ordinal: usize, ahead: bool) -> Result<Arc<Device>> {
        check_driver()?;
        let ordinal = ordinal as i32;
        let (device, capability) = look_up(ordinal)?;
        let architecture = compile::architecture_for(capability)?;
        let failed = |error| fault("open the GPU", error);
        let name = driver::device::get_name(device).map_err(failed)?;
        let card = Card::open(ordinal, device)?;
        let context = card.context();
        let before = driver::ctx::get_current().map_err(failed)?.filter(|before| *before != context);
        // SAFETY: the card keeps the context.
        unsafe { driver::ctx::set_current(context) }.map_err(failed)?;
        let calls = Arc::new(Calls::default());
        let _current = Current::new(before, &calls);
        let processors = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let (kind, priority) =
            (driver::stream::StreamKind::NonBlocking, if ahead { highest_priority()? } else { 0 });
        let stream = driver::stream::create_with_priority(kind, priority).map_err(failed)?;
        if ahead {
            card.begin_waiting();
        }
        Ok(Arc::new(Device {
            ordinal,
            stream,
            architecture,
            name,
            processors,
            calls,
            card,
            functions: Mutex::default(),
            ahead: AtomicBool::new(ahead),
        }))
    }

    /// The card's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many multiprocessors it has.
    pub(super) fn processors(&self) -> u32 {
        self.processors
    }

    /// The stream everything here runs on.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Makes the context current on this thread, as every call into the driver needs, as long as the answer lives. A
    /// thread that worked on another GPU gets that back: torch goes by it.
    pub(super) fn bind(&self) -> Result<Current> {
        let failed = |error| fault("use the GPU", error);
        let before = driver::ctx::get_current().map_err(failed)?;
        if before == Some(self.card.context()) {
            return Ok(Current::new(None, &self.calls));
        }
        // SAFETY: the context is retained as long as the device is open.
        unsafe { driver::ctx::set_current(self.card.context()) }.map_err(failed)?;
        Ok(Current::new(before, &self.calls))
    }

    /// What is known of calls into the driver.
    pub(super) fn calls(&self) -> &Arc<Calls> {
        &self.calls
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
        let _current = self.bind()?;
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
        let _current = self.bind()?;
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
        let function = self.card.function(program, name, &self.architecture)?;
        functions.insert((program.clone(), name), function);
        Ok(function)
    }

    /// Loads every kernel that gradients of such numbers may need, now and not in the midst of a step: to load one may
    /// wait for all of the GPU.
    pub fn load_all(&self, element: Element) -> Result<()> {
        let _current = self.bind()?;
        for program in Program::all_for(element) {
            for name in program.kernels() {
                self.function(&program, name)?;
            }
        }
        Ok(())
    }

    /// Gives something back, or leaves that to [`give_back`](Device::give_back) where a stream may wait for an engine.
    pub(super) fn free(&self, what: Left) {
        if let Ok(_current) = self.bind() {
            self.card.free(what);
        }
    }

    /// Gives back the memory that nobody holds any longer, also of other devices that were opened on this GPU. Waits for
    /// the work on all of the GPU if there is some, so no stream may be waiting for one of them.
    pub fn give_back(&self) {
        if let Ok(_current) = self.bind() {
            self.card.give_back();
        }
    }

    /// No stream waits for this one any longer, or ever will: with the last such device on the GPU, memory is given back as
    /// soon as nobody holds it.
    pub fn end_waiting(&self) {
        if self.ahead.swap(false, Ordering::SeqCst) && self.card.end_waiting() {
            self.give_back();
        }
    }

    /// Waits until the stream has done everything.
    pub fn wait(&self) -> Result<()> {
        let _current = self.bind()?;
        let number = self.calls.begin_wait();
        // SAFETY: the stream is there.
        let waited = unsafe { driver::stream::synchronize(self.stream) };
        self.calls.end_wait(number);
        waited.map_err(|error| fault("finish the work on the GPU", error))
    }

    /// The number of the next wait, after which everything begun before is done; for [`wait_since`](Device::wait_since).
    pub(super) fn next_wait(&self) -> u64 {
        self.calls.next_wait()
    }

    /// Waits, unless a wait of this number or a later one is over.
    pub(super) fn wait_since(&self, number: u64) -> Result<()> {
        if self.calls.is_over(number) { Ok(()) } else { self.wait() }
    }

    /// Bytes at an address become zero.
    pub(super) fn clear_at(&self, address: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.bind()?;
        // SAFETY: the caller owns as many bytes at the address.
        unsafe { driver::memset_d8_async(address, 0, bytes, self.stream) }
            .map_err(|error| fault("clear memory of the GPU", error))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Ok(_current) = self.bind() {
            // SAFETY: nothing is left that uses the stream, as everything that does holds this device.
            unsafe {
                let _ = driver::stream::synchronize(self.stream);
                let _ = driver::stream::destroy(self.stream);
            }
        }
        self.end_waiting();
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

/// The driver's error with what was to be done.
pub(super) fn fault(action: &str, error: DriverError) -> Error {
    Error::Device { action: action.to_owned(), reason: words(error) }
}

/// The CUDA version the driver supports, 12080 for 12.8.
pub(super) fn driver_version() -> Result<i32> {
    let mut version = 0;
    // SAFETY: points to an integer.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    asked.map_err(|error| fault("ask NVIDIA's driver for its version", error))?;
    Ok(version)
}

fn check_driver() -> Result<()> {
    let action = || "use a GPU".to_owned();
    // SAFETY: loads the driver's library, if there is one.
    if !unsafe { sys::is_culib_present() } {
        let reason = "NVIDIA's driver (libcuda) is not to be found on this machine".into();
        return Err(Error::Device { action: action(), reason });
    }
    driver::init().map_err(|error| fault("use a GPU: NVIDIA's driver does not start", error))?;
    let version = driver_version()?;
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
