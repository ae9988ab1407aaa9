//! Sums of vectors at the width in which a method's values travel.

use half::{bf16, f16};

use super::lane::Route;
use crate::Result;
use crate::codec::{ValueForm, value};
use crate::group::{Precision, Sum};
use crate::pipeline::ValuePlan;

/// The form and the width in which a method's values are added up on the way.
pub(super) fn form_of(plan: &ValuePlan) -> (ValueForm, Precision) {
    let form = plan.dense_form();
    (form, form.precision().unwrap_or(Precision::F32))
}

/// Rounds values to half width, as words, through `bytes`; says how many were beyond its range.
pub(super) fn round(
    form: &ValueForm,
    values: &[f32],
    bytes: &mut Vec<u8>,
    words: &mut Vec<u16>,
) -> Result<usize> {
    bytes.clear();
    let clipped = value::encode(form, values, bytes)?;
    words.clear();
    words.extend(bytes.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)));
    Ok(clipped)
}

/// Sums words over all ranks and widens the result onto the end of `sums`.
pub(super) fn sum_words(
    route: &mut Route<'_>,
    precision: Precision,
    words: &mut [u16],
    sums: &mut Vec<f32>,
) -> Result<()> {
    let how = route.algorithm_for(2 * words.len());
    if let Some(sum) = Sum::of_words(precision, words) {
        route.group.all_reduce(sum, how)?;
    }
    match precision {
        Precision::Bf16 => sums.extend(words.iter().map(|&word| bf16::from_bits(word).to_f32())),
        _ => sums.extend(words.iter().map(|&word| f16::from_bits(word).to_f32())),
    }
    Ok(())
}
