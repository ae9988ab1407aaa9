//! Gaussian-k (Shi, Chu, Cheung, See: Understanding Top-k Sparsification, 2019).

use super::{Select, Survey, keep_held, window};

/// Takes the accumulated gradient for normally distributed and reads the threshold of the largest `k` off
/// its mean and deviation; up to three corrections by ×0.5 or ×1.5 when the count misses `[2k/3, 4k/3]`.
///
/// The paper's rule fits bell shapes. On others it may send everything, nothing, or several times `k`
/// (a uniform vector: nothing at all); then, and whenever three corrections did not help, this selector
/// keeps exactly `k`. `as_published` leaves the paper's outcome as it is.
///
/// ```
/// use thinwire::select::normal_quantile;
/// assert!((normal_quantile(0.001 / 2.0) + 3.2905).abs() < 1e-4);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct GaussianK {
    /// The paper's own behaviour, whatever the count.
    pub as_published: bool,
}

impl GaussianK {
    const CORRECTIONS: usize = 3;
}

impl Select for GaussianK {
    fn fresh(&self) -> Box<dyn Select> {
        Box::new(*self)
    }

    fn select(&mut self, survey: &mut dyn Survey, k: usize, _step: u64) {
        let statistics = survey.statistics();
        let density = k as f64 / statistics.count as f64;
        let mut threshold =
            (statistics.mean() - normal_quantile(density / 2.0) * statistics.deviation()) as f32;
        // The published window is 2k/3 to 4k/3 as real numbers, both ends included.
        let (low, high) = (*window(k).start(), *window(k).end());
        let enough = if self.as_published { survey.len() } else { high };
        let mut used = threshold;
        for _ in 0..Self::CORRECTIONS {
            used = threshold;
            let count = survey.count_above(threshold, enough);
            if count < low {
                threshold *= 0.5;
            } else if count > high {
                threshold *= 1.5;
            } else {
                break;
            }
        }
        if self.as_published {
            // After the third miss the paper's code corrects the threshold but sends the last selection.
            survey.keep_above(used);
        } else {
            keep_held(survey, used, k);
        }
    }
}

/// The quantile function of the standard normal distribution, `Φ⁻¹(p)`.
///
/// Wichura's algorithm AS 241 (PPND16), accurate to about 1e-16.
pub fn normal_quantile(p: f64) -> f64 {
    fn ratio(x: f64, upper: [f64; 8], lower: [f64; 7]) -> f64 {
        let numerator = upper.iter().rev().fold(0.0, |sum, c| sum * x + c);
        let denominator = lower.iter().rev().fold(0.0, |sum, c| sum * x + c) * x + 1.0;
        numerator / denominator
    }
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(
            0.180625 - q * q,
            [
                3.387_132_872_796_366_5,
                1.331_416_678_917_843_8e2,
                1.971_590_950_306_551_3e3,
                1.373_169_376_550_946e4,
                4.592_195_393_154_987e4,
                6.726_577_092_700_87e4,
                3.343_057_558_358_813e4,
                2.509_080_928_730_122_7e3,
            ],
            [
                4.231_333_070_160_091e1,
                6.871_870_074_920_579e2,
                5.394_196_021_424_751e3,
                2.121_379_430_158_659_7e4,
                3.930_789_580_009_271e4,
                2.872_908_573_572_194_3e4,
                5.226_495_278_852_545e3,
            ],
        );
    }
    let r = (-p.min(1.0 - p).ln()).sqrt();
    let magnitude = if r <= 5.0 {
        ratio(
            r - 1.6,
            [
                1.423_437_110_749_683_5,
                4.630_337_846_156_546,
                5.769_497_221_460_691,
                3.647_848_324_763_204_5,
                1.270_458_252_452_368_4,
                2.417_807_251_774_506e-1,
                2.272_384_498_926_918_4e-2,
                7.745_450_142_783_414e-4,
            ],
            [
                2.053_191_626_637_759,
                1.676_384_830_183_803_8,
                6.897_673_349_851e-1,
                1.481_039_764_274_800_8e-1,
                1.519_866_656_361_645_7e-2,
                5.475_938_084_995_345e-4,
                1.050_750_071_644_416_9e-9,
            ],
        )
    } else {
        ratio(
            r - 5.0,
            [
                6.657_904_643_501_103,
                5.463_784_911_164_114,
                1.784_826_539_917_291_3,
                2.965_605_718_285_048_7e-1,
                2.653_218_952_657_612_4e-2,
                1.242_660_947_388_078_4e-3,
                2.711_555_568_743_487_6e-5,
                2.010_334_399_292_288_1e-7,
            ],
            [
                5.998_322_065_558_88e-1,
                1.369_298_809_227_358e-1,
                1.487_536_129_085_061_5e-2,
                7.868_691_311_456_133e-4,
                1.846_318_317_510_054_8e-5,
                1.421_511_758_316_446e-7,
                2.044_263_103_389_939_8e-15,
            ],
        )
    };
    magnitude.copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_normal_distribution() {
        for (density, z) in [(0.1, 1.6449), (0.05, 1.9600), (0.01, 2.5758), (0.001, 3.2905), (1e-4, 3.8906)] {
            assert!((normal_quantile(density / 2.0) + z).abs() < 5e-5, "{density}");
        }
        assert_eq!(normal_quantile(0.5), 0.0);
        for p in [1e-12, 1e-6, 0.01, 0.3] {
            assert!((normal_quantile(p) + normal_quantile(1.0 - p)).abs() < 1e-4);
        }
        assert!((normal_quantile(1e-12) + 7.034_483_8).abs() < 1e-6);
    }
}
