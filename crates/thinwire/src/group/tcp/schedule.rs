//! Links that change while the ranks work: a file with a line for each change.

use std::path::Path;
use std::time::Duration;

use super::link::Link;
use crate::{Error, Result};

/// Which [`Link`] is imitated when: by the time since the group was complete or, so that runs of different speeds find
/// the same network, by the step of the training.
///
/// ```
/// use std::time::Duration;
/// use thinwire::group::Schedule;
///
/// let schedule = Schedule::parse("100mbit,5ms   # at first\nat 30s: 1gbit,50ms\n", "links.txt")?;
/// assert_eq!(schedule.at(Duration::from_secs(29)).rate, Some(100_000_000));
/// assert_eq!(schedule.at(Duration::from_secs(30)).rate, Some(1_000_000_000));
///
/// let schedule = Schedule::parse("1gbit\nat step 300: 10mbit", "links.txt")?;
/// assert_eq!(schedule.at_step(300).rate, Some(10_000_000));
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Since when, and what; in order.
    changes: Vec<(When, Link)>,
}

/// When a link begins to hold. A schedule has only one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum When {
    Time(Duration),
    Step(u64),
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            When::Time(time) => write!(f, "{} s", time.as_secs_f64()),
            When::Step(step) => write!(f, "step {step}"),
        }
    }
}

impl From<Link> for Schedule {
    fn from(link: Link) -> Schedule {
        Schedule { changes: vec![(When::Time(Duration::ZERO), link)] }
    }
}

impl Schedule {
    /// From the lines of a file called `name`: `at 30s: 1gbit,50ms`, in the order of time, or `at step 300: 1gbit,50ms`,
    /// in the order of steps. The first may be a link alone, which holds from the start; without one the link is as
    /// fast as the system until the first change. What follows `#` is a comment.
    pub fn parse(text: &str, name: &str) -> Result<Schedule> {
        let mut changes: Vec<(When, Link)> = Vec::new();
        let mut alone = None;
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
                    let (when, link) = rest.split_once(':').ok_or_else(|| {
                        wrong("at TIME: LINK, such as at 30s: 1gbit,50ms, or at step 300: 1gbit,50ms".into())
                    })?;
                    let when = when_of(when.trim()).ok_or_else(|| {
                        wrong("a time in us, ms or s, or a step, such as at 30s: or at step 300:".into())
                    })?;
                    (when, link.trim())
                }
                None if changes.is_empty() && alone.is_none() => {
                    let link = line.parse().map_err(|error| match error {
                        Error::BadSetting { expected, .. } => wrong(expected),
                        other => other,
                    })?;
                    alone = Some(link);
                    continue;
                }
                None => return Err(wrong("at TIME: LINK; only the first line may be a link alone".into())),
            };
            if let Some((before, _)) = changes.last() {
                // Times and steps have no order between them.
                match before.partial_cmp(&since) {
                    Some(std::cmp::Ordering::Less) if same_kind(before, &since) => {}
                    _ if !same_kind(before, &since) => {
                        return Err(wrong(format!(
                            "times only, or steps only; the line before has {before}"
                        )));
                    }
                    _ => return Err(wrong(format!("a time after {before}, that of the line before"))),
                }
            }
            let link = link.parse().map_err(|error| match error {
                Error::BadSetting { expected, .. } => wrong(expected),
                other => other,
            })?;
            changes.push((since, link));
        }
        if let Some(link) = alone {
            let start = match changes.first() {
                Some((When::Step(_), _)) => When::Step(0),
                _ => When::Time(Duration::ZERO),
            };
            if changes.first().is_some_and(|(first, _)| *first == start) {
                return Err(Error::BadSetting {
                    name: name.into(),
                    found: format!("a link from the start and another at {start}"),
                    expected: "one of them".into(),
                });
            }
            changes.insert(0, (start, link));
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

    /// The link at a time, of a schedule by time; of one by steps, the first.
    pub fn at(&self, time: Duration) -> Link {
        self.link(time, 0)
    }

    /// The link in a step, of a schedule by steps; of one by time, the first.
    pub fn at_step(&self, step: u64) -> Link {
        self.link(Duration::ZERO, step)
    }

    /// All links there are, in order.
    pub fn links(&self) -> impl Iterator<Item = Link> {
        self.changes.iter().map(|(_, link)| *link)
    }

    /// The link at a time and in a step.
    pub fn link(&self, time: Duration, step: u64) -> Link {
        let holds = |when: &When| match when {
            When::Time(since) => *since <= time,
            When::Step(since) => *since <= step,
        };
        let after = self.changes.partition_point(|(since, _)| holds(since));
        after.checked_sub(1).map(|number| self.changes[number].1).unwrap_or_default()
    }
}

fn same_kind(a: &When, b: &When) -> bool {
    matches!((a, b), (When::Time(_), When::Time(_)) | (When::Step(_), When::Step(_)))
}

fn when_of(text: &str) -> Option<When> {
    match text.strip_prefix("step ") {
        Some(step) => step.trim().parse().ok().map(When::Step),
        None => seconds(text).map(When::Time),
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
    fn steps_count_where_the_lines_are_of_steps() {
        let schedule = Schedule::parse("1gbit\nat step 5: 10mbit\nat step 9: 5ms", "x").unwrap();
        let rate = |step| schedule.at_step(step).rate;
        assert_eq!(
            [0, 4, 5, 8, 9].map(rate),
            [1000, 1000, 10, 10, 0].map(|m| (m > 0).then_some(m * 1_000_000))
        );
        // Time does not matter then.
        assert_eq!(schedule.link(Duration::from_secs(1000), 4).rate, Some(1_000_000_000));
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
            ("at step x: 1gbit", "a step"),
            ("at step 2: 1gbit\nat 3s: 1gbit", "times only, or steps only"),
            ("at step 2: 1gbit\nat step 2: 1mbit", "a time after step 2"),
            ("1gbit\nat step 0: 1mbit", "one of them"),
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
