//! The receiving half of an end: the handshake, the shares of the association, and restarts.

mod delivery;
mod key_renewal;
mod paths;
mod recognition;
mod reconnecting;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use model::ChannelSubset;
use random::RandomGenerator;

use crate::protocol::control::handshake::{
    TunnelClientEvent, TunnelHandshakeClient, TunnelHandshakeServer, TunnelServerError,
    TunnelServerEvent,
};
use crate::protocol::control::incoming::ArrivalCounts;
use crate::protocol::control::monitor::ChannelMonitor;
use crate::protocol::control::path_prober::PathProber;
use crate::protocol::control::peer_address::{PeerAddressTracker, PeerMobility, is_same_address};
use crate::protocol::control::unverified::{UnverifiedCounts, UnverifiedDatagrams};
use crate::protocol::endpoint::event::{PacketSink, TunnelEvent};
use crate::protocol::endpoint::settings::{EndpointRole, EndpointSettings};
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::recv::receiver::{
    ReceivedChannelCounts, ShareOutcome, SymbolReceiver, SymbolReceiverCounts,
};
use crate::protocol::recv::symbol_sink::ControlShare;
use crate::protocol::wire::datagram::DatagramClass;
use crate::protocol::wire::keys::TunnelKeys;
use crate::protocol::wire::path::PathDatagramKind;
use crate::protocol::wire::tokens::TokenKeyId;
use delivery::{MonitorNote, PacketDelivery};
use key_renewal::KeyRenewal;
use reconnecting::ReconnectingClient;

/// How long symbols under the old keys are still accepted after new keys: the peer uses the old
/// ones until it has the new ones and a plan for them.
const OLD_KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// The receiving half of an end.
pub struct InboundEndpoint {
    settings: EndpointSettings,
    handshake: EndpointHandshake,
    generator: RandomGenerator,
    /// The receiver of the current association.
    current: Option<SymbolReceiver>,
    /// Whether it is new, and the monitor still that of the previous one.
    is_new: bool,
    /// When the peer is considered gone, if no message verifies before.
    gone_at: Option<Duration>,
    /// At a server: an association of which no symbol has verified yet.
    next: Option<UnverifiedAssociation>,
    /// The receiver of the previous association, and until when it is used.
    previous: Option<(SymbolReceiver, Duration)>,
    /// The members of the current association, and its privacy floor.
    members: ChannelSubset,
    floor: u8,
    renewal: KeyRenewal,
    /// The peer's address on each channel; empty without an association.
    peers: Vec<PeerAddressTracker>,
    unverified: UnverifiedDatagrams,
    /// MTU discovery and challenges.
    paths: Option<PathProber>,
    /// The identifier of the keys with which this end sends.
    key_id: Option<TokenKeyId>,
    notes: Vec<MonitorNote>,
    events: VecDeque<TunnelEvent>,
}

/// An association of which no symbol has verified yet.
struct UnverifiedAssociation {
    receiver: SymbolReceiver,
    keys: TunnelKeys,
    peers: Vec<PeerAddressTracker>,
}

enum EndpointHandshake {
    Client(Box<ReconnectingClient>),
    Server(Box<TunnelHandshakeServer>),
}

impl InboundEndpoint {
    /// An end that starts now.
    ///
    /// # Errors
    /// If the number of addresses is not that of the channels, or the random source fails.
    pub fn new(
        role: EndpointRole,
        settings: EndpointSettings,
        mut generator: RandomGenerator,
        now: Duration,
    ) -> Result<Self, TunnelServerError> {
        let terms = settings.terms;
        let n = usize::from(terms.channels());
        let handshake = match role {
            EndpointRole::Client { servers, key } => {
                EndpointHandshake::Client(Box::new(ReconnectingClient::new(servers, key, now)))
            }
            EndpointRole::Server(peer) => EndpointHandshake::Server(Box::new(
                TunnelHandshakeServer::new(terms, peer, &mut generator)?,
            )),
        };
        Ok(Self {
            handshake,
            generator,
            current: None,
            next: None,
            previous: None,
            members: ChannelSubset::EMPTY,
            floor: 1,
            renewal: KeyRenewal::new(settings.key_limits),
            settings,
            peers: Vec::new(),
            unverified: UnverifiedDatagrams::new(n),
            paths: None,
            key_id: None,
            is_new: false,
            gone_at: None,
            notes: Vec::new(),
            events: VecDeque::new(),
        })
    }

    /// Handles a datagram that arrived on a channel. Datagrams from addresses that the peer cannot
    /// have are only counted.
    pub fn handle_datagram(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
        packets: &mut impl PacketSink,
    ) {
        let class = DatagramClass::of(bytes);
        if !self.admits(channel, from, class, bytes) {
            return self.unverified.count_wrong_source(channel, from);
        }
        match class {
            Some(DatagramClass::Share) => self.handle_share(channel, from, bytes, now, packets),
            Some(DatagramClass::Handshake) => match &mut self.handshake {
                EndpointHandshake::Client(connecting) => {
                    if let Some(client) = &mut connecting.client {
                        client.handle_datagram(channel, bytes, now);
                    }
                }
                EndpointHandshake::Server(server) => {
                    server.handle_datagram(channel, from, bytes, now);
                }
            },
            Some(DatagramClass::Path) if self.members.contains(channel) => {
                self.handle_path_datagram(channel, from, bytes, now);
            }
            Some(DatagramClass::Path) | None => {}
        }
    }

    /// Whether a datagram is accepted from an address: a share from any address that the peer may
    /// have moved to, others from known addresses.
    fn admits(
        &self,
        channel: usize,
        from: SocketAddr,
        class: Option<DatagramClass>,
        bytes: &[u8],
    ) -> bool {
        let server = match &self.handshake {
            EndpointHandshake::Client(connecting) => {
                return connecting
                    .servers
                    .get(channel)
                    .is_some_and(|to| is_same_address(*to, from));
            }
            EndpointHandshake::Server(server) => server,
        };
        if !server.may_send_from(channel, from) {
            return false;
        }
        let Some(peer) = self.peers.get(channel) else { return true };
        let may_be_next =
            || self.next.as_ref().is_some_and(|next| next.peers[channel].allows(from));
        match class {
            Some(DatagramClass::Share) => peer.allows(from) || may_be_next(),
            Some(DatagramClass::Path)
                if bytes[0] >> 4 == PathDatagramKind::ChallengeAnswer as u8 =>
            {
                peer.is_known(from)
            }
            Some(DatagramClass::Path) => is_same_address(peer.current(), from),
            Some(DatagramClass::Handshake) | None => true,
        }
    }

    fn handle_share(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
        packets: &mut impl PacketSink,
    ) {
        let outcome = if let Some(next) = &mut self.next
            && next.peers[channel].allows(from)
            && next.receiver.has_valid_token(channel, bytes)
        {
            // The notes are for the new association's monitor.
            let mut notes = Vec::new();
            let mut deliver = PacketDelivery { packets, notes: &mut notes, at: now };
            let outcome = next.receiver.handle_share(channel, from, bytes, now, &mut deliver);
            if next.receiver.counts().symbols > 0 {
                self.adopt_next(notes, now);
            }
            outcome
        } else if let Some((previous, _)) = &mut self.previous
            && self.peers[channel].allows(from)
            && previous.has_valid_token(channel, bytes)
        {
            // Its packets are delivered; its control messages are outdated.
            let mut notes = Vec::new();
            let mut deliver = PacketDelivery { packets, notes: &mut notes, at: now };
            previous.handle_share(channel, from, bytes, now, &mut deliver)
        } else if let Some(current) = &mut self.current
            && self.peers[channel].allows(from)
        {
            let mut deliver = PacketDelivery { packets, notes: &mut self.notes, at: now };
            current.handle_share(channel, from, bytes, now, &mut deliver)
        } else if self.next.is_some() {
            ShareOutcome::WrongToken
        } else {
            return;
        };
        if outcome == ShareOutcome::WrongToken {
            self.unverified.count_wrong_token(channel, from, now);
        }
    }

    /// Makes the next association the current one, because the client's first symbol has verified.
    fn adopt_next(&mut self, notes: Vec<MonitorNote>, now: Duration) {
        if let Some(UnverifiedAssociation { receiver, keys, peers }) = self.next.take() {
            self.associate(receiver, keys, peers, now);
            self.notes = notes;
        }
    }

    /// Switches to another association. Symbols under the old keys are accepted for a while.
    fn associate(
        &mut self,
        next: SymbolReceiver,
        keys: TunnelKeys,
        mut peers: Vec<PeerAddressTracker>,
        now: Duration,
    ) {
        let until = now.saturating_add(OLD_KEYS_TIMEOUT);
        self.previous = self.current.replace(next).map(|receiver| (receiver, until));
        self.is_new = true;
        self.notes.clear();
        (self.members, self.floor) = (keys.members, keys.floor);
        self.renewal.begin(now);
        self.key_id = Some(keys.outgoing.tokens.id());
        let (outgoing, incoming) = (keys.outgoing.tokens.clone(), keys.incoming.tokens.clone());
        let mut paths = PathProber::new(outgoing, incoming, &self.settings.headers);
        if let Some(before) = self.paths.take() {
            paths = paths.with_paths_of(before);
        }
        paths.set_up(keys.members);
        self.paths = Some(paths);
        self.unverified.begin(now);
        // The old sender may still use channels that are not members.
        for (channel, before) in self.peers.drain(..).enumerate() {
            if !keys.members.contains(channel) {
                peers[channel] = before;
            }
        }
        self.peers = peers;
        self.events.push_back(TunnelEvent::Associated { keys, peers: self.peers() });
    }

    /// The channels for which a new association is needed, if there is one: those that are not
    /// members, or all if its keys must be renewed.
    fn missing(&self, now: Duration) -> ChannelSubset {
        let all = 0..self.peers.len();
        if self.current.is_some() && self.renewal.is_due(now) {
            return all.collect();
        }
        let is_missing =
            |channel: &usize| self.current.is_some() && !self.members.contains(*channel);
        all.filter(is_missing).collect()
    }

    /// Called when the kernel refused a datagram of this end on a channel because it is too long
    /// for the device.
    pub fn handle_refusal(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        if let Some(paths) = &mut self.paths {
            paths.handle_refusal(channel, bytes, now);
        }
    }

    /// Does what is due, and updates `shared`. Must be called after datagrams, and at
    /// [`Self::poll_timeout`]. Returns whether the channels may have changed.
    pub fn handle_timeout(
        &mut self,
        shared: &mut EndpointSharedState,
        now: Duration,
        packets: &mut impl PacketSink,
    ) -> bool {
        self.handle_handshake(now);
        let is_new = std::mem::take(&mut self.is_new);
        if let Some(key_id) = self.key_id.filter(|_| is_new) {
            let mut monitor = ChannelMonitor::new(&self.settings.rates_bps, now);
            monitor.set_terms(self.members, self.floor);
            let channels = self.settings.terms.channels().into();
            shared.begin(monitor, key_id, channels, self.members, now);
        }
        let has_message = self.pass_notes(shared);
        for channel in 0..self.peers.len() {
            let validated = self.peers[channel].handle_timeout(now);
            self.handle_validation(channel, validated);
        }
        self.update_paths(shared, is_new || has_message, now);
        let peers = &self.peers;
        let peer = |channel: usize| peers.get(channel).map(PeerAddressTracker::current);
        let report = self.unverified.poll_report(now, peer);
        self.events.extend(report.map(TunnelEvent::UnverifiedDatagrams));
        self.expire_previous(now, packets);
        let Some(receiver) = &mut self.current else { return false };
        let mut deliver = PacketDelivery { packets, notes: &mut self.notes, at: now };
        receiver.handle_timeout(now, &mut deliver);
        for (channel, arrived) in shared.arrived.iter_mut().enumerate() {
            let ReceivedChannelCounts { datagrams, right, .. } = receiver.received(channel);
            *arrived = ArrivalCounts { datagrams, right };
        }
        shared.quarantined = receiver.quarantined();
        shared.quarantined.iter().for_each(|channel| self.peers[channel].cancel_validation());
        let counts = receiver.counts();
        shared.packets = counts.symbols - counts.controls;
        if let Some(monitor) = &mut shared.monitor {
            if self.renewal.exceeds_failure_limit(counts.reassembled.failures) {
                monitor.request_keys();
            }
            if monitor.are_keys_requested() {
                self.renewal.request();
            }
            let window = monitor.reorder_window(now);
            receiver.set_window(if self.settings.keeps_order { window } else { Duration::ZERO });
            if is_new || has_message {
                receiver.set_lateness(&monitor.incoming_lateness(now));
            }
            // Including those in quarantine, which the receiver knows.
            receiver.set_up(monitor.up(ChannelSubset::EMPTY));
            self.gone_at = Some(monitor.gone_at());
            if let EndpointHandshake::Client(connecting) = &mut self.handshake
                && let Some(client) = connecting.client.as_mut().filter(|client| client.extends())
            {
                client.set_needed(monitor.up_in_both_directions(now), now);
            }
            if monitor.is_peer_gone(now) {
                self.lose_peer(shared, now);
            }
        }
        is_new || has_message
    }

    /// Delivers the remaining symbols of the previous association, and ends it.
    fn expire_previous(&mut self, now: Duration, packets: &mut impl PacketSink) {
        if let Some((previous, until)) = &mut self.previous {
            let mut notes = Vec::new();
            let mut deliver = PacketDelivery { packets, notes: &mut notes, at: now };
            previous.handle_timeout(now, &mut deliver);
            if *until <= now {
                self.previous = None;
            }
        }
    }

    /// When to call [`Self::handle_timeout`] next, if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let handshake = match &self.handshake {
            EndpointHandshake::Client(connecting) => {
                let is_wanted = self.current.is_none() || !self.missing(Duration::ZERO).is_empty();
                let wanted_at =
                    if is_wanted { Duration::ZERO } else { self.renewal.poll_timeout() };
                let start = Some(wanted_at.max(connecting.start_at));
                connecting.client.as_ref().map_or(start, TunnelHandshakeClient::poll_timeout)
            }
            EndpointHandshake::Server(server) => server.poll_timeout(),
        };
        let previous = self.previous.iter();
        let previous =
            previous.flat_map(|(old, until)| [old.poll_timeout(), Some(*until)]).flatten();
        let release = self.current.as_ref().and_then(SymbolReceiver::poll_timeout).into_iter();
        let release = release.chain(previous);
        let probe = self.paths.as_ref().and_then(PathProber::poll_timeout);
        let validations = self.peers.iter().filter_map(PeerAddressTracker::poll_timeout);
        let own = handshake.into_iter().chain(release).chain(probe).chain(self.gone_at);
        own.chain(validations).min()
    }

    /// The next event. Call it until it returns `None`.
    pub fn poll_event(&mut self) -> Option<TunnelEvent> {
        self.events.pop_front()
    }

    /// Counts under the current keys, in all and for each channel.
    pub fn counts(&self) -> Option<(SymbolReceiverCounts, Vec<ReceivedChannelCounts>)> {
        let receiver = self.current.as_ref()?;
        let channels = 0..usize::from(self.settings.terms.channels());
        Some((receiver.counts(), channels.map(|channel| receiver.received(channel)).collect()))
    }

    /// Counts of datagrams that were not from the peer, for each channel since the start.
    pub fn unverified(&self) -> Vec<UnverifiedCounts> {
        self.unverified.counts()
    }

    /// The highest number of a verified symbol under the current keys.
    pub fn highest(&self) -> u64 {
        self.current.as_ref().map_or(0, SymbolReceiver::highest)
    }

    /// Starts a client that is due, and handles results of the handshake.
    fn handle_handshake(&mut self, now: Duration) {
        let (terms, missing, is_alone) =
            (self.settings.terms, self.missing(now), self.current.is_none());
        match &mut self.handshake {
            EndpointHandshake::Client(connecting) => {
                let is_wanted = is_alone || !missing.is_empty();
                if connecting.client.is_none() && is_wanted && connecting.start_at <= now {
                    connecting.start(terms, missing, &mut self.generator, now);
                }
                let Some(running) = &mut connecting.client else { return };
                running.handle_timeout(now);
                match running.poll_event() {
                    Some(TunnelClientEvent::Associated(keys)) => {
                        connecting.succeed();
                        let peers = addresses(&connecting.servers, PeerMobility::Fixed);
                        let receiver =
                            SymbolReceiver::new(&keys.incoming, keys.floor, self.settings.limits)
                                .with_members(keys.members);
                        self.associate(receiver, keys, peers, now);
                    }
                    Some(TunnelClientEvent::Failed(failure)) => {
                        let report = connecting.fail(failure, terms, &mut self.generator, now);
                        self.events.extend(report.map(TunnelEvent::Failed));
                    }
                    None => {}
                }
            }
            EndpointHandshake::Server(server) => {
                server.handle_timeout(now);
                while let Some(event) = server.poll_event() {
                    match event {
                        TunnelServerEvent::Associated { keys, addresses: clients } => {
                            let receiver = SymbolReceiver::new(
                                &keys.incoming,
                                keys.floor,
                                self.settings.limits,
                            )
                            .with_members(keys.members);
                            let is_roaming = self.settings.is_roaming;
                            let mobility =
                                if is_roaming { PeerMobility::Any } else { PeerMobility::Port };
                            let peers = addresses(&clients, mobility);
                            self.next = Some(UnverifiedAssociation { receiver, keys, peers });
                        }
                        TunnelServerEvent::Refused { channel, reason } => {
                            self.events.push_back(TunnelEvent::Refused { channel, reason });
                        }
                    }
                }
            }
        }
    }

    /// Passes the notes to the monitor, the paths and the peer addresses. Returns whether a message
    /// has arrived.
    fn pass_notes(&mut self, shared: &mut EndpointSharedState) -> bool {
        let Some(monitor) = &mut shared.monitor else { return false };
        let mut has_message = false;
        for note in self.notes.drain(..) {
            match note {
                MonitorNote::Share(ControlShare {
                    number,
                    channel,
                    before,
                    at,
                    from,
                    is_quarantined,
                }) => {
                    monitor.handle_share(number, channel, before, at);
                    if let Some(paths) = &mut self.paths {
                        paths.handle_share(channel, at);
                    }
                    if !is_quarantined {
                        self.peers[channel].handle_share(from, number, at);
                    }
                }
                MonitorNote::Message { number, bytes, at } => {
                    // The tag matches, so the peer uses another version. It will be considered
                    // gone.
                    let _ = monitor.handle_message(number, &bytes, at);
                    has_message = true;
                }
            }
        }
        has_message
    }

    /// Handles the loss of the peer. A client starts again; a server waits for a client.
    fn lose_peer(&mut self, shared: &mut EndpointSharedState, now: Duration) {
        self.current = None;
        self.previous = None;
        self.gone_at = None;
        self.paths = None;
        self.peers.clear();
        shared.monitor = None;
        if let EndpointHandshake::Client(connecting) = &mut self.handshake {
            (connecting.client, connecting.start_at) = (None, now);
        }
        self.events.push_back(TunnelEvent::Gone);
    }
}

/// The peer's addresses after a handshake.
fn addresses(addresses: &[SocketAddr], mobility: PeerMobility) -> Vec<PeerAddressTracker> {
    addresses.iter().map(|address| PeerAddressTracker::new(*address, mobility)).collect()
}
