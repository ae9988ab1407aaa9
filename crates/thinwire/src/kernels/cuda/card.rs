//! A GPU as all engines of a process share it: the context, the kernels, and memory that waits to be given back.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::cufft;
use cudarc::driver::{result as driver, sys};

use super::compile::Program;
use super::device::fault;
use crate::Result;

/// The GPUs that are in use in this process, by number.
static CARDS: Mutex<Vec<(i32, Weak<Card>)>> = Mutex::new(Vec::new());

/// A GPU. Kernels are loaded once for all who work on it: to load them again for each takes longer than most of their
/// work.
#[derive(Debug)]
pub(super) struct Card {
    device: sys::CUdevice,
    context: sys::CUcontext,
    modules: Mutex<HashMap<Program, Module>>,
    waited_for: Mutex<WaitedFor>,
}

/// What is done for the sake of streams that wait for an engine. To give memory back waits for all of the GPU, also for
/// such a stream; and as long as that lasts, no engine gets into the driver to do what the stream waits for.
#[derive(Debug, Default)]
struct WaitedFor {
    /// How many engines streams may wait for.
    engines: usize,
    /// To be given back when none does.
    left: Vec<Left>,
}

/// What nobody holds any longer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Left {
    /// Memory of the GPU, by its address.
    OnDevice(u64),
    /// Pinned memory, by its address.
    OnHost(usize),
    /// A plan of cuFFT's, which has memory of its own.
    Plan(cufft::sys::cufftHandle),
}

/// The kernels of a program.
#[derive(Debug, Clone, Copy)]
struct Module(sys::CUmodule);

/// A kernel that was loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function(pub sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread; they are valid as long as their context is retained, which
// `Card` does.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Send for Card {}
// SAFETY: as above; what changes has a lock of its own.
unsafe impl Sync for Card {}

impl Card {
    /// The GPU of this number.
    pub fn open(ordinal: i32, device: sys::CUdevice) -> Result<Arc<Card>> {
        let mut cards = lock(&CARDS);
        cards.retain(|(_, card)| card.strong_count() > 0);
        let found = cards.iter().find(|(number, _)| *number == ordinal).and_then(|(_, card)| card.upgrade());
        if let Some(card) = found {
            return Ok(card);
        }
        // SAFETY: the device exists.
        let context =
            unsafe { driver::primary_ctx::retain(device) }.map_err(|error| fault("open the GPU", error))?;
        let card =
            Arc::new(Card { device, context, modules: Mutex::default(), waited_for: Mutex::default() });
        cards.push((ordinal, Arc::downgrade(&card)));
        Ok(card)
    }

    pub fn context(&self) -> sys::CUcontext {
        self.context
    }

    /// A kernel, loaded if it was not. The context must be current.
    pub fn function(&self, program: &Program, name: &str, architecture: &str) -> Result<Function> {
        let module = self.module(program, architecture)?;
        let symbol = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded.
        unsafe { driver::module::get_function(module.0, symbol) }
            .map(Function)
            .map_err(|error| fault(&format!("find the kernel {name} of {program}"), error))
    }

    fn module(&self, program: &Program, architecture: &str) -> Result<Module> {
        let mut modules = lock(&self.modules);
        if let Some(module) = modules.get(program) {
            return Ok(*module);
        }
        let load = |code: Vec<u8>| {
            // SAFETY: the code is a whole cubin, or PTX with its final zero. It is unloaded when this is dropped.
            unsafe { driver::module::load_data(code.as_ptr().cast()) }
                .map_err(|error| fault(&format!("load the kernels {program}"), error))
        };
        // What was kept may be damaged, or from another driver: then it is made anew.
        let loaded = program.compile_cached(architecture, true).and_then(load);
        let module = match loaded {
            Ok(module) => Module(module),
            Err(_) => Module(load(program.compile_cached(architecture, false)?)?),
        };
        modules.insert(program.clone(), module);
        Ok(module)
    }

    /// From now on streams may wait for one engine more, until [`end_waiting`](Card::end_waiting).
    pub fn begin_waiting(&self) {
        lock(&self.waited_for).engines += 1;
    }

    /// No stream waits for one of the engines any longer; whether it was the last.
    pub fn end_waiting(&self) -> bool {
        let mut waited_for = lock(&self.waited_for);
        waited_for.engines -= 1;
        waited_for.engines == 0
    }

    /// Gives something back, or leaves that to [`give_back`](Card::give_back) where streams may wait for an engine. The
    /// context must be current.
    pub fn free(&self, what: Left) {
        let mut waited_for = lock(&self.waited_for);
        if waited_for.engines > 0 {
            waited_for.left.push(what);
            return;
        }
        drop(waited_for);
        free_all(vec![what]);
    }

    /// Gives back what nobody holds any longer. Waits for the work on all of the GPU if there is some, so no stream may be
    /// waiting for an engine. The context must be current.
    pub fn give_back(&self) {
        let left = std::mem::take(&mut lock(&self.waited_for).left);
        free_all(left);
    }
}

fn free_all(left: Vec<Left>) {
    for what in left {
        // SAFETY: nobody else has it; freeing waits for the work that uses the memory.
        unsafe {
            match what {
                Left::OnDevice(address) => drop(driver::free_sync(address)),
                Left::OnHost(address) => drop(driver::free_host(address as *mut c_void)),
                Left::Plan(handle) => drop(cufft::result::destroy(handle)),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Card {
    fn drop(&mut self) {
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        let before = driver::ctx::get_current().ok().flatten();
        // SAFETY: nothing is left that uses the kernels, as every device holds this; the context is retained until the end.
        unsafe {
            if driver::ctx::set_current(self.context).is_ok() {
                for module in modules.values() {
                    let _ = driver::module::unload(module.0);
                }
            }
            let _ = driver::ctx::set_current(before.unwrap_or(std::ptr::null_mut()));
            let _ = driver::primary_ctx::release(self.device);
        }
    }
}
