//! A client and a listener's connection over a simulated path.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sim::{
    LinkBottleneck, SeededRng, SimulatedLinkConditions, SimulatedLinkId, SimulatedNetwork,
    SimulationEvent,
};

use super::super::{
    SabulClientHandshake, SabulConfig, SabulConnectOutcome, SabulConnectRequest, SabulConnection,
    SabulListener, SabulListenerAction, SabulReadOutcome, SabulStatistics,
};

/// Both directions of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) min_delay: Duration,
    pub(super) max_delay: Duration,
    pub(super) loss_permille: u64,
    pub(super) duplication_permille: u64,
    pub(super) rate_bps: Option<u64>,
}

impl Path {
    pub(super) fn perfect(delay: Duration) -> Self {
        Self {
            min_delay: delay,
            max_delay: delay,
            loss_permille: 0,
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
            loss_permille: [0, 1, 10, 100, 300][rng.index(5)],
            duplication_permille: [0, 0, 10, 200][rng.index(4)],
            rate_bps: [None, Some(1_000_000), Some(20_000_000), Some(1_000_000_000)][rng.index(4)],
        }
    }

    pub(super) fn conditions(&self) -> SimulatedLinkConditions {
        SimulatedLinkConditions {
            loss_permille: self.loss_permille,
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

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1000);
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// The two ends of a connection.
pub(super) struct Pair {
    pub(super) network: SimulatedNetwork<()>,
    /// To the server and to the client.
    pub(super) links: [SimulatedLinkId; 2],
    /// The client's and the server's.
    pub(super) ends: [SabulConnection; 2],
    /// Makes datagrams that arrive in addition to each one.
    attacker: Option<Attacker>,
    /// Changes what arrives at the client, or keeps it from arriving.
    filter: Option<Filter>,
}

/// Changes a datagram. Returns whether it arrives.
pub(super) type Filter = Box<dyn FnMut(&mut [u8]) -> bool>;

/// Makes datagrams of one that it has seen.
pub(super) type Attacker = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>>>;

impl Pair {
    /// Completes the handshake, with large buffers.
    pub(super) fn connect(seed: u64, path: Path) -> Self {
        let config =
            SabulConfig { send_buffer: 1 << 27, receive_buffer: 1 << 27, ..SabulConfig::default() };
        Self::connect_with(seed, path, config)
    }

    /// Completes the handshake, in at most a minute.
    pub(super) fn connect_with(seed: u64, path: Path, config: SabulConfig) -> Self {
        let config = SabulConfig { connect_timeout: Duration::from_secs(60), ..config };
        let mut network = SimulatedNetwork::new(seed);
        let links = [(); 2].map(|()| {
            let link = network.add_link(path.min_delay, path.max_delay);
            *network.conditions_mut(link) = path.conditions();
            link
        });
        let first = [u32::MAX, 5][(seed % 2) as usize];
        let mut connecting = SabulClientHandshake::new(config, SERVER, [7, first], network.now());
        let listener = SabulListener::new(config, [3; 32]);
        let mut server: Option<(SabulConnectRequest, SabulConnection)> = None;
        loop {
            let now = network.now();
            let mut datagram = Vec::new();
            if connecting.poll_transmit(now, &mut datagram) {
                network.send_datagram(links[0], datagram);
            }
            if let Some((_, connection)) = &mut server {
                send_all(&mut network, links[1], connection);
            }
            let Some(event) = network.next_event_until(connecting.poll_timeout()) else {
                connecting.handle_timeout(network.now()).unwrap();
                continue;
            };
            let SimulationEvent::Arrived { link, bytes } = event else { continue };
            let now = network.now();
            if link == links[1] {
                match connecting.handle_datagram(now, &bytes) {
                    SabulConnectOutcome::Yes(client) => {
                        let (_, server) = server.take().unwrap();
                        let ends = [*client, server];
                        return Self { network, links, ends, attacker: None, filter: None };
                    }
                    SabulConnectOutcome::Failed(error) => panic!("seed {seed}: {error}"),
                    SabulConnectOutcome::NotYet => {}
                }
                continue;
            }
            match listener.handle_datagram(now, CLIENT, &bytes) {
                SabulListenerAction::Answer(answer) => {
                    network.send_datagram(links[1], answer);
                }
                SabulListenerAction::Request(request) => match &mut server {
                    Some((known, connection)) if *known == request => connection.respond(),
                    _ => {
                        let connection = listener.accept(&request, CLIENT.ip(), 9, now);
                        server = Some((request, connection));
                    }
                },
                SabulListenerAction::Nothing => panic!("seed {seed}: not a request"),
            }
        }
    }

    /// From now on an attacker sends to both ends.
    pub(super) fn attack(&mut self, attacker: Attacker) {
        self.attacker = Some(attacker);
    }

    /// From now on changes what arrives at the client.
    pub(super) fn filter(&mut self, filter: Filter) {
        self.filter = Some(filter);
    }

    /// Runs the network until `at`, whether or not the connection fails.
    pub(super) fn run_until(&mut self, at: Duration) {
        while self.network.now() < at && self.ends.iter().any(|end| end.poll_timeout().is_some()) {
            for end in 0..2 {
                let _ = self.ends[end].write(&[0; 1000]);
                let _ = self.ends[end].read(&mut [0; 4000], self.network.now());
                send_all(&mut self.network, self.links[end], &mut self.ends[end]);
            }
            self.step(0);
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.network.now()
    }

    /// Sends `len` random bytes in both directions at once, reads them, and closes.
    pub(super) fn transfer(&mut self, seed: u64, len: usize) {
        self.exchange(seed, [len, len]);
    }

    /// Sends `len` random bytes from the client to the server, and closes.
    pub(super) fn send(&mut self, seed: u64, len: usize) {
        self.exchange(seed, [len, 0]);
    }

    pub(super) fn statistics(&self) -> [SabulStatistics; 2] {
        self.ends.each_ref().map(SabulConnection::statistics)
    }

    /// Sends random bytes in both directions at once, reads them, and closes.
    fn exchange(&mut self, seed: u64, lens: [usize; 2]) {
        let mut rng = SeededRng::new(seed ^ 0xdead);
        let streams = lens.map(|len| {
            let mut bytes = vec![0; len];
            for word in bytes.chunks_mut(8) {
                word.copy_from_slice(&rng.below(u64::MAX).to_le_bytes()[..word.len()]);
            }
            bytes
        });
        let (mut written, mut read) = ([0, 0], [Vec::new(), Vec::new()]);
        let mut is_ended = [false, false];
        let mut buffer = vec![0; 1 << 16];
        while is_ended != [true, true] {
            for end in 0..2 {
                let now = self.network.now();
                let (own, other) = (&streams[end], &streams[1 - end]);
                let connection = &mut self.ends[end];
                if written[end] < own.len() && !connection.is_over() {
                    written[end] += connection.write(&own[written[end]..]).unwrap();
                }
                while let SabulReadOutcome::Bytes(count) = connection
                    .read(&mut buffer, now)
                    .unwrap_or_else(|error| panic!("seed {seed}: {error}"))
                {
                    read[end].extend_from_slice(&buffer[..count]);
                }
                let has_all = read[end].len() == other.len() && written[end] == own.len();
                if has_all && connection.is_flushed() {
                    connection.close(now);
                }
                is_ended[end] |= has_all && (connection.is_flushed() || connection.is_over());
                send_all(&mut self.network, self.links[end], connection);
            }
            self.step(seed);
        }
        for end in 0..2 {
            assert!(read[end] == streams[1 - end], "seed {seed}: another stream");
        }
    }

    fn step(&mut self, seed: u64) {
        let deadline = self.ends.iter().filter_map(SabulConnection::poll_timeout).min();
        let Some(deadline) = deadline else { return };
        assert!(self.network.now() < Duration::from_secs(1000), "seed {seed}: it takes too long");
        match self.network.next_event_until(deadline) {
            Some(SimulationEvent::Arrived { link, mut bytes }) => {
                let end = usize::from(link == self.links[0]);
                if let (0, Some(filter)) = (end, &mut self.filter)
                    && !filter(&mut bytes)
                {
                    return;
                }
                if let Some(attacker) = &mut self.attacker {
                    for datagram in attacker(&bytes) {
                        self.ends[end].handle_datagram(self.network.now(), &datagram);
                    }
                }
                self.ends[end].handle_datagram(self.network.now(), &bytes);
            }
            Some(_) => {}
            None => {
                for end in &mut self.ends {
                    end.handle_timeout(self.network.now());
                }
            }
        }
    }
}

fn send_all(
    network: &mut SimulatedNetwork<()>,
    link: SimulatedLinkId,
    connection: &mut SabulConnection,
) {
    loop {
        let mut datagram = Vec::new();
        if !connection.poll_transmit(network.now(), &mut datagram) {
            return;
        }
        network.send_datagram(link, datagram);
    }
}
