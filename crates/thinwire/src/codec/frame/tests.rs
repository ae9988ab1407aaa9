use super::*;
use crate::codec::{IndexChoice, IndexForm, MEMORY_FACTOR, RangeFloat, Rounding, ValueForm};
use proptest::prelude::*;

const HEADER: Header = Header { step: 5, plan: 2, bucket: 1, elements: 1000 };

fn input<'a>(indices: &'a [u32], values: &'a [f32], form: &'a ValueForm) -> SectionInput<'a> {
    SectionInput {
        start: 0,
        universe: 1000,
        width: 1,
        indices: Some(indices),
        values,
        index: IndexChoice::Shortest,
        form,
    }
}

fn frame_of(header: Header, sections: &[SectionInput<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = FrameWriter::new(&mut bytes, header);
    for section in sections {
        let before = writer.section(section).unwrap();
        assert!(before.header_bytes <= 33);
    }
    let length = writer.finish().unwrap();
    assert_eq!(length, bytes.len());
    bytes
}

/// Puts the right length and checksum onto damaged bytes, so that what is behind them is reached.
fn mend(bytes: &mut [u8]) {
    if bytes.len() >= 41 {
        let (length, end) = (bytes.len() as u64, bytes.len() - 4);
        bytes[5..13].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Parses and decodes everything; what comes out must keep the contract, whatever went in.
fn decode_anything(bytes: &[u8]) -> bool {
    let Ok(frame) = Frame::parse(bytes) else { return false };
    assert_eq!(Frame::length(bytes), Ok(Some(bytes.len())));
    assert_eq!(frame.sections().len(), frame.sections().count());
    let mut all = true;
    for section in frame.sections() {
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        let result = section.decode(&mut indices, &mut values);
        assert!(4 * (indices.capacity() + values.capacity()) <= MEMORY_FACTOR * bytes.len());
        if result.is_err() {
            assert!(indices.is_empty() && values.is_empty());
            all = false;
            continue;
        }
        assert_eq!(values.len(), section.count() as usize * usize::from(section.width()));
        assert!(values.iter().all(|value| value.is_finite()));
        assert!(indices.is_sorted_by(|a, b| a < b));
        assert!(indices.iter().all(|&index| index < section.universe()));
        match section.index_form() {
            IndexForm::All => assert!(indices.is_empty() && section.count() == section.universe()),
            _ => assert_eq!(indices.len(), section.count() as usize),
        }
        if section.width() == 1 {
            assert!(section.start() + section.universe() <= frame.header().elements);
        }
    }
    all
}

#[test]
fn the_documented_frame() {
    let header = Header { step: 7, plan: 1, bucket: 2, elements: 300 };
    let same_sign = SectionInput {
        start: 0,
        universe: 24,
        width: 1,
        indices: Some(&[3, 5, 20]),
        values: &[1.0, 2.0, 6.0],
        index: IndexChoice::Shortest,
        form: &ValueForm::SameSign,
    };
    let range = ValueForm::Range(RangeFloat::new(8, 3, 0.125, -2.0, 2.0, Rounding::Truncate).unwrap());
    let complex = SectionInput {
        start: 200,
        universe: 2,
        width: 2,
        indices: None,
        values: &[0.256, 0.0, -2.0, 2.0],
        index: IndexChoice::Shortest,
        form: &range,
    };
    let bytes = frame_of(header, &[same_sign, complex]);
    #[rustfmt::skip]
    let expected = [
        0x74, 0x68, 0x77, 0x72, 0x01,
        0x4b, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x01, 0x00, 0x00, 0x00,
        0x02, 0x00, 0x00, 0x00,
        0x2c, 0x01, 0x00, 0x00,
        0x02, 0x00, 0x00, 0x00,
        // section 1
        0x00, 0x18, 0x12, 0x03, 0x03,
        0x02, 0x23, 0x27,
        0x00, 0x00, 0x40, 0x40,
        // section 2
        0xc8, 0x01, 0x02, 0x2c,
        0x08, 0x03, 0x00, 0x00, 0x00, 0x3e, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x00, 0x40,
        0x09, 0x00, 0x42, 0x21,
        // checksum
        0x58, 0x98, 0x89, 0xe5,
    ];
    assert!(bytes == expected, "{bytes:02x?}");
    assert!(decode_anything(&bytes));
}

#[test]
fn a_section_header_of_a_layer_is_short() {
    // A layer of 2,359,296 elements somewhere in a bucket of 25.6 million, density 0.1 %.
    let header = Header { step: 1 << 40, plan: 1, bucket: 0, elements: 25_557_032 };
    let indices: Vec<u32> = (0..2359).map(|i| 1000 * i).collect();
    let mut bytes = Vec::new();
    let mut writer = FrameWriter::new(&mut bytes, header);
    for form in [ValueForm::F32, ValueForm::SameSign] {
        let values = vec![1.0; indices.len()];
        let size = writer
            .section(&SectionInput {
                start: 20_000_000,
                universe: 2_359_296,
                ..input(&indices, &values, &form)
            })
            .unwrap();
        assert_eq!(size.header_bytes, 13);
    }
}

#[test]
fn sizes_are_those_on_the_wire() {
    let form = ValueForm::F16;
    let mut bytes = vec![1, 2, 3];
    let mut writer = FrameWriter::new(&mut bytes, HEADER);
    let size = writer.section(&input(&[1, 500], &[1e9, 1.0], &form)).unwrap();
    assert_eq!((size.index_form, size.clipped, size.value_bytes), (IndexForm::Delta, 1, 4));
    let length = writer.finish().unwrap();
    assert_eq!(length, 41 + size.header_bytes + size.index_bytes + size.value_bytes);
    assert_eq!(bytes.len(), 3 + length, "it appends");
    let frame = Frame::parse(&bytes[3..]).unwrap();
    assert_eq!(frame.header(), &HEADER);
    let section = frame.sections().next().unwrap();
    assert_eq!((section.start(), section.universe(), section.count()), (0, 1000, 2));
    assert_eq!((section.index_bytes().len(), section.value_bytes().len()), (size.index_bytes, 4));
    assert_eq!(section.value_form(), &form);
}

#[test]
fn a_full_same_sign_section_keeps_its_indices() {
    let all: Vec<u32> = (0..1000).collect();
    let bytes = frame_of(HEADER, &[input(&all, &vec![-1.0; 1000], &ValueForm::SameSign)]);
    let section = Frame::parse(&bytes).unwrap().sections().next().unwrap();
    assert_eq!(section.index_form(), IndexForm::Bitmap);
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    section.decode(&mut indices, &mut values).unwrap();
    assert_eq!(indices, all);
    assert_eq!(values, [-1.0; 1000]);
    // The worst case of the memory bound.
    let taken = 4 * (indices.capacity() + values.capacity());
    assert!(taken <= MEMORY_FACTOR * bytes.len());
    assert!(taken > MEMORY_FACTOR / 2 * bytes.len(), "the stated factor is not far from the truth");
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let nan = [f32::NAN];
    let good = input(&[3], &[1.0], &ValueForm::F32);
    let bad = [
        SectionInput { width: 0, ..good },
        SectionInput { width: 3, ..good },
        SectionInput { start: 1, ..good },
        SectionInput { universe: 1001, ..good },
        SectionInput { start: u32::MAX, universe: u32::MAX, width: 2, values: &[1.0, 2.0], ..good },
        SectionInput { indices: Some(&[1000]), ..good },
        SectionInput { indices: Some(&[3, 3]), values: &[1.0, 1.0], ..good },
        SectionInput { values: &[1.0, 2.0], ..good },
        SectionInput { values: &[], ..good },
        SectionInput { indices: None, ..good },
        SectionInput { values: &nan, ..good },
        SectionInput { index: IndexChoice::Fixed(IndexForm::All), ..good },
        SectionInput { width: 2, values: &[1.0, 2.0], form: &ValueForm::SameSign, ..good },
        SectionInput { universe: 1, indices: None, form: &ValueForm::SameSign, ..good },
        SectionInput { indices: Some(&[1, 2]), values: &[1.0, -2.0], form: &ValueForm::SameSign, ..good },
    ];
    for bad in &bad {
        let mut bytes = vec![9; 5];
        let mut writer = FrameWriter::new(&mut bytes, HEADER);
        writer.section(&good).unwrap();
        writer.section(bad).unwrap_err();
        drop(writer);
        assert_eq!(bytes, [9; 5]);
        // Whoever goes on after the error has a frame without that section.
        let mut writer = FrameWriter::new(&mut bytes, HEADER);
        writer.section(&good).unwrap();
        writer.section(bad).unwrap_err();
        writer.finish().unwrap();
        assert_eq!(bytes[5..], frame_of(HEADER, &[good]));
    }
}

#[test]
fn every_single_damage_is_found() {
    let bytes = frame_of(HEADER, &[input(&[1, 5, 999], &[1.0, 2.0, 3.0], &ValueForm::F16)]);
    for position in 0..bytes.len() {
        assert!(Frame::parse(&bytes[..position]).is_err());
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            assert!(Frame::parse(&damaged).is_err(), "bit {bit} of byte {position}");
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(Frame::parse(&longer).is_err());
    assert!(Frame::parse(&bytes).is_ok());
}

#[test]
fn hostile_headers_behind_a_right_checksum() {
    let refuse = |section: &[u8], what: &str| {
        let mut bytes = frame_of(HEADER, &[]);
        bytes[33] = 1;
        bytes.truncate(37);
        bytes.extend_from_slice(section);
        bytes.extend_from_slice(&[0; 4]);
        mend(&mut bytes);
        assert!(!decode_anything(&bytes), "{what}");
    };
    refuse(&[], "no section");
    refuse(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x10], "all, same-sign: billions of values from nothing");
    refuse(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x20], "complex f32 values that are not there");
    refuse(&[0, 0xe8, 0x07, 0x00], "all 1000 values missing");
    refuse(&[0, 0xe9, 0x07, 0x01, 0, 0], "universe beyond the bucket");
    refuse(&[1, 0xe8, 0x07, 0x01, 0, 0], "end beyond the bucket");
    refuse(&[0x80, 0x00, 10, 0x01, 0, 0], "over-long start");
    refuse(&[0, 10, 0x01, 0, 0, 0], "a byte too many");
    refuse(&[0, 10, 0x14, 0, 0], "value form 5");
    refuse(&[0, 10, 0x41, 0, 0], "reserved bit");
    refuse(&[0, 10, 0x81, 0, 0], "reserved bit");
    refuse(&[0, 10, 0x01, 11, 44], "more coordinates than the universe has");
    refuse(&[0, 10, 0x02, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 0, 1], "count beyond its bytes");
    refuse(&[0, 10, 0x31, 0, 0], "complex same-sign");
    refuse(&[0, 10, 0x0d, 8, 3, 0, 0, 0, 0x3e, 0, 0, 0, 0xc0, 0, 0, 0, 0x40], "range without a count");
    refuse(&[0, 10, 0x0d, 8, 3, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0x40, 0, 0], "eps zero");
    refuse(&[0, 10, 0x0d, 8, 3, 0, 0, 0, 0x3e, 0, 0, 0x80, 0xff, 0, 0, 0, 0x40, 0, 0], "min minus infinity");
    refuse(&[0, 8, 0x03, 1, 1, 0x02, 0, 0, 0xc0, 0x7f], "NaN");
    refuse(&[0, 8, 0x03, 1, 1, 0x06, 0, 0, 0x80, 0x3f], "two ones for one coordinate");
}

#[test]
fn random_strings_never_panic() {
    let mut state = 0x1234_5678_9abc_def0u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut reached = 0;
    for round in 0..200_000 {
        let length = (next() % 80) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| next() as u8).collect();
        // Half of them get behind magic, version and checksum, with few sections and small numbers in them.
        if round % 2 == 0 && length >= 41 {
            bytes[..5].copy_from_slice(b"thwr\x01");
            bytes[33..37].copy_from_slice(&((next() % 3) as u32).to_le_bytes());
            bytes[37..length - 4].iter_mut().for_each(|byte| *byte >>= next() % 8);
            mend(&mut bytes);
        }
        reached += usize::from(decode_anything(&bytes));
    }
    assert!(reached > 0);
}

fn any_form() -> impl Strategy<Value = ValueForm> {
    let range =
        (2u8..=16, 1u8..=16, any::<bool>(), 0.001f32..1000.0).prop_map(|(bits, mantissa, nearest, max)| {
            let rounding = if nearest { Rounding::Nearest } else { Rounding::Truncate };
            ValueForm::Range(RangeFloat::tuned(bits, mantissa.min(bits), max, rounding).unwrap())
        });
    prop_oneof![
        Just(ValueForm::F32),
        Just(ValueForm::F16),
        Just(ValueForm::Bf16),
        Just(ValueForm::SameSign),
        range
    ]
}

/// A section as owned data: start, sorted indices, slack above the last one, width, choice, form.
type Owned = (u32, Vec<u32>, u32, u8, IndexChoice, ValueForm);

fn any_section() -> impl Strategy<Value = Owned> {
    let indices = (prop::collection::btree_set(any::<u32>(), 0..60), 0u32..32).prop_map(|(set, shift)| {
        let mut indices: Vec<u32> = set.into_iter().map(|index| (index >> shift).min(100_000_000)).collect();
        indices.dedup();
        indices
    });
    // A bitmap only where it is small: the universe may be large.
    let choice = prop_oneof![
        Just(IndexChoice::Shortest),
        Just(IndexChoice::Fixed(IndexForm::List)),
        Just(IndexChoice::Fixed(IndexForm::Delta)),
    ];
    (0u32..1_000_000, indices, 0u32..100, 1u8..=2, choice, any_form())
}

fn build(sections: &[Owned]) -> (Vec<u8>, Vec<Vec<f32>>) {
    let header = Header { step: 3, plan: 1, bucket: 9, elements: u32::MAX };
    let mut bytes = Vec::new();
    let mut writer = FrameWriter::new(&mut bytes, header);
    let mut all_values = Vec::new();
    for (start, indices, slack, width, choice, form) in sections {
        let width = if *form == ValueForm::SameSign { 1 } else { *width };
        let value = |i| if *form == ValueForm::SameSign { 0.5 } else { (i as f32 - 20.0) / 8.0 };
        let values: Vec<f32> = (0..indices.len() * usize::from(width)).map(value).collect();
        let section = SectionInput {
            start: *start,
            universe: indices.last().map_or(0, |last| last + 1) + slack,
            width,
            indices: Some(indices),
            values: &values,
            index: *choice,
            form,
        };
        writer.section(&section).unwrap();
        all_values.push(values);
    }
    writer.finish().unwrap();
    (bytes, all_values)
}

proptest! {
    #[test]
    fn frames_survive(sections in prop::collection::vec(any_section(), 0..6)) {
        let (bytes, all_values) = build(&sections);
        prop_assert!(decode_anything(&bytes));
        let frame = Frame::parse(&bytes).unwrap();
        prop_assert_eq!(frame.sections().len(), sections.len());
        let (mut indices, mut values) = (vec![1], vec![1.0]);
        for ((section, owned), sent) in frame.sections().zip(&sections).zip(&all_values) {
            section.decode(&mut indices, &mut values).unwrap();
            prop_assert_eq!(section.start(), owned.0);
            prop_assert_eq!(section.value_form(), &owned.5);
            if section.index_form() == IndexForm::All {
                prop_assert!(owned.1.iter().copied().eq(0..section.universe()));
            } else {
                prop_assert_eq!(&indices, &owned.1);
            }
            prop_assert_eq!(values.len(), sent.len());
            match owned.5 {
                ValueForm::Range(range) => {
                    for (value, sent) in values.iter().zip(sent) {
                        prop_assert_eq!(*value, range.decode(range.encode(*sent)).unwrap());
                    }
                }
                _ => prop_assert_eq!(&values, sent),
            }
        }
    }

    #[test]
    fn mutations_keep_the_contract(
        sections in prop::collection::vec(any_section(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(), keep_length in any::<bool>(),
    ) {
        let (mut bytes, _) = build(&sections);
        for (position, byte) in damage {
            let position = position.index(bytes.len());
            bytes[position] = byte;
        }
        if !keep_length { bytes.truncate(cut.index(bytes.len())); }
        decode_anything(&bytes);
        mend(&mut bytes);
        decode_anything(&bytes);
    }
}
