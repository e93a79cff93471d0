//! One peer in the receiving thread: its receiving half, and what its events lead to.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::ChannelSubset;
use tracing::{debug, info, warn};
use tun::TunDevice;
use udp::UdpBatchSocket;

use super::peer_label::PeerLabel;
use super::planning::{PlanningCommand, TunnelPlanRequest};
use super::received_packets::{
    FilteredPacketCounts, FilteredPackets, PeerPacketFilter, ReceivedPacketBuffer,
};
use super::sending::SendingCommand;
use super::sending_peer::SendingPeerCommand;
use super::shared::lock;
use super::waker::ThreadWaker;
use crate::protocol::control::path_prober::DatagramLimit;
use crate::protocol::control::unverified::UnverifiedCounts;
use crate::protocol::endpoint::client_demultiplexer::{ClientDemultiplexer, TunnelPeerId};
use crate::protocol::endpoint::event::TunnelEvent;
use crate::protocol::endpoint::inbound::InboundEndpoint;
use crate::protocol::endpoint::outbound::SenderUpdate;
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::recv::receiver::{ReceivedChannelCounts, SymbolReceiverCounts};
use crate::protocol::wire::control::TunnelChannelState;
use crate::protocol::wire::keys::TunnelKeys;

/// A peer in the receiving thread.
pub(super) struct ReceivingPeer {
    pub(super) id: TunnelPeerId,
    pub(super) label: PeerLabel,
    pub(super) inbound: InboundEndpoint,
    pub(super) shared: Arc<Mutex<EndpointSharedState>>,
    pub(super) counts: Arc<Mutex<ReceivingCounts>>,
    pub(super) filter: PeerPacketFilter,
    /// The MTU of the tunnel's device.
    pub(super) mtu: usize,
    /// When to call [`Self::handle_timeout`] next, unless a datagram arrives before.
    pub(super) due: Duration,
}

/// What all peers of the receiving thread use.
pub(super) struct ReceivingContext {
    pub(super) device: Arc<TunDevice>,
    pub(super) channels: Vec<UdpBatchSocket>,
    pub(super) sending: Sender<SendingCommand>,
    pub(super) sending_waker: ThreadWaker,
    pub(super) planning: Sender<PlanningCommand>,
    /// The minimum and maximum MTU of the tunnel's device.
    pub(super) mtu_range: RangeInclusive<usize>,
    /// Whether the device's MTU follows the paths to the peer: only if there is one peer.
    pub(super) follows_paths: bool,
    /// The overhead of a datagram over its packet.
    pub(super) overhead: usize,
    /// The channels' risks.
    pub(super) risks: Arc<Mutex<Vec<f64>>>,
}

/// Counts of a peer in the thread.
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
    /// Packets that it may not send.
    pub(super) filtered: FilteredPacketCounts,
    /// Since when there is an association, if there is one.
    pub(super) associated_since: Option<Duration>,
    /// The MTU of the tunnel's device.
    pub(super) mtu: usize,
}

impl ReceivingContext {
    /// Sends a command for a peer to the sending thread.
    fn send(&self, peer: TunnelPeerId, command: SendingPeerCommand) {
        // If it has ended, this thread is about to end, too.
        let _ = self.sending.send(SendingCommand::OfPeer(peer, command));
        self.sending_waker.wake();
    }
}

impl ReceivingPeer {
    /// Handles a datagram of the peer.
    pub(super) fn handle_datagram(
        &mut self,
        channel: usize,
        from: SocketAddr,
        datagram: &[u8],
        now: Duration,
        buffer: &mut ReceivedPacketBuffer,
    ) {
        let mut packets = FilteredPackets { buffer, filter: &mut self.filter };
        self.inbound.handle_datagram(channel, from, datagram, now, &mut packets);
        self.due = Duration::ZERO;
    }

    /// Performs what is due, and informs the other threads.
    pub(super) fn handle_timeout(
        &mut self,
        context: &ReceivingContext,
        clients: &mut Option<ClientDemultiplexer>,
        now: Duration,
        buffer: &mut ReceivedPacketBuffer,
    ) {
        let mut shared = lock(&self.shared);
        let mut packets = FilteredPackets { buffer, filter: &mut self.filter };
        let has_news = self.inbound.handle_timeout(&mut shared, now, &mut packets);
        let snapshot = if has_news {
            let risks = lock(&context.risks).clone();
            shared.poll_snapshot(&risks, now)
        } else {
            None
        };
        let changes = if has_news { shared.poll_changes(now) } else { Vec::new() };
        drop(shared);
        while let Some((channel, to, bytes)) = self.inbound.poll_transmit(now) {
            if !context.channels[channel].send_one(&bytes, to) {
                self.inbound.handle_refusal(channel, &bytes, now);
            }
        }
        let mut keys = None;
        while let Some(event) = self.inbound.poll_event() {
            keys = self.handle_event(context, clients, now, event).or(keys);
        }
        let label = &self.label;
        for change in changes {
            match change.now {
                TunnelChannelState::Up => info!("{label}{change}"),
                TunnelChannelState::Down | TunnelChannelState::Quarantine => {
                    warn!("{label}{change}");
                }
            }
        }
        if let Some(snapshot) = snapshot {
            // If the planner has ended, this thread is about to end, too.
            let request = TunnelPlanRequest { keys, snapshot };
            let _ = context.planning.send(PlanningCommand::Plan(self.id, request));
        }
        self.filter.log(&self.label, now);
        let mut counts = lock(&self.counts);
        counts.unverified = self.inbound.unverified();
        counts.peers = self.inbound.peers();
        counts.filtered = self.filter.counts;
        if let Some((receiver, channels)) = self.inbound.counts() {
            (counts.receiver, counts.channels) = (receiver, channels);
            counts.highest = self.inbound.highest();
        }
        drop(counts);
        self.due = self.inbound.poll_timeout().unwrap_or(Duration::MAX);
    }

    /// Sets the maximum length of datagrams. The device's MTU follows once it is measured; until
    /// then longer packets are sent in two datagrams. If there are several peers, they always are.
    fn set_max_datagram_len(&mut self, context: &ReceivingContext, limit: DatagramLimit) {
        let DatagramLimit { len: datagram, is_measured } = limit;
        let (least, most) = (*context.mtu_range.start(), *context.mtu_range.end());
        let packet = datagram.saturating_sub(context.overhead).min(most);
        let mtu = packet.max(least);
        let clamped = if is_measured { packet } else { self.mtu.min(most) };
        let limit = SendingPeerCommand::MaxDatagramLen { datagram, packet: clamped };
        context.send(self.id, limit);
        let label = &self.label;
        if !is_measured || !context.follows_paths || mtu == self.mtu {
            debug!("{label}the channels carry datagrams of {datagram} bytes");
            return;
        }
        info!("the channels carry datagrams of {datagram} bytes: the tunnel's MTU is {mtu} now");
        self.mtu = mtu;
        lock(&self.counts).mtu = mtu;
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
        if let Err(error) = tun::interface::set_mtu(context.device.name(), mtu) {
            warn!("cannot set the MTU of {}: {error}", context.device.name());
        }
    }

    /// Handles an event. Returns the keys of a new association.
    fn handle_event(
        &mut self,
        context: &ReceivingContext,
        clients: &mut Option<ClientDemultiplexer>,
        now: Duration,
        event: TunnelEvent,
    ) -> Option<TunnelKeys> {
        let label = &self.label;
        match event {
            TunnelEvent::Associated { keys, peers } => {
                log_members(label, keys.members, peers.len());
                lock(&self.counts).associated_since.get_or_insert(now);
                if let Some(clients) = clients {
                    clients.set_addresses(self.id, &peers);
                }
                context.send(self.id, SendingPeerCommand::Addresses(peers));
                return Some(keys);
            }
            TunnelEvent::Moved { channel, to } => {
                info!("{label}channel {}: the peer is at {to} now", channel + 1);
                if let Some(clients) = clients {
                    clients.set_address(self.id, channel, Some(to));
                }
                context.send(self.id, SendingPeerCommand::Address { channel, to });
            }
            TunnelEvent::MoveRejected { channel, to, reason } => {
                warn!("{label}channel {}: the peer's shares came from {to}, {reason}", channel + 1);
            }
            TunnelEvent::UnverifiedDatagrams(report) => warn!("{label}{report}"),
            TunnelEvent::MaxDatagramLen(limit) => self.set_max_datagram_len(context, limit),
            TunnelEvent::PathMtu(change) if change.is_warning() => warn!("{label}{change}"),
            TunnelEvent::PathMtu(change) if change.is_routine() => debug!("{label}{change}"),
            TunnelEvent::PathMtu(change) => info!("{label}{change}"),
            TunnelEvent::Gone => {
                lock(&self.counts).associated_since = None;
                if let Some(clients) = clients {
                    clients.clear_addresses(self.id);
                }
                context.send(self.id, SendingPeerCommand::Update(SenderUpdate::Dissociate));
                warn!("{label}the peer does not answer");
            }
            TunnelEvent::Failed(failure) => warn!("{failure}; trying again"),
            TunnelEvent::Refused { channel: Some(channel), reason } => {
                warn!("{label}channel {}: {reason}", channel + 1);
            }
            TunnelEvent::Refused { channel: None, reason } => warn!("{label}{reason}"),
        }
        None
    }
}

/// Logs the members of an association.
fn log_members(label: &PeerLabel, members: ChannelSubset, channels: usize) {
    let missing = (0..channels).filter(|channel| !members.contains(*channel));
    let missing: Vec<String> = missing.map(|channel| (channel + 1).to_string()).collect();
    if missing.is_empty() {
        info!("{label}associated over {channels} channels");
    } else {
        let plural = if missing.len() == 1 { "" } else { "s" };
        warn!(
            "{label}associated over {} of {channels} channels: channel{plural} {} did not answer, and will be \
             used as soon as it does",
            members.len(),
            missing.join(", ")
        );
    }
}
