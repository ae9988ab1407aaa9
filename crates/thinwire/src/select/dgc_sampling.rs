//! The sampled threshold of DGC (Lin, Han, Mao, Wang, Dally: Deep Gradient Compression, 2018).

use super::{Select, Survey, share, window};

/// Reads a threshold off a sample of about 1 % of the elements, adapts it up to ten times while fewer than
/// `0.8k` pass, and cuts to the exact top-k of those that pass when there are more than `k`.
///
/// The sample is every `stride`-th element from a start that changes with the step. The published code
/// takes a unit of at most `2/density` elements whole, and may end below `0.8k`; here both give exactly `k`
/// unless `as_published`.
#[derive(Debug, Clone, Default)]
pub struct DgcSampling {
    /// The paper's own behaviour, whatever the count.
    pub as_published: bool,
    scores: Vec<f32>,
}

impl DgcSampling {
    const SAMPLE: f64 = 0.01;
    const ADAPTATIONS: usize = 10;

    /// A selector; `as_published` leaves the paper's outcome as it is.
    pub fn new(as_published: bool) -> DgcSampling {
        DgcSampling { as_published, scores: Vec::new() }
    }

    /// About 1 % of the elements, but at least `2/density`, at a distance that is one more than a multiple
    /// of 8, so that the sample does not keep to one column of a matrix.
    fn stride(len: usize, density: f64) -> usize {
        let least = (2.0 / density).ceil() as usize;
        let mut stride = (1.0 / Self::SAMPLE).ceil() as usize / 32 * 32 + 1;
        while stride > 8 && len / stride < least {
            stride -= 8;
        }
        stride
    }
}

impl Select for DgcSampling {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(DgcSampling::new(self.as_published))
    }

    /// DGC rounds up: `ceil(len · density)`.
    fn quota(&self, len: usize, density: f64) -> usize {
        (share(len, density).ceil() as usize).clamp(1, len.max(1))
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, step: u64) {
        let len = survey.len();
        let density = k as f64 / len as f64;
        if len as f64 <= 2.0 / density {
            let all = if self.as_published { len } else { k };
            survey.keep_top(all);
            return;
        }
        let stride = Self::stride(len, density);
        self.scores.clear();
        survey.sample(step as usize % stride, stride, &mut self.scores);
        let top = ((self.scores.len() as f64 * density).ceil() as usize).clamp(1, self.scores.len());
        let at = self.scores.len() - top;
        let mut threshold = *self.scores.select_nth_unstable_by(at, f32::total_cmp).1;
        let mut count = survey.count_above(threshold, k);
        for _ in 0..Self::ADAPTATIONS {
            if count as f64 >= 0.8 * k as f64 || threshold == 0.0 {
                break;
            }
            threshold *= 0.8;
            count = survey.count_above(threshold, k);
        }
        if count <= k && (self.as_published || count >= *window(k).start()) {
            survey.keep_above(threshold);
        } else {
            survey.keep_top(k);
        }
    }
}
