//! What the parties send a relay, and what it answers. Specified in `docs/protocols/transport.md`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"SNDRRLAY";
const VERSION: u8 = 2;

/// The length of a token.
pub(crate) const TOKEN_LEN: usize = 16;

/// The length of a secret.
pub(crate) const SECRET_LEN: usize = 32;

/// The length of the first message, of either kind.
pub(crate) const REQUEST_LEN: usize = 10 + SECRET_LEN;

/// What who waits answers when it is connected: a connection that waited may be dead.
pub(crate) const STILL_PRESENT: u8 = 0;

/// What a relay says with one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RelayResponse {
    /// Who connects is connected: what follows comes from the other party. To who waits: the same,
    /// once it has answered with [`STILL_PRESENT`].
    Connected = 0,
    /// To who waits: it still does.
    Waiting = 1,
    /// To who connects: nobody waits with this token.
    Nobody = 2,
    /// There are too many connections, or the message is not one.
    Refused = 3,
}

impl RelayResponse {
    /// What a byte says.
    pub(crate) fn parse(byte: u8) -> Option<Self> {
        let all = [Self::Connected, Self::Waiting, Self::Nobody, Self::Refused];
        all.into_iter().find(|answer| *answer as u8 == byte)
    }
}

/// Under which who waits is found. Nobody guesses it. It is no secret of the ends, which prove
/// their keys to each other: who has it can connect, as to any address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RelayToken([u8; TOKEN_LEN]);

/// A text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token of a relay: take the 32 digits that the receiver prints")]
pub struct RelayTokenError;

impl FromStr for RelayToken {
    type Err = RelayTokenError;

    fn from_str(text: &str) -> Result<Self, RelayTokenError> {
        let mut token = [0; TOKEN_LEN];
        let is_hexadecimal = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if text.len() != 2 * TOKEN_LEN || !is_hexadecimal {
            return Err(RelayTokenError);
        }
        for (byte, at) in token.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| RelayTokenError)?;
        }
        Ok(Self(token))
    }
}

impl fmt::Display for RelayToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for RelayToken {
    /// Who reads a log cannot connect.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RelayToken(..)")
    }
}

/// What only who waits knows, and the relay. Secret.
pub(crate) struct RelaySecret(Zeroizing<[u8; SECRET_LEN]>);

impl RelaySecret {
    pub(crate) fn new(bytes: Zeroizing<[u8; SECRET_LEN]>) -> Self {
        Self(bytes)
    }

    /// That of an end with this identity: the same in each run.
    pub(crate) fn of_identity(identity: &keys::IdentitySecretKey) -> Self {
        let state = Sha256::new().chain_update(b"Sunder relay 1").chain_update(*identity.x25519());
        Self(Zeroizing::new(state.finalize().into()))
    }

    pub(crate) fn into_bytes(self) -> Zeroizing<[u8; SECRET_LEN]> {
        self.0
    }

    /// The token that who knows the secret waits under.
    pub(crate) fn token(&self) -> RelayToken {
        let digest = Sha256::digest(*self.0);
        let (token, _) = digest.split_first_chunk().expect("a digest is longer than a token");
        RelayToken(*token)
    }
}

/// What a party asks for.
pub(crate) enum RelayRequest {
    /// To wait, under the token of this secret.
    Wait(RelaySecret),
    /// To be connected to who waits under this token.
    Connect(RelayToken),
}

impl RelayRequest {
    /// Its bytes.
    pub(crate) fn encode(&self) -> Zeroizing<[u8; REQUEST_LEN]> {
        let mut bytes = Zeroizing::new([0; REQUEST_LEN]);
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        match self {
            Self::Wait(secret) => {
                bytes[9] = 1;
                bytes[10..].copy_from_slice(&*secret.0);
            }
            Self::Connect(token) => {
                bytes[9] = 2;
                bytes[10..10 + TOKEN_LEN].copy_from_slice(&token.0);
            }
        }
        bytes
    }

    /// Reads a request; `None` if it is not one.
    pub(crate) fn parse(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let (head, body) = bytes.split_first_chunk::<10>()?;
        if &head[..8] != MAGIC || head[8] != VERSION {
            return None;
        }
        match head[9] {
            1 => Some(Self::Wait(RelaySecret(Zeroizing::new(*body.first_chunk()?)))),
            2 => Some(Self::Connect(RelayToken(*body.first_chunk()?))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_sent() {
        let secret = || RelaySecret(Zeroizing::new([7; SECRET_LEN]));
        let token = secret().token();
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_eq!("0g".repeat(16).parse::<RelayToken>(), Err(RelayTokenError));
        assert_eq!("é".repeat(16).parse::<RelayToken>(), Err(RelayTokenError));
        let mut bytes = *RelayRequest::Wait(secret()).encode();
        assert!(
            matches!(RelayRequest::parse(&bytes), Some(RelayRequest::Wait(read)) if read.token() == token)
        );
        for at in 0..10 {
            bytes[at] ^= 8;
            assert!(RelayRequest::parse(&bytes).is_none(), "byte {at}");
            bytes[at] ^= 8;
        }
        let bytes = RelayRequest::Connect(token).encode();
        assert!(
            matches!(RelayRequest::parse(&bytes), Some(RelayRequest::Connect(read)) if read == token)
        );
    }

    #[test]
    fn a_token_stays_with_its_identity_and_does_not_give_the_secret() {
        let identity = keys::IdentitySecretKey::new(&[7; 32]);
        let secret = RelaySecret::of_identity(&identity);
        assert_eq!(secret.token(), RelaySecret::of_identity(&identity).token());
        assert_ne!(secret.token().0, secret.0[..TOKEN_LEN]);
    }
}
