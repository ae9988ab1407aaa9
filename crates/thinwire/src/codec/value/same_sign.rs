//! Values of one sign, sent as their mean (the quantisation of RedSync).

use super::{finite_or_position, not_finite};
use crate::{Error, Result};

/// Appends the mean of `values`, which must all be at least zero or all at most zero. No values, no bytes.
pub(super) fn encode(values: &[f32], out: &mut Vec<u8>) -> Result<()> {
    let positive = values.iter().position(|&value| value > 0.0);
    let negative = values.iter().position(|&value| value < 0.0);
    if let (Some(positive), Some(negative)) = (positive, negative) {
        return Err(Error::BadValues {
            form: "same-sign",
            found: format!(
                "{} at position {positive} and {} at position {negative}",
                values[positive], values[negative]
            ),
            expected: "values of one sign".into(),
        });
    }
    if !values.is_empty() {
        let sum: f64 = values.iter().map(|&value| f64::from(value)).sum();
        out.extend_from_slice(&((sum / values.len() as f64) as f32).to_le_bytes());
    }
    Ok(())
}

/// Repeats the mean `count` times into an empty `out`; the caller has checked the length of `bytes`.
pub(super) fn decode(bytes: &[u8], count: usize, out: &mut Vec<f32>) -> Result<()> {
    if let Some(chunk) = bytes.first_chunk::<4>() {
        let mean = f32::from_le_bytes(*chunk);
        finite_or_position(&[mean]).map_err(|position| not_finite(mean, position))?;
        out.resize(count, mean);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{ValueForm, decode, encode, encoded_len};
    use crate::Error;

    fn round_trip(values: &[f32]) -> Vec<f32> {
        let (mut bytes, mut back) = (Vec::new(), vec![1.0]);
        assert_eq!(encode(&ValueForm::SameSign, values, &mut bytes).unwrap(), 0);
        assert_eq!(bytes.len(), encoded_len(&ValueForm::SameSign, values.len()));
        decode(&ValueForm::SameSign, &bytes, values.len(), &mut back).unwrap();
        back
    }

    #[test]
    fn the_mean_is_repeated() {
        assert_eq!(round_trip(&[1.0, 2.0, 6.0]), [3.0; 3]);
        assert_eq!(round_trip(&[-1.0, -2.0, 0.0]), [-1.0; 3]);
        assert_eq!(round_trip(&[0.0, -0.0]), [0.0; 2]);
        assert!(round_trip(&[]).is_empty());
        // A 32-bit sum would overflow or stop counting.
        assert_eq!(round_trip(&[f32::MAX; 5]), [f32::MAX; 5]);
        assert_eq!(round_trip(&vec![1.0; 20_000_000])[0], 1.0);
    }

    #[test]
    fn mixed_signs_are_refused() {
        let mut out = vec![5];
        let error = encode(&ValueForm::SameSign, &[1.0, 0.0, -1e-30], &mut out).unwrap_err();
        assert!(matches!(&error, Error::BadValues { found, .. } if found.contains("position 2")), "{error}");
        assert_eq!(out, [5]);
    }

    #[test]
    fn bad_bytes_are_refused() {
        let mut out = Vec::new();
        for (bytes, count) in
            [(&[][..], 1), (&[0, 0, 128], 1), (&[0, 0, 128, 63, 0], 1), (&[0, 0, 128, 63], 0)]
        {
            assert!(decode(&ValueForm::SameSign, bytes, count, &mut out).is_err());
        }
        assert!(decode(&ValueForm::SameSign, &f32::NAN.to_le_bytes(), 3, &mut out).is_err());
        assert!(out.is_empty());
    }
}
