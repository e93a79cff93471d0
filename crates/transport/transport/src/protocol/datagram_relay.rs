//! Forwards datagrams between the two parties of a pair, as the relay does. Pure.
//!
//! A party is known by the address from which it has bound itself ([`super::relay_binding`]), so
//! forwarded datagrams have no header. Nothing is forwarded before both parties have proven that
//! they receive at their addresses. Until then, the relay sends nothing but answers to requests
//! under the key of a party, each as long as its request.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use keys::SharedKey;
use random::{RandomError, RandomGenerator};
use udp::cookies::AddressCookies;
use zeroize::Zeroizing;

use super::relay_binding::{
    BINDING_ID_LEN, BINDING_MESSAGE_LEN, BindingGrant, BindingMessage, answer,
};

/// The period of challenges. A challenge is valid for one to two periods.
const CHALLENGE_PERIOD: Duration = Duration::from_secs(10);

/// How long after its last datagram a party gets datagrams.
pub(crate) const BINDING_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest rate that a party may send, in bytes/s.
pub(crate) const MAX_RATE: f64 = 64e6;

/// What a party may send at once, in bytes.
pub(crate) const MAX_BURST: f64 = 2e6;

/// What a party may send in all, in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 40;

/// What to do with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayDatagramAction {
    /// It is dropped.
    Drop,
    /// This is sent back.
    Answer([u8; BINDING_MESSAGE_LEN]),
    /// It is sent on, unchanged.
    Forward(SocketAddr),
}

/// See [the module](self).
pub(crate) struct DatagramRelay {
    cookies: AddressCookies,
    parties: HashMap<[u8; BINDING_ID_LEN], RelayParty>,
    /// The parties by their bound addresses.
    bound: HashMap<SocketAddr, [u8; BINDING_ID_LEN]>,
}

/// One party of a pair.
struct RelayParty {
    key: SharedKey,
    other: [u8; BINDING_ID_LEN],
    address: Option<SocketAddr>,
    /// The number of the relay's socket at which its datagrams arrive.
    socket: usize,
    heard_at: Duration,
    /// The token bucket: bytes, and when they were last updated.
    tokens: (f64, Duration),
    /// The bytes that it may still send.
    bytes_left: u64,
}

impl DatagramRelay {
    /// # Errors
    /// If the system provides no random bytes.
    pub(crate) fn new(generator: &mut RandomGenerator) -> Result<Self, RandomError> {
        let secret = Zeroizing::new(generator.array::<32>()?);
        let cookies = AddressCookies::new(&secret, CHALLENGE_PERIOD);
        Ok(Self { cookies, parties: HashMap::new(), bound: HashMap::new() })
    }

    /// Adds a pair. Returns what its parties need.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub(crate) fn add_pair(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
    ) -> Result<[BindingGrant; 2], RandomError> {
        let mut grant = || -> Result<BindingGrant, RandomError> {
            let (id, key) = (generator.array()?, Zeroizing::new(generator.array()?));
            Ok(BindingGrant { id, key })
        };
        let grants = [grant()?, grant()?];
        for (own, other) in [(0, 1), (1, 0)] {
            let party = RelayParty {
                key: SharedKey::new(&grants[own].key),
                other: grants[other].id,
                address: None,
                socket: 0,
                heard_at: now,
                tokens: (MAX_BURST, now),
                bytes_left: MAX_BYTES,
            };
            self.parties.insert(grants[own].id, party);
        }
        Ok(grants)
    }

    /// Removes the parties of a pair.
    pub(crate) fn remove(&mut self, ids: [[u8; BINDING_ID_LEN]; 2]) {
        for id in ids {
            if let Some(address) = self.parties.remove(&id).and_then(|party| party.address)
                && self.bound.get(&address) == Some(&id)
            {
                self.bound.remove(&address);
            }
        }
    }

    /// When a party of a pair last sent a datagram; `None` if it has bound no address.
    pub(crate) fn heard_at(&self, id: [u8; BINDING_ID_LEN]) -> Option<Duration> {
        let party = self.parties.get(&id)?;
        party.address.map(|_| party.heard_at)
    }

    /// The numbers of parties and of bound addresses.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.parties.len(), self.bound.len())
    }

    /// The number of the socket from which a bound address gets datagrams, as its NAT may let in
    /// only those of the address to which it sends.
    pub(crate) fn socket_towards(&self, address: SocketAddr) -> usize {
        let id = self.bound.get(&address);
        id.and_then(|id| self.parties.get(id)).map_or(0, |party| party.socket)
    }

    /// Handles a datagram at the only socket.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn handle_datagram(
        &mut self,
        now: Duration,
        from: SocketAddr,
        bytes: &[u8],
    ) -> RelayDatagramAction {
        self.handle_datagram_at(now, 0, from, bytes)
    }

    /// Handles a datagram that has arrived at the socket with this number.
    pub(crate) fn handle_datagram_at(
        &mut self,
        now: Duration,
        socket: usize,
        from: SocketAddr,
        bytes: &[u8],
    ) -> RelayDatagramAction {
        if let Some(message) = BindingMessage::parse(bytes) {
            return self.handle_binding(now, socket, from, &message);
        }
        let Some(party) = self.bound.get(&from).and_then(|id| self.parties.get_mut(id)) else {
            return RelayDatagramAction::Drop;
        };
        party.heard_at = now;
        if !party.take(now, bytes.len()) {
            return RelayDatagramAction::Drop;
        }
        let other = party.other;
        match self.parties.get(&other) {
            Some(RelayParty { address: Some(address), heard_at, .. })
                if now.saturating_sub(*heard_at) <= BINDING_IDLE_TIMEOUT =>
            {
                RelayDatagramAction::Forward(*address)
            }
            _ => RelayDatagramAction::Drop,
        }
    }

    fn handle_binding(
        &mut self,
        now: Duration,
        socket: usize,
        from: SocketAddr,
        message: &BindingMessage<'_>,
    ) -> RelayDatagramAction {
        let Some(party) = self.parties.get_mut(&message.id) else {
            return RelayDatagramAction::Drop;
        };
        if !message.is_request_of(&party.key) {
            return RelayDatagramAction::Drop;
        }
        let is_proven = self.cookies.verify(now, from, &message.id, &message.challenge);
        if is_proven {
            (party.heard_at, party.socket) = (now, socket);
            if let Some(before) = party.address.replace(from)
                && before != from
                && self.bound.get(&before) == Some(&message.id)
            {
                self.bound.remove(&before);
            }
            if let Some(other) = self.bound.insert(from, message.id)
                && other != message.id
                && let Some(other) = self.parties.get_mut(&other)
            {
                // The address has passed to another socket.
                other.address = None;
            }
        }
        let challenge = self.cookies.make(now, from, &message.id);
        let key = &self.parties[&message.id].key;
        RelayDatagramAction::Answer(answer(message.id, key, challenge, from, is_proven))
    }
}

impl RelayParty {
    /// Takes a datagram from what the party may send. Returns whether it may.
    fn take(&mut self, now: Duration, len: usize) -> bool {
        let (tokens, at) = self.tokens;
        let gained = now.saturating_sub(at).as_secs_f64() * MAX_RATE;
        let tokens = (tokens + gained).min(MAX_BURST);
        #[expect(clippy::cast_precision_loss, reason = "a datagram is short")]
        let cost = len as f64;
        let (len, may) = (len as u64, tokens >= cost && self.bytes_left >= len as u64);
        self.tokens = (if may { tokens - cost } else { tokens }, now);
        if may {
            self.bytes_left -= len;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::relay_binding::{RelayBinding, request};
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn relay() -> (DatagramRelay, [BindingGrant; 2]) {
        let mut generator = RandomGenerator::system();
        let mut relay = DatagramRelay::new(&mut generator).unwrap();
        let grants = relay.add_pair(START, &mut generator).unwrap();
        (relay, grants)
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 4000))
    }

    fn bind(relay: &mut DatagramRelay, now: Duration, grant: &BindingGrant, from: SocketAddr) {
        let mut party = RelayBinding::new(grant, now);
        while let Some(request) = party.poll_transmit(now) {
            let RelayDatagramAction::Answer(answer) = relay.handle_datagram(now, from, &request)
            else {
                panic!("no answer")
            };
            assert_eq!(answer.len(), request.len());
            party.handle_datagram(now, &answer);
        }
        assert!(party.is_bound());
        assert_eq!(party.observed(), Some(from));
    }

    #[test]
    fn datagrams_are_forwarded_once_both_parties_have_proven_their_addresses() {
        let (mut relay, [one, two]) = relay();
        let forwarded = |relay: &mut DatagramRelay| {
            [(1, 2), (2, 1)].map(|(from, to)| {
                let action = relay.handle_datagram(START, address(from), b"data");
                action == RelayDatagramAction::Forward(address(to))
            })
        };
        assert_eq!(forwarded(&mut relay), [false; 2]);
        bind(&mut relay, START, &one, address(1));
        assert_eq!(forwarded(&mut relay), [false; 2]);
        bind(&mut relay, START, &two, address(2));
        assert_eq!(forwarded(&mut relay), [true; 2]);
        let stranger = relay.handle_datagram(START, address(3), b"data");
        assert_eq!(stranger, RelayDatagramAction::Drop);
        relay.remove([one.id, two.id]);
        assert_eq!(relay.counts(), (0, 0));
        assert_eq!(forwarded(&mut relay), [false; 2]);
    }

    /// A request from the address of a victim is answered there once, and binds nothing: only the
    /// victim sees the challenge.
    #[test]
    fn a_forged_source_is_not_bound() {
        let (mut relay, [one, two]) = relay();
        bind(&mut relay, START, &two, address(2));
        let key = SharedKey::new(&one.key);
        let own = relay.handle_datagram(START, address(1), &request(one.id, &key, [0; 16]));
        let RelayDatagramAction::Answer(own) = own else { panic!() };
        let challenge = BindingMessage::parse(&own).unwrap().challenge;
        // The challenge of its own address, sent with the victim's, also much later.
        for (from, later) in [(9, 0), (9, 5), (1, 60)] {
            let now = START + Duration::from_secs(later);
            let sent = request(one.id, &key, challenge);
            let RelayDatagramAction::Answer(_) = relay.handle_datagram(now, address(from), &sent)
            else {
                panic!()
            };
            assert_eq!(relay.heard_at(one.id), None);
        }
        let sent = relay.handle_datagram(START, address(2), b"flood");
        assert_eq!(sent, RelayDatagramAction::Drop);
    }

    #[test]
    fn a_party_that_is_silent_gets_nothing_more() {
        let (mut relay, [one, two]) = relay();
        bind(&mut relay, START, &one, address(1));
        bind(&mut relay, START, &two, address(2));
        let later = START + BINDING_IDLE_TIMEOUT;
        let forward = RelayDatagramAction::Forward(address(2));
        assert_eq!(relay.handle_datagram(later, address(1), b"x"), forward);
        let later = later + Duration::from_millis(1);
        assert_eq!(relay.handle_datagram(later, address(1), b"x"), RelayDatagramAction::Drop);
        // Its own datagram shows that it is there.
        relay.handle_datagram(later, address(2), b"x");
        assert_eq!(relay.handle_datagram(later, address(1), b"x"), forward);
    }

    #[test]
    fn rate_and_bytes_are_limited() {
        let (mut relay, [one, two]) = relay();
        bind(&mut relay, START, &one, address(1));
        bind(&mut relay, START, &two, address(2));
        let datagram = [0; 1000];
        let count = |relay: &mut DatagramRelay, now| {
            let sent = |_| relay.handle_datagram(now, address(1), &datagram);
            (0..10_000).map(sent).filter(|it| *it != RelayDatagramAction::Drop).count()
        };
        assert_eq!(count(&mut relay, START), 2000);
        assert_eq!(count(&mut relay, START + Duration::from_millis(10)), 640);
        relay.parties.get_mut(&one.id).unwrap().bytes_left = 1500;
        assert_eq!(count(&mut relay, START + Duration::from_secs(1)), 1);
    }

    #[test]
    fn an_address_belongs_to_the_party_that_has_proven_it_last() {
        let (mut relay, [one, two]) = relay();
        bind(&mut relay, START, &one, address(1));
        bind(&mut relay, START, &two, address(2));
        let mut generator = RandomGenerator::system();
        let others = relay.add_pair(START, &mut generator).unwrap();
        bind(&mut relay, START, &others[0], address(1));
        assert_eq!(relay.heard_at(one.id), None);
        let from_two = relay.handle_datagram(START, address(2), b"x");
        assert_eq!(from_two, RelayDatagramAction::Drop);
        // A new address of the same party replaces the old one.
        bind(&mut relay, START, &one, address(5));
        let from_two = relay.handle_datagram(START, address(2), b"x");
        assert_eq!(from_two, RelayDatagramAction::Forward(address(5)));
        relay.remove([one.id, two.id]);
        relay.remove([others[0].id, others[1].id]);
        assert_eq!(relay.counts(), (0, 0));
    }

    proptest! {
        /// A stranger gets nothing at all, whatever it sends.
        #[test]
        fn strangers_get_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut relay, [one, two]) = relay();
            bind(&mut relay, START, &one, address(1));
            bind(&mut relay, START, &two, address(2));
            let action = relay.handle_datagram(START, address(3), &bytes);
            prop_assert_eq!(action, RelayDatagramAction::Drop);
            prop_assert_eq!(relay.counts(), (2, 2));
        }
    }
}
