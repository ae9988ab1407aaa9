//! Numbers as people write them, and sizes as people type them.

use std::time::Duration;

/// A number with three significant digits and no exponent: `25.6`, `0.0123`, `1234`.
pub fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // The exponent after rounding: 0.9996 is 1.00, not 1.000.
    let rounded = format!("{value:.2e}");
    let exponent: i32 = rounded.split_once('e').map_or(0, |(_, exponent)| exponent.parse().unwrap_or(0));
    let decimals = (2 - exponent).clamp(0, 12);
    format!("{value:.*}", decimals as usize)
}

/// A number of things: exact up to five digits, `25.6 M` above.
pub fn count(count: u64) -> String {
    if count < 100_000 { grouped(count) } else { scaled(count as f64, &["", "k", "M", "G", "T"]) }
}

/// A number of bytes: `41 B`, `1.23 MB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A ratio of sizes: `64.0x`.
pub fn ratio(ratio: f64) -> String {
    format!("{}x", three_digits(ratio))
}

/// A share: `0.100 %`.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{} %", if whole == 0 { "0".into() } else { three_digits(100.0 * part as f64 / whole as f64) })
}

/// A time: `1.23 ms`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        0.0..1e-3 => format!("{} µs", three_digits(seconds * 1e6)),
        1e-3..1.0 => format!("{} ms", three_digits(seconds * 1e3)),
        _ => format!("{} s", three_digits(seconds)),
    }
}

/// The same of so many seconds, which may be more than a [`Duration`] holds.
pub fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

/// Bits a second: `1.00 Gbit/s`.
pub fn rate(bits: f64) -> String {
    scaled(bits, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A density: `1.1 %`, `0.1 %`.
pub fn density(density: f64) -> String {
    let digits = three_digits(100.0 * density);
    let short =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{short} %")
}

/// One thing, many things.
pub fn plural(number: usize, thing: &str) -> String {
    format!("{} {thing}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

/// The shape of a tensor: `64 × 3 × 7 × 7`; a scalar has none.
pub fn shape(shape: &[usize]) -> String {
    let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
    if sides.is_empty() { "scalar".into() } else { sides.join(" × ") }
}

/// Reads a size: `4096`, `500MB`, `2 GiB`. What would be right is the error.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write a number of bytes, or such as 500MB or 2GiB");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_ascii_lowercase();
    let step = |letter: char| " kmgt".find(letter).map(|power| power as i32);
    let mut letters = unit.trim_end_matches('b').chars();
    let factor = match (letters.next(), letters.next(), letters.next()) {
        (None, ..) => 1.0,
        (Some(letter), None, None) => 1000f64.powi(step(letter).ok_or_else(wrong)?),
        (Some(letter), Some('i'), None) => 1024f64.powi(step(letter).ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    Ok((number * factor) as u64)
}

/// Reads a time: `120ms`, `1.5s`, `300us`, and `0`. What would be right is the error.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time; write such as 120ms, 1.5s or 300us");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit.trim() {
        "us" | "µs" => number * 1e-6,
        "ms" => number * 1e-3,
        "s" => number,
        "min" => number * 60.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// `1,234,567`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut number = 0;
    // 999.5 would be written as 1000 with three digits.
    while value >= 999.5 && number + 1 < units.len() {
        value /= 1000.0;
        number += 1;
    }
    if number == 0 {
        format!("{value} {}", units[0])
    } else {
        format!("{} {}", three_digits(value), units[number])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_bytes() {
        assert_eq!([count(0), count(999), count(99_999)], ["0", "999", "99,999"]);
        assert_eq!([count(100_000), count(25_557_032)], ["100 k", "25.6 M"]);
        assert_eq!(
            [bytes(0), bytes(999), bytes(1_000), bytes(1_234_567)],
            ["0 B", "999 B", "1.00 kB", "1.23 MB"]
        );
        assert_eq!([bytes(999_499), bytes(999_500), bytes(u64::MAX)], ["999 kB", "1.00 MB", "18.4 EB"]);
    }

    #[test]
    fn small_and_large_ratios() {
        assert_eq!([ratio(63.96), ratio(1234.5), ratio(0.5)], ["64.0x", "1234x", "0.500x"]);
        assert_eq!([percent(1, 1000), percent(0, 0), percent(3, 3)], ["0.100 %", "0 %", "100 %"]);
        assert_eq!([three_digits(0.0), three_digits(0.001234)], ["0", "0.00123"]);
        assert_eq!(duration(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(duration(Duration::from_nanos(1_500)), "1.50 µs");
        assert_eq!(duration(Duration::from_millis(12_345)), "12.3 s");
        assert_eq!([seconds(0.25), seconds(-1.0)], ["250 ms", "0 µs"]);
        assert!(seconds(1e300).ends_with(" s"));
    }

    #[test]
    fn things_and_shapes() {
        assert_eq!([plural(1, "layer"), plural(0, "layer")], ["1 layer", "0 layers"]);
        assert_eq!([shape(&[]), shape(&[3, 0])], ["scalar", "3 × 0"]);
    }

    #[test]
    fn rates_and_densities() {
        assert_eq!(
            [rate(1e9), rate(123_456_789.0), rate(2.5e13)],
            ["1.00 Gbit/s", "123 Mbit/s", "25.0 Tbit/s"]
        );
        assert_eq!([density(0.1), density(0.011), density(0.001)], ["10 %", "1.1 %", "0.1 %"]);
        assert_eq!([density(1.0), density(1.0 / 64.0)], ["100 %", "1.56 %"]);
    }

    #[test]
    fn times_with_units() {
        for (text, micros) in
            [("120ms", 120_000), ("1.5s", 1_500_000), ("300us", 300), ("2 min", 120_000_000), ("0", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "120", "ms", "-1s", "1h", "1.2.3s", "99999999999999999999999s"] {
            assert!(parse_duration(text).unwrap_err().contains("120ms"), "{text}");
        }
    }

    #[test]
    fn sizes_with_units() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("41B", 41),
            ("500MB", 500_000_000),
            ("500 mb", 500_000_000),
            ("2GiB", 2 << 30),
            ("1.5k", 1500),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in ["", "GB", "-1", "1XB", "1GiBi", "1.2.3", "many"] {
            assert!(parse_size(text).unwrap_err().contains("2GiB"), "{text}");
        }
    }
}
