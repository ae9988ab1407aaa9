use super::*;
use proptest::prelude::*;

const WRITTEN: [IndexForm; 3] = [IndexForm::List, IndexForm::Delta, IndexForm::Bitmap];

/// `count` distinct positions below `universe`, close to uniform, the same every time.
fn scattered(count: usize, universe: u32, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let mut set = std::collections::BTreeSet::new();
    while set.len() < count {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        set.insert((((mixed >> 32) * u64::from(universe)) >> 32) as u32);
    }
    set.into_iter().collect()
}

fn round_trip(form: IndexForm, indices: &[u32], universe: u32) -> usize {
    let (mut bytes, mut back) = (vec![0xab], vec![99; 3]);
    encode(form, indices, universe, &mut bytes).unwrap();
    assert_eq!(bytes[0], 0xab, "it appends");
    decode(form, &bytes[1..], indices.len(), universe, &mut back).unwrap();
    assert!(back == indices, "{form} of {} in {universe}", indices.len());
    bytes.len() - 1
}

fn all_round_trips(indices: &[u32], universe: u32) {
    let (form, shortest_bytes) = shortest(indices, universe).unwrap();
    // A bitmap of a huge universe takes half a gigabyte; its length is known without writing it.
    let forms = WRITTEN.iter().filter(|&&form| form != IndexForm::Bitmap || universe < 1 << 24);
    let lengths: Vec<_> = forms.map(|&form| (form, round_trip(form, indices, universe))).collect();
    for &(other, bytes) in &lengths {
        assert!(shortest_bytes <= bytes, "{form} {shortest_bytes} against {other} {bytes}");
    }
    if form == IndexForm::All {
        assert_eq!((indices.len() as u32, shortest_bytes), (universe, 0));
    } else if let Some(&(_, bytes)) = lengths.iter().find(|&&(other, _)| other == form) {
        assert_eq!(shortest_bytes, bytes);
    }
}

#[test]
fn hostile_sets_survive() {
    for universe in [0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 100, 10_000, 100_003] {
        all_round_trips(&(0..universe).collect::<Vec<_>>(), universe);
        all_round_trips(&[], universe);
        all_round_trips(&(0..universe).step_by(2).collect::<Vec<_>>(), universe);
        all_round_trips(&(1..universe).step_by(2).collect::<Vec<_>>(), universe);
        if universe > 0 {
            all_round_trips(&[0], universe);
            all_round_trips(&[universe - 1], universe);
            all_round_trips(&[0, universe - 1][..universe.min(2) as usize], universe.max(2));
        }
    }
    // Positions that a 32-bit float can't hold.
    all_round_trips(&[16_777_217, 102_760_447], 102_760_448);
    all_round_trips(&[0, 16_777_216, 16_777_217, 102_760_447, u32::MAX - 1], u32::MAX);
    all_round_trips(&[u32::MAX - 1], u32::MAX);
    all_round_trips(&(u32::MAX - 1000..u32::MAX).collect::<Vec<_>>(), u32::MAX);
    all_round_trips(&scattered(10_000, u32::MAX, 5), u32::MAX);
}

#[test]
fn sizes_and_densities() {
    for count in [1, 2, 3, 100, 10_000] {
        for factor in [1.0, 1.01, 1.5, 2.0, 10.0, 100.0, 1000.0] {
            let universe = (f64::from(count) * factor) as u32;
            all_round_trips(&scattered(count as usize, universe, 1 + u64::from(universe)), universe);
        }
    }
}

#[test]
fn delta_is_near_the_entropy() {
    // The entropy of a uniform choice of k of n positions, and 2 % more.
    for (count, universe) in [(25_557, 25_557_032), (100_000, 10_000_000), (1000, 10_000_000)] {
        let indices = scattered(count, universe, 3);
        let density = count as f64 / f64::from(universe);
        let entropy = -(density.log2() + (1.0 - density) / density * (1.0 - density).log2());
        let bits = 8.0 * round_trip(IndexForm::Delta, &indices, universe) as f64 / count as f64;
        println!("density {density:.5}: {bits:.3} bits an index, entropy {entropy:.3}");
        assert!(bits < 1.02 * entropy, "{bits} against {entropy}");
        assert_eq!(shortest(&indices, universe).unwrap().0, IndexForm::Delta);
    }
}

#[test]
fn the_documented_bytes() {
    let mut bytes = Vec::new();
    let mut check = |form, expected: &[u8]| {
        bytes.clear();
        encode(form, &[3, 5, 20], 24, &mut bytes).unwrap();
        assert_eq!(bytes, expected, "{form}");
    };
    check(IndexForm::List, &[0x03, 0, 0, 0, 0x05, 0, 0, 0, 0x14, 0, 0, 0]);
    check(IndexForm::Delta, &[0x02, 0x23, 0x27]);
    check(IndexForm::Bitmap, &[0x28, 0x00, 0x10]);
    assert_eq!(shortest(&[3, 5, 20], 24).unwrap(), (IndexForm::Delta, 3));
}

#[test]
fn bad_indices_are_refused_and_nothing_is_written() {
    let mut out = vec![1];
    for (indices, universe) in
        [(&[1, 1][..], 10), (&[2, 1], 10), (&[10], 10), (&[0], 0), (&[5, 11, 7], 10), (&[u32::MAX], u32::MAX)]
    {
        for form in WRITTEN {
            assert!(matches!(encode(form, indices, universe, &mut out), Err(Error::BadValues { .. })));
        }
        assert!(shortest(indices, universe).is_err());
    }
    assert!(encode(IndexForm::All, &[0, 1], 3, &mut out).is_err());
    assert_eq!(out, [1]);
}

#[test]
fn bad_bytes_are_refused() {
    let mut out = Vec::new();
    let mut refuse = |form, bytes: &[u8], count, universe| {
        out.push(7);
        assert!(decode(form, bytes, count, universe, &mut out).is_err(), "{form} {bytes:x?}");
        assert!(out.is_empty());
    };
    refuse(IndexForm::All, &[], 2, 3);
    refuse(IndexForm::All, &[0], 3, 3);
    refuse(IndexForm::List, &[1, 0, 0], 1, 10);
    refuse(IndexForm::List, &[1, 0, 0, 0, 0], 1, 10);
    refuse(IndexForm::List, &[10, 0, 0, 0], 1, 10);
    refuse(IndexForm::List, &[1, 0, 0, 0, 1, 0, 0, 0], 2, 10);
    refuse(IndexForm::List, &[], 1, 10);
    refuse(IndexForm::List, &[], 11, 10);
    refuse(IndexForm::Bitmap, &[0b1, 0b100], 2, 10);
    refuse(IndexForm::Bitmap, &[0b1], 1, 10);
    refuse(IndexForm::Bitmap, &[0b1, 0, 0], 1, 10);
    refuse(IndexForm::Bitmap, &[0b11, 0], 1, 10);
    refuse(IndexForm::Delta, &[], 1, 10);
    refuse(IndexForm::Delta, &[0], 0, 10);
    refuse(IndexForm::Delta, &[0; 20], 1 << 30, u32::MAX);
}

proptest! {
    #[test]
    fn any_set_survives(
        set in prop::collection::btree_set(any::<u32>(), 0..300),
        shift in 0u32..32,
        slack in 0u32..3,
    ) {
        let mut indices: Vec<u32> = set.into_iter().map(|index| (index >> shift).min(u32::MAX - 1)).collect();
        indices.dedup();
        let universe = indices.last().map_or(0, |last| last + 1).saturating_add(slack);
        all_round_trips(&indices, universe);
    }

    #[test]
    fn any_bytes_give_valid_indices_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        parameter in 0u8..34,
        count in 0usize..80,
        universe in prop_oneof![0u32..400, any::<u32>()],
    ) {
        let mut hinted = bytes;
        if let Some(first) = hinted.first_mut() { *first = parameter; }
        for form in WRITTEN {
            let mut out = Vec::new();
            if decode(form, &hinted, count, universe, &mut out).is_ok() {
                prop_assert_eq!(out.len(), count);
                prop_assert!(first_misplaced(&out, universe).is_none());
            }
            prop_assert!(4 * out.capacity() <= 32 * hinted.len());
        }
    }

    #[test]
    fn a_set_has_one_bitmap(bytes in prop::collection::vec(any::<u8>(), 0..9)) {
        let universe = 8 * bytes.len() as u32;
        let ones = bytes.iter().map(|byte| byte.count_ones() as usize).sum();
        let (mut out, mut again) = (Vec::new(), Vec::new());
        decode(IndexForm::Bitmap, &bytes, ones, universe, &mut out).unwrap();
        encode(IndexForm::Bitmap, &out, universe, &mut again).unwrap();
        prop_assert_eq!(bytes, again);
    }
}
