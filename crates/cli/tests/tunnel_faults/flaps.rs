//! Links that fail and come back at random, again and again, while packets cross: as many at a time
//! as packets have shares to spare.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use lab::{Conditions, Direction};

use crate::pair::{CLIENT, Pair, SERVER, THREE_LINKS, in_one_of_three, network, over};
use crate::stream::{Pace, Stream};

/// How often links fail where `SUNDER_FLAPS` does not say it.
const FLAPS: usize = 12;

/// How soon a channel is used after its link is back.
const USED: Duration = Duration::from_secs(2);

/// How long a link fails at least, how much longer at most, and how long there is peace after it is
/// used again.
const MIN_FAULT: Duration = Duration::from_millis(20);
const MAX_FAULT: Duration = Duration::from_millis(1500);
const MAX_PAUSE: Duration = Duration::from_millis(300);

/// How often it is looked what to do.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// More datagrams than control messages in the time in which a link is used again.
const MANY: u64 = 50;

/// How a link fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Manner {
    /// It loses everything, both ways.
    Silent,
    /// It loses what the client sends.
    SilentThere,
    /// It loses what the server sends.
    SilentBack,
    /// The client's device is down.
    Down,
}

const MANNERS: [Manner; 4] =
    [Manner::Silent, Manner::SilentThere, Manner::SilentBack, Manner::Down];

/// Where a link is.
enum State {
    /// In use. It does not fail before.
    Used {
        until: Duration,
    },
    Failed {
        manner: Manner,
        until: Duration,
    },
    /// Back, but not in use yet: so many datagrams had crossed it each way.
    Back {
        manner: Manner,
        since: Duration,
        crossed: [u64; 2],
    },
}

pub(crate) fn links_that_flap_cost_no_packet() {
    flap(THREE_LINKS, &["a", "b", "c"], "kappa = 2\nmu = 3\nmin_channels = 2", 1);
}

pub(crate) fn two_links_at_a_time_that_flap_cost_no_packet() {
    let four = format!(
        "{THREE_LINKS}[links.d]\nhosts = [\"client\", \"server\"]\n\
         both = {{ rate_mbit = 100, delay_ms = 3 }}\n"
    );
    flap(&four, &["a", "b", "c", "d"], "kappa = 2\nmu = 4\nmin_channels = 2", 2);
}

/// Has links fail of which so many can be spared.
fn flap(topology: &str, links: &[&'static str], settings: &str, spare: usize) {
    let flaps = env::var("SUNDER_FLAPS").map_or(FLAPS, |flaps| flaps.parse().expect("a number"));
    let mut seed = 0;
    in_one_of_three(|| {
        seed += 1;
        let network = network(topology);
        let channels = over(&network, links);
        let pair = Pair::start(network, settings, &channels);
        let (client, server) = (pair.host("client"), pair.host("server"));
        let there = Stream::start(client, server, (SERVER, 9000), Pace::LIGHT);
        let back = Stream::start(server, client, (CLIENT, 9000), Pace::LIGHT);
        for stream in [&there, &back] {
            stream.wait_for(1000);
        }
        for channel in 0..links.len() {
            pair.wait_for_states("client", channel, ["up", "up"]);
        }
        let (there_began, back_began) = (there.now(), back.now());
        let unused = Flapping::new(&pair, links, &there, Rng::with_seed(seed)).run(flaps, spare);
        let (sent, lost) = there.lost(there_began, there.now());
        let (sent_back, lost_back) = back.lost(back_began, back.now());
        let packets = sent + sent_back;
        let lost = lost + lost_back;
        println!("{flaps} times a link failed, {spare} at a time at most; seed {seed}");
        println!("{packets} packets, {lost} lost; links were used again after");
        println!("| how it failed | times | median | most |\n|---|---|---|---|");
        for (manner, times) in &unused {
            let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
            println!("| {manner:?} | {} | {median:.3?} | {most:.3?} |", times.len());
        }
        assert_eq!((there.wrong(), back.wrong()), (0, 0));
        let most = unused.values().flatten().max().copied().unwrap_or_default();
        if lost == 0 && most < USED {
            return Ok(());
        }
        Err(format!("{lost} of {packets} lost, a link unused for {most:?}"))
    });
}

/// Links that fail.
struct Flapping<'a> {
    pair: &'a Pair,
    links: Vec<(&'static str, State)>,
    stream: &'a Stream,
    rng: Rng,
}

impl<'a> Flapping<'a> {
    fn new(pair: &'a Pair, links: &[&'static str], stream: &'a Stream, rng: Rng) -> Self {
        let links = links.iter().map(|link| (*link, State::Used { until: Duration::ZERO }));
        Self { pair, links: links.collect(), stream, rng }
    }

    /// Has links fail so often, so many at a time at most, those that are not used again yet among
    /// them. Returns how long that took each time, sorted.
    fn run(mut self, flaps: usize, spare: usize) -> BTreeMap<Manner, Vec<Duration>> {
        let (mut begun, mut unused) = (0, BTreeMap::<_, Vec<_>>::new());
        loop {
            let now = self.stream.now();
            for link in 0..self.links.len() {
                if let Some((manner, took)) = self.look(link, now) {
                    unused.entry(manner).or_default().push(took);
                }
            }
            let is_used = |(_, state): &(_, State)| matches!(state, State::Used { .. });
            let away = self.links.iter().filter(|link| !is_used(link)).count();
            if begun == flaps && away == 0 {
                break;
            }
            let link = self.rng.usize(..self.links.len());
            if begun < flaps
                && away < spare
                && matches!(self.links[link].1, State::Used { until } if until <= now)
            {
                begun += 1;
                let manner = MANNERS[self.rng.usize(..MANNERS.len())];
                self.set(link, Some(manner));
                let until = now + MIN_FAULT + MAX_FAULT.mul_f64(self.rng.f64());
                self.links[link].1 = State::Failed { manner, until };
            }
            thread::sleep(POLL_INTERVAL);
        }
        for times in unused.values_mut() {
            times.sort_unstable();
        }
        unused
    }

    /// Has a link come back whose time it is, and looks whether one that is back is used again: how
    /// it had failed, and how long that took.
    fn look(&mut self, link: usize, now: Duration) -> Option<(Manner, Duration)> {
        match self.links[link].1 {
            State::Failed { manner, until } if until <= now => {
                self.set(link, None);
                let (since, crossed) = (self.stream.now(), self.crossed(link));
                self.links[link].1 = State::Back { manner, since, crossed };
                None
            }
            State::Back { manner, since, crossed } => {
                let now_crossed = self.crossed(link);
                if crossed.iter().zip(now_crossed).any(|(before, now)| now <= before + MANY) {
                    return None;
                }
                let until = now + MAX_PAUSE.mul_f64(self.rng.f64());
                self.links[link].1 = State::Used { until };
                Some((manner, now.saturating_sub(since)))
            }
            State::Used { .. } | State::Failed { .. } => None,
        }
    }

    /// How many packets have crossed a link, each direction.
    fn crossed(&self, link: usize) -> [u64; 2] {
        let link = self.pair.network().link(self.links[link].0).unwrap();
        Direction::BOTH.map(|direction| link.counts(direction).delivered)
    }

    /// Has a link fail, or come back.
    fn set(&self, link: usize, manner: Option<Manner>) {
        let name = self.links[link].0;
        let before = match self.links[link].1 {
            State::Failed { manner, .. } => Some(manner),
            State::Used { .. } | State::Back { .. } => None,
        };
        let [there, back] = Direction::BOTH;
        let directions: &[Direction] = match manner.or(before) {
            Some(Manner::Silent) => &[there, back],
            Some(Manner::SilentThere) => &[there],
            Some(Manner::SilentBack) => &[back],
            Some(Manner::Down) | None => &[],
        };
        let network = self.pair.network();
        for direction in directions {
            let usual = network.conditions(name, *direction).unwrap();
            let loss = if manner.is_some() { 1.0 } else { usual.loss };
            network.link(name).unwrap().set(*direction, Conditions { loss, ..usual }).unwrap();
        }
        if manner.or(before) == Some(Manner::Down) {
            let state = if manner.is_some() { "down" } else { "up" };
            let mut command = Command::new("ip");
            command.args(["link", "set", "dev", name, state]);
            let status = self.pair.host("client").run(|| command.status()).unwrap().unwrap();
            assert!(status.success(), "ip link set {name} {state}");
        }
    }
}
