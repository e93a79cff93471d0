//! A client and a server, datagrams in flight between them, and the attacker.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use model::ChannelSubset;
use random::RandomGenerator;
use sim::{SeededRng, SimulatedLinkId, SimulatedNetwork, SimulationEvent};
use sunder_remicss::MAX_CHANNELS;
use sunder_remicss::control::handshake::{
    ClientIdentity, SharedKey, TunnelClientEvent, TunnelClientRefusal, TunnelHandshakeClient,
    TunnelHandshakeServer, TunnelServerEvent,
};
use sunder_remicss::wire::keys::{DirectionKeys, POINT_LEN, TunnelKeys};
use sunder_remicss::wire::terms::TunnelTerms;
use sunder_remicss::wire::tokens::TOKEN_KEY_LEN;

use super::adversary::{Act, Adversary, Way};

/// The position of the key share in a List.
const KEY_SHARE: Range<usize> = 41..41 + 320;

/// The number of clients that are started, one after the other, when the previous one fails.
const ATTEMPTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A client completed.
    Completed,
    /// The server associated a client that did not complete.
    ServerOnly,
    /// No end was associated.
    Neither,
}

/// A link: its channel, its direction, and its apparent sender.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Route {
    channel: usize,
    way: Way,
    from: SocketAddr,
}

pub(crate) struct Scenario {
    rng: SeededRng,
    network: SimulatedNetwork<()>,
    /// The links, in the order of the network's.
    routes: Vec<(Route, SimulatedLinkId)>,
    n: usize,
    terms: TunnelTerms,
    key: Option<SharedKey>,
    client: TunnelHandshakeClient,
    server: TunnelHandshakeServer,
    adversary: Option<Adversary>,
    /// The outages of each channel, which are not an attack.
    off: Vec<Range<Duration>>,
    /// The sums of all clients' key shares, as far as they were sent, by client and channel.
    shares: Vec<Vec<Option<Vec<u8>>>>,
    completed: Option<TunnelKeys>,
    associated: Vec<(TunnelKeys, Vec<SocketAddr>)>,
    refusals: Vec<TunnelClientRefusal>,
}

/// The address of a client's, or an outsider's, end of a channel.
pub(crate) fn address(who: u8, channel: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, who], 1000 + u16::try_from(channel).unwrap()))
}

/// Whether the outgoing keys of each end are the incoming keys of the other.
pub(crate) fn keys_agree(client: &TunnelKeys, server: &TunnelKeys) -> bool {
    let agree = |one: &DirectionKeys, other: &DirectionKeys| {
        one.tokens.id() == other.tokens.id() && all_points(one) == all_points(other)
    };
    agree(&client.outgoing, &server.incoming) && agree(&client.incoming, &server.outgoing)
}

fn all_points(direction: &DirectionKeys) -> Vec<[u8; 8]> {
    let points = direction.points.as_ref().unwrap();
    (1..=u8::try_from(MAX_CHANNELS).unwrap()).map(|k| points.point(k)).collect()
}

fn generator() -> RandomGenerator {
    RandomGenerator::seeded().unwrap()
}

impl Scenario {
    pub(crate) fn new(seed: u64, n: u8, adversary: Option<Adversary>) -> Self {
        Self::of(seed, TunnelTerms::new(n, 1, true).unwrap(), adversary)
    }

    /// With these terms at both ends.
    pub(crate) fn of(seed: u64, terms: TunnelTerms, adversary: Option<Adversary>) -> Self {
        let mut rng = SeededRng::new(seed);
        let n = terms.channels();
        let addresses = (0..n.into()).map(|channel| address(0, channel)).collect();
        let key = rng.chance(50).then(|| SharedKey::new(&[7; 32]));
        let peer = key.clone().map_or(ClientIdentity::Addresses(addresses), ClientIdentity::Key);
        // At any time within a period of the cookies.
        let now = Duration::from_millis(1_000_000 + rng.below(10_000));
        let mut network = SimulatedNetwork::new(rng.next_u64());
        assert_eq!(network.next_event_until(now), None);
        Self {
            client: TunnelHandshakeClient::new(terms, key.clone(), &mut generator(), now).unwrap(),
            server: TunnelHandshakeServer::new(terms, peer, &mut generator()).unwrap(),
            network,
            routes: Vec::new(),
            n: n.into(),
            terms,
            off: vec![Duration::ZERO..Duration::ZERO; n.into()],
            key,
            rng,
            adversary,
            shares: vec![vec![None; n.into()]],
            completed: None,
            associated: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Chooses for each channel a temporary outage, a permanent one, or none.
    pub(crate) fn cut_channels(&mut self) {
        let now = self.network.now();
        for off in &mut self.off {
            let begin = now + Duration::from_millis(self.rng.below(8_000));
            let length = Duration::from_millis(self.rng.below(8_000));
            *off = match self.rng.below(4) {
                0 => begin..begin + length,
                1 => now..now + length,
                2 => Duration::ZERO..Duration::MAX,
                _ => Duration::ZERO..Duration::ZERO,
            };
        }
    }

    /// The number of channels of the association that a client has completed.
    pub(crate) fn members(&self) -> Option<usize> {
        self.completed.as_ref().map(|keys| keys.members.len())
    }

    pub(crate) fn saw(&self, reason: TunnelClientRefusal) -> bool {
        self.refusals.contains(&reason)
    }

    /// Runs until a client completes or all have failed, and then until nothing is in flight.
    pub(crate) fn run(&mut self) -> Outcome {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let key = self.key.clone();
                let now = self.network.now();
                let client =
                    TunnelHandshakeClient::new(self.terms, key, &mut generator(), now).unwrap();
                let channel = self.rng.index(self.n);
                self.client = client.without(ChannelSubset::EMPTY.with(channel));
                self.shares.push(vec![None; self.n]);
            }
            while self.client.poll_timeout().is_some() {
                self.step();
            }
            if self.completed.is_some() {
                break;
            }
        }
        while self.network.pending_events() > 0 {
            self.step();
        }
        self.check()
    }

    fn step(&mut self) {
        let event = match self.client.poll_timeout() {
            Some(at) => self.network.next_event_until(at),
            None => self.network.next_event(),
        };
        let now = self.network.now();
        self.client.handle_timeout(now);
        match event {
            None => {}
            Some(SimulationEvent::Arrived { link, bytes }) => {
                let Route { channel, way, from } = self.route(link);
                match way {
                    Way::ToServer => self.server.handle_datagram(channel, from, &bytes, now),
                    Way::ToClient => self.client.handle_datagram(channel, &bytes, now),
                }
            }
            Some(SimulationEvent::Intercepted { link, bytes }) => {
                let Route { channel, way, from } = self.route(link);
                let adversary = self.adversary.as_mut().expect("nobody else intercepts");
                let acts = adversary.intercept(channel, way, from, bytes);
                self.perform(acts);
            }
            Some(other) => panic!("{other:?}"),
        }
        self.collect();
    }

    fn route(&self, link: SimulatedLinkId) -> Route {
        self.routes[link.index()].0
    }

    /// The link of a route. The adversary controls those of its channels; without an adversary, all
    /// lose datagrams.
    fn link(&mut self, route: Route) -> SimulatedLinkId {
        if let Some((_, link)) = self.routes.iter().find(|(known, _)| *known == route) {
            return *link;
        }
        let link = self.network.add_link(Duration::from_millis(1), Duration::from_millis(400));
        match &self.adversary {
            None => self.network.conditions_mut(link).loss_permille = 400,
            Some(adversary) if adversary.holds(route.channel) => self.network.seize(link),
            Some(_) => {}
        }
        self.routes.push((route, link));
        link
    }

    /// Handles the events of both ends.
    fn collect(&mut self) {
        while let Some((channel, bytes)) = self.client.poll_transmit(self.network.now()) {
            if bytes[0] >> 4 == 10 {
                let shares = self.shares.last_mut().unwrap();
                shares[channel] = Some(bytes[KEY_SHARE].to_vec());
            }
            self.send(channel, Way::ToServer, address(0, channel), &bytes);
        }
        while let Some(reply) = self.server.poll_transmit() {
            self.send(reply.channel, Way::ToClient, reply.to, &reply.bytes);
        }
        if let Some(TunnelClientEvent::Associated(keys)) = self.client.poll_event() {
            self.completed = Some(keys);
        }
        while let Some(event) = self.server.poll_event() {
            match event {
                TunnelServerEvent::Associated { keys, addresses } => {
                    self.associated.push((keys, addresses));
                }
                TunnelServerEvent::Refused { reason, .. } => self.refusals.push(reason),
            }
        }
    }

    /// Sends a datagram from or to the client's end of a channel, or an outsider's. A network
    /// without an adversary repeats it, and the adversary also injects one of its own.
    fn send(&mut self, channel: usize, way: Way, address: SocketAddr, bytes: &[u8]) {
        let copies = if self.adversary.is_some() { 1 } else { self.rng.below(4) };
        let holds = |adversary: &Adversary| adversary.holds(channel);
        let is_held = self.adversary.as_ref().is_some_and(holds);
        let is_lost = way == Way::ToClient && address.ip() != self::address(0, 0).ip();
        if is_held || !is_lost && !self.is_off(channel) {
            let link = self.link(Route { channel, way, from: address });
            for _ in 0..copies {
                self.network.send_datagram(link, bytes.to_vec());
            }
        }
        if let Some(adversary) = &mut self.adversary
            && !is_held
        {
            let acts = adversary.inject();
            self.perform(acts);
        }
    }

    fn is_off(&self, channel: usize) -> bool {
        self.off[channel].contains(&self.network.now())
    }

    fn perform(&mut self, acts: Vec<Act>) {
        for Act { channel, way, from, bytes, delay } in acts {
            if !self.is_off(channel) {
                let link = self.link(Route { channel, way, from });
                self.network.inject(link, bytes, delay);
            }
        }
    }

    fn check(&self) -> Outcome {
        let dealt: Vec<Vec<u8>> = self.shares.iter().filter_map(|shares| joined(shares)).collect();
        let mut seen = Vec::new();
        for (keys, addresses) in &self.associated {
            let points: Vec<u8> = [&keys.incoming, &keys.outgoing]
                .into_iter()
                .flat_map(|direction| all_points(direction).concat())
                .collect();
            assert!(dealt.contains(&points), "the server has points that no client has");
            assert!(!seen.contains(&points), "one handshake was associated twice");
            seen.push(points);
            assert!(
                keys.members.len() >= usize::from(self.terms.min_channels()),
                "too few channels"
            );
            let is_honest = |channel: &usize| {
                self.adversary.as_ref().is_none_or(|adversary| !adversary.holds(*channel))
            };
            let honest: Vec<usize> = keys.members.iter().filter(is_honest).collect();
            assert!(!honest.is_empty(), "all of the association is the attacker's");
            for honest in honest {
                assert_eq!(addresses[honest], address(0, honest), "an honest channel is another's");
            }
        }
        match &self.completed {
            Some(ours) => {
                let is_shared = self.associated.iter().any(|(theirs, _)| keys_agree(ours, theirs));
                assert!(is_shared, "the client completed by itself");
                Outcome::Completed
            }
            None if self.associated.is_empty() => Outcome::Neither,
            None => Outcome::ServerOnly,
        }
    }
}

/// The points from the sums of the shares on all channels on which some were sent.
fn joined(shares: &[Option<Vec<u8>>]) -> Option<Vec<u8>> {
    let mut secret = vec![0; KEY_SHARE.len()];
    shares.iter().flatten().next()?;
    for share in shares.iter().flatten() {
        secret.iter_mut().zip(share).for_each(|(byte, share)| *byte ^= share);
    }
    let (points, direction) = (MAX_CHANNELS * POINT_LEN, MAX_CHANNELS * POINT_LEN + TOKEN_KEY_LEN);
    Some([&secret[..points], &secret[direction..direction + points]].concat())
}
