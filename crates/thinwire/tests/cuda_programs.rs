//! Every kernel compiles for the cards it is meant for, on machines without a GPU. Needs NVRTC, which `./test` installs;
//! without it the test says so and passes, unless `THINWIRE_NVRTC=1` says that it must be there.
#![cfg(feature = "cuda")]

use thinwire::kernels::cuda::Program;

#[test]
fn every_program_compiles() {
    for program in Program::all() {
        for architecture in ["sm_75", "sm_80", "sm_90"] {
            match program.compile(architecture) {
                Ok(code) => assert!(code.len() > 1000, "{program} for {architecture}: {} bytes", code.len()),
                Err(error)
                    if error.to_string().contains("libnvrtc")
                        && std::env::var_os("THINWIRE_NVRTC").is_none() =>
                {
                    eprintln!("not compiled: {error}");
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
