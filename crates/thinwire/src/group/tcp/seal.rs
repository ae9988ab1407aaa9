//! Encrypted records in memory: plain bytes in, sealed bytes out, and back.
//!
//! A record is its length in two bytes and up to 65,535 bytes of ciphertext. Several are sealed before they go to
//! the system and several are taken from it at once, so that there is not a system call for each.
//!
//! After every [`RECORDS_OF_A_KEY`] records of a direction its key is replaced by one that is derived from it (Noise's
//! rekey). Both ends count the records of the stream, so nothing has to be said about it. AES-GCM under one key is
//! safe for about 2^36 bytes; and a key that leaks opens nothing that was sent before it came into use.

use snow::TransportState;

use super::secure::TAG;

/// Plain bytes in a record: with its tag it must not be longer than 65,535.
pub(super) const RECORD: usize = 65_535 - TAG;
const LENGTH: usize = 2;
const WHOLE: usize = LENGTH + RECORD + TAG;

/// Records that are sealed before they are sent, and that are received at once.
const RECORDS: usize = 4;

/// Records under one key: 4 GiB at most.
const RECORDS_OF_A_KEY: u32 = 1 << 16;

/// Records that one direction has left under its key.
#[derive(Debug, Clone, Copy)]
struct Left {
    now: u32,
    whole: u32,
}

impl Left {
    /// Counts a record; true when the next one is under a new key.
    fn is_used_up(&mut self) -> bool {
        self.now -= 1;
        if self.now == 0 {
            self.now = self.whole;
            return true;
        }
        false
    }
}

/// One end of an encrypted connection.
pub(super) struct Seal {
    state: TransportState,
    left_to_seal: Left,
    left_to_open: Left,
    /// Sealed and not sent: from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    /// Where the pieces of a record are put together.
    joined: Vec<u8>,
    /// Received and not opened: `opened..received`.
    incoming: Vec<u8>,
    opened: usize,
    received: usize,
    /// Opened and not taken: from `taken` on.
    plain: Vec<u8>,
    taken: usize,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(keys hidden)")
    }
}

impl Seal {
    pub fn new(state: TransportState) -> Seal {
        Seal::with_records_of_a_key(state, RECORDS_OF_A_KEY)
    }

    fn with_records_of_a_key(state: TransportState, records: u32) -> Seal {
        let left = Left { now: records, whole: records };
        // Memory is taken at the first use: most pairs of ranks of a ring never talk.
        Seal {
            state,
            left_to_seal: left,
            left_to_open: left,
            outgoing: Vec::new(),
            sent: 0,
            joined: Vec::new(),
            incoming: Vec::new(),
            opened: 0,
            received: 0,
            plain: Vec::new(),
            taken: 0,
        }
    }

    /// Seals `head` and then `body` as far as there is room: how many bytes. Call it when everything sealed
    /// before has been sent.
    pub fn close(&mut self, head: &[u8], body: &[u8]) -> Result<usize, String> {
        self.outgoing.clear();
        self.sent = 0;
        let mut taken = 0;
        let mut body = body;
        if !head.is_empty() {
            // The envelope and the start of the message share a record.
            if head.len() > RECORD {
                return self.close(&[], head);
            }
            let (first, rest) = body.split_at(body.len().min(RECORD - head.len()));
            self.joined_record(head, first)?;
            taken = head.len() + first.len();
            body = rest;
        }
        for record in body.chunks(RECORD).take(RECORDS - usize::from(taken > 0)) {
            self.record(record)?;
            taken += record.len();
        }
        Ok(taken)
    }

    /// One record of two pieces. Only the first record of a message has two, so the copy costs little.
    fn joined_record(&mut self, head: &[u8], body: &[u8]) -> Result<(), String> {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.extend_from_slice(head);
        joined.extend_from_slice(body);
        let result = self.record(&joined);
        self.joined = joined;
        result
    }

    fn record(&mut self, plain: &[u8]) -> Result<(), String> {
        let start = self.outgoing.len();
        let sealed = plain.len() + TAG;
        self.outgoing.extend_from_slice(&(sealed as u16).to_le_bytes());
        self.outgoing.resize(start + LENGTH + sealed, 0);
        let written = self.state.write_message(plain, &mut self.outgoing[start + LENGTH..]);
        written.map_err(|error| format!("encryption failed: {error}"))?;
        if self.left_to_seal.is_used_up() {
            self.state.rekey_outgoing();
        }
        Ok(())
    }

    /// What is sealed and not sent.
    pub fn unsent(&self) -> &[u8] {
        &self.outgoing[self.sent..]
    }

    /// Some of it has been sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    /// Where received bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        if self.incoming.is_empty() {
            self.incoming = vec![0; RECORDS * WHOLE];
        }
        if self.opened > 0 {
            // What is left is less than a record.
            self.incoming.copy_within(self.opened..self.received, 0);
            self.received -= self.opened;
            self.opened = 0;
        }
        &mut self.incoming[self.received..]
    }

    /// Some have been put there.
    pub fn received(&mut self, count: usize) {
        self.received += count;
    }

    /// Opens records that are whole into `into`: how many bytes, 0 when none is.
    pub fn open(&mut self, into: &mut [u8]) -> Result<usize, String> {
        let mut count = 0;
        loop {
            let rest = (self.plain.len() - self.taken).min(into.len() - count);
            into[count..count + rest].copy_from_slice(&self.plain[self.taken..self.taken + rest]);
            self.taken += rest;
            count += rest;
            let held = &self.incoming[self.opened..self.received];
            let Some((&length, sealed)) = held.split_first_chunk::<LENGTH>() else { return Ok(count) };
            let Some(sealed) = sealed.get(..u16::from_le_bytes(length) as usize) else { return Ok(count) };
            let room = &mut into[count..];
            if room.is_empty() {
                return Ok(count);
            }
            let damaged = |_| "a record that is damaged or not sealed with the group's secret".to_owned();
            if sealed.len() <= TAG {
                // Nobody seals nothing; and one who did so for ever would keep this rank busy past its deadline.
                return Err("a record that is empty".into());
            }
            let sealed_length = sealed.len();
            if room.len() >= sealed_length {
                // The tag is put behind the plain bytes, over what may still have to be sent from there.
                let after = &mut room[sealed.len() - TAG..];
                let mut kept = [0; TAG];
                kept.copy_from_slice(&after[..TAG]);
                let length = self.state.read_message(sealed, room).map_err(damaged)?;
                room[length..length + TAG].copy_from_slice(&kept);
                count += length;
            } else {
                self.plain.resize(RECORD + TAG, 0);
                let length = self.state.read_message(sealed, &mut self.plain).map_err(damaged)?;
                self.plain.truncate(length);
                self.taken = 0;
            }
            self.opened += LENGTH + sealed_length;
            if self.left_to_open.is_used_up() {
                self.state.rekey_incoming();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tcp::secure::tests::pair;

    fn seals() -> (Seal, Seal) {
        let (a, b) = pair("hush", "hush").unwrap();
        (Seal::new(a), Seal::new(b))
    }

    /// Moves sealed bytes from one to the other, `step` at a time.
    fn carry(from: &mut Seal, to: &mut Seal, step: usize) -> usize {
        let room = to.room();
        let count = from.unsent().len().min(step).min(room.len());
        room[..count].copy_from_slice(&from.unsent()[..count]);
        from.sent(count);
        to.received(count);
        count
    }

    #[test]
    fn bytes_come_back_however_they_are_cut() {
        for (length, head, step, take) in [
            (1, 0, 1, 1),
            (300_000, 40, 70_001, 1000),
            (200_000, 40, 1 << 20, 1 << 20),
            (65_519, 0, 9999, 65_519),
        ] {
            let (mut a, mut b) = seals();
            let message: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let (mut gone, mut come) = (0, Vec::new());
            let mut piece = vec![0; take];
            while come.len() < length {
                if a.unsent().is_empty() && gone < length {
                    let head = head.min(length - gone);
                    gone += a.close(&message[gone..gone + head], &message[gone + head..]).unwrap();
                }
                carry(&mut a, &mut b, step);
                loop {
                    let count = b.open(&mut piece).unwrap();
                    come.extend_from_slice(&piece[..count]);
                    if count == 0 {
                        break;
                    }
                }
            }
            assert!(come == message, "{length} {step} {take}");
        }
    }

    #[test]
    fn both_ends_change_their_keys_after_the_same_records() {
        let (a, b) = pair("hush", "hush").unwrap();
        let (mut a, mut b) = (Seal::with_records_of_a_key(a, 3), Seal::with_records_of_a_key(b, 3));
        // More records one way than the other, and back and forth.
        for round in 0..20u8 {
            for (message, forth) in [([round; 9], true), ([round + 100; 9], true), ([round; 9], false)] {
                let (from, to) = if forth { (&mut a, &mut b) } else { (&mut b, &mut a) };
                from.close(&[], &message).unwrap();
                carry(from, to, 1000);
                let mut into = [0; 64];
                assert_eq!(to.open(&mut into), Ok(9), "round {round}");
                assert_eq!(into[..9], message);
            }
        }
    }

    #[test]
    fn a_record_is_under_a_new_key_when_the_old_one_is_used_up() {
        let (a, b) = pair("hush", "hush").unwrap();
        // One that never changes its key can read the first three records, and no more.
        let (mut a, mut b) = (Seal::with_records_of_a_key(a, 3), Seal::new(b));
        for record in 0..4 {
            a.close(&[], b"hello").unwrap();
            carry(&mut a, &mut b, 1000);
            assert_eq!(b.open(&mut [0; 64]).is_ok(), record < 3, "record {record}");
        }
    }

    #[test]
    fn what_stands_behind_the_bytes_is_left_alone() {
        let (mut a, mut b) = seals();
        a.close(&[], b"hello").unwrap();
        carry(&mut a, &mut b, 100);
        let mut into = [9; 64];
        assert_eq!(b.open(&mut into), Ok(5));
        assert_eq!((&into[..5], &into[5..]), (&b"hello"[..], &[9; 59][..]));
    }

    #[test]
    fn a_changed_bit_is_found() {
        for bit in [2, 10, 17] {
            let (mut a, mut b) = seals();
            a.close(&[], b"hello").unwrap();
            carry(&mut a, &mut b, 100);
            b.incoming[bit] ^= 1;
            assert!(b.open(&mut [0; 9]).unwrap_err().contains("damaged"));
        }
    }

    #[test]
    fn a_record_too_short_for_its_tag_is_refused() {
        let (_, mut b) = seals();
        b.room()[..3].copy_from_slice(&[1, 0, 9]);
        b.received(3);
        assert!(b.open(&mut [0; 9]).is_err());
    }
}
