//! The messages of an exchange and their bytes, which are in `docs/protocols/directory.md`.
//!
//! Parsing checks a message in full, and a message has one encoding. A [`Proof`] shows whether the
//! content of a Tell is authentic.

use super::addresses::{Addresses, AddressesError};

/// The length of a nonce, in bytes.
pub const NONCE_LEN: usize = 32;

/// The length of an Ask, in bytes.
pub const ASK_LEN: usize = HEADER_LEN + NONCE_LEN;

/// The longest reply, in bytes: a Tell of 16 IPv6 addresses with a signature.
pub const MAX_REPLY_LEN: usize = HEADER_LEN + NONCE_LEN + 1 + 16 * 19 + 64;

/// Magic, version, kind, and one byte that is the scheme or the reason of a refusal.
const HEADER_LEN: usize = 7;

const MAGIC: [u8; 4] = *b"SNDD";
const VERSION: u8 = 1;

const KIND_ASK: u8 = 1;
const KIND_TELL: u8 = 2;
const KIND_REFUSE: u8 = 3;

/// The prefix of the bytes that a proof covers, so that no proof for another purpose is valid here.
const DOMAIN: &[u8] = b"sunder directory: addresses of a peer\0";

/// Random bytes of one end for one exchange. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce([u8; NONCE_LEN]);

impl Nonce {
    /// A nonce of random bytes.
    pub fn new(random: [u8; NONCE_LEN]) -> Self {
        Self(random)
    }
}

/// The scheme of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scheme {
    /// HMAC-SHA-256 under a key that both ends have.
    Hmac = 1,
    /// An Ed25519 signature of the server.
    Ed25519 = 2,
}

impl Scheme {
    /// The scheme with this number.
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Hmac, Self::Ed25519].into_iter().find(|&scheme| scheme as u8 == byte)
    }

    /// Its name, as in `hmac`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hmac => "hmac",
            Self::Ed25519 => "ed25519",
        }
    }
}

/// A proof that an answer is authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// An HMAC-SHA-256 code.
    Hmac([u8; 32]),
    /// An Ed25519 signature.
    Ed25519([u8; 64]),
}

impl Proof {
    /// Its scheme.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Hmac(_) => Scheme::Hmac,
            Self::Ed25519(_) => Scheme::Ed25519,
        }
    }

    /// Reads a proof that is all of `bytes`.
    fn parse(scheme: Scheme, bytes: &[u8]) -> Result<Self, MessageError> {
        let proof = match scheme {
            Scheme::Hmac => bytes.split_first_chunk().map(|(code, rest)| (Self::Hmac(*code), rest)),
            Scheme::Ed25519 => {
                bytes.split_first_chunk().map(|(signed, rest)| (Self::Ed25519(*signed), rest))
            }
        };
        match proof {
            Some((proof, [])) => Ok(proof),
            Some(_) => Err(MessageError::Trailing),
            None => Err(MessageError::Short),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Hmac(code) => code,
            Self::Ed25519(signature) => signature,
        }
    }
}

/// Client to server: a request for the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The scheme by which the answer has to be proven.
    pub scheme: Scheme,
    /// Fresh, so that no older answer is valid for this request.
    pub nonce: Nonce,
}

impl Ask {
    /// Reads an Ask that is all of `bytes`.
    ///
    /// # Errors
    /// When they are not exactly one Ask.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (kind, scheme, body) = parse_header(bytes)?;
        if kind != KIND_ASK {
            return Err(MessageError::Kind(kind));
        }
        let scheme = Scheme::from_byte(scheme).ok_or(MessageError::Scheme(scheme))?;
        let (nonce, rest) = body.split_first_chunk().ok_or(MessageError::Short)?;
        if rest.is_empty() {
            Ok(Self { scheme, nonce: Nonce(*nonce) })
        } else {
            Err(MessageError::Trailing)
        }
    }

    /// Its encoding: [`ASK_LEN`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = header(KIND_ASK, self.scheme as u8);
        bytes.extend(self.nonce.0);
        bytes
    }

    /// The bytes that an answer's proof covers: the whole answer and this Ask.
    pub(super) fn statement(&self, nonce: Nonce, addresses: &Addresses) -> Vec<u8> {
        let mut statement = DOMAIN.to_vec();
        statement.extend([VERSION, self.scheme as u8]);
        statement.extend(self.nonce.0);
        statement.extend(nonce.0);
        statement.extend(addresses.encode());
        statement
    }
}

/// Server to client: the server's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// Fresh, so that the client does not choose all bytes that the proof covers.
    pub nonce: Nonce,
    /// The server's addresses, one for each channel.
    pub addresses: Addresses,
    /// The proof that this server answers this Ask.
    pub proof: Proof,
}

/// Why a server refuses to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// It has no key for the requested scheme.
    #[error("it has no key of this kind: use the kind of key that it has")]
    SchemeNotOffered = 1,
}

/// Server to client: the reply to an Ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The server's addresses.
    Tell(Tell),
    /// A refusal.
    Refuse(Refusal),
}

impl Reply {
    /// Reads a reply that is all of `bytes`.
    ///
    /// # Errors
    /// When they are not exactly one reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (kind, detail, body) = parse_header(bytes)?;
        match kind {
            KIND_TELL => {
                let scheme = Scheme::from_byte(detail).ok_or(MessageError::Scheme(detail))?;
                let (nonce, rest) = body.split_first_chunk().ok_or(MessageError::Short)?;
                let (addresses, rest) = Addresses::parse_prefix(rest)?;
                let proof = Proof::parse(scheme, rest)?;
                Ok(Self::Tell(Tell { nonce: Nonce(*nonce), addresses, proof }))
            }
            KIND_REFUSE if detail != Refusal::SchemeNotOffered as u8 => {
                Err(MessageError::Refusal(detail))
            }
            KIND_REFUSE if !body.is_empty() => Err(MessageError::Trailing),
            KIND_REFUSE => Ok(Self::Refuse(Refusal::SchemeNotOffered)),
            other => Err(MessageError::Kind(other)),
        }
    }

    /// Its encoding: at most [`MAX_REPLY_LEN`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Tell(Tell { nonce, addresses, proof }) => {
                let mut bytes = header(KIND_TELL, proof.scheme() as u8);
                bytes.extend(nonce.0);
                bytes.extend(addresses.encode());
                bytes.extend(proof.as_bytes());
                bytes
            }
            Self::Refuse(refusal) => header(KIND_REFUSE, *refusal as u8),
        }
    }
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// They do not begin with `SNDD`.
    #[error("not a message of a directory; see that it is sunder serve that listens there")]
    Magic,
    /// A version that this end does not implement.
    #[error("unknown version {0}; the newer of the two ends has to wait for the other")]
    Version(u8),
    /// An unknown kind, or a kind that is not allowed here.
    #[error("unexpected kind of message {0}")]
    Kind(u8),
    /// An unknown scheme.
    #[error("unknown scheme {0}")]
    Scheme(u8),
    /// An unknown reason of a refusal.
    #[error("unknown refusal {0}")]
    Refusal(u8),
    /// The addresses are not a valid list.
    #[error(transparent)]
    Addresses(#[from] AddressesError),
    /// The message is cut short.
    #[error("the message is cut short")]
    Short,
    /// Bytes follow the message.
    #[error("bytes follow the message")]
    Trailing,
}

fn header(kind: u8, detail: u8) -> Vec<u8> {
    [&MAGIC[..], &[VERSION, kind, detail]].concat()
}

/// The kind, the byte whose meaning depends on the kind, and the rest.
fn parse_header(bytes: &[u8]) -> Result<(u8, u8, &[u8]), MessageError> {
    let ([magic @ .., version, kind, detail], body) =
        bytes.split_first_chunk::<HEADER_LEN>().ok_or(MessageError::Short)?;
    if *magic != MAGIC {
        return Err(MessageError::Magic);
    }
    if *version != VERSION {
        return Err(MessageError::Version(*version));
    }
    Ok((*kind, *detail, body))
}

#[cfg(test)]
mod tests {
    use super::super::addresses::tests::{list, lists};
    use super::*;
    use proptest::prelude::*;

    fn tell(proof: Proof) -> Reply {
        Reply::Tell(Tell { nonce: Nonce([7; 32]), addresses: list("192.0.2.1:80"), proof })
    }

    #[test]
    fn bytes_as_documented() {
        let ask = Ask { scheme: Scheme::Ed25519, nonce: Nonce([9; 32]) };
        assert_eq!(ask.encode(), [&b"SNDD\x01\x01\x02"[..], &[9; 32]].concat());
        assert_eq!(ask.encode().len(), ASK_LEN);
        assert_eq!(
            tell(Proof::Hmac([8; 32])).encode(),
            [&b"SNDD\x01\x02\x01"[..], &[7; 32], b"\x01\x04\xc0\x00\x02\x01\x00\x50", &[8; 32]]
                .concat()
        );
        assert_eq!(Reply::Refuse(Refusal::SchemeNotOffered).encode(), b"SNDD\x01\x03\x01");
        let statement = ask.statement(Nonce([7; 32]), &list("192.0.2.1:80"));
        let parts = [DOMAIN, b"\x01\x02", &[9; 32], &[7; 32], b"\x01\x04\xc0\x00\x02\x01\x00\x50"];
        assert_eq!(statement, parts.concat());
    }

    #[test]
    fn the_longest_reply_is_as_long_as_said() {
        let addresses: Vec<_> = (1..=16).map(|port| format!("[2001:db8::1]:{port}")).collect();
        let addresses = list(&addresses.join(" "));
        let proof = Proof::Ed25519([0; 64]);
        let longest = Reply::Tell(Tell { nonce: Nonce([0; 32]), addresses, proof });
        assert_eq!(longest.encode().len(), MAX_REPLY_LEN);
    }

    #[test]
    fn wrong_fields_are_named() {
        let change = |bytes: &[u8], place: usize, value| {
            let mut bytes = bytes.to_vec();
            bytes[place] = value;
            bytes
        };
        let ask = Ask { scheme: Scheme::Hmac, nonce: Nonce([0; 32]) }.encode();
        let tell = tell(Proof::Hmac([0; 32])).encode();
        let refuse = Reply::Refuse(Refusal::SchemeNotOffered).encode();
        for (place, value, error) in [
            (3, b'R', MessageError::Magic),
            (4, 2, MessageError::Version(2)),
            (5, 0, MessageError::Kind(0)),
        ] {
            assert_eq!(Ask::parse(&change(&ask, place, value)), Err(error));
            assert_eq!(Reply::parse(&change(&tell, place, value)), Err(error));
            assert_eq!(Reply::parse(&change(&refuse, place, value)), Err(error));
        }
        assert_eq!(Ask::parse(&tell), Err(MessageError::Kind(KIND_TELL)));
        assert_eq!(Reply::parse(&ask), Err(MessageError::Kind(KIND_ASK)));
        assert_eq!(Ask::parse(&change(&ask, 6, 3)), Err(MessageError::Scheme(3)));
        assert_eq!(Reply::parse(&change(&tell, 6, 0)), Err(MessageError::Scheme(0)));
        assert_eq!(Reply::parse(&change(&refuse, 6, 2)), Err(MessageError::Refusal(2)));
        let none = AddressesError::Count { found: 0 };
        assert_eq!(Reply::parse(&change(&tell, 39, 0)), Err(MessageError::Addresses(none)));
    }

    proptest! {
        #[test]
        fn what_parses_encodes_to_itself(
            head in prop_oneof![Just(b"SNDD\x01".to_vec()), any::<[u8; 5]>().prop_map(Vec::from)],
            rest in proptest::collection::vec(any::<u8>(), 0..420),
        ) {
            let bytes = [head, rest].concat();
            if let Ok(ask) = Ask::parse(&bytes) {
                prop_assert_eq!(ask.encode(), &bytes[..]);
            }
            if let Ok(reply) = Reply::parse(&bytes) {
                prop_assert_eq!(reply.encode(), &bytes[..]);
            }
        }

        #[test]
        fn an_ask_is_read_back_whole(nonce: [u8; 32], signed: bool, more in 1_usize..40) {
            let scheme = if signed { Scheme::Ed25519 } else { Scheme::Hmac };
            let ask = Ask { scheme, nonce: Nonce(nonce) };
            let bytes = ask.encode();
            prop_assert_eq!(Ask::parse(&bytes), Ok(ask));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Ask::parse(&bytes[..cut]), Err(MessageError::Short));
            }
            let long = [bytes, vec![0; more]].concat();
            prop_assert_eq!(Ask::parse(&long), Err(MessageError::Trailing));
        }

        #[test]
        fn a_tell_is_read_back_whole(
            nonce: [u8; 32],
            addresses in lists(),
            code: [u8; 32],
            signed: bool,
            more in 1_usize..40,
        ) {
            let proof = if signed {
                Proof::Ed25519([code, code].concat().try_into().unwrap())
            } else {
                Proof::Hmac(code)
            };
            let tell = Reply::Tell(Tell { nonce: Nonce(nonce), addresses, proof });
            let bytes = tell.encode();
            prop_assert_eq!(Reply::parse(&bytes), Ok(tell));
            for cut in 0..bytes.len() {
                let refused = Reply::parse(&bytes[..cut]);
                let short = [MessageError::Short, AddressesError::Short.into()].map(Err);
                prop_assert!(short.contains(&refused), "{:?}", refused);
            }
            let long = [bytes, vec![0; more]].concat();
            prop_assert_eq!(Reply::parse(&long), Err(MessageError::Trailing));
        }
    }
}
