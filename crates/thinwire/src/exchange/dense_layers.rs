//! Layers that are sent dense beside gathered frames: one all-reduce sums those of all buckets of a step.
//!
//! Inside a frame such a layer is sent to each of the other N-1 ranks; an all-reduce sends 2(N-1)/N of it, as RedSync does
//! with its small layers. It comes after the gathers, when every rank knows that all ranks take part; so it needs no
//! status of its own. Only the sum can still fail: one beyond the range is the same on every rank, and all skip the step.

use std::ops::Range;
use std::time::Instant;

use super::lane::{Lane, Route, Way};
use super::sums::{Halves, form_of};
use crate::codec::ValueForm;
use crate::group::{Precision, Sum};
use crate::kernels::Kernels;
use crate::memory::Progress;
use crate::{Error, Result};

/// The bytes that a hop is taken to be worth: what a link of 1 Gbit/s sends in 16 µs.
const HOP_BYTES: usize = 2048;

/// Whether a sum of its own sends so many fewer bytes that it is worth its hops, those of a tree: up and down.
pub(crate) fn reduction_pays(bytes: usize, ranks: usize) -> bool {
    let in_frames = bytes * ranks.saturating_sub(1);
    let saved = in_frames * ranks.saturating_sub(2) / ranks.max(1);
    let hops = 2 * ranks.next_power_of_two().trailing_zeros() as usize;
    saved > hops * HOP_BYTES
}

/// The sums of one step; kept for their memory.
#[derive(Debug, Default)]
pub(crate) struct DenseLayers {
    values: Vec<f32>,
    halves: Halves,
}

impl DenseLayers {
    /// Sums the dense layers of all gathered buckets. A sum that is not finite becomes the refusal of its lane, on every
    /// rank.
    pub fn reduce<K: Kernels>(&mut self, lanes: &mut [Lane<K>], route: &mut Route<'_, K>) -> Result<()> {
        for form in [ValueForm::F32, ValueForm::F16, ValueForm::Bf16] {
            self.values.clear();
            let mut places: Vec<(usize, Range<usize>)> = Vec::new();
            for (number, lane) in lanes.iter().enumerate() {
                let start = self.values.len();
                if lane.way == Way::Gathered && form_of(lane.compressor.recipe()).0 == form {
                    self.values.extend_from_slice(&lane.means);
                }
                if self.values.len() > start {
                    places.push((number, start..self.values.len()));
                }
            }
            if !places.is_empty() {
                self.reduce_places(lanes, route, &form, &places)?;
            }
        }
        Ok(())
    }

    fn reduce_places<K: Kernels>(
        &mut self,
        lanes: &mut [Lane<K>],
        route: &mut Route<'_, K>,
        form: &ValueForm,
        places: &[(usize, Range<usize>)],
    ) -> Result<()> {
        let precision = form.precision().unwrap_or(Precision::F32);
        let how = route.sum_algorithm(precision.width() * self.values.len());
        let ranks = route.group.size();
        let mut begun = Instant::now();
        if precision == Precision::F32 {
            route.group.all_reduce(Sum::F32(&mut self.values), how)?;
            let factor = 1.0 / ranks as f32;
            self.values.iter_mut().for_each(|sum| *sum *= factor);
        } else {
            let clipped = self.halves.round(form, &self.values, ranks)?;
            for (number, place) in places {
                let sent = &self.halves.sent()[place.clone()];
                lanes[*number].compressor.keep_dense_rest(route.kernels, sent)?;
            }
            lanes[places[0].0].report.clipped += clipped;
            begun = Instant::now();
            self.values.clear();
            self.halves.sum(route.group, how, precision, &mut self.values)?;
        }
        lanes[places[0].0].times.sum += begun.elapsed();
        for (number, place) in places {
            lanes[*number].accept_dense_means(form, &self.values[place.clone()]);
        }
        Ok(())
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * self.values.capacity() + self.halves.bytes()
    }
}

impl<K: Kernels> Lane<K> {
    /// Bytes of the dense layers that this step's frame would hold.
    pub fn dense_bytes_in_frame(&self, progress: Progress) -> Result<usize> {
        use crate::pipeline::Exchange;
        let (recipe, at) = (self.compressor.recipe(), self.assigned.progress(progress));
        let everything = self.compressor.is_dense(at) || self.quantizer(at)?.is_some();
        if recipe.exchange != Exchange::Gathered || everything {
            return Ok(0);
        }
        Ok(self.compressor.dense_len() * form_of(recipe).1.width())
    }

    /// Takes the dense layers out of the frame that is about to be written.
    pub(super) fn set_dense_apart(&mut self, kernels: &mut K) -> Result<()> {
        self.means.clear();
        self.means.extend_from_slice(self.compressor.set_dense_apart(kernels)?);
        Ok(())
    }

    /// Counts the dense layers that are not in the frame.
    pub(super) fn count_dense_apart(&mut self) {
        let bytes = self.means.len() * form_of(self.compressor.recipe()).1.width();
        self.report.value_bytes += bytes;
        self.report.frame_bytes += bytes;
        self.report.dense_bytes += bytes;
        self.report.reduced_bytes += bytes;
    }

    fn accept_dense_means(&mut self, form: &ValueForm, means: &[f32]) {
        self.means.copy_from_slice(means);
        if let Some(mean) = means.iter().find(|mean| !mean.is_finite()) {
            self.refusal = Some(Error::BadValues {
                form: form.name(),
                found: format!("a sum over all ranks of {mean}"),
                expected: "finite sums".into(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_pays_from_three_ranks_on_and_by_its_size() {
        assert!(!reduction_pays(1 << 30, 1) && !reduction_pays(1 << 30, 2));
        assert!(!reduction_pays(0, 8) && !reduction_pays(1000, 4));
        assert!(reduction_pays(7168, 4) && reduction_pays(216_480, 8));
        let least = |ranks| (0..1 << 20).find(|&bytes| reduction_pays(bytes, ranks)).unwrap();
        assert!(least(3) > least(4) && least(4) > least(8) && least(8) > least(64));
    }
}
