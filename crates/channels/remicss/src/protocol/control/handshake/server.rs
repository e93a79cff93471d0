//! The server of all handshakes: answers datagrams that may be the client's, and associates
//! channels whose Lists agree.
//!
//! A Hello needs no memory: its cookie is computed, and no state is kept. A List is accepted if its
//! own cookie is one that this server has recently sent to that address on that channel. Then it
//! waits for the others, which the crate `association` checks. The tables are bounded for each
//! channel, so an attacker that fills a channel's table affects only that channel.
//!
//! An association's cookies count as used for their lifetime. So replayed Lists are only answered
//! with the Confirm.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use association::{
    AssociationMessage, AssociationProtocol, AssociationServerEvent as AssociationEvent,
    COOKIE_LEN, ConnectionCookie, CookieList, HandshakeServer as Association,
    HandshakeServerConfig, PendingConnectionId, ServerHandshakeAbort, SharingScheme, TermsPolicy,
};
use keys::SharedKey;
use model::ChannelSubset;
use random::{RandomError, RandomGenerator};
use thiserror::Error;

use super::cookies::{CookieAuthenticator, CookieHolder, LIFETIME};
use super::proof::{is_proven, prove};
use super::secrets::{self, HandshakeSecrets};
use super::timing::{ANSWERS_PER_SECOND, HANDSHAKE_TIMEOUT};
use crate::protocol::control::peer_address::{is_same_address, is_same_ip};
use crate::protocol::control::rate_limiter::DatagramRateLimiter;
use crate::protocol::wire::channel_index::{ConfiguredIndex, LiveIndex};
use crate::protocol::wire::handshake::{
    HandshakeBody, HandshakeDatagram, HandshakeRequestKind, TunnelKeyShare,
};
use crate::protocol::wire::keys::TunnelKeys;
use crate::protocol::wire::options::TunnelOptionBits;
use crate::protocol::wire::terms::TunnelTerms;

/// The maximum number of Lists that wait on one channel. A client that restarts repeatedly has
/// about ten before the first times out.
const MAX_PENDING: usize = 64;

/// The maximum number of associations whose used cookies are remembered. While there are as many,
/// no more are made.
const MAX_RECENT: usize = 64;

/// The maximum number of queued answers on one channel, and of queued refusals. Further ones are
/// dropped.
const MAX_QUEUED: usize = 256;

/// The maximum number of different refusals that are reported on one channel, and the interval in
/// which none is reported again: anyone who can send from the client's address can cause them.
const MAX_LOGGED: usize = 16;
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The time for one datagram.
const ANSWER_INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / ANSWERS_PER_SECOND as u64);

/// The address on channels that are not members.
const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// How the client is identified.
#[derive(Clone, Debug)]
pub enum ClientIdentity {
    /// By its addresses, one for each channel; port 0 is any.
    Addresses(Vec<SocketAddr>),
    /// By the key, at any address.
    Key(SharedKey),
    /// By the key and its addresses, one for each channel.
    Both(Vec<SocketAddr>, SharedKey),
}

/// Why a server cannot be created.
#[derive(Clone, Copy, Debug, Error)]
pub enum TunnelServerError {
    /// The number of addresses is not that of the channels.
    #[error("{addresses} addresses of the client for {channels} channels")]
    Addresses {
        /// The number of addresses.
        addresses: usize,
        /// The number of channels.
        channels: u8,
    },
    /// The random source failed.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeReply {
    /// The channel's index.
    pub channel: usize,
    /// The address to send to.
    pub to: SocketAddr,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// The events of a server.
#[derive(Debug)]
pub enum TunnelServerEvent {
    /// A client has associated, or associated again. It may have given up since, so an existing
    /// association continues until a symbol under these keys verifies.
    Associated {
        /// The keys.
        keys: TunnelKeys,
        /// The client's address on each channel, all zeros on channels that are not members.
        addresses: Vec<SocketAddr>,
    },
    /// A List was refused. The same reason is reported at most once a minute on a channel.
    Refused {
        /// The channel's index, if it concerns one channel.
        channel: Option<usize>,
        /// Why.
        reason: TunnelClientRefusal,
    },
}

/// Why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TunnelClientRefusal {
    /// Its terms differ from this server's.
    #[error("the client has {0}")]
    Terms(TermsMismatch),
    /// The Lists do not agree, or did not arrive in time.
    #[error(transparent)]
    Association(#[from] ServerHandshakeAbort),
    /// A key share was changed.
    #[error("a key share was changed in transit")]
    KeyShares,
    /// There are too many handshakes.
    #[error("there are too many handshakes")]
    TooMany,
}

/// The difference between a client's terms and the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TermsMismatch {
    /// The number of channels.
    #[error("{0} channels, and this end has a different number")]
    Channels(u8),
    /// Fewer members than this server requires.
    #[error("{0} working channels, fewer than this end's `min_channels`")]
    TooFew(u8),
    /// A floor below this server's.
    #[error("a `min_threshold` of {0}, below this end's")]
    Floor(u8),
    /// One end has tags and the other does not.
    #[error("another `tamper_code`")]
    Tags,
    /// Another protocol or sharing scheme.
    #[error("another protocol or sharing scheme")]
    Protocol,
}

/// The server of all handshakes.
#[derive(Debug)]
pub struct TunnelHandshakeServer {
    terms: TunnelTerms,
    peer: ClientIdentity,
    cookies: CookieAuthenticator,
    channels: Vec<ServerHandshakeChannel>,
    association: Association,
    /// Lists that wait for the others, by their own cookie.
    pending: HashMap<[u8; COOKIE_LEN], PendingCookieList>,
    /// The own cookie of each connection of the association.
    connections: HashMap<PendingConnectionId, [u8; COOKIE_LEN]>,
    opened: u64,
    recent: VecDeque<RecentAssociation>,
    /// The refusals that concern all channels.
    refusals: ClientRefusalLog,
    replies: VecDeque<HandshakeReply>,
    events: VecDeque<TunnelServerEvent>,
    now: Duration,
}

#[derive(Debug, Default)]
struct ServerHandshakeChannel {
    pending: usize,
    hellos: DatagramRateLimiter,
    lists: DatagramRateLimiter,
    /// The number of queued replies on this channel.
    replies: usize,
    refusals: ClientRefusalLog,
}

/// The refusals that were reported recently, and when.
#[derive(Debug, Default)]
struct ClientRefusalLog(Vec<(TunnelClientRefusal, Duration)>);

/// A List that has arrived on one channel, and waits for the others.
#[derive(Debug)]
struct PendingCookieList {
    connection: PendingConnectionId,
    holder: CookieHolder,
    key_share: TunnelKeyShare,
    list: CookieList,
}

/// An association whose cookies may still be valid.
#[derive(Debug)]
struct RecentAssociation {
    list: CookieList,
    /// The members' holders, by [`LiveIndex`].
    holders: Vec<CookieHolder>,
    until: Duration,
}

impl TunnelHandshakeServer {
    /// A server that accepts these terms, or a higher floor, from this client.
    ///
    /// # Errors
    /// Unless there is an address for each channel, or if the random source fails.
    pub fn new(
        terms: TunnelTerms,
        peer: ClientIdentity,
        generator: &mut RandomGenerator,
    ) -> Result<Self, TunnelServerError> {
        let channels = terms.channels();
        if let Some(addresses) = peer.addresses()
            && addresses.len() != usize::from(channels)
        {
            return Err(TunnelServerError::Addresses { addresses: addresses.len(), channels });
        }
        let policy = TermsPolicy {
            protocols: vec![AssociationProtocol::ReMicssDatagrams],
            schemes: vec![SharingScheme::Shamir],
            min_threshold: terms.floor(),
            max_channels: channels,
            // Options are checked before.
            options: u32::MAX,
        };
        let max_pending = MAX_PENDING * usize::from(channels);
        Ok(Self {
            terms,
            peer,
            cookies: CookieAuthenticator::new(generator)?,
            channels: (0..channels).map(|_| ServerHandshakeChannel::default()).collect(),
            association: Association::new(HandshakeServerConfig {
                max_pending,
                timeout: HANDSHAKE_TIMEOUT,
                quorum_timeout: None,
                policy,
            }),
            pending: HashMap::new(),
            connections: HashMap::new(),
            opened: 0,
            recent: VecDeque::new(),
            refusals: ClientRefusalLog::default(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            now: Duration::ZERO,
        })
    }

    /// Whether the configured addresses allow the client to send from an address on a channel.
    pub fn may_send_from(&self, channel: usize, from: SocketAddr) -> bool {
        channel < self.channels.len() && self.peer.may_send_from(channel, from)
    }

    /// Whether a datagram is one that a client sends, with the right proof. A replayed one is, too.
    pub fn recognises(&self, channel: usize, bytes: &[u8]) -> bool {
        channel < self.channels.len()
            && HandshakeRequestKind::of(bytes).is_some()
            && is_proven(self.peer.key(), channel, bytes)
    }

    /// Handles a handshake datagram that arrived on a channel.
    pub fn handle_datagram(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
    ) {
        self.handle_timeout(now);
        let Some(known) = self.channels.get_mut(channel) else {
            return;
        };
        // The cheapest check comes first, and the proof before the rate limit: a sender without the
        // key does not use it up.
        let limiter = match HandshakeRequestKind::of(bytes) {
            Some(HandshakeRequestKind::Hello) => &mut known.hellos,
            Some(HandshakeRequestKind::List) => &mut known.lists,
            None => return,
        };
        if !self.peer.may_send_from(channel, from)
            || !is_proven(self.peer.key(), channel, bytes)
            || !limiter.take(ANSWER_INTERVAL, self.now)
        {
            return;
        }
        let Ok(HandshakeDatagram { nonce, body }) = HandshakeDatagram::parse(bytes) else {
            return;
        };
        let holder = CookieHolder { channel, address: from, nonce };
        match body {
            HandshakeBody::Hello => self.answer_hello(holder),
            HandshakeBody::List { key_share, list } => self.read_list(holder, key_share, list),
            HandshakeBody::Cookie { .. } | HandshakeBody::Confirm { .. } => {}
        }
    }

    /// Removes what has timed out. Time does not go backwards.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while self.recent.front().is_some_and(|recent| recent.until <= self.now) {
            self.recent.pop_front();
        }
        self.association.handle_timeout(self.now);
        self.follow();
    }

    /// When to call [`Self::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let recent = self.recent.front().map(|recent| recent.until);
        self.association.poll_timeout().into_iter().chain(recent).min()
    }

    /// The next datagram to send. Call it until it returns `None`.
    pub fn poll_transmit(&mut self) -> Option<HandshakeReply> {
        let reply = self.replies.pop_front()?;
        self.channels[reply.channel].replies -= 1;
        Some(reply)
    }

    /// The next event. Call it until it returns `None`.
    pub fn poll_event(&mut self) -> Option<TunnelServerEvent> {
        self.events.pop_front()
    }

    fn answer_hello(&mut self, holder: CookieHolder) {
        let cookie = self.cookies.generate(holder, self.now);
        self.reply(holder, HandshakeBody::Cookie { cookie });
    }

    fn read_list(&mut self, holder: CookieHolder, key_share: TunnelKeyShare, list: CookieList) {
        let place = ConfiguredIndex(holder.channel).live_index(members(&list));
        let Some(own) = place.and_then(|place| list.cookies().get(place.0)).copied() else {
            return;
        };
        if let Some(recent) = self.recent.iter().find(|recent| recent.used(holder.channel, &own)) {
            if recent.holders.contains(&holder) && recent.list.ct_matches(&list) {
                self.reply(holder, HandshakeBody::Confirm { list });
            }
            return;
        }
        if let Some(known) = self.pending.get(own.as_bytes()) {
            // A second, different List is ignored.
            if known.holder != holder || !known.list.ct_matches(&list) {
                return;
            }
        } else {
            if !self.cookies.is_valid(holder, &own, self.now) {
                return;
            }
            if let Err(reason) = self.check(holder.channel, &list) {
                return self.refuse(Some(holder.channel), reason);
            }
            let new = PendingCookieList {
                connection: PendingConnectionId(self.opened),
                holder,
                key_share,
                list: list.clone(),
            };
            self.open(own, new);
        }
        self.deliver(&list);
    }

    /// Whether a List with a valid cookie can be accepted.
    fn check(&self, channel: usize, list: &CookieList) -> Result<(), TunnelClientRefusal> {
        self.compare(list.terms()).map_err(TunnelClientRefusal::Terms)?;
        if self.channels[channel].pending >= MAX_PENDING || self.recent.len() >= MAX_RECENT {
            return Err(TunnelClientRefusal::TooMany);
        }
        Ok(())
    }

    fn compare(&self, theirs: association::AssociationTerms) -> Result<(), TermsMismatch> {
        let is_known = theirs.protocol() == AssociationProtocol::ReMicssDatagrams
            && theirs.scheme() == SharingScheme::Shamir;
        let options = TunnelOptionBits::parse(theirs.options()).filter(|_| is_known);
        let Some(TunnelOptionBits { tags, channels, members }) = options else {
            return Err(TermsMismatch::Protocol);
        };
        if members.len() != usize::from(theirs.channels()) {
            Err(TermsMismatch::Protocol)
        } else if channels != self.terms.channels() {
            Err(TermsMismatch::Channels(channels))
        } else if theirs.threshold() < self.terms.floor() {
            Err(TermsMismatch::Floor(theirs.threshold()))
        } else if tags != self.terms.tags() {
            Err(TermsMismatch::Tags)
        } else if theirs.channels() < self.terms.min_channels() {
            Err(TermsMismatch::TooFew(theirs.channels()))
        } else {
            Ok(())
        }
    }

    fn open(&mut self, own: ConnectionCookie, new: PendingCookieList) {
        // It is not full, as no channel's part of it is, and neither identifier nor cookie is in
        // it.
        if self.association.open(new.connection, own, self.now).is_ok() {
            self.opened += 1;
            self.channels[new.holder.channel].pending += 1;
            self.connections.insert(new.connection, *own.as_bytes());
            self.pending.insert(*own.as_bytes(), new);
        }
    }

    /// Passes a List to the association once all connections that it names are pending, for those
    /// that have delivered the same List. Before that, the association would reject it.
    fn deliver(&mut self, list: &CookieList) {
        let named = list.cookies().iter().map(|cookie| self.pending.get(cookie.as_bytes()));
        let Some(named) = named.collect::<Option<Vec<&PendingCookieList>>>() else {
            return;
        };
        let same = named.iter().filter(|pending| pending.list.ct_matches(list));
        let connections: Vec<_> = same.map(|pending| pending.connection).collect();
        for connection in connections {
            // A connection that was aborted because of another's List is ignored.
            let message = AssociationMessage::List(list.clone());
            let _ = self.association.handle_message(connection, &message, self.now);
        }
        self.follow();
    }

    /// Handles the association's events.
    fn follow(&mut self) {
        while let Some(event) = self.association.poll_event() {
            match event {
                // Cookies are sent before there is a connection, Confirms once the key shares are
                // verified. Only connections of streams rejoin.
                AssociationEvent::Transmit { .. } | AssociationEvent::Rejoin { .. } => {}
                AssociationEvent::Aborted { id, reason } => {
                    if let Some(gone) = self.close(id) {
                        self.refuse(Some(gone.holder.channel), reason.into());
                    }
                }
                AssociationEvent::Associated { list, connections } => {
                    let members = connections.into_iter().flatten();
                    let members: Vec<PendingCookieList> =
                        members.filter_map(|id| self.close(id)).collect();
                    self.associate(list, &members);
                }
            }
        }
    }

    fn close(&mut self, id: PendingConnectionId) -> Option<PendingCookieList> {
        let gone = self.pending.remove(&self.connections.remove(&id)?)?;
        self.channels[gone.holder.channel].pending -= 1;
        Some(gone)
    }

    /// All channels that a List names have delivered it. `members` are in its order.
    fn associate(&mut self, list: CookieList, members: &[PendingCookieList]) {
        let shares = members.iter().map(|member| &member.key_share);
        let Ok(secrets) = secrets::join_secrets(shares) else {
            return self.refuse(None, TunnelClientRefusal::KeyShares);
        };
        let holders: Vec<CookieHolder> = members.iter().map(|member| member.holder).collect();
        // This event must not be lost, or a confirmed client would be associated alone. There are
        // at most `MAX_RECENT`. Lost Confirms are sent again when the List is repeated.
        self.events.push_back(TunnelServerEvent::Associated {
            keys: self.keys(&list, members, &secrets),
            addresses: self.addresses(members),
        });
        for &holder in &holders {
            self.reply(holder, HandshakeBody::Confirm { list: list.clone() });
        }
        let until = self.now.saturating_add(LIFETIME);
        self.recent.push_back(RecentAssociation { list, holders, until });
    }

    fn keys(
        &self,
        list: &CookieList,
        members: &[PendingCookieList],
        secrets: &HandshakeSecrets,
    ) -> TunnelKeys {
        let (channels, tags) = (self.terms.channels(), self.terms.tags());
        TunnelKeys {
            outgoing: secrets.to_client.direction(channels, tags),
            incoming: secrets.to_server.direction(channels, tags),
            floor: list.terms().threshold(),
            members: members.iter().map(|member| member.holder.channel).collect(),
        }
    }

    /// The client's address for each channel.
    fn addresses(&self, members: &[PendingCookieList]) -> Vec<SocketAddr> {
        let mut addresses = vec![UNSPECIFIED; self.channels.len()];
        for PendingCookieList { holder, .. } in members {
            addresses[holder.channel] = holder.address;
        }
        addresses
    }

    fn reply(&mut self, to: CookieHolder, body: HandshakeBody) {
        let queued = &mut self.channels[to.channel].replies;
        if *queued < MAX_QUEUED {
            *queued += 1;
            let mut bytes = HandshakeDatagram { nonce: to.nonce, body }.encode();
            prove(self.peer.key(), to.channel, &mut bytes);
            self.replies.push_back(HandshakeReply { channel: to.channel, to: to.address, bytes });
        }
    }

    fn refuse(&mut self, channel: Option<usize>, reason: TunnelClientRefusal) {
        let refusals =
            channel.map_or(&mut self.refusals, |channel| &mut self.channels[channel].refusals);
        if self.events.len() < MAX_QUEUED && refusals.is_due(reason, self.now) {
            self.events.push_back(TunnelServerEvent::Refused { channel, reason });
        }
    }
}

impl ClientIdentity {
    fn key(&self) -> Option<&SharedKey> {
        match self {
            Self::Addresses(_) => None,
            Self::Key(key) | Self::Both(_, key) => Some(key),
        }
    }

    fn addresses(&self) -> Option<&[SocketAddr]> {
        match self {
            Self::Addresses(addresses) | Self::Both(addresses, _) => Some(addresses),
            Self::Key(_) => None,
        }
    }

    fn may_send_from(&self, channel: usize, from: SocketAddr) -> bool {
        self.addresses().is_none_or(|addresses| {
            let peer = addresses[channel];
            if peer.port() == 0 { is_same_ip(peer, from) } else { is_same_address(peer, from) }
        })
    }
}

impl ClientRefusalLog {
    /// Whether a refusal is to be reported now. Records it if so.
    fn is_due(&mut self, reason: TunnelClientRefusal, now: Duration) -> bool {
        self.0.retain(|(_, since)| now.saturating_sub(*since) < LOG_INTERVAL);
        let is_news =
            self.0.len() < MAX_LOGGED && self.0.iter().all(|(refusals, _)| *refusals != reason);
        if is_news {
            self.0.push((reason, now));
        }
        is_news
    }
}

impl RecentAssociation {
    fn used(&self, channel: usize, cookie: &ConnectionCookie) -> bool {
        let place = self.list.position(cookie).map(LiveIndex);
        place.is_some_and(|place| self.holders[place.0].channel == channel)
    }
}

/// The members of a List; none if its terms are not a tunnel's, or their number is not that of its
/// cookies.
fn members(list: &CookieList) -> ChannelSubset {
    let members = TunnelOptionBits::parse(list.terms().options()).map(|options| options.members);
    members.filter(|members| members.len() == list.cookies().len()).unwrap_or_default()
}
