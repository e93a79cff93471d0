//! Both ends of a stream in virtual time, over channels that delay, stall, break, trickle, and change
//! what they carry. The only outcomes are the exact bytes, or an error.

use std::collections::{BTreeSet, VecDeque};
use std::env;
use std::io::ErrorKind;
use std::time::Duration;

use association::{Cookie, List, Message, Protocol, SharingScheme, Terms};
use sharing::Generator;
use sim::{Event as Happening, LinkId, Network, Rng};

use super::{Event, Failure, LostChannelTimeouts, Request, Stream};
use crate::protocol::incoming::LATE_CHANNEL_TIMEOUT;
use crate::protocol::options::OPTION_ONCE;

const CLIENT: usize = 0;
const SERVER: usize = 1;

const LOST_CHANNEL: LostChannelTimeouts =
    LostChannelTimeouts { open: Duration::from_secs(90), opening: Duration::ZERO };

/// What a link is like that is not honest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Everything arrives, and nothing is changed.
    None,
    /// Nothing arrives after so many bytes.
    Silent(usize),
    /// The connection ends after so many bytes.
    Cut(usize),
    /// A bit is changed after so many bytes.
    Change(usize),
    /// What was sent is sent again after so many bytes.
    Replay(usize),
    /// From so many bytes on, a byte comes every second.
    Trickle(usize),
}

/// One direction of a channel.
struct Link {
    id: LinkId,
    attack: Attack,
    /// How many bytes of it the attacker has passed on, and when the last of them arrives.
    passed: usize,
    last: Duration,
    /// How many bytes are on their way or not read yet.
    outstanding: usize,
    is_shut: bool,
    /// What has arrived and was not read yet.
    arrived: VecDeque<u8>,
    has_ended: bool,
    is_end_read: bool,
}

/// One end, with its application.
struct End {
    stream: Option<Stream>,
    to_say: VecDeque<u8>,
    heard: Vec<u8>,
    has_ended: bool,
    opened: bool,
    failure: Option<Failure>,
    is_over: bool,
    lost: BTreeSet<usize>,
    closed: BTreeSet<usize>,
    armed: Option<Duration>,
}

struct World {
    rng: Rng,
    network: Network<usize>,
    n: usize,
    terms: Terms,
    list: List,
    /// By channel, then by the end that it leads to.
    links: Vec<[Link; 2]>,
    ends: [End; 2],
    window: usize,
    service_delay: Duration,
    enough_since: Option<Duration>,
}

/// What a run is like.
#[derive(Clone, Debug)]
struct Scenario {
    n: u8,
    k: u8,
    attacks: Vec<[Attack; 2]>,
    /// How much either application says.
    says: [usize; 2],
    once: bool,
}

impl Scenario {
    /// Up to `hostile` channels are attacked.
    fn random(rng: &mut Rng) -> Self {
        let n = 1 + u8::try_from(rng.index(5)).unwrap();
        let k = if rng.chance(50) { n } else { 1 + u8::try_from(rng.index(n.into())).unwrap() };
        let says = [0, 1].map(|_| [0, 1, 300, 5_000, 120_000][rng.index(5)]);
        let hostile = if rng.chance(30) { 0 } else { rng.index(usize::from(n)) };
        let mut attacks = vec![[Attack::None; 2]; n.into()];
        for attacks in attacks.iter_mut().take(hostile) {
            for attack in attacks {
                let place = [rng.index(60), rng.index(3_000), rng.index(200_000)][rng.index(3)];
                *attack = match rng.index(6) {
                    0 => Attack::None,
                    1 => Attack::Silent(place),
                    2 => Attack::Cut(place),
                    3 => Attack::Change(place),
                    4 => Attack::Replay(place),
                    _ => Attack::Trickle(place),
                };
            }
        }
        rng.shuffle(&mut attacks);
        Self { n, k, attacks, says, once: rng.chance(50) }
    }

    /// How many channels are attacked.
    fn hostile(&self) -> usize {
        self.attacks.iter().filter(|attacks| **attacks != [Attack::None; 2]).count()
    }

    /// Whether both ends must come to an end with all bytes.
    fn must_succeed(&self) -> bool {
        self.hostile() == 0
    }
}

impl World {
    fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut network = Network::new(rng.next_u64());
        let scheme =
            if scenario.k < scenario.n { SharingScheme::Shamir } else { SharingScheme::Xor };
        let options = if scenario.once { OPTION_ONCE } else { 0 };
        let terms =
            Terms::new(Protocol::MicssStream, scheme, scenario.k, scenario.n, options).unwrap();
        let cookies: Vec<Cookie> = (0..scenario.n).map(|_| Cookie::new(rng.bytes())).collect();
        let list = List::new(terms, cookies.clone()).unwrap();
        let links = scenario.attacks.iter().map(|attacks| {
            let delay = Duration::from_millis(1 + rng.below(50));
            let mut link = |attack| {
                let id = network.link(delay, delay + Duration::from_millis(rng.below(20)));
                if attack != Attack::None {
                    network.seize(id);
                }
                Link {
                    id,
                    attack,
                    passed: 0,
                    last: Duration::ZERO,
                    outstanding: 0,
                    is_shut: false,
                    arrived: VecDeque::new(),
                    has_ended: false,
                    is_end_read: false,
                }
            };
            [link(attacks[CLIENT]), link(attacks[SERVER])]
        });
        let links = links.collect();
        let end = |says: usize| End {
            stream: None,
            to_say: (0..says).map(byte).collect(),
            heard: Vec::new(),
            has_ended: false,
            opened: false,
            failure: None,
            is_over: false,
            lost: BTreeSet::new(),
            closed: BTreeSet::new(),
            armed: None,
        };
        let mut ends = scenario.says.map(end);
        let now = Duration::ZERO;
        let request = Request {
            threshold: scenario.k,
            cookies: &cookies,
            target: b"service",
            has_records: true,
            is_reusable: !scenario.once,
            waits_for_answer: rng.chance(30),
        };
        let client = Stream::client(&request, LOST_CHANNEL, Generator::seeded().unwrap(), now);
        ends[CLIENT].stream = Some(client.unwrap());
        let window = [500, 1_500, 4_000, 65_536][rng.index(4)];
        let service_delay = Duration::from_millis(rng.below(200));
        Self {
            rng,
            network,
            n: scenario.n.into(),
            terms,
            list,
            links,
            ends,
            window,
            service_delay,
            enough_since: None,
        }
    }

    /// Runs until nothing happens any more, or for a day.
    fn run(&mut self) {
        self.pump();
        while let Some(happening) = self.network.next_event() {
            let now = self.network.now();
            if now > Duration::from_secs(86_400) {
                return;
            }
            match happening {
                Happening::Arrived { link, bytes } => {
                    let (link, _) = self.link(link);
                    link.arrived.extend(bytes);
                }
                Happening::Closed { link } => self.link(link).0.has_ended = true,
                Happening::Intercepted { link, bytes } => self.attack(link, bytes),
                Happening::InterceptedClose { link } => {
                    let (own, _) = self.link(link);
                    let at = own.last.max(now);
                    self.network.inject_close(link, at.saturating_sub(now));
                }
                Happening::Timer(end) if end < 2 => {
                    self.ends[end].armed = None;
                    if let Some(stream) = &mut self.ends[end].stream {
                        let links = &self.links;
                        // A link that does not deliver is not acknowledged either.
                        stream.handle_timeout(now, |channel| {
                            match links[channel][1 - end].attack {
                                Attack::Silent(_) => Duration::from_secs(31),
                                _ => Duration::ZERO,
                            }
                        });
                    }
                }
                // The service has been connected, or it is time to do without lists.
                Happening::Timer(_) => self.timer(now),
            }
            self.pump();
            if self.ends.iter().all(|end| end.is_over) {
                return;
            }
        }
    }

    fn timer(&mut self, now: Duration) {
        if let Some(stream) = &mut self.ends[SERVER].stream {
            stream.accept(now);
            self.ends[SERVER].opened = true;
        }
    }

    fn link(&mut self, id: LinkId) -> (&mut Link, usize) {
        let (channel, to) = (id.index() / 2, id.index() % 2);
        (&mut self.links[channel][to], channel)
    }

    /// Passes on what was intercepted, as the attack has it.
    fn attack(&mut self, id: LinkId, mut bytes: Vec<u8>) {
        let now = self.network.now();
        let delay = Duration::from_millis(1 + self.rng.below(5));
        let list_len = self.list_len();
        let (link, _) = self.link(id);
        // The server's list is not what is tried here.
        let spared = if id.index() % 2 == SERVER { list_len } else { 0 };
        let (from, to) = (link.passed, link.passed + bytes.len());
        let cut_at = |place: usize| (place + spared).clamp(from, to) - from;
        let mut is_cut = false;
        let mut slow = Vec::new();
        match link.attack {
            Attack::None => {}
            Attack::Silent(place) => bytes.truncate(cut_at(place)),
            Attack::Cut(place) => {
                is_cut = to > place + spared;
                bytes.truncate(cut_at(place));
            }
            Attack::Change(place) => {
                if let Some(byte) =
                    (place + spared).checked_sub(from).and_then(|i| bytes.get_mut(i))
                {
                    *byte ^= 1;
                }
            }
            Attack::Replay(place) => {
                let place = place + spared;
                if from <= place && place < to && from >= spared {
                    let again = bytes.clone();
                    bytes.extend(again);
                }
            }
            Attack::Trickle(place) => slow = bytes.split_off(cut_at(place)),
        }
        link.passed = to;
        let mut at = link.last.max(now + delay);
        let network = &mut self.network;
        network.inject(id, bytes, at.saturating_sub(now));
        for byte in slow {
            at += Duration::from_secs(1);
            network.inject(id, vec![byte], at.saturating_sub(now));
        }
        if is_cut {
            network.inject_close(id, at.saturating_sub(now));
        }
        self.link(id).0.last = at;
    }

    fn list_len(&self) -> usize {
        Message::List(self.list.clone()).encode().len()
    }

    /// Has the ends do what they can.
    fn pump(&mut self) {
        self.associate();
        for end in [CLIENT, SERVER] {
            while self.step(end) {}
            let now = self.network.now();
            let own = &mut self.ends[end];
            if let Some(at) = own.stream.as_ref().and_then(Stream::poll_timeout)
                && own.armed.is_none_or(|armed| at < armed)
            {
                own.armed = Some(at);
                self.network.arm(at.max(now), end);
            }
        }
    }

    /// Makes the server's end once the channels have brought the list, or enough of them a moment ago.
    fn associate(&mut self) {
        if self.ends[SERVER].stream.is_some() {
            return;
        }
        let (now, len) = (self.network.now(), self.list_len());
        let has_list = |links: &[Link; 2]| links[SERVER].arrived.len() >= len;
        let with: BTreeSet<usize> =
            (0..self.n).filter(|&channel| has_list(&self.links[channel])).collect();
        if with.len() < usize::from(self.terms.threshold()) {
            return;
        }
        let since = *self.enough_since.get_or_insert_with(|| {
            self.network.arm(now + LATE_CHANNEL_TIMEOUT, 1 + SERVER);
            now
        });
        if with.len() < self.n && now < since + LATE_CHANNEL_TIMEOUT {
            return;
        }
        for &channel in &with {
            self.links[channel][SERVER].arrived.drain(..len);
            self.links[channel][SERVER].outstanding -= len;
        }
        let channels = with.iter().map(|&channel| (channel, &[][..]));
        let generator = Generator::seeded().unwrap();
        let stream = Stream::server(self.list.clone(), channels, LOST_CHANNEL.open, generator, now);
        self.ends[SERVER].stream = Some(stream.unwrap());
    }

    /// One thing that an end can do now. Returns whether there was one.
    fn step(&mut self, end: usize) -> bool {
        let now = self.network.now();
        let Some(mut stream) = self.ends[end].stream.take() else { return false };
        let done = self.take_event(end, &mut stream, now)
            || self.send(end, &mut stream, now)
            || self.receive(end, &mut stream, now)
            || self.talk(end, &mut stream, now);
        self.ends[end].stream = Some(stream);
        done
    }

    fn take_event(&mut self, end: usize, stream: &mut Stream, now: Duration) -> bool {
        if stream.has_work() {
            stream.advance(now);
            return true;
        }
        let Some(event) = stream.poll_event() else { return false };
        let own = &mut self.ends[end];
        match event {
            Event::Requested(request) => {
                assert_eq!(*request, b"service");
                self.network.arm(now + self.service_delay, 2);
            }
            Event::Opened => {
                own.opened = true;
                stream.connect_application(now);
            }
            Event::Lost(channel, _) => {
                own.lost.insert(channel);
                self.close(end, channel);
            }
            Event::ShutApplication => own.has_ended = true,
            Event::ShutChannels => {
                for channel in 0..self.n {
                    self.shut(end, channel);
                }
            }
            Event::Finished => own.is_over = true,
            Event::Failed(failure) => own.failure = Some(failure),
            Event::Closed { .. } => {
                own.is_over = true;
                for channel in 0..self.n {
                    self.close(end, channel);
                }
            }
        }
        true
    }

    /// Nothing more comes from an end on a channel.
    fn shut(&mut self, end: usize, channel: usize) {
        let link = &mut self.links[channel][1 - end];
        if !std::mem::replace(&mut link.is_shut, true) {
            self.network.close_stream(link.id);
        }
    }

    /// Nor does it read any more.
    fn close(&mut self, end: usize, channel: usize) {
        self.shut(end, channel);
        self.ends[end].closed.insert(channel);
    }

    fn send(&mut self, end: usize, stream: &mut Stream, now: Duration) -> bool {
        for channel in 0..self.n {
            let link = &mut self.links[channel][1 - end];
            let room = self.window.saturating_sub(link.outstanding);
            let to_send = stream.to_send(channel);
            if to_send.is_empty() || self.ends[end].closed.contains(&channel) {
                continue;
            }
            if link.is_shut || self.ends[1 - end].closed.contains(&channel) {
                stream.handle_broken(channel, ErrorKind::ConnectionReset, now);
                return true;
            }
            if room > 0 {
                let len = 1 + self.rng.index(to_send.len().min(room));
                self.network.send_stream(link.id, &to_send[..len]);
                link.outstanding += len;
                stream.handle_sent(channel, len, now);
                return true;
            }
        }
        false
    }

    fn receive(&mut self, end: usize, stream: &mut Stream, now: Duration) -> bool {
        for channel in stream.wanted() {
            let link = &mut self.links[channel][end];
            let space = stream.space(channel);
            let len = space.len().min(link.arrived.len());
            if len > 0 {
                let len = 1 + self.rng.index(len);
                for (place, byte) in space.iter_mut().zip(link.arrived.drain(..len)) {
                    *place = byte;
                }
                link.outstanding = link.outstanding.saturating_sub(len);
                stream.handle_received(channel, len, now);
                return true;
            }
            if link.has_ended && !std::mem::replace(&mut link.is_end_read, true) {
                stream.handle_received(channel, 0, now);
                return true;
            }
        }
        false
    }

    fn talk(&mut self, end: usize, stream: &mut Stream, now: Duration) -> bool {
        let own = &mut self.ends[end];
        let deliver = stream.to_deliver();
        if !deliver.is_empty() {
            let len = 1 + self.rng.index(deliver.len());
            own.heard.extend_from_slice(&deliver[..len]);
            stream.handle_delivered(len, now);
            return true;
        }
        if stream.wants_application() {
            let space = stream.application_space(own.to_say.len());
            let most = space.len().min(own.to_say.len());
            let len = if most > 0 { 1 + self.rng.index(most) } else { 0 };
            for (place, byte) in space.iter_mut().zip(own.to_say.drain(..len)) {
                *place = byte;
            }
            let is_end = own.to_say.is_empty() && self.rng.chance(50);
            stream.handle_application(len, is_end, now);
            return true;
        }
        false
    }
}

fn byte(place: usize) -> u8 {
    (place * 7 + place / 251).to_le_bytes()[0]
}

fn check(scenario: &Scenario, seed: u64) {
    let mut world = World::new(scenario, seed);
    world.run();
    for end in [CLIENT, SERVER] {
        let (own, other) = (&world.ends[end], scenario.says[1 - end]);
        let said: Vec<u8> = (0..other).map(byte).collect();
        let context = format!("seed {seed}, end {end}: {scenario:?}, {:?}", own.failure);
        assert!(said.starts_with(&own.heard), "other bytes: {context}");
        assert!(!own.has_ended || own.heard.len() == other, "cut short: {context}");
        if scenario.must_succeed() {
            assert!(own.failure.is_none(), "{context}");
            assert!(own.is_over && own.has_ended, "not over: {context}");
        }
    }
}

/// `SUNDER_SEEDS` runs as many.
#[test]
fn streams_are_exact_or_fail() {
    let seeds = env::var("SUNDER_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(200) {
        let scenario = Scenario::random(&mut Rng::new(seed));
        check(&scenario, seed);
    }
}
