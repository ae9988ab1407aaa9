//! What a rank has to know to find the others, and the environment variables that say it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::schedule::Schedule;
use super::secret::{self, Secret};
use crate::group::DEADLINE;
use crate::{Error, Result};

/// The most ranks of a group: each is connected to each.
pub(super) const MOST_RANKS: usize = 1024;

/// The most bytes of a group's name.
const LONGEST_GROUP: usize = 256;

/// How a rank finds the others. See [`from_environment`](TcpSettings::from_environment) for the variables.
///
/// ```
/// use thinwire::group::{Group, Tcp, TcpSettings};
///
/// let alone = Tcp::join(&TcpSettings { rank: 0, size: 1, ..TcpSettings::default() })?;
/// assert_eq!(alone.size(), 1);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TcpSettings {
    /// This rank, from 0.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// Host name or address at which rank 0 waits for the others.
    pub master: String,
    /// The port it waits at.
    pub port: u16,
    /// The local address to wait at, where it can't be the one that the others see: 0.0.0.0 in a container.
    pub bind: Option<IpAddr>,
    /// The name of the group: a rank joins only a group of the same name, and the name goes into the keys that are
    /// derived from the secret.
    pub group: String,
    /// With a secret every connection is encrypted, and only those who know it are let in.
    pub secret: Option<Secret>,
    /// Imitates a slower network.
    pub link: Option<Schedule>,
    /// How long the ranks wait for each other, at the start and, without any progress, in a collective.
    pub deadline: Duration,
}

impl Default for TcpSettings {
    fn default() -> Self {
        TcpSettings {
            rank: 0,
            size: 1,
            master: "127.0.0.1".into(),
            port: 29500,
            bind: None,
            group: "thinwire".into(),
            secret: None,
            link: None,
            deadline: DEADLINE,
        }
    }
}

impl TcpSettings {
    /// From the environment, as `torchrun` and others set it.
    ///
    /// | variable | meaning | default |
    /// |---|---|---|
    /// | `RANK`, `WORLD_SIZE` | this rank, and how many there are | 0 and 1 |
    /// | `MASTER_ADDR` | where rank 0 waits | 127.0.0.1 |
    /// | `MASTER_PORT` | its port | 29500 |
    /// | `THINWIRE_PORT` | its port, where `MASTER_PORT` is taken | see below |
    /// | `THINWIRE_BIND` | the local address to wait at | the one the others see |
    /// | `THINWIRE_GROUP` | the name of the group | thinwire |
    /// | `THINWIRE_SECRET`, `THINWIRE_SECRET_FILE` | the shared secret, or the file it is in | no encryption |
    /// | `THINWIRE_LINK` | a [`Link`](super::Link) to imitate, or (`@FILE`) the file of a [`Schedule`] | none |
    /// | `THINWIRE_DEADLINE` | seconds to wait without progress | 30 |
    ///
    /// Under `torchrun` the port `MASTER_PORT` is that of its own store (`TORCHELASTIC_USE_AGENT_STORE=True`);
    /// then the next one is used, unless `THINWIRE_PORT` says otherwise.
    pub fn from_environment() -> Result<TcpSettings> {
        TcpSettings::from_lookup(|name| std::env::var_os(name))
    }

    /// The same from any other source of variables. The secret is taken as bytes; every other variable that is not
    /// UTF-8 is an error.
    pub fn from_lookup(variable: impl Fn(&str) -> Option<OsString>) -> Result<TcpSettings> {
        let mut settings = TcpSettings::default();
        let lookup = |name: &str| text(name, variable(name));
        if let Some(size) = parsed(lookup, "WORLD_SIZE", "a number of ranks")? {
            settings.size = size;
        }
        if let Some(rank) = parsed(lookup, "RANK", "a rank, from 0")? {
            settings.rank = rank;
        }
        if let Some(master) = lookup("MASTER_ADDR")? {
            settings.master = master;
        }
        settings.port = port(&lookup, settings.port)?;
        settings.bind = parsed(lookup, "THINWIRE_BIND", "an address such as 0.0.0.0")?;
        if let Some(group) = lookup("THINWIRE_GROUP")? {
            settings.group = group;
        }
        settings.secret = secret::from_variables(&variable)?;
        settings.link = lookup("THINWIRE_LINK")?.map(|text| link(&text)).transpose()?;
        if let Some(seconds) = parsed::<f64>(&lookup, "THINWIRE_DEADLINE", SECONDS)? {
            let deadline =
                Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero() && d.as_secs() < 1 << 31);
            settings.deadline =
                deadline.ok_or_else(|| bad("THINWIRE_DEADLINE", &seconds.to_string(), SECONDS))?;
        }
        settings.check()?;
        Ok(settings)
    }

    /// Whether the values fit together.
    pub(super) fn check(&self) -> Result<()> {
        if self.size == 0 || self.size > MOST_RANKS {
            return Err(bad("WORLD_SIZE", &self.size.to_string(), &format!("1 to {MOST_RANKS}")));
        }
        if self.group.len() > LONGEST_GROUP {
            let expected = format!("a name of at most {LONGEST_GROUP} bytes");
            return Err(bad("THINWIRE_GROUP", &self.group, &expected));
        }
        if self.rank >= self.size {
            let expected = format!("a rank below WORLD_SIZE, which is {}", self.size);
            return Err(bad("RANK", &self.rank.to_string(), &expected));
        }
        if self.size > 1 && self.port == 0 {
            return Err(bad("MASTER_PORT", "0", "a port that all ranks know, 1 to 65535"));
        }
        if self.deadline.is_zero() {
            return Err(bad("THINWIRE_DEADLINE", "0", SECONDS));
        }
        Ok(())
    }
}

const SECONDS: &str = "seconds, more than 0";

pub(super) fn bad(name: &str, found: &str, expected: &str) -> Error {
    Error::BadSetting { name: name.into(), found: found.into(), expected: expected.into() }
}

/// The value of a variable whose content is text.
fn text(name: &str, value: Option<OsString>) -> Result<Option<String>> {
    let not_text = |value: OsString| bad(name, &value.to_string_lossy(), "text in UTF-8");
    value.map(|value| value.into_string().map_err(not_text)).transpose()
}

fn parsed<T: FromStr>(
    lookup: impl Fn(&str) -> Result<Option<String>>,
    name: &str,
    expected: &str,
) -> Result<Option<T>> {
    lookup(name)?.map(|text| text.trim().parse().map_err(|_| bad(name, &text, expected))).transpose()
}

fn port(lookup: &impl Fn(&str) -> Result<Option<String>>, usual: u16) -> Result<u16> {
    if let Some(port) = parsed(lookup, "THINWIRE_PORT", "a port, 1 to 65535")? {
        return Ok(port);
    }
    let port: u16 = parsed(lookup, "MASTER_PORT", "a port, 1 to 65535")?.unwrap_or(usual);
    if lookup("TORCHELASTIC_USE_AGENT_STORE")?.is_some_and(|value| value == "True") {
        let none_left = || bad("MASTER_PORT", &port.to_string(), "a port below 65535, or THINWIRE_PORT set");
        return port.checked_add(1).ok_or_else(none_left);
    }
    Ok(port)
}

fn link(text: &str) -> Result<Schedule> {
    if let Some(path) = text.strip_prefix('@') {
        return Schedule::read(Path::new(path));
    }
    match text.parse::<super::Link>() {
        Ok(link) => Ok(link.into()),
        Err(_) if Path::new(text).is_file() => Schedule::read(Path::new(text)),
        Err(Error::BadSetting { found, expected, .. }) => {
            Err(bad("THINWIRE_LINK", &found, &format!("{expected}, or @FILE with a schedule")))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<TcpSettings> {
        let find =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        TcpSettings::from_lookup(find)
    }

    #[test]
    fn defaults_are_one_rank_on_this_machine() {
        let settings = from(&[]).unwrap();
        assert_eq!((settings.rank, settings.size, settings.port), (0, 1, 29500));
        assert_eq!((settings.master.as_str(), settings.deadline), ("127.0.0.1", DEADLINE));
    }

    #[test]
    fn every_variable_is_read() {
        let settings = from(&[
            ("RANK", "2"),
            ("WORLD_SIZE", "4"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "1234"),
            ("THINWIRE_BIND", "0.0.0.0"),
            ("THINWIRE_GROUP", "lstm 7"),
            ("THINWIRE_SECRET", "hush hush"),
            ("THINWIRE_LINK", "1gbit,1ms"),
            ("THINWIRE_DEADLINE", "2.5"),
        ])
        .unwrap();
        assert_eq!((settings.rank, settings.size, settings.port), (2, 4, 1234));
        assert_eq!(settings.bind, Some("0.0.0.0".parse().unwrap()));
        assert_eq!(settings.link.as_ref().unwrap().at(Duration::ZERO).rate, Some(1_000_000_000));
        assert_eq!(settings.deadline, Duration::from_millis(2500));
        assert!(settings.secret.is_some());
        assert_eq!(settings.group, "lstm 7");
        assert!(!format!("{settings:?}").contains("hush"), "{settings:?}");
    }

    #[test]
    fn the_port_under_torchrun_is_the_next() {
        let agent = ("TORCHELASTIC_USE_AGENT_STORE", "True");
        assert_eq!(from(&[("MASTER_PORT", "1234"), agent]).unwrap().port, 1235);
        assert_eq!(from(&[("MASTER_PORT", "1234"), agent, ("THINWIRE_PORT", "99")]).unwrap().port, 99);
        assert_eq!(from(&[("MASTER_PORT", "7"), ("TORCHELASTIC_USE_AGENT_STORE", "False")]).unwrap().port, 7);
        assert!(from(&[("MASTER_PORT", "65535"), agent]).unwrap_err().to_string().contains("THINWIRE_PORT"));
    }

    #[test]
    fn schedules_come_from_files_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links");
        std::fs::write(&path, "1gbit\nat 1s: 5ms\n").unwrap();
        let links = path.to_str().unwrap();
        for link in [links.to_owned(), format!("@{links}")] {
            let schedule = from(&[("THINWIRE_LINK", &link)]).unwrap().link.unwrap();
            assert_eq!(schedule.at(Duration::from_secs(1)).delay, Duration::from_millis(5));
        }
    }

    #[test]
    fn a_variable_that_is_not_utf8_is_an_error_that_names_it() {
        use std::os::unix::ffi::OsStringExt;
        let names = [
            "RANK",
            "WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
            "THINWIRE_PORT",
            "THINWIRE_BIND",
            "THINWIRE_GROUP",
            "THINWIRE_LINK",
            "THINWIRE_DEADLINE",
        ];
        for name in names {
            let value = |asked: &str| (asked == name).then(|| OsString::from_vec(vec![b'1', 0xff]));
            let error = TcpSettings::from_lookup(value).unwrap_err().to_string();
            assert!(error.contains(&format!("{name} is")) && error.contains("UTF-8"), "{error}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_its_variable() {
        for (variables, words) in [
            (&[("RANK", "x")][..], "RANK is \"x\"; expected a rank"),
            (
                &[("RANK", "4"), ("WORLD_SIZE", "4")],
                "RANK is \"4\"; expected a rank below WORLD_SIZE, which is 4",
            ),
            (&[("WORLD_SIZE", "0")], "WORLD_SIZE is \"0\"; expected 1 to 1024"),
            (&[("WORLD_SIZE", "2"), ("MASTER_PORT", "0")], "MASTER_PORT is \"0\""),
            (&[("MASTER_PORT", "70000")], "MASTER_PORT is \"70000\""),
            (&[("THINWIRE_BIND", "here")], "THINWIRE_BIND is \"here\""),
            (&[("THINWIRE_SECRET", "")], "THINWIRE_SECRET is \"\""),
            (&[("THINWIRE_LINK", "fast")], "THINWIRE_LINK is \"fast\"; expected a rate"),
            (&[("THINWIRE_LINK", "@/no/such")], "/no/such"),
            (&[("THINWIRE_DEADLINE", "0")], "THINWIRE_DEADLINE is \"0\"; expected seconds"),
            (&[("THINWIRE_DEADLINE", "-1")], "THINWIRE_DEADLINE"),
            (&[("THINWIRE_DEADLINE", "NaN")], "THINWIRE_DEADLINE"),
            (&[("THINWIRE_DEADLINE", "1e300")], "THINWIRE_DEADLINE"),
            (&[("THINWIRE_GROUP", &"x".repeat(257))], "at most 256 bytes"),
        ] {
            let error = from(variables).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
