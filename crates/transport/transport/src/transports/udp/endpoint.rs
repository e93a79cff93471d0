//! The listening side of a socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use ::udp::streams::{DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamEndpoint};
use keys::SharedKey;

use super::connection::{UdpTransportConnection, UdpTransportSettings};
use super::packet::{COOKIE_LEN, UdpTransportContent, UdpTransportPacket};

/// The period of cookies. A cookie is valid for one to two periods.
const COOKIE_PERIOD_SECS: u64 = 60;

/// Accepts connections on a UDP socket.
pub(super) struct UdpTransportListener {
    settings: UdpTransportSettings,
    secret: SharedKey,
    /// The clients' addresses.
    connections: HashMap<u64, SocketAddr>,
}

impl UdpTransportListener {
    /// Creates a listener. `secret` must be random: cookies are derived from it.
    pub(super) fn new(settings: UdpTransportSettings, secret: &[u8; 32]) -> Self {
        Self { settings, secret: SharedKey::new(secret), connections: HashMap::new() }
    }

    fn accept(
        &mut self,
        now: Duration,
        from: SocketAddr,
        id: u64,
        cookie: [u8; COOKIE_LEN],
        load: ListenerLoad,
    ) -> DatagramRouting {
        let period = now.as_secs() / COOKIE_PERIOD_SECS;
        let has_proved_address = [period, period.wrapping_sub(1)]
            .iter()
            .any(|&period| self.cookie(from, period) == cookie);
        let answer = match load {
            ListenerLoad::Full => UdpTransportContent::Close { next: 0 },
            ListenerLoad::Heavy if !has_proved_address => {
                UdpTransportContent::Cookie { cookie: self.cookie(from, period) }
            }
            ListenerLoad::Light | ListenerLoad::Heavy => {
                self.connections.insert(id, from);
                let connection =
                    Box::new(UdpTransportConnection::server(id, from, self.settings, now));
                return DatagramRouting::Accept { id, connection };
            }
        };
        let is_refused = matches!(answer, UdpTransportContent::Close { .. });
        let mut answered = Vec::new();
        UdpTransportPacket { id, content: answer }.write(&mut answered);
        if is_refused {
            let why = "too many connections wait to be accepted";
            DatagramRouting::Refuse { answer: answered, why }
        } else {
            DatagramRouting::Answer(answered)
        }
    }

    /// Bytes that only this listener can compute for an address and a period.
    fn cookie(&self, from: SocketAddr, period: u64) -> [u8; COOKIE_LEN] {
        let code = self.secret.authenticate(&[from.to_string().as_bytes(), &period.to_be_bytes()]);
        std::array::from_fn(|index| code[index])
    }
}

impl UdpStreamEndpoint for UdpTransportListener {
    fn protocol(&self) -> &'static str {
        "udp"
    }

    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting {
        let Some(UdpTransportPacket { id, content }) = UdpTransportPacket::parse(datagram.bytes)
        else {
            return DatagramRouting::NotMine;
        };
        match (self.connections.get(&id), content) {
            (Some(client), _) if *client == datagram.from => DatagramRouting::To(id),
            (None, UdpTransportContent::Request { cookie }) => {
                self.accept(now, datagram.from, id, cookie, load)
            }
            _ => DatagramRouting::Nothing,
        }
    }

    fn forget(&mut self, id: u64) {
        self.connections.remove(&id);
    }
}
