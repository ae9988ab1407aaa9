//! LEB128: seven bits a byte, lowest first, the high bit says that more follow. Only the shortest spelling is
//! read.

use crate::{Error, Result};

/// Appends `value` in one to ten bytes.
pub(super) fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front of `bytes`.
///
/// An over-long spelling is refused, so that one value has one encoding and a hostile sender can't hide
/// bytes.
pub(super) fn read(field: &'static str, bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for (position, &byte) in bytes.iter().enumerate() {
        let payload = u64::from(byte & 0x7f);
        if position == 9 && byte > 1 {
            return Err(overlong(field, "a number beyond 64 bits"));
        }
        value |= payload << (7 * position);
        if byte < 0x80 {
            if byte == 0 && position > 0 {
                return Err(overlong(field, "a number with needless zeros in front"));
            }
            *bytes = &bytes[position + 1..];
            return Ok(value);
        }
    }
    let left = bytes.len() as u64;
    Err(Error::Truncated { field, needed: left + 1, left })
}

/// The same for a field that must fit into 32 bits.
pub(super) fn read_u32(field: &'static str, bytes: &mut &[u8]) -> Result<u32> {
    let value = read(field, bytes)?;
    u32::try_from(value).map_err(|_| Error::BadField {
        field,
        found: value.to_string(),
        expected: format!("at most {}", u32::MAX),
    })
}

#[cold]
fn overlong(field: &'static str, found: &str) -> Error {
    Error::BadField { field, found: found.into(), expected: "a shortest-form LEB128 number".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(value, &mut out);
        out
    }

    #[test]
    fn known_spellings() {
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(127), [0x7f]);
        assert_eq!(encoded(128), [0x80, 0x01]);
        assert_eq!(encoded(624_485), [0xe5, 0x8e, 0x26]);
        assert_eq!(encoded(u64::MAX).len(), 10);
    }

    #[test]
    fn refuses_what_is_not_shortest() {
        for bytes in [&[0x80, 0x00][..], &[0xff; 10], &[0xff; 11], &[0x80; 12]] {
            assert!(matches!(read("x", &mut &*bytes), Err(Error::BadField { .. })), "{bytes:x?}");
        }
        let two = [&[0xff; 9][..], &[0x02]].concat();
        assert!(matches!(read("x", &mut &*two), Err(Error::BadField { .. })));
        for bytes in [&[][..], &[0x80], &[0xff; 9]] {
            assert!(matches!(read("x", &mut &*bytes), Err(Error::Truncated { .. })), "{bytes:x?}");
        }
        let wide = encoded(u64::from(u32::MAX) + 1);
        assert!(matches!(read_u32("x", &mut &*wide), Err(Error::BadField { .. })));
    }

    proptest! {
        #[test]
        fn round_trip(value in any::<u64>(), shift in 0u32..64, tail in any::<u8>()) {
            let value = value >> shift;
            let mut bytes = encoded(value);
            bytes.push(tail);
            let mut rest = &bytes[..];
            prop_assert_eq!(read("x", &mut rest).unwrap(), value);
            prop_assert_eq!(rest, &[tail][..]);
        }

        #[test]
        fn one_value_has_one_spelling(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut rest = &bytes[..];
            if let Ok(value) = read("x", &mut rest) {
                prop_assert_eq!(&encoded(value)[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
