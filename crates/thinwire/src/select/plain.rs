//! A survey by definition: every question answered from a full list of scores. What the devices must equal.

use super::Survey;
use crate::kernels::Statistics;

pub(crate) struct PlainSurvey {
    pub scores: Vec<f32>,
    pub values: Vec<f32>,
    pub kept: Vec<u32>,
    lowest: f32,
    statistics: Statistics,
}

impl PlainSurvey {
    /// Magnitudes of `values`.
    pub fn new(values: &[f32]) -> PlainSurvey {
        let statistics = Statistics {
            count: values.len(),
            sum: values.iter().map(|&x| x as f64).sum(),
            sum_magnitude: values.iter().map(|&x| x.abs() as f64).sum(),
            sum_squares: values.iter().map(|&x| x as f64 * x as f64).sum(),
            max: values.iter().fold(0.0, |a, &b| a.max(b)),
            min: values.iter().fold(0.0, |a, &b| a.min(b)),
        };
        let scores = values.iter().map(|x| x.abs()).collect();
        PlainSurvey { scores, values: values.to_vec(), kept: Vec::new(), lowest: 0.0, statistics }
    }

    fn keep(&mut self, test: impl Fn(f32) -> bool) {
        self.kept = (0..self.scores.len() as u32)
            .filter(|&i| self.scores[i as usize] > 0.0 && test(self.scores[i as usize]))
            .collect();
    }
}

impl Survey for PlainSurvey {
    fn len(&self) -> usize {
        self.values.len()
    }

    fn start(&self) -> usize {
        0
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }

    fn count_above(&mut self, threshold: f32, _enough: usize) -> usize {
        self.scores.iter().filter(|&&score| score > 0.0 && score > threshold).count()
    }

    fn sample(&mut self, start: usize, stride: usize, scores: &mut Vec<f32>) {
        scores.extend(self.scores.iter().skip(start).step_by(stride));
    }

    fn keep_above(&mut self, threshold: f32) {
        self.keep(|score| score > threshold);
    }

    fn keep_top(&mut self, k: usize) {
        self.keep(|_| true);
        let scores = &self.scores;
        self.kept.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
        self.kept.truncate(k);
        self.lowest = self.kept.last().map_or(0.0, |&i| scores[i as usize]);
        self.kept.sort();
    }

    fn lowest_kept(&mut self) -> f32 {
        self.lowest
    }

    fn keep_band(&mut self, upper: f32, lower: f32, k: usize, start: f64) {
        let above = self.count_above(upper, usize::MAX);
        let band = self.count_above(lower, usize::MAX) - above;
        let room = k.saturating_sub(above).min(band);
        let first = ((band - room) as f64 * start).round() as usize;
        self.keep(|score| score > lower);
        let mut seen = 0;
        let scores = &self.scores;
        self.kept.retain(|&i| {
            scores[i as usize] > upper || {
                seen += 1;
                seen > first && seen <= first + room
            }
        });
    }

    fn keep_positions(&mut self, positions: &[u32]) {
        self.kept = positions.to_vec();
    }

    fn kept(&mut self) -> usize {
        self.kept.len()
    }
}
