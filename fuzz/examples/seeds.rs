//! Writes a few valid frames of every form into a folder, for the fuzzer to begin with.

use std::path::PathBuf;
use thinwire::Result;
use thinwire::codec::{
    FrameWriter, Header, IndexChoice, IndexForm, RangeFloat, Rounding, SectionInput, ValueForm,
};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: seeds FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    let forms = [
        ValueForm::F32,
        ValueForm::F16,
        ValueForm::Bf16,
        ValueForm::Range(RangeFloat::tuned(10, 5, 1.0, Rounding::Truncate)?),
        ValueForm::Range(RangeFloat::tuned(3, 1, 1e-38, Rounding::Nearest)?),
        ValueForm::SameSign,
    ];
    let sets: [&[u32]; 6] =
        [&[], &[0], &[0, 1, 2, 3, 4, 5, 6, 7, 8], &[3, 5, 20, 70], &[1, 63, 64, 65, 127], &[9, 90, 899]];
    // A long bucket, so that universes far beyond the bytes of the frame are in reach.
    let header = Header { step: 1, plan: 2, bucket: 3, elements: 1 << 30 };
    let mut written = 0;
    for form in &forms {
        for index in [IndexForm::All, IndexForm::List, IndexForm::Delta, IndexForm::Bitmap] {
            for width in [1, 2] {
                if *form == ValueForm::SameSign && (index == IndexForm::All || width == 2) {
                    continue;
                }
                // All sets in one frame, and each in a frame of its own: short inputs are mutated best.
                for chosen in std::iter::once(&sets[..]).chain(sets.chunks(1)) {
                    let bytes = frame(header, chosen, index, width, form)?;
                    std::fs::write(folder.join(format!("{written:03}")), &bytes)?;
                    written += 1;
                }
            }
        }
    }
    println!("{written} frames in {}", folder.display());
    Ok(())
}

/// One frame with a section for each set of indices.
fn frame(header: Header, sets: &[&[u32]], index: IndexForm, width: u8, form: &ValueForm) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = FrameWriter::new(&mut bytes, header);
    for (number, set) in sets.iter().enumerate() {
        let all = index == IndexForm::All;
        let universe = if all { set.len() as u32 } else { set.last().map_or(0, |last| last + 1) + 3 };
        let value = |i: usize| 0.5 + i as f32 / 64.0;
        let values: Vec<f32> = (0..set.len() * usize::from(width)).map(value).collect();
        writer.section(&SectionInput {
            start: 150 * number as u32,
            universe,
            width,
            indices: (!all).then_some(set),
            values: &values,
            index: IndexChoice::Fixed(index),
            form,
        })?;
    }
    writer.finish()?;
    Ok(bytes)
}
