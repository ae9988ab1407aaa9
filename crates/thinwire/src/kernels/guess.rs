//! Where the best elements will begin, learnt from the step before.

/// What is remembered from one step to the next about where the `expect` best elements of a unit begin.
/// It saves time only: the result never depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// Collect from this score on; 0 when nothing is known.
    pub floor: f32,
    /// Local steepness of the tail: `count above t` falls like `t^-steepness`.
    pub steepness: f32,
    /// Aim at this many times the elements needed.
    pub margin: f32,
}

impl Default for Guess {
    fn default() -> Self {
        Guess { floor: 0.0, steepness: 4.0, margin: Guess::MARGIN }
    }
}

impl Guess {
    const MARGIN: f32 = 1.25;
    const MOST_MARGIN: f32 = 3.0;

    /// Learns from a step in which `needed` elements had to be at hand, `count` of them from `score` on, while
    /// `found` had been collected from `floor` on. `missed` says that the guess had been too high.
    ///
    /// Through the two known points the tail is taken as a straight line in log-log, which a local piece of
    /// any smooth tail is; its slope is remembered for steps in which the points are too close.
    pub fn learn(
        &mut self,
        needed: usize,
        (count, score): (usize, f32),
        (found, floor): (usize, f32),
        missed: bool,
    ) {
        if count == 0 || score <= 0.0 || !score.is_finite() {
            *self = Guess::default();
            return;
        }
        self.margin = if missed {
            (self.margin * 1.5).min(Guess::MOST_MARGIN)
        } else {
            Guess::MARGIN + (self.margin - Guess::MARGIN) * 0.9
        };
        let more = (found as f32 / count as f32).ln();
        let lower = (score / floor.max(f32::MIN_POSITIVE)).ln();
        if more > 0.05 && lower > 1e-4 {
            self.steepness = (more / lower).clamp(0.5, 64.0);
        }
        // A few dozen elements more, so that small units do not miss by chance.
        let aim = (self.margin * needed.max(count) as f32 + 48.0) / count as f32;
        self.floor = score * aim.powf(-1.0 / self.steepness);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_follows_a_power_law_tail() {
        // count above t = 1000 t^-3, so 1250 elements begin at 0.8^(1/3).
        let mut guess = Guess::default();
        guess.learn(1000, (1000, 1.0), (2000, 2f32.powf(-1.0 / 3.0)), false);
        assert!((guess.steepness - 3.0).abs() < 1e-3);
        let count = 1000.0 * guess.floor.powf(-3.0);
        assert!((1250.0..1320.0).contains(&count), "{count}");
    }

    #[test]
    fn a_miss_widens_the_margin_and_time_narrows_it() {
        let mut guess = Guess::default();
        guess.learn(1000, (1000, 1.0), (1200, 0.9), true);
        assert!(guess.margin > 1.8);
        for _ in 0..50 {
            guess.learn(1000, (1000, 1.0), (1200, 0.9), false);
        }
        assert!(guess.margin < 1.26);
    }
}
