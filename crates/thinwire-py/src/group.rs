//! torch.distributed as a group of the engine: calls that go back into Python.
//!
//! The Python side is `thinwire.torch._group.TorchGroup`. It gets addresses and lengths of memory that lives until the
//! call returns; every wait in it releases the GIL.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use thinwire::group::{Even, Precision, Sum};
use thinwire::kernels::cuda::Calls;
use thinwire::{Error, Result};

/// How many calls into Python are under way, over all groups.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// How many threads of the engine are in Python, or on their way in or out. One that is there when the interpreter ends
/// would take the process down.
#[pyfunction]
pub fn calls_under_way() -> usize {
    UNDER_WAY.load(Ordering::SeqCst)
}

/// For a forked child, which has none of the engine's threads: no call is under way.
#[pyfunction]
pub fn forget_calls() {
    UNDER_WAY.store(0, Ordering::SeqCst);
}

/// The ways into Python: a call lasts until the GIL is there.
static ENTRIES: LazyLock<Arc<Calls>> = LazyLock::new(Arc::default);

/// For those who want to know that somebody keeps the GIL.
pub fn interpreter() -> Arc<Calls> {
    ENTRIES.clone()
}

/// Runs `work` in Python, and counts that.
fn in_python<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    UNDER_WAY.fetch_add(1, Ordering::SeqCst);
    ENTRIES.begin();
    let done = Python::attach(|py| {
        ENTRIES.end();
        work(py)
    });
    UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    done
}

/// The ranks of a torch.distributed process group.
#[derive(Debug)]
pub struct Torch {
    object: Py<PyAny>,
    rank: usize,
    size: usize,
    /// A call has failed. The Python side has told the others itself.
    failed: bool,
}

impl Torch {
    /// The engine over a `TorchGroup`.
    pub fn new(object: Bound<'_, PyAny>) -> PyResult<Torch> {
        let (rank, size) = (object.getattr("rank")?.extract()?, object.getattr("size")?.extract()?);
        Ok(Torch { object: object.unbind(), rank, size, failed: false })
    }

    fn call<'py, A>(&mut self, py: Python<'py>, name: &str, arguments: A) -> Result<()>
    where
        A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
    {
        let arguments = arguments.into_pyobject(py);
        let called = arguments.and_then(|arguments| self.object.bind(py).call_method1(name, arguments));
        called.map(drop).map_err(|error| {
            self.failed = true;
            Error::GroupLost { reason: error.value(py).to_string() }
        })
    }
}

impl Even for Torch {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&mut self, values: Sum<'_>) -> Result<()> {
        let name = match values.precision() {
            Precision::F32 => "float32",
            Precision::F16 => "float16",
            Precision::Bf16 => "bfloat16",
        };
        let bytes = values.into_bytes();
        let arguments = (bytes.as_mut_ptr() as usize, bytes.len(), name);
        in_python(|py| self.call(py, "all_reduce", arguments))
    }

    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let arguments = (mine.as_ptr() as usize, mine.len(), all.as_mut_ptr() as usize);
        in_python(|py| self.call(py, "all_gather", arguments))
    }

    fn all_to_all(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let arguments = (mine.as_ptr() as usize, mine.len(), all.as_mut_ptr() as usize);
        in_python(|py| self.call(py, "all_to_all", arguments))
    }

    fn broadcast(&mut self, root: usize, message: &mut [u8]) -> Result<()> {
        let arguments = (root, message.as_mut_ptr() as usize, message.len());
        in_python(|py| self.call(py, "broadcast", arguments))
    }

    fn abandon(&mut self, reason: &str) {
        if self.failed {
            return;
        }
        // What can't be told the others they find out by their timeout.
        let _ = in_python(|py| self.call(py, "abandon", (reason.to_owned(),)));
    }
}
