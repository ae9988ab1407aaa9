//! The handshake in which two ranks prove to each other that they know the group's secret.

use snow::{Builder, HandshakeState, Keypair, TransportState};

use super::hello::OPENING;
use super::secret::{Key, Secret};

/// Three messages; both ends prove that they know the secret, and every connection gets keys of its own, so that
/// what was recorded can't be read later even by one who learns the secret.
const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

/// Bytes of encryption around a record.
pub(super) const TAG: usize = 16;

/// No handshake message is longer.
pub(super) const LONGEST_HANDSHAKE: usize = 256;

/// The secret with this process's own keys, which are made anew each time.
pub(super) struct Identity {
    group: String,
    key: Key,
    keys: Keypair,
}

fn builder<'a>() -> Result<Builder<'a>, String> {
    Ok(Builder::new(PATTERN.parse().map_err(words)?))
}

fn words(error: snow::Error) -> String {
    format!("encryption failed: {error}")
}

impl Identity {
    pub fn new(secret: &Secret, group: &str) -> Result<Identity, String> {
        let keys = builder()?.generate_keypair().map_err(words)?;
        Ok(Identity { group: group.to_owned(), key: secret.key(group)?, keys })
    }

    /// One end of a handshake. It fails unless both ends agree on what was said before it in clear, which is the
    /// protocol's version and who calls whom, and on the name of the group.
    pub fn handshake(&self, calls: bool, opening: &[u8; OPENING]) -> Result<Handshake, String> {
        let prologue = [&opening[..], self.group.as_bytes()].concat();
        let builder = builder()?.psk(3, &self.key).map_err(words)?;
        let builder = builder.local_private_key(&self.keys.private).map_err(words)?;
        let builder = builder.prologue(&prologue).map_err(words)?;
        let state = if calls { builder.build_initiator() } else { builder.build_responder() };
        Ok(Handshake { state: state.map_err(words)? })
    }
}

/// A handshake that is under way.
pub(super) struct Handshake {
    state: HandshakeState,
}

impl Handshake {
    /// The next message to send.
    pub fn write(&mut self) -> Result<Vec<u8>, String> {
        let mut message = vec![0; LONGEST_HANDSHAKE];
        let length = self.state.write_message(&[], &mut message).map_err(words)?;
        message.truncate(length);
        Ok(message)
    }

    /// Takes in a message of the other end. That its secret is another shows in the third.
    pub fn read(&mut self, message: &[u8]) -> Result<(), snow::Error> {
        self.state.read_message(message, &mut [0; LONGEST_HANDSHAKE]).map(|_| ())
    }

    /// After three messages.
    pub fn finish(self) -> Result<TransportState, String> {
        self.state.into_transport_mode().map_err(words)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::group::tcp::hello::{Claim, VERSION, opening};

    /// Both ends of a connection, of ranks that know these secrets.
    pub fn pair(caller: &str, called: &str) -> Result<(TransportState, TransportState), snow::Error> {
        let end = |secret: &str, calls| {
            let identity = Identity::new(&Secret::new(secret.as_bytes()).unwrap(), "group").unwrap();
            identity.handshake(calls, &[7; OPENING]).unwrap()
        };
        let (mut a, mut b) = (end(caller, true), end(called, false));
        b.read(&a.write().unwrap())?;
        a.read(&b.write().unwrap())?;
        b.read(&a.write().unwrap())?;
        Ok((a.finish().unwrap(), b.finish().unwrap()))
    }

    #[test]
    fn both_ends_must_mean_the_same_ranks_and_the_same_group() {
        let secret = Secret::new(b"hush").unwrap();
        let opens = |caller: (&str, u32, u32), called: (&str, u32, u32)| {
            let end = |(group, caller, called): (&str, u32, u32), calls| {
                let opening = opening(VERSION, true, Claim { caller, called });
                Identity::new(&secret, group).unwrap().handshake(calls, &opening).unwrap()
            };
            let (mut a, mut b) = (end(caller, true), end(called, false));
            b.read(&a.write().unwrap()).is_ok() && a.read(&b.write().unwrap()).is_ok()
        };
        assert!(opens(("a", 3, 1), ("a", 3, 1)));
        assert!(!opens(("a", 3, 1), ("a", 3, 2)) && !opens(("a", 3, 1), ("a", 2, 1)));
        assert!(!opens(("a", 3, 1), ("b", 3, 1)));
    }

    #[test]
    fn one_secret_opens_and_another_does_not() {
        assert!(pair("hush", "hush").is_ok());
        assert!(pair("hush", "Hush").is_err());
    }
}
