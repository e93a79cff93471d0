//! The messages of the handshake and their bytes.
//!
//! Parsing validates a message in full: every [`AssociationMessage`] is well formed and has exactly
//! one encoding. So two lists are equal exactly when their bytes are.
//! `docs/protocols/association.md` defines the layout.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;

use crate::rejoin::{REJOIN_LEN, REJOINED_LEN, Rejoin, Rejoined};
use crate::terms::{AssociationTerms, AssociationTermsError, TERMS_LEN};

/// Length of every message's header in bytes.
pub const HEADER_LEN: usize = 8;
/// Length of a cookie in bytes.
pub const COOKIE_LEN: usize = 16;

const MAGIC: [u8; 4] = *b"SNDR";
const VERSION: u8 = 1;

/// The identifier that a server gives one connection: fresh random bytes, used once.
///
/// Every network that carries a list sees all its cookies, so security depends only on their
/// uniqueness, not on their secrecy. They are still kept out of logs and compared in constant time,
/// so that the ends reveal nothing about cookies that were not sent yet.
#[derive(Clone, Copy)]
pub struct ConnectionCookie([u8; COOKIE_LEN]);

impl ConnectionCookie {
    /// A cookie of bytes that the caller drew at random for this one use.
    pub fn new(random: [u8; COOKIE_LEN]) -> Self {
        Self(random)
    }

    /// The bytes that go on the wire.
    pub fn as_bytes(&self) -> &[u8; COOKIE_LEN] {
        &self.0
    }
}

impl fmt::Debug for ConnectionCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionCookie(..)")
    }
}

impl ConstantTimeEq for ConnectionCookie {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// Why terms and cookies do not form a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CookieListError {
    /// The number of cookies is not the number of channels.
    #[error("{cookies} cookies for {channels} channels")]
    Count {
        /// The number of channels in the terms.
        channels: u8,
        /// The number of cookies.
        cookies: usize,
    },
    /// Two channels have the same cookie.
    #[error("a cookie is in the list twice")]
    RepeatedCookie,
}

/// The terms and the cookies of all n channels, in the client's channel order.
///
/// There are exactly n cookies, all distinct. A clone shares them.
#[derive(Clone, Debug)]
pub struct CookieList {
    terms: AssociationTerms,
    cookies: Arc<[ConnectionCookie]>,
}

impl CookieList {
    /// The list of these cookies, in the order of the channels.
    ///
    /// # Errors
    /// If the number of cookies is not the number of channels, or if a cookie occurs twice.
    pub fn new(
        terms: AssociationTerms,
        cookies: Vec<ConnectionCookie>,
    ) -> Result<Self, CookieListError> {
        if cookies.len() != usize::from(terms.channels()) {
            let (channels, cookies) = (terms.channels(), cookies.len());
            return Err(CookieListError::Count { channels, cookies });
        }
        let mut seen = BTreeSet::new();
        if !cookies.iter().all(|cookie| seen.insert(cookie.0)) {
            return Err(CookieListError::RepeatedCookie);
        }
        Ok(Self { terms, cookies: cookies.into() })
    }

    /// The terms.
    pub fn terms(&self) -> AssociationTerms {
        self.terms
    }

    /// The cookies; a cookie's place is its channel's index.
    pub fn cookies(&self) -> &[ConnectionCookie] {
        &self.cookies
    }

    /// The channel that this cookie stands for.
    pub fn position(&self, cookie: &ConnectionCookie) -> Option<usize> {
        self.cookies.iter().position(|own| own.ct_eq(cookie).into())
    }

    /// Whether both are equal byte for byte. The time is the same for any two lists of one length.
    pub fn ct_matches(&self, other: &Self) -> bool {
        let cookies = self.cookies.iter().zip(other.cookies.iter());
        let same = cookies.fold(Choice::from(1), |same, (a, b)| same & a.ct_eq(b));
        // Equal terms imply equally many cookies, so the zip omits none.
        self.terms == other.terms && bool::from(same)
    }

    /// Whether one is a clone of the other, which is cheaper to check than equality.
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cookies, &other.cookies)
    }

    fn parse(body: &[u8]) -> Result<Self, AssociationMessageError> {
        let (terms, cookies) = body
            .split_first_chunk::<TERMS_LEN>()
            .ok_or(AssociationMessageError::Length { got: body.len() })?;
        let (cookies, _) = cookies.as_chunks::<COOKIE_LEN>();
        let cookies = cookies.iter().copied().map(ConnectionCookie).collect();
        Ok(Self::new(AssociationTerms::parse(*terms)?, cookies)?)
    }
}

/// Length of the body of a List or Confirm for `channels` channels.
pub(crate) fn list_body_len(channels: u8) -> usize {
    TERMS_LEN + COOKIE_LEN * usize::from(channels)
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AssociationMessageKind {
    /// Server to client: this connection's cookie.
    Cookie = 1,
    /// Client to server: all connections' cookies, the same on each channel.
    List = 2,
    /// Server to client: the list, which has arrived on all its connections.
    Confirm = 3,
    /// Client to server: this connection replaces a channel's in an association.
    Rejoin = 4,
    /// Server to client: the rejoin is accepted.
    Rejoined = 5,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssociationMessageError {
    /// They do not begin with `SNDR`.
    #[error("not a Sunder message")]
    Magic,
    /// A version that this end does not implement.
    #[error("unknown version {0}")]
    Version(u8),
    /// A kind that is not one of [`AssociationMessageKind`].
    #[error("unknown kind of message {0}")]
    UnknownKind(u8),
    /// The body is longer or shorter than this kind of message can have, or longer than this end
    /// allows.
    #[error("a {kind:?} cannot have a body of {body_len} bytes here")]
    BodyLength {
        /// The kind of message.
        kind: AssociationMessageKind,
        /// The length in the header.
        body_len: usize,
    },
    /// The length of a datagram differs from the one in its header, or it is too short for a
    /// header.
    #[error("{got} bytes are not one whole message")]
    Length {
        /// The number of bytes.
        got: usize,
    },
    /// The terms are not consistent.
    #[error(transparent)]
    Terms(#[from] AssociationTermsError),
    /// The cookies do not form a list.
    #[error(transparent)]
    List(#[from] CookieListError),
}

/// One message of the handshake.
#[derive(Clone, Debug)]
pub enum AssociationMessage {
    /// Server to client: this connection's cookie.
    Cookie(ConnectionCookie),
    /// Client to server: all connections' cookies, the same on each channel.
    List(CookieList),
    /// Server to client: the list, which has arrived on all its connections.
    Confirm(CookieList),
    /// Client to server: this connection replaces a channel's in an association.
    Rejoin(Rejoin),
    /// Server to client: the rejoin is accepted.
    Rejoined(Rejoined),
}

impl AssociationMessage {
    /// Parses a message that is all of `bytes`, for example one datagram.
    ///
    /// # Errors
    /// If they are not exactly one well-formed message.
    pub fn parse(bytes: &[u8]) -> Result<Self, AssociationMessageError> {
        let wrong_length = AssociationMessageError::Length { got: bytes.len() };
        let (header, body) = bytes.split_first_chunk().ok_or(wrong_length)?;
        let header = AssociationMessageHeader::parse(*header)?;
        if body.len() != header.body_len {
            return Err(wrong_length);
        }
        Self::parse_body(header.kind, body)
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Cookie(cookie) => body.extend(cookie.0),
            Self::List(list) | Self::Confirm(list) => {
                body.extend(list.terms.encode());
                body.extend(list.cookies.iter().flat_map(|cookie| cookie.0));
            }
            Self::Rejoin(rejoin) => body = rejoin.encode(),
            Self::Rejoined(rejoined) => body = rejoined.encode(),
        }
        let mut bytes =
            AssociationMessageHeader { kind: self.kind(), body_len: body.len() }.encode().to_vec();
        bytes.append(&mut body);
        bytes
    }

    /// Its kind.
    pub fn kind(&self) -> AssociationMessageKind {
        match self {
            Self::Cookie(_) => AssociationMessageKind::Cookie,
            Self::List(_) => AssociationMessageKind::List,
            Self::Confirm(_) => AssociationMessageKind::Confirm,
            Self::Rejoin(_) => AssociationMessageKind::Rejoin,
            Self::Rejoined(_) => AssociationMessageKind::Rejoined,
        }
    }

    pub(crate) fn parse_body(
        kind: AssociationMessageKind,
        body: &[u8],
    ) -> Result<Self, AssociationMessageError> {
        let wrong_length = AssociationMessageError::BodyLength { kind, body_len: body.len() };
        match kind {
            AssociationMessageKind::Cookie => {
                Ok(Self::Cookie(ConnectionCookie(body.try_into().map_err(|_| wrong_length)?)))
            }
            AssociationMessageKind::Rejoin => {
                Rejoin::parse(body).map(Self::Rejoin).ok_or(wrong_length)
            }
            AssociationMessageKind::Rejoined => {
                Rejoined::parse(body).map(Self::Rejoined).ok_or(wrong_length)
            }
            AssociationMessageKind::List => Ok(Self::List(CookieList::parse(body)?)),
            AssociationMessageKind::Confirm => Ok(Self::Confirm(CookieList::parse(body)?)),
        }
    }
}

/// The first eight bytes of a message, from which its length is known.
#[derive(Clone, Copy)]
pub(crate) struct AssociationMessageHeader {
    pub(crate) kind: AssociationMessageKind,
    pub(crate) body_len: usize,
}

impl AssociationMessageHeader {
    pub(crate) fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, AssociationMessageError> {
        let [m0, m1, m2, m3, version, kind, len0, len1] = bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(AssociationMessageError::Magic);
        }
        if version != VERSION {
            return Err(AssociationMessageError::Version(version));
        }
        let kind = match kind {
            1 => AssociationMessageKind::Cookie,
            2 => AssociationMessageKind::List,
            3 => AssociationMessageKind::Confirm,
            4 => AssociationMessageKind::Rejoin,
            5 => AssociationMessageKind::Rejoined,
            other => return Err(AssociationMessageError::UnknownKind(other)),
        };
        let body_len = usize::from(u16::from_be_bytes([len0, len1]));
        if !can_have_body(kind, body_len) {
            return Err(AssociationMessageError::BodyLength { kind, body_len });
        }
        Ok(Self { kind, body_len })
    }

    fn encode(self) -> [u8; HEADER_LEN] {
        let [m0, m1, m2, m3] = MAGIC;
        // The longest body, a list of 255 cookies, has 8168 bytes, so no length is truncated here.
        let [.., len0, len1] = self.body_len.to_be_bytes();
        [m0, m1, m2, m3, VERSION, self.kind as u8, len0, len1]
    }
}

fn can_have_body(kind: AssociationMessageKind, body_len: usize) -> bool {
    match kind {
        AssociationMessageKind::Cookie => body_len == COOKIE_LEN,
        AssociationMessageKind::Rejoin => body_len == REJOIN_LEN,
        AssociationMessageKind::Rejoined => body_len == REJOINED_LEN,
        AssociationMessageKind::List | AssociationMessageKind::Confirm => {
            (list_body_len(1)..=list_body_len(u8::MAX)).contains(&body_len)
                && (body_len - TERMS_LEN).is_multiple_of(COOKIE_LEN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AssociationProtocol, SharingScheme};

    fn list() -> CookieList {
        let terms = AssociationTerms::new(
            AssociationProtocol::MicssStream,
            SharingScheme::Xor,
            2,
            2,
            0x0102_0304,
        )
        .unwrap();
        CookieList::new(
            terms,
            vec![ConnectionCookie([0xaa; COOKIE_LEN]), ConnectionCookie([0xbb; COOKIE_LEN])],
        )
        .unwrap()
    }

    #[test]
    fn bytes_are_as_specified() {
        let cookie = AssociationMessage::Cookie(ConnectionCookie([0xaa; COOKIE_LEN])).encode();
        assert_eq!(cookie, [&b"SNDR\x01\x01\x00\x10"[..], &[0xaa; COOKIE_LEN]].concat());
        let header = &b"SNDR\x01\x02\x00\x28"[..];
        let terms = &[1, 1, 2, 2, 1, 2, 3, 4][..];
        let expected = [header, terms, &[0xaa; COOKIE_LEN], &[0xbb; COOKIE_LEN]].concat();
        assert_eq!(AssociationMessage::List(list()).encode(), expected);
        let mut confirm = expected;
        confirm[5] = 3;
        assert_eq!(AssociationMessage::Confirm(list()).encode(), confirm);
    }

    #[test]
    fn lists_need_n_distinct_cookies() {
        let (a, b) = (ConnectionCookie([1; COOKIE_LEN]), ConnectionCookie([2; COOKIE_LEN]));
        let terms = list().terms();
        let count = CookieListError::Count { channels: 2, cookies: 3 };
        assert_eq!(CookieList::new(terms, vec![a, b, a]).unwrap_err(), count);
        assert_eq!(
            CookieList::new(terms, vec![a, a]).unwrap_err(),
            CookieListError::RepeatedCookie
        );
        assert_eq!(CookieList::new(terms, vec![b, a]).unwrap().position(&a), Some(1));
    }

    #[test]
    fn lists_match_only_if_all_bytes_are_equal() {
        let (mut cookies, terms) = (list().cookies().to_vec(), list().terms());
        assert!(list().ct_matches(&list()));
        cookies.swap(0, 1);
        assert!(!list().ct_matches(&CookieList::new(terms, cookies).unwrap()));
        let other = AssociationTerms::new(terms.protocol(), terms.scheme(), 2, 2, 0).unwrap();
        assert!(!list().ct_matches(&CookieList::new(other, list().cookies().to_vec()).unwrap()));
    }

    #[test]
    fn a_datagram_is_one_whole_message() {
        let mut bytes = AssociationMessage::List(list()).encode();
        bytes.push(0);
        assert_eq!(
            AssociationMessage::parse(&bytes).unwrap_err(),
            AssociationMessageError::Length { got: 49 }
        );
        bytes.truncate(47);
        assert_eq!(
            AssociationMessage::parse(&bytes).unwrap_err(),
            AssociationMessageError::Length { got: 47 }
        );
        assert_eq!(
            AssociationMessage::parse(&[]).unwrap_err(),
            AssociationMessageError::Length { got: 0 }
        );
    }

    #[test]
    fn debug_shows_no_cookie() {
        let shown = format!("{:?}", AssociationMessage::List(list()));
        assert!(shown.contains("ConnectionCookie(..)") && !shown.contains("170"), "{shown}");
    }
}
