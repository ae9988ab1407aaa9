//! What a walk measures, and what it may find.

/// What one walk measures, in the same order of additions whatever the instruction set or thread count.
///
/// Sums are made in `f32` over a few hundred elements a lane and in `f64` beyond: values near the end of the
/// range of `f32` make a sum infinite, and squares of magnitudes below 1e-23 count as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Statistics {
    /// Number of elements.
    pub count: usize,
    /// Sum of the elements.
    pub sum: f64,
    /// Sum of their magnitudes.
    pub sum_magnitude: f64,
    /// Sum of their squares.
    pub sum_squares: f64,
    /// The largest element, or 0 when none is positive.
    pub max: f32,
    /// The lowest element, or 0 when none is negative.
    pub min: f32,
}

/// The sum of squares, in `f64`. By several sums at a time: one would wait for each addition.
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    let (rows, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for row in rows {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    let rest: f64 = rest.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    sums.iter().sum::<f64>() + rest
}

/// The sum of squares of the differences between two vectors of the same length, in `f64`.
pub(crate) fn sum_of_squared_differences(a: &[f32], b: &[f32]) -> f64 {
    const PIECE: usize = 256;
    let mut differences = [0.0; PIECE];
    let pieces = a.chunks(PIECE).zip(b.chunks(PIECE));
    pieces
        .map(|(a, b)| {
            let differences = &mut differences[..a.len()];
            differences.iter_mut().zip(a.iter().zip(b)).for_each(|(difference, (a, b))| *difference = a - b);
            sum_of_squares(differences)
        })
        .sum()
}

impl Statistics {
    /// The mean of the elements; 0 for none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The mean of the magnitudes; 0 for none.
    pub fn mean_magnitude(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_magnitude / self.count as f64 }
    }

    /// The largest magnitude.
    pub fn max_magnitude(&self) -> f32 {
        self.max.max(-self.min)
    }

    /// The sample deviation (divisor `count - 1`); 0 for fewer than two elements.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let spread = self.sum_squares - self.sum * self.sum / self.count as f64;
        (spread.max(0.0) / (self.count - 1) as f64).sqrt()
    }

    /// These elements and `later` ones together.
    pub fn merge(&mut self, later: &Statistics) {
        self.count += later.count;
        self.sum += later.sum;
        self.sum_magnitude += later.sum_magnitude;
        self.sum_squares += later.sum_squares;
        self.max = self.max.max(later.max);
        self.min = self.min.min(later.min);
    }
}

/// A non-finite value and where it stands in the bucket. The bucket's layer names make an
/// [`Error::NonFinite`](crate::Error::NonFinite) of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFinite {
    /// Position in the bucket.
    pub position: usize,
    /// The value found.
    pub value: f32,
}

/// Why a walk did not go well.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The vector holds a value that is not finite.
    #[error("{} at position {}", .0.value, .0.position)]
    NonFinite(NonFinite),
    /// The device failed.
    #[error(transparent)]
    Failed(#[from] crate::Error),
}

impl From<NonFinite> for Fault {
    fn from(found: NonFinite) -> Fault {
        Fault::NonFinite(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_the_sample_deviation() {
        let s = Statistics { count: 4, sum: 10.0, sum_squares: 30.0, ..Statistics::default() };
        assert!((s.deviation() - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
