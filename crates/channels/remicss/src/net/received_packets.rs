//! Received packets that are not written to the device yet, and which of them a peer may send.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::warn;
use tun::ip::{destination, packet_len, source};
use tun::{ChecksumState, PacketCoalescer, Superpacket, TunDevice};
use zeroize::Zeroizing;

use super::client_networks::ClientNetworks;
use super::peer_label::PeerLabel;
use super::shared::lock;
use crate::net::allowed_sources::AllowedSources;
use crate::protocol::endpoint::client_demultiplexer::TunnelPeerId;
use crate::protocol::endpoint::event::PacketSink;
use crate::protocol::wire::datagram::SymbolKind;

/// The minimum interval of the warning about source addresses.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Received packets that are not written yet.
#[derive(Default)]
pub(super) struct ReceivedPacketBuffer {
    bytes: Zeroizing<Vec<u8>>,
    packets: Vec<(Range<usize>, ChecksumState)>,
}

/// Counts of packets of all peers that were not written to the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceWriteCounts {
    /// Malformed packets.
    pub(super) malformed: u64,
    /// Packets that the device refused.
    pub(super) refused: u64,
}

/// Which packets a peer may send, and how many of others it has sent.
pub(super) struct PeerPacketFilter {
    peer: TunnelPeerId,
    sources: AllowedSources,
    /// The networks of all clients, if they may not send to each other.
    separate: Option<Arc<ClientNetworks>>,
    pub(super) counts: FilteredPacketCounts,
    foreign: ForeignSourceLog,
}

/// Counts of packets that a peer has sent, and that were dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilteredPacketCounts {
    /// Malformed packets.
    pub(super) malformed: u64,
    /// Packets whose source address the peer may not use.
    pub(super) not_allowed: u64,
    /// Packets for another client.
    pub(super) between_clients: u64,
}

/// When packets were logged that were dropped because of their source address.
#[derive(Default)]
struct ForeignSourceLog {
    /// How many of them were logged, when.
    logged: u64,
    logged_at: Option<Duration>,
    /// The source address of the last one.
    last: Option<IpAddr>,
}

/// Takes the packets of a peer that it may send.
pub(super) struct FilteredPackets<'a> {
    pub(super) buffer: &'a mut ReceivedPacketBuffer,
    pub(super) filter: &'a mut PeerPacketFilter,
}

impl PeerPacketFilter {
    /// Accepts packets from these sources, and none for another client of `separate`.
    pub(super) fn new(
        peer: TunnelPeerId,
        sources: AllowedSources,
        separate: Option<Arc<ClientNetworks>>,
    ) -> Self {
        let (counts, foreign) = (FilteredPacketCounts::default(), ForeignSourceLog::default());
        Self { peer, sources, separate, counts, foreign }
    }

    /// Accepts other packets from now on.
    pub(super) fn set(&mut self, sources: AllowedSources, separate: Option<Arc<ClientNetworks>>) {
        (self.sources, self.separate) = (sources, separate);
    }

    /// Logs packets that were dropped because of their source address.
    pub(super) fn log(&mut self, label: &PeerLabel, now: Duration) {
        let ForeignSourceLog { logged, logged_at, last } = &mut self.foreign;
        let count = self.counts.not_allowed;
        let is_due = logged_at.is_none_or(|at| now >= at.saturating_add(LOG_INTERVAL));
        let (true, Some(last)) = (is_due && count > *logged, *last) else { return };
        let places = if label.is_client() { "`networks`" } else { "`allowed`, or to `routes`" };
        warn!(
            "{label}dropped {} packets of the peer that were not from one of its addresses, the last from {last}: if \
             that is the peer's, or behind it, add its network to {places}",
            count - *logged
        );
        (*logged, *logged_at) = (count, Some(now));
    }

    /// Whether a packet is accepted. Counts it if not.
    fn accepts(&mut self, packet: &[u8]) -> bool {
        if !self.sources.allows(packet) {
            self.counts.not_allowed += 1;
            self.foreign.last = source(packet);
            return false;
        }
        let Some(networks) = &self.separate else { return true };
        let to = destination(packet).and_then(|to| networks.client_of(to));
        let is_for_another = to.is_some_and(|to| to != self.peer);
        self.counts.between_clients += u64::from(is_for_another);
        !is_for_another
    }
}

impl PacketSink for FilteredPackets<'_> {
    fn take(&mut self, kind: SymbolKind, packets: &[u8]) {
        let checksum = match kind {
            SymbolKind::PartialPacket => ChecksumState::Partial,
            SymbolKind::Packet | SymbolKind::Control | SymbolKind::Part => ChecksumState::Complete,
        };
        let mut rest = packets;
        while let Some(length) = packet_len(rest) {
            let (packet, behind) = rest.split_at(length);
            rest = behind;
            if self.filter.accepts(packet) {
                let start = self.buffer.bytes.len();
                self.buffer.bytes.extend_from_slice(packet);
                self.buffer.packets.push((start..self.buffer.bytes.len(), checksum));
            }
        }
        self.filter.counts.malformed += u64::from(!rest.is_empty());
    }
}

impl ReceivedPacketBuffer {
    /// Writes all packets to the device, coalesced into superpackets.
    pub(super) fn write(
        &mut self,
        device: &TunDevice,
        merges_udp: &mut bool,
        counts: &Mutex<DeviceWriteCounts>,
    ) {
        if self.packets.is_empty() {
            return;
        }
        let (mut malformed, mut refused, mut refuses_udp) = (0, 0, false);
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
                malformed += 1;
            }
        }
        coalescer.flush(&mut hand_over);
        *merges_udp &= !refuses_udp;
        if malformed + refused > 0 {
            let mut counts = lock(counts);
            counts.malformed += malformed;
            counts.refused += refused;
        }
        self.packets.clear();
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TunnelPeerId = TunnelPeerId(1);
    const B: TunnelPeerId = TunnelPeerId(2);

    fn packet(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        (packet[0], packet[3]) = (0x45, 20);
        packet[12..16].copy_from_slice(&from);
        packet[16..20].copy_from_slice(&to);
        packet
    }

    /// Of which packets of client A how many are accepted.
    fn accepted(are_separate: bool, packets: &[Vec<u8>]) -> (usize, FilteredPacketCounts) {
        let networks = |text: &str| vec![text.parse().unwrap()];
        let clients =
            ClientNetworks::new(vec![(A, networks("10.9.0.2/32")), (B, networks("10.9.0.3/32"))]);
        let sources = AllowedSources::new(clients.of(A), []);
        let separate = are_separate.then(|| Arc::new(clients));
        let mut filter = PeerPacketFilter::new(A, sources, separate);
        let mut buffer = ReceivedPacketBuffer::default();
        let mut sink = FilteredPackets { buffer: &mut buffer, filter: &mut filter };
        // All in one symbol.
        sink.take(SymbolKind::Packet, &packets.concat());
        (buffer.packets.len(), filter.counts)
    }

    #[test]
    fn a_client_sends_from_its_own_addresses_and_to_no_other_client() {
        let (own, other, server) = ([10, 9, 0, 2], [10, 9, 0, 3], [10, 9, 0, 1]);
        let packets = [
            packet(own, server),
            packet(other, server),
            packet(server, own),
            packet(own, other),
            packet(own, [192, 0, 2, 1]),
        ];
        let (count, FilteredPacketCounts { not_allowed, between_clients, malformed }) =
            accepted(true, &packets);
        assert_eq!((count, not_allowed, between_clients, malformed), (2, 2, 1, 0));
        let (count, counts) = accepted(false, &packets);
        assert_eq!((count, counts.not_allowed, counts.between_clients), (3, 2, 0));
        let cut = [packet(own, server), packet(own, server)[..19].to_vec()];
        let (count, counts) = accepted(true, &cut);
        assert_eq!((count, counts.malformed), (1, 1));
    }
}
