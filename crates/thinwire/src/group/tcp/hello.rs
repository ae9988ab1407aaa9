//! What ranks say to each other before they are connected.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use sha2::{Digest, Sha256};

/// The first bytes of every connection: the name, the version of what follows, and whether the caller has a
/// secret. They are the same in all versions.
pub(super) const GREETING: usize = 12;
const NAME: [u8; 8] = *b"thinwire";

/// The version of everything the ranks say to each other.
pub(super) const VERSION: u16 = 2;

pub(super) fn greeting(version: u16, secret: bool) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&NAME);
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    bytes[10] = secret.into();
    bytes
}

/// Who calls whom. It stands in clear behind the greeting, because the handshake with a secret confirms it: whoever
/// forwards a call to another rank, or changes the claim, is found out by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub caller: u32,
    pub called: u32,
}

/// A greeting and a claim.
pub(super) const OPENING: usize = GREETING + 8;

/// The first bytes of a call.
pub(super) fn opening(version: u16, secret: bool, claim: Claim) -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    bytes[..GREETING].copy_from_slice(&greeting(version, secret));
    bytes[GREETING..GREETING + 4].copy_from_slice(&claim.caller.to_le_bytes());
    bytes[GREETING + 4..].copy_from_slice(&claim.called.to_le_bytes());
    bytes
}

impl Claim {
    /// From the first bytes of a call.
    pub fn parse(opening: &[u8; OPENING]) -> Claim {
        let word =
            |at: usize| u32::from_le_bytes([opening[at], opening[at + 1], opening[at + 2], opening[at + 3]]);
        Claim { caller: word(GREETING), called: word(GREETING + 4) }
    }
}

/// Why a greeting is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// It would not understand an answer.
    Unknown(String),
    /// It is told this.
    Refused(String),
}

/// Checks a caller's greeting.
pub(super) fn check_greeting(bytes: &[u8], secret: bool) -> Result<(), Stranger> {
    if bytes.len() < GREETING || bytes[..8] != NAME {
        return Err(Stranger::Unknown(format!(
            "it does not speak thinwire's protocol: its first bytes are {bytes:02x?}"
        )));
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != VERSION {
        return Err(Stranger::Refused(format!(
            "it speaks version {version} of the protocol, this rank version {VERSION}"
        )));
    }
    match (bytes[10] != 0, secret) {
        (false, true) => {
            Err(Stranger::Refused("this group has a secret, it has none (THINWIRE_SECRET)".into()))
        }
        (true, false) => {
            Err(Stranger::Refused("it has a secret, this rank has none (THINWIRE_SECRET)".into()))
        }
        _ => Ok(()),
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// To enter the group: only at rank 0.
    Join,
    /// To carry data.
    Data,
    /// To carry notes.
    Notes,
}

/// What a rank calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub purpose: Purpose,
    pub size: u32,
    /// The number of the group, made up by rank 0; in a `Join`, that [of its name](number_of_name).
    pub group: u64,
    /// Where the caller can be called; of use in a `Join`.
    pub address: SocketAddr,
}

pub(super) const HELLO: usize = 13 + ADDRESS;
const ADDRESS: usize = 18;

/// Tells groups with different names apart before they have a number of their own.
pub(super) fn number_of_name(name: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(name).into();
    hash.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn address_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

fn address_of(bytes: &[u8; ADDRESS]) -> SocketAddr {
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[..16]);
    (Ipv6Addr::from(ip).to_canonical(), u16::from_le_bytes([bytes[16], bytes[17]])).into()
}

impl Hello {
    pub fn to_bytes(self) -> [u8; HELLO] {
        let purpose = match self.purpose {
            Purpose::Join => 1,
            Purpose::Data => 2,
            Purpose::Notes => 3,
        };
        let mut bytes = [0; HELLO];
        bytes[0] = purpose;
        bytes[1..5].copy_from_slice(&self.size.to_le_bytes());
        bytes[5..13].copy_from_slice(&self.group.to_le_bytes());
        bytes[13..].copy_from_slice(&address_bytes(self.address));
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Hello, String> {
        let Ok(bytes) = <&[u8; HELLO]>::try_from(bytes) else {
            return Err(format!("its introduction has {} bytes instead of {HELLO}", bytes.len()));
        };
        let purpose = match bytes[0] {
            1 => Purpose::Join,
            2 => Purpose::Data,
            3 => Purpose::Notes,
            other => return Err(format!("it calls for purpose {other}, which is unknown")),
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut address = [0; ADDRESS];
        address.copy_from_slice(&bytes[13..]);
        let group = u64::from(word(5)) | u64::from(word(9)) << 32;
        Ok(Hello { purpose, size: word(1), group, address: address_of(&address) })
    }

    /// Whether `caller` can be one of `size` ranks, and not `rank` itself; `name` is the number of the group's name.
    pub fn check(&self, caller: u32, rank: usize, size: usize, name: u64) -> Result<(), String> {
        if self.purpose == Purpose::Join && self.group != name {
            return Err("it belongs to a group with another name (THINWIRE_GROUP)".into());
        }
        if self.size as usize != size {
            return Err(format!("this group has {size} ranks, it was told {} (WORLD_SIZE)", self.size));
        }
        if caller as usize >= size {
            return Err(format!("it calls itself rank {caller}, but the ranks are 0 to {}", size - 1));
        }
        if caller as usize == rank {
            return Err(format!("it calls itself rank {rank}, which is this rank (RANK)"));
        }
        if self.purpose != Purpose::Join && (caller as usize) < rank {
            return Err(format!("rank {caller} is to be called by rank {rank}, not the other way round"));
        }
        Ok(())
    }
}

/// Where every rank can be called, and the number of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub group: u64,
    pub addresses: Vec<SocketAddr>,
}

impl Table {
    /// Bytes of the table of `size` ranks.
    pub const fn bytes(size: usize) -> usize {
        8 + size * ADDRESS
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.group.to_le_bytes().to_vec();
        bytes.extend(self.addresses.iter().flat_map(|&address| address_bytes(address)));
        bytes
    }

    pub fn parse(bytes: &[u8], size: usize) -> Result<Table, String> {
        let wrong =
            || format!("a table of {} bytes; expected {} for {size} ranks", bytes.len(), Table::bytes(size));
        let (&group, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
        let (addresses, rest) = rest.as_chunks::<ADDRESS>();
        if addresses.len() != size || !rest.is_empty() {
            return Err(wrong());
        }
        Ok(Table { group: u64::from_le_bytes(group), addresses: addresses.iter().map(address_of).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "10.1.2.3:456";

    #[test]
    fn hellos_and_tables_come_back() {
        for (purpose, address) in
            [(Purpose::Join, HERE), (Purpose::Data, "[fe80::1]:9"), (Purpose::Notes, HERE)]
        {
            let address = address.parse().unwrap();
            let hello = Hello { purpose, size: 70_000, group: 1 << 60, address };
            assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        }
        let claim = Claim { caller: 70_000, called: 3 };
        assert_eq!(Claim::parse(&opening(VERSION, true, claim)), claim);
        let table = Table { group: 7, addresses: vec![HERE.parse().unwrap(); 5] };
        assert_eq!(Table::parse(&table.to_bytes(), 5), Ok(table.clone()));
        assert!(Table::parse(&table.to_bytes(), 4).is_err() && Table::parse(&[1], 0).is_err());
        assert!(Hello::parse(&[1; 9]).is_err() && Hello::parse(&[9; HELLO]).is_err());
    }

    #[test]
    fn strangers_are_told_why_when_they_would_understand() {
        assert_eq!(check_greeting(&greeting(VERSION, true), true), Ok(()));
        let refused = |bytes: [u8; GREETING], secret| match check_greeting(&bytes, secret) {
            Err(Stranger::Refused(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(
            refused(greeting(VERSION + 1, false), false)
                .contains("version 3 of the protocol, this rank version 2")
        );
        assert!(refused(greeting(VERSION, false), true).contains("it has none"));
        assert!(refused(greeting(VERSION, true), false).contains("this rank has none"));
        assert!(matches!(check_greeting(b"GET / HTTP/1", false), Err(Stranger::Unknown(_))));
    }

    #[test]
    fn ranks_that_do_not_fit_are_refused_with_both_values() {
        let name = number_of_name("a");
        let hello = |purpose, size| Hello { purpose, size, group: name, address: HERE.parse().unwrap() };
        assert_eq!(hello(Purpose::Join, 4).check(2, 0, 4, name), Ok(()));
        for (hello, caller, name, words) in [
            (hello(Purpose::Join, 3), 2, name, "this group has 4 ranks, it was told 3"),
            (hello(Purpose::Join, 4), 4, name, "rank 4, but the ranks are 0 to 3"),
            (hello(Purpose::Join, 4), 1, name, "which is this rank"),
            (hello(Purpose::Data, 4), 0, name, "to be called by rank 1"),
            (hello(Purpose::Join, 4), 2, number_of_name("b"), "another name (THINWIRE_GROUP)"),
        ] {
            let reason = hello.check(caller, 1, 4, name).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }
}
