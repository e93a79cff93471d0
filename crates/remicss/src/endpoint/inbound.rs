//! The half of an end that receives: the handshake, the shares of the association, and when to start
//! again.

mod connecting;
mod delivery;
mod renewal;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use model::Subset;
use sharing::Generator;

use crate::control::handshake::{Client, ClientEvent, PeerError, Server, ServerEvent};
use crate::control::incoming::Came;
use crate::control::monitor::Monitor;
use crate::control::paths::Paths;
use crate::control::peer_address::{Mobility, PeerAddress, Validated, is_same};
use crate::control::strangers::{Strange, Strangers};
use crate::endpoint::common::Common;
use crate::endpoint::event::{Event, Packets};
use crate::endpoint::settings::{Role, Settings};
use crate::recv::deliver::ControlShare;
use crate::recv::receiver::{Counts, Received, Receiver, Taken};
use crate::wire::datagram::Class;
use crate::wire::keys::Keys;
use crate::wire::path::{PathError, PathKind};
use crate::wire::tokens::KeyId;
use connecting::Connecting;
use delivery::{Delivery, Note};
use renewal::Renewal;

/// How long what was sent under the keys of before is still taken after others have come: the peer goes on
/// with them until it has heard of the others, and has planned with them.
const OVERLAP: Duration = Duration::from_secs(5);

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
    /// What symbols under the keys of before are received with, until they are over.
    previous: Option<(Receiver, Duration)>,
    /// The channels that are in the association of now.
    members: Subset,
    renewal: Renewal,
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
                Handshake::Client(Box::new(Connecting::new(servers, key, now)))
            }
            Role::Server(peer) => {
                Handshake::Server(Box::new(Server::new(terms, peer, &mut generator)?))
            }
        };
        Ok(Self {
            handshake,
            generator,
            current: None,
            next: None,
            previous: None,
            members: Subset::EMPTY,
            renewal: Renewal::new(settings.key_limits),
            settings,
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
            Some(Class::Path) if self.members.contains(channel) => {
                self.handle_path_datagram(channel, from, bytes, now);
            }
            Some(Class::Path) | None => {}
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
        } else if let Some((previous, _)) = &mut self.previous
            && self.peers[channel].may_be_at(from)
            && previous.recognises(channel, bytes)
        {
            // Its packets are as good as ever; what its control messages say is out of date.
            let mut notes = Vec::new();
            let mut deliver = Delivery { packets, notes: &mut notes, at: now };
            previous.handle_share(channel, from, bytes, now, &mut deliver)
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

    /// Goes over to another association. What comes under the keys of before is taken for a while.
    fn associate(
        &mut self,
        next: Receiver,
        keys: Keys,
        mut peers: Vec<PeerAddress>,
        now: Duration,
    ) {
        let until = now.saturating_add(OVERLAP);
        self.previous = self.current.replace(next).map(|receiver| (receiver, until));
        self.is_fresh = true;
        self.notes.clear();
        self.members = keys.members;
        self.renewal.begin(now);
        self.key_id = Some(keys.outgoing.tokens.id());
        let (outgoing, incoming) = (keys.outgoing.tokens.clone(), keys.incoming.tokens.clone());
        self.paths = Some(Paths::new(outgoing, incoming, &self.settings.headers));
        self.strangers.begin(now);
        // The sender of before may still use channels that are not in.
        for (channel, before) in self.peers.drain(..).enumerate() {
            if !keys.members.contains(channel) {
                peers[channel] = before;
            }
        }
        self.peers = peers;
        self.events.push_back(Event::Associated { keys, peers: self.peers() });
    }

    /// The channels that are to be in another association, if there is one: those that are not in it, or all if
    /// its keys have had their time.
    fn missing(&self, now: Duration) -> Subset {
        let all = 0..self.peers.len();
        if self.current.is_some() && self.renewal.is_due(now) {
            return all.collect();
        }
        let is_missing =
            |channel: &usize| self.current.is_some() && !self.members.contains(*channel);
        all.filter(is_missing).collect()
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
            let channels = self.settings.terms.channels().into();
            common.begin(monitor, key_id, channels, self.members, now);
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
        self.tend_previous(now, packets);
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
        if let Some(monitor) = &mut common.monitor {
            if self.renewal.are_too_many(counts.reassembled.failures) {
                monitor.want_keys();
            }
            if monitor.wants_keys() {
                self.renewal.want();
            }
            let window = monitor.release_window(now);
            receiver.set_window(if self.settings.keeps_order { window } else { Duration::ZERO });
            // Those in quarantine among them: the receiver knows.
            receiver.set_up(monitor.up(Subset::EMPTY));
            self.gone_at = Some(monitor.gone_at());
            if let Handshake::Client(connecting) = &mut self.handshake
                && let Some(client) = connecting.client.as_mut().filter(|client| client.extends())
            {
                client.set_needed(monitor.up_both_ways(now), now);
            }
            if monitor.is_peer_gone(now) {
                self.lose_peer(common, now);
            }
        }
        is_fresh || has_heard
    }

    /// Delivers what the association before has still to deliver, until it is over.
    fn tend_previous(&mut self, now: Duration, packets: &mut impl Packets) {
        if let Some((previous, until)) = &mut self.previous {
            let mut notes = Vec::new();
            let mut deliver = Delivery { packets, notes: &mut notes, at: now };
            previous.handle_timeout(now, &mut deliver);
            if *until <= now {
                self.previous = None;
            }
        }
    }

    /// When to call [`Self::tend`] next, if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let handshake = match &self.handshake {
            Handshake::Client(connecting) => {
                let is_wanted = self.current.is_none() || !self.missing(Duration::ZERO).is_empty();
                let wanted_at =
                    if is_wanted { Duration::ZERO } else { self.renewal.poll_timeout() };
                let start = Some(wanted_at.max(connecting.start_at));
                connecting.client.as_ref().map_or(start, Client::poll_timeout)
            }
            Handshake::Server(server) => server.poll_timeout(),
        };
        let previous = self.previous.iter();
        let previous =
            previous.flat_map(|(old, until)| [old.poll_timeout(), Some(*until)]).flatten();
        let release = self.current.as_ref().and_then(Receiver::poll_timeout).into_iter();
        let release = release.chain(previous);
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
        let (terms, missing, is_alone) =
            (self.settings.terms, self.missing(now), self.current.is_none());
        match &mut self.handshake {
            Handshake::Client(connecting) => {
                let is_wanted = is_alone || !missing.is_empty();
                if connecting.client.is_none() && is_wanted && connecting.start_at <= now {
                    connecting.start(terms, missing, &mut self.generator, now);
                }
                let Some(running) = &mut connecting.client else { return };
                running.handle_timeout(now);
                match running.poll_event() {
                    Some(ClientEvent::Associated(keys)) => {
                        connecting.succeed();
                        let peers = addresses(&connecting.servers, Mobility::Fixed);
                        let receiver =
                            Receiver::new(&keys.incoming, keys.floor, self.settings.limits)
                                .over(keys.members);
                        self.associate(receiver, keys, peers, now);
                    }
                    Some(ClientEvent::Failed(failure)) => {
                        let told = connecting.fail(failure, terms, &mut self.generator, now);
                        self.events.extend(told.map(Event::Failed));
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
                                Receiver::new(&keys.incoming, keys.floor, self.settings.limits)
                                    .over(keys.members);
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
        self.previous = None;
        self.gone_at = None;
        self.paths = None;
        self.peers.clear();
        common.monitor = None;
        if let Handshake::Client(connecting) = &mut self.handshake {
            (connecting.client, connecting.start_at) = (None, now);
        }
        self.events.push_back(Event::Gone);
    }
}

/// A peer that the handshake went to at these addresses.
fn addresses(addresses: &[SocketAddr], mobility: Mobility) -> Vec<PeerAddress> {
    addresses.iter().map(|address| PeerAddress::new(*address, mobility)).collect()
}
