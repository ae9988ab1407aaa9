//! Images in memory: bytes, scaled when a batch is made.

use std::sync::Arc;

use super::augment::Variation;
use super::{Batch, DataSet, Kind, Samples};

/// Images as they were read: bytes, image by image, channel by channel, row by row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Images {
    /// Channels, rows and columns.
    pub shape: [usize; 3],
    /// The bytes of all images.
    pub pixels: Vec<u8>,
    /// The class of each image.
    pub labels: Vec<u8>,
}

impl Images {
    fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// What each byte of a channel becomes: mean 0 and deviation 1 over the training set.
#[derive(Debug, PartialEq)]
struct Scale {
    channels: Vec<[f32; 256]>,
}

impl Scale {
    /// Counts bytes, which is exact, instead of summing floats.
    fn of(images: &Images) -> Scale {
        let [channels, height, width] = images.shape;
        let mut counts = vec![[0u64; 256]; channels];
        for (number, plane) in images.pixels.chunks_exact(height * width).enumerate() {
            let counts = &mut counts[number % channels];
            plane.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        }
        let table = |counts: &[u64; 256]| {
            let total = counts.iter().sum::<u64>().max(1) as f64;
            let mean_of = |f: &dyn Fn(f64) -> f64| -> f64 {
                counts.iter().enumerate().map(|(byte, &count)| f(byte as f64) * count as f64).sum::<f64>()
                    / total
            };
            let mean = mean_of(&|byte| byte);
            let deviation = mean_of(&|byte| (byte - mean).powi(2)).sqrt();
            // A channel that is the same everywhere has nothing to scale.
            let factor = if deviation > 0.0 { 1.0 / deviation } else { 1.0 };
            std::array::from_fn(|byte| ((byte as f64 - mean) * factor) as f32)
        };
        Scale { channels: counts.iter().map(table).collect() }
    }
}

/// Images and how to scale them.
struct ImageSamples {
    images: Images,
    scale: Arc<Scale>,
    augment: bool,
}

impl Samples for ImageSamples {
    fn len(&self) -> usize {
        self.images.labels.len()
    }

    fn batch(&self, samples: &[usize], augment: Option<u64>, batch: &mut Batch) {
        let size = self.images.size();
        let [_, height, width] = self.images.shape;
        batch.samples = samples.len();
        batch.tokens.clear();
        batch.pixels.clear();
        batch.targets.clear();
        for &sample in samples {
            batch.targets.push(i32::from(self.images.labels[sample]));
            let image = &self.images.pixels[sample * size..][..size];
            let variation = augment.filter(|_| self.augment).map(|number| Variation::draw(number, sample));
            let planes = image.chunks_exact(height * width).zip(&self.scale.channels);
            for (plane, table) in planes {
                match &variation {
                    Some(variation) => variation.write(plane, width, table, &mut batch.pixels),
                    None => batch.pixels.extend(plane.iter().map(|&byte| table[usize::from(byte)])),
                }
            }
        }
    }
}

/// A data set of images, both parts scaled by what the training set says. With `augment`, training images are
/// varied where a batch asks for it.
pub(super) fn image_set(spec: String, classes: usize, train: Images, test: Images, augment: bool) -> DataSet {
    let [channels, height, width] = train.shape;
    let scale = Arc::new(Scale::of(&train));
    DataSet {
        spec,
        kind: Kind::Images { channels, height, width, classes },
        test: Arc::new(ImageSamples { images: test, scale: scale.clone(), augment: false }),
        train: Arc::new(ImageSamples { images: train, scale, augment }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(count: usize, shape: [usize; 3], byte: impl Fn(usize) -> u8) -> Images {
        let size: usize = shape.iter().product();
        let labels = (0..count).map(|number| (number % 10) as u8).collect();
        Images { shape, pixels: (0..count * size).map(byte).collect(), labels }
    }

    #[test]
    fn training_pixels_have_mean_0_and_deviation_1_in_each_channel() {
        // The second channel is darker and flatter than the first.
        let train =
            images(50, [2, 4, 4], |i| if i / 16 % 2 == 0 { (i * 37 % 256) as u8 } else { (i % 7) as u8 });
        let set = image_set("x".into(), 10, train, images(3, [2, 4, 4], |_| 9), false);
        let mut batch = Batch::default();
        set.train.batch(&(0..50).collect::<Vec<_>>(), None, &mut batch);
        for channel in 0..2 {
            let values: Vec<f64> =
                batch.pixels.chunks(16).skip(channel).step_by(2).flatten().map(|&x| f64::from(x)).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let deviation =
                (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
            assert!(mean.abs() < 1e-6 && (deviation - 1.0).abs() < 1e-6, "{mean} {deviation}");
        }
    }

    #[test]
    fn test_pixels_are_scaled_like_training_pixels() {
        let train = images(4, [1, 2, 2], |i| (i * 11) as u8);
        let set = image_set("x".into(), 10, train.clone(), train, false);
        let (mut one, mut other) = (Batch::default(), Batch::default());
        set.train.batch(&[3, 1], None, &mut one);
        set.test.batch(&[3, 1], None, &mut other);
        assert_eq!(one, other);
        assert_eq!((one.samples, &one.targets[..]), (2, &[3, 1][..]));
        assert!(one.pixels[0] > one.pixels[4], "sample 3 is brighter than sample 1");
    }

    #[test]
    fn a_flat_channel_becomes_zero_not_infinite() {
        let set = image_set("x".into(), 10, images(2, [1, 2, 2], |_| 5), images(2, [1, 2, 2], |_| 6), false);
        let mut batch = Batch { pixels: vec![1.0; 99], ..Batch::default() };
        set.train.batch(&[0], None, &mut batch);
        assert_eq!(batch.pixels, [0.0; 4]);
        set.test.batch(&[0], None, &mut batch);
        assert_eq!(batch.pixels, [1.0; 4]);
    }

    #[test]
    fn only_training_images_are_varied_and_only_where_asked() {
        let image = images(1, [1, 8, 8], |i| i as u8);
        let pixels = |augmented: bool, train: bool, augment| {
            let set = image_set("x".into(), 10, image.clone(), image.clone(), augmented);
            let mut batch = Batch::default();
            if train { &set.train } else { &set.test }.batch(&[0], augment, &mut batch);
            batch.pixels
        };
        let plain = pixels(false, true, None);
        assert_eq!(pixels(true, true, None), plain);
        let changed = (0..20).filter(|&number| pixels(true, true, Some(number)) != plain).count();
        assert!(changed >= 15, "{changed} of 20 changed");
        for number in 0..20 {
            assert_eq!(pixels(true, false, Some(number)), plain, "test images stay");
            assert_eq!(pixels(false, true, Some(number)), plain, "augment=false");
        }
    }
}
