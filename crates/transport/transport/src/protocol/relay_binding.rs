//! The messages by which a party of a pair binds its UDP address at the relay, and the party's side
//! of that. Specified in `docs/protocols/direct.md`.
//!
//! The relay gives each party of a pair an identifier and a key, over the party's TCP connection.
//! With them the party asks from its UDP address. The relay answers with the address that it
//! observed and a challenge, which the party returns: that proves that it receives at the address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use keys::{KEY_LEN, SharedKey};
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"SNDRBIND";

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;

/// The length of the identifier of a party of a pair.
pub(crate) const BINDING_ID_LEN: usize = 8;

/// The length of a challenge.
pub(crate) const CHALLENGE_LEN: usize = 16;

/// The length of an encoded address.
const ADDRESS_LEN: usize = 18;

const TAG_LEN: usize = 32;

/// The length of both messages: an answer is not longer than its request.
pub(crate) const BINDING_MESSAGE_LEN: usize =
    MAGIC.len() + 2 + BINDING_ID_LEN + CHALLENGE_LEN + ADDRESS_LEN + TAG_LEN;

/// The length of a grant.
pub(crate) const BINDING_GRANT_LEN: usize = BINDING_ID_LEN + KEY_LEN;

/// How often a party asks.
const MAX_REQUESTS: u32 = 10;

/// The time until the request is repeated for the first time. It doubles up to [`MAX_REPEAT`].
const FIRST_REPEAT: Duration = Duration::from_millis(150);

const MAX_REPEAT: Duration = Duration::from_millis(600);

/// What the relay gives a party, so that it can bind an address.
pub(crate) struct BindingGrant {
    pub(crate) id: [u8; BINDING_ID_LEN],
    pub(crate) key: Zeroizing<[u8; KEY_LEN]>,
}

impl BindingGrant {
    pub(crate) fn encode(&self) -> Zeroizing<[u8; BINDING_GRANT_LEN]> {
        let mut bytes = Zeroizing::new([0; BINDING_GRANT_LEN]);
        bytes[..BINDING_ID_LEN].copy_from_slice(&self.id);
        bytes[BINDING_ID_LEN..].copy_from_slice(&*self.key);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; BINDING_GRANT_LEN]) -> Self {
        let (mut id, mut key) = ([0; BINDING_ID_LEN], Zeroizing::new([0; KEY_LEN]));
        id.copy_from_slice(&bytes[..BINDING_ID_LEN]);
        key.copy_from_slice(&bytes[BINDING_ID_LEN..]);
        Self { id, key }
    }
}

/// A message about a binding, whose tag is not verified yet.
pub(crate) struct BindingMessage<'a> {
    pub(crate) id: [u8; BINDING_ID_LEN],
    /// In a request: the latest challenge, or zeros. In an answer: one for the next request.
    pub(crate) challenge: [u8; CHALLENGE_LEN],
    is_answer: bool,
    /// Of an answer.
    is_bound: bool,
    address: [u8; ADDRESS_LEN],
    signed: &'a [u8],
    tag: &'a [u8],
}

impl<'a> BindingMessage<'a> {
    /// Parses a message; `None` if the datagram is none.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() != BINDING_MESSAGE_LEN {
            return None;
        }
        let (signed, tag) = bytes.split_at(BINDING_MESSAGE_LEN - TAG_LEN);
        let rest = signed.strip_prefix(MAGIC)?;
        let (&[kind, state], rest) = rest.split_first_chunk()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (challenge, rest) = rest.split_first_chunk()?;
        let is_answer = match (kind, state) {
            (REQUEST, 0) => false,
            (ANSWER, 0 | 1) => true,
            _ => return None,
        };
        let (id, challenge, address) = (*id, *challenge, *rest.first_chunk()?);
        Some(Self { id, challenge, is_answer, is_bound: state == 1, address, signed, tag })
    }

    /// Whether it is a request of the party with this key.
    pub(crate) fn is_request_of(&self, key: &SharedKey) -> bool {
        !self.is_answer && key.verify(&[b"Sunder relay binding 1", self.signed], self.tag)
    }

    /// The observed address and whether it is bound, if this is an answer under this key.
    fn answer(&self, key: &SharedKey) -> Option<(SocketAddr, bool)> {
        let is_genuine = key.verify(&[b"Sunder relay binding 1", self.signed], self.tag);
        if !self.is_answer || !is_genuine {
            return None;
        }
        Some((decode_address(self.address)?, self.is_bound))
    }
}

/// Encodes a request.
pub(crate) fn request(
    id: [u8; BINDING_ID_LEN],
    key: &SharedKey,
    challenge: [u8; CHALLENGE_LEN],
) -> [u8; BINDING_MESSAGE_LEN] {
    encode([REQUEST, 0], id, key, challenge, [0; ADDRESS_LEN])
}

/// Encodes an answer to a party that was observed at this address.
pub(crate) fn answer(
    id: [u8; BINDING_ID_LEN],
    key: &SharedKey,
    challenge: [u8; CHALLENGE_LEN],
    observed: SocketAddr,
    is_bound: bool,
) -> [u8; BINDING_MESSAGE_LEN] {
    encode([ANSWER, u8::from(is_bound)], id, key, challenge, encode_address(observed))
}

fn encode(
    head: [u8; 2],
    id: [u8; BINDING_ID_LEN],
    key: &SharedKey,
    challenge: [u8; CHALLENGE_LEN],
    address: [u8; ADDRESS_LEN],
) -> [u8; BINDING_MESSAGE_LEN] {
    let mut bytes = [0; BINDING_MESSAGE_LEN];
    let (signed, tag) = bytes.split_at_mut(BINDING_MESSAGE_LEN - TAG_LEN);
    let parts: [&[u8]; 5] = [MAGIC, &head, &id, &challenge, &address];
    let mut rest = &mut *signed;
    for part in parts {
        let (place, after) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = after;
    }
    tag.copy_from_slice(&key.authenticate(&[b"Sunder relay binding 1", signed]));
    bytes
}

/// The bits of the address are inverted, because some NATs replace what looks like an address of
/// their hosts.
fn encode_address(address: SocketAddr) -> [u8; ADDRESS_LEN] {
    encode_plain_address(address).map(|byte| !byte)
}

fn decode_address(bytes: [u8; ADDRESS_LEN]) -> Option<SocketAddr> {
    decode_plain_address(bytes.map(|byte| !byte))
}

/// An address in 18 bytes: IPv6 or mapped IPv4, and the port.
pub(crate) fn encode_plain_address(address: SocketAddr) -> [u8; ADDRESS_LEN] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS_LEN];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// The address; `None` if it has port 0.
pub(crate) fn decode_plain_address(bytes: [u8; ADDRESS_LEN]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_first_chunk::<16>()?;
    let port = u16::from_be_bytes(*port.first_chunk()?);
    (port > 0).then(|| (Ipv6Addr::from(*ip).to_canonical(), port).into())
}

/// A party that binds its UDP address at the relay.
pub(crate) struct RelayBinding {
    id: [u8; BINDING_ID_LEN],
    key: SharedKey,
    challenge: [u8; CHALLENGE_LEN],
    observed: Option<SocketAddr>,
    is_bound: bool,
    requests: u32,
    next_at: Duration,
}

impl RelayBinding {
    /// The first request is due at once.
    pub(crate) fn new(grant: &BindingGrant, now: Duration) -> Self {
        Self {
            id: grant.id,
            key: SharedKey::new(&grant.key),
            challenge: [0; CHALLENGE_LEN],
            observed: None,
            is_bound: false,
            requests: 0,
            next_at: now,
        }
    }

    /// The address of this party that the relay has observed. The relay may lie.
    pub(crate) fn observed(&self) -> Option<SocketAddr> {
        self.observed
    }

    /// Whether the relay forwards to this party.
    #[cfg(test)]
    pub(crate) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// The next request, if one is due.
    pub(crate) fn poll_transmit(&mut self, now: Duration) -> Option<[u8; BINDING_MESSAGE_LEN]> {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return None;
        }
        let repeat = FIRST_REPEAT * 2_u32.pow(self.requests.min(8));
        self.requests += 1;
        self.next_at = now + repeat.min(MAX_REPEAT);
        Some(request(self.id, &self.key, self.challenge))
    }

    /// When the next request is due; `None` if there is none.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        (!self.is_bound && self.requests < MAX_REQUESTS).then_some(self.next_at)
    }

    /// Handles a datagram from the relay. Nothing changes unless it is an answer under the key.
    pub(crate) fn handle_datagram(&mut self, now: Duration, bytes: &[u8]) {
        let Some(message) = BindingMessage::parse(bytes).filter(|message| message.id == self.id)
        else {
            return;
        };
        let Some((observed, is_bound)) = message.answer(&self.key) else { return };
        self.observed = Some(observed);
        if message.challenge != self.challenge && !self.is_bound {
            self.challenge = message.challenge;
            self.next_at = now;
        }
        self.is_bound |= is_bound;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> BindingGrant {
        BindingGrant { id: [3; BINDING_ID_LEN], key: Zeroizing::new([5; KEY_LEN]) }
    }

    fn address() -> SocketAddr {
        "192.0.2.7:4000".parse().unwrap()
    }

    #[test]
    fn a_party_returns_the_challenge_and_is_bound() {
        let key = SharedKey::new(&grant().key);
        let mut party = RelayBinding::new(&grant(), Duration::ZERO);
        let first = party.poll_transmit(Duration::ZERO).unwrap();
        assert!(BindingMessage::parse(&first).unwrap().is_request_of(&key));
        assert!(party.poll_transmit(Duration::ZERO).is_none());
        let challenge = [9; CHALLENGE_LEN];
        let at = Duration::from_millis(20);
        party.handle_datagram(at, &answer(grant().id, &key, challenge, address(), false));
        assert_eq!((party.observed(), party.is_bound()), (Some(address()), false));
        let second = party.poll_transmit(at).unwrap();
        assert_eq!(BindingMessage::parse(&second).unwrap().challenge, challenge);
        party.handle_datagram(at, &answer(grant().id, &key, challenge, address(), true));
        assert!(party.is_bound() && party.poll_timeout().is_none());
    }

    #[test]
    fn a_changed_or_reflected_message_changes_nothing() {
        let key = SharedKey::new(&grant().key);
        let mut party = RelayBinding::new(&grant(), Duration::ZERO);
        let genuine = answer(grant().id, &key, [9; CHALLENGE_LEN], address(), true);
        for at in 0..BINDING_MESSAGE_LEN {
            let mut changed = genuine;
            changed[at] ^= 1;
            party.handle_datagram(Duration::ZERO, &changed);
        }
        let own = party.poll_transmit(Duration::ZERO).unwrap();
        party.handle_datagram(Duration::ZERO, &own);
        assert_eq!((party.observed(), party.is_bound()), (None, false));
        assert!(!BindingMessage::parse(&genuine).unwrap().is_request_of(&key));
    }

    #[test]
    fn requests_end() {
        let mut party = RelayBinding::new(&grant(), Duration::ZERO);
        let mut count = 0;
        while let Some(at) = party.poll_timeout() {
            assert!(party.poll_transmit(at).is_some());
            count += 1;
        }
        assert_eq!(count, MAX_REQUESTS);
    }
}
