//! What ranks say to each other before they are connected.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The first bytes of every connection: the name, the version of what follows, and whether the caller has a
/// secret. They are the same in all versions.
pub(super) const GREETING: usize = 12;
const NAME: [u8; 8] = *b"thinwire";

/// The version of everything the ranks say to each other.
pub(super) const VERSION: u16 = 1;

pub(super) fn greeting(version: u16, secret: bool) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&NAME);
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    bytes[10] = secret.into();
    bytes
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
pub(super) fn check_greeting(bytes: &[u8; GREETING], secret: bool) -> Result<(), Stranger> {
    if bytes[..8] != NAME {
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

/// Who calls, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub purpose: Purpose,
    pub rank: u32,
    pub size: u32,
    /// The number of the group, made up by rank 0; 0 in a `Join`.
    pub group: u64,
    /// Where the caller can be called; of use in a `Join`.
    pub address: SocketAddr,
}

pub(super) const HELLO: usize = 17 + ADDRESS;
const ADDRESS: usize = 18;

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
        bytes[1..5].copy_from_slice(&self.rank.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.size.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.group.to_le_bytes());
        bytes[17..].copy_from_slice(&address_bytes(self.address));
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
        address.copy_from_slice(&bytes[17..]);
        let group = u64::from(word(9)) | u64::from(word(13)) << 32;
        Ok(Hello { purpose, rank: word(1), size: word(5), group, address: address_of(&address) })
    }

    /// Whether the caller can be one of `size` ranks, and not `rank` itself.
    pub fn check(&self, rank: usize, size: usize) -> Result<(), String> {
        if self.size as usize != size {
            return Err(format!("this group has {size} ranks, it was told {} (WORLD_SIZE)", self.size));
        }
        if self.rank as usize >= size {
            return Err(format!("it calls itself rank {}, but the ranks are 0 to {}", self.rank, size - 1));
        }
        if self.rank as usize == rank {
            return Err(format!("it calls itself rank {rank}, which is this rank (RANK)"));
        }
        if self.purpose != Purpose::Join && (self.rank as usize) < rank {
            return Err(format!(
                "rank {} is to be called by rank {rank}, not the other way round",
                self.rank
            ));
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
            let hello = Hello { purpose, rank: 3, size: 70_000, group: 1 << 60, address };
            assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        }
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
                .contains("version 2 of the protocol, this rank version 1")
        );
        assert!(refused(greeting(VERSION, false), true).contains("it has none"));
        assert!(refused(greeting(VERSION, true), false).contains("this rank has none"));
        assert!(matches!(check_greeting(b"GET / HTTP/1", false), Err(Stranger::Unknown(_))));
    }

    #[test]
    fn ranks_that_do_not_fit_are_refused_with_both_values() {
        let hello =
            |purpose, rank, size| Hello { purpose, rank, size, group: 0, address: HERE.parse().unwrap() };
        assert_eq!(hello(Purpose::Join, 2, 4).check(0, 4), Ok(()));
        for (hello, words) in [
            (hello(Purpose::Join, 2, 3), "this group has 4 ranks, it was told 3"),
            (hello(Purpose::Join, 4, 4), "rank 4, but the ranks are 0 to 3"),
            (hello(Purpose::Join, 1, 4), "which is this rank"),
            (hello(Purpose::Data, 0, 4), "to be called by rank 1"),
        ] {
            let reason = hello.check(1, 4).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }
}
