//! From source to machine code, at run time.
//!
//! The kernels are compiled by NVRTC on the machine they run on, and kept in a folder for the next start. So a build
//! needs no CUDA, one package serves every card from compute capability 7.5 on, a method's walk is compiled only where
//! it is used, and what runs is the source that can be read here. NVRTC comes with PyTorch and with the CUDA toolkit.

use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;

use cudarc::nvrtc::{result as nvrtc, sys};
use sha2::{Digest, Sha256};

use super::cache::{Cache, Hash};
use super::memory::Element;
use crate::{Error, Result};

/// The oldest cards NVRTC 13 compiles for.
pub(super) const OLDEST: u32 = 75;

/// A set of kernels to be compiled: what all share, what is its own, and the switches that make one of its variants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    name: &'static str,
    defines: Vec<(&'static str, String)>,
}

/// What every program begins with.
const COMMON: &str = include_str!("source/common.cu");

/// The sources by name.
const SOURCES: &[(&str, &str)] = &[
    ("walk", include_str!("source/walk.cu")),
    ("survey", include_str!("source/survey.cu")),
    ("choose", include_str!("source/choose.cu")),
    ("vector", include_str!("source/vector.cu")),
    ("undo", include_str!("source/undo.cu")),
    ("index_write", include_str!("source/index_write.cu")),
    ("index_read", include_str!("source/index_read.cu")),
    ("value", include_str!("source/value.cu")),
    ("spectrum", include_str!("source/spectrum.cu")),
];

impl Program {
    /// A program without switches.
    pub(super) fn new(name: &'static str) -> Program {
        Program { name, defines: Vec::new() }
    }

    /// The same with a switch.
    pub(super) fn with(mut self, switch: &'static str, value: impl ToString) -> Program {
        self.defines.push((switch, value.to_string()));
        self
    }

    /// Every program there is, with every combination of switches the engine asks for.
    pub fn all() -> Vec<Program> {
        let plain = SOURCES.iter().map(|(name, _)| *name).filter(|name| !["walk", "undo"].contains(name));
        plain.map(Program::new).chain(super::job::variants()).collect()
    }

    /// Those that gradients of such numbers may need.
    pub(super) fn all_for(element: Element) -> Vec<Program> {
        let number = element.number().to_string();
        let mut all = Program::all();
        // Walks without an update look at 32-bit floats.
        let fits = |value: &str, looks: bool| value == number || (looks && value == "0");
        all.retain(|program| {
            let looks = program.defines.iter().any(|(switch, value)| *switch == "UPDATE" && value == "0");
            program.defines.iter().all(|(switch, value)| *switch != "GRADIENT" || fits(value, looks))
        });
        all
    }

    /// The names of its kernels, as they stand in its source.
    pub(super) fn kernels(&self) -> Vec<&'static str> {
        let own = SOURCES.iter().find(|(name, _)| *name == self.name).map_or("", |(_, source)| *source);
        let name = |rest: &'static str| {
            let rest = rest.trim_start();
            // `__launch_bounds__(THREADS)` comes before the name.
            let rest = if rest.starts_with("__launch_bounds__") {
                rest.split_once(')')?.1.trim_start()
            } else {
                rest
            };
            rest.split_once('(').map(|(name, _)| name)
        };
        own.split("extern \"C\" __global__ void").skip(1).filter_map(name).collect()
    }

    fn source(&self) -> String {
        let own = SOURCES.iter().find(|(name, _)| *name == self.name).map_or("", |(_, source)| source);
        format!("{COMMON}\n{own}")
    }

    fn options(&self, architecture: &str) -> Vec<String> {
        // Never fused: every device is to give the same bits.
        let fixed = ["--fmad=false", "--std=c++17", "--extra-device-vectorization"];
        let defines = self.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}"));
        let architecture = format!("--gpu-architecture={architecture}");
        fixed.iter().map(ToString::to_string).chain(defines).chain([architecture]).collect()
    }

    /// The machine code for an architecture such as `sm_90`, kept in the folder of earlier starts; with `kept`, from there
    /// if it is there.
    pub(super) fn compile_cached(&self, architecture: &str, kept: bool) -> Result<Vec<u8>> {
        self.compile_with(Cache::open().as_ref(), architecture, kept)
    }

    fn compile_with(&self, cache: Option<&Cache>, architecture: &str, kept: bool) -> Result<Vec<u8>> {
        let Some(cache) = cache else { return self.compile(architecture) };
        let key = self.key(architecture)?;
        let start: String = key[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}-{architecture}-{start}.cubin", self.name);
        if let Some(code) = kept.then(|| cache.load(&name, &key)).flatten() {
            return Ok(code);
        }
        let code = self.compile(architecture)?;
        cache.store(&name, &key, &code);
        Ok(code)
    }

    /// A digest of everything the code depends on.
    fn key(&self, architecture: &str) -> Result<Hash> {
        let described = format!("{:?}\n{:?}\n{}", version()?, self.options(architecture), self.source());
        Ok(Sha256::digest(described).into())
    }

    /// Compiles; needs no GPU. An architecture that begins with `compute_` gives PTX, for cards newer than NVRTC.
    pub fn compile(&self, architecture: &str) -> Result<Vec<u8>> {
        check_present()?;
        let failed = |reason: String| Error::Device {
            action: format!("compile the kernels {self} for {architecture}"),
            reason,
        };
        let source = CString::new(self.source()).map_err(|error| failed(error.to_string()))?;
        let name = CString::new(format!("{}.cu", self.name)).map_err(|error| failed(error.to_string()))?;
        let program =
            nvrtc::create_program(&source, Some(&name)).map_err(|error| failed(error.to_string()))?;
        // SAFETY: `program` was made above and is destroyed below.
        let compiled = unsafe { nvrtc::compile_program(program, &self.options(architecture)) };
        let code = match compiled {
            // SAFETY: the program was compiled.
            Ok(()) => unsafe { code_of(program, architecture) }.map_err(|error| failed(error.to_string())),
            Err(error) => {
                // SAFETY: the program was made, whether it compiled or not.
                let log = unsafe { nvrtc::get_program_log(program) }.unwrap_or_default();
                Err(failed(format!("{error}: {}", text(&log))))
            }
        };
        // SAFETY: nothing uses the program any longer.
        let _ = unsafe { nvrtc::destroy_program(program) };
        code
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name)?;
        self.defines.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// # Safety
/// `program` was compiled for `architecture`.
unsafe fn code_of(program: sys::nvrtcProgram, architecture: &str) -> Result<Vec<u8>, nvrtc::NvrtcError> {
    if architecture.starts_with("compute_") {
        // SAFETY: as the caller promises.
        return unsafe { nvrtc::get_ptx(program) }
            .map(|ptx| ptx.into_iter().map(|byte| byte as u8).collect());
    }
    let mut size = 0;
    // SAFETY: as the caller promises; the vector has the size NVRTC asks for.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result()?;
        let mut code = vec![0u8; size];
        sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast::<c_char>()).result()?;
        Ok(code)
    }
}

fn text(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Fails with the way out if NVRTC is not there.
pub(super) fn check_present() -> Result<()> {
    // SAFETY: loads a library that has no initialiser of its own to go wrong.
    if unsafe { sys::is_culib_present() } || load_toolkit("libnvrtc.so") {
        return Ok(());
    }
    Err(Error::Device {
        action: "compile kernels for the GPU".into(),
        reason: "NVRTC (libnvrtc) is not to be found; it comes with PyTorch for CUDA, with `pip install \
                 nvidia-cuda-nvrtc` and with the CUDA toolkit: put its folder into LD_LIBRARY_PATH"
            .into(),
    })
}

/// Loads a library of the CUDA toolkit from where toolkits are installed, for good: it is then found by its name.
pub(super) fn load_toolkit(name: &str) -> bool {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let mut places =
        homes.chain([PathBuf::from("/usr/local/cuda")]).map(|home| home.join("lib64").join(name));
    places.any(|file| {
        // SAFETY: as above.
        let loaded = unsafe { libloading::Library::new(&file) };
        loaded.map(std::mem::forget).is_ok()
    })
}

/// NVRTC's version.
fn version() -> Result<(i32, i32)> {
    check_present()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both point to an integer.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(|error| Error::Device {
        action: "ask NVRTC for its version".into(),
        reason: error.to_string(),
    })?;
    Ok((major, minor))
}

/// What to compile for on a card of this compute capability (90 for 9.0): its own machine code or, where NVRTC is
/// older than the card, PTX for the newest it knows.
pub(super) fn architecture_for(capability: u32) -> Result<String> {
    check_present()?;
    let failed = |error: nvrtc::NvrtcError| Error::Device {
        action: "ask NVRTC for the cards it knows".into(),
        reason: error.to_string(),
    };
    let mut count = 0;
    // SAFETY: points to an integer.
    unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result().map_err(failed)?;
    let mut known = vec![0; count as usize];
    // SAFETY: NVRTC writes as many integers as it has said.
    unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result().map_err(failed)?;
    let best = known.iter().map(|&known| known as u32).filter(|&known| known <= capability).max();
    match best {
        Some(best) if best == capability => Ok(format!("sm_{best}")),
        Some(best) => Ok(format!("compute_{best}")),
        None => Err(Error::Device {
            action: "compile kernels for the GPU".into(),
            reason: format!(
                "NVRTC {:?} knows no card as old as compute capability {}.{}",
                version()?,
                capability / 10,
                capability % 10
            ),
        }),
    }
}

/// The words of the driver for one of its errors.
pub(super) fn words(error: cudarc::driver::DriverError) -> String {
    let name = error.error_name().map(CStr::to_string_lossy).unwrap_or_default().into_owned();
    let meaning = error.error_string().map(CStr::to_string_lossy).unwrap_or_default().into_owned();
    format!("{name}: {meaning}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_of_every_program_are_found_in_its_source() {
        for program in Program::all() {
            let kernels = program.kernels();
            assert_eq!(
                kernels.len(),
                program.source().matches("__global__").count(),
                "{program}: {kernels:?}"
            );
            let plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            assert!(!kernels.is_empty() && kernels.iter().all(plain), "{program}: {kernels:?}");
        }
        assert!(Program::new("choose").kernels().contains(&"digits_of_all"));
    }

    #[test]
    fn gradients_need_their_own_walks_and_those_that_only_look() {
        let all: Vec<String> =
            Program::all_for(Element::Bf16).iter().map(|p| format!("{:?}", p.defines)).collect();
        let wanted = |gradient: u32, update: u32| {
            let text = format!("(\"GRADIENT\", \"{gradient}\"), (\"UPDATE\", \"{update}\")");
            all.iter().any(|defines| defines.contains(&text))
        };
        assert!(wanted(2, 1) && wanted(2, 0) && wanted(0, 0) && !wanted(0, 1) && !wanted(1, 1), "{all:?}");
    }

    /// Needs NVRTC, as `tests/cuda_programs.rs` does.
    #[test]
    fn kernels_are_kept_and_damaged_ones_compiled_anew() {
        if let Err(error) = check_present() {
            assert!(std::env::var_os("THINWIRE_NVRTC").is_none(), "{error}");
            eprintln!("not tested: {error}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        let program = Program::new("vector");
        let code = |kept| program.compile_with(Some(&cache), "sm_80", kept).unwrap();
        let first = code(true);
        let file = std::fs::read_dir(folder.path().join("cache")).unwrap().next().unwrap().unwrap().path();
        let good = std::fs::read(&file).unwrap();
        // The code that is kept is what is given: here it is that of another program.
        let other = Program::new("choose").compile("sm_80").unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        cache.store(name, &program.key("sm_80").unwrap(), &other);
        assert!(code(true) == other && code(false) == first);
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        for bad in [&bad[..], &good[..middle], b""] {
            std::fs::write(&file, bad).unwrap();
            assert!(code(true) == first);
            assert!(std::fs::read(&file).unwrap() == good, "the file is replaced");
        }
    }
}
