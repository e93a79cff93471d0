//! The half of an end that receives: the handshake, the shares of the association, and when to start
//! again.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use model::Subset;
use sharing::Generator;

use crate::common::Common;
use crate::control::{Came, Monitor};
use crate::datagram::{Class, Kind, PathError, PathKind};
use crate::handshake::{
    Client, ClientEvent, ClientFailure, Peer, PeerError, Server, ServerEvent, ServerRefusal,
    SharedKey, Terms,
};
use crate::keys::{KeyId, Keys};
use crate::paths::Paths;
use crate::peer_address::{Mobility, PeerAddress, Refusal, Validated, is_same};
use crate::receiver::{ControlShare, Counts, Deliver, Limits, Received, Receiver, Taken};
use crate::strangers::{Strange, Strangers, StrangersReport};

/// How long a client waits before it starts again, at first and at most.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LAST_WAIT: Duration = Duration::from_secs(4);

/// Which end this is, and what it knows of the other.
pub enum Role {
    /// It connects to these addresses, one a channel.
    Client {
        /// The server's addresses.
        servers: Vec<SocketAddr>,
        /// The key that both ends have.
        key: Option<SharedKey>,
    },
    /// It is connected to.
    Server(Peer),
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// There is an association: send under these keys, to these addresses.
    Associated {
        /// What this end holds.
        keys: Keys,
        /// The peer's address on each channel.
        peers: Vec<SocketAddr>,
    },
    /// The peer has another address on a channel, and has shown that it is there.
    Moved {
        /// The channel's index.
        channel: usize,
        /// The address.
        to: SocketAddr,
    },
    /// Shares of the peer's came from another address, and it has not shown that it is there.
    NotMoved {
        /// The channel's index.
        channel: usize,
        /// The address.
        to: SocketAddr,
        /// Why it is not taken for the peer's.
        why: Refusal,
    },
    /// Others than the peer send to a channel.
    Strangers(StrangersReport),
    /// All channels carry datagrams of this length, as UDP's payload, as far as it is known of them.
    Room(usize),
    /// Nothing has come from the peer for too long.
    Gone,
    /// A handshake has failed. A client tries again.
    Failed(ClientFailure),
    /// Someone was refused.
    Refused {
        /// The channel's index, if it is one channel's matter.
        channel: Option<usize>,
        /// Why.
        reason: ServerRefusal,
    },
}

/// What an end is to do, whichever it is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the ends must agree on.
    pub terms: Terms,
    /// What it may use.
    pub limits: Limits,
    /// The channels' rates in bit/s of IP packets, as far as they are configured.
    pub rates_bps: Vec<Option<u64>>,
    /// The length of IP's and UDP's headers on each channel: 28, or 48.
    pub headers: Vec<u16>,
    /// Whether packets wait for those of their flow that were sent before.
    pub keeps_order: bool,
    /// At a server: whether the client may move to any address while the tunnel runs.
    pub is_roaming: bool,
}

/// Where packets go.
pub trait Packets {
    /// Takes IP packets of a symbol, whose own lengths say where the next begins. `kind` says whether
    /// their transport checksums are complete.
    fn take(&mut self, kind: Kind, packets: &[u8]);
}

/// The half of an end that receives.
pub struct Inbound {
    settings: Settings,
    handshake: Handshake,
    generator: Generator,
    /// What symbols are received with, once there is an association.
    current: Option<Receiver>,
    /// Whether it is new, and the monitor still the one before's.
    is_fresh: bool,
    /// When the peer is held for gone, if nothing comes from it before.
    gone_at: Option<Duration>,
    /// At a server: an association of which no symbol has verified yet.
    next: Option<Next>,
    /// Where the peer is, on each channel; nothing if there is no association.
    peers: Vec<PeerAddress>,
    strangers: Strangers,
    /// How long the channels' packets may be.
    paths: Option<Paths>,
    /// Which keys this end sends with.
    key_id: Option<KeyId>,
    notes: Vec<Note>,
    events: VecDeque<Event>,
}

/// An association of which no symbol has verified yet.
struct Next {
    receiver: Receiver,
    keys: Keys,
    peers: Vec<PeerAddress>,
}

enum Handshake {
    Client(Box<Connecting>),
    Server(Box<Server>),
}

/// A client's end, which starts as often as it must.
struct Connecting {
    servers: Vec<SocketAddr>,
    key: Option<SharedKey>,
    /// The handshake that runs, if one does.
    client: Option<Client>,
    /// When to start, unless there is an association, and how long to wait after a failure.
    start_at: Duration,
    wait: Duration,
}

/// What is to be told to the monitor.
enum Note {
    Share(ControlShare),
    Message { number: u64, bytes: Vec<u8>, at: Duration },
}

impl Inbound {
    /// An end that begins now.
    ///
    /// # Errors
    /// When there are not as many addresses as channels, or no random bytes.
    pub fn new(
        role: Role,
        settings: Settings,
        mut generator: Generator,
        now: Duration,
    ) -> Result<Self, PeerError> {
        let terms = settings.terms;
        let n = usize::from(terms.channels());
        let handshake = match role {
            Role::Client { servers, key } => {
                let (client, start_at, wait) = (None, now, FIRST_WAIT);
                Handshake::Client(Box::new(Connecting { servers, key, client, start_at, wait }))
            }
            Role::Server(peer) => {
                Handshake::Server(Box::new(Server::new(terms, peer, &mut generator)?))
            }
        };
        Ok(Self {
            settings,
            handshake,
            generator,
            current: None,
            next: None,
            peers: Vec::new(),
            strangers: Strangers::new(n),
            paths: None,
            key_id: None,
            is_fresh: false,
            gone_at: None,
            notes: Vec::new(),
            events: VecDeque::new(),
        })
    }

    /// Takes a datagram that came on a channel. One from an address that the peer cannot have is counted,
    /// and not looked at.
    pub fn handle_datagram(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
        packets: &mut impl Packets,
    ) {
        let class = Class::of(bytes);
        if !self.admits(channel, from, class, bytes) {
            return self.strangers.count_wrong_source(channel, from);
        }
        match class {
            Some(Class::Share) => self.handle_share(channel, from, bytes, now, packets),
            Some(Class::Handshake) => match &mut self.handshake {
                Handshake::Client(connecting) => {
                    if let Some(client) = &mut connecting.client {
                        client.handle_datagram(channel, bytes, now);
                    }
                }
                Handshake::Server(server) => server.handle_datagram(channel, from, bytes, now),
            },
            Some(Class::Path) => self.handle_path_datagram(channel, from, bytes, now),
            None => {}
        }
    }

    /// Whether a datagram may come from an address: of a share, any that the peer may have moved to; of
    /// others, those that are known.
    fn admits(&self, channel: usize, from: SocketAddr, class: Option<Class>, bytes: &[u8]) -> bool {
        let server = match &self.handshake {
            Handshake::Client(connecting) => {
                return connecting.servers.get(channel).is_some_and(|to| is_same(*to, from));
            }
            Handshake::Server(server) => server,
        };
        if !server.may_send_from(channel, from) {
            return false;
        }
        let Some(peer) = self.peers.get(channel) else { return true };
        let may_be_next =
            || self.next.as_ref().is_some_and(|next| next.peers[channel].may_be_at(from));
        match class {
            Some(Class::Share) => peer.may_be_at(from) || may_be_next(),
            Some(Class::Path) if bytes[0] >> 4 == PathKind::ChallengeAnswer as u8 => {
                peer.is_known(from)
            }
            Some(Class::Path) => is_same(peer.current(), from),
            Some(Class::Handshake) | None => true,
        }
    }

    fn handle_share(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
        packets: &mut impl Packets,
    ) {
        let taken = if let Some(next) = &mut self.next
            && next.peers[channel].may_be_at(from)
            && next.receiver.recognises(channel, bytes)
        {
            // What the monitor of the association before makes of its numbers would be nonsense.
            let mut notes = Vec::new();
            let mut deliver = Delivery { packets, notes: &mut notes, at: now };
            let taken = next.receiver.handle_share(channel, from, bytes, now, &mut deliver);
            if next.receiver.counts().symbols > 0 {
                self.take_next(notes, now);
            }
            taken
        } else if let Some(current) = &mut self.current
            && self.peers[channel].may_be_at(from)
        {
            let mut deliver = Delivery { packets, notes: &mut self.notes, at: now };
            current.handle_share(channel, from, bytes, now, &mut deliver)
        } else if self.next.is_some() {
            Taken::WrongToken
        } else {
            return;
        };
        if taken == Taken::WrongToken {
            self.strangers.count_wrong_token(channel, from, now);
        }
    }

    /// A probe, a challenge or an answer came on a channel. Answers go to where the peer is known to be.
    fn handle_path_datagram(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
    ) {
        let Some(paths) = &mut self.paths else { return };
        match paths.handle_datagram(channel, bytes, now) {
            Ok(None) | Err(PathError::Malformed(_)) => {}
            Ok(Some(id)) => {
                let validated = self.peers[channel].handle_answer(from, id, now);
                self.follow_validation(channel, validated);
            }
            Err(PathError::Token) => self.strangers.count_wrong_token(channel, from, now),
        }
    }

    fn follow_validation(&mut self, channel: usize, validated: Option<Validated>) {
        self.events.extend(validated.map(|validated| match validated {
            Validated::Moved(to) => Event::Moved { channel, to },
            Validated::Refused(to, why) => Event::NotMoved { channel, to, why },
        }));
    }

    /// The client's first symbol has verified: this association is the one.
    fn take_next(&mut self, notes: Vec<Note>, now: Duration) {
        if let Some(Next { receiver, keys, peers }) = self.next.take() {
            self.associate(receiver, keys, peers, now);
            self.notes = notes;
        }
    }

    fn associate(
        &mut self,
        receiver: Receiver,
        keys: Keys,
        peers: Vec<PeerAddress>,
        now: Duration,
    ) {
        self.current = Some(receiver);
        self.is_fresh = true;
        self.notes.clear();
        self.key_id = Some(keys.outgoing.tokens.id());
        let (outgoing, incoming) = (keys.outgoing.tokens.clone(), keys.incoming.tokens.clone());
        self.paths = Some(Paths::new(outgoing, incoming, &self.settings.headers));
        self.strangers.begin(now);
        let addresses = peers.iter().map(PeerAddress::current).collect();
        self.peers = peers;
        self.events.push_back(Event::Associated { keys, peers: addresses });
    }

    /// The kernel refused a datagram of this end on a channel, as it is too long for the device.
    pub fn handle_refusal(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        if let Some(paths) = &mut self.paths {
            paths.handle_refusal(channel, bytes, now);
        }
    }

    /// Does what is due, and tells `common` what was noted since. To be called after datagrams, and
    /// when [`Self::poll_timeout`] says. Returns whether the channels may be others than before.
    pub fn tend(&mut self, common: &mut Common, now: Duration, packets: &mut impl Packets) -> bool {
        self.follow_handshake(now);
        let is_fresh = std::mem::take(&mut self.is_fresh);
        if let Some(key_id) = self.key_id.filter(|_| is_fresh) {
            let monitor = Monitor::new(&self.settings.rates_bps, now);
            common.begin(monitor, key_id, self.settings.terms.channels().into());
        }
        let has_heard = self.tell(common);
        for channel in 0..self.peers.len() {
            let validated = self.peers[channel].handle_timeout(now);
            self.follow_validation(channel, validated);
        }
        if let Some(room) = self.paths.as_mut().and_then(Paths::poll_room) {
            self.events.push_back(Event::Room(room));
        }
        let peers = &self.peers;
        let peer = |channel: usize| peers.get(channel).map(PeerAddress::current);
        let report = self.strangers.poll_report(now, peer);
        self.events.extend(report.map(Event::Strangers));
        let Some(receiver) = &mut self.current else { return false };
        let mut deliver = Delivery { packets, notes: &mut self.notes, at: now };
        receiver.handle_timeout(now, &mut deliver);
        for (channel, came) in common.came.iter_mut().enumerate() {
            let Received { datagrams, right, .. } = receiver.received(channel);
            *came = Came { datagrams, right };
        }
        common.quarantined = receiver.quarantined();
        common.quarantined.iter().for_each(|channel| self.peers[channel].stay());
        let counts = receiver.counts();
        common.packets = counts.symbols - counts.controls;
        if let Some(monitor) = &common.monitor {
            let window = monitor.release_window(now);
            receiver.set_window(if self.settings.keeps_order { window } else { Duration::ZERO });
            // Those in quarantine among them: the receiver knows.
            receiver.set_up(monitor.up(Subset::EMPTY));
            self.gone_at = Some(monitor.gone_at());
            if monitor.is_peer_gone(now) {
                self.lose_peer(common, now);
            }
        }
        is_fresh || has_heard
    }

    /// When to call [`Self::tend`] next, if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let handshake = match &self.handshake {
            Handshake::Client(connecting) => match &connecting.client {
                Some(client) => client.poll_timeout(),
                None => self.current.is_none().then_some(connecting.start_at),
            },
            Handshake::Server(server) => server.poll_timeout(),
        };
        let release = self.current.as_ref().and_then(Receiver::poll_timeout);
        let probe = self.paths.as_ref().and_then(Paths::poll_timeout);
        let validations = self.peers.iter().filter_map(PeerAddress::poll_timeout);
        let own = handshake.into_iter().chain(release).chain(probe).chain(self.gone_at);
        own.chain(validations).min()
    }

    /// The next datagram to send now: the channel's index, where to, and its bytes. Ask until there
    /// is none.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(usize, SocketAddr, Vec<u8>)> {
        if let Some(paths) = &mut self.paths {
            let generator = &mut self.generator;
            let mut random = || generator.array().ok().map(u64::from_be_bytes);
            for (channel, peer) in self.peers.iter_mut().enumerate() {
                if let Some((to, id)) = peer.poll_challenge(now, &mut random) {
                    return Some((channel, to, paths.challenge(channel, id)));
                }
            }
            if let Some((channel, bytes)) = paths.poll_transmit(now) {
                return Some((channel, self.peers[channel].current(), bytes));
            }
        }
        match &mut self.handshake {
            Handshake::Client(connecting) => {
                let (channel, bytes) = connecting.client.as_mut()?.poll_transmit(now)?;
                Some((channel, connecting.servers[channel], bytes))
            }
            Handshake::Server(server) => {
                server.poll_transmit().map(|reply| (reply.channel, reply.to, reply.bytes))
            }
        }
    }

    /// What has happened, until there is nothing.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What was received so far under the keys of now, and on each channel.
    pub fn counts(&self) -> Option<(Counts, Vec<Received>)> {
        let receiver = self.current.as_ref()?;
        let channels = 0..usize::from(self.settings.terms.channels());
        Some((receiver.counts(), channels.map(|channel| receiver.received(channel)).collect()))
    }

    /// What strangers have sent to each channel since the beginning.
    pub fn strangers(&self) -> Vec<Strange> {
        self.strangers.counts()
    }

    /// Where the peer is on each channel; nothing if there is no association.
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.peers.iter().map(PeerAddress::current).collect()
    }

    /// The highest number of a symbol that has verified under the keys of now.
    pub fn highest(&self) -> u64 {
        self.current.as_ref().map_or(0, Receiver::highest)
    }

    /// Starts a client that is due, and does what has come of a handshake.
    fn follow_handshake(&mut self, now: Duration) {
        match &mut self.handshake {
            Handshake::Client(connecting) => {
                let Connecting { client, key, start_at, wait, servers } = &mut **connecting;
                if client.is_none() && self.current.is_none() && *start_at <= now {
                    // Without random bytes it tries again later, as after any failure.
                    *client =
                        Client::new(self.settings.terms, key.clone(), &mut self.generator, now)
                            .ok();
                    *start_at = now.saturating_add(*wait);
                }
                let Some(running) = client else { return };
                running.handle_timeout(now);
                match running.poll_event() {
                    Some(ClientEvent::Associated(keys)) => {
                        let peers = addresses(servers, Mobility::Fixed);
                        (*client, *wait) = (None, FIRST_WAIT);
                        let receiver =
                            Receiver::new(&keys.incoming, keys.floor, self.settings.limits);
                        self.associate(receiver, keys, peers, now);
                    }
                    Some(ClientEvent::Failed(failure)) => {
                        *client = None;
                        *start_at = now.saturating_add(*wait);
                        *wait = (2 * *wait).min(LAST_WAIT);
                        self.events.push_back(Event::Failed(failure));
                    }
                    None => {}
                }
            }
            Handshake::Server(server) => {
                server.handle_timeout(now);
                while let Some(event) = server.poll_event() {
                    match event {
                        ServerEvent::Associated { keys, addresses: clients } => {
                            let receiver =
                                Receiver::new(&keys.incoming, keys.floor, self.settings.limits);
                            let is_roaming = self.settings.is_roaming;
                            let mobility = if is_roaming { Mobility::Any } else { Mobility::Port };
                            let peers = addresses(&clients, mobility);
                            self.next = Some(Next { receiver, keys, peers });
                        }
                        ServerEvent::Refused { channel, reason } => {
                            self.events.push_back(Event::Refused { channel, reason });
                        }
                    }
                }
            }
        }
    }

    /// Tells the monitor what came of control symbols, and the others where their shares came from.
    /// Returns whether a message has come.
    fn tell(&mut self, common: &mut Common) -> bool {
        let Some(monitor) = &mut common.monitor else { return false };
        let mut has_heard = false;
        for note in self.notes.drain(..) {
            match note {
                Note::Share(ControlShare { number, channel, before, at, from, is_quarantined }) => {
                    monitor.handle_share(number, channel, before, at);
                    if let Some(paths) = &mut self.paths {
                        paths.handle_share(channel, at);
                    }
                    if !is_quarantined {
                        self.peers[channel].handle_share(from, number, at);
                    }
                }
                Note::Message { number, bytes, at } => {
                    // The tag fits, so the peer speaks another version. It will be held for gone.
                    let _ = monitor.handle_message(number, &bytes, at);
                    has_heard = true;
                }
            }
        }
        has_heard
    }

    /// The peer does not answer. A client starts again; a server waits for one that does.
    fn lose_peer(&mut self, common: &mut Common, now: Duration) {
        self.current = None;
        self.gone_at = None;
        self.paths = None;
        self.peers.clear();
        common.monitor = None;
        if let Handshake::Client(connecting) = &mut self.handshake {
            connecting.start_at = now;
        }
        self.events.push_back(Event::Gone);
    }
}

/// A peer that the handshake went to at these addresses.
fn addresses(addresses: &[SocketAddr], mobility: Mobility) -> Vec<PeerAddress> {
    addresses.iter().map(|address| PeerAddress::new(*address, mobility)).collect()
}

/// Where what is not packets goes: into notes.
struct Delivery<'a, P> {
    packets: &'a mut P,
    notes: &'a mut Vec<Note>,
    at: Duration,
}

impl<P: Packets> Deliver for Delivery<'_, P> {
    fn packets(&mut self, kind: Kind, packets: &[u8]) {
        self.packets.take(kind, packets);
    }

    fn control(&mut self, number: u64, message: &[u8]) {
        self.notes.push(Note::Message { number, bytes: message.to_vec(), at: self.at });
    }

    fn control_share(&mut self, share: ControlShare) {
        self.notes.push(Note::Share(share));
    }
}
