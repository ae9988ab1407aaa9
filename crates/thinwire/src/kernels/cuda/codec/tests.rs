//! The host's codec is what everything here is compared with.

use std::time::Instant;

use super::*;
use crate::codec::{Frame, FrameWriter, Header, SectionInput, SectionSize};

const HEADER: Header = Header { step: 1, plan: 2, bucket: 3, elements: u32::MAX };

/// A fixed sequence of numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Any size, both signs, now and then a zero or any bit pattern that is finite.
    fn value(&mut self) -> f32 {
        let bits = self.next();
        match bits % 16 {
            0 => 0.0,
            1 => -0.0,
            2 => Some(f32::from_bits((bits >> 20) as u32)).filter(|value| value.is_finite()).unwrap_or(1.0),
            _ => ((bits >> 8) as i32 as f32) * f32::powi(2.0, (bits >> 40) as i32 % 24 - 44),
        }
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }

    /// Strictly increasing, with gaps below `2^spread` and now and then a larger one.
    fn indices(&mut self, count: usize, spread: u32) -> Vec<u32> {
        let (mut next, mut indices) = (0u64, Vec::new());
        for _ in 0..count {
            let rare = self.below(64) == 0;
            let spread = if rare { self.below(30) as u32 } else { spread };
            next += self.below(1 << spread);
            if next >= u64::from(u32::MAX) {
                break;
            }
            indices.push(next as u32);
            next += 1;
        }
        indices
    }
}

/// A section as both are asked for it.
#[derive(Clone, Copy)]
struct Case<'a> {
    start: u32,
    universe: u32,
    width: u8,
    indices: Option<&'a [u32]>,
    values: &'a [f32],
    index: IndexChoice,
    form: &'a ValueForm,
}

impl Case<'_> {
    fn on_host(&self) -> Result<(Vec<u8>, SectionSize)> {
        let &Case { start, universe, width, indices, values, index, form } = self;
        let mut frame = Vec::new();
        let mut writer = FrameWriter::new(&mut frame, HEADER);
        let size = writer.section(&SectionInput { start, universe, width, indices, values, index, form })?;
        writer.finish()?;
        Ok((frame, size))
    }

    /// What the GPU makes of it: the message, its bytes, and what it lost.
    fn on_device(&self, codec: &mut Codec) -> Result<(Encoded, [Vec<u8>; 2], Vec<f32>)> {
        let device = codec.device.clone();
        let positions: Option<Vec<u32>> =
            self.indices.map(|indices| indices.iter().map(|index| index.wrapping_add(self.start)).collect());
        let positions = positions.map(|positions| Buffer::of(&device, &positions)).transpose()?;
        let positions = positions.as_ref().map(|positions| Run::of(positions, 0..positions.len()));
        let buffer = Buffer::of(&device, self.values)?;
        let values = Run::of(&buffer, 0..buffer.len());
        let measured = codec.measure((self.start, self.universe), positions, values)?;
        let &Case { start, universe, width, index, form, .. } = self;
        let outgoing = Outgoing { start, universe, width, positions, values, index, form };
        let encoded = codec.encode(&outgoing, &measured)?;
        if *form != ValueForm::F32 {
            codec.lose(values, form, encoded.value_bytes)?;
        }
        let bytes = [encoded.index_bytes.read(&device)?, encoded.value_bytes.read(&device)?];
        Ok((encoded, bytes, buffer.read(0..buffer.len())?))
    }

    /// Both make the same bytes, lose the same, and read the same. Gives the frame.
    fn check(&self, codec: &mut Codec) -> Vec<u8> {
        let (frame, size) = self.on_host().unwrap();
        let (encoded, [index_bytes, value_bytes], lost) = self.on_device(codec).unwrap();
        let parsed = Frame::parse(&frame).unwrap();
        let section = parsed.sections().next().unwrap();
        let what = format!("{} of {} from {} as {}", section.count(), self.universe, self.start, self.form);
        assert_eq!((encoded.index_form, encoded.clipped), (size.index_form, size.clipped), "{what}");
        assert!(index_bytes == section.index_bytes(), "{what}: {}", size.index_form);
        let mut decoded = (Vec::new(), Vec::new());
        section.decode(&mut decoded.0, &mut decoded.1).unwrap();
        if *self.form == ValueForm::SameSign {
            if let (Some(mine), Some(host)) = (value_bytes.first_chunk(), section.value_bytes().first_chunk())
            {
                let (mine, host) = (f32::from_le_bytes(*mine), f32::from_le_bytes(*host));
                assert!((mine - host).abs() <= host.abs() * f32::EPSILON, "{mine} against {host}");
            }
        } else {
            assert!(value_bytes == section.value_bytes(), "{what}");
            let expected = |(value, seen): (&f32, &f32)| (value - seen).to_bits();
            let expected: Vec<u32> = self.values.iter().zip(&decoded.1).map(expected).collect();
            if *self.form != ValueForm::F32 {
                assert!(lost.iter().map(|value| value.to_bits()).eq(expected), "{what}: what was lost");
            }
        }
        check_decoding(codec, &section);
        frame
    }
}

/// The GPU accepts what the host accepts, with the same result, and refuses in the same words.
fn check_decoding(codec: &mut Codec, section: &Section<'_>) -> bool {
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    let host = section.decode(&mut indices, &mut values);
    let device = codec.device.clone();
    let mine = codec.decode(section);
    match (&host, &mine) {
        (Ok(()), Ok(decoded)) => {
            let found = decoded.indices.map_or(Vec::new(), |indices| indices.read(&device).unwrap());
            assert!(found == indices, "indices of {section:?}");
            let found = decoded.values.read(&device).unwrap();
            assert!(found.iter().map(|value| value.to_bits()).eq(values.iter().map(|value| value.to_bits())));
        }
        (Err(host), Err(mine)) => {
            assert_eq!(std::mem::discriminant(host), std::mem::discriminant(mine), "{host} {mine}")
        }
        _ => panic!("host {host:?}, GPU {mine:?} for {section:?}"),
    }
    host.is_ok()
}

fn choices(universe: u32) -> impl Iterator<Item = IndexChoice> {
    let forms = [IndexForm::List, IndexForm::Delta, IndexForm::Bitmap].map(IndexChoice::Fixed);
    let small = universe < 1 << 24;
    [IndexChoice::Shortest]
        .into_iter()
        .chain(forms)
        .filter(move |&c| small || c != IndexChoice::Fixed(IndexForm::Bitmap))
}

fn forms(random: &mut Random) -> Vec<ValueForm> {
    let mut forms = vec![ValueForm::F32, ValueForm::F16, ValueForm::Bf16];
    for bits in 2..=16 {
        let mantissa = 1 + random.below(u64::from(bits.min(14))) as u8;
        let rounding = if random.below(2) == 0 { Rounding::Nearest } else { Rounding::Truncate };
        let most = f32::powi(2.0, random.below(40) as i32 - 30) * 1.3;
        forms.extend(RangeFloat::tuned(bits, mantissa, most, rounding).map(ValueForm::Range));
        forms.extend(
            RangeFloat::new(bits, mantissa, most / 4.0, -most * 2.0, most, rounding).map(ValueForm::Range),
        );
    }
    forms
}

fn codec() -> Codec {
    Codec::new(&Device::open(0).unwrap()).unwrap()
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn coordinates_are_those_of_the_host() {
    let (mut codec, mut random) = (codec(), Random(1));
    let mut sets: Vec<(Vec<u32>, u32)> = Vec::new();
    for universe in [0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 2047, 2048, 2049, 32_768, 100_003] {
        sets.push(((0..universe).collect(), universe));
        sets.push((Vec::new(), universe));
        sets.push(((0..universe).step_by(2).collect(), universe));
        sets.push(((1..universe).step_by(3).collect(), universe));
        sets.extend(universe.checked_sub(1).map(|last| (vec![last], universe)));
    }
    sets.push((vec![0, 16_777_216, 16_777_217, 102_760_447, u32::MAX - 2], u32::MAX - 1));
    sets.push((vec![u32::MAX - 2], u32::MAX - 1));
    sets.push(((u32::MAX - 5000..u32::MAX - 1).collect(), u32::MAX - 1));
    for spread in 0..32 {
        for count in [1, 5, 40, 3000] {
            let indices = random.indices(count, spread);
            let end = indices.last().map_or(0, |last| last + 1);
            sets.push((indices, end.saturating_add(random.below(70) as u32)));
        }
    }
    for (indices, universe) in &sets {
        let values = random.values(indices.len());
        for index in choices(*universe) {
            let start = if *universe < 1 << 30 { random.below(3) as u32 * 1001 } else { 0 };
            let form = if values.is_empty() { ValueForm::F32 } else { ValueForm::F16 };
            Case {
                start,
                universe: *universe,
                width: 1,
                indices: Some(indices),
                values: &values,
                index,
                form: &form,
            }
            .check(&mut codec);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn values_are_those_of_the_host() {
    let (mut codec, mut random) = (codec(), Random(2));
    for count in [0, 1, 2, 3, 31, 32, 33, 255, 256, 257, 1023, 1025, 8191, 8192, 8193, 70_001] {
        for form in forms(&mut random) {
            let (values, universe) = (random.values(2 * count), count as u32);
            let index = IndexChoice::Shortest;
            Case { start: 0, universe, width: 2, indices: None, values: &values, index, form: &form }
                .check(&mut codec);
        }
        let indices: Vec<u32> = (0..count as u32).map(|i| 3 * i).collect();
        let case = Case {
            start: 5,
            universe: 3 * count as u32 + 1,
            width: 1,
            indices: Some(&indices),
            values: &[],
            index: IndexChoice::Shortest,
            form: &ValueForm::Absent,
        };
        case.check(&mut codec);
        for sign in [1.0, -1.0] {
            let values: Vec<f32> =
                random.values(count).iter().map(|value| sign * (value.abs() % 1e30)).collect();
            Case { values: &values, form: &ValueForm::SameSign, ..case }.check(&mut codec);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn whatever_the_bytes_are() {
    let (mut codec, mut random) = (codec(), Random(3));
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..600 {
        let count = 1 + random.below(if round % 10 == 0 { 5000 } else { 60 }) as usize;
        let spread = random.below(12) as u32;
        let indices = random.indices(count, spread);
        let universe = indices.last().map_or(1, |last| last + 1).saturating_add(random.below(9) as u32);
        let values: Vec<f32> = random.values(indices.len()).iter().map(|value| value % 60_000.0).collect();
        let mut all = forms(&mut random);
        let form = all.swap_remove(random.below(all.len() as u64) as usize);
        let choices: Vec<_> = choices(universe).collect();
        let index = choices[random.below(choices.len() as u64) as usize];
        let case = Case {
            start: 0,
            universe,
            width: 1,
            indices: Some(&indices),
            values: &values,
            index,
            form: &form,
        };
        let frame = case.check(&mut codec);
        for flips in [1, 1, 2, 3, 20] {
            let mut damaged = frame.clone();
            for _ in 0..flips {
                // Behind the fixed header; lengths and forms are hit too.
                let place = 37 + random.below(damaged.len() as u64 - 41) as usize;
                damaged[place] ^= 1 << random.below(8);
            }
            let body = damaged.len() - 4;
            let checksum = crc32fast::hash(&damaged[..body]);
            damaged[body..].copy_from_slice(&checksum.to_le_bytes());
            let Ok(parsed) = Frame::parse(&damaged) else { continue };
            for section in parsed.sections().filter(|section| section.universe() < 1 << 28) {
                if check_decoding(&mut codec, &section) { accepted += 1 } else { refused += 1 }
            }
        }
    }
    println!("{accepted} damaged sections accepted, {refused} refused");
    assert!(accepted > 100 && refused > 100, "{accepted} {refused}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn what_can_not_be_sent_is_refused_in_the_hosts_words() {
    let mut codec = codec();
    let values = [1.0, 2.0, f32::NAN, f32::INFINITY];
    let mixed = [1.0, 0.0, -1e-30, 1.0];
    let fine = [1.0; 4];
    let cases: [(&[u32], &[f32], ValueForm); 6] = [
        (&[1, 2, 3, 4], &values, ValueForm::F16),
        (&[1, 2, 3, 4], &mixed, ValueForm::SameSign),
        (&[1, 1, 3, 4], &fine, ValueForm::F32),
        (&[1, 3, 2, 4], &fine, ValueForm::F32),
        (&[1, 2, 3, 10], &fine, ValueForm::F32),
        (&[1, 2, 3], &fine, ValueForm::F32),
    ];
    for (indices, values, form) in &cases {
        let index = IndexChoice::Shortest;
        let case = Case { start: 7, universe: 10, width: 1, indices: Some(indices), values, index, form };
        let (host, mine) = (case.on_host().unwrap_err(), case.on_device(&mut codec).unwrap_err());
        assert_eq!(host.to_string(), mine.to_string());
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn sums_and_ranges_are_measured() {
    let (mut codec, mut random) = (codec(), Random(4));
    for count in [0, 1, 1000, 8193, 3_000_001] {
        let values = random.values(count);
        let buffer = Buffer::of(&codec.device.clone(), &values).unwrap();
        let run = Run::of(&buffer, 0..count);
        let measured = codec.measure((0, 0), None, run).unwrap();
        let squares: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
        assert!((measured.squares - squares).abs() <= 1e-9 * squares, "{} {squares}", measured.squares);
        assert_eq!(
            measured.squares.to_bits(),
            codec.sum_of_squares(run).unwrap().to_bits(),
            "the same every time"
        );
        for rounding in [Rounding::Nearest, Rounding::Truncate] {
            let host = RangeFloat::covering(10, 5, &values, rounding).unwrap();
            assert_eq!(measured.covering(10, 5, rounding).unwrap(), host);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: ./test gpu"]
fn a_large_message() {
    let (mut codec, mut random) = (codec(), Random(5));
    let universe = 69_178_772;
    let indices: Vec<u32> = (0..universe).filter(|_| random.below(100) < 15).collect();
    let values: Vec<f32> = (0..2 * indices.len()).map(|_| random.value() % 8.0).collect();
    let form = ValueForm::Range(RangeFloat::covering(10, 5, &values, Rounding::Nearest).unwrap());
    let index = IndexChoice::Shortest;
    let case =
        Case { start: 0, universe, width: 2, indices: Some(&indices), values: &values, index, form: &form };
    let frame = case.check(&mut codec);
    for index in [IndexChoice::Fixed(IndexForm::Bitmap), IndexChoice::Fixed(IndexForm::List)] {
        Case { index, ..case }.check(&mut codec);
    }
    // How long it takes, once everything has its memory.
    let device = codec.device.clone();
    let (positions, values) = (Buffer::of(&device, &indices).unwrap(), Buffer::of(&device, &values).unwrap());
    let (positions, values) = (Run::of(&positions, 0..indices.len()), Run::of(&values, 0..2 * indices.len()));
    let outgoing =
        Outgoing { start: 0, universe, width: 2, positions: Some(positions), values, index, form: &form };
    for _ in 0..3 {
        let begun = Instant::now();
        let measured = codec.measure((0, universe), Some(positions), values).unwrap();
        let measuring = begun.elapsed();
        codec.encode(&outgoing, &measured).unwrap();
        let encoding = begun.elapsed() - measuring;
        let begun = Instant::now();
        codec.decode(&Frame::parse(&frame).unwrap().sections().next().unwrap()).unwrap();
        println!(
            "measured in {measuring:?}, encoded in {encoding:?}, checked, uploaded and decoded in {:?}",
            begun.elapsed()
        );
    }
}
