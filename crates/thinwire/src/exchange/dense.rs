//! All-reduce of the whole gradient, in place.

use super::lane::{Lane, Route, Situation, Way};
use super::sums::form_of;
use crate::Result;
use crate::codec::value::finite_or_position;
use crate::group::{Algorithm, Group, Precision, Sum};
use crate::kernels::{Fault, Kernels, NonFinite};
use crate::pipeline::{Report, fault_in};

impl<K: Kernels> Lane<K> {
    /// A rank whose gradient is not right sends zeros; nobody sees that from the sum, so the step needs a verdict.
    pub(super) fn travel_dense(
        &mut self,
        route: &mut Route<'_, K>,
        situation: &Situation,
        gradient: &mut K::Gradient,
    ) -> Result<bool> {
        self.way = Way::Dense;
        let (_, precision) = form_of(self.compressor.recipe());
        let how = route.sum_algorithm(self.compressor.bucket().len() * precision.width());
        match self.check(route.kernels, situation.share, gradient) {
            Ok(()) => {
                let staged = route.kernels.stage(situation.share, gradient)?;
                self.sum_dense(route.group, how, staged)?;
                route.kernels.unstage(gradient)?;
            }
            Err(error) => {
                self.refuse(error)?;
                let mut stand_in = vec![0.0; self.compressor.bucket().len()];
                if let Err(error) = self.sum_dense(route.group, how, &mut stand_in) {
                    // A group over another engine may still be busy with the memory of a sum that failed.
                    std::mem::forget(stand_in);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Whether the gradient is one to send, with this rank's share as a factor.
    fn check(&mut self, kernels: &mut K, share: f32, gradient: &K::Gradient) -> Result<()> {
        let bucket = self.compressor.bucket();
        bucket.check_len("gradient", K::elements(gradient))?;
        let measured = kernels.statistics(gradient, &[0..bucket.len()]);
        let energy = measured.map_err(|fault| fault_in(bucket, "gradient", fault))?.sum_squares;
        let energy = energy * f64::from(share).powi(2);
        let elements = bucket.len();
        self.report = Report { elements, dense: elements, energy, energy_sent: energy, ..Report::default() };
        Ok(())
    }

    /// Puts the mean over all ranks in the place of `values`.
    fn sum_dense(&mut self, group: &mut dyn Group, how: Algorithm, values: &mut [f32]) -> Result<()> {
        let (form, precision) = form_of(self.compressor.recipe());
        let bytes = values.len() * precision.width();
        (self.report.values, self.report.value_bytes, self.report.frame_bytes) = (values.len(), bytes, bytes);
        self.report.dense_bytes = bytes;
        let ranks = group.size();
        if precision == Precision::F32 {
            self.timed_sum(|_| group.all_reduce(Sum::F32(values), how))?;
        } else {
            match self.halves.round(&form, values, ranks) {
                Ok(clipped) => {
                    self.report.clipped = clipped;
                    self.report.energy_sent = (self.report.energy_sent - self.halves.lost()).max(0.0);
                }
                Err(error) => {
                    self.refusal.get_or_insert(error);
                    self.halves.zeros(values.len());
                }
            }
            let mut means = std::mem::take(&mut self.means);
            means.clear();
            self.timed_sum(|lane| lane.halves.sum(group, how, precision, &mut means))?;
            values.copy_from_slice(&means);
            self.means = means;
        }
        // At half width the sum is the mean already.
        let factor = if precision == Precision::F32 { 1.0 / ranks as f32 } else { 1.0 };
        if let Err(position) = finish(values, factor) {
            // The same on every rank, so that all of them skip the step.
            let fault = Fault::NonFinite(NonFinite { position, value: values[position] });
            let bucket = self.compressor.bucket();
            self.refusal.get_or_insert_with(|| fault_in(bucket, "the sum over all ranks", fault));
        }
        Ok(())
    }
}

/// Multiplies by `factor`; fails with the position of the first result that is not finite. Piece by piece, so that the
/// vector passes through the cache once for both.
fn finish(sums: &mut [f32], factor: f32) -> Result<(), usize> {
    const PIECE: usize = 4096;
    for (number, piece) in sums.chunks_mut(PIECE).enumerate() {
        piece.iter_mut().for_each(|sum| *sum *= factor);
        finite_or_position(piece).map_err(|position| number * PIECE + position)?;
    }
    Ok(())
}
