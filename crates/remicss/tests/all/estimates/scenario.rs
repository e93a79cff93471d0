//! Two ends and the links between them, in virtual time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use model::ChannelSubset;
use sim::Rng;
use sunder_remicss::control::estimate::Estimate;
use sunder_remicss::control::incoming::ArrivalCounts;
use sunder_remicss::control::monitor::Monitor;
use sunder_remicss::control::outgoing::SentCounts;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// The bytes of a datagram, as an IP packet, and what IP, UDP, header, tag and the like add.
pub(crate) const PACKET: u64 = 1428;
pub(crate) const AROUND: u64 = 45;

/// What one direction of a channel is like.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) rate_bps: u64,
    /// How much waits at most, as the time that it takes to send.
    pub(crate) queue: Duration,
    /// Of 1,000 datagrams.
    pub(crate) lost: u64,
    pub(crate) delay: Duration,
    pub(crate) is_cut: bool,
    /// Whether nothing waits: what would have to wait for less than the queue goes at once.
    pub(crate) is_policed: bool,
}

impl Path {
    pub(crate) fn new(mbps: u64, queue_ms: u32, lost: u64, delay_ms: u32) -> Self {
        let (queue, delay) = (MS * queue_ms, MS * delay_ms);
        Self { rate_bps: mbps * 1_000_000, queue, lost, delay, is_cut: false, is_policed: false }
    }
}

/// One direction of a channel, and what is on it.
pub(crate) struct Link {
    pub(crate) path: Path,
    pub(crate) free_at: Duration,
    /// What arrives when: the number of a control symbol, or none.
    pub(crate) flying: VecDeque<(Duration, Option<u64>)>,
}

impl Link {
    /// Returns whether it will arrive.
    fn send(&mut self, rng: &mut Rng, now: Duration, bytes: u64, control: Option<u64>) -> bool {
        let backlog = self.free_at.saturating_sub(now);
        let time = |bytes| Duration::from_nanos(bytes * 8 * 1_000_000_000 / self.path.rate_bps);
        // No queue is shorter than a few packets.
        if self.path.is_cut || backlog > self.path.queue.max(time(4 * PACKET)) {
            return false;
        }
        self.free_at = self.free_at.max(now) + time(bytes);
        let arrives = rng.below(1000) >= self.path.lost;
        if arrives {
            let last = self.flying.back().map_or(Duration::ZERO, |(at, _)| *at);
            let sent_at = if self.path.is_policed { now } else { self.free_at };
            let at = (sent_at + self.path.delay).max(last);
            self.flying.push_back((at, control));
        }
        arrives
    }
}

/// A control share that has come: its channel, how many datagrams came before it there, and when.
#[derive(Clone, Copy)]
pub(crate) struct Share(usize, u64, Duration);

/// One end, and the links that it sends on.
pub(crate) struct End {
    pub(crate) monitor: Monitor,
    pub(crate) links: Vec<Link>,
    pub(crate) sent: Vec<SentCounts>,
    pub(crate) received: Vec<ArrivalCounts>,
    pub(crate) credit: Vec<u64>,
    pub(crate) symbols: u64,
    /// Datagrams of packets that were sent and have come.
    pub(crate) packets: u64,
    /// Control messages on their way, and which of their shares have come.
    pub(crate) controls: BTreeMap<u64, (Vec<u8>, Vec<Share>)>,
    pub(crate) control_bytes: u64,
}

impl End {
    pub(crate) fn new(paths: &[Path], rates: &[Option<u64>]) -> Self {
        let link =
            |path: &Path| Link { path: *path, free_at: Duration::ZERO, flying: VecDeque::new() };
        Self {
            monitor: Monitor::new(rates, Duration::ZERO),
            links: paths.iter().map(link).collect(),
            sent: vec![SentCounts::default(); paths.len()],
            received: vec![ArrivalCounts::default(); paths.len()],
            credit: vec![0; paths.len()],
            symbols: 0,
            packets: 0,
            controls: BTreeMap::new(),
            control_bytes: 0,
        }
    }

    pub(crate) fn send(
        &mut self,
        rng: &mut Rng,
        now: Duration,
        index: usize,
        bytes: u64,
        control: Option<u64>,
    ) -> bool {
        self.packets += u64::from(control.is_none());
        self.sent[index].datagrams += 1;
        self.sent[index].bytes += bytes;
        self.links[index].send(rng, now, bytes, control)
    }

    pub(crate) fn send_control(&mut self, rng: &mut Rng, now: Duration) {
        let (sent, received) = (&self.sent, &self.received);
        let message =
            self.monitor.poll_message(now, sent, received, ChannelSubset::EMPTY, self.packets);
        let Some(message) = message else {
            return;
        };
        self.symbols += 1;
        let bytes = message.len() as u64 + AROUND;
        self.control_bytes += bytes;
        self.controls.insert(self.symbols, (message, Vec::new()));
        for index in 0..self.links.len() {
            self.send(rng, now, index, bytes, Some(self.symbols));
        }
    }

    /// Sends packets at the pace, or slower, for a millisecond.
    pub(crate) fn send_packets(&mut self, rng: &mut Rng, now: Duration, demand_bps: u64) {
        for index in 0..self.links.len() {
            let pacer = self.monitor.limit(index).unwrap().rate_bps.min(demand_bps);
            self.credit[index] += pacer / 1000;
            while self.credit[index] >= PACKET * 8 {
                self.credit[index] -= PACKET * 8;
                self.send(rng, now, index, PACKET, None);
            }
        }
    }
}

pub(crate) struct Scenario {
    pub(crate) rng: Rng,
    pub(crate) now: Duration,
    /// Packets go from the first to the second.
    pub(crate) ends: [End; 2],
    pub(crate) floor: usize,
    pub(crate) demand_bps: u64,
}

impl Scenario {
    /// The way back is like the way there, but as wide as needed and without loss.
    pub(crate) fn new(paths: &[Path], rates: &[Option<u64>]) -> Self {
        let back: Vec<Path> =
            paths.iter().map(|path| Path { rate_bps: 1_000_000_000, lost: 0, ..*path }).collect();
        let ends =
            [End::new(paths, rates), End::new(&back, &vec![Some(1_000_000_000); paths.len()])];
        Self { rng: Rng::new(1), now: Duration::ZERO, ends, floor: 1, demand_bps: u64::MAX }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
            self.ends[0].send_packets(&mut self.rng, self.now, self.demand_bps);
        }
    }

    /// Lets a millisecond pass, with all but packets.
    pub(crate) fn step(&mut self) {
        self.now += MS;
        self.deliver(0, 1);
        self.deliver(1, 0);
        for end in &mut self.ends {
            end.send_control(&mut self.rng, self.now);
        }
    }

    /// Sends a packet on a channel, and says whether it will arrive.
    pub(crate) fn send(&mut self, channel: usize, bytes: u64) -> bool {
        self.ends[0].send(&mut self.rng, self.now, channel, bytes, None)
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let next = |end: &End| {
            let heads = end.links.iter().enumerate();
            let heads = heads.filter_map(|(i, link)| link.flying.front().map(|(at, _)| (*at, i)));
            heads.min()
        };
        while let Some((at, index)) = next(&self.ends[from])
            && at <= self.now
        {
            let (_, control) = self.ends[from].links[index].flying.pop_front().unwrap();
            let arrived = &mut self.ends[to].received[index];
            let before = arrived.datagrams;
            arrived.datagrams += 1;
            arrived.right += 1;
            let Some(symbol) = control else {
                self.ends[to].packets += 1;
                continue;
            };
            let (message, shares) = self.ends[from].controls.get_mut(&symbol).unwrap();
            shares.push(Share(index, before, at));
            let (count, message) = (shares.len(), message.clone());
            // Those that arrived before it verified are reported when it does.
            let shares = match count.cmp(&self.floor) {
                Ordering::Less => continue,
                Ordering::Equal => shares.clone(),
                Ordering::Greater => vec![Share(index, before, at)],
            };
            let monitor = &mut self.ends[to].monitor;
            if count == self.floor {
                monitor.handle_message(symbol, &message, at).unwrap();
            }
            for Share(channel, before, at) in shares {
                monitor.handle_share(symbol, channel, before, at);
            }
        }
    }

    pub(crate) fn estimates(&self) -> Vec<Estimate> {
        self.ends[0].monitor.estimates(self.now)
    }

    pub(crate) fn set(&mut self, channel: usize, change: impl Fn(&mut Path)) {
        self.ends.iter_mut().for_each(|end| change(&mut end.links[channel].path));
    }

    /// The rate of a channel, as a part of what the path carries.
    #[expect(clippy::cast_precision_loss, reason = "numbers are small")]
    pub(crate) fn part(&self, channel: usize) -> f64 {
        let actual = self.ends[0].links[channel].path.rate_bps;
        self.estimates()[channel].rate_bps as f64 / actual as f64
    }
}
