//! A client and a listener over a simulated path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use random::RandomGenerator;
use sim::{
    LinkBottleneck, SeededRng, SimulatedLinkConditions, SimulatedLinkId, SimulatedNetwork,
    SimulationEvent,
};
use udp::streams::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection as _, UdpStreamEndpoint,
    UdpStreamPhase, UdpStreamRead, UdpStreamStatistics,
};

use super::super::{
    BurstConfig, BurstConnection, BurstListener, BurstListenerSecurity, BurstSecurity, Error,
};

/// Both directions of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) min_delay: Duration,
    pub(super) max_delay: Duration,
    pub(super) loss_ppm: u64,
    pub(super) duplication_permille: u64,
    pub(super) rate_bps: Option<u64>,
}

impl Path {
    pub(super) fn perfect(delay: Duration) -> Self {
        Self {
            min_delay: delay,
            max_delay: delay,
            loss_ppm: 0,
            duplication_permille: 0,
            rate_bps: None,
        }
    }

    /// Any path.
    pub(super) fn drawn(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let min_delay = rng.duration_between(Duration::from_micros(10), Duration::from_millis(150));
        Self {
            min_delay,
            max_delay: min_delay + rng.duration_between(Duration::ZERO, Duration::from_millis(20)),
            loss_ppm: [0, 500, 10_000, 100_000, 300_000][rng.index(5)],
            duplication_permille: [0, 0, 10, 200][rng.index(4)],
            rate_bps: [None, Some(1_000_000), Some(20_000_000), Some(1_000_000_000)][rng.index(4)],
        }
    }

    fn conditions(&self) -> SimulatedLinkConditions {
        SimulatedLinkConditions {
            duplication_permille: self.duplication_permille,
            bottleneck: self.rate_bps.map(|rate_bps| LinkBottleneck {
                rate_bps,
                max_queue: Duration::from_millis(100),
                is_policed: false,
            }),
            ..SimulatedLinkConditions::delayed(self.min_delay, self.max_delay)
        }
    }
}

/// The bytes that a datagram takes of a link beside its own.
const HEADERS: usize = 28;

/// The client's and the listener's address. The client's port changes with its address.
pub(super) const LISTENER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)), 7);

pub(super) fn client_address(port: u16) -> SocketAddr {
    ([192, 0, 2, 1], port).into()
}

/// Makes datagrams of one that it has seen.
pub(super) type Attacker = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>>>;

/// The two ends of a connection.
pub(super) struct Pair {
    network: SimulatedNetwork<()>,
    /// Which datagrams are lost or late.
    losses: SeededRng,
    loss_ppm: u64,
    late: (u64, Duration),
    /// To the listener and to the client.
    links: [SimulatedLinkId; 2],
    client: BurstConnection,
    listener: BurstListener,
    /// The listener's end.
    server: Option<(u64, Box<dyn udp::streams::UdpStreamConnection>)>,
    /// Listener's ends of hellos, whose client is not proven.
    unproven: Vec<(u64, Box<dyn udp::streams::UdpStreamConnection>)>,
    /// The client's port.
    port: u16,
    moves_at: Option<Duration>,
    /// The listener's.
    load: ListenerLoad,
    /// Makes datagrams that arrive besides each one.
    attacker: Option<Attacker>,
}

impl Pair {
    /// A client that is about to send its hello.
    pub(super) fn connect(seed: u64, path: Path, is_encrypted: bool) -> Self {
        let mut network = SimulatedNetwork::new(seed);
        let links = [(); 2].map(|()| {
            let link = network.add_link(path.min_delay, path.max_delay);
            *network.conditions_mut(link) = path.conditions();
            link
        });
        let config = BurstConfig {
            connect_timeout: Duration::from_secs(60),
            silence_timeout: Duration::from_secs(60),
            ..BurstConfig::default()
        };
        let (one, two) = (IdentitySecretKey::new(&[1; 32]), IdentitySecretKey::new(&[2; 32]));
        let (security, peer) = if is_encrypted {
            let expected = one.public();
            let public = two.public();
            let known = Arc::new(move |key: &keys::IdentityPublicKey| *key == expected);
            (BurstSecurity::Noise(&one, public), BurstListenerSecurity::Noise(Arc::new(two), known))
        } else {
            (BurstSecurity::Insecure, BurstListenerSecurity::Insecure)
        };
        let mut generator = RandomGenerator::seeded().unwrap();
        let client =
            BurstConnection::connect(config, LISTENER, &security, &mut generator, network.now());
        let listener = BurstListener::new(config, peer, generator).unwrap();
        Self {
            network,
            losses: SeededRng::new(seed ^ 0x1055),
            loss_ppm: path.loss_ppm,
            late: (0, Duration::ZERO),
            links,
            client: client.unwrap(),
            listener,
            server: None,
            unproven: Vec::new(),
            port: 1,
            moves_at: None,
            load: ListenerLoad::Light,
            attacker: None,
        }
    }

    /// From now on an attacker sends to both ends.
    pub(super) fn attack(&mut self, attacker: Attacker) {
        self.attacker = Some(attacker);
    }

    /// From this time on the client sends from another address.
    pub(super) fn move_client(&mut self, at: Duration) {
        self.moves_at = Some(at);
    }

    /// Datagrams take another path from now on.
    pub(super) fn change_path(&mut self, path: Path) {
        self.loss_ppm = path.loss_ppm;
        for link in self.links {
            *self.network.conditions_mut(link) = path.conditions();
        }
    }

    /// Nothing arrives any more.
    pub(super) fn cut(&mut self) {
        self.loss_ppm = 1_000_000;
    }

    /// From now on so many of a million datagrams arrive later by this time.
    pub(super) fn reorder(&mut self, late_ppm: u64, by: Duration) {
        self.late = (late_ppm, by);
    }

    /// Why an end has failed.
    pub(super) fn error(&self, end: usize) -> Option<Error> {
        let error = match end {
            0 => self.client.error()?,
            _ => self.server.as_ref()?.1.error()?,
        };
        Some(error.downcast().unwrap())
    }

    /// The client's program writes as much as it can at once.
    pub(super) fn write_much(&mut self) {
        let now = self.now();
        let bytes = vec![7; 1 << 20];
        while self.client.write(&bytes, now).unwrap() > 0 {}
    }

    /// Lets the network run, and the listener's program read.
    pub(super) fn run_until(&mut self, at: Duration) {
        let mut buffer = vec![0; 1 << 16];
        while self.now() < at {
            if let Some((_, server)) = &mut self.server {
                let now = self.network.now();
                while matches!(server.read(&mut buffer, now), Ok(UdpStreamRead::Bytes(_))) {}
            }
            self.transmit();
            self.step(0);
        }
    }

    /// The listener has so much to do.
    pub(super) fn set_load(&mut self, load: ListenerLoad) {
        self.load = load;
    }

    pub(super) fn now(&self) -> Duration {
        self.network.now()
    }

    pub(super) fn statistics(&self) -> Vec<UdpStreamStatistics> {
        let server = self.server.as_ref().map(|(_, server)| server.statistics());
        [Some(self.client.statistics()), server].into_iter().flatten().collect()
    }

    /// Sends so many random bytes from the client and from the listener's end at once, and waits
    /// until all have arrived and both ends know it. Returns how long that took.
    pub(super) fn exchange(&mut self, seed: u64, lens: [usize; 2]) -> Duration {
        let began = self.now();
        let mut rng = SeededRng::new(seed ^ 0xdead);
        let streams = lens.map(|len| {
            let mut bytes = vec![0; len];
            for word in bytes.chunks_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
            }
            bytes
        });
        let (mut written, mut read) = ([0, 0], [0, 0]);
        let mut has_all = [false, false];
        let mut is_flushed = [false, false];
        let mut buffer = vec![0; 1 << 16];
        loop {
            for end in 0..2 {
                let now = self.network.now();
                let connection: &mut dyn udp::streams::UdpStreamConnection = match &mut self.server
                {
                    _ if end == 0 => &mut self.client,
                    Some((_, server)) => &mut **server,
                    None => continue,
                };
                if let Some(error) = connection.error() {
                    panic!("seed {seed}: {error}");
                }
                let (own, other) = (&streams[end], &streams[1 - end]);
                let is_over = connection.state().phase == UdpStreamPhase::Over;
                if written[end] < own.len() {
                    written[end] += connection.write(&own[written[end]..], now).unwrap();
                }
                if written[end] == own.len() && !is_over {
                    connection.finish(now);
                }
                while !has_all[end] {
                    match connection.read(&mut buffer, now).unwrap() {
                        UdpStreamRead::Bytes(count) => {
                            let at = read[end];
                            assert!(buffer[..count] == other[at..at + count], "seed {seed}");
                            read[end] += count;
                        }
                        UdpStreamRead::Nothing => break,
                        UdpStreamRead::End => {
                            assert_eq!(read[end], other.len(), "seed {seed}");
                            has_all[end] = true;
                        }
                    }
                }
                is_flushed[end] = written[end] == own.len() && connection.is_flushed();
            }
            if has_all == [true, true] && is_flushed == [true, true] {
                return self.now().saturating_sub(began);
            }
            self.transmit();
            self.step(seed);
        }
    }

    /// Sends what both ends have to send.
    pub(super) fn transmit(&mut self) {
        let now = self.network.now();
        if self.moves_at.is_some_and(|at| now >= at) {
            self.moves_at = None;
            self.port += 1;
        }
        let mut datagram = Vec::new();
        while self.client.poll_transmit(now, &mut datagram) == Some(LISTENER) {
            self.put(0, std::mem::take(&mut datagram));
        }
        let mut datagrams = Vec::new();
        for (_, server) in self.server.iter_mut().chain(&mut self.unproven) {
            while let Some(to) = server.poll_transmit(now, &mut datagram) {
                // What is for another address is lost.
                if to == client_address(self.port) {
                    datagrams.push(std::mem::take(&mut datagram));
                }
                datagram.clear();
            }
        }
        for datagram in datagrams {
            self.put(1, datagram);
        }
    }

    fn put(&mut self, link: usize, mut datagram: Vec<u8>) {
        if self.losses.below(1_000_000) < self.loss_ppm {
            return;
        }
        datagram.resize(datagram.len() + HEADERS, 0);
        let (late_ppm, by) = self.late;
        let is_late = late_ppm > 0 && self.losses.below(1_000_000) < late_ppm;
        let conditions = self.network.conditions_mut(self.links[link]);
        let delays = [conditions.min_delay, conditions.max_delay];
        if is_late {
            conditions.min_delay += by;
            conditions.max_delay += by;
        }
        self.network.send_datagram(self.links[link], datagram);
        let conditions = self.network.conditions_mut(self.links[link]);
        [conditions.min_delay, conditions.max_delay] = delays;
    }

    /// The next event.
    pub(super) fn step(&mut self, seed: u64) {
        let servers = self.server.iter().chain(&self.unproven);
        let timeouts = servers.filter_map(|(_, server)| server.poll_timeout());
        let Some(deadline) = timeouts.chain(self.client.poll_timeout()).min() else {
            panic!("seed {seed}: both are over");
        };
        assert!(self.now() < Duration::from_secs(2000), "seed {seed}: {:?}", self.client);
        match self.network.next_event_until(deadline) {
            Some(SimulationEvent::Arrived { link, mut bytes }) => {
                bytes.truncate(bytes.len() - HEADERS);
                let end = usize::from(link == self.links[1]);
                if let Some(mut attacker) = self.attacker.take() {
                    for datagram in attacker(&bytes) {
                        self.deliver(end, &datagram);
                    }
                    self.attacker = Some(attacker);
                }
                self.deliver(end, &bytes);
            }
            Some(_) => {}
            None => {
                let now = self.network.now();
                self.client.handle_timeout(now);
                for (id, server) in self.server.iter_mut().chain(&mut self.unproven) {
                    server.handle_timeout(now);
                    if server.poll_timeout().is_none() {
                        self.listener.forget(*id);
                    }
                }
            }
        }
    }

    /// A datagram arrives at the listener (0) or the client (1).
    fn deliver(&mut self, end: usize, bytes: &[u8]) {
        let now = self.network.now();
        let from = if end == 0 { client_address(self.port) } else { LISTENER };
        let datagram = ReceivedDatagram { from, bytes, arrived_at: now };
        if end == 1 {
            self.client.handle_datagram(now, &datagram);
            return;
        }
        match self.listener.handle_datagram(now, &datagram, self.load) {
            DatagramRouting::Accept { id, connection } => match &self.server {
                Some(_) => self.listener.forget(id),
                // A client whose address changes makes several.
                None => self.unproven.push((id, connection)),
            },
            DatagramRouting::To(id) => {
                let ends = self.server.iter_mut().chain(&mut self.unproven);
                for (_, server) in ends.filter(|(own, _)| *own == id) {
                    server.handle_datagram(now, &datagram);
                }
                let is_open = |(_, server): &(u64, Box<dyn udp::streams::UdpStreamConnection>)| {
                    server.state().phase != UdpStreamPhase::Connecting
                };
                if let Some(at) = self.unproven.iter().position(is_open) {
                    self.server = Some(self.unproven.swap_remove(at));
                }
            }
            DatagramRouting::Answer(answer) | DatagramRouting::Refuse { answer, .. } => {
                self.put(1, answer);
            }
            DatagramRouting::NotMine | DatagramRouting::Nothing => {}
        }
    }
}
