use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use udp::streams::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection, UdpStreamEndpoint as _,
    UdpStreamPhase,
};

use super::SabulEndpoint;
use super::connection::SabulStreamConnection;
use crate::protocol::{SabulClientHandshake, SabulConfig};

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1000);
const MOVED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), 77);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 2000);

/// A client at an address, and a listener with its connection.
struct Pair {
    now: Duration,
    address: SocketAddr,
    client: SabulStreamConnection,
    endpoint: SabulEndpoint,
    server: Option<Box<dyn UdpStreamConnection>>,
    load: ListenerLoad,
}

impl Pair {
    fn new(load: ListenerLoad) -> Self {
        let config = SabulConfig::default();
        let now = Duration::from_secs(1);
        let connecting = SabulClientHandshake::new(config, SERVER.ip(), [7, 8], now);
        let client = SabulStreamConnection::connecting(connecting, SERVER);
        let endpoint = SabulEndpoint::new(config).unwrap();
        Self { now, address: CLIENT, client, endpoint, server: None, load }
    }

    /// Lets both ends send what is pending, and then advances the time to the next event.
    fn step(&mut self) {
        let (now, mut datagram) = (self.now, Vec::new());
        while self.client.poll_transmit(now, &mut datagram).is_some() {
            let sent = ReceivedDatagram { from: self.address, bytes: &datagram, arrived_at: now };
            match self.endpoint.handle_datagram(now, &sent, self.load) {
                DatagramRouting::To(_) => self.server.as_mut().unwrap().handle_datagram(now, &sent),
                DatagramRouting::Answer(answer) | DatagramRouting::Refuse { answer, .. } => {
                    self.answer(&answer);
                }
                DatagramRouting::Accept { connection, .. } => self.server = Some(connection),
                DatagramRouting::NotMine | DatagramRouting::Nothing => {}
            }
            datagram.clear();
        }
        while let Some(server) = &mut self.server
            && server.poll_transmit(now, &mut datagram).is_some()
        {
            self.answer(&datagram);
            datagram.clear();
        }
        let server = self.server.as_ref().and_then(|server| server.poll_timeout());
        let next = [self.client.poll_timeout(), server].into_iter().flatten().min();
        self.now = self.now.max(next.unwrap_or_default());
        self.client.handle_timeout(self.now);
        if let Some(server) = &mut self.server {
            server.handle_timeout(self.now);
        }
    }

    /// Delivers `bytes` to the client's first address as long as the client has it.
    fn answer(&mut self, bytes: &[u8]) {
        if self.address == CLIENT {
            let datagram = ReceivedDatagram { from: SERVER, bytes, arrived_at: self.now };
            self.client.handle_datagram(self.now, &datagram);
        }
    }
}

#[test]
fn a_client_whose_address_changes_is_an_error_at_both_ends_in_time() {
    let mut pair = Pair::new(ListenerLoad::Light);
    while pair.server.is_none() || pair.client.state().phase != UdpStreamPhase::Open {
        pair.step();
    }
    pair.address = MOVED;
    let moved_at = pair.now;
    pair.client.write(&[1; 5000], pair.now).unwrap();
    let ends = |pair: &Pair| [pair.client.error(), pair.server.as_ref().unwrap().error()];
    while ends(&pair).iter().any(Option::is_none) {
        pair.step();
        assert!(pair.now < moved_at + Duration::from_secs(20));
    }
    for error in ends(&pair).into_iter().flatten() {
        assert_eq!(error.to_string(), "the peer was silent for 15 s");
    }
}

#[test]
fn a_listener_without_room_refuses() {
    let mut pair = Pair::new(ListenerLoad::Full);
    while pair.client.state().phase == UdpStreamPhase::Connecting {
        pair.step();
    }
    let error = pair.client.error().unwrap();
    assert_eq!(error.to_string(), "the listener refused the connection");
    assert!(pair.server.is_none());
}
