//! An axis: where a value lies on it, and the marks along it.

use super::number::{Unit, digits};

/// Nothing that is measured is larger; beyond it, the ends of an axis could no longer be told apart.
const LARGEST: f64 = 1e60;

/// A linear or logarithmic axis.
#[derive(Debug, Clone)]
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
    unit: Unit,
    label: String,
    /// What values are divided by before they are written; seconds may be shown as minutes.
    divisor: f64,
    /// The smallest distance of marks; 1 where only whole numbers mean something.
    least: f64,
}

impl Axis {
    /// A linear axis that holds all finite values of `values`, with a little air; `label` without the unit.
    pub(crate) fn linear(values: impl Iterator<Item = f64>, unit: Unit, label: &str) -> Axis {
        let (low, high) = span(values.filter(|value| value.is_finite())).unwrap_or((0.0, 1.0));
        let (low, high) = (low.clamp(-LARGEST, LARGEST), high.clamp(-LARGEST, LARGEST));
        let size = if high > low { high - low } else { high.abs().max(1e-9) };
        // An axis that nearly touches zero had better begin there.
        let bottom = if low >= 0.0 && low < 0.25 * high { 0.0 } else { low - 0.05 * size };
        Axis::new(bottom, high + 0.05 * size, false, unit, label)
    }

    /// A linear axis with the given ends.
    pub(crate) fn fixed(low: f64, high: f64, unit: Unit, label: &str) -> Axis {
        let (low, high) = (low.clamp(-LARGEST, LARGEST), high.clamp(-LARGEST, LARGEST));
        Axis::new(low, if high > low { high } else { low + low.abs().max(1.0) }, false, unit, label)
    }

    /// A linear axis of things that are counted: its marks are whole numbers.
    pub(crate) fn counted(low: f64, high: f64, label: &str) -> Axis {
        Axis { least: 1.0, ..Axis::fixed(low, high, Unit::Plain, label) }
    }

    /// A logarithmic axis that holds all positive finite values of `values`.
    pub fn log(values: impl Iterator<Item = f64>, unit: Unit, label: &str) -> Axis {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = span(positive).unwrap_or((1.0, 10.0));
        let (low, high) = (low.clamp(1.0 / LARGEST, LARGEST), high.clamp(1.0 / LARGEST, LARGEST));
        let air = (high / low).powf(0.05).max(1.05);
        Axis::new(low / air, high * air, true, unit, label)
    }

    /// Logarithmic where the values span more than a factor of twenty, linear otherwise.
    pub fn fitting(values: impl Iterator<Item = f64>, unit: Unit, label: &str) -> Axis {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        match span(values.iter().copied()) {
            Some((low, high)) if low > 0.0 && high > 20.0 * low => Axis::log(values.into_iter(), unit, label),
            _ => Axis::linear(values.into_iter(), unit, label),
        }
    }

    fn new(low: f64, high: f64, log: bool, unit: Unit, label: &str) -> Axis {
        let (divisor, name) = match unit {
            // Powers of ten in seconds would be odd numbers of minutes.
            Unit::Seconds if high >= 7200.0 && !log => (3600.0, Some("h")),
            Unit::Seconds if high >= 300.0 && !log => (60.0, Some("min")),
            Unit::Seconds if high >= 0.5 => (1.0, Some("s")),
            Unit::Seconds => (1e-3, Some("ms")),
            Unit::Share => (0.01, Some("%")),
            _ => (1.0, None),
        };
        let label = name.map_or(label.into(), |name| format!("{label} ({name})"));
        Axis { low, high, log, unit, label, divisor, least: 0.0 }
    }

    /// What it shows, with the unit.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The ends.
    pub(crate) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Where the value lies: 0 at the lower end, 1 at the upper, beyond them outside. `None` if it is not a number;
    /// what a logarithmic axis can't show lies below its lower end.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        if value.is_nan() {
            return None;
        }
        let place = match self.log {
            true if value <= 0.0 => -1.0,
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        Some(place.clamp(-1.0, 2.0))
    }

    /// The marks along it: their values and what is written at them. `count` is about how many there is room for.
    pub(crate) fn marks(&self, count: usize) -> Vec<(f64, String)> {
        let marks = if self.log { self.log_marks(count) } else { self.even_marks(count) };
        marks.into_iter().map(|value| (value, self.mark(value))).collect()
    }

    fn log_marks(&self, count: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().ceil() as i32, self.high.log10().floor() as i32);
        let decades = last - first + 1;
        let within = |value: &f64| *value >= self.low && *value <= self.high;
        let of = |steps: &[f64]| -> Vec<f64> {
            let all =
                (first - 1..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            all.filter(within).collect()
        };
        if decades >= 3 {
            let stride = (decades as usize).div_ceil(count.max(1)).max(1);
            return (first..=last).step_by(stride).map(|power| 10f64.powi(power)).collect();
        }
        let finer = of(&[1.0, 2.0, 5.0]);
        if finer.len() >= 3 { finer } else { self.even_marks(count) }
    }

    /// Marks at multiples of 1, 2 or 5 times a power of ten, in the unit that is written.
    fn even_marks(&self, count: usize) -> Vec<f64> {
        let (low, high) = (self.low / self.divisor, self.high / self.divisor);
        let rough = ((high - low) / count.max(1) as f64).max(self.least);
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= 0.8 * rough);
        let step = step.unwrap_or(10.0 * power);
        if !(step.is_finite() && step > 0.0) {
            return Vec::new();
        }
        let first = (low / step).ceil();
        let last = ((high / step) + 1e-9).floor();
        let marks = (0..=(last - first).clamp(0.0, 50.0) as usize).map(|number| first + number as f64);
        marks.map(|multiple| multiple * step * self.divisor).collect()
    }

    fn mark(&self, value: f64) -> String {
        let shown = value / self.divisor;
        match self.unit {
            Unit::Seconds | Unit::Share => digits(shown),
            unit => unit.text(shown),
        }
    }
}

/// The smallest and the largest value.
pub(crate) fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |span, value| match span {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<String> {
        axis.marks(5).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(
            texts(&Axis::fixed(0.0, 1000.0, Unit::Plain, "steps")),
            ["0", "200", "400", "600", "800", "1 k"]
        );
        assert_eq!(
            texts(&Axis::fixed(0.0, 1.0, Unit::Share, "accuracy")),
            ["0", "20", "40", "60", "80", "100"]
        );
        let axis = Axis::fixed(0.0, 600.0, Unit::Seconds, "time");
        assert_eq!((texts(&axis).join(" "), axis.label()), ("0 2 4 6 8 10".into(), "time (min)"));
        assert_eq!(texts(&Axis::counted(1.0, 4.0, "workers")), ["1", "2", "3", "4"]);
        let axis = Axis::log([1e3, 1e9].into_iter(), Unit::Bytes, "sent");
        assert!(texts(&axis).contains(&"10 MB".into()), "{:?}", texts(&axis));
        let axis = Axis::log([1.0, 1e4].into_iter(), Unit::Seconds, "step");
        assert_eq!((texts(&axis).join(" "), axis.label()), ("1 10 100 1000 10000".into(), "step (s)"));
    }

    #[test]
    fn places_are_parts_of_the_axis() {
        let axis = Axis::fixed(0.0, 10.0, Unit::Plain, "");
        assert_eq!((axis.place(5.0), axis.place(f64::NAN)), (Some(0.5), None));
        assert_eq!(axis.place(f64::INFINITY), Some(2.0));
        let axis = Axis::log([1.0, 100.0].into_iter(), Unit::Plain, "");
        assert!((axis.place(10.0).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(axis.place(0.0), Some(-1.0));
    }

    #[test]
    fn axes_of_nothing_or_of_one_value_still_have_a_length() {
        for values in [
            vec![],
            vec![0.0],
            vec![3.0],
            vec![f64::NAN],
            vec![-2.0],
            vec![1e-30],
            vec![1e30, 1e-30],
            vec![1e308, -1e308],
            vec![1e-308],
            vec![-1e308],
        ] {
            for make in [Axis::linear, Axis::log, Axis::fitting] {
                let axis = make(values.clone().into_iter(), Unit::Plain, "");
                assert!(axis.low < axis.high, "{axis:?}");
                assert!(axis.marks(5).len() < 60);
            }
        }
    }
}
