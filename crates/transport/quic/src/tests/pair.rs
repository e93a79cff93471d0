//! A client and a listener's connection over a simulated path.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};
use sim::{
    LinkBottleneck, SimulatedLinkConditions, SimulatedLinkId, SimulatedNetwork, SimulationEvent,
};
use udp::streams::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection, UdpStreamEndpoint as _,
    UdpStreamPhase, UdpStreamRead,
};

use crate::connection::QuicConnection;
use crate::{QuicConfig, QuicEndpoint, QuicPeerPolicy};

/// Both directions of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) delay: Duration,
    pub(super) loss_permille: u64,
    pub(super) rate_bps: Option<u64>,
}

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1000);
const MOVED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), 77);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 2000);

/// The configurations of a client and of a server.
pub(super) fn config() -> (QuicConfig, QuicConfig) {
    let [client, server] = [1, 2].map(|number| Arc::new(IdentitySecretKey::new(&[number; 32])));
    let (of_client, of_server) = (client.public(), server.public());
    let listener = Some(of_server);
    (
        QuicConfig { listener, ..QuicConfig::new(client, QuicPeerPolicy::Only(vec![of_server])) },
        QuicConfig { listener, ..QuicConfig::new(server, QuicPeerPolicy::Only(vec![of_client])) },
    )
}

/// The two ends of a connection.
pub(super) struct Pair {
    network: SimulatedNetwork<()>,
    /// To the server and to the client.
    links: [SimulatedLinkId; 2],
    client: Box<dyn UdpStreamConnection>,
    server: Option<Box<dyn UdpStreamConnection>>,
    endpoint: QuicEndpoint,
    client_moves_at: Duration,
}

impl Pair {
    /// Completes the handshake.
    pub(super) fn connect(
        seed: u64,
        path: Path,
        client: &QuicConfig,
        server: &QuicConfig,
    ) -> Result<Self, String> {
        let mut network = SimulatedNetwork::new(seed);
        let links = [(); 2].map(|()| {
            let link = network.add_link(path.delay, path.delay);
            *network.conditions_mut(link) = SimulatedLinkConditions {
                loss_permille: path.loss_permille,
                bottleneck: path.rate_bps.map(|rate_bps| LinkBottleneck {
                    rate_bps,
                    max_queue: Duration::from_millis(50),
                    is_policed: false,
                }),
                ..SimulatedLinkConditions::delayed(path.delay, path.delay)
            };
            link
        });
        let random = [u8::try_from(seed).unwrap(); 32];
        let client = QuicConnection::connect(SERVER, client, Some(random), network.now()).unwrap();
        let endpoint = QuicEndpoint::new(server, Some(random)).unwrap();
        let mut pair = Self {
            network,
            links,
            client: Box::new(client),
            server: None,
            endpoint,
            client_moves_at: Duration::MAX,
        };
        loop {
            if let Some(error) = pair.client.error() {
                return Err(error.to_string());
            }
            let is_open = |end: &dyn UdpStreamConnection| end.state().phase == UdpStreamPhase::Open;
            if is_open(&*pair.client) && pair.server.as_deref().is_some_and(is_open) {
                return Ok(pair);
            }
            pair.step();
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.network.now()
    }

    /// From then on, the client sends from another address.
    pub(super) fn client_moves_at(&mut self, at: Duration) {
        self.client_moves_at = at;
    }

    /// From now on, all datagrams are lost.
    pub(super) fn cut(&mut self) {
        for link in self.links {
            self.network.conditions_mut(link).loss_permille = 1000;
        }
    }

    /// The keys by which the client and the server know each other.
    pub(super) fn peer_keys(&self) -> [IdentityPublicKey; 2] {
        let server = self.server.as_ref().unwrap();
        [self.client.peer_key(), server.peer_key()]
            .map(|key| IdentityPublicKey::from_bytes(&key.unwrap()).unwrap())
    }

    /// Runs until the client fails.
    pub(super) fn fail(&mut self) -> String {
        loop {
            if let Err(error) = self.client.read(&mut [0; 100], self.network.now()) {
                return error.to_string();
            }
            self.step();
        }
    }

    /// Sends these numbers of bytes to the server and to the client at the same time, reads them,
    /// and closes.
    pub(super) fn transfer(&mut self, lens: [usize; 2]) {
        let (mut written, mut read, mut is_whole) = ([0; 2], [0; 2], [false; 2]);
        let mut buffer = vec![0; 1 << 16];
        let byte = |at: usize| (at * 7 + at / 251).to_le_bytes()[0];
        while is_whole != [true, true] {
            let now = self.network.now();
            for end in 0..2 {
                let connection =
                    if end == 0 { &mut self.client } else { self.server.as_mut().unwrap() };
                while written[end] < lens[end] {
                    let bytes: Vec<u8> = (written[end]..lens[end]).take(5000).map(byte).collect();
                    match connection.write(&bytes, now).unwrap() {
                        0 => break,
                        count => written[end] += count,
                    }
                }
                if written[end] == lens[end] {
                    connection.finish(now);
                }
                loop {
                    match connection.read(&mut buffer, now).unwrap() {
                        UdpStreamRead::Bytes(count) => {
                            for &is in &buffer[..count] {
                                assert_eq!(is, byte(read[end]));
                                read[end] += 1;
                            }
                        }
                        UdpStreamRead::Nothing => break,
                        UdpStreamRead::End => {
                            assert_eq!(read[end], lens[1 - end]);
                            is_whole[end] = true;
                            break;
                        }
                    }
                }
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let mut deadline = Duration::MAX;
        for end in 0..2 {
            let connection = match end {
                0 => &mut self.client,
                _ => match &mut self.server {
                    Some(server) => server,
                    None => continue,
                },
            };
            let mut datagram = Vec::new();
            while connection.poll_transmit(self.network.now(), &mut datagram).is_some() {
                self.network.send_datagram(self.links[end], std::mem::take(&mut datagram));
            }
            deadline = deadline.min(connection.poll_timeout().unwrap_or(Duration::MAX));
        }
        assert!(self.network.now() < Duration::from_secs(300), "it hangs");
        match self.network.next_event_until(deadline) {
            Some(SimulationEvent::Arrived { link, bytes }) => self.handle(link, &bytes),
            Some(_) => {}
            None => {
                let now = self.network.now();
                self.client.handle_timeout(now);
                if let Some(server) = &mut self.server {
                    server.handle_timeout(now);
                }
            }
        }
    }

    fn handle(&mut self, link: SimulatedLinkId, bytes: &[u8]) {
        let now = self.network.now();
        if link == self.links[1] {
            let datagram = ReceivedDatagram { from: SERVER, bytes, arrived_at: now };
            return self.client.handle_datagram(now, &datagram);
        }
        let from = if now < self.client_moves_at { CLIENT } else { MOVED };
        let datagram = ReceivedDatagram { from, bytes, arrived_at: now };
        match self.endpoint.handle_datagram(now, &datagram, ListenerLoad::Light) {
            DatagramRouting::To(_) => {
                if let Some(server) = &mut self.server {
                    server.handle_datagram(now, &datagram);
                }
            }
            DatagramRouting::Accept { connection, .. } => self.server = Some(connection),
            DatagramRouting::Answer(answer) | DatagramRouting::Refuse { answer, .. } => {
                self.network.send_datagram(self.links[1], answer);
            }
            DatagramRouting::NotMine | DatagramRouting::Nothing => {}
        }
    }
}
