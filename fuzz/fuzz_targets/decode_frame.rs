//! Any bytes, as they are and with a right magic, length and checksum, must decode to something that keeps the
//! contract of the codec, or be refused.
//!
//! ```text
//! cargo run --manifest-path fuzz/Cargo.toml --example seeds -- fuzz/corpus/decode_frame
//! RUSTC_BOOTSTRAP=1 cargo fuzz run decode_frame -- -runs=12000000 -max_len=512
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use thinwire::codec::{
    Frame, FrameWriter, IndexChoice, IndexForm, MEMORY_FACTOR, Section, SectionInput, ValueForm,
};

/// Bytes of an empty frame: the fixed header and the checksum.
const EMPTY: usize = 41;

fuzz_target!(|data: &[u8]| {
    decode(data);
    if data.len() >= EMPTY {
        decode(&mended(data));
    }
});

/// The input with everything in front of the sections put right, so that their decoders are reached.
fn mended(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let (length, end) = (bytes.len() as u64, bytes.len() - 4);
    bytes[..5].copy_from_slice(b"thwr\x01");
    bytes[5..13].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) {
    let length = Frame::length(bytes);
    let Ok(frame) = Frame::parse(bytes) else { return };
    assert_eq!(length, Ok(Some(bytes.len())));
    for section in frame.sections() {
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        let result = section.decode(&mut indices, &mut values);
        assert!(4 * (indices.capacity() + values.capacity()) <= MEMORY_FACTOR * bytes.len());
        match result {
            Ok(()) => check(&frame, &section, &indices, &values),
            Err(_) => assert!(indices.is_empty() && values.is_empty()),
        }
    }
}

/// Everything the codec promises of a section that it accepts.
fn check(frame: &Frame<'_>, section: &Section<'_>, indices: &[u32], values: &[f32]) {
    let complete = section.index_form() == IndexForm::All;
    let count = if complete { section.universe() as usize } else { indices.len() };
    assert_eq!(section.count() as usize, count);
    assert_eq!(values.len(), count * usize::from(section.width()));
    assert!(indices.is_sorted_by(|a, b| a < b));
    assert!(indices.iter().all(|&index| index < section.universe()));
    assert!(values.iter().all(|value| value.is_finite()));
    if section.width() == 1 {
        assert!(
            section.start().checked_add(section.universe()).is_some_and(|end| end <= frame.header().elements)
        );
    }
    if let ValueForm::Range(range) = section.value_form() {
        assert!(values.iter().all(|value| (range.min()..=range.max()).contains(value)));
    }

    // What was accepted can be sent on: written again in the same forms, it decodes to the same.
    let mut bytes = Vec::new();
    let mut writer = FrameWriter::new(&mut bytes, *frame.header());
    let input = SectionInput {
        start: section.start(),
        universe: section.universe(),
        width: section.width(),
        indices: (!complete).then_some(indices),
        values,
        index: IndexChoice::Fixed(section.index_form()),
        form: section.value_form(),
    };
    let size = writer.section(&input).expect("an accepted section can be written");
    assert_eq!(size.clipped, 0);
    // A hostile sender may choose a bad Rice parameter; ours is at least as short, but for the rounding to bytes.
    assert!(size.index_bytes <= section.index_bytes().len() + 1);
    writer.finish().expect("a frame of one section");
    let (mut indices_again, mut values_again) = (Vec::new(), Vec::new());
    let again = Frame::parse(&bytes).expect("our own frame").sections().next().expect("its section");
    again.decode(&mut indices_again, &mut values_again).expect("our own section");
    assert_eq!(indices, indices_again);
    // The mean of many equal values may be off by a rounding; all else is exact.
    if *section.value_form() != ValueForm::SameSign {
        assert!(values.iter().zip(&values_again).all(|(a, b)| a == b));
    }
}
