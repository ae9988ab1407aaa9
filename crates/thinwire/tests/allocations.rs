//! After the first steps, compressing and decompressing allocate nothing.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use thinwire::kernels::Cpu;
use thinwire::memory::Progress;
use thinwire::method;
use thinwire::pipeline::{Aggregator, Compressor, Input};
use thinwire::{Bucket, Error};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One step's gradient: a different one each step, of the same distribution.
fn fill(gradient: &mut [f32], step: u64) {
    let mut state = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for g in gradient {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (a, b) = ((state & 0xffff) as f32, (state >> 16 & 0xffff) as f32);
        *g = (a - b) / 65536.0;
    }
}

// One test in this file: the counter sees the allocations of all threads of the process.
#[test]
fn a_step_allocates_nothing_after_warm_up() -> Result<(), Error> {
    let layers = [("a", vec![300, 1000]), ("a.bias", vec![300]), ("b", vec![100, 900]), ("c", vec![20_000])];
    let bucket = Bucket::new(0, layers)?;
    let weights = vec![0.5; bucket.len()];
    let mut gradient = vec![0.0; bucket.len()];
    let mut mean = vec![0.0; bucket.len()];
    let specs = ["dense", "topk", "topk:momentum=0.9,values=f16,scope=layer", "gaussian-k:density=0.01"]
        .into_iter()
        .chain(["redsync:density=0.01", "redsync:density=0.01,quantize=true", "fft", "iwp", "ar-topk", "dgc"])
        .chain(["mstopk", "random-k", "quantized"]);
    let mut cpu = Cpu::new(1);
    for spec in specs {
        let mut compressor = Compressor::new(method::parse(spec)?, bucket.clone())?;
        let mut aggregator = Aggregator::new(compressor.recipe(), bucket.clone())?;
        let mut frame = Vec::new();
        let mut allocations = Vec::new();
        for step in 0..60 {
            fill(&mut gradient, step);
            let progress = Progress { step, epoch: f64::INFINITY, ..Progress::default() };
            let input = Input { weights: Some(&weights), progress, ..Input::new(&gradient) };
            let region = Region::new(&INSTRUMENTED_SYSTEM);
            frame.clear();
            compressor.compress(&mut cpu, &input, &mut frame)?;
            aggregator.sum(&mut cpu, [&frame[..]], None, 1.0, &mut mean)?;
            let change = region.change();
            allocations.push(change.allocations + change.reallocations);
        }
        let late: usize = allocations[30..].iter().sum();
        assert_eq!(late, 0, "{spec}: {allocations:?}");
    }
    Ok(())
}
