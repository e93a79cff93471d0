//! The listening side of a socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use ::udp::cookies::AddressCookies;
use ::udp::streams::{DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamEndpoint};

use super::connection::{UdpTransportConnection, UdpTransportSettings};
use super::packet::{COOKIE_LEN, UdpTransportContent, UdpTransportPacket};

/// The period of cookies. A cookie is valid for one to two periods.
const COOKIE_PERIOD: Duration = Duration::from_secs(60);

/// Accepts connections on a UDP socket.
pub(super) struct UdpTransportListener {
    settings: UdpTransportSettings,
    cookies: AddressCookies,
    /// The clients' addresses.
    connections: HashMap<u64, SocketAddr>,
}

impl UdpTransportListener {
    /// Creates a listener. `secret` must be random: cookies are derived from it.
    pub(super) fn new(settings: UdpTransportSettings, secret: &[u8; 32]) -> Self {
        let cookies = AddressCookies::new(secret, COOKIE_PERIOD);
        Self { settings, cookies, connections: HashMap::new() }
    }

    fn accept(
        &mut self,
        now: Duration,
        from: SocketAddr,
        id: u64,
        cookie: [u8; COOKIE_LEN],
        load: ListenerLoad,
    ) -> DatagramRouting {
        let has_proved_address = self.cookies.verify(now, from, &[], &cookie);
        let answer = match load {
            ListenerLoad::Full => UdpTransportContent::Close { next: 0 },
            ListenerLoad::Heavy if !has_proved_address => {
                UdpTransportContent::Cookie { cookie: self.cookies.make(now, from, &[]) }
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
