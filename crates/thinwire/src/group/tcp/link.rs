//! What a link does to bytes, written as text: `100mbit,5ms`.

use std::str::FromStr;
use std::time::Duration;

use crate::{Error, Result};

/// A link to be imitated: how fast one rank sends, and how long its bytes are on the way.
///
/// Written as a rate, a delay, or both with a comma between. Rates are in `bit`, `kbit`, `mbit` or `gbit` a
/// second, thousands as `tc` has them; delays, one way, in `us`, `ms` or `s`.
///
/// ```
/// use std::time::Duration;
/// use thinwire::group::Link;
///
/// let link: Link = "100mbit,5ms".parse()?;
/// assert_eq!(link, Link { rate: Some(100_000_000), delay: Duration::from_millis(5) });
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Bits a second that leave a rank, to all its peers together; as many as the system can when `None`.
    pub rate: Option<u64>,
    /// How long a byte is on its way after it has left.
    pub delay: Duration,
}

const EXPECTED: &str =
    "a rate, a delay or both, such as 100mbit,5ms (units bit, kbit, mbit, gbit and us, ms, s)";

/// The longest delay: more is a slip of the pen.
const LONGEST: f64 = 60.0;

enum Part {
    Rate(u64),
    Delay(Duration),
}

fn part(text: &str) -> Option<Part> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let rate = |scale: f64| {
        Some(number * scale).filter(|&r| (1.0..=1e15).contains(&r)).map(|r| Part::Rate(r as u64))
    };
    let delay = |scale: f64| {
        Some(number * scale)
            .filter(|s| (0.0..=LONGEST).contains(s))
            .map(|s| Part::Delay(Duration::from_secs_f64(s)))
    };
    match unit {
        "bit" => rate(1.0),
        "kbit" => rate(1e3),
        "mbit" => rate(1e6),
        "gbit" => rate(1e9),
        "us" => delay(1e-6),
        "ms" => delay(1e-3),
        "s" => delay(1.0),
        _ => None,
    }
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Link> {
        let wrong =
            || Error::BadSetting { name: "link".into(), found: text.into(), expected: EXPECTED.into() };
        let (mut rate, mut delay) = (None, None);
        for word in text.split(',').map(str::trim) {
            let before = match part(word).ok_or_else(wrong)? {
                Part::Rate(bits) => rate.replace(bits).is_some(),
                Part::Delay(time) => delay.replace(time).is_some(),
            };
            if before {
                return Err(wrong());
            }
        }
        Ok(Link { rate, delay: delay.unwrap_or_default() })
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let delay = self.delay.as_secs_f64() * 1e3;
        match self.rate {
            Some(rate) => write!(f, "{}mbit,{delay}ms", rate as f64 / 1e6),
            None => write!(f, "{delay}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_delay_come_in_any_order_or_alone() {
        let us = Duration::from_micros;
        for (text, rate, delay) in [
            ("100mbit,5ms", Some(100_000_000), us(5000)),
            ("5ms, 100mbit", Some(100_000_000), us(5000)),
            ("1gbit", Some(1_000_000_000), us(0)),
            ("2.5gbit,50us", Some(2_500_000_000), us(50)),
            ("9600bit,1s", Some(9600), us(1_000_000)),
            ("56kbit", Some(56_000), us(0)),
            ("20ms", None, us(20_000)),
        ] {
            let link: Link = text.parse().unwrap();
            assert_eq!(link, Link { rate, delay }, "{text}");
            assert_eq!(link.to_string().parse(), Ok(link));
        }
    }

    #[test]
    fn what_is_no_link_is_named() {
        for text in
            ["", ",5ms", "fast", "100", "100mb", "0mbit", "-1ms", "1gbit,2gbit", "1ms,1ms", "99s", "1e9bit"]
        {
            let error = text.parse::<Link>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("100mbit,5ms"), "{error}");
        }
    }
}
