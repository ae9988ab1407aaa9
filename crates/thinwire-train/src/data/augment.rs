//! Variation of training images: a random crop out of the image with a black border, and a mirror image.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::shard::mix;

/// Pixels of black border on each side before the crop.
const BORDER: isize = 4;

/// One way to vary an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Variation {
    down: isize,
    right: isize,
    mirrored: bool,
}

impl Variation {
    /// The variation of this sample; the same for the same two numbers.
    pub(super) fn draw(number: u64, sample: usize) -> Variation {
        let mut random = Pcg64Mcg::seed_from_u64(mix(number, sample as u64));
        Variation {
            down: random.random_range(-BORDER as i32..=BORDER as i32) as isize,
            right: random.random_range(-BORDER as i32..=BORDER as i32) as isize,
            mirrored: random.random(),
        }
    }

    /// Adds one channel of an image of rows of `width`, varied and scaled by `table`, to `pixels`. The border is
    /// black, so its bytes are 0 before they are scaled.
    pub(super) fn write(&self, plane: &[u8], width: usize, table: &[f32; 256], pixels: &mut Vec<f32>) {
        let height = plane.len() / width;
        for row in 0..height as isize {
            let from = row + self.down;
            let start = pixels.len();
            if from < 0 || from >= height as isize {
                pixels.resize(start + width, table[0]);
                continue;
            }
            let source = &plane[from as usize * width..][..width];
            pixels.extend((0..width as isize).map(|column| {
                let byte = usize::try_from(column + self.right).ok().and_then(|from| source.get(from));
                table[usize::from(byte.copied().unwrap_or(0))]
            }));
            if self.mirrored {
                pixels[start..].reverse();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varied(variation: Variation) -> Vec<f32> {
        let plane: Vec<u8> = (1..=6).collect();
        let table = std::array::from_fn(|byte| byte as f32);
        let mut pixels = vec![77.0];
        variation.write(&plane, 3, &table, &mut pixels);
        assert_eq!(pixels.remove(0), 77.0, "what was there stays");
        pixels
    }

    #[test]
    fn crops_move_the_image_and_mirrors_turn_it() {
        let expect = |down, right, mirrored, expected: [f32; 6]| {
            assert_eq!(varied(Variation { down, right, mirrored }), expected, "{down} {right} {mirrored}");
        };
        expect(0, 0, false, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        expect(0, 0, true, [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        expect(1, 0, false, [4.0, 5.0, 6.0, 0.0, 0.0, 0.0]);
        expect(-1, 1, false, [0.0, 0.0, 0.0, 2.0, 3.0, 0.0]);
        expect(0, -1, true, [2.0, 1.0, 0.0, 5.0, 4.0, 0.0]);
        expect(4, 4, false, [0.0; 6]);
    }

    #[test]
    fn every_variation_occurs_and_depends_on_both_numbers() {
        let mut seen = std::collections::HashSet::new();
        for sample in 0..5000 {
            let variation = Variation::draw(3, sample);
            assert_eq!(variation, Variation::draw(3, sample));
            assert!(variation.down.abs() <= 4 && variation.right.abs() <= 4);
            seen.insert((variation.down, variation.right, variation.mirrored));
        }
        assert_eq!(seen.len(), 9 * 9 * 2);
        let other =
            (0..100).filter(|&sample| Variation::draw(3, sample) != Variation::draw(4, sample)).count();
        assert!(other > 90, "{other} of 100 differ");
    }
}
