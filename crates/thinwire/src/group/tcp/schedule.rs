//! Links that change while the ranks work: a file with a line for each change.

use std::path::Path;
use std::time::Duration;

use super::link::Link;
use crate::{Error, Result};

/// Which [`Link`] is imitated when, counted from the moment the group is complete.
///
/// ```
/// use std::time::Duration;
/// use thinwire::group::Schedule;
///
/// let schedule = Schedule::parse("100mbit,5ms   # at first\nat 30s: 1gbit,50ms\n", "links.txt")?;
/// assert_eq!(schedule.at(Duration::from_secs(29)).rate, Some(100_000_000));
/// assert_eq!(schedule.at(Duration::from_secs(30)).rate, Some(1_000_000_000));
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Since when, and what; in the order of time.
    changes: Vec<(Duration, Link)>,
}

impl From<Link> for Schedule {
    fn from(link: Link) -> Schedule {
        Schedule { changes: vec![(Duration::ZERO, link)] }
    }
}

impl Schedule {
    /// From the lines of a file called `name`: `at 30s: 1gbit,50ms`, in the order of time. The first may be a link
    /// alone, which holds from the start; without one the link is as fast as the system until the first change.
    /// What follows `#` is a comment.
    pub fn parse(text: &str, name: &str) -> Result<Schedule> {
        let mut changes: Vec<(Duration, Link)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |expected: String| Error::BadSetting {
                name: format!("{name}, line {}", number + 1),
                found: line.into(),
                expected,
            };
            let (since, link) = match line.strip_prefix("at ") {
                Some(rest) => {
                    let (time, link) = rest
                        .split_once(':')
                        .ok_or_else(|| wrong("at TIME: LINK, such as at 30s: 1gbit,50ms".into()))?;
                    let time = seconds(time.trim())
                        .ok_or_else(|| wrong("a time in us, ms or s, such as at 30s: 1gbit,50ms".into()))?;
                    (time, link.trim())
                }
                None if changes.is_empty() => (Duration::ZERO, line),
                None => return Err(wrong("at TIME: LINK; only the first line may be a link alone".into())),
            };
            if let Some((before, _)) = changes.last().filter(|(before, _)| *before >= since) {
                return Err(wrong(format!(
                    "a time after {} s, that of the line before",
                    before.as_secs_f64()
                )));
            }
            let link = link.parse().map_err(|error| match error {
                Error::BadSetting { expected, .. } => wrong(expected),
                other => other,
            })?;
            changes.push((since, link));
        }
        if changes.is_empty() {
            let expected = "at least one line such as at 30s: 1gbit,50ms".into();
            return Err(Error::BadSetting { name: name.into(), found: "no line".into(), expected });
        }
        Ok(Schedule { changes })
    }

    /// From a file.
    pub fn read(path: &Path) -> Result<Schedule> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Error::Io {
            action: "read",
            path: name.clone(),
            reason: error.to_string(),
        })?;
        Schedule::parse(&text, &name)
    }

    /// The link at a time.
    pub fn at(&self, time: Duration) -> Link {
        let after = self.changes.partition_point(|(since, _)| *since <= time);
        after.checked_sub(1).map(|number| self.changes[number].1).unwrap_or_default()
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_hold_from_their_time_on() {
        let text = "# the train leaves\n\n1gbit\nat 500ms: 10mbit,20ms # a tunnel\nat 2s: 5ms\n";
        let schedule = Schedule::parse(text, "x").unwrap();
        let rate = |ms| schedule.at(Duration::from_millis(ms)).rate;
        assert_eq!(
            [0, 499, 500, 1999, 2000].map(rate),
            [1000, 1000, 10, 10, 0].map(|m| (m > 0).then_some(m * 1_000_000))
        );
        assert_eq!(schedule.at(Duration::from_secs(1)).delay, Duration::from_millis(20));
        let late = Schedule::parse("at 1s: 1mbit", "x").unwrap();
        assert_eq!(late.at(Duration::ZERO), Link::default());
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number() {
        for (text, words) in [
            ("1gbit\n1mbit", "links, line 2"),
            (
                "at 2s: 1gbit\n# x\nat 1s: 1mbit",
                "links, line 3 is \"at 1s: 1mbit\"; expected a time after 2 s",
            ),
            ("at 2s 1gbit", "links, line 1"),
            ("at 2: 1gbit", "a time in us, ms or s"),
            ("at 1s: 1gb", "gbit"),
            ("# nothing", "at least one line"),
        ] {
            let error = Schedule::parse(text, "links").unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(
            Schedule::read(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file")
        );
    }
}
