//! All-reduce of the whole gradient, in place.

use super::lane::{Lane, Route, Situation, Way};
use super::sums::form_of;
use crate::Result;
use crate::codec::value::finite_or_position;
use crate::group::{Precision, Sum};
use crate::kernels::{Cpu, Kernels, NonFinite};
use crate::pipeline::{Report, non_finite};

impl Lane {
    /// A rank whose gradient is not right sends what it has, or zeros; nobody sees that from the sum, so the
    /// step needs a verdict.
    pub(super) fn travel_dense(
        &mut self,
        route: &mut Route<'_>,
        situation: &Situation,
        gradient: &mut [f32],
    ) -> Result<bool> {
        self.way = Way::Dense;
        let mut stand_in = Vec::new();
        let gradient = match self.check(route.cpu, gradient) {
            Ok(()) => gradient,
            Err(error) => {
                self.refusal = Some(error);
                stand_in.resize(self.compressor.bucket().len(), 0.0);
                &mut stand_in
            }
        };
        if situation.share != 1.0 {
            gradient.iter_mut().for_each(|x| *x *= situation.share);
        }
        let (form, precision) = form_of(&self.compressor.recipe().values);
        let bytes = gradient.len() * precision.width();
        (self.report.values, self.report.value_bytes, self.report.frame_bytes) =
            (gradient.len(), bytes, bytes);
        let ranks = route.group.size();
        if precision == Precision::F32 {
            let how = route.algorithm_for(bytes);
            let summed = self.timed(|_| route.group.all_reduce(Sum::F32(gradient), how));
            if let Err(error) = summed {
                // A group over another engine may still be busy with the memory of a sum that failed.
                std::mem::forget(stand_in);
                return Err(error);
            }
        } else {
            match self.halves.round(&form, gradient, ranks) {
                Ok(clipped) => self.report.clipped = clipped,
                Err(error) => {
                    self.refusal.get_or_insert(error);
                    self.halves.zeros(gradient.len());
                }
            }
            let mut means = std::mem::take(&mut self.means);
            means.clear();
            self.timed(|lane| lane.halves.sum(route, precision, &mut means))?;
            gradient.copy_from_slice(&means);
            self.means = means;
        }
        // At half width the sum is the mean already.
        let factor = if precision == Precision::F32 { 1.0 / ranks as f32 } else { 1.0 };
        if let Err(position) = finish(gradient, factor) {
            // The same on every rank, so that all of them skip the step.
            let found = NonFinite { position, value: gradient[position] };
            let bucket = self.compressor.bucket();
            self.refusal.get_or_insert_with(|| non_finite(bucket, "the sum over all ranks", found));
        }
        Ok(true)
    }

    /// Whether the gradient is one to send.
    fn check(&mut self, cpu: &mut Cpu, gradient: &[f32]) -> Result<()> {
        let bucket = self.compressor.bucket();
        bucket.check_len("gradient", gradient.len())?;
        let measured = cpu.statistics(gradient, &[0..bucket.len()]);
        let energy = measured.map_err(|found| non_finite(bucket, "gradient", found))?.sum_squares;
        let elements = bucket.len();
        self.report = Report { elements, dense: elements, energy, energy_sent: energy, ..Report::default() };
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
