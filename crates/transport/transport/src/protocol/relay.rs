//! The messages between the parties and a relay, specified in `docs/protocols/transport.md`.

use std::fmt;
use std::str::FromStr;

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"SNDRRLAY";
const VERSION: u8 = 3;

/// The length of a token.
pub(crate) const TOKEN_LEN: usize = 16;

/// The length of a secret.
pub(crate) const SECRET_LEN: usize = 32;

/// The length of a request, of either kind.
pub(crate) const REQUEST_LEN: usize = 10 + SECRET_LEN;

/// The answer of a waiting party when another party connects: it shows that its connection is still
/// alive.
pub(crate) const STILL_PRESENT: u8 = 0;

/// A response of the relay, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RelayResponse {
    /// To a connecting party: it is connected. A grant to bind a UDP address follows, and then what
    /// the other party sends. To a waiting party: the same, once it has answered with
    /// [`STILL_PRESENT`].
    Connected = 0,
    /// To a waiting party: it is still waiting.
    Waiting = 1,
    /// To a connecting party: no party waits under this token.
    Nobody = 2,
    /// There are too many connections, or the request is invalid.
    Refused = 3,
}

impl RelayResponse {
    /// Parses a response.
    pub(crate) fn parse(byte: u8) -> Option<Self> {
        let all = [Self::Connected, Self::Waiting, Self::Nobody, Self::Refused];
        all.into_iter().find(|answer| *answer as u8 == byte)
    }
}

/// A token, under which connecting parties find a waiting one. It cannot be guessed. It is not a
/// secret between the parties, which prove their keys to each other: anyone who has the token can
/// connect, as to any address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RelayToken([u8; TOKEN_LEN]);

/// A text is not a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid relay token: take the 32 digits that the receiver prints")]
pub struct RelayTokenError;

impl FromStr for RelayToken {
    type Err = RelayTokenError;

    fn from_str(text: &str) -> Result<Self, RelayTokenError> {
        let mut token = [0; TOKEN_LEN];
        match base16ct::mixed::decode(text, &mut token) {
            Ok(decoded) if decoded.len() == TOKEN_LEN => Ok(Self(token)),
            _ => Err(RelayTokenError),
        }
    }
}

impl fmt::Display for RelayToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}", HexDisplay(&self.0))
    }
}

impl RelayToken {
    /// The token of these bytes.
    pub(crate) fn from_bytes(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub(crate) fn to_bytes(self) -> [u8; TOKEN_LEN] {
        self.0
    }
}

impl fmt::Debug for RelayToken {
    /// Redacted, so that a reader of a log cannot connect.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RelayToken(..)")
    }
}

/// The secret of a waiting party, known only to that party and to the relay.
pub(crate) struct RelaySecret(Zeroizing<[u8; SECRET_LEN]>);

impl RelaySecret {
    pub(crate) fn new(bytes: Zeroizing<[u8; SECRET_LEN]>) -> Self {
        Self(bytes)
    }

    /// The secret of an identity, which is the same in each run.
    pub(crate) fn of_identity(identity: &keys::IdentitySecretKey) -> Self {
        let state = Sha256::new().chain_update(b"Sunder relay 1").chain_update(*identity.x25519());
        Self(Zeroizing::new(state.finalize().into()))
    }

    /// The secret of the end that shows a code with this number. Anyone who knows the number has
    /// it, too: the words of the code protect the transfer.
    pub(crate) fn of_code(number: u32) -> Self {
        let state = Sha256::new().chain_update(b"Sunder relay code 1");
        Self(Zeroizing::new(state.chain_update(number.to_be_bytes()).finalize().into()))
    }

    pub(crate) fn into_bytes(self) -> Zeroizing<[u8; SECRET_LEN]> {
        self.0
    }

    /// The token that belongs to this secret.
    pub(crate) fn token(&self) -> RelayToken {
        let digest = Sha256::digest(*self.0);
        let (token, _) = digest.split_first_chunk().expect("a digest is longer than a token");
        RelayToken(*token)
    }
}

/// A party's request.
pub(crate) enum RelayRequest {
    /// To wait, under the token of this secret.
    Wait(RelaySecret),
    /// To be connected to the party that waits under this token.
    Connect(RelayToken),
}

impl RelayRequest {
    /// Encodes the request.
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

    /// Parses a request; `None` if it is invalid.
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
