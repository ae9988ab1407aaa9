//! Numbers as people read them: three significant digits, SI prefixes, units.

/// What a number counts; decides how it is written on an axis and in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A bare number.
    Plain,
    /// Bytes, with decimal prefixes.
    Bytes,
    /// Seconds, minutes or hours.
    Seconds,
    /// A part of one, written in percent.
    Share,
    /// A multiple, written with a cross.
    Times,
}

impl Unit {
    /// The number with its unit; a dash if it is not a number.
    pub(crate) fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".into();
        }
        match self {
            Unit::Plain => prefixed(value, ""),
            Unit::Bytes => prefixed(value, "B"),
            Unit::Seconds => duration(value),
            Unit::Share => format!("{} %", digits(value * 100.0)),
            Unit::Times => format!("{}×", prefixed(value, "")),
        }
    }
}

/// Larger numbers are no measurements, and written out they would fill lines.
const LARGEST: f64 = 1e12;

/// The value with its spread over seeds, if there is one: `91.2 ± 0.3 %`.
pub(crate) fn with_spread(unit: Unit, value: f64, spread: Option<f64>) -> String {
    match spread.filter(|spread| spread.abs() < LARGEST && value.abs() < LARGEST) {
        None => unit.text(value),
        Some(spread) if unit == Unit::Share => {
            format!("{:.2} ± {:.2} %", value * 100.0, spread * 100.0)
        }
        Some(spread) if unit == Unit::Seconds => {
            let (size, name) = scale(value);
            let (value, spread) = (value / size, spread / size);
            // As many decimals as the first two digits of the spread need, and no more than two.
            let decimals =
                if spread > 0.0 { (1 - spread.log10().floor() as i32).clamp(0, 2) as usize } else { 2 };
            format!("{value:.decimals$} ± {spread:.decimals$} {name}")
        }
        Some(spread) => format!("{} ± {}", unit.text(value), unit.text(spread)),
    }
}

/// A test measure, with enough digits to compare runs.
pub(crate) fn measure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Share if value.abs() < LARGEST => format!("{:.2} %", value * 100.0),
        _ => unit.text(value),
    }
}

/// A whole number with thin spaces between groups of three digits.
pub(crate) fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// So many things: `1 bucket`, `2 buckets`.
pub(crate) fn counted(count: &str, thing: &str) -> String {
    format!("{count} {thing}{}", if count == "1" { "" } else { "s" })
}

/// Three significant digits without trailing zeros.
pub(crate) fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { "–".into() };
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-6..15).contains(&magnitude) {
        return format!("{value:.1e}");
    }
    let decimals = (2 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

fn prefixed(value: f64, unit: &str) -> String {
    const LARGE: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut prefix = 0;
    let mut shown = value;
    // 999.6 would be rounded to 1000 of the smaller prefix.
    while shown.abs() >= 999.5 && prefix + 1 < LARGE.len() {
        shown /= 1000.0;
        prefix += 1;
    }
    let space = if unit.is_empty() && prefix == 0 { "" } else { " " };
    format!("{}{space}{}{unit}", digits(shown), LARGE[prefix])
}

fn duration(seconds: f64) -> String {
    if seconds == 0.0 {
        return "0 s".into();
    }
    let (size, name) = scale(seconds);
    format!("{} {name}", digits(seconds / size))
}

/// The unit in which so many seconds are read best: its size in seconds, and its name.
fn scale(seconds: f64) -> (f64, &'static str) {
    match seconds.abs() {
        size if size < 1e-6 => (1e-9, "ns"),
        size if size < 1e-3 => (1e-6, "µs"),
        size if size < 0.9995 => (1e-3, "ms"),
        size if size < 120.0 => (1.0, "s"),
        size if size < 7200.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_prefixes_and_three_digits() {
        assert_eq!(Unit::Bytes.text(1_234_567.0), "1.23 MB");
        assert_eq!(Unit::Bytes.text(999_700.0), "1 MB");
        assert_eq!(Unit::Bytes.text(12.0), "12 B");
        assert_eq!(Unit::Plain.text(12_000.0), "12 k");
        assert_eq!(Unit::Plain.text(0.25), "0.25");
        assert_eq!(Unit::Seconds.text(0.0123), "12.3 ms");
        assert_eq!(Unit::Seconds.text(90.0), "90 s");
        assert_eq!(Unit::Seconds.text(600.0), "10 min");
        assert_eq!(Unit::Share.text(0.9123), "91.2 %");
        assert_eq!(Unit::Times.text(97.31), "97.3×");
        assert_eq!(Unit::Times.text(f64::INFINITY), "–");
        assert_eq!(whole(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(whole(12), "12");
        assert_eq!((counted("1", "epoch"), counted("0.5", "epoch")), ("1 epoch".into(), "0.5 epochs".into()));
    }

    #[test]
    fn spreads_stand_beside_their_value() {
        assert_eq!(with_spread(Unit::Share, 0.9123, Some(0.0021)), "91.23 ± 0.21 %");
        assert_eq!(with_spread(Unit::Seconds, 0.18, Some(0.0011)), "180.0 ± 1.1 ms");
        assert_eq!(with_spread(Unit::Plain, 4.5, None), "4.5");
        assert_eq!(with_spread(Unit::Plain, f64::NAN, Some(1.0)), "–");
    }
}
