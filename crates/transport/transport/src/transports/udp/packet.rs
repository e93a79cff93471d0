//! The wire format of datagrams.

/// The first bytes of every datagram.
const MAGIC: &[u8; 4] = b"SUDG";

/// The longest datagram, in bytes: the payload of an IPv6 packet of 1,280 bytes, which every path
/// carries. A longer datagram could be dropped by the path, which would end the connection.
const MAX_LEN: usize = 1232;

/// The length of a datagram's header.
const HEADER_LEN: usize = 4 + 1 + 8 + 8;

/// The bytes of a packet other than its payload, with IPv6 and UDP headers, which are longer than
/// IPv4's.
pub(super) const OVERHEAD: usize = HEADER_LEN + 48;

/// The longest payload, in bytes.
pub(super) const MAX_PAYLOAD: usize = MAX_LEN - HEADER_LEN;

/// The length of a request, so that no answer is longer.
const REQUEST_LEN: usize = 64;

/// The length of a cookie.
pub(super) const COOKIE_LEN: usize = 16;

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UdpTransportPacket<'a> {
    /// The number of the connection.
    pub(super) id: u64,
    pub(super) content: UdpTransportContent<'a>,
}

/// The content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UdpTransportContent<'a> {
    /// A client asks for a connection. The cookie is zero, or the listener's.
    Request { cookie: [u8; COOKIE_LEN] },
    /// The listener asks the client to repeat its request with this cookie.
    Cookie { cookie: [u8; COOKIE_LEN] },
    /// The connection is open; its receiver accepts datagrams before this number.
    Welcome { limit: u64 },
    /// A part of the stream.
    Data { number: u64, payload: &'a [u8] },
    /// All datagrams before this number were sent, and whether the stream has ended.
    Position { next: u64, is_end: bool },
    /// All datagrams before this number have arrived, and whether the end has; the receiver accepts
    /// datagrams before the limit.
    Ack { next: u64, has_end: bool, limit: u64 },
    /// This datagram is missing: the connection fails.
    Missing { number: u64 },
    /// The connection is closed or rejected. All datagrams before this number have arrived.
    Close { next: u64 },
}

impl<'a> UdpTransportPacket<'a> {
    /// Parses a datagram. `None` if it is not one of this protocol.
    pub(super) fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = datagram.strip_prefix(MAGIC)?.split_first()?;
        let (id, body) = number(rest)?;
        let content = match kind {
            0 if datagram.len() == REQUEST_LEN => {
                UdpTransportContent::Request { cookie: *body.first_chunk()? }
            }
            1 => UdpTransportContent::Cookie { cookie: body.try_into().ok()? },
            2 => UdpTransportContent::Welcome { limit: only_number(body)? },
            3 => {
                let (number, payload) = number(body)?;
                if payload.is_empty() || payload.len() > MAX_PAYLOAD {
                    return None;
                }
                UdpTransportContent::Data { number, payload }
            }
            4 => {
                let (next, flag) = number(body)?;
                UdpTransportContent::Position { next, is_end: bit(flag)? }
            }
            5 => {
                let (next, rest) = number(body)?;
                let (limit, flag) = number(rest)?;
                UdpTransportContent::Ack { next, has_end: bit(flag)?, limit }
            }
            6 => UdpTransportContent::Missing { number: only_number(body)? },
            7 => UdpTransportContent::Close { next: only_number(body)? },
            _ => return None,
        };
        Some(Self { id, content })
    }

    /// Appends the packet to a datagram.
    pub(super) fn write(&self, datagram: &mut Vec<u8>) {
        let kind = match self.content {
            UdpTransportContent::Request { .. } => 0,
            UdpTransportContent::Cookie { .. } => 1,
            UdpTransportContent::Welcome { .. } => 2,
            UdpTransportContent::Data { .. } => 3,
            UdpTransportContent::Position { .. } => 4,
            UdpTransportContent::Ack { .. } => 5,
            UdpTransportContent::Missing { .. } => 6,
            UdpTransportContent::Close { .. } => 7,
        };
        datagram.extend_from_slice(MAGIC);
        datagram.push(kind);
        let mut push = |number: u64| datagram.extend_from_slice(&number.to_be_bytes());
        push(self.id);
        match self.content {
            UdpTransportContent::Request { cookie } => {
                datagram.extend_from_slice(&cookie);
                datagram.resize(REQUEST_LEN, 0);
            }
            UdpTransportContent::Cookie { cookie } => datagram.extend_from_slice(&cookie),
            UdpTransportContent::Welcome { limit } => push(limit),
            UdpTransportContent::Data { number, payload } => {
                push(number);
                datagram.extend_from_slice(payload);
            }
            UdpTransportContent::Position { next, is_end } => {
                push(next);
                datagram.push(is_end.into());
            }
            UdpTransportContent::Ack { next, has_end, limit } => {
                push(next);
                push(limit);
                datagram.push(has_end.into());
            }
            UdpTransportContent::Missing { number: only }
            | UdpTransportContent::Close { next: only } => push(only),
        }
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

fn only_number(bytes: &[u8]) -> Option<u64> {
    number(bytes).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number)
}

fn bit(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}
