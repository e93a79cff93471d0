//! Full load over channels that are bad for a while: loss, lower rates, delay, holes for long
//! datagrams, reordering, duplication, silence in one direction. `SUNDER_SEEDS` is the number of
//! runs.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use model::{ChannelModel, ChannelSet, LossProbability, RiskProbability};
use sim::SeededRng;
use sunder_remicss::send::spare::PlanPreference;

use super::scenario::{MS, Path};
use super::tunnel::{FULL, Tunnel};

const CHANNELS: usize = 3;
const MBPS: u64 = 20;
const MEANS: [(f64, f64); 5] = [(1.0, 1.0), (1.0, 2.0), (2.0, 2.0), (2.0, 2.5), (2.0, 3.0)];

/// The rates are measured before the faults, and from 5 s after their end.
const SETTLING: Duration = Duration::from_secs(12);
const MEASURING: Duration = Duration::from_secs(4);
const RECOVERY: Duration = Duration::from_secs(5);

/// CUBIC itself needs longer from the window that was left during the faults (also where all rates
/// are known), and its window goes up and down within seconds.
const TCP_RECOVERY: Duration = Duration::from_secs(10);
const TCP_MEASURING: Duration = Duration::from_secs(16);

fn path() -> Path {
    Path::new(MBPS, 30, 0, 10)
}

/// What is wrong with a channel.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// Of 1,000 datagrams.
    Loss(u64),
    Kbps(u64),
    DelayMs(u32),
    MaxLen(usize),
    JitterMs(u32),
    Duplicated(u64),
    /// Nothing that this end sends arrives.
    Silent(usize),
}

/// Trouble with a channel for a time.
#[derive(Clone, Copy, Debug)]
struct Fault {
    channel: usize,
    trouble: Trouble,
    from: Duration,
    until: Duration,
}

impl Fault {
    fn draw(channel: usize, rng: &mut SeededRng) -> Self {
        let trouble = match rng.index(7) {
            0 => Trouble::Loss(50 + rng.below(951)),
            // From 200 kbit/s to 80 Mbit/s.
            1 => Trouble::Kbps(draw_log(200, 80_000, rng)),
            2 => Trouble::DelayMs(20 + u32::try_from(rng.below(200)).unwrap()),
            3 => Trouble::MaxLen(600 + rng.index(850)),
            4 => Trouble::JitterMs(1 + u32::try_from(rng.below(60)).unwrap()),
            5 => Trouble::Duplicated(1 + rng.below(1000)),
            _ => Trouble::Silent(rng.index(2)),
        };
        let from = MS * u32::try_from(rng.below(10_000)).unwrap();
        let until = from + MS * u32::try_from(draw_log(200, 60_000, rng)).unwrap();
        Self { channel, trouble, from, until }
    }

    fn apply(&self, tunnel: &mut Tunnel) {
        let (scenario, channel) = (&mut tunnel.scenario, self.channel);
        match self.trouble {
            Trouble::Loss(lost) => scenario.set(channel, |path| path.lost = lost),
            Trouble::Kbps(kbps) => scenario.set_sent_by(0, channel, |path| {
                path.rate_bps = kbps * 1000;
            }),
            Trouble::DelayMs(ms) => scenario.set(channel, |path| path.delay = MS * ms),
            Trouble::MaxLen(len) => scenario.set(channel, |path| path.max_len = len),
            Trouble::JitterMs(ms) => scenario.set(channel, |path| path.jitter = MS * ms),
            Trouble::Duplicated(part) => scenario.set(channel, |path| path.duplicated = part),
            Trouble::Silent(end) => scenario.set_sent_by(end, channel, |path| path.is_cut = true),
        }
    }

    fn is_active(&self, time: Duration) -> bool {
        (self.from..self.until).contains(&time)
    }
}

/// A number between two others, of which each order of magnitude is equally likely.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are small"
)]
fn draw_log(least: u64, most: u64, rng: &mut SeededRng) -> u64 {
    let part = rng.below(1 << 30) as f64 / (1_u64 << 30) as f64;
    (least as f64 * (most as f64 / least as f64).powf(part)) as u64
}

/// What is sent through the tunnel.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// A fifth more than the tunnel can carry.
    Datagrams,
    /// One TCP connection.
    Tcp,
}

/// A TCP connection that always has something to send: slow start, then CUBIC's growth and
/// reduction, and a timeout if nothing is acknowledged.
struct Tcp {
    window: f64,
    threshold: f64,
    /// The window before the last reduction, and when that was.
    before: f64,
    reduced_at: Duration,
    /// When each packet is acknowledged, or its loss is found.
    in_flight: VecDeque<(Duration, bool)>,
    acknowledged_at: Duration,
    /// The last round trip.
    round_trip: Duration,
}

/// The way of an acknowledgement.
const WAY_BACK: Duration = Duration::from_millis(30);

impl Tcp {
    fn new() -> Self {
        Self {
            window: 10.0,
            threshold: f64::INFINITY,
            before: 10.0,
            reduced_at: Duration::ZERO,
            in_flight: VecDeque::new(),
            acknowledged_at: Duration::ZERO,
            round_trip: MS * 40,
        }
    }

    fn step(&mut self, tunnel: &mut Tunnel) {
        let now = tunnel.scenario.now();
        while let Some((at, is_delivered)) = self.in_flight.front().copied()
            && at <= now
        {
            self.in_flight.pop_front();
            self.handle(now, is_delivered);
        }
        if self.in_flight.is_empty() {
            self.acknowledged_at = now;
        } else if now > self.acknowledged_at + MS * 300 {
            self.threshold = (self.window / 2.0).max(2.0);
            (self.window, self.acknowledged_at) = (1.0, now);
        }
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        while (self.in_flight.len() as f64) < self.window {
            let Ok(delivered_at) = tunnel.send_symbol() else { return };
            // Packets are kept in order, and a loss is found by the packets after it.
            let before = self.in_flight.back().map_or(now, |(at, _)| *at);
            let at = delivered_at.map_or(now + self.round_trip, |at| at + WAY_BACK).max(before);
            self.round_trip = at.saturating_sub(now);
            self.in_flight.push_back((at, delivered_at.is_some()));
        }
    }

    fn handle(&mut self, now: Duration, is_delivered: bool) {
        if is_delivered {
            self.acknowledged_at = now;
            if self.window < self.threshold {
                self.window += 1.0;
            } else {
                let cubic_root = (self.before * 0.3 / 0.4).cbrt();
                let time = now.saturating_sub(self.reduced_at).as_secs_f64();
                let target = 0.4 * (time - cubic_root).powi(3) + self.before;
                let reno = 0.7 * self.before + 0.53 * time / self.round_trip.as_secs_f64();
                let target = target.max(reno).min(1.5 * self.window);
                self.window += ((target - self.window) / self.window).max(0.0);
            }
        } else if now >= self.reduced_at + self.round_trip {
            self.before = self.window;
            self.window = (0.7 * self.window).max(2.0);
            (self.threshold, self.reduced_at) = (self.window, now);
        }
        // What the tunnel's queue and the channels hold at most.
        self.window = self.window.min(600.0);
    }
}

/// One run.
#[derive(Clone, Debug)]
struct Run {
    seed: u64,
    means: (f64, f64),
    is_configured: bool,
    load: Load,
    faults: Vec<Fault>,
}

/// The rates of a run, in Mbit/s of symbols.
struct Rates {
    before: f64,
    /// What the channels without faults allow, and what was delivered meanwhile, if redundancy
    /// makes up for the others.
    during: Option<(f64, f64)>,
    after: f64,
    /// The channels' estimates at the end.
    estimates: String,
}

impl Run {
    fn draw(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let means = *rng.pick(&MEANS).unwrap();
        let is_configured = rng.index(2) == 0;
        let load = if rng.index(2) == 0 { Load::Datagrams } else { Load::Tcp };
        let first = rng.index(CHANNELS);
        let mut channels = vec![first];
        if rng.index(2) == 0 {
            channels.push((first + 1 + rng.index(CHANNELS - 1)) % CHANNELS);
        }
        let count = channels.len() + rng.index(3);
        let fault = |place| Fault::draw(channels[place % channels.len()], &mut rng);
        let faults = (0..count).map(fault).collect();
        Self { seed, means, is_configured, load, faults }
    }

    fn rates(&self) -> Rates {
        let rate = self.is_configured.then_some(MBPS * 1_000_000);
        let mut tunnel = Tunnel::new(&[path(); CHANNELS], &[rate; CHANNELS], self.means, self.seed);
        tunnel.goal.prefer = PlanPreference::Rate;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "72e6 at most")]
        let offered_bps = (1.2e6 * self.allowed(0)) as u64;
        tunnel.offered = offered_bps / (8 * FULL as u64);
        let mut tcp = Tcp::new();
        self.advance(&mut tunnel, &mut tcp, SETTLING);
        let (recovery, measuring) = match self.load {
            Load::Datagrams => (RECOVERY, MEASURING),
            Load::Tcp => (TCP_RECOVERY, TCP_MEASURING),
        };
        let before = self.advance(&mut tunnel, &mut tcp, measuring);
        let started = tunnel.scenario.now();
        let end = self.faults.iter().map(|fault| fault.until).max().unwrap();
        let begin = self.faults.iter().map(|fault| fault.from).min().unwrap();
        let (mut delivered, mut time) = (0.0, 0.0);
        loop {
            let now = tunnel.scenario.now().saturating_sub(started);
            for channel in 0..CHANNELS {
                tunnel.scenario.set(channel, |conditions| *conditions = Path { ..path() });
            }
            if now >= end {
                break;
            }
            let active = self.faults.iter().filter(|fault| fault.is_active(now));
            active.for_each(|fault| fault.apply(&mut tunnel));
            let changes = self.faults.iter().flat_map(|fault| [fault.from, fault.until]);
            let next = changes.filter(|change| *change > now).min().unwrap();
            let rate = self.advance(&mut tunnel, &mut tcp, next.saturating_sub(now));
            if now >= begin {
                let seconds = next.saturating_sub(now).as_secs_f64();
                (delivered, time) = (delivered + rate * seconds, time + seconds);
            }
        }
        self.advance(&mut tunnel, &mut tcp, recovery);
        let after = self.advance(&mut tunnel, &mut tcp, measuring);
        let faulty = (0..CHANNELS).filter(|c| self.faults.iter().any(|f| f.channel == *c)).count();
        #[expect(clippy::cast_precision_loss, reason = "3 at most")]
        let is_redundant = self.means.1 - self.means.0 >= faulty as f64;
        let allowed = self.allowed(faulty).min(before);
        let during = is_redundant.then_some((allowed, delivered / time));
        let estimates: Vec<String> = tunnel
            .scenario
            .estimates()
            .iter()
            .map(|e| format!("{} kbit/s {:?} {:.3}", e.known_bps / 1000, e.source, e.loss))
            .collect();
        Rates { before, during, after, estimates: estimates.join(", ") }
    }

    /// The rate over all but so many channels.
    #[expect(clippy::cast_precision_loss, reason = "numbers are small")]
    fn allowed(&self, faulty: usize) -> f64 {
        let left = CHANNELS - faulty;
        let channel =
            ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), 10.0, MBPS as f64)
                .unwrap();
        let set = ChannelSet::new(vec![channel; left.max(1)]).unwrap();
        set.best_rate(self.means.1.min(left.max(1) as f64)).unwrap()
    }

    /// Runs for a time, and returns the rate that was delivered in Mbit/s.
    #[expect(clippy::cast_precision_loss, reason = "numbers are small")]
    fn advance(&self, tunnel: &mut Tunnel, tcp: &mut Tcp, time: Duration) -> f64 {
        let before = tunnel.delivered();
        match self.load {
            Load::Datagrams => drop(tunnel.run(time)),
            Load::Tcp => {
                let until = tunnel.scenario.now() + time;
                while tunnel.scenario.now() < until {
                    tunnel.step();
                    tcp.step(tunnel);
                }
            }
        }
        let symbols = (tunnel.delivered() - before) as f64;
        symbols * 8e-6 * FULL as f64 / time.as_secs_f64()
    }
}

impl Rates {
    fn is_good(&self) -> bool {
        self.after >= 0.9 * self.before
            && self.during.is_none_or(|(allowed, delivered)| delivered >= 0.8 * allowed)
    }
}

impl Display for Rates {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { before, during, after, estimates } = self;
        write!(formatter, "{before:.1} Mbit/s before, {after:.1} after")?;
        if let Some((allowed, delivered)) = during {
            write!(formatter, ", {delivered:.1} of {allowed:.1} during faults")?;
        }
        write!(formatter, ", estimates: {estimates}")
    }
}

#[test]
fn faults_that_are_over_leave_nothing_behind() {
    let runs = sim::run_seeds(8, |seed| {
        let run = Run::draw(seed);
        (run.rates(), run)
    });
    let bad: Vec<String> = runs
        .iter()
        .filter(|(rates, _)| !rates.is_good())
        .map(|(rates, run)| format!("{rates}\n    {run:?}"))
        .collect();
    assert!(bad.is_empty(), "{} of {} runs:\n{}", bad.len(), runs.len(), bad.join("\n"));
}
