//! The two numbers that describe a network.

use std::str::FromStr;

use crate::group::Link;
use crate::{Error, Result};

/// A network in the papers' terms: what a message costs, and what each of its bytes costs.
///
/// Written as text it is a [`Link`] with a rate: `1gbit,1ms`.
///
/// ```
/// use thinwire::adapt::cost::Network;
///
/// let network: Network = "1gbit,1ms".parse()?;
/// assert_eq!(network, Network { latency: 1e-3, seconds_per_byte: 8e-9 });
/// assert_eq!(network, Network::from_gbit_ms(1.0, 1.0)?);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Network {
    /// Seconds until a message of no bytes has arrived, one way: the papers' alpha.
    pub latency: f64,
    /// Seconds that each byte adds, as one rank sends: the papers' beta, the inverse of the bandwidth.
    pub seconds_per_byte: f64,
}

impl Network {
    /// The network of so many Gbit/s (10⁹ bits, not 2³⁰) and so many milliseconds, one way.
    ///
    /// An error if the rate is not above zero, the latency below zero, or either no finite number.
    pub fn from_gbit_ms(gbit: f64, ms: f64) -> Result<Network> {
        let wrong = |found: f64, unit: &str, expected: &str| Error::BadSetting {
            name: "network".into(),
            found: format!("{found} {unit}"),
            expected: expected.into(),
        };
        if !(gbit.is_finite() && gbit > 0.0) {
            return Err(wrong(gbit, "Gbit/s", "a finite rate above 0"));
        }
        if !(ms.is_finite() && ms >= 0.0) {
            return Err(wrong(ms, "ms", "a finite latency of 0 or more"));
        }
        Ok(Network { latency: ms / 1e3, seconds_per_byte: 8.0 / (gbit * 1e9) })
    }
}

/// An error if the link has no rate: "as fast as the system can" is no number to reckon with.
impl TryFrom<Link> for Network {
    type Error = Error;

    fn try_from(link: Link) -> Result<Network> {
        let rate = link.rate.ok_or_else(|| Error::BadSetting {
            name: "network".into(),
            found: link.to_string(),
            expected: "a link with a rate, such as 1gbit,1ms".into(),
        })?;
        Ok(Network { latency: link.delay.as_secs_f64(), seconds_per_byte: 8.0 / rate as f64 })
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Network> {
        text.parse::<Link>()?.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_numbers_give_the_same_network() {
        for (text, gbit, ms) in [
            ("1gbit,1ms", 1.0, 1.0),
            ("100mbit,50us", 0.1, 0.05),
            ("2s, 56kbit", 56e-6, 2000.0),
            ("10gbit", 10.0, 0.0),
        ] {
            let (read, made) = (text.parse::<Network>().unwrap(), Network::from_gbit_ms(gbit, ms).unwrap());
            assert!((read.latency - made.latency).abs() <= 1e-12, "{text}: {read:?} {made:?}");
            let ratio = read.seconds_per_byte / made.seconds_per_byte;
            assert!((ratio - 1.0).abs() <= 1e-12, "{text}: {read:?} {made:?}");
        }
    }

    #[test]
    fn a_link_without_a_rate_is_refused() {
        let error = "20ms".parse::<Network>().unwrap_err().to_string();
        assert!(error.contains("20ms") && error.contains("1gbit,1ms"), "{error}");
        assert!("fast".parse::<Network>().is_err());
    }

    #[test]
    fn numbers_that_describe_no_network_are_named() {
        for (gbit, ms, found) in [
            (0.0, 1.0, "0 Gbit/s"),
            (-1.0, 1.0, "-1 Gbit/s"),
            (f64::NAN, 1.0, "NaN Gbit/s"),
            (f64::INFINITY, 1.0, "inf Gbit/s"),
            (1.0, -0.5, "-0.5 ms"),
            (1.0, f64::NAN, "NaN ms"),
            (1.0, f64::INFINITY, "inf ms"),
        ] {
            let error = Network::from_gbit_ms(gbit, ms).unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
    }
}
