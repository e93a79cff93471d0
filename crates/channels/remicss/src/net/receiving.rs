//! The receiving thread: shares from the channels, packets to the device. It also runs the
//! handshake.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::ChannelSubset;
use tracing::{debug, info, warn};
use tun::ip::{packet_len, source};
use tun::{ChecksumState, PacketCoalescer, Superpacket, TunDevice};
use zeroize::Zeroizing;

use super::planning::{PlanningCommand, TunnelPlanRequest};
use super::sending::SendingCommand;
use super::shared::{TunnelClock, lock};
use super::waker::ThreadWaker;
use crate::net::allowed_sources::AllowedSources;
use crate::protocol::control::path_prober::DatagramLimit;
use crate::protocol::control::unverified::UnverifiedCounts;
use crate::protocol::endpoint::event::{PacketSink, TunnelEvent};
use crate::protocol::endpoint::inbound::InboundEndpoint;
use crate::protocol::endpoint::outbound::SenderUpdate;
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::recv::receiver::{ReceivedChannelCounts, SymbolReceiverCounts};
use crate::protocol::wire::control::TunnelChannelState;
use crate::protocol::wire::datagram::SymbolKind;
use crate::protocol::wire::keys::TunnelKeys;
use udp::{DatagramReceiveBuffer, UdpBatchSocket};

/// The maximum number of reads of a channel before the others are read.
const MAX_READS: usize = 4;

/// How often it is checked whether a channel's device was replaced.
const DEVICE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The state of the thread.
pub(super) struct ReceivingThread {
    pub(super) device: Arc<TunDevice>,
    pub(super) channels: Vec<UdpBatchSocket>,
    pub(super) inbound: InboundEndpoint,
    pub(super) waker: ThreadWaker,
    pub(super) clock: TunnelClock,
    pub(super) shared: Arc<Mutex<EndpointSharedState>>,
    pub(super) counts: Arc<Mutex<ReceivingCounts>>,
    pub(super) sending: Sender<SendingCommand>,
    pub(super) sending_waker: ThreadWaker,
    pub(super) planning: Sender<PlanningCommand>,
    /// The MTU of the tunnel's device, and its minimum and maximum.
    pub(super) mtu: usize,
    pub(super) mtu_range: RangeInclusive<usize>,
    /// The overhead of a datagram over its packet.
    pub(super) overhead: usize,
    /// The channels' risks.
    pub(super) risks: Arc<Mutex<Vec<f64>>>,
    /// The source addresses that the peer may use.
    pub(super) sources: AllowedSources,
    pub(super) stops: Arc<AtomicBool>,
}

/// Counts of the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivingCounts {
    /// Of the current association.
    pub(super) receiver: SymbolReceiverCounts,
    /// The highest number of a symbol that has verified.
    pub(super) highest: u64,
    /// Of each of its channels.
    pub(super) channels: Vec<ReceivedChannelCounts>,
    /// The peer's address on each channel, if there is a peer.
    pub(super) peers: Vec<SocketAddr>,
    /// Counts of datagrams that were not from the peer, for each channel since the start.
    pub(super) unverified: Vec<UnverifiedCounts>,
    /// Malformed packets.
    pub(super) malformed: u64,
    /// Packets whose source address the peer may not use.
    pub(super) not_allowed: u64,
    /// Packets that the device refused.
    pub(super) refused: u64,
    /// Whether there is an association.
    pub(super) is_associated: bool,
    /// The MTU of the tunnel's device.
    pub(super) mtu: usize,
}

impl ReceivingThread {
    /// Receives until it is stopped.
    pub(super) fn run(mut self) {
        let mut buffer = DatagramReceiveBuffer::new();
        let mut arena = ReceivedPacketBuffer::new(self.sources.clone());
        let mut merges_udp = self.device.supports_uso();
        let mut device_checks = DeviceChecks::new(&self.channels);
        while !self.stops.load(Ordering::Relaxed) {
            let now = self.clock.now();
            device_checks.handle_timeout(&self.channels, now);
            let next = self.inbound.poll_timeout().into_iter().chain(device_checks.due).min();
            let timeout = next.map(|at| at.saturating_sub(now));
            let sources: Vec<BorrowedFd<'_>> = self.channels.iter().map(AsFd::as_fd).collect();
            let ready = self.waker.wait(&sources, timeout);
            for channel in (0..ready.len()).filter(|channel| ready[*channel]) {
                self.receive(channel, &mut buffer, &mut arena);
            }
            self.handle_timeout(&mut arena);
            arena.write(&self.device, &mut merges_udp, &self.counts);
            arena.foreign.log(self.clock.now());
        }
    }

    /// Reads the datagrams of a channel.
    fn receive(
        &mut self,
        channel: usize,
        buffer: &mut DatagramReceiveBuffer,
        arena: &mut ReceivedPacketBuffer,
    ) {
        for _ in 0..MAX_READS {
            let more = match buffer.receive(&self.channels[channel]) {
                Ok(more) => more,
                Err(error) => {
                    debug!("channel {}: {error}", channel + 1);
                    return;
                }
            };
            let now = self.clock.now();
            for (from, datagram) in buffer.datagrams() {
                self.inbound.handle_datagram(channel, from, datagram, now, arena);
            }
            if !more {
                return;
            }
        }
    }

    /// Performs what is due, and informs the other threads.
    fn handle_timeout(&mut self, arena: &mut ReceivedPacketBuffer) {
        let now = self.clock.now();
        let mut shared = lock(&self.shared);
        let has_news = self.inbound.handle_timeout(&mut shared, now, arena);
        let risks = lock(&self.risks).clone();
        let snapshot = has_news.then(|| shared.poll_snapshot(&risks, now)).flatten();
        let changes = if has_news { shared.poll_changes(now) } else { Vec::new() };
        drop(shared);
        while let Some((channel, to, bytes)) = self.inbound.poll_transmit(now) {
            if !self.channels[channel].send_one(&bytes, to) {
                self.inbound.handle_refusal(channel, &bytes, now);
            }
        }
        let mut keys = None;
        while let Some(event) = self.inbound.poll_event() {
            keys = self.handle_event(event).or(keys);
        }
        for change in changes {
            match change.now {
                TunnelChannelState::Up => info!("{change}"),
                TunnelChannelState::Down | TunnelChannelState::Quarantine => warn!("{change}"),
            }
        }
        if let Some(snapshot) = snapshot {
            // If the planner has ended, this thread is about to end, too.
            let request = TunnelPlanRequest { keys, snapshot };
            let _ = self.planning.send(PlanningCommand::Plan(request));
        }
        let mut counts = lock(&self.counts);
        counts.unverified = self.inbound.unverified();
        counts.peers = self.inbound.peers();
        if let Some((receiver, channels)) = self.inbound.counts() {
            (counts.receiver, counts.channels) = (receiver, channels);
            counts.highest = self.inbound.highest();
        }
    }

    /// Sets the maximum length of datagrams. The device's MTU follows once it is measured; until
    /// then longer packets are sent in two datagrams.
    fn set_max_datagram_len(&mut self, limit: DatagramLimit) {
        let DatagramLimit { len: datagram, is_measured } = limit;
        let (least, most) = (*self.mtu_range.start(), *self.mtu_range.end());
        let packet = datagram.saturating_sub(self.overhead).min(most);
        let mtu = packet.max(least);
        let clamped = if is_measured { packet } else { self.mtu.min(most) };
        let _ = self.sending.send(SendingCommand::MaxDatagramLen { datagram, packet: clamped });
        self.sending_waker.wake();
        if !is_measured || mtu == self.mtu {
            debug!("the channels carry datagrams of {datagram} bytes");
            return;
        }
        info!("the channels carry datagrams of {datagram} bytes: the tunnel's MTU is {mtu} now");
        self.mtu = mtu;
        lock(&self.counts).mtu = mtu;
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
        if let Err(error) = tun::interface::set_mtu(self.device.name(), mtu) {
            warn!("cannot set the MTU of {}: {error}", self.device.name());
        }
    }

    /// Handles an event. Returns the keys of a new association.
    fn handle_event(&mut self, event: TunnelEvent) -> Option<TunnelKeys> {
        match event {
            TunnelEvent::Associated { keys, peers } => {
                log_members(keys.members, peers.len());
                lock(&self.counts).is_associated = true;
                let _ = self.sending.send(SendingCommand::Peers(peers));
                return Some(keys);
            }
            TunnelEvent::Moved { channel, to } => {
                info!("channel {}: the peer is at {to} now", channel + 1);
                let _ = self.sending.send(SendingCommand::Peer { channel, to });
                self.sending_waker.wake();
            }
            TunnelEvent::MoveRejected { channel, to, reason } => {
                warn!("channel {}: the peer's shares came from {to}, {reason}", channel + 1);
            }
            TunnelEvent::UnverifiedDatagrams(report) => warn!("{report}"),
            TunnelEvent::MaxDatagramLen(limit) => self.set_max_datagram_len(limit),
            TunnelEvent::PathMtu(change) if change.is_warning() => warn!("{change}"),
            TunnelEvent::PathMtu(change) if change.is_routine() => debug!("{change}"),
            TunnelEvent::PathMtu(change) => info!("{change}"),
            TunnelEvent::Gone => {
                lock(&self.counts).is_associated = false;
                let _ = self.sending.send(SendingCommand::Update(SenderUpdate::Dissociate));
                self.sending_waker.wake();
                warn!("the peer does not answer");
            }
            TunnelEvent::Failed(failure) => warn!("{failure}; trying again"),
            TunnelEvent::Refused { channel: Some(channel), reason } => {
                warn!("channel {}: {reason}", channel + 1);
            }
            TunnelEvent::Refused { channel: None, reason } => warn!("{reason}"),
        }
        None
    }
}

/// Binds channels again whose device was replaced. A server without a client sends nothing, so no
/// error would show that it cannot receive.
struct DeviceChecks {
    /// The next check; `None` if no channel has a device.
    due: Option<Duration>,
    /// The channels that could not be bound again, which was logged.
    failed: ChannelSubset,
}

impl DeviceChecks {
    fn new(channels: &[UdpBatchSocket]) -> Self {
        let has_device = channels.iter().any(|channel| channel.device().is_some());
        Self { due: has_device.then_some(Duration::ZERO), failed: ChannelSubset::EMPTY }
    }

    fn handle_timeout(&mut self, channels: &[UdpBatchSocket], now: Duration) {
        let Some(due) = self.due.as_mut().filter(|due| **due <= now) else { return };
        *due = now.saturating_add(DEVICE_CHECK_INTERVAL);
        let mut failed = ChannelSubset::EMPTY;
        for (index, channel) in channels.iter().enumerate() {
            let Some(device) = channel.device() else { continue };
            match channel.rebind_device() {
                Ok(false) => {}
                Ok(true) => {
                    info!(
                        "channel {}: {device} was replaced by another device, which is used now",
                        index + 1
                    );
                }
                Err(error) => {
                    failed = failed.with(index);
                    if !self.failed.contains(index) {
                        let number = index + 1;
                        warn!(
                            "channel {number}: cannot use the new {device}: {error}; trying again"
                        );
                    }
                }
            }
        }
        self.failed = failed;
    }
}

/// The minimum interval of the warning about source addresses.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Logs the members of an association.
fn log_members(members: ChannelSubset, channels: usize) {
    let missing = (0..channels).filter(|channel| !members.contains(*channel));
    let missing: Vec<String> = missing.map(|channel| (channel + 1).to_string()).collect();
    if missing.is_empty() {
        info!("associated over {channels} channels");
    } else {
        let plural = if missing.len() == 1 { "" } else { "s" };
        warn!(
            "associated over {} of {channels} channels: channel{plural} {} did not answer, and will be \
             used as soon as it does",
            members.len(),
            missing.join(", ")
        );
    }
}

/// Received packets that are not written yet.
struct ReceivedPacketBuffer {
    bytes: Zeroizing<Vec<u8>>,
    packets: Vec<(Range<usize>, ChecksumState)>,
    malformed: u64,
    sources: AllowedSources,
    foreign: ForeignSources,
}

/// Packets that were dropped because of their source address.
#[derive(Default)]
struct ForeignSources {
    count: u64,
    /// How many of them are in the counts, and how many were logged, when.
    counted: u64,
    logged: u64,
    logged_at: Option<Duration>,
    /// The source address of the last one.
    last: Option<IpAddr>,
}

impl ForeignSources {
    fn log(&mut self, now: Duration) {
        let is_due = self.logged_at.is_none_or(|at| now >= at.saturating_add(LOG_INTERVAL));
        let (true, Some(last)) = (is_due && self.count > self.logged, self.last) else { return };
        warn!(
            "dropped {} packets of the peer that were not from one of its addresses, the last from {last}: if \
             that is the peer's, or behind it, add its network to `allowed`, or to `routes`",
            self.count - self.logged
        );
        (self.logged, self.logged_at) = (self.count, Some(now));
    }
}

impl PacketSink for ReceivedPacketBuffer {
    fn take(&mut self, kind: SymbolKind, packets: &[u8]) {
        let checksum = match kind {
            SymbolKind::PartialPacket => ChecksumState::Partial,
            SymbolKind::Packet | SymbolKind::Control | SymbolKind::Part => ChecksumState::Complete,
        };
        let mut rest = packets;
        while let Some(length) = packet_len(rest) {
            let (packet, behind) = rest.split_at(length);
            rest = behind;
            if !self.sources.allows(packet) {
                self.foreign.count += 1;
                self.foreign.last = source(packet);
                continue;
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(packet);
            self.packets.push((start..self.bytes.len(), checksum));
        }
        self.malformed += u64::from(!rest.is_empty());
    }
}

impl ReceivedPacketBuffer {
    fn new(sources: AllowedSources) -> Self {
        Self {
            bytes: Zeroizing::default(),
            packets: Vec::new(),
            malformed: 0,
            sources,
            foreign: ForeignSources::default(),
        }
    }

    /// Writes all packets to the device, coalesced into superpackets.
    fn write(
        &mut self,
        device: &TunDevice,
        merges_udp: &mut bool,
        counts: &Mutex<ReceivingCounts>,
    ) {
        let foreign = self.foreign.count - self.foreign.counted;
        if self.packets.is_empty() && self.malformed == 0 && foreign == 0 {
            return;
        }
        let (mut refused, mut refuses_udp) = (0, false);
        let mut hand_over = |superpacket: &Superpacket<'_>| {
            let Err(error) = device.write(&superpacket.slices()) else { return };
            if error.kind() != io::ErrorKind::InvalidInput {
                refused += superpacket.segments().len() as u64;
                return;
            }
            // Some kernels refuse superpackets of UDP.
            refuses_udp = true;
            for segment in superpacket.segments() {
                refused += u64::from(device.write(&segment.slices()).is_err());
            }
        };
        let mut coalescer = PacketCoalescer::new(*merges_udp);
        for (place, checksum) in &self.packets {
            let packet = &self.bytes[place.clone()];
            if coalescer.push(packet, *checksum, &mut hand_over).is_err() {
                self.malformed += 1;
            }
        }
        coalescer.flush(&mut hand_over);
        *merges_udp &= !refuses_udp;
        let mut counts = lock(counts);
        counts.malformed += self.malformed;
        counts.refused += refused;
        counts.not_allowed += foreign;
        self.foreign.counted = self.foreign.count;
        self.malformed = 0;
        self.packets.clear();
        self.bytes.clear();
    }
}
