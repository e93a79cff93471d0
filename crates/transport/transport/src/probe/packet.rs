//! The packets of a probe. All numbers are big-endian.

use encoding::FieldReader;

use crate::model::TcpCongestionControl;

/// The first bytes of every packet.
pub(super) const MAGIC: [u8; 8] = *b"\x0fSunPrb1";

/// The length of every padded packet: packets of 1,280 bytes with any IP header, which every IPv6
/// path carries. So a path that drops longer packets does not seem to drop everything.
pub const MAX_PACKET_LEN: usize = 1232;

/// The length of the shortest packet: magic, kind, nonce, number.
const HEADER_LEN: usize = 19;

/// The length of a cookie.
pub(super) const COOKIE_LEN: usize = 16;

pub(super) type ProbeCookie = [u8; COOKIE_LEN];

/// The capabilities of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCapabilities {
    /// The bytes of a stream that its TCP send buffer holds.
    pub tcp_send_buffer: u64,
    /// The bytes of a stream that its TCP receive buffer holds.
    pub tcp_recv_buffer: u64,
    /// The bytes that its UDP receive buffer holds.
    pub udp_recv_buffer: u64,
    /// The rate at which it reads from a socket, in bytes/s.
    pub reading_rate: u64,
    /// The congestion control of its TCP.
    pub congestion: TcpCongestionControl,
    /// Whether it has MPTCP.
    pub has_mptcp: bool,
}

/// A packet without its magic. `nonce` is chosen at random by the client; `number` counts the
/// packets of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbePacket {
    pub(super) nonce: u64,
    pub(super) number: u16,
    pub(super) body: ProbePacketBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbePacketBody {
    /// Client: asks for a cookie. Padded to the length of the answer.
    Hello,
    /// Server: the cookie, and the server's capabilities.
    Welcome { cookie: ProbeCookie, host: HostCapabilities },
    /// Client: one of many packets that are sent at once, with `length` bytes in total.
    Train { cookie: ProbeCookie, length: u16 },
    /// Server: the arrival time of a packet of a train, in ns of the server's clock, and the length
    /// of that packet.
    Arrival { at_ns: u64, length: u16 },
    /// Client: asks for a packet of `length` bytes.
    Request { cookie: ProbeCookie, length: u16 },
    /// Server: a requested packet.
    Filler { length: u16 },
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const TRAIN: u8 = 3;
const ARRIVAL: u8 = 4;
const REQUEST: u8 = 5;
const FILLER: u8 = 6;

/// The length of a hello, and of its answer.
pub(super) const HELLO_LEN: usize = HEADER_LEN + COOKIE_LEN + 4 * 8 + 2;

/// The packets of a train are at least as long as their answers.
pub(super) const MIN_TRAIN_LEN: usize = HEADER_LEN + COOKIE_LEN;

/// Whether a datagram belongs to a probe.
pub(super) fn is_probe(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC)
}

impl ProbePacket {
    /// Parses a datagram; `None` if it is not a packet of a probe.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::new(datagram.strip_prefix(&MAGIC)?);
        let kind = fields.u8().ok()?;
        let nonce = fields.u64().ok()?;
        let number = fields.u16().ok()?;
        let whole = u16::try_from(datagram.len()).ok()?;
        let body = match kind {
            HELLO if datagram.len() == HELLO_LEN => ProbePacketBody::Hello,
            WELCOME if datagram.len() == HELLO_LEN => {
                let cookie = fields.take().ok()?;
                ProbePacketBody::Welcome { cookie, host: HostCapabilities::parse(&mut fields)? }
            }
            TRAIN if datagram.len() <= MAX_PACKET_LEN => {
                ProbePacketBody::Train { cookie: fields.take().ok()?, length: whole }
            }
            ARRIVAL => {
                let at_ns = fields.u64().ok()?;
                let length = fields.u16().ok()?;
                (fields.is_empty() && usize::from(length) <= MAX_PACKET_LEN)
                    .then_some(ProbePacketBody::Arrival { at_ns, length })?
            }
            REQUEST => {
                let cookie = fields.take().ok()?;
                let length = fields.u16().ok()?;
                let is_possible = (HEADER_LEN..=MAX_PACKET_LEN).contains(&usize::from(length));
                (fields.is_empty() && is_possible)
                    .then_some(ProbePacketBody::Request { cookie, length })?
            }
            FILLER if datagram.len() <= MAX_PACKET_LEN => ProbePacketBody::Filler { length: whole },
            _ => return None,
        };
        Some(Self { nonce, number, body })
    }

    /// Appends the packet to a datagram.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend(MAGIC);
        let kind = match self.body {
            ProbePacketBody::Hello => HELLO,
            ProbePacketBody::Welcome { .. } => WELCOME,
            ProbePacketBody::Train { .. } => TRAIN,
            ProbePacketBody::Arrival { .. } => ARRIVAL,
            ProbePacketBody::Request { .. } => REQUEST,
            ProbePacketBody::Filler { .. } => FILLER,
        };
        to.push(kind);
        to.extend(self.nonce.to_be_bytes());
        to.extend(self.number.to_be_bytes());
        match self.body {
            ProbePacketBody::Hello => to.resize(start + HELLO_LEN, 0),
            ProbePacketBody::Welcome { cookie, host } => {
                to.extend(cookie);
                host.write(to);
            }
            ProbePacketBody::Train { cookie, length } => {
                to.extend(cookie);
                to.resize(start + usize::from(length).max(MIN_TRAIN_LEN), 0);
            }
            ProbePacketBody::Arrival { at_ns, length } => {
                to.extend(at_ns.to_be_bytes());
                to.extend(length.to_be_bytes());
            }
            ProbePacketBody::Request { cookie, length } => {
                to.extend(cookie);
                to.extend(length.to_be_bytes());
            }
            ProbePacketBody::Filler { length } => {
                to.resize(start + usize::from(length).max(HEADER_LEN), 0);
            }
        }
    }
}

impl HostCapabilities {
    fn parse(fields: &mut FieldReader<'_>) -> Option<Self> {
        let mut number = || fields.u64().ok();
        let (tcp_send_buffer, tcp_recv_buffer) = (number()?, number()?);
        let (udp_recv_buffer, reading_rate) = (number()?, number()?);
        let [congestion, flags] = fields.take().ok()?;
        let congestion = match congestion {
            1 => TcpCongestionControl::Bbr,
            2 => TcpCongestionControl::Reno,
            _ => TcpCongestionControl::Cubic,
        };
        Some(Self {
            tcp_send_buffer,
            tcp_recv_buffer,
            udp_recv_buffer,
            reading_rate,
            congestion,
            has_mptcp: flags & 1 != 0,
        })
    }

    fn write(&self, to: &mut Vec<u8>) {
        for number in
            [self.tcp_send_buffer, self.tcp_recv_buffer, self.udp_recv_buffer, self.reading_rate]
        {
            to.extend(number.to_be_bytes());
        }
        to.push(match self.congestion {
            TcpCongestionControl::Cubic => 0,
            TcpCongestionControl::Bbr => 1,
            TcpCongestionControl::Reno => 2,
        });
        to.push(u8::from(self.has_mptcp));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host() -> impl Strategy<Value = HostCapabilities> {
        let congestion = prop_oneof![
            Just(TcpCongestionControl::Cubic),
            Just(TcpCongestionControl::Bbr),
            Just(TcpCongestionControl::Reno)
        ];
        (any::<[u64; 4]>(), congestion, any::<bool>()).prop_map(|(sizes, congestion, has_mptcp)| {
            let [tcp_send_buffer, tcp_recv_buffer, udp_recv_buffer, reading_rate] = sizes;
            HostCapabilities {
                tcp_send_buffer,
                tcp_recv_buffer,
                udp_recv_buffer,
                reading_rate,
                congestion,
                has_mptcp,
            }
        })
    }

    fn body() -> impl Strategy<Value = ProbePacketBody> {
        let length = 35..=1232_u16;
        let cookie = any::<ProbeCookie>();
        prop_oneof![
            Just(ProbePacketBody::Hello),
            (cookie, host()).prop_map(|(cookie, host)| ProbePacketBody::Welcome { cookie, host }),
            (cookie, length.clone())
                .prop_map(|(cookie, length)| ProbePacketBody::Train { cookie, length }),
            (any::<u64>(), length.clone())
                .prop_map(|(at_ns, length)| ProbePacketBody::Arrival { at_ns, length }),
            (cookie, length.clone())
                .prop_map(|(cookie, length)| ProbePacketBody::Request { cookie, length }),
            length.prop_map(|length| ProbePacketBody::Filler { length }),
        ]
    }

    proptest! {
        #[test]
        fn packets_are_read_as_they_were_written(nonce: u64, number: u16, body in body()) {
            let packet = ProbePacket { nonce, number, body };
            let mut bytes = Vec::new();
            packet.write(&mut bytes);
            prop_assert_eq!(ProbePacket::parse(&bytes), Some(packet));
            prop_assert!(is_probe(&bytes));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            ProbePacket::parse(&bytes);
            ProbePacket::parse(&[&MAGIC[..], &bytes].concat());
        }
    }
}
