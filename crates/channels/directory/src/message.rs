//! The messages of an exchange and their bytes, which are in `docs/protocols/directory.md`.
//!
//! Parsing checks a message in full, and a message has one encoding. A [`AnswerProof`] shows
//! whether the content of a Tell is authentic.

use super::addresses::{ChannelAddresses, ChannelAddressesError};

/// The length of a nonce, in bytes.
pub const NONCE_LEN: usize = 32;

/// The length of an Ask, in bytes.
pub const REQUEST_LEN: usize = HEADER_LEN + NONCE_LEN;

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
pub struct DirectoryNonce([u8; NONCE_LEN]);

impl DirectoryNonce {
    /// A nonce of random bytes.
    pub fn new(random: [u8; NONCE_LEN]) -> Self {
        Self(random)
    }
}

/// The scheme of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProofScheme {
    /// HMAC-SHA-256 under a key that both ends have.
    Hmac = 1,
    /// An Ed25519 signature of the server.
    Ed25519 = 2,
}

impl ProofScheme {
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
pub enum AnswerProof {
    /// An HMAC-SHA-256 code.
    Hmac([u8; 32]),
    /// An Ed25519 signature.
    Ed25519([u8; 64]),
}

impl AnswerProof {
    /// Its scheme.
    pub fn scheme(&self) -> ProofScheme {
        match self {
            Self::Hmac(_) => ProofScheme::Hmac,
            Self::Ed25519(_) => ProofScheme::Ed25519,
        }
    }

    /// Reads a proof that is all of `bytes`.
    fn parse(scheme: ProofScheme, bytes: &[u8]) -> Result<Self, DirectoryMessageError> {
        let proof = match scheme {
            ProofScheme::Hmac => {
                bytes.split_first_chunk().map(|(code, rest)| (Self::Hmac(*code), rest))
            }
            ProofScheme::Ed25519 => {
                bytes.split_first_chunk().map(|(signed, rest)| (Self::Ed25519(*signed), rest))
            }
        };
        match proof {
            Some((proof, [])) => Ok(proof),
            Some(_) => Err(DirectoryMessageError::Trailing),
            None => Err(DirectoryMessageError::Short),
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
pub struct DirectoryRequest {
    /// The scheme by which the answer has to be proven.
    pub scheme: ProofScheme,
    /// Fresh, so that no older answer is valid for this request.
    pub nonce: DirectoryNonce,
}

impl DirectoryRequest {
    /// Reads an Ask that is all of `bytes`.
    ///
    /// # Errors
    /// When they are not exactly one Ask.
    pub fn parse(bytes: &[u8]) -> Result<Self, DirectoryMessageError> {
        let (kind, scheme, body) = parse_header(bytes)?;
        if kind != KIND_ASK {
            return Err(DirectoryMessageError::Kind(kind));
        }
        let scheme = ProofScheme::from_byte(scheme).ok_or(DirectoryMessageError::Scheme(scheme))?;
        let (nonce, rest) = body.split_first_chunk().ok_or(DirectoryMessageError::Short)?;
        if rest.is_empty() {
            Ok(Self { scheme, nonce: DirectoryNonce(*nonce) })
        } else {
            Err(DirectoryMessageError::Trailing)
        }
    }

    /// Its encoding: [`REQUEST_LEN`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = header(KIND_ASK, self.scheme as u8);
        bytes.extend(self.nonce.0);
        bytes
    }

    /// The bytes that an answer's proof covers: the whole answer and this Ask.
    pub(super) fn signed_bytes(
        &self,
        nonce: DirectoryNonce,
        addresses: &ChannelAddresses,
    ) -> Vec<u8> {
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
pub struct DirectoryAnswer {
    /// Fresh, so that the client does not choose all bytes that the proof covers.
    pub nonce: DirectoryNonce,
    /// The server's addresses, one for each channel.
    pub addresses: ChannelAddresses,
    /// The proof that this server answers this Ask.
    pub proof: AnswerProof,
}

/// Why a server refuses to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum DirectoryRefusal {
    /// It has no key for the requested scheme.
    #[error("it has no key of this kind: use the kind of key that it has")]
    SchemeNotOffered = 1,
}

/// Server to client: the reply to an Ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryReply {
    /// The server's addresses.
    Tell(DirectoryAnswer),
    /// A refusal.
    Refuse(DirectoryRefusal),
}

impl DirectoryReply {
    /// Reads a reply that is all of `bytes`.
    ///
    /// # Errors
    /// When they are not exactly one reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, DirectoryMessageError> {
        let (kind, detail, body) = parse_header(bytes)?;
        match kind {
            KIND_TELL => {
                let scheme =
                    ProofScheme::from_byte(detail).ok_or(DirectoryMessageError::Scheme(detail))?;
                let (nonce, rest) = body.split_first_chunk().ok_or(DirectoryMessageError::Short)?;
                let (addresses, rest) = ChannelAddresses::parse_prefix(rest)?;
                let proof = AnswerProof::parse(scheme, rest)?;
                Ok(Self::Tell(DirectoryAnswer { nonce: DirectoryNonce(*nonce), addresses, proof }))
            }
            KIND_REFUSE if detail != DirectoryRefusal::SchemeNotOffered as u8 => {
                Err(DirectoryMessageError::Refusal(detail))
            }
            KIND_REFUSE if !body.is_empty() => Err(DirectoryMessageError::Trailing),
            KIND_REFUSE => Ok(Self::Refuse(DirectoryRefusal::SchemeNotOffered)),
            other => Err(DirectoryMessageError::Kind(other)),
        }
    }

    /// Its encoding: at most [`MAX_REPLY_LEN`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Tell(DirectoryAnswer { nonce, addresses, proof }) => {
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
pub enum DirectoryMessageError {
    /// They do not begin with `SNDD`.
    #[error("not a directory message; check that sunder serve listens there")]
    Magic,
    /// A version that this end does not implement.
    #[error("unknown version {0}; update the older of the two ends")]
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
    Addresses(#[from] ChannelAddressesError),
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
fn parse_header(bytes: &[u8]) -> Result<(u8, u8, &[u8]), DirectoryMessageError> {
    let ([magic @ .., version, kind, detail], body) =
        bytes.split_first_chunk::<HEADER_LEN>().ok_or(DirectoryMessageError::Short)?;
    if *magic != MAGIC {
        return Err(DirectoryMessageError::Magic);
    }
    if *version != VERSION {
        return Err(DirectoryMessageError::Version(*version));
    }
    Ok((*kind, *detail, body))
}

#[cfg(test)]
mod tests {
    use super::super::addresses::tests::{list, lists};
    use super::*;
    use proptest::prelude::*;

    fn answer(proof: AnswerProof) -> DirectoryReply {
        DirectoryReply::Tell(DirectoryAnswer {
            nonce: DirectoryNonce([7; 32]),
            addresses: list("192.0.2.1:80"),
            proof,
        })
    }

    #[test]
    fn bytes_as_documented() {
        let ask = DirectoryRequest { scheme: ProofScheme::Ed25519, nonce: DirectoryNonce([9; 32]) };
        assert_eq!(ask.encode(), [&b"SNDD\x01\x01\x02"[..], &[9; 32]].concat());
        assert_eq!(ask.encode().len(), REQUEST_LEN);
        assert_eq!(
            answer(AnswerProof::Hmac([8; 32])).encode(),
            [&b"SNDD\x01\x02\x01"[..], &[7; 32], b"\x01\x04\xc0\x00\x02\x01\x00\x50", &[8; 32]]
                .concat()
        );
        assert_eq!(
            DirectoryReply::Refuse(DirectoryRefusal::SchemeNotOffered).encode(),
            b"SNDD\x01\x03\x01"
        );
        let statement = ask.signed_bytes(DirectoryNonce([7; 32]), &list("192.0.2.1:80"));
        let parts = [DOMAIN, b"\x01\x02", &[9; 32], &[7; 32], b"\x01\x04\xc0\x00\x02\x01\x00\x50"];
        assert_eq!(statement, parts.concat());
    }

    #[test]
    fn max_reply_len_is_that_of_the_longest_reply() {
        let addresses: Vec<_> = (1..=16).map(|port| format!("[2001:db8::1]:{port}")).collect();
        let addresses = list(&addresses.join(" "));
        let proof = AnswerProof::Ed25519([0; 64]);
        let longest = DirectoryReply::Tell(DirectoryAnswer {
            nonce: DirectoryNonce([0; 32]),
            addresses,
            proof,
        });
        assert_eq!(longest.encode().len(), MAX_REPLY_LEN);
    }

    #[test]
    fn wrong_fields_are_named() {
        let change = |bytes: &[u8], place: usize, value| {
            let mut bytes = bytes.to_vec();
            bytes[place] = value;
            bytes
        };
        let ask =
            DirectoryRequest { scheme: ProofScheme::Hmac, nonce: DirectoryNonce([0; 32]) }.encode();
        let answer = answer(AnswerProof::Hmac([0; 32])).encode();
        let refuse = DirectoryReply::Refuse(DirectoryRefusal::SchemeNotOffered).encode();
        for (place, value, error) in [
            (3, b'R', DirectoryMessageError::Magic),
            (4, 2, DirectoryMessageError::Version(2)),
            (5, 0, DirectoryMessageError::Kind(0)),
        ] {
            assert_eq!(DirectoryRequest::parse(&change(&ask, place, value)), Err(error));
            assert_eq!(DirectoryReply::parse(&change(&answer, place, value)), Err(error));
            assert_eq!(DirectoryReply::parse(&change(&refuse, place, value)), Err(error));
        }
        assert_eq!(DirectoryRequest::parse(&answer), Err(DirectoryMessageError::Kind(KIND_TELL)));
        assert_eq!(DirectoryReply::parse(&ask), Err(DirectoryMessageError::Kind(KIND_ASK)));
        assert_eq!(
            DirectoryRequest::parse(&change(&ask, 6, 3)),
            Err(DirectoryMessageError::Scheme(3))
        );
        assert_eq!(
            DirectoryReply::parse(&change(&answer, 6, 0)),
            Err(DirectoryMessageError::Scheme(0))
        );
        assert_eq!(
            DirectoryReply::parse(&change(&refuse, 6, 2)),
            Err(DirectoryMessageError::Refusal(2))
        );
        let none = ChannelAddressesError::Count { found: 0 };
        assert_eq!(
            DirectoryReply::parse(&change(&answer, 39, 0)),
            Err(DirectoryMessageError::Addresses(none))
        );
    }

    proptest! {
        #[test]
        fn parsed_bytes_encode_to_the_same_bytes(
            head in prop_oneof![Just(b"SNDD\x01".to_vec()), any::<[u8; 5]>().prop_map(Vec::from)],
            rest in proptest::collection::vec(any::<u8>(), 0..420),
        ) {
            let bytes = [head, rest].concat();
            if let Ok(ask) = DirectoryRequest::parse(&bytes) {
                prop_assert_eq!(ask.encode(), &bytes[..]);
            }
            if let Ok(reply) = DirectoryReply::parse(&bytes) {
                prop_assert_eq!(reply.encode(), &bytes[..]);
            }
        }

        #[test]
        fn an_ask_is_read_back_whole(nonce: [u8; 32], signed: bool, more in 1_usize..40) {
            let scheme = if signed { ProofScheme::Ed25519 } else { ProofScheme::Hmac };
            let ask = DirectoryRequest { scheme, nonce: DirectoryNonce(nonce) };
            let bytes = ask.encode();
            prop_assert_eq!(DirectoryRequest::parse(&bytes), Ok(ask));
            for cut in 0..bytes.len() {
                prop_assert_eq!(DirectoryRequest::parse(&bytes[..cut]), Err(DirectoryMessageError::Short));
            }
            let long = [bytes, vec![0; more]].concat();
            prop_assert_eq!(DirectoryRequest::parse(&long), Err(DirectoryMessageError::Trailing));
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
                AnswerProof::Ed25519([code, code].concat().try_into().unwrap())
            } else {
                AnswerProof::Hmac(code)
            };
            let answer = DirectoryReply::Tell(DirectoryAnswer { nonce: DirectoryNonce(nonce), addresses, proof });
            let bytes = answer.encode();
            prop_assert_eq!(DirectoryReply::parse(&bytes), Ok(answer));
            for cut in 0..bytes.len() {
                let refused = DirectoryReply::parse(&bytes[..cut]);
                let short = [DirectoryMessageError::Short, ChannelAddressesError::Short.into()].map(Err);
                prop_assert!(short.contains(&refused), "{:?}", refused);
            }
            let long = [bytes, vec![0; more]].concat();
            prop_assert_eq!(DirectoryReply::parse(&long), Err(DirectoryMessageError::Trailing));
        }
    }
}
