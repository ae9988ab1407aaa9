//! Gradients for measurements.

/// A source of gradients and weights for a model of a given size.
///
/// They drift as in training: layers of very different scale that change from step to step, a part of every element that
/// persists, fresh noise with a heavier tail than the normal distribution. Where the large elements stand decides how
/// long selecting and encoding them takes, so probes and benchmarks use the same ones.
///
/// ```
/// use thinwire::adapt::probe::Gradients;
///
/// let mut gradient = vec![0.0; 10_000];
/// Gradients::new(10_000, 1).fill(7, &mut gradient);
/// assert!(gradient.iter().all(|element| element.is_finite() && element.abs() < 1.0));
/// ```
#[derive(Debug)]
pub struct Gradients {
    layers: Vec<Layer>,
    elements: usize,
    threads: usize,
}

#[derive(Debug)]
struct Layer {
    start: usize,
    scale: f32,
    phase: f32,
}

/// Element counts of ResNet-50's layers, in order, without the batch norms (which are added up per block).
fn resnet50() -> Vec<usize> {
    let mut sizes = vec![3 * 64 * 49, 128];
    let mut channels = 64;
    for (width, blocks) in [(64, 3), (128, 4), (256, 6), (512, 3)] {
        for block in 0..blocks {
            sizes.extend([
                channels * width,
                width * width * 9,
                width * width * 4,
                2 * (2 * width + 4 * width),
            ]);
            if block == 0 {
                sizes.extend([channels * 4 * width, 8 * width]);
            }
            channels = 4 * width;
        }
    }
    sizes.extend([2048 * 1000, 1000]);
    sizes
}

impl Gradients {
    /// For `elements` elements, cut into layers with the sizes of ResNet-50's, again and again. Threads make them faster,
    /// and not others.
    pub fn new(elements: usize, threads: usize) -> Gradients {
        let mut layers = Vec::new();
        let mut start = 0;
        for (number, size) in resnet50().into_iter().cycle().enumerate() {
            if start >= elements {
                break;
            }
            let (wide, turned) = (bell(mix(number as u64)), bell(mix(!(number as u64))));
            layers.push(Layer { start, scale: (wide - 6.0).exp(), phase: turned });
            start += size;
        }
        Gradients { layers, elements, threads }
    }

    /// The gradient of one step.
    pub fn fill(&self, step: u64, gradient: &mut [f32]) {
        self.each(gradient, |layer, position| {
            let scale = layer.scale
                * (1.0 + 0.1 * (0.3 * step as f32 + layer.phase).sin())
                * 0.995f32.powi(step as i32);
            let seed = mix(step + 1);
            (scale, position as u64, seed)
        });
    }

    /// Weights, which do not depend on the step.
    pub fn weights(&self, weights: &mut [f32]) {
        for (position, weight) in weights.iter_mut().enumerate() {
            *weight = 0.02 * bell(mix(position as u64 ^ 0x5DEE_CE66));
        }
    }

    fn each(&self, gradient: &mut [f32], describe: impl Fn(&Layer, usize) -> (f32, u64, u64) + Sync) {
        assert_eq!(gradient.len(), self.elements);
        let share = self.elements.div_ceil(self.threads).max(1);
        std::thread::scope(|threads| {
            for (number, piece) in gradient.chunks_mut(share).enumerate() {
                let describe = &describe;
                threads.spawn(move || {
                    let first = number * share;
                    for (at, layer) in self.layers.iter().enumerate() {
                        let end = self.layers.get(at + 1).map_or(self.elements, |next| next.start);
                        let range = layer.start.max(first)..end.min(first + piece.len());
                        if range.is_empty() {
                            continue;
                        }
                        let (scale, position, seed) = describe(layer, range.start);
                        for (i, g) in piece[range.start - first..range.end - first].iter_mut().enumerate() {
                            let fresh = bell(mix((position + i as u64) ^ seed));
                            let lasting = bell(mix(position + i as u64));
                            *g = scale * (0.2 * lasting + fresh + 0.1 * fresh * fresh * fresh);
                        }
                    }
                });
            }
        });
    }
}

/// Four uniform numbers out of one random word, added up: nearly normal, deviation 1.
fn bell(word: u64) -> f32 {
    let sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    (sum as f32 / 65536.0 - 2.0) * 1.732
}

/// A counter to a random-looking word.
fn mix(counter: u64) -> u64 {
    crate::select::mix(counter.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_are_those_of_resnet50() {
        assert_eq!(resnet50().iter().sum::<usize>(), 25_557_032);
    }

    #[test]
    fn gradients_do_not_depend_on_the_number_of_threads_and_change_with_the_step() {
        let gradient = |threads, step| {
            let mut gradient = vec![0.0; 100_003];
            Gradients::new(100_003, threads).fill(step, &mut gradient);
            gradient
        };
        assert!(gradient(1, 4) == gradient(3, 4));
        let changed = gradient(1, 4).iter().zip(gradient(1, 5)).filter(|(a, b)| **a != *b).count();
        assert!(changed > 99_000);
    }
}
