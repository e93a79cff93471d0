//! A client and a server with channels of datagrams between them, in virtual time.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use model::ScheduleObjective;
use random::RandomGenerator;
use sim::{
    SeededRng, SimulatedLinkConditions, SimulatedLinkId, SimulatedNetwork,
    SimulationEvent as NetworkEvent,
};
use sunder_remicss::control::handshake::{ClientIdentity, SharedKey};
use sunder_remicss::control::monitor::ChannelMonitor;
use sunder_remicss::control::path_prober::PathMtu;
use sunder_remicss::endpoint::event::{PacketSink, TunnelEvent};
use sunder_remicss::endpoint::inbound::InboundEndpoint;
use sunder_remicss::endpoint::outbound::{OutboundEndpoint, SenderUpdate, SymbolSenderConfig};
use sunder_remicss::endpoint::settings::KeyRenewalLimits;
use sunder_remicss::endpoint::settings::{EndpointRole, EndpointSettings};
use sunder_remicss::endpoint::shared_state::EndpointSharedState;
use sunder_remicss::recv::receiver::SymbolReceiverLimits;
use sunder_remicss::send::bounds::PlanBounds;
use sunder_remicss::send::plan::PlanGoal;
use sunder_remicss::send::schedule::PlannedScheduler;
use sunder_remicss::send::sender::SymbolSendError;
use sunder_remicss::send::shared_fates::SharedFates;
use sunder_remicss::send::spare::{PlanPreference, SpareChannels};
use sunder_remicss::wire::datagram::{DatagramClass, SymbolKind};
use sunder_remicss::wire::keys::TunnelKeys;
use sunder_remicss::wire::terms::TunnelTerms;
use udp::DatagramBatch;

const CLIENT: usize = 0;

/// How far an idle end looks ahead.
const STEP: Duration = Duration::from_millis(50);

/// The maximum number of datagrams in flight.
const MAX_IN_FLIGHT: usize = 20_000;

/// The number of the latest datagrams that an outsider has read.
const MAX_OVERHEARD: usize = 64;

/// Two ends and the links between them.
pub(crate) struct Scenario {
    terms: TunnelTerms,
    key_limits: KeyRenewalLimits,
    goal: PlanGoal,
    ends: [End; 2],
    network: SimulatedNetwork<()>,
    /// One direction of one channel each, first those from the client; then as many from an
    /// outsider's address.
    links: Vec<SimulatedLinkId>,
    /// Everything that was sent in each direction, by end.
    sent: [HashSet<Vec<u8>>; 2],
    next_packet: u32,
    /// Some of the datagrams that were sent, which an outsider replays.
    overheard: Vec<Vec<u8>>,
    /// How often the client's address on each channel has changed; a part of the address.
    moves: Vec<u8>,
    /// An attacker changes the datagrams on this link.
    changed: Option<usize>,
    /// An attacker forwards the datagrams on this link from an address of its own, before the
    /// original arrives.
    copied: Option<usize>,
    /// The kinds of the datagrams that were sent to addresses where the client never was.
    stolen: Vec<u8>,
    /// The length of the longest datagram with a share, by end.
    longest_share: [usize; 2],
}

/// One end.
pub(crate) struct End {
    pub(crate) inbound: InboundEndpoint,
    outbound: OutboundEndpoint,
    shared: EndpointSharedState,
    batches: Vec<DatagramBatch>,
    pub(crate) received: Received,
    pub(crate) associations: usize,
    /// The offset of its clock.
    ahead: Duration,
    /// Packets that were not sent yet.
    pub(crate) queue: Vec<Vec<u8>>,
    /// The peer's address on each channel.
    peers: Vec<SocketAddr>,
}

/// Packets that were delivered.
#[derive(Default)]
pub(crate) struct Received(pub(crate) Vec<Vec<u8>>);

impl PacketSink for Received {
    fn take(&mut self, kind: SymbolKind, packets: &[u8]) {
        assert_eq!(kind, SymbolKind::Packet);
        self.0.push(packets.to_vec());
    }
}

pub(crate) fn address(end: usize, channel: usize) -> SocketAddr {
    SocketAddr::from((
        [192, 0, 2, u8::try_from(end).unwrap()],
        7000 + u16::try_from(channel).unwrap(),
    ))
}

/// The outsider's address.
const OUTSIDER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 66));

/// The client's address on a channel after so many moves.
fn client_at(channel: usize, moves: u8) -> SocketAddr {
    let port = address(CLIENT, channel).port();
    SocketAddr::from(([198, 51, 100, moves], port))
}

impl Scenario {
    /// A client and a server that have just started, and begin with `least` channels.
    pub(crate) fn new(channels: u8, floor: u8, least: u8, rng: &mut SeededRng) -> Self {
        let terms =
            TunnelTerms::new(channels, floor, true).unwrap().with_min_channels(least).unwrap();
        let spread = |rng: &mut SeededRng| f64::from(rng.bytes::<1>()[0]) / 255.0;
        let (least, most) = (f64::from(floor), f64::from(channels));
        let kappa = least + spread(rng) * (most - least);
        let mu = kappa + spread(rng) * (most - kappa);
        let goal = PlanGoal {
            kappa,
            mu,
            objective: ScheduleObjective::Risk,
            second_objective: None,
            floor: terms.floor(),
            keeps_order: true,
            prefer: PlanPreference::Rate,
            bounds: PlanBounds::default(),
            fates: SharedFates::default(),
        };
        let mut network = SimulatedNetwork::new(rng.next_u64());
        let mut links: Vec<SimulatedLinkId> = (0..2 * channels)
            .map(|_| {
                let delay = Duration::from_micros(rng.below(40_000));
                network.add_link(delay, delay)
            })
            .collect();
        let outside = |_| network.add_link(Duration::ZERO, Duration::ZERO);
        links.extend((0..2 * channels).map(outside));
        Self {
            terms,
            key_limits: KeyRenewalLimits::default(),
            goal,
            ends: [0, 1]
                .map(|end| End::new(end, terms, KeyRenewalLimits::default(), Duration::ZERO)),
            network,
            links,
            sent: Default::default(),
            next_packet: 0,
            overheard: Vec::new(),
            moves: vec![0; channels.into()],
            changed: None,
            copied: None,
            stolen: Vec::new(),
            longest_share: [0; 2],
        }
    }

    /// Both ends restart, and use keys for this long.
    pub(crate) fn set_key_limits(&mut self, limits: [KeyRenewalLimits; 2]) {
        for (end, limits) in limits.into_iter().enumerate() {
            self.key_limits = limits;
            self.restart(end);
        }
    }

    /// The number of associations of an end so far.
    pub(crate) fn associations(&self, end: usize) -> usize {
        self.ends[end].associations
    }

    /// The client's address on a channel changes: datagrams to the old one are lost.
    pub(crate) fn move_client(&mut self, rng: &mut SeededRng) {
        let channel = rng.index(self.moves.len());
        self.moves[channel] = self.moves[channel].wrapping_add(1);
    }

    /// An attacker forwards the datagrams on one link from an address of its own, before the
    /// original arrives; or stops doing so.
    pub(crate) fn copy(&mut self, rng: &mut SeededRng) {
        self.copied = (rng.index(3) > 0).then(|| self.line(rng));
        self.seize();
    }

    /// The kinds of the datagrams that were sent to addresses where the client never was.
    pub(crate) fn stolen(&self) -> &[u8] {
        &self.stolen
    }

    /// An end gets this many packets to send.
    pub(crate) fn send(&mut self, from: usize, count: usize, rng: &mut SeededRng) {
        for _ in 0..count {
            let is_long = rng.index(8) == 0;
            let length = if is_long { 1200 + rng.index(252) } else { 24 + rng.index(200) };
            self.send_packet(from, length);
        }
    }

    /// An end gets a packet of this length to send.
    pub(crate) fn send_packet(&mut self, from: usize, length: usize) {
        self.next_packet += 1;
        let packet = packet(self.next_packet, length);
        self.sent[from].insert(packet.clone());
        self.ends[from].queue.push(packet);
    }

    /// A channel carries only datagrams up to this length in the direction from an end.
    pub(crate) fn set_max_datagram_len(&mut self, from: usize, channel: usize, len: usize) {
        let link = self.links[from * self.moves.len() + channel];
        self.network.conditions_mut(link).max_datagram_len = len;
    }

    /// What an end knows of its channels' MTUs.
    pub(crate) fn path_mtus(&self, end: usize) -> &[PathMtu] {
        &self.ends[end].shared.path_mtus
    }

    /// The length of the longest datagram with a share that an end has sent since the last call.
    pub(crate) fn take_longest_share(&mut self, end: usize) -> usize {
        std::mem::take(&mut self.longest_share[end])
    }

    /// Advances the time.
    pub(crate) fn advance(&mut self, by: Duration, rng: &mut SeededRng) {
        let until = self.now() + by;
        loop {
            for end in 0..2 {
                self.work(end, rng);
            }
            let timers = self.ends.iter().filter_map(|end| end.timeout(self.now()));
            let next = timers.chain([self.now() + STEP, until]).min().unwrap();
            if let Some(event) = self.network.next_event_until(next) {
                self.handle(event, rng);
            } else if next == until {
                return;
            }
        }
    }

    /// One direction of any channel.
    fn line(&self, rng: &mut SeededRng) -> usize {
        rng.index(self.links.len() / 2)
    }

    /// The conditions in one direction of any channel.
    pub(crate) fn conditions(&mut self, rng: &mut SeededRng) -> &mut SimulatedLinkConditions {
        let line = self.line(rng);
        self.network.conditions_mut(self.links[line])
    }

    /// Datagrams in one direction of any channel take up to this much longer than others.
    pub(crate) fn set_jitter(&mut self, jitter: Duration, rng: &mut SeededRng) {
        let conditions = self.conditions(rng);
        conditions.max_delay = conditions.min_delay + jitter;
    }

    /// Both directions of a channel lose everything, or nothing.
    pub(crate) fn set_off(&mut self, channel: usize, is_off: bool) {
        let n = self.moves.len();
        for line in [channel, n + channel] {
            let conditions = self.network.conditions_mut(self.links[line]);
            conditions.loss_permille = if is_off { 1000 } else { 0 };
        }
    }

    /// The settings of the ends' senders.
    pub(crate) fn set_goal(&mut self, kappa: f64, mu: f64) {
        (self.goal.kappa, self.goal.mu) = (kappa, mu);
    }

    /// The number of channels of an end's association.
    pub(crate) fn members(&self, end: usize) -> usize {
        let shared = &self.ends[end].shared;
        let missing = shared.missing.iter().flatten().count();
        shared.monitor.as_ref().map_or(0, |_| shared.missing.len() - missing)
    }

    /// The time.
    pub(crate) fn now(&self) -> Duration {
        self.network.now()
    }

    /// A channel starts or stops changing its datagrams: one alone, since with k = 1 it could read
    /// and forge.
    pub(crate) fn tamper(&mut self, rng: &mut SeededRng) {
        self.changed = (rng.index(2) == 0).then(|| self.line(rng));
        self.seize();
    }

    /// Datagrams that an end sends on a channel are changed from now on.
    pub(crate) fn tamper_with(&mut self, end: usize, channel: usize) {
        self.changed = Some(end * self.moves.len() + channel);
        self.seize();
    }

    /// The attacker controls the links that it changes.
    fn seize(&mut self) {
        self.links.iter().for_each(|link| self.network.release(*link));
        for line in [self.changed, self.copied].into_iter().flatten() {
            self.network.seize(self.links[line]);
        }
    }

    /// An outsider replays datagrams, changed or not, or sends noise: from an end's address, or
    /// from an address of its own.
    pub(crate) fn invent(&mut self, rng: &mut SeededRng) {
        for _ in 0..rng.index(20) {
            let line = self.line(rng);
            let overheard = rng.pick(&self.overheard).cloned();
            let mut bytes = overheard.unwrap_or_else(|| vec![0; rng.index(100)]);
            for _ in 0..rng.index(4) {
                change(&mut bytes, rng);
            }
            let outside = if rng.index(4) == 0 { self.links.len() / 2 } else { 0 };
            let delay = Duration::from_micros(rng.below(10_000));
            self.network.inject(self.links[outside + line], bytes, delay);
        }
    }

    /// An end stops and restarts.
    pub(crate) fn restart(&mut self, end: usize) {
        let ahead = self.ends[end].ahead;
        let received = std::mem::take(&mut self.ends[end].received);
        self.ends[end] = End::new(end, self.terms, self.key_limits, self.now() + ahead);
        self.ends[end].ahead = ahead;
        self.ends[end].received = received;
    }

    /// An end's clock jumps ahead, as after a suspend.
    pub(crate) fn jump(&mut self, end: usize, by: Duration) {
        self.ends[end].ahead += by;
    }

    /// There are no faults from now on.
    pub(crate) fn end_faults(&mut self) {
        for link in &self.links {
            let conditions = self.network.conditions_mut(*link);
            *conditions =
                SimulatedLinkConditions::delayed(conditions.min_delay, conditions.min_delay);
        }
        (self.changed, self.copied) = (None, None);
        self.seize();
    }

    /// The number of packets that were delivered to an end; all were sent by the other, and none
    /// was delivered twice.
    pub(crate) fn delivered(&self, end: usize) -> usize {
        self.ends[end].received.0.len()
    }

    /// An end handles everything that is due.
    fn work(&mut self, index: usize, rng: &mut SeededRng) {
        let outgoing = self.ends[index].work(self.now(), &self.goal);
        for (channel, to, bytes) in outgoing {
            if index != CLIENT && to != client_at(channel, self.moves[channel]) {
                if to.ip() == OUTSIDER {
                    self.stolen.push(bytes[0] >> 4);
                }
                continue;
            }
            let line = index * self.moves.len() + channel;
            if DatagramClass::of(&bytes) == Some(DatagramClass::Share) {
                self.longest_share[index] = self.longest_share[index].max(bytes.len());
            }
            if self.overheard.len() < MAX_OVERHEARD {
                self.overheard.push(bytes.clone());
            } else {
                self.overheard[rng.index(MAX_OVERHEARD)].clone_from(&bytes);
            }
            self.network.send_datagram(self.links[line], bytes);
        }
        assert!(self.network.pending_events() < MAX_IN_FLIGHT, "ends do not send without end");
        self.check(1 - index);
        self.check(index);
    }

    fn handle(&mut self, event: NetworkEvent<()>, rng: &mut SeededRng) {
        match event {
            NetworkEvent::Arrived { link, bytes } => self.arrive(link.index(), &bytes),
            NetworkEvent::Intercepted { link, mut bytes } => {
                if self.changed == Some(link.index()) {
                    change(&mut bytes, rng);
                }
                if self.copied == Some(link.index()) {
                    let outside = self.links[self.links.len() / 2 + link.index()];
                    self.network.inject(outside, bytes.clone(), Duration::ZERO);
                }
                self.network.pass_datagram(link, bytes);
            }
            other => panic!("{other:?}"),
        }
    }

    fn arrive(&mut self, link: usize, bytes: &[u8]) {
        let n = self.moves.len();
        let (line, is_outside) = (link % (2 * n), link >= 2 * n);
        let (from, channel) = (line / n, line % n);
        let now = self.now();
        let end = &mut self.ends[1 - from];
        let source = match from {
            _ if is_outside => SocketAddr::from((OUTSIDER, 666)),
            CLIENT => client_at(channel, self.moves[channel]),
            _ => address(from, channel),
        };
        let at = now + end.ahead;
        end.inbound.handle_datagram(channel, source, bytes, at, &mut end.received);
    }

    /// Every delivered packet was sent, and is delivered once.
    fn check(&mut self, end: usize) {
        let received = &mut self.ends[end].received.0;
        let new: Vec<Vec<u8>> =
            received.iter().filter(|packet| !packet.is_empty()).cloned().collect();
        for packet in new {
            assert!(
                self.sent[1 - end].remove(&packet),
                "never sent, or delivered twice: {packet:?}"
            );
        }
        // They still count, but are not examined again.
        self.ends[end].received.0.iter_mut().for_each(Vec::clear);
    }
}

impl End {
    fn new(end: usize, terms: TunnelTerms, key_limits: KeyRenewalLimits, now: Duration) -> Self {
        Self::with_key(end, SharedKey::new(&[7; 32]), terms, key_limits, now)
    }

    /// An end with this key.
    pub(crate) fn with_key(
        end: usize,
        key: SharedKey,
        terms: TunnelTerms,
        key_limits: KeyRenewalLimits,
        now: Duration,
    ) -> Self {
        let n = usize::from(terms.channels());
        let role = if end == CLIENT {
            let servers = (0..n).map(|channel| address(1, channel)).collect();
            EndpointRole::Client { servers, key: Some(key) }
        } else {
            EndpointRole::Server(ClientIdentity::Key(key))
        };
        let limits = SymbolReceiverLimits {
            window: 1 << 10,
            share_bytes: 1 << 17,
            held_bytes: 1 << 17,
            ..SymbolReceiverLimits::default()
        };
        let settings = EndpointSettings {
            terms,
            limits,
            rates_bps: vec![Some(10_000_000); n],
            headers: vec![28; n],
            key_limits,
            keeps_order: true,
            is_roaming: true,
        };
        let generator = RandomGenerator::seeded().unwrap();
        Self {
            inbound: InboundEndpoint::new(role, settings, generator, now).unwrap(),
            outbound: OutboundEndpoint::default(),
            shared: EndpointSharedState::default(),
            batches: (0..n).map(|_| DatagramBatch::default()).collect(),
            received: Received::default(),
            associations: 0,
            ahead: Duration::ZERO,
            queue: Vec::new(),
            peers: (0..n).map(|channel| address(1 - end, channel)).collect(),
        }
    }

    /// When something is due, in the scenario's time.
    fn timeout(&self, now: Duration) -> Option<Duration> {
        let due = self.shared.monitor.as_ref().map(ChannelMonitor::poll_timeout);
        let next = self.inbound.poll_timeout().into_iter().chain(due).min()?;
        Some(next.saturating_sub(self.ahead).max(now + Duration::from_micros(100)))
    }

    /// Handles everything that is due. Returns the datagrams, with the channels' indices and the
    /// addresses.
    pub(crate) fn work(
        &mut self,
        now: Duration,
        goal: &PlanGoal,
    ) -> Vec<(usize, SocketAddr, Vec<u8>)> {
        let now = now + self.ahead;
        let mut sent = Vec::new();
        let risks = vec![0.1; self.batches.len()];
        let has_heard = self.inbound.handle_timeout(&mut self.shared, now, &mut self.received);
        if let Some(monitor) = &self.shared.monitor {
            // Each half has a thread: none wakes the other for its timers.
            let wakes = self.inbound.poll_timeout();
            assert!(wakes.is_some_and(|at| at <= monitor.gone_at()), "a peer's silence is noticed");
        }
        let mut begins = None;
        while let Some(event) = self.inbound.poll_event() {
            match event {
                TunnelEvent::Associated { keys, peers } => {
                    self.peers = peers;
                    begins = Some(keys);
                    self.associations += 1;
                }
                TunnelEvent::Moved { channel, to } => self.peers[channel] = to,
                TunnelEvent::MaxDatagramLen(limit) => self.outbound.set_max_datagram_len(limit.len),
                TunnelEvent::Gone => self.outbound.handle_update(SenderUpdate::Dissociate),
                _ => {}
            }
        }
        if has_heard && let Some(snapshot) = self.shared.poll_snapshot(&risks, now) {
            let order = match goal.plan(&snapshot.channels, snapshot.up) {
                Ok(plan) => {
                    let planned = PlannedScheduler::new(&plan.schedule, &snapshot.channels);
                    self.order(begins, Box::new(planned), snapshot.up, plan.spare)
                }
                Err(_) => SenderUpdate::Hold,
            };
            self.outbound.handle_update(order);
        }
        while let Some(datagram) = self.inbound.poll_transmit(now) {
            sent.push(datagram);
        }
        self.outbound.handle_timeout(&mut self.shared, now, &mut self.batches);
        self.send_queue(now);
        for (channel, batch) in self.batches.iter_mut().enumerate() {
            for (bytes, size) in batch.runs() {
                let to = self.peers[channel];
                sent.extend(bytes.chunks(size).map(|datagram| (channel, to, datagram.to_vec())));
            }
            batch.clear();
        }
        sent
    }

    fn order(
        &self,
        begins: Option<TunnelKeys>,
        scheduler: Box<PlannedScheduler>,
        up: model::ChannelSubset,
        spare: SpareChannels,
    ) -> SenderUpdate {
        let n = self.batches.len();
        let config = SymbolSenderConfig {
            rates_bps: vec![Some(10_000_000); n],
            mtus: vec![1500; n],
            headers: vec![28; n],
        };
        let Some(keys) = begins else {
            return SenderUpdate::Schedule { scheduler, floor: 0, up, spare };
        };
        let generator = RandomGenerator::seeded().unwrap();
        let sender = config.sender(&keys, scheduler, generator).unwrap();
        SenderUpdate::Associate(Box::new(sender))
    }

    /// Sends the waiting packets, at the rate of the pace; drops those that have no association.
    fn send_queue(&mut self, now: Duration) {
        while let Some(packet) = self.queue.pop() {
            let Some(symbol) = self.outbound.begin() else { continue };
            symbol.extend_from_slice(&packet);
            if let Err(SymbolSendError::Wait(_)) =
                self.outbound.finish(SymbolKind::Packet, 1, now, &mut self.batches)
            {
                self.queue.push(packet);
                return;
            }
        }
        self.outbound.set_idle();
    }
}

/// A unique IPv4 packet.
pub(crate) fn packet(number: u32, length: usize) -> Vec<u8> {
    let mut packet = vec![0; length];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    packet[20..24].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Changes a part of a datagram.
fn change(bytes: &mut Vec<u8>, rng: &mut SeededRng) {
    match rng.index(4) {
        0 => bytes.truncate(rng.index(bytes.len() + 1)),
        1 => bytes.push(rng.below(256).to_le_bytes()[0]),
        _ if bytes.is_empty() => {}
        _ => {
            let place = rng.index(bytes.len());
            bytes[place] ^= 1 << rng.index(8);
        }
    }
}
