//! The server's end: answers whoever may be the client, and associates n channels whose lists agree.
//!
//! A Hello costs no memory: its cookie is computed, and nothing is kept. A List is looked at if its
//! own cookie is one that this server sent to that address, on that channel, a little while ago. Then
//! it waits for the others, which the association of the crate `association` judges. The tables are
//! bounded for each channel, so whoever fills a channel's harms that channel.
//!
//! Cookies are used up by an association, for as long as they are good. So its lists, played again,
//! are answered with the Confirm and nothing more.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use association::{
    Acceptable, COOKIE_LEN, ConnectionId, Cookie, List, Message, Protocol, Scheme,
    Server as Association, ServerAbort, ServerConfig, ServerEvent as AssociationEvent,
};
use keys::SharedKey;
use model::Subset;
use sharing::{Generator, RandomError};
use thiserror::Error;

use super::cookies::{Cookies, Holder, LIFETIME};
use super::proof::{is_proven, prove};
use super::secrets::{self, SecretPair};
use super::timing::{ANSWERS_PER_SECOND, PATIENCE};
use crate::control::peer_address::{is_same, is_same_ip};
use crate::wire::handshake::{Body, Datagram, KeyShare, Request};
use crate::wire::keys::Keys;
use crate::wire::options::Options;
use crate::wire::terms::Terms;

/// How many lists wait on one channel, at most. A client that starts again and again has ten or so
/// there before the first times out.
const MAX_WAITING: usize = 64;

/// How many associations are remembered for the cookies that they used up. No more are made while
/// there are as many.
const MAX_RECENT: usize = 64;

/// How many answers wait to be taken on one channel, and how many refusals. Further ones are lost, as
/// datagrams are.
const MAX_QUEUED: usize = 256;

/// How many different reasons are told for refusals on one channel, at most, and how long none of them
/// is told again: anyone who can send from the client's address has some told.
const MAX_TOLD: usize = 16;
const SILENCE: Duration = Duration::from_secs(60);

/// The time for one datagram, and how much of it is kept while none come.
const ANSWER: Duration = Duration::from_nanos(1_000_000_000 / ANSWERS_PER_SECOND as u64);
const BURST: Duration = Duration::from_millis(10);

/// The address of nobody: of channels that are not in an association.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Who the client is.
#[derive(Clone, Debug)]
pub enum Peer {
    /// Whoever sends from these addresses, one a channel; port 0 is any.
    Addresses(Vec<SocketAddr>),
    /// Whoever has the key, from anywhere.
    Key(SharedKey),
    /// Whoever has the key and sends from these addresses, one a channel.
    Both(Vec<SocketAddr>, SharedKey),
}

/// A server cannot be set up so.
#[derive(Clone, Copy, Debug, Error)]
pub enum PeerError {
    /// Not as many addresses as channels.
    #[error("{addresses} addresses of the client for {channels} channels")]
    Addresses {
        /// How many there are.
        addresses: usize,
        /// How many channels there are.
        channels: u8,
    },
    /// There were no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The channel's index.
    pub channel: usize,
    /// Where to.
    pub to: SocketAddr,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// What a server has to tell.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client has come, or come again. Until a symbol under these keys verifies, it may be one that
    /// has given up since, and an association that there is goes on.
    Associated {
        /// What both ends hold.
        keys: Keys,
        /// The client's address on each channel, all zeros on those that are not in.
        addresses: Vec<SocketAddr>,
    },
    /// A list could not be taken. The same reason is told once a second on a channel, at most.
    Refused {
        /// The channel's index, if it is one channel's matter.
        channel: Option<usize>,
        /// Why.
        reason: ServerRefusal,
    },
}

/// Why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ServerRefusal {
    /// Its terms are others than this server's.
    #[error("the client has {0}")]
    Terms(TermsDiffer),
    /// Lists do not fit together, or did not come in time.
    #[error(transparent)]
    Association(#[from] ServerAbort),
    /// A share of the points was changed on its way.
    #[error("a share of the points was changed on its way")]
    KeyShares,
    /// There is no room for another handshake.
    #[error("there are too many handshakes")]
    TooMany,
}

/// What is different about a client's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TermsDiffer {
    /// The number of channels.
    #[error("{0} channels, and this end another number")]
    Channels(u8),
    /// Fewer channels that work than this server begins with.
    #[error("{0} channels that work, and this end begins with no fewer than its `min_channels`")]
    TooFew(u8),
    /// A floor below this server's.
    #[error("a `min_threshold` of {0}, below this end's")]
    Floor(u8),
    /// One end has tags and the other has none.
    #[error("another `tamper_code`")]
    Tags,
    /// Another protocol altogether.
    #[error("another protocol or sharing scheme")]
    Protocol,
}

/// The server's end of all handshakes.
#[derive(Debug)]
pub struct Server {
    terms: Terms,
    peer: Peer,
    cookies: Cookies,
    channels: Vec<Channel>,
    association: Association,
    /// Lists that wait for the others, by their own cookie.
    waiting: HashMap<[u8; COOKIE_LEN], Waiting>,
    /// The own cookie of each connection of the association.
    connections: HashMap<ConnectionId, [u8; COOKIE_LEN]>,
    opened: u64,
    recent: VecDeque<Recent>,
    /// Why all channels' lists together were refused.
    told: Told,
    replies: VecDeque<Reply>,
    events: VecDeque<ServerEvent>,
    now: Duration,
}

#[derive(Debug, Default)]
struct Channel {
    waiting: usize,
    hellos: Budget,
    lists: Budget,
    /// How many of the replies are its own.
    replies: usize,
    told: Told,
}

/// How much of the time that there is for datagrams is spent. It comes evenly: with so many for each
/// tenth of a second, whoever has the first of them has all, and a client that repeats itself as
/// regularly would be too late each time.
#[derive(Debug, Default)]
struct Budget {
    spent: Duration,
}

/// What was told a little while ago, and when.
#[derive(Debug, Default)]
struct Told(Vec<(ServerRefusal, Duration)>);

/// A list that came on one channel, and waits for the others.
#[derive(Debug)]
struct Waiting {
    connection: ConnectionId,
    holder: Holder,
    key_share: KeyShare,
    list: List,
}

/// An association whose cookies may still be good.
#[derive(Debug)]
struct Recent {
    list: List,
    /// Each member's, in the list's order.
    holders: Vec<Holder>,
    until: Duration,
}

impl Server {
    /// A server that agrees to these terms, or to a higher floor, with this peer.
    ///
    /// # Errors
    /// Unless there is an address for each channel, or when there are no random bytes.
    pub fn new(terms: Terms, peer: Peer, generator: &mut Generator) -> Result<Self, PeerError> {
        let channels = terms.channels();
        if let Some(addresses) = peer.addresses()
            && addresses.len() != usize::from(channels)
        {
            return Err(PeerError::Addresses { addresses: addresses.len(), channels });
        }
        let acceptable = Acceptable {
            protocols: vec![Protocol::ReMicssDatagrams],
            schemes: vec![Scheme::Shamir],
            min_threshold: terms.floor(),
            max_channels: channels,
            // Which of them is looked at before.
            options: u32::MAX,
        };
        let max_pending = MAX_WAITING * usize::from(channels);
        Ok(Self {
            terms,
            peer,
            cookies: Cookies::new(generator)?,
            channels: (0..channels).map(|_| Channel::default()).collect(),
            association: Association::new(ServerConfig {
                max_pending,
                timeout: PATIENCE,
                patience: None,
                acceptable,
            }),
            waiting: HashMap::new(),
            connections: HashMap::new(),
            opened: 0,
            recent: VecDeque::new(),
            told: Told::default(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            now: Duration::ZERO,
        })
    }

    /// Whether the client may send from an address on a channel, as far as its addresses are configured.
    pub fn may_send_from(&self, channel: usize, from: SocketAddr) -> bool {
        channel < self.channels.len() && self.peer.may_send_from(channel, from)
    }

    /// A datagram of the handshake came on a channel.
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
        // The cheapest question comes first, and the proof before the budget: who has no key uses up
        // nobody's.
        let budget = match Request::of(bytes) {
            Some(Request::Hello) => &mut known.hellos,
            Some(Request::List) => &mut known.lists,
            None => return,
        };
        if !self.peer.may_send_from(channel, from)
            || !is_proven(self.peer.key(), channel, bytes)
            || !budget.take(self.now)
        {
            return;
        }
        let Ok(Datagram { nonce, body }) = Datagram::parse(bytes) else {
            return;
        };
        let holder = Holder { channel, address: from, nonce };
        match body {
            Body::Hello => self.answer_hello(holder),
            Body::List { key_share, list } => self.read_list(holder, key_share, list),
            Body::Cookie { .. } | Body::Confirm { .. } => {}
        }
    }

    /// Gives up what has waited for too long. Time that goes back stands still.
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

    /// The next datagram to send. Ask until there is none.
    pub fn poll_transmit(&mut self) -> Option<Reply> {
        let reply = self.replies.pop_front()?;
        self.channels[reply.channel].replies -= 1;
        Some(reply)
    }

    /// What there is to tell, until there is nothing.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn answer_hello(&mut self, holder: Holder) {
        let cookie = self.cookies.make(holder, self.now);
        self.reply(holder, Body::Cookie { cookie });
    }

    fn read_list(&mut self, holder: Holder, key_share: KeyShare, list: List) {
        let place = members(&list).iter().position(|member| member == holder.channel);
        let Some(own) = place.and_then(|place| list.cookies().get(place)).copied() else {
            return;
        };
        if let Some(recent) = self.recent.iter().find(|recent| recent.used(holder.channel, &own)) {
            if recent.holders.contains(&holder) && recent.list.matches(&list) {
                self.reply(holder, Body::Confirm { list });
            }
            return;
        }
        if let Some(known) = self.waiting.get(own.as_bytes()) {
            // A second, different list is as good as lost.
            if known.holder != holder || !known.list.matches(&list) {
                return;
            }
        } else {
            if !self.cookies.recognises(holder, &own, self.now) {
                return;
            }
            if let Err(reason) = self.check(holder.channel, &list) {
                return self.refuse(Some(holder.channel), reason);
            }
            let new = Waiting {
                connection: ConnectionId(self.opened),
                holder,
                key_share,
                list: list.clone(),
            };
            self.open(own, new);
        }
        self.deliver(&list);
    }

    /// Whether a list whose cookie is right can be taken in.
    fn check(&self, channel: usize, list: &List) -> Result<(), ServerRefusal> {
        self.compare(list.terms()).map_err(ServerRefusal::Terms)?;
        if self.channels[channel].waiting >= MAX_WAITING || self.recent.len() >= MAX_RECENT {
            return Err(ServerRefusal::TooMany);
        }
        Ok(())
    }

    fn compare(&self, theirs: association::Terms) -> Result<(), TermsDiffer> {
        let is_known =
            theirs.protocol() == Protocol::ReMicssDatagrams && theirs.scheme() == Scheme::Shamir;
        let options = Options::parse(theirs.options()).filter(|_| is_known);
        let Some(Options { tags, channels, members }) = options else {
            return Err(TermsDiffer::Protocol);
        };
        if members.len() != usize::from(theirs.channels()) {
            Err(TermsDiffer::Protocol)
        } else if channels != self.terms.channels() {
            Err(TermsDiffer::Channels(channels))
        } else if theirs.threshold() < self.terms.floor() {
            Err(TermsDiffer::Floor(theirs.threshold()))
        } else if tags != self.terms.tags() {
            Err(TermsDiffer::Tags)
        } else if theirs.channels() < self.terms.least() {
            Err(TermsDiffer::TooFew(theirs.channels()))
        } else {
            Ok(())
        }
    }

    fn open(&mut self, own: Cookie, new: Waiting) {
        // It is not full, as no channel's part of it is, and neither name nor cookie is in it.
        if self.association.open(new.connection, own, self.now).is_ok() {
            self.opened += 1;
            self.channels[new.holder.channel].waiting += 1;
            self.connections.insert(new.connection, *own.as_bytes());
            self.waiting.insert(*own.as_bytes(), new);
        }
    }

    /// Tells the association of a list once all connections that it names are waiting: those that
    /// have brought the same one. Before that it would take the list for a lie.
    fn deliver(&mut self, list: &List) {
        let named = list.cookies().iter().map(|cookie| self.waiting.get(cookie.as_bytes()));
        let Some(named) = named.collect::<Option<Vec<&Waiting>>>() else {
            return;
        };
        let same = named.iter().filter(|waiting| waiting.list.matches(list));
        let connections: Vec<_> = same.map(|waiting| waiting.connection).collect();
        for connection in connections {
            // One that was given up because of another's list has nothing more to say.
            let message = Message::List(list.clone());
            let _ = self.association.handle_message(connection, &message, self.now);
        }
        self.follow();
    }

    /// Does what the association says.
    fn follow(&mut self) {
        while let Some(event) = self.association.poll_event() {
            match event {
                // Cookies are sent before there is a connection, Confirms once the points are right.
                AssociationEvent::Transmit { .. } => {}
                AssociationEvent::Aborted { id, reason } => {
                    if let Some(gone) = self.close(id) {
                        self.refuse(Some(gone.holder.channel), reason.into());
                    }
                }
                AssociationEvent::Associated { list, connections } => {
                    let members = connections.into_iter().flatten();
                    let members: Vec<Waiting> = members.filter_map(|id| self.close(id)).collect();
                    self.associate(list, &members);
                }
            }
        }
    }

    fn close(&mut self, id: ConnectionId) -> Option<Waiting> {
        let gone = self.waiting.remove(&self.connections.remove(&id)?)?;
        self.channels[gone.holder.channel].waiting -= 1;
        Some(gone)
    }

    /// All channels that a list names have brought it. `members` are in its order.
    fn associate(&mut self, list: List, members: &[Waiting]) {
        let shares = members.iter().map(|member| &member.key_share);
        let Ok(secrets) = secrets::collect(shares) else {
            return self.refuse(None, ServerRefusal::KeyShares);
        };
        let holders: Vec<Holder> = members.iter().map(|member| member.holder).collect();
        // It is never lost, or a client that is confirmed would be associated alone. There are only as
        // many as are remembered. What is lost of the Confirms is sent when the List comes again.
        self.events.push_back(ServerEvent::Associated {
            keys: self.keys(&list, members, &secrets),
            addresses: self.addresses(members),
        });
        for &holder in &holders {
            self.reply(holder, Body::Confirm { list: list.clone() });
        }
        let until = self.now.saturating_add(LIFETIME);
        self.recent.push_back(Recent { list, holders, until });
    }

    fn keys(&self, list: &List, members: &[Waiting], secrets: &SecretPair) -> Keys {
        let (channels, tags) = (self.terms.channels(), self.terms.tags());
        Keys {
            outgoing: secrets.to_client.direction(channels, tags),
            incoming: secrets.to_server.direction(channels, tags),
            floor: list.terms().threshold(),
            members: members.iter().map(|member| member.holder.channel).collect(),
        }
    }

    /// Where each member's client is, at its channel's place.
    fn addresses(&self, members: &[Waiting]) -> Vec<SocketAddr> {
        let mut addresses = vec![NOBODY; self.channels.len()];
        for Waiting { holder, .. } in members {
            addresses[holder.channel] = holder.address;
        }
        addresses
    }

    fn reply(&mut self, to: Holder, body: Body) {
        let queued = &mut self.channels[to.channel].replies;
        if *queued < MAX_QUEUED {
            *queued += 1;
            let mut bytes = Datagram { nonce: to.nonce, body }.encode();
            prove(self.peer.key(), to.channel, &mut bytes);
            self.replies.push_back(Reply { channel: to.channel, to: to.address, bytes });
        }
    }

    fn refuse(&mut self, channel: Option<usize>, reason: ServerRefusal) {
        let told = channel.map_or(&mut self.told, |channel| &mut self.channels[channel].told);
        if self.events.len() < MAX_QUEUED && told.is_news(reason, self.now) {
            self.events.push_back(ServerEvent::Refused { channel, reason });
        }
    }
}

impl Peer {
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
            if peer.port() == 0 { is_same_ip(peer, from) } else { is_same(peer, from) }
        })
    }
}

impl Budget {
    fn take(&mut self, now: Duration) -> bool {
        let spent = self.spent.max(now.saturating_sub(BURST));
        let is_enough = spent <= now;
        self.spent = if is_enough { spent.saturating_add(ANSWER) } else { spent };
        is_enough
    }
}

impl Told {
    /// Whether a reason is to be told now.
    fn is_news(&mut self, reason: ServerRefusal, now: Duration) -> bool {
        self.0.retain(|(_, since)| now.saturating_sub(*since) < SILENCE);
        let is_news = self.0.len() < MAX_TOLD && self.0.iter().all(|(told, _)| *told != reason);
        if is_news {
            self.0.push((reason, now));
        }
        is_news
    }
}

impl Recent {
    fn used(&self, channel: usize, cookie: &Cookie) -> bool {
        let place = self.list.position(cookie);
        place.is_some_and(|place| self.holders[place].channel == channel)
    }
}

/// The channels that a list is for; none if its terms are not a tunnel's, or name more or fewer than it has
/// cookies.
fn members(list: &List) -> Subset {
    let members = Options::parse(list.terms().options()).map(|options| options.members);
    members.filter(|members| members.len() == list.cookies().len()).unwrap_or_default()
}
