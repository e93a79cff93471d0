//! Links that fail and recover at random, repeatedly, while packets cross. As many fail
//! concurrently as packets have spare shares.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use lab::{EmulatedLinkConditions, LinkDirection};

use crate::pair::{CLIENT, Pair, SERVER, THREE_LINKS, in_one_of_three, network, over};
use crate::stream::{Stream, StreamRate};

/// The default number of failures, without `SUNDER_FLAPS`.
const FLAPS: usize = 12;

/// The time within which a recovered channel must be used.
const REUSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The minimum duration of a failure, its maximum addition, and the time without failures after a
/// channel is used again.
const MIN_FAULT: Duration = Duration::from_millis(20);
const MAX_FAULT: Duration = Duration::from_millis(1500);
const MAX_PAUSE: Duration = Duration::from_millis(300);

/// The interval at which links are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// More datagrams than the control messages that are sent until a link is used again.
const MIN_DATAGRAMS: u64 = 50;

/// The kind of failure of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FailureKind {
    /// It loses all packets, in both directions.
    Silent,
    /// It loses what the client sends.
    SilentThere,
    /// It loses what the server sends.
    SilentBack,
    /// The client's device is down.
    Down,
}

const MANNERS: [FailureKind; 4] =
    [FailureKind::Silent, FailureKind::SilentThere, FailureKind::SilentBack, FailureKind::Down];

/// The state of a link.
enum State {
    /// In use. It can fail after this time.
    Used {
        until: Duration,
    },
    Failed {
        manner: FailureKind,
        until: Duration,
    },
    /// Recovered, but not in use yet: the number of datagrams that had crossed it in each
    /// direction.
    Back {
        manner: FailureKind,
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

/// Makes links fail, at most `spare` of them concurrently.
fn flap(topology: &str, links: &[&'static str], settings: &str, spare: usize) {
    let flaps = env::var("SUNDER_FLAPS").map_or(FLAPS, |flaps| flaps.parse().expect("a number"));
    let mut seed = 0;
    in_one_of_three(|| {
        seed += 1;
        let network = network(topology);
        let channels = over(&network, links);
        let pair = Pair::start(network, settings, &channels);
        let (client, server) = (pair.host("client"), pair.host("server"));
        let there = Stream::start(client, server, SERVER, StreamRate::LIGHT);
        let back = Stream::start(server, client, CLIENT, StreamRate::LIGHT);
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
        if lost == 0 && most < REUSE_TIMEOUT {
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

    /// Makes links fail `flaps` times, at most `spare` concurrently, including those not yet used
    /// again. Returns the sorted times until they were used again.
    fn run(mut self, flaps: usize, spare: usize) -> BTreeMap<FailureKind, Vec<Duration>> {
        let (mut begun, mut unused) = (0, BTreeMap::<_, Vec<_>>::new());
        loop {
            let now = self.stream.now();
            for link in 0..self.links.len() {
                if let Some((manner, took)) = self.update(link, now) {
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

    /// Recovers a link at the end of its failure, and checks whether a recovered link is used
    /// again. If so, returns the kind of failure and the time it took.
    fn update(&mut self, link: usize, now: Duration) -> Option<(FailureKind, Duration)> {
        match self.links[link].1 {
            State::Failed { manner, until } if until <= now => {
                self.set(link, None);
                let (since, crossed) = (self.stream.now(), self.crossed(link));
                self.links[link].1 = State::Back { manner, since, crossed };
                None
            }
            State::Back { manner, since, crossed } => {
                let now_crossed = self.crossed(link);
                if crossed
                    .iter()
                    .zip(now_crossed)
                    .any(|(before, now)| now <= before + MIN_DATAGRAMS)
                {
                    return None;
                }
                let until = now + MAX_PAUSE.mul_f64(self.rng.f64());
                self.links[link].1 = State::Used { until };
                Some((manner, now.saturating_sub(since)))
            }
            State::Used { .. } | State::Failed { .. } => None,
        }
    }

    /// The number of packets that have crossed a link, in each direction.
    fn crossed(&self, link: usize) -> [u64; 2] {
        let link = self.pair.network().link(self.links[link].0).unwrap();
        LinkDirection::BOTH.map(|direction| link.counts(direction).delivered)
    }

    /// Makes a link fail or recover.
    fn set(&self, link: usize, manner: Option<FailureKind>) {
        let name = self.links[link].0;
        let before = match self.links[link].1 {
            State::Failed { manner, .. } => Some(manner),
            State::Used { .. } | State::Back { .. } => None,
        };
        let [there, back] = LinkDirection::BOTH;
        let directions: &[LinkDirection] = match manner.or(before) {
            Some(FailureKind::Silent) => &[there, back],
            Some(FailureKind::SilentThere) => &[there],
            Some(FailureKind::SilentBack) => &[back],
            Some(FailureKind::Down) | None => &[],
        };
        let network = self.pair.network();
        for direction in directions {
            let usual = network.conditions(name, *direction).unwrap();
            let loss = if manner.is_some() { 1.0 } else { usual.loss };
            network
                .link(name)
                .unwrap()
                .set(*direction, EmulatedLinkConditions { loss, ..usual })
                .unwrap();
        }
        if manner.or(before) == Some(FailureKind::Down) {
            let state = if manner.is_some() { "down" } else { "up" };
            let mut command = Command::new("ip");
            command.args(["link", "set", "dev", name, state]);
            let status = self.pair.host("client").run(|| command.status()).unwrap().unwrap();
            assert!(status.success(), "ip link set {name} {state}");
        }
    }
}
