//! Vectors to try, the easy and the hostile.

use std::time::{SystemTime, UNIX_EPOCH};

/// A source of random numbers; the seed is printed, so that a failure can be had again.
pub struct Noise(u64);

impl Noise {
    /// A seed of this moment, or that of `THINWIRE_SEED`.
    pub fn fresh() -> Noise {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
        let seed = std::env::var("THINWIRE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(now);
        eprintln!("THINWIRE_SEED={seed}");
        Noise(seed | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end.max(1) as u64) as usize
    }

    fn uniform(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Roughly normal, with a heavy tail here and there.
    pub fn normal(&mut self, len: usize) -> Vec<f32> {
        (0..len)
            .map(|_| {
                let x = self.uniform() + self.uniform() + self.uniform() - 1.5;
                if self.uniform() > 0.99 { x * 10.0 } else { x }
            })
            .collect()
    }

    /// One of several kinds of vector that selectors stumble over.
    pub fn hostile(&mut self, len: usize) -> (&'static str, Vec<f32>) {
        let sign = |word: u64| if word & 1 == 0 { 1.0 } else { -1.0 };
        match self.below(9) {
            0 => ("zeros", vec![0.0; len]),
            1 => ("all equal", vec![-0.25; len]),
            2 => (
                "two magnitudes",
                (0..len).map(|_| if self.below(20) == 0 { 2.0 } else { 1.0 } * sign(self.word())).collect(),
            ),
            3 => (
                "few non-zero",
                (0..len).map(|_| if self.below(5000) == 0 { self.uniform() } else { 0.0 }).collect(),
            ),
            4 => (
                "denormal",
                (0..len).map(|_| f32::from_bits(self.below(1 << 20) as u32) * sign(self.word())).collect(),
            ),
            5 => (
                "any exponent",
                (0..len)
                    .map(|_| f32::from_bits((self.word() as u32 & 0xbfff_ffff).min(0xfeff_ffff)))
                    .map(|x| if x.is_finite() { x } else { 0.0 })
                    .collect(),
            ),
            6 => ("rising", (0..len).map(|i| i as f32).collect()),
            7 => ("one block holds all", {
                let start = self.below(len);
                (0..len)
                    .map(|i| {
                        if (start..start + len / 50 + 1).contains(&i) {
                            self.uniform() + 1.0
                        } else {
                            1e-6 * self.uniform()
                        }
                    })
                    .collect()
            }),
            _ => ("normal", self.normal(len)),
        }
    }
}

/// Whether two vectors are the same, bit for bit; says where not.
pub fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    if let Some(i) = (0..found.len()).find(|&i| found[i].to_bits() != expected[i].to_bits()) {
        panic!("{what}: element {i} of {} is {:e}; expected {:e}", found.len(), found[i], expected[i]);
    }
}
