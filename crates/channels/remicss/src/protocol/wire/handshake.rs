//! The four datagrams of the handshake and their bytes.
//!
//! A [`HandshakeDatagram`] is well formed, except for its proof, which is verified on the bytes
//! (see `control/handshake/proof.rs`). It has exactly one encoding.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 1 | kind (8 to 11) and version (2) |
//! | 1 | 8 | nonce of the channel |
//! | 9 | 32 | proof |
//! | 41 | | body |

use std::fmt;
use std::ops::Range;

use association::{
    AssociationMessage, AssociationMessageError, COOKIE_LEN, ConnectionCookie, CookieList,
};
use sharing::tamper;
use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::keys::POINT_LEN;
use crate::protocol::wire::tokens::TOKEN_KEY_LEN;

/// The length of a nonce, in bytes.
const NONCE_LEN: usize = 8;

/// The position of the proof in a datagram.
pub(crate) const PROOF: Range<usize> = 1 + NONCE_LEN..1 + NONCE_LEN + 32;

/// The length of an association message's header.
const ASSOCIATION_HEADER: usize = association::HEADER_LEN;

/// The length of a Hello and of a Cookie. They are equal, so that a Hello with a forged source
/// address causes no amplification.
pub(crate) const HELLO_LEN: usize = PROOF.end + ASSOCIATION_HEADER + COOKIE_LEN;

/// The maximum length of a handshake datagram: a List of 16 channels.
const MAX_LEN: usize = LIST_HEAD + COOKIE_LEN * MAX_CHANNELS;

/// The length of a List without its cookies.
const LIST_HEAD: usize = PROOF.end + SECRET_LEN + ASSOCIATION_HEADER + 8;

/// The high half of the first byte.
const HELLO: u8 = 8;
const COOKIE: u8 = 9;
const LIST: u8 = 10;
const CONFIRM: u8 = 11;

const VERSION: u8 = 2;

/// The length of one direction's points, in bytes.
pub(crate) const POINTS_LEN: usize = MAX_CHANNELS * POINT_LEN;

/// The length of one direction's points and token key, in bytes.
pub(crate) const DIRECTION_LEN: usize = POINTS_LEN + TOKEN_KEY_LEN;

/// The length of the shared secret, and of each key share, in bytes.
pub(crate) const SECRET_LEN: usize = 2 * DIRECTION_LEN + tamper::OVERHEAD;

/// The datagrams that a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeRequestKind {
    Hello,
    List,
}

/// The client's random identifier of one handshake on one channel, which answers repeat.
#[derive(Clone, Copy)]
pub struct HandshakeNonce([u8; NONCE_LEN]);

/// One channel's share of the points and token keys. Secret.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct TunnelKeyShare(pub(crate) Box<[u8; SECRET_LEN]>);

/// A datagram of the handshake.
#[derive(Debug)]
pub struct HandshakeDatagram {
    /// The channel's nonce.
    pub nonce: HandshakeNonce,
    /// The kind and the content.
    pub body: HandshakeBody,
}

/// The content of a handshake datagram.
#[derive(Debug)]
pub enum HandshakeBody {
    /// Client to server: requests a cookie.
    Hello,
    /// Server to client: the channel's cookie.
    Cookie {
        /// The cookie.
        cookie: ConnectionCookie,
    },
    /// Client to server: all members' cookies, and this channel's key share.
    List {
        /// The share.
        key_share: TunnelKeyShare,
        /// The cookies and the terms.
        list: CookieList,
    },
    /// Server to client: confirms the list, which has arrived on all members.
    Confirm {
        /// The list.
        list: CookieList,
    },
}

/// Bytes that are not a handshake datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandshakeDatagramError {
    /// Too few bytes, or too many.
    #[error("a datagram of {0} bytes is not a handshake datagram")]
    Length(usize),
    /// Not the kind of a handshake datagram.
    #[error("kind {0} is not a handshake datagram")]
    Kind(u8),
    /// An unknown version.
    #[error("version {0} of the handshake is not supported")]
    Version(u8),
    /// The padding of a Hello is not zero.
    #[error("a Hello's padding is not zeros")]
    Padding,
    /// The body is not an association message.
    #[error(transparent)]
    Association(#[from] AssociationMessageError),
    /// The body is the wrong association message.
    #[error("the association message is of the wrong kind")]
    WrongMessage,
}

impl HandshakeNonce {
    /// A nonce of random bytes.
    pub fn new(random: [u8; NONCE_LEN]) -> Self {
        Self(random)
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; NONCE_LEN] {
        self.0
    }
}

impl PartialEq for HandshakeNonce {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for HandshakeNonce {}

impl fmt::Debug for HandshakeNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandshakeNonce(..)")
    }
}

impl TunnelKeyShare {
    /// A key share with these bytes.
    pub fn new(bytes: &[u8; SECRET_LEN]) -> Self {
        let mut share = Self::zeros();
        share.0.copy_from_slice(bytes);
        share
    }

    /// A key share of zeros, to be filled in place: moving it would leave a copy behind.
    pub(crate) fn zeros() -> Self {
        Self(Box::new([0; SECRET_LEN]))
    }

    pub(crate) fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }

    /// Adds another key share to this one (XOR).
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(byte, other)| *byte ^= other);
    }
}

impl fmt::Debug for TunnelKeyShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TunnelKeyShare(..)")
    }
}

impl HandshakeDatagram {
    /// Parses a datagram. The proof is not verified.
    ///
    /// # Errors
    /// If the bytes are not exactly one well-formed datagram.
    pub fn parse(bytes: &[u8]) -> Result<Self, HandshakeDatagramError> {
        let wrong_length = HandshakeDatagramError::Length(bytes.len());
        let Some((head, body)) = bytes.split_at_checked(PROOF.end) else {
            return Err(wrong_length);
        };
        let (kind, version) = (head[0] >> 4, head[0] & 0x0f);
        if !(HELLO..=CONFIRM).contains(&kind) {
            return Err(HandshakeDatagramError::Kind(kind));
        }
        if version != VERSION {
            return Err(HandshakeDatagramError::Version(version));
        }
        if bytes.len() > MAX_LEN {
            return Err(wrong_length);
        }
        let nonce = HandshakeNonce(head[1..PROOF.start].try_into().map_err(|_| wrong_length)?);
        let body = match kind {
            HELLO => parse_hello(bytes, body)?,
            COOKIE => match AssociationMessage::parse(body)? {
                AssociationMessage::Cookie(cookie) => HandshakeBody::Cookie { cookie },
                _ => return Err(HandshakeDatagramError::WrongMessage),
            },
            LIST => parse_list(body).ok_or(wrong_length)??,
            _ => match AssociationMessage::parse(body)? {
                AssociationMessage::Confirm(list) => HandshakeBody::Confirm { list },
                _ => return Err(HandshakeDatagramError::WrongMessage),
            },
        };
        Ok(Self { nonce, body })
    }

    /// The datagram's bytes, with zeros for a proof.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_LEN);
        bytes.push(self.body.kind() << 4 | VERSION);
        bytes.extend(self.nonce.0);
        bytes.resize(PROOF.end, 0);
        match &self.body {
            HandshakeBody::Hello => bytes.resize(HELLO_LEN, 0),
            HandshakeBody::Cookie { cookie } => {
                bytes.extend(AssociationMessage::Cookie(*cookie).encode());
            }
            HandshakeBody::List { key_share, list } => {
                bytes.extend(key_share.bytes());
                bytes.extend(AssociationMessage::List(list.clone()).encode());
            }
            HandshakeBody::Confirm { list } => {
                bytes.extend(AssociationMessage::Confirm(list.clone()).encode());
            }
        }
        bytes
    }
}

impl HandshakeBody {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello => HELLO,
            Self::Cookie { .. } => COOKIE,
            Self::List { .. } => LIST,
            Self::Confirm { .. } => CONFIRM,
        }
    }
}

impl HandshakeRequestKind {
    /// The request that the bytes appear to be, by kind and length. Cheaper than to parse them or
    /// to verify the proof.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        if first & 0x0f != VERSION {
            return None;
        }
        match first >> 4 {
            HELLO => (bytes.len() == HELLO_LEN).then_some(Self::Hello),
            LIST => (1..=MAX_CHANNELS)
                .any(|channels| bytes.len() == LIST_HEAD + COOKIE_LEN * channels)
                .then_some(Self::List),
            _ => None,
        }
    }
}

fn parse_hello(bytes: &[u8], body: &[u8]) -> Result<HandshakeBody, HandshakeDatagramError> {
    if bytes.len() != HELLO_LEN {
        return Err(HandshakeDatagramError::Length(bytes.len()));
    }
    if body.iter().any(|&byte| byte != 0) {
        return Err(HandshakeDatagramError::Padding);
    }
    Ok(HandshakeBody::Hello)
}

/// `None` if the body is too short.
fn parse_list(body: &[u8]) -> Option<Result<HandshakeBody, HandshakeDatagramError>> {
    let (key_share, message) = body.split_first_chunk::<SECRET_LEN>()?;
    Some(match AssociationMessage::parse(message) {
        Ok(AssociationMessage::List(list)) => {
            Ok(HandshakeBody::List { key_share: TunnelKeyShare::new(key_share), list })
        }
        Ok(_) => Err(HandshakeDatagramError::WrongMessage),
        Err(error) => Err(error.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::terms::TunnelTerms;
    use proptest::prelude::*;

    fn list(n: u8) -> CookieList {
        let terms = TunnelTerms::new(n, 1, true).unwrap();
        let terms = terms.association_terms(terms.all());
        CookieList::new(terms, (0..n).map(|i| ConnectionCookie::new([i; COOKIE_LEN])).collect())
            .unwrap()
    }

    fn datagrams(n: u8) -> Vec<HandshakeDatagram> {
        let bodies = [
            HandshakeBody::Hello,
            HandshakeBody::Cookie { cookie: ConnectionCookie::new([9; COOKIE_LEN]) },
            HandshakeBody::List { key_share: TunnelKeyShare::new(&[5; SECRET_LEN]), list: list(n) },
            HandshakeBody::Confirm { list: list(n) },
        ];
        bodies
            .map(|body| HandshakeDatagram { nonce: HandshakeNonce([1, 2, 3, 4, 5, 6, 7, 8]), body })
            .into()
    }

    #[test]
    fn parsing_inverts_encoding() {
        for n in [1, 2, 16] {
            for datagram in datagrams(n) {
                let bytes = datagram.encode();
                assert_eq!(HandshakeDatagram::parse(&bytes).unwrap().encode(), bytes);
                assert!(bytes.len() <= MAX_LEN);
            }
        }
    }

    #[test]
    fn bytes_are_as_specified() {
        let [hello, cookie, list, confirm]: [Vec<u8>; 4] = datagrams(2)
            .iter()
            .map(HandshakeDatagram::encode)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        assert_eq!(hello[..9], [0x82, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((hello.len(), cookie.len()), (65, 65));
        assert_eq!((cookie[0], &cookie[41..46]), (0x92, &b"SNDR\x01"[..]));
        assert_eq!((list[0], list.len()), (0xa2, 41 + 320 + 16 + 32));
        assert_eq!((confirm[0], confirm.len()), (0xb2, 41 + 16 + 32));
    }

    #[test]
    fn requests_have_a_length() {
        for n in [1, 2, 16] {
            let [hello, cookie, list, confirm]: [Vec<u8>; 4] = datagrams(n)
                .iter()
                .map(HandshakeDatagram::encode)
                .collect::<Vec<_>>()
                .try_into()
                .unwrap();
            assert_eq!(HandshakeRequestKind::of(&hello), Some(HandshakeRequestKind::Hello));
            assert_eq!(HandshakeRequestKind::of(&list), Some(HandshakeRequestKind::List));
            assert_eq!(
                (HandshakeRequestKind::of(&cookie), HandshakeRequestKind::of(&confirm)),
                (None, None)
            );
            for request in [hello, list] {
                assert_eq!(HandshakeRequestKind::of(&request[..request.len() - 1]), None);
                assert_eq!(HandshakeRequestKind::of(&[&request[..], &[0]].concat()), None);
                assert_eq!(
                    HandshakeRequestKind::of(&[&[request[0] + 1], &request[1..]].concat()),
                    None
                );
            }
        }
        assert_eq!(HandshakeRequestKind::of(&[0xa2; LIST_HEAD]), None);
        assert_eq!(HandshakeRequestKind::of(&[0xa2; MAX_LEN + COOKIE_LEN]), None);
        assert_eq!(HandshakeRequestKind::of(&[]), None);
    }

    #[test]
    fn malformed_datagrams_are_rejected() {
        let all = datagrams(2);
        let hello = all[0].encode();
        let changed = |place: usize, value: u8| {
            let mut bytes = hello.clone();
            bytes[place] = value;
            HandshakeDatagram::parse(&bytes).unwrap_err()
        };
        assert_eq!(changed(0, 0x72), HandshakeDatagramError::Kind(7));
        assert_eq!(changed(0, 0xc2), HandshakeDatagramError::Kind(12));
        assert_eq!(changed(0, 0x81), HandshakeDatagramError::Version(1));
        assert_eq!(changed(64, 1), HandshakeDatagramError::Padding);
        assert_eq!(
            HandshakeDatagram::parse(&[0x82; 41]).unwrap_err(),
            HandshakeDatagramError::Length(41)
        );
        assert_eq!(HandshakeDatagram::parse(&[]).unwrap_err(), HandshakeDatagramError::Length(0));
        let mut confirm = all[3].encode();
        confirm[PROOF.end + 5] = 2;
        assert_eq!(
            HandshakeDatagram::parse(&confirm).unwrap_err(),
            HandshakeDatagramError::WrongMessage
        );
    }

    proptest! {
        #[test]
        fn parsed_datagrams_have_one_encoding(
            which in 0_usize..4, n in 1_u8..4,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in any::<prop::sample::Index>(), whole: bool,
        ) {
            let mut bytes = datagrams(n)[which].encode();
            for (place, value) in changes {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            if !whole {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(datagram) = HandshakeDatagram::parse(&bytes) {
                bytes[PROOF].fill(0);
                prop_assert_eq!(datagram.encode(), bytes);
            }
        }

        #[test]
        fn arbitrary_bytes_parse_or_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..1000)) {
            let _ = HandshakeDatagram::parse(&bytes);
        }
    }
}
