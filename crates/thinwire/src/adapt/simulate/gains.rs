//! What a density sends of a made-up gradient.

use crate::adapt::gain::{Curve, LADDER};

/// Gains that follow a power law, whose exponent drifts over the run and jumps where a learning rate would drop.
///
/// A step of density c sends c^p of the accumulated gradient's energy. For p near 0 a few elements hold everything, for
/// 1 all are alike. Real gradients measured by `auto` lie around 0.2 to 0.5; with training they get flatter, and
/// when the learning rate drops the gain changes at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Gains {
    /// The exponent when the run begins.
    pub exponent: f64,
    /// What it grows by over the run.
    pub drift: f64,
    /// At which parts of the run it jumps, and by which factor.
    pub jumps: Vec<(f64, f64)>,
}

impl Default for Gains {
    /// From 0.3 by a tenth, and a tenth more after each half of what is left: at 1/2 and 3/4 of the run.
    fn default() -> Gains {
        Gains { exponent: 0.3, drift: 0.03, jumps: vec![(0.5, 1.1), (0.75, 1.1)] }
    }
}

impl Gains {
    /// The exponent after a part of the run.
    pub fn exponent(&self, part: f64) -> f64 {
        let jumps = self.jumps.iter().filter(|(at, _)| *at <= part).map(|(_, factor)| factor);
        (self.exponent + self.drift * part) * jumps.product::<f64>()
    }

    /// The gains after a part of the run.
    pub fn curve(&self, part: f64) -> Curve {
        let exponent = self.exponent(part);
        Curve::new(LADDER.map(|density| density.powf(exponent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_drift_and_jump() {
        let gains = Gains { exponent: 0.3, drift: 0.1, jumps: vec![(0.5, 2.0)] };
        assert!((gains.exponent(0.25) - 0.325).abs() < 1e-12);
        assert!((gains.exponent(0.5) - 0.7).abs() < 1e-12);
        assert!((gains.curve(0.0).at(0.02) - 0.02f64.powf(0.3)).abs() < 1e-9);
    }
}
