//! A client and a server, datagrams on their way between them, and who is in between.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use model::ChannelSubset;
use sharing::Generator;
use sim::Rng;
use sunder_remicss::MAX_CHANNELS;
use sunder_remicss::control::handshake::{
    Client, ClientEvent, ClientIdentity, Server, ServerEvent, ServerRefusal, SharedKey,
};
use sunder_remicss::wire::keys::{Direction, Keys, POINT_LEN};
use sunder_remicss::wire::terms::Terms;
use sunder_remicss::wire::tokens::TOKEN_KEY_LEN;

use super::adversary::{Act, Adversary, Way};

/// Where a List has its key share.
const KEY_SHARE: Range<usize> = 41..41 + 320;

/// How many clients are made, one after the other, as the first ones fail.
const ATTEMPTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A client completed.
    Completed,
    /// The server associated a client that did not hear of it.
    ServerOnly,
    /// Nobody was associated.
    Neither,
}

/// A datagram that is about to arrive.
struct Flying {
    channel: usize,
    way: Way,
    /// Who seems to have sent it.
    from: SocketAddr,
    bytes: Vec<u8>,
}

pub(crate) struct Scenario {
    rng: Rng,
    now: Duration,
    n: usize,
    terms: Terms,
    key: Option<SharedKey>,
    client: Client,
    server: Server,
    flying: BTreeMap<(Duration, u64), Flying>,
    launched: u64,
    adversary: Option<Adversary>,
    /// When each channel is off, which nobody does on purpose.
    off: Vec<Range<Duration>>,
    /// What all clients' key shares come to, as far as they were sent, by client and channel.
    shares: Vec<Vec<Option<Vec<u8>>>>,
    completed: Option<Keys>,
    associated: Vec<(Keys, Vec<SocketAddr>)>,
    refusals: Vec<ServerRefusal>,
}

/// The address of a client's, or an outsider's, end of a channel.
pub(crate) fn address(who: u8, channel: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, who], 1000 + u16::try_from(channel).unwrap()))
}

/// True if what one end sends is what the other takes.
pub(crate) fn keys_agree(client: &Keys, server: &Keys) -> bool {
    let agree = |one: &Direction, other: &Direction| {
        one.tokens.id() == other.tokens.id() && all_points(one) == all_points(other)
    };
    agree(&client.outgoing, &server.incoming) && agree(&client.incoming, &server.outgoing)
}

fn all_points(direction: &Direction) -> Vec<[u8; 8]> {
    let points = direction.points.as_ref().unwrap();
    (1..=u8::try_from(MAX_CHANNELS).unwrap()).map(|k| points.of(k)).collect()
}

fn generator() -> Generator {
    Generator::seeded().unwrap()
}

impl Scenario {
    pub(crate) fn new(seed: u64, n: u8, adversary: Option<Adversary>) -> Self {
        Self::of(seed, Terms::new(n, 1, true).unwrap(), adversary)
    }

    /// With these terms at both ends.
    pub(crate) fn of(seed: u64, terms: Terms, adversary: Option<Adversary>) -> Self {
        let mut rng = Rng::new(seed);
        let n = terms.channels();
        let addresses = (0..n.into()).map(|channel| address(0, channel)).collect();
        let key = rng.chance(50).then(|| SharedKey::new(&[7; 32]));
        let peer = key.clone().map_or(ClientIdentity::Addresses(addresses), ClientIdentity::Key);
        // Anywhere within the period that cookies are counted in.
        let now = Duration::from_millis(1_000_000 + rng.below(10_000));
        Self {
            client: Client::new(terms, key.clone(), &mut generator(), now).unwrap(),
            server: Server::new(terms, peer, &mut generator()).unwrap(),
            now,
            n: n.into(),
            terms,
            off: vec![Duration::ZERO..Duration::ZERO; n.into()],
            key,
            rng,
            flying: BTreeMap::new(),
            launched: 0,
            adversary,
            shares: vec![vec![None; n.into()]],
            completed: None,
            associated: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Has each channel be off for a while, or always, or never.
    pub(crate) fn cut_channels(&mut self) {
        for off in &mut self.off {
            let begin = self.now + Duration::from_millis(self.rng.below(8_000));
            let length = Duration::from_millis(self.rng.below(8_000));
            *off = match self.rng.below(4) {
                0 => begin..begin + length,
                1 => self.now..self.now + length,
                2 => Duration::ZERO..Duration::MAX,
                _ => Duration::ZERO..Duration::ZERO,
            };
        }
    }

    /// How many channels the association has that a client has completed.
    pub(crate) fn members(&self) -> Option<usize> {
        self.completed.as_ref().map(|keys| keys.members.len())
    }

    pub(crate) fn saw(&self, reason: ServerRefusal) -> bool {
        self.refusals.contains(&reason)
    }

    /// Runs until a client completes or all have failed, and on until nothing is on its way.
    pub(crate) fn run(&mut self) -> Outcome {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let key = self.key.clone();
                let client = Client::new(self.terms, key, &mut generator(), self.now).unwrap();
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
        while !self.flying.is_empty() {
            self.step();
        }
        self.judge()
    }

    fn step(&mut self) {
        let timer = self.client.poll_timeout();
        let arrival = self.flying.keys().next().map(|(at, _)| *at);
        self.now = timer.into_iter().chain(arrival).min().unwrap().max(self.now);
        self.client.handle_timeout(self.now);
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let flying = entry.remove();
            match flying.way {
                Way::ToServer => self.server.handle_datagram(
                    flying.channel,
                    flying.from,
                    &flying.bytes,
                    self.now,
                ),
                Way::ToClient => {
                    self.client.handle_datagram(flying.channel, &flying.bytes, self.now);
                }
            }
            self.collect();
        }
        self.collect();
    }

    /// Takes what both ends have to say.
    fn collect(&mut self) {
        while let Some((channel, bytes)) = self.client.poll_transmit(self.now) {
            if bytes[0] >> 4 == 10 {
                let shares = self.shares.last_mut().unwrap();
                shares[channel] = Some(bytes[KEY_SHARE].to_vec());
            }
            self.send(channel, Way::ToServer, address(0, channel), bytes);
        }
        while let Some(reply) = self.server.poll_transmit() {
            self.send(reply.channel, Way::ToClient, reply.to, reply.bytes);
        }
        if let Some(ClientEvent::Associated(keys)) = self.client.poll_event() {
            self.completed = Some(keys);
        }
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Associated { keys, addresses } => {
                    self.associated.push((keys, addresses));
                }
                ServerEvent::Refused { reason, .. } => self.refusals.push(reason),
            }
        }
    }

    fn send(&mut self, channel: usize, way: Way, address: SocketAddr, bytes: Vec<u8>) {
        let Some(adversary) = &mut self.adversary else {
            return self.launch_lossy(channel, way, address, &bytes);
        };
        if !adversary.holds(channel) {
            let unverified = way == Way::ToClient && address.ip() != super::address(0, 0).ip();
            if !unverified {
                self.launch(channel, way, address, bytes);
            }
            for act in self.adversary.as_mut().unwrap().inject() {
                self.act(act);
            }
            return;
        }
        for act in adversary.intercept(channel, way, address, bytes) {
            self.act(act);
        }
    }

    fn act(&mut self, act: Act) {
        let at = self.now + act.delay;
        if self.off[act.channel].contains(&self.now) {
            return;
        }
        self.launched += 1;
        let flying =
            Flying { channel: act.channel, way: act.way, from: act.from, bytes: act.bytes };
        self.flying.insert((at, self.launched), flying);
    }

    /// On a network that loses, repeats and delays.
    fn launch_lossy(&mut self, channel: usize, way: Way, address: SocketAddr, bytes: &[u8]) {
        for _ in 0..self.rng.below(4) {
            if self.rng.chance(60) {
                self.launch(channel, way, address, bytes.to_vec());
            }
        }
    }

    fn launch(&mut self, channel: usize, way: Way, from: SocketAddr, bytes: Vec<u8>) {
        let delay = self.rng.between(Duration::from_millis(1), Duration::from_millis(400));
        self.act(Act { channel, way, from, bytes, delay });
    }

    fn judge(&self) -> Outcome {
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

/// The points that shares on all channels come to on which some were sent.
fn joined(shares: &[Option<Vec<u8>>]) -> Option<Vec<u8>> {
    let mut secret = vec![0; KEY_SHARE.len()];
    shares.iter().flatten().next()?;
    for share in shares.iter().flatten() {
        secret.iter_mut().zip(share).for_each(|(byte, share)| *byte ^= share);
    }
    let (points, direction) = (MAX_CHANNELS * POINT_LEN, MAX_CHANNELS * POINT_LEN + TOKEN_KEY_LEN);
    Some([&secret[..points], &secret[direction..direction + points]].concat())
}
