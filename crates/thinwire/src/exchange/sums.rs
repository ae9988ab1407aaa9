//! Sums of vectors at the width in which a method's values travel.

use half::{bf16, f16};

use crate::Result;
use crate::codec::{ValueForm, value};
use crate::group::{Algorithm, Group, Precision, Sum};
use crate::kernels::statistics::sum_of_squared_differences;
use crate::pipeline::Recipe;

/// The form and the width in which a method's values are added up on the way.
pub(super) fn form_of(recipe: &Recipe) -> (ValueForm, Precision) {
    let form = recipe.dense_form();
    (form, form.precision().unwrap_or(Precision::F32))
}

/// One rank's values at half width, as they are added up; kept for its memory.
///
/// Each is divided by the number of ranks before it is rounded, so that the sum is the mean, and cut to that part
/// of the largest number, so that the sum can't leave the range whatever the others have.
#[derive(Debug, Default)]
pub(super) struct Halves {
    words: Vec<u16>,
    bytes: Vec<u8>,
    /// What the others will read of this rank's values.
    sent: Vec<f32>,
    /// The sum of squares of what they will not.
    lost: f64,
}

impl Halves {
    /// Rounds; says how many values were cut.
    pub fn round(&mut self, form: &ValueForm, values: &[f32], ranks: usize) -> Result<usize> {
        let ranks = ranks as f32;
        let most = if *form == ValueForm::F16 { f16::MAX.to_f32() } else { bf16::MAX.to_f32() } / ranks;
        let mut cut = 0;
        self.sent.clear();
        self.sent.extend(values.iter().map(|value| {
            let part = value / ranks;
            cut += (part.abs() > most) as usize;
            part.clamp(-most, most)
        }));
        self.bytes.clear();
        value::encode(form, &self.sent, &mut self.bytes)?;
        value::decode(form, &self.bytes, values.len(), &mut self.sent)?;
        self.sent.iter_mut().for_each(|part| *part *= ranks);
        self.lost = sum_of_squared_differences(values, &self.sent);
        self.words.clear();
        self.words.extend(self.bytes.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)));
        Ok(cut)
    }

    /// What the others will read of this rank's values, at their own scale.
    pub fn sent(&self) -> &[f32] {
        &self.sent
    }

    /// The sum of squares of what this rank's values lost by rounding.
    pub fn lost(&self) -> f64 {
        self.lost
    }

    /// Nothing but zeros, from a rank that has nothing to give.
    pub fn zeros(&mut self, count: usize) {
        self.words.clear();
        self.words.resize(count, 0);
    }

    /// One more value behind the others, as it is.
    pub fn push(&mut self, precision: Precision, value: f32) {
        self.words.push(match precision {
            Precision::Bf16 => bf16::from_f32(value).to_bits(),
            _ => f16::from_f32(value).to_bits(),
        });
    }

    /// Adds up over all ranks, and puts the means onto the end of `means`.
    pub fn sum(
        &mut self,
        group: &mut dyn Group,
        how: Algorithm,
        precision: Precision,
        means: &mut Vec<f32>,
    ) -> Result<()> {
        if let Some(sum) = Sum::of_words(precision, &mut self.words) {
            group.all_reduce(sum, how)?;
        }
        match precision {
            Precision::Bf16 => means.extend(self.words.iter().map(|&word| bf16::from_bits(word).to_f32())),
            _ => means.extend(self.words.iter().map(|&word| f16::from_bits(word).to_f32())),
        }
        Ok(())
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        2 * self.words.capacity() + self.bytes.capacity() + 4 * self.sent.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_ranks_can_leave_the_range() {
        let mut halves = Halves::default();
        let values = [1.0, -3e38, 65504.0, 1e-3];
        assert_eq!(halves.round(&ValueForm::F16, &values, 5).unwrap(), 1);
        let largest =
            halves.words.iter().map(|&word| f16::from_bits(word).to_f32().abs()).fold(0.0, f32::max);
        assert!(5.0 * largest <= f16::MAX.to_f32() * 1.001, "{largest}");
        assert!((halves.sent()[0] - 1.0).abs() < 1e-3 && (halves.sent()[2] / 65504.0 - 1.0).abs() < 1e-3);
        assert!(halves.round(&ValueForm::Bf16, &[f32::MAX; 3], 4).is_ok());
        assert!(halves.round(&ValueForm::F16, &[f32::NAN], 2).is_err());
    }
}
