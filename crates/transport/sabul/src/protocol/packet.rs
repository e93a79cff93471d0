//! The wire format of packets: UDT version 4 (draft-gg-udt-03, section 3).
//!
//! A packet is a header of 16 bytes and a payload or a control packet's body. All numbers are
//! big-endian.
//!
//! | bytes | data packet | control packet |
//! |---|---|---|
//! | 0..4 | 0, packet number (31 bits) | 1, kind (15 bits), reserved (16 bits) |
//! | 4..8 | 7 (3 bits: one packet, in order), message number (29 bits) | additional information |
//! | 8..12 | µs since the connection was opened, modulo 2^32 | as in a data packet |
//! | 12..16 | the receiver's socket identifier; 0 in a first request | as in a data packet |

use std::net::IpAddr;

use super::loss_report::LossReport;
use super::number::MAX_WIRE;

/// The length of a header.
pub(crate) const HEADER_LEN: u16 = 16;

/// The length of a handshake's body.
const HANDSHAKE_LEN: usize = 48;

/// The protocol version, as numbered by UDT4.
const VERSION: u32 = 4;

/// The socket type for streams.
const STREAM: u32 = 1;

const KIND_HANDSHAKE: u32 = 0;
const KIND_KEEP_ALIVE: u32 = 1;
const KIND_ACK: u32 = 2;
const KIND_LOSS: u32 = 3;
const KIND_CONGESTION: u32 = 4;
const KIND_SHUTDOWN: u32 = 5;
const KIND_ACK_OF_ACK: u32 = 6;
const KIND_DROP: u32 = 7;
const KIND_ERROR: u32 = 8;

/// Flags: in order, and the only packet of its message, because a stream has no messages.
const SOLO_IN_ORDER: u32 = 0b111 << 29;

/// A parsed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SabulPacket<'a> {
    /// The socket identifier of the receiver; 0 in a first request.
    pub(crate) destination: u32,
    /// µs since the sender opened the connection, modulo 2^32.
    pub(crate) timestamp: u32,
    pub(crate) content: SabulPacketContent<'a>,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SabulPacketContent<'a> {
    Data {
        /// The low 31 bits.
        number: u32,
        /// At least a byte.
        payload: &'a [u8],
    },
    Handshake(SabulHandshakeBody),
    KeepAlive,
    /// All packets before `next` have arrived.
    Ack {
        /// The number of the acknowledgement. 0 in a light one, which contains only `next`.
        number: u32,
        /// A packet number, low 31 bits.
        next: u32,
        /// `None` in a light acknowledgement.
        state: Option<SabulReceiverState>,
    },
    Loss(LossReport<'a>),
    /// A warning that the delay of the path grows: the sender should slow down.
    Congestion,
    Shutdown,
    /// The answer to the acknowledgement with this number.
    AckOfAck {
        number: u32,
    },
    /// Packets that a stream does not use: dropped messages, file errors, and user-defined types.
    Other,
}

/// The receiver's state in a full acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SabulReceiverState {
    /// In µs.
    pub(crate) round_trip: u32,
    /// In µs.
    pub(crate) round_trip_variation: u32,
    /// The free space in the receive buffer, in packets.
    pub(crate) window: u32,
    /// The arrival speed and the capacity of the path, in packets/s. 0 if unknown.
    pub(crate) rates: Option<(u32, u32)>,
}

/// The body of a handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SabulHandshakeBody {
    pub(crate) request: SabulRequestKind,
    /// The number of the first packet in both directions, low 31 bits.
    pub(crate) first_number: u32,
    /// The MSS: the length of the longest IP packet, 28 bytes more than the longest datagram.
    pub(crate) mss: u32,
    /// The free space in the sender's receive buffer, in packets.
    pub(crate) window: u32,
    /// The socket identifier of the sender.
    pub(crate) socket: u32,
    /// 0 in a client's first request.
    pub(crate) cookie: u32,
    /// The receiver's address: four words, each with its first byte in the lowest bits.
    pub(crate) address: [u32; 4],
}

/// Which part of the handshake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SabulRequestKind {
    /// The client's first, and the listener's answer with a cookie.
    First,
    /// The client's second, with the cookie, and the listener's answer that opens the connection.
    Second,
    /// The listener rejects the request.
    Refused,
}

impl SabulRequestKind {
    fn from_wire(word: u32) -> Option<Self> {
        match word.cast_signed() {
            1 => Some(Self::First),
            -1 => Some(Self::Second),
            1002 => Some(Self::Refused),
            // 0 and -2 are for rendezvous connections, which Sunder does not support.
            _ => None,
        }
    }

    fn to_wire(self) -> u32 {
        match self {
            Self::First => 1,
            Self::Second => (-1_i32).cast_unsigned(),
            Self::Refused => 1002,
        }
    }
}

impl<'a> SabulPacket<'a> {
    /// Parses a datagram. `None` if it is not a packet of this protocol.
    pub(crate) fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (header, body) = datagram.split_first_chunk::<16>()?;
        let [kind, information, timestamp, destination] = words(header);
        let content = if kind & !MAX_WIRE == 0 {
            if body.is_empty() {
                return None;
            }
            SabulPacketContent::Data { number: kind, payload: body }
        } else {
            parse_control((kind & MAX_WIRE) >> 16, information, body)?
        };
        Some(Self { destination, timestamp, content })
    }

    /// Appends the packet to a datagram.
    pub(crate) fn write(&self, datagram: &mut Vec<u8>) {
        let (kind, information) = match self.content {
            SabulPacketContent::Data { number, .. } => (number, SOLO_IN_ORDER | 1),
            SabulPacketContent::Handshake(_) => (control(KIND_HANDSHAKE), 0),
            SabulPacketContent::KeepAlive => (control(KIND_KEEP_ALIVE), 0),
            SabulPacketContent::Ack { number, .. } => (control(KIND_ACK), number),
            SabulPacketContent::Loss(_) => (control(KIND_LOSS), 0),
            SabulPacketContent::Congestion => (control(KIND_CONGESTION), 0),
            SabulPacketContent::Shutdown => (control(KIND_SHUTDOWN), 0),
            SabulPacketContent::AckOfAck { number } => (control(KIND_ACK_OF_ACK), number),
            SabulPacketContent::Other => (control(KIND_ERROR), 0),
        };
        push_words(datagram, &[kind, information, self.timestamp, self.destination]);
        match self.content {
            SabulPacketContent::Data { payload, .. } => datagram.extend_from_slice(payload),
            SabulPacketContent::Handshake(handshake) => handshake.write(datagram),
            SabulPacketContent::Ack { next, state, .. } => {
                push_words(datagram, &[next]);
                if let Some(state) = state {
                    let SabulReceiverState { round_trip, round_trip_variation, window, rates } =
                        state;
                    push_words(datagram, &[round_trip, round_trip_variation, window]);
                    if let Some((arrival, capacity)) = rates {
                        push_words(datagram, &[arrival, capacity]);
                    }
                }
            }
            SabulPacketContent::Loss(report) => datagram.extend_from_slice(report.as_bytes()),
            // UDT4 sends four meaningless bytes, and its parser requires a body.
            SabulPacketContent::KeepAlive
            | SabulPacketContent::Congestion
            | SabulPacketContent::Shutdown
            | SabulPacketContent::AckOfAck { .. }
            | SabulPacketContent::Other => push_words(datagram, &[0]),
        }
    }
}

fn parse_control(kind: u32, information: u32, body: &[u8]) -> Option<SabulPacketContent<'_>> {
    Some(match kind {
        KIND_HANDSHAKE => SabulPacketContent::Handshake(SabulHandshakeBody::parse(body)?),
        KIND_KEEP_ALIVE => SabulPacketContent::KeepAlive,
        KIND_ACK => parse_ack(information, body)?,
        KIND_LOSS => SabulPacketContent::Loss(LossReport::parse(body)?),
        KIND_CONGESTION => SabulPacketContent::Congestion,
        KIND_SHUTDOWN => SabulPacketContent::Shutdown,
        KIND_ACK_OF_ACK => SabulPacketContent::AckOfAck { number: information },
        KIND_DROP | KIND_ERROR | 0x7fff => SabulPacketContent::Other,
        _ => return None,
    })
}

fn parse_ack(number: u32, body: &[u8]) -> Option<SabulPacketContent<'_>> {
    let word =
        |index: usize| body.get(4 * index..4 * index + 4)?.try_into().map(u32::from_be_bytes).ok();
    let next = word(0).filter(|&next| next <= MAX_WIRE)?;
    let state = match body.len() {
        4 => None,
        16 | 24 => Some(SabulReceiverState {
            round_trip: word(1)?,
            round_trip_variation: word(2)?,
            window: word(3)?,
            rates: word(4).zip(word(5)),
        }),
        _ => return None,
    };
    Some(SabulPacketContent::Ack { number, next, state })
}

impl SabulHandshakeBody {
    fn parse(body: &[u8]) -> Option<Self> {
        // Any further bytes are padding to the length of a data packet.
        let body: &[u8; HANDSHAKE_LEN] = body.first_chunk()?;
        let [version, kind, first_number, mss, window, request, socket, cookie, a, b, c, d] =
            words(body);
        if request == SabulRequestKind::Refused.to_wire() {
            // A refusal repeats the rejected request, which may contain anything.
        } else if version != VERSION || kind != STREAM || first_number > MAX_WIRE {
            return None;
        }
        let request = SabulRequestKind::from_wire(request)?;
        let address = [a, b, c, d];
        Some(Self { request, first_number, mss, window, socket, cookie, address })
    }

    fn write(&self, datagram: &mut Vec<u8>) {
        let request = self.request.to_wire();
        let Self { first_number, mss, window, socket, cookie, .. } = *self;
        push_words(
            datagram,
            &[VERSION, STREAM, first_number, mss, window, request, socket, cookie],
        );
        push_words(datagram, &self.address);
    }
}

/// The destination socket identifier of a datagram. `None` if it is too short.
pub(crate) fn destination(datagram: &[u8]) -> Option<u32> {
    let header = datagram.first_chunk::<16>()?;
    let [.., destination]: [u32; 4] = words(header);
    Some(destination)
}

/// An address in the form that a handshake uses.
pub(crate) fn address_words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [u32::from_le_bytes(address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            std::array::from_fn(|index| {
                let word = [0, 1, 2, 3].map(|byte| octets[4 * index + byte]);
                u32::from_le_bytes(word)
            })
        }
    }
}

fn control(kind: u32) -> u32 {
    1 << 31 | kind << 16
}

/// The big-endian words of `LEN` bytes; `COUNT` is a quarter of `LEN`.
fn words<const LEN: usize, const COUNT: usize>(bytes: &[u8; LEN]) -> [u32; COUNT] {
    const { assert!(LEN == 4 * COUNT) };
    std::array::from_fn(|index| {
        u32::from_be_bytes([0, 1, 2, 3].map(|byte| bytes[4 * index + byte]))
    })
}

fn push_words(datagram: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        datagram.extend_from_slice(&word.to_be_bytes());
    }
}
