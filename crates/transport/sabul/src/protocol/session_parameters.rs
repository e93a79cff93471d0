//! The configuration of an end, and the parameters that both ends agree on.

use std::time::Duration;

use super::number::MAX_WIRE;
use super::packet::{
    HEADER_LEN, SabulHandshakeBody, SabulPacket, SabulPacketContent, SabulRequestKind,
};

/// The length of the IP and UDP headers, as counted by UDT4, even with IPv6.
const NETWORK_HEADERS: u16 = 28;

/// The smallest MSS that is accepted, in bytes of an IP packet: what IPv4 guarantees.
pub(crate) const MIN_MSS: u16 = 576;

/// The largest MSS: one datagram.
pub(crate) const MAX_MSS: u16 = 65_535;

/// The settings of an end of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SabulConfig {
    /// The length of the longest IP packet that is sent, in bytes, 576 to 65,535. If that is more
    /// than 1,280 and the path does not carry it, packets have 1,280 bytes.
    pub mss: u16,
    /// The size of the send buffer: bytes of a stream that are not yet acknowledged.
    pub send_buffer: usize,
    /// The size of the receive buffer: bytes of a stream that are not yet read.
    pub receive_buffer: usize,
    /// How long a client waits for the listener's answer.
    pub connect_timeout: Duration,
    /// How long the peer may be silent before a connection fails.
    pub silence: Duration,
}

impl Default for SabulConfig {
    /// Packets of 1,500 bytes, buffers of 64 MiB, 3 s to connect, and 15 s of silence.
    fn default() -> Self {
        Self {
            mss: 1500,
            send_buffer: 64 << 20,
            receive_buffer: 64 << 20,
            connect_timeout: Duration::from_secs(3),
            silence: Duration::from_secs(15),
        }
    }
}

impl SabulConfig {
    pub(crate) fn payload(mss: u16) -> u16 {
        Self::datagram(mss) - HEADER_LEN
    }

    /// The length of the longest datagram.
    pub(crate) fn datagram(mss: u16) -> u16 {
        mss - NETWORK_HEADERS
    }

    pub(crate) fn mss_of_datagram(datagram: u16) -> u16 {
        datagram + NETWORK_HEADERS
    }

    /// The size of the receive buffer in packets.
    pub(crate) fn window(&self, mss: u16) -> u32 {
        let packets = self.receive_buffer / usize::from(Self::payload(mss));
        u32::try_from(packets).unwrap_or(MAX_WIRE).clamp(2, 1 << 24)
    }

    pub(crate) fn mss(&self) -> u16 {
        self.mss.max(MIN_MSS)
    }
}

/// The result of the handshake, known to both ends.
#[derive(Clone, Debug)]
pub(crate) struct SabulSessionParameters {
    /// The socket identifiers of this end and of the peer.
    pub(crate) socket: u32,
    pub(crate) peer_socket: u32,
    /// The first packet number of both directions, low 31 bits.
    pub(crate) first_number: u32,
    pub(crate) mss: u16,
    /// The free space in the receive buffers of this end and of the peer, in packets.
    pub(crate) window: u32,
    pub(crate) peer_window: u32,
    pub(crate) send_buffer: usize,
    pub(crate) silence: Duration,
    /// The listener's last handshake packet, which it repeats on request. `None` for a client.
    pub(crate) response: Option<SabulHandshakeBody>,
}

impl SabulSessionParameters {
    /// The longest payload, in bytes.
    pub(crate) fn max_payload(&self) -> u16 {
        SabulConfig::payload(self.mss)
    }

    /// Whether this is a repetition of the peer's second request, because the response was lost.
    pub(crate) fn is_repeated_request(&self, request: &SabulHandshakeBody) -> bool {
        self.response.is_some()
            && request.request == SabulRequestKind::Second
            && request.socket == self.peer_socket
            && request.first_number == self.first_number
    }

    pub(crate) fn write_response(&self, datagram: &mut Vec<u8>) {
        if let Some(response) = self.response {
            write(response, self.peer_socket, datagram);
        }
    }
}

/// Appends a handshake packet for a socket to a datagram.
pub(crate) fn write(handshake: SabulHandshakeBody, destination: u32, datagram: &mut Vec<u8>) {
    SabulPacket { destination, timestamp: 0, content: SabulPacketContent::Handshake(handshake) }
        .write(datagram);
}
